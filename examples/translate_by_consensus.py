"""Translates lines by several models and keeps of each the translation that the others agree with most: more training
pairs.

    zoo export runs/first/checkpoints/best.ckpt first
    python examples/translate_by_consensus.py local-dir:first luong_general.multi30k_en_de bahdanau.multi30k_en_de <
    captions.en > pairs.tsv

Prints source and translation with a tab between them. What two translations have in common is the Dice coefficient of
their character n-grams (n = 2 to 6, lower case); the first model counts 1.15 times. Lines on which the models do not
agree are left out. Beam search makes short translations: with a larger length penalty they are as long as those of
people. A recipe has the same as a stage of `zoo rebuild` (docs/guides/rebuild.md).
"""

import argparse
import sys

from zoo.rebuilding.consensus import BEAM_SIZE, LENGTH_PENALTY, MIN_AGREEMENT, agreed, read_lines, translations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", help="two or more names of `zoo list`, or local-dir:FOLDER")
    parser.add_argument(
        "--min-agreement",
        type=float,
        default=MIN_AGREEMENT,
        help="least agreement of the kept translation (default: %(default)s)",
    )
    parser.add_argument("--beam-size", type=int, default=BEAM_SIZE)
    parser.add_argument(
        "--length-penalty",
        type=float,
        nargs="+",
        default=[LENGTH_PENALTY],
        help="one for all, or one for each (default: 1.2)",
    )
    options = parser.parse_args()
    if len(options.models) < 2:
        parser.error("give two models or more, or there is nobody to agree with")
    penalties = options.length_penalty * (len(options.models) if len(options.length_penalty) == 1 else 1)
    if len(penalties) != len(options.models):
        parser.error(f"give one length penalty, or one for each of {len(options.models)} models; got {len(penalties)}")
    lines = read_lines(sys.stdin.read())
    columns = [
        translations(name, lines, options.beam_size, penalty)
        for name, penalty in zip(options.models, penalties, strict=True)
    ]
    for line, best in agreed(lines, columns, options.min_agreement):
        print(f"{line}\t{best}")


if __name__ == "__main__":
    main()
