"""One translator for six directions, or one each? The pairs of Multi30k for one: each source names the language wanted.

    python benchmarks/multilingual.py pairs --root DATA
    zoo fit --config recipes/reference_multilingual.multi30k.yaml --data.root pairs
    zoo validate --config recipes/reference_multilingual.multi30k.yaml --weights local-dir:EXPORTED --data.root pairs \\
        --data.val_src val.en-fr.src --data.val_tgt val.en-fr.tgt --data.tgt_lang fr

The first writes `train.en-fr.src`, `train.en-fr.tgt`, `val.en-fr.src` and so on; a source is "2fr A man sleeps."
(Johnson et al. 2017, https://arxiv.org/abs/1611.04558). The last scores one direction, as does
`zoo validate luong_general.multi30k_en_fr --data.root DATA` with the weight that knows no other.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from zoo.data import Multi30k

DIRECTIONS = ("en-fr", "fr-en", "en-cs", "cs-en", "de-fr", "fr-de")


def write(folder: Path, name: str, pairs: Iterable[tuple[str, str]], target: str) -> None:
    sources, targets = zip(*pairs, strict=True)
    (folder / f"{name}.src").write_text("".join(f"2{target} {text}\n" for text in sources), encoding="utf-8")
    (folder / f"{name}.tgt").write_text("".join(f"{text}\n" for text in targets), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the files are written")
    parser.add_argument("--root", help="folder of the data; else ZOO_DATA, else they are downloaded")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for direction in DIRECTIONS:
        source, target = direction.split("-")
        data = Multi30k(src_lang=source, tgt_lang=target, root=options.root)
        data.prepare_data()
        write(options.folder, f"train.{direction}", data.train_pairs(), target)
        write(options.folder, f"val.{direction}", data.val_pairs(), target)


if __name__ == "__main__":
    main()
