"""Shows that memory does not grow with the corpus: 5 million synthetic sentence pairs, tokenised and batched.

Run by hand: python tests/benchmarks/bench_data.py [--pairs 5000000] [--folder DIR]
"""

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from zoo.data.pairs import PairData
from zoo.text import Tokenizer

MIB = 2**20


def resident_mib() -> float:
    """Memory of this process that is in RAM now, mapped files included."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize() / MIB


class SyntheticPairs(PairData):
    """Random pairs of 50,000 made-up sentences, 4 to 40 Zipf-distributed words long, both of similar length."""

    def __init__(self, pairs: int, **options: Any) -> None:
        super().__init__(**options)
        self.pairs = pairs

    def signature(self) -> list[object]:
        return ["synthetic", self.pairs]

    def train_pairs(self) -> Iterator[tuple[str, str]]:
        rng = random.Random(0)
        syllables = [consonant + vowel for consonant in "bcdfghklmnprstvz" for vowel in "aeiou"]
        words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(20_000)]
        weights = list(accumulate(1 / (rank + 1) for rank in range(len(words))))
        lengths = sorted(rng.randint(4, 40) for _ in range(50_000))
        sentences = [" ".join(rng.choices(words, cum_weights=weights, k=length)) for length in lengths]
        for _ in range(self.pairs):
            src = int(rng.random() * len(sentences))
            tgt = src + int((rng.random() - 0.5) * 8_000)  # up to 3 words more or less
            yield sentences[src], sentences[min(max(tgt, 0), len(sentences) - 1)]

    def val_pairs(self) -> list[tuple[str, str]]:
        return [("ba", "be")]

    def _own_tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        # The first 50,000 pairs hold every word that matters: learning from all pairs only costs time.
        texts = (text for pair in islice(self.train_pairs(), 50_000) for text in pair)
        tokenizer = Tokenizer.train(texts, self.kind, self.vocab_size)
        return tokenizer, tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--batches", type=int, default=20_000, help="batches to load with each kind of budget")
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
        seconds = time.perf_counter() - begin
        print(f"\n{budget}: {len(loader):,} batches an epoch, first batch after {seconds:.2f} s")
        before, peak, real, padded = resident_mib(), 0.0, 0, 0
        begin = time.perf_counter()
        for number, batch in zip(range(batches), iterator):
            real += int(batch.src_lengths.sum()) + int(batch.tgt_lengths.sum())
            padded += batch.src.numel() + batch.tgt.numel() - len(batch.tgt)
            if number % 100 == 0:
                peak = max(peak, resident_mib())
        seconds = time.perf_counter() - begin
        speed = f"{(number + 1) / seconds:,.0f} batches/s, {real / seconds:,.0f} tokens/s"
        print(f"{speed}, padding {1 - real / padded:.1%}")
        print(f"resident before {before:.0f} MiB, peak {peak:.0f} MiB, after {resident_mib():.0f} MiB")


if __name__ == "__main__":
    main()
