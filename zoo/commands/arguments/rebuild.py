"""Arguments of `zoo rebuild`."""

import argparse

SUMMARY = "make a weight again by the stages of its recipe, and compare its scores with those of its card"
EXAMPLE = (
    "zoo rebuild luong_textbook.dates\n"
    "  zoo rebuild structured_self_attention.sick --root DATA     # resumes where it stopped\n"
    "  zoo rebuild structured_self_attention.sick --list          # the stages, and how far they are\n"
    "  zoo rebuild han.imdb --root DATA --trainer.max_epochs 1    # further options are for each `zoo fit`"
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument("name", help="a weight of `zoo list`, or a recipe, by its name or its file")
    command.add_argument(
        "--root",
        "--data.root",
        metavar="DATA",
        help="folder of the data sets (default: ZOO_DATA, else downloaded where that is possible)",
    )
    command.add_argument(
        "--output",
        metavar="FOLDER",
        help="folder for all stages; finished ones are not repeated (default: runs/rebuild/NAME)",
    )
    command.add_argument("--list", action="store_true", help="only list the stages, and how far they are")
    command.add_argument(
        "--no-test",
        action="store_true",
        help="do not score the test data, as long as choices are made on validation data; without it, the same command "
        "does that later",
    )
    command.set_defaults(settings=[])


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.rebuild import run

    run(options)
