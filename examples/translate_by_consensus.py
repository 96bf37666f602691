"""Translates lines by several models and keeps of each the translation that the others agree with most: more training
pairs.

    zoo export runs/first/checkpoints/best.ckpt first
    python examples/translate_by_consensus.py local-dir:first luong_general.multi30k_en_de bahdanau.multi30k_en_de <
    captions.en > pairs.tsv

Prints source and translation with a tab between them. What two translations have in common is the Dice coefficient of
their character n-grams (n = 2 to 6, lower case); the first model counts 1.15 times. Lines on which the models do not
agree are left out. Beam search makes short translations: with a larger length penalty they are as long as those of
people.
"""

import argparse
import sys
from collections import Counter

import zoo

FIRST = 1.15  # weight of the first model


def ngrams(text: str) -> Counter:
    text = text.lower()
    return Counter(text[i : i + n] for n in range(2, 7) for i in range(len(text) - n + 1))


def agreement(a: Counter, b: Counter) -> float:
    """From 0 (nothing in common) to 1 (the same)."""
    return 2 * (a & b).total() / max(1, a.total() + b.total())


def chosen(translations: list[str]) -> tuple[str, float]:
    """The translation that is most like all of them, and how much it is like the others on average."""
    found = [ngrams(text) for text in translations]
    table = [[agreement(a, b) for b in found] for a in found]
    totals = [FIRST * row[0] + sum(row[1:]) for row in table]
    best = totals.index(max(totals))
    others = [value for n, value in enumerate(table[best]) if n != best]
    return translations[best], sum(others) / len(others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", help="two or more names of `zoo list`, or local-dir:FOLDER")
    parser.add_argument(
        "--min-agreement",
        type=float,
        default=0.5,
        help="least agreement of the kept translation (default: %(default)s)",
    )
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument(
        "--length-penalty", type=float, nargs="+", default=[1.2], help="one for all, or one for each (default: 1.2)"
    )
    options = parser.parse_args()
    if len(options.models) < 2:
        parser.error("give two models or more, or there is nobody to agree with")
    penalties = options.length_penalty * (len(options.models) if len(options.length_penalty) == 1 else 1)
    if len(penalties) != len(options.models):
        parser.error(f"give one length penalty, or one for each of {len(options.models)} models; got {len(penalties)}")
    lines = [line for line in sys.stdin.read().split("\n") if line.strip()]
    columns = []
    for name, penalty in zip(options.models, penalties, strict=True):
        found = zoo.load(name).translate(
            lines, beam_size=options.beam_size, length_penalty=penalty, split_sentences=False
        )
        columns.append([translation.text for translation in found])
    for line, *translations in zip(lines, *columns, strict=True):
        best, value = chosen(translations)
        if best and value >= options.min_agreement:
            print(f"{line}\t{best}")


if __name__ == "__main__":
    main()
