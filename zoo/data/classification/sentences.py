"""Sentence and sentence-pair classification: SST, TREC question types, SICK."""

import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from zoo.data.classification.arrays import Example
from zoo.data.classification.base import LabeledOptions
from zoo.data.classification.published import PublishedTexts
from zoo.data.common.base import Split
from zoo.data.common.files import read_lines
from zoo.data.common.tables import has_column, read_table
from zoo.utils.unpack import Unpack

# Names of the splits inside the files.
_SPLITS: dict[Split, str] = {"train": "train", "val": "dev", "test": "test"}


class SST(PublishedTexts):
    """Stanford Sentiment Treebank: sentences of film reviews (Socher et al. 2013), 8,544 / 1,101 / 2,210.

    Read from `sst5.tsv` or `sst2.tsv` (columns split, label, text) and, for the phrases, `sst_trees.train.txt` (one
    bracketed tree per line, as in the authors' archive).

    Args:
        classes: 5, very negative to very positive; or 2, without the neutral sentences: 6,920 / 872 / 1,821.
        phrases: train also on the labelled phrases inside the training sentences, each distinct one once; with 2
            classes without the neutral ones.
        **options: see `LabeledData`.
    """

    folder = "sst"
    upstream = "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip"
    cleaning = ("invisible", "html", "treebank", "quotes")

    def __init__(self, classes: Literal[2, 5] = 2, phrases: bool = False, **options: Unpack[LabeledOptions]) -> None:
        super().__init__(**options)
        if classes not in (2, 5):
            raise ValueError(f"classes must be 2 or 5; got {classes!r}")
        self.classes, self.phrases = classes, phrases
        self._names: tuple[str, ...] = ("negative", "positive")
        if classes == 5:
            self._names = ("very negative", "negative", "neutral", "positive", "very positive")
        self.known_labels = self._names

    def files(self, split: Split) -> list[str]:
        return [f"sst{self.classes}.tsv", *["sst_trees.train.txt"][: self.phrases and split == "train"]]

    def examples(self, split: Split) -> Iterator[Example]:
        seen = set()
        for part, label, text in read_table(self.path(f"sst{self.classes}.tsv"), ["split", "label", "text"]):
            if part == _SPLITS[split]:
                seen.add(text.lower())
                yield Example(text, None, (_named(self._names, label),))
        if self.phrases and split == "train":
            for tree in read_lines(self.path("sst_trees.train.txt")):
                for label, text in _phrases(tree):
                    names = self._phrase_labels(label)
                    if names and text.lower() not in seen:
                        seen.add(text.lower())
                        yield Example(text, None, names)

    def _phrase_labels(self, label: int) -> tuple[str, ...]:
        """Class name for one of the five labels; none for a neutral one with two classes."""
        if self.classes == 5:
            return (self._names[label],)
        return () if label == 2 else (self._names[label > 2],)


def _phrases(tree: str) -> Iterator[tuple[int, str]]:
    """Label 0..4 and text of each phrase inside a tree like `(3 (2 It) (4 works))`, without the whole sentence."""
    words: list[str] = []
    open_phrases: list[tuple[int, int]] = []  # label, number of words before it
    for label, word, close in re.findall(r"\((\d) ?|([^()\s]+)|(\))", tree):
        if label:
            open_phrases.append((int(label), len(words)))
        elif word:
            words.append(word)
        elif close:
            phrase_label, first = open_phrases.pop()
            if open_phrases:
                yield phrase_label, " ".join(words[first:])


def _named(names: tuple[str, ...], label: str) -> str:
    """The name of a numbered label; an unknown label itself, which is then reported."""
    return names[int(label)] if label.isdecimal() and int(label) < len(names) else label


class TREC6(PublishedTexts):
    """Questions by type of answer: description, entity, abbreviation, human, location, number (Li and Roth 2002).

    5,452 / 500 questions; validation is held out of training. Read from `trec6.tsv` (columns split, label 0..5, text).

    Args:
        **options: see `LabeledData`.
    """

    folder = "trec"
    upstream = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"
    cleaning = ("invisible", "html", "quotes")
    holds_out = True
    _names = ("DESC", "ENTY", "ABBR", "HUM", "LOC", "NUM")
    known_labels = _names

    def files(self, split: Split) -> list[str]:
        return ["trec6.tsv"]

    def examples(self, split: Split) -> Iterator[Example]:
        for part, label, text in read_table(self.path("trec6.tsv"), ["split", "label", "text"]):
            if part == _SPLITS[split]:
                yield Example(text, None, (_named(self._names, label),))


class SICK(PublishedTexts):
    """Sentences Involving Compositional Knowledge: does the first entail the second? (Marelli et al. 2014).

    4,500 / 500 / 4,927 pairs. Read from `sick.tsv` (columns split, gold_label, sentence1, sentence2 and, optionally,
    relatedness, 1 to 5, which becomes the score of the pair).

    Args:
        extra_snli: train also on the 19,666 pairs of the development and test part of SNLI (Bowman et al. 2015), read
            from `snli_dev.tsv` and `snli_test.tsv` (columns gold_label, sentence1, sentence2); they have no score.
        swapped: train on each pair that is not an entailment once as it is and once with its texts swapped (neutral
            and contradiction are nearly always symmetric), and on each entailment twice: an epoch is twice as long.
        **options: see `LabeledData`.
    """

    folder = "sick"
    upstream = "https://zenodo.org/records/2787612"
    cleaning = ("invisible", "html")
    pair = True
    known_labels = ("entailment", "neutral", "contradiction")
    _snli: ClassVar[list[str]] = ["snli_dev.tsv", "snli_test.tsv"]

    def __init__(self, extra_snli: bool = False, swapped: bool = False, **options: Unpack[LabeledOptions]) -> None:
        super().__init__(**options)
        self.extra_snli, self.swapped = extra_snli, swapped

    @property
    def scored(self) -> bool:
        return has_column(self.path("sick.tsv"), "relatedness")

    def once(self) -> "SICK":
        return (
            SICK(
                self.extra_snli,
                root=self.root,
                cache_dir=str(self.cache),
                max_words=self.max_words,
                extra_examples=self.extra_examples,
            )
            if self.swapped
            else self
        )

    def files(self, split: Split) -> list[str]:
        return ["sick.tsv", *(self._snli if self.extra_snli and split == "train" else [])]

    def signature(self, split: Split) -> list[object]:
        return [*super().signature(split), *["swapped"][: self.swapped and split == "train"]]

    def examples(self, split: Split) -> Iterator[Example]:
        for example in self._pairs(split):
            yield example
            if self.swapped and split == "train":
                yield (
                    example
                    if example.labels == ("entailment",)
                    else example._replace(text=example.text2, text2=example.text)
                )

    def _pairs(self, split: Split) -> Iterator[Example]:
        columns = ["gold_label", "sentence1", "sentence2"]
        scores = ["relatedness"] if self.scored else []
        rows = read_table(self.path("sick.tsv"), ["split", *columns, *scores], numbers=dict.fromkeys(scores, (1, 5)))
        for part, label, first, second, *score in rows:
            if part == _SPLITS[split]:
                yield Example(first, second, (label,), *score)
        for name in self.files(split)[1:]:
            for label, first, second in read_table(self.path(name), columns):
                yield Example(first, second, (label,))
