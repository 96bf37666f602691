"""Arguments of `zoo lesson`."""

import argparse
from pathlib import Path

SUMMARY = "eight lessons on attention: list them, copy one, check your answers"
EXAMPLE = (
    "zoo lesson open 3 .                                # copies the notebook of lesson 3 here\n  zoo lesson check 3"
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument(
        "action",
        choices=("list", "open", "check"),
        help="list the lessons, copy a notebook, or check the answers in it",
    )
    command.add_argument("number", nargs="?", type=int, help="the lesson, from 1 to 8")
    command.add_argument(
        "path",
        nargs="?",
        type=Path,
        help="open: the folder for the copy; check: the notebook (default: the lesson's, in this folder)",
    )


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.lesson import run

    run(options)
