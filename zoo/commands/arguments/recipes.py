"""Arguments of `zoo recipes`."""

import argparse

SUMMARY = "list the recipes for training, or print one"
EXAMPLE = (
    'zoo recipes "luong*"\n'
    "  zoo recipes han.imdb > mine.yaml                   # a copy to change\n"
    '  zoo recipes "comparison/*"                         # those of zoo compare'
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument("name", nargs="?", help="print this recipe; with a shell pattern, list those that match")


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.recipes import run

    run(options)
