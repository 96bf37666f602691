"""Arguments of `zoo list`."""

import argparse

SUMMARY = "list the pretrained models"
EXAMPLE = 'zoo list "luong*" --task translation'


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument("pattern", nargs="?", default="*", help="shell pattern of the names (default: all)")
    command.add_argument("--task", help="only this task, e.g. translation")
    command.add_argument("--language", metavar="CODE", help="only models of this language, e.g. de")
    command.add_argument("--license", help="only weights with this licence, e.g. apache-2.0")
    command.add_argument("--markdown", action="store_true", help="print a Markdown table, like the one in the README")


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.cards import list_cards

    list_cards(options)
