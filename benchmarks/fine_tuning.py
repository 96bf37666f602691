"""The baseline of docs/guides/fine_tuning.md: TF-IDF and logistic regression on groups of 20 Newsgroups.

    python benchmarks/fine_tuning.py DATA/20news_bydate.jsonl four
    zoo fit --config recipes/finetune_classification.yaml --data.train four/train.csv
    zoo test --config recipes/finetune_classification.yaml --data.train four/train.csv --data.test four/test.csv \\
      --ckpt_path best

The first command writes four/train.csv and four/test.csv (messages without their header, split by date) and prints the
baseline's accuracy. It needs scikit-learn, which nothing else here does.
"""

import argparse
import csv
import time
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from zoo.data.common.tables import read_table

SETS = {
    "four": {"alt.atheism", "comp.graphics", "sci.med", "soc.religion.christian"},
    "others": {"comp.graphics", "rec.autos", "sci.space", "talk.politics.guns"},
    "twenty": None,  # all
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("messages", type=Path, help="20news_bydate.jsonl, or .jsonl.xz; see zoo.data.TwentyNewsgroups")
    parser.add_argument("set", choices=SETS)
    options = parser.parse_args()
    groups, parts = SETS[options.set], {"train": [], "test": []}
    for part, label, message in read_table(options.messages, ["split", "label", "text"]):
        if groups is None or label in groups:
            parts[part].append((label, message.partition("\n\n")[2]))
    folder = Path(options.set)
    folder.mkdir(exist_ok=True)
    for part, rows in parts.items():
        with open(folder / f"{part}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("label", "text"), *rows])
        print(f"{folder}/{part}.csv: {len(rows):,} messages")
    (labels, texts), (test_labels, test_texts) = (zip(*parts[part], strict=True) for part in ("train", "test"))
    for name, vectorizer, strength in (
        ("scikit-learn's defaults", TfidfVectorizer(), 1.0),
        ("sublinear_tf, C 10", TfidfVectorizer(sublinear_tf=True, min_df=2), 10.0),
    ):
        begin = time.monotonic()
        model = make_pipeline(vectorizer, LogisticRegression(C=strength, max_iter=1000)).fit(texts, labels)
        seconds, accuracy = time.monotonic() - begin, 100 * model.score(test_texts, test_labels)
        print(f"TF-IDF and logistic regression, {name}: {accuracy:.2f} ({seconds:.0f} s)")


if __name__ == "__main__":
    main()
