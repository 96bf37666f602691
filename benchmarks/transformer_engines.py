"""A Transformer in torch, zoo.runtime and CTranslate2: equal translations, and sentences per second of processor time.

    zoo export transformer_tiny.multi30k_en_de onnx --format onnx
    zoo export transformer_tiny.multi30k_en_de onnx8 --format onnx --int8
    zoo export transformer_tiny.multi30k_en_de ct2 --format ctranslate2
    zoo export transformer_tiny.multi30k_en_de ct28 --format ctranslate2 --int8
    taskset -c 0 python benchmarks/transformer_engines.py transformer_tiny.multi30k_en_de TEXTS onnx onnx8 ct2 ct28

TEXTS has a sentence a line and may end in .gz. All engines get the same token ids, one thread, and batches of sentences
of similar length, and give no attention. Times are the minimum of rounds in which the engines take turns.

Beam search of CTranslate2 runs as CTranslate2 does by default (it stops when 5 hypotheses have finished) and, as
"exact", with the options of ctranslate2.json, whose hypotheses are ranked again by this package's score.
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import ctranslate2
import torch

import zoo
from zoo import runtime
from zoo.text import EOS
from zoo.utils.search_options import length_norm

Rows = list[list[int]]
Engine = Callable[[Rows], Rows]


def read(path: Path, count: int) -> list[str]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return [line.strip() for line, _ in zip(file, range(count))]


def ours(model, beam: int) -> Engine:
    """The engine of torch or of zoo.runtime."""

    def translate(rows: Rows) -> Rows:
        found = model.hypotheses(rows, beam, return_attention=False)
        return [row[0][:length].tolist() for row, (length, *_) in zip(found.tokens, found.lengths.tolist())]

    return torch.no_grad()(translate)


class CTranslate2:
    """The engine of an export, whose tokens are the names in tokenizer.json."""

    def __init__(self, folder: Path) -> None:
        self.translator = ctranslate2.Translator(str(folder), intra_threads=1)
        self.about = json.loads((folder / "ctranslate2.json").read_text(encoding="utf-8"))
        vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
        self.names, self.ids = sorted(vocabulary, key=vocabulary.__getitem__), vocabulary

    def engine(self, beam: int, exact: bool = False) -> Engine:
        options = dict(self.about["translate_batch"], beam_size=beam, max_decoding_length=256)
        if not exact:
            options |= {"num_hypotheses": 1, "patience": 1, "return_scores": False}
        alpha, penalty = self.about["search"]["length_penalty"], options["length_penalty"]

        def best(result) -> list[int]:
            rows = [[self.ids[name] for name in names] + [EOS] for names in result.hypotheses]
            if not exact:
                return rows[0]
            total = [score * len(row) ** penalty for row, score in zip(rows, result.scores)]
            return max(zip(total, rows), key=lambda pair: pair[0] / length_norm(len(pair[1]), alpha))[1]

        def translate(rows: Rows) -> Rows:
            texts = [[self.names[token] for token in row] for row in rows]
            return [best(result) for result in self.translator.translate_batch(texts, **options)]

        return translate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("texts", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = zoo.load(options.name)
    rows = sorted((model.src_tokenizer.encode(text) for text in read(options.texts, options.sentences)), key=len)
    graphs = {folder: runtime.load(folder) for folder in options.folders if (folder / "onnx.json").is_file()}
    others = {folder: CTranslate2(folder) for folder in options.folders if folder not in graphs}
    print(f"torch {torch.__version__}, CTranslate2 {ctranslate2.__version__}, {len(rows)} sentences")
    for beam, size in ((1, 64), (5, 64), (1, 1), (5, 1)):
        engines = {"torch": ours(model, beam)}
        engines |= {f"zoo.runtime {folder}": ours(graph, beam) for folder, graph in graphs.items()}
        engines |= {f"CTranslate2 {folder}": other.engine(beam) for folder, other in others.items()}
        if beam > 1:
            engines |= {f"CTranslate2 {folder}, exact": x.engine(beam, exact=True) for folder, x in others.items()}
        given = rows if size > 1 else rows[:: max(1, len(rows) // 60)]
        batches = [given[first : first + size] for first in range(0, len(given), size)]
        seconds, found = dict.fromkeys(engines, float("inf")), {}
        for _ in range(options.rounds):
            for name, engine in engines.items():
                start = time.process_time()
                found[name] = [row for batch in batches for row in engine(batch)]
                seconds[name] = min(seconds[name], time.process_time() - start)
        print(f"\nbeam {beam}, batches of {size}{'sentences/s':>35}{'equal to torch':>18}")
        for name in engines:
            equal = sum(a == b for a, b in zip(found[name], found["torch"], strict=True))
            print(f"{name:44}{len(given) / seconds[name]:11.1f}{equal:11} of {len(given)}", flush=True)


if __name__ == "__main__":
    main()
