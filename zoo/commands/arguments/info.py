"""Arguments of `zoo info`."""

import argparse

SUMMARY = "print the card of a model"
EXAMPLE = "zoo info luong_dot.dates\n  zoo info local-dir:my_weights"


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument("name", help="a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION")


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.cards import info

    info(options)
