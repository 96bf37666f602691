"""Arguments of `zoo cache`."""

import argparse

SUMMARY = "show the weights fetched from the Hub and the graphs exported for --runtime onnx, or remove them"
EXAMPLE = (
    "zoo cache\n  zoo cache clear                                    # removes all weights and graphs of this package, nothing else\n"
    "  zoo cache clear han.reuters"
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument("action", nargs="?", choices=("clear",), help="remove weights and graphs")
    command.add_argument("name", nargs="*", help="only these, as `zoo cache` names them (default: all)")


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.cache import run

    run(options)
