"""How bundles from strangers fare: 10,000 random mutants, 1,000 flipped bits and all that were spoilt by hand; and what
the checks cost.

    python benchmarks/bundles.py [--mutants 10000] [--flips 1000] [--seed 0] [--rounds 5]

Each is loaded in a process that notes programs, connections, pickles and files opened elsewhere
(tests/helpers/bundle_corpus.py) and gets 256 MB of memory beyond what it had; 8 of 10 mutants have hashes that fit.
What loads is used, and compared with its files.

The bundled weights are loaded beside a plain load, which checks nothing: the constructor with its random numbers,
safetensors'
load_file, load_state_dict, and the assets. CPU time, the best of some rounds.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))  # found by pytest by itself
import bundle_corpus as corpus

import zoo
from zoo import registry
from zoo.bundles.files import WEIGHTS, Bundle


class Row:
    """What became of the bundles of one kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds = self.bytes = 0.0
        self.bad: list[str] = []

    def add(self, name: str, found: dict[str, Any], harm: str | None, may_load: bool) -> None:
        self.counts[found["error"] or "loads"] += 1
        self.seconds, self.bytes = max(self.seconds, found["seconds"]), max(self.bytes, found["bytes"])
        late = found["seconds"] > corpus.SECONDS or found["bytes"] > corpus.MEMORY
        unreadable = not (found["message"] or "").isprintable()
        loads = "loads" if found["model"] is not None and not may_load else ""
        if why := found["did"] or harm or late * "too slow or too large" or unreadable * "unprintable message" or loads:
            self.bad.append(f"{name}: {why}")

    def __str__(self) -> str:
        counts = [self.counts[key] for key in ("DamagedError", "MisfitError", "loads")]
        cells = (sum(self.counts.values()), *counts, len(self.bad))
        return " ".join(f"{cell:>9,}" for cell in cells) + f" {self.seconds:>9.2f} {self.bytes / 2**20:>9.1f}"


def fates(folder: Path, mutants: int, flips: int, seed: int) -> dict[str, Row]:
    """Loads all of them."""
    good = corpus.bundles()
    for name, files in good.items():
        corpus.use(zoo.load(f"local-dir:{corpus.write(files, folder / name)}"))
    guard = corpus.Guard()
    corpus.limit_memory(corpus.MEMORY)
    rows = {
        name: Row() for name in ("spoilt by hand", "mutants, hashes fit", "mutants, hashes do not", "one bit flipped")
    }
    for n, case in enumerate(corpus.CASES):
        rows["spoilt by hand"].add(
            case.name, corpus.attempt(case.write(good, folder / f"case{n}"), guard), None, may_load=False
        )
    for n, (base, sealed, done, files) in enumerate(islice(corpus.mutants(good, seed), mutants)):
        found = corpus.attempt(corpus.write(files, folder / "mutant"), guard)
        harm = corpus.harm(found["model"], files) if found["model"] is not None else None
        may_load = sealed or (found["model"] is not None and corpus.same(files, good[base]))
        rows["mutants, hashes fit" if sealed else "mutants, hashes do not"].add(
            f"{n} {base} {done}", found, harm, may_load
        )
    for base, where, files in islice(corpus.bit_flips(good, seed), flips):
        rows["one bit flipped"].add(
            f"{base} {where}", corpus.attempt(corpus.write(files, folder / "mutant"), guard), None, may_load=False
        )
    return rows


def plain_load(name: str) -> Any:
    """Without any check."""
    bundle = Bundle(registry.BUNDLED / name)
    model = registry.model_class(bundle.class_path)(**bundle.init_args)
    model.load_assets({file: (bundle.folder / file).read_text(encoding="utf-8") for file in bundle.assets})
    model.load_state_dict(load_file(bundle.folder / WEIGHTS), strict=False)  # tied tensors are stored once
    return model.eval()


def best(call: Any, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutants", type=int, default=10_000)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)

    print(f"{'weights, ms':38} {'zoo.load':>9} {'plain':>9} {'ratio':>9}")
    for name in registry.list_models():
        if (registry.BUNDLED / name).is_dir():
            checked, plain = (best(partial(load, name), options.rounds) for load in (zoo.load, plain_load))
            print(f"{name:38} {checked * 1e3:9.1f} {plain * 1e3:9.1f} {checked / plain:9.2f}")

    with tempfile.TemporaryDirectory() as folder:
        rows = fates(Path(folder), options.mutants, options.flips, options.seed)
    print(
        f"\n{'':24}"
        + " ".join(f"{head:>9}" for head in ("bundles", "damaged", "misfit", "loads", "bad", "max s", "max MB"))
    )
    for name, row in rows.items():
        print(f"{name:24}{row}")
    for line in (line for row in rows.values() for line in row.bad[:10]):
        print(line)


if __name__ == "__main__":
    main()
