"""Arguments of `zoo download`."""

import argparse

SUMMARY = "fetch and verify pretrained weights ahead of time"
EXAMPLE = "zoo download han.reuters bahdanau.multi30k_en_de\n  zoo download all"


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument("name", nargs="+", help="names of `zoo list`, hf-hub:ORG/REPO@REVISION, or all")


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.download import run

    run(options)
