"""Runs the benchmarks and writes docs/speed.md.

    python benchmarks/report.py [--root DATA] [--peers ENVIRONMENT] [--only NAME ...] [--output docs/speed.md]

Takes at most 20 minutes on one core. Run it on an idle machine. --root and --peers are those of translation.py.
"""

import argparse
import datetime
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import torch
from kernels import processor

HERE = Path(__file__).parent
PAGE = """# Speed

Written by `{report}` on {date}: {processor} ({capability}), torch {torch}, one thread.
Every figure below is from the command above it, on this processor; on others the ratios differ.
Times are processor time, so that other programs on the machine hardly count.
"Plain" and the other baselines are described at the top of each script.

More scripts, each with what it found: `kernels.py` (each kernel, [Kernels](kernels.md)), `runtime.py` and
`onnx_graphs.py` (graphs without torch, [ONNX](guides/onnx.md)), `transformer_engines.py`
([CTranslate2](guides/ctranslate2.md)), `serve.py` (the server under load, [Serving](guides/serving.md)), `demo.py`
([the page](guides/demo.md)), `scaling.py`, `data.py` and `host_operations.py` ([how training scales](scaling.md)), and
`bundles.py` (10,000 damaged bundles).
"""
# script: title, arguments
PARTS = {
    "translation": ("Translation with a recurrent decoder", "--batches 6 --rounds 2"),
    "transformer": ("Transformer", "--rounds 3"),
    "classification": ("Classifiers", "--batches 3 --rounds 2"),
    "captioning": ("Captions", "--rounds 2"),
    "language_models": ("Language models", "--rounds 2"),
    "reading": ("Reading", "--batches 2 --rounds 2"),
}


def measured(name: str, arguments: list[str], limit: float) -> str:
    """A section of the page: the command and what it prints."""
    title, own = PARTS[name]
    words = ["benchmarks/" + name + ".py", "--threads", "1", *own.split(), *arguments]
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, HERE / f"{name}.py", *words[1:]], capture_output=True, text=True, check=False, timeout=limit
    )
    if run.returncode:
        sys.exit(f"{' '.join(words)}: {run.stderr.strip().splitlines()[-1]}")
    print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    shown = shlex.join(word if not Path(word).is_absolute() else Path(word).name.upper() for word in words)
    return f"\n## {title}\n\n`python {shown}`\n\n```text\n{run.stdout.strip()}\n```\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.environ.get("ZOO_DATA") or None)
    parser.add_argument("--peers")
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--output", type=Path, default=HERE.parent / "docs" / "speed.md")
    options = parser.parse_args()
    given = [] if options.root is None else ["--root", str(Path(options.root).resolve())]
    given += [] if options.peers is None else ["--peers", str(Path(options.peers).absolute())]
    page = PAGE.format(
        report="python benchmarks/report.py",
        date=datetime.date.today().isoformat(),
        processor=processor(),
        capability=torch.backends.cpu.get_cpu_capability(),
        torch=torch.__version__,
    )
    end = time.perf_counter() + 20 * 60
    for name in options.only:
        page += measured(name, given if name == "translation" else [], end - time.perf_counter())
    options.output.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
