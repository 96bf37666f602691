"""Time of the graphs of `zoo export --format onnx` of translators, float32 and --int8, on one thread.

    zoo export luong_general.multi30k_en_de plain --format onnx
    zoo export luong_general.multi30k_en_de small --format onnx --int8
    taskset -c 0 python benchmarks/onnx_graphs.py plain small

Milliseconds of processor time of the encoder, for texts of 15 tokens, and of one step, each the minimum of several
rounds in which the folders take turns.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import onnxruntime

from zoo.runtime.graphs import EXACT_PRODUCTS

TOKENS, ROUNDS = 15, 7


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry(*EXACT_PRODUCTS)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def calls(folder: Path, batch: int, hypotheses: int) -> tuple:
    """Functions that run the encoder and one step."""
    about, rng = json.loads((folder / "onnx.json").read_text(encoding="utf-8")), np.random.default_rng(0)
    encoder, step = session(folder / "encoder.onnx"), session(folder / "step.onnx")
    text = {"tokens": rng.integers(4, 1000, (batch, TOKENS)), "lengths": np.full(batch, TOKENS)}
    found = dict(zip([value.name for value in encoder.get_outputs()], encoder.run(None, text), strict=True))
    found |= {name: np.repeat(found[name], hypotheses, axis=1) for name in about["state"]}
    grown = {name: x for name, x in found.items() if name in about["state"] and x.ndim == 4}
    found |= {name: np.ones((*x.shape[:2], 8, x.shape[3]), np.float32) for name, x in grown.items()}  # 8 words so far
    found |= {"tokens": rng.integers(4, 1000, (batch, hypotheses)), "position": np.array(8)}
    given = {value.name: found[value.name] for value in step.get_inputs()}
    return lambda: encoder.run(None, text), lambda: step.run(None, given)


def milliseconds(call, count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of `zoo export --format onnx`")
    folders = parser.parse_args().folders
    print(f"onnxruntime {onnxruntime.__version__}; {', '.join(map(str, folders))}")
    for batch, hypotheses in ((1, 1), (1, 5), (64, 1), (64, 5)):
        measured = [calls(folder, batch, hypotheses) for folder in folders]
        for n, name in enumerate(("encoder", "step")):
            count = max(1, 60 // (batch * hypotheses))
            rounds = [[milliseconds(pair[n], count) for pair in measured] for _ in range(ROUNDS)]
            print(f"{name:8}{batch:3} x {hypotheses}", *(f"{min(times):9.2f}" for times in zip(*rounds, strict=True)))


if __name__ == "__main__":
    main()
