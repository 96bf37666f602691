"""Arguments of `zoo align`."""

import argparse

SUMMARY = "align the words of given translations, or compute the alignment error rate"
EXAMPLE = (
    "zoo align luong_general.tatoeba_de_en de.txt en.txt > links.txt\n"
    "  zoo align luong_general.tatoeba_de_en de.txt en.txt --gold gold.talp"
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument("name", help="a translator: a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION")
    command.add_argument(
        "source", help="file of source sentences, one per line, words separated by spaces; also .gz and .xz"
    )
    command.add_argument(
        "target", nargs="?", help="file of their translations (default: SOURCE has both, separated by a tab)"
    )
    command.add_argument(
        "--gold",
        metavar="FILE",
        help="print the alignment error rate; FILE has one line per pair, i-j for sure and ipj for possible links, counted from 1",
    )
    command.add_argument("--json", action="store_true", help="one JSON object per line, with the attention")
    command.add_argument("--plot", metavar="FILE", help="plot the attention of the first pair that is not empty")
    command.add_argument("--html", metavar="FILE", help="write the attention of all pairs as one web page")


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.align import run

    run(options)
