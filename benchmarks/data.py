"""Shows that memory does not grow with the corpus: millions of synthetic pairs or documents, tokenised and batched.

Run by hand: python benchmarks/data.py [pairs|documents|shards] [--size 5000000] [--folder DIR]

shards: the pairs are read by ParallelText from compressed files that are written first. CPU seconds are those of all
threads of this process.
"""

import argparse
import gzip
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from zoo.batches.classification import DocumentBatch
from zoo.batches.translation import PairBatch
from zoo.data.classification.arrays import Example
from zoo.data.classification.base import LabeledData
from zoo.data.translation.base import PairData
from zoo.data.translation.parallel_text import ParallelText
from zoo.text import Tokenizer

MIB = 2**20


def resident_mib() -> float:
    """Memory of this process that is in RAM now, mapped files included."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize() / MIB


def made_up_words() -> tuple[random.Random, list[str], list[float]]:
    """20,000 words and the cumulated weights of a Zipf distribution."""
    rng = random.Random(0)
    syllables = [consonant + vowel for consonant in "bcdfghklmnprstvz" for vowel in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(20_000)]
    return rng, words, list(accumulate(1 / (rank + 1) for rank in range(len(words))))


class SyntheticPairs(PairData):
    """Random pairs of 50,000 made-up sentences, 4 to 40 Zipf-distributed words long, both of similar length."""

    def __init__(self, pairs: int, **options: Any) -> None:
        super().__init__(**options)
        self.pairs = pairs

    def signature(self) -> list[object]:
        return ["synthetic", self.pairs]

    def train_pairs(self) -> Iterator[tuple[str, str]]:
        rng, words, weights = made_up_words()
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


def shards(pairs: int, cache_dir: str, files: int = 16, **options: Any) -> ParallelText:
    """The same pairs in compressed files, which are written if they are not there."""
    folder = Path(cache_dir) / f"{pairs}-pairs"
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / "val.tsv").write_text("ba\tbe\n", encoding="utf-8")
        texts = SyntheticPairs(pairs).train_pairs()
        for number in range(files):
            with gzip.open(folder / f"part-{number:02}.tsv.gz", "wt", compresslevel=6, encoding="utf-8") as file:
                count = pairs * (number + 1) // files - pairs * number // files
                file.writelines(f"{src}\t{tgt}\n" for src, tgt in islice(texts, count))
    files_of_train = str(folder / "part-*.tsv.gz")
    return ParallelText(files_of_train, val_src=str(folder / "val.tsv"), cache_dir=cache_dir, **options)


class SyntheticDocuments(LabeledData):
    """Random documents of 1 to 15 of 50,000 made-up sentences, so of 90 words on average, in two classes."""

    structure = "document"
    known_labels = ("odd", "even")

    def __init__(self, documents: int, **options: Any) -> None:
        super().__init__(**options)
        self.documents = documents

    def signature(self, split: str) -> list[object]:
        return ["synthetic", self.documents, split]

    def examples(self, split: str) -> Iterator[Example]:
        rng, words, weights = made_up_words()
        lengths = [rng.randint(4, 18) for _ in range(50_000)]
        sentences = [" ".join(rng.choices(words, cum_weights=weights, k=n)).capitalize() + ". " for n in lengths]
        for number in range(self.documents if split == "train" else 100):
            yield Example("".join(rng.choices(sentences, k=rng.randint(1, 15))), None, (self.known_labels[number % 2],))

    def _tokenizer(self) -> Tokenizer:
        texts = (example.text for example in islice(self.examples("train"), 50_000))  # as above
        return Tokenizer.train(texts, "word_punct", self.vocab_size, self.lowercase, self.min_frequency)


def tokens(batch: PairBatch | DocumentBatch) -> tuple[int, int]:
    """Number of tokens in a batch, without and with padding."""
    if isinstance(batch, DocumentBatch):
        return len(batch.words), len(batch.words)
    real = int(batch.src_lengths.sum()) + int(batch.tgt_lengths.sum())
    return real, batch.src.numel() + batch.tgt.numel() - len(batch.tgt)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", nargs="?", default="pairs", choices=["pairs", "documents", "shards"])
    parser.add_argument("--size", type=int, help="5 million pairs or 1 million documents if left out")
    parser.add_argument("--batches", type=int, default=20_000, help="batches to load with each kind of budget")
    parser.add_argument("--folder", help="cache folder; a temporary one if left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(options.kind, options.size, options.batches, options.folder or temporary)


def measure(kind: str, size: int | None, batches: int, folder: str) -> None:
    make = {"pairs": SyntheticPairs, "documents": SyntheticDocuments, "shards": shards}[kind]
    size = size or (1_000_000 if kind == "documents" else 5_000_000)
    data = make(size, cache_dir=folder)
    begin, cpu = time.perf_counter(), time.process_time()
    print(f"start                resident {resident_mib():6.0f} MiB")
    data.prepare_data()
    print(f"{size:,} {kind} tokenised in {time.perf_counter() - begin:.0f} s, resident {resident_mib():6.0f} MiB")
    cpu = time.process_time() - cpu
    print(f"CPU seconds          {cpu:6.0f}, {size / cpu:,.0f} {kind.replace('shards', 'pairs')} for each")
    stored = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    print(f"cache on disk        {stored / MIB:6.0f} MiB")
    for budget in ({"batch_size": 64}, {"batch_tokens": 2000}):
        data = make(size, cache_dir=folder, **budget)
        data.setup("fit")
        begin = time.perf_counter()
        loader = data.train_dataloader()
        iterator = iter(loader)
        next(iterator)
        seconds = time.perf_counter() - begin
        print(f"\n{budget}: {len(loader):,} batches per epoch, first batch after {seconds:.2f} s")
        before, peak, real, padded = resident_mib(), 0.0, 0, 0
        begin, cpu = time.perf_counter(), time.process_time()
        for number, batch in zip(range(batches), iterator):
            counts = tokens(batch)
            real, padded = real + counts[0], padded + counts[1]
            if number % 100 == 0:
                peak = max(peak, resident_mib())
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        speed = f"{(number + 1) / seconds:,.0f} batches/s, {real / seconds:,.0f} tokens/s, "
        speed += f"{real / cpu:,.0f} tokens per CPU second"
        print(f"{speed}, padding {1 - real / padded:.1%}")
        print(f"resident before {before:.0f} MiB, peak {peak:.0f} MiB, after {resident_mib():.0f} MiB")


if __name__ == "__main__":
    main()
