"""The tables of docs/guides/fine_tuning.md: their texts, and the baseline of TF-IDF and logistic regression.

    python benchmarks/fine_tuning.py DATA four
    zoo fit --config recipes/finetune_classification.yaml --data.train four/train.csv
    zoo test --config recipes/finetune_classification.yaml --data.train four/train.csv --data.test four/test.csv \\
      --ckpt_path best

The first command writes four/train.csv and four/test.csv and prints the baseline's accuracy. `four`, `others` and
`twenty` are groups of 20 Newsgroups (messages without their header, split by date); `news` are 500 texts of AG News of
4 topics and 1,000 of its test set; `questions` are 450 questions of TREC of 6 kinds and its test set.

DATA or DATA/text has 20news_bydate.jsonl and trec6.tsv as zoo.data.TwentyNewsgroups and TREC6 read them, or
agnews_train12k.tsv (label, text; 3,000 training texts of each topic) and agnews_test.tsv (label, title, description);
each may be compressed (.xz). It needs scikit-learn, which nothing else here does.
"""

import argparse
import csv
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from zoo.data.common.tables import read_table

Rows = list[tuple[str, ...]]  # (label, text)
GROUPS = {
    "four": {"alt.atheism", "comp.graphics", "sci.med", "soc.religion.christian"},
    "others": {"comp.graphics", "rec.autos", "sci.space", "talk.politics.guns"},
    "twenty": None,  # all
}


def newsgroups(data: Path, groups: set[str] | None) -> tuple[Rows, Rows]:
    parts: dict[str, Rows] = {"train": [], "test": []}
    for part, label, message in _table(data, "20news_bydate.jsonl", "split", "label", "text"):
        if groups is None or label in groups:
            parts[part].append((label, message.partition("\n\n")[2]))
    return parts["train"], parts["test"]


def news(data: Path) -> tuple[Rows, Rows]:
    test = _table(data, "agnews_test.tsv", "label", "title", "description")
    return (
        _draw(_table(data, "agnews_train12k.tsv", "label", "text"), 500),
        _draw(((label, f"{title} {description}") for label, title, description in test), 1000),
    )


def questions(data: Path) -> tuple[Rows, Rows]:
    rows = list(_table(data, "trec6.tsv", "split", "label", "text"))
    train, test = ([row[1:] for row in rows if row[0] == part] for part in ("train", "test"))
    return _draw(train, 450), test


def _table(data: Path, name: str, *columns: str) -> Iterator[tuple[str, ...]]:
    places = [folder / f"{name}{ending}" for folder in (data, data / "text") for ending in ("", ".xz")]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        raise SystemExit(f"{name} is in neither {data} nor {data / 'text'}")
    return read_table(found, columns)


def _draw(rows: Iterable[tuple[str, ...]], count: int) -> Rows:
    """A random sample, the same on each call."""
    return random.Random(0).sample(list(rows), count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("set", choices=[*GROUPS, "news", "questions"])
    options = parser.parse_args()
    if options.set in GROUPS:
        train, test = newsgroups(options.data, GROUPS[options.set])
    else:
        train, test = {"news": news, "questions": questions}[options.set](options.data)
    folder = Path(options.set)
    folder.mkdir(exist_ok=True)
    for part, rows in (("train", train), ("test", test)):
        with open(folder / f"{part}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("label", "text"), *rows])
        print(f"{folder}/{part}.csv: {len(rows):,} texts")
    for name, vectorizer, strength in (
        ("scikit-learn's defaults", TfidfVectorizer(), 1.0),
        ("sublinear_tf, C 10", TfidfVectorizer(sublinear_tf=True, min_df=2), 10.0),
    ):
        begin = time.monotonic()
        model = make_pipeline(vectorizer, LogisticRegression(C=strength, max_iter=1000))
        model.fit([text for _, text in train], [label for label, _ in train])
        accuracy = 100 * model.score([text for _, text in test], [label for label, _ in test])
        print(f"TF-IDF and logistic regression, {name}: {accuracy:.2f} ({time.monotonic() - begin:.0f} s)")


if __name__ == "__main__":
    main()
