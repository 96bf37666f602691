"""Shows that memory does not grow with the corpus: 5 million synthetic sentence pairs, tokenised and batched.

Run by hand: python tests/benchmarks/bench_data.py [--pairs 5000000] [--folder DIR]
"""

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zoo.data.pairs import PairData

MIB = 2**20


def resident_mib() -> float:
    """Memory of this process that is in RAM now, mapped files included."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize() / MIB


class SyntheticPairs(PairData):
    """Made-up words with a Zipf-like distribution, 4 to 40 words a sentence; source and target of similar length."""

    def __init__(self, pairs: int, **options: Any) -> None:
        super().__init__(**options)
        self.pairs = pairs

    def signature(self) -> list[object]:
        return ["synthetic", self.pairs]

    def train_pairs(self) -> Iterator[tuple[str, str]]:
        rng = random.Random(0)
        syllables = [consonant + vowel for consonant in "bcdfghklmnprstvz" for vowel in "aeiou"]
        words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(20_000)]
        # Sentences are cut out of one long text: drawing every word of 5 million pairs would take longer than the rest.
        text = rng.choices(words, weights=[1 / (rank + 1) for rank in range(len(words))], k=1_000_000)
        for _ in range(self.pairs):
            length = rng.randint(4, 40)
            src, tgt = rng.randrange(len(text) - 80), rng.randrange(len(text) - 80)
            other = max(1, round(length * rng.uniform(0.8, 1.25)))
            yield " ".join(text[src : src + length]), " ".join(text[tgt : tgt + other])

    def val_pairs(self) -> list[tuple[str, str]]:
        return [("ba", "be")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--batches", type=int, default=20_000, help="batches to load in each measurement")
    parser.add_argument("--folder", help="cache folder; a temporary one if left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(options.pairs, options.batches, options.folder or temporary)


def measure(pairs: int, batches: int, folder: str) -> None:
    begin = time.perf_counter()
    data = SyntheticPairs(pairs, cache_dir=folder)
    print(f"start                resident {resident_mib():6.0f} MiB")
    data.prepare_data()
    print(f"{pairs:,} pairs tokenised in {time.perf_counter() - begin:.0f} s, resident {resident_mib():6.0f} MiB")
    size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    print(f"cache on disk        {size / MIB:6.0f} MiB")
    for budget in ({"batch_size": 64}, {"batch_tokens": 2000}):
        data = SyntheticPairs(pairs, cache_dir=folder, **budget)
        data.setup("fit")
        begin = time.perf_counter()
        loader = data.train_dataloader()
        iterator = iter(loader)
        next(iterator)
        print(f"\n{budget}: {len(loader):,} batches an epoch, first batch after {time.perf_counter() - begin:.2f} s")
        begin, before, peak, real, padded = time.perf_counter(), resident_mib(), 0.0, 0, 0
        for number, batch in zip(range(batches), iterator):
            real += int(batch.src_lengths.sum() + batch.tgt_lengths.sum())
            padded += batch.src.numel() + batch.tgt.numel() - len(batch.tgt)
            if number % 100 == 0:
                peak = max(peak, resident_mib())
        seconds = time.perf_counter() - begin
        print(f"{(number + 1) / seconds:,.0f} batches/s, {real / seconds:,.0f} tokens/s, padding {1 - real / padded:.1%}")
        print(f"resident before {before:.0f} MiB, peak {peak:.0f} MiB, after {resident_mib():.0f} MiB")


if __name__ == "__main__":
    main()
