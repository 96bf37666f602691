"""Alignment error rate of word alignments (Och and Ney 2003)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.utils.regular import check_regular

Links = set[tuple[int, int]]


@dataclass(frozen=True)
class GoldAlignment:
    """Human links (source word, target word), counted from 0; `possible` includes `sure`."""

    sure: Links
    possible: Links


def read_gold_alignments(path: str | Path) -> list[GoldAlignment]:
    """Reads the format of the RWTH and Hansards references: per line a sentence of `i-j` (sure) and `ipj` (possible).

    Words are counted from 1.

    Raises:
        ValueError: a malformed item, or the file is not text.
    """
    check_regular(path)
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not utf-8 text (byte 0x{error.object[error.start]:02x}); save the file as utf-8"
        ) from error
    gold = []
    for number, line in enumerate(lines, 1):
        sure, possible = set(), set()
        for item in line.split():
            separator = "-" if "-" in item else "p"
            first, _, second = item.partition(separator)
            if not (first.isdecimal() and second.isdecimal() and int(first) and int(second)):
                raise ValueError(
                    f"{path}, line {number}: expected i-j (sure) or ipj (possible), counted from 1; got {item!r}"
                )
            (sure if separator == "-" else possible).add((int(first) - 1, int(second) - 1))
        gold.append(GoldAlignment(sure, possible | sure))
    return gold


def alignment_error_rate(
    predicted: Sequence[Iterable[tuple[int, int]]], gold: Sequence[GoldAlignment]
) -> dict[str, float]:
    """AER = 1 - (|A and S| + |A and P|) / (|A| + |S|), with precision |A and P| / |A| and recall |A and S| / |S|.

    Args:
        predicted: Links A of each sentence.
        gold: The references, one per sentence.

    Returns:
        `aer`, `precision` and `recall` in percent, summed over all sentences before the division.

    Raises:
        ValueError: Different numbers of sentences, or no links at all.
    """
    if len(predicted) != len(gold):
        raise ValueError(
            f"there must be a reference for each sentence; got {len(predicted)} sentences and {len(gold)} references"
        )
    links = [set(found) for found in predicted]
    count, sure = sum(map(len, links)), sum(len(reference.sure) for reference in gold)
    if not count or not sure:
        raise ValueError(
            f"an alignment error rate needs links on both sides; got {count} predicted and {sure} sure ones"
        )
    both_sure = sum(len(found & reference.sure) for found, reference in zip(links, gold, strict=True))
    both = sum(len(found & reference.possible) for found, reference in zip(links, gold, strict=True))
    return {
        "aer": 100 * (1 - (both_sure + both) / (count + sure)),
        "precision": 100 * both / count,
        "recall": 100 * both_sure / sure,
    }


def diagonal_links(source_words: int, target_words: int) -> Links:
    """The baseline: target word t is linked to the source word at the same relative position."""
    return (
        {(min(source_words - 1, int((t + 0.5) * source_words / target_words)), t) for t in range(target_words)}
        if source_words
        else set()
    )
