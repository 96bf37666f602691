"""Arguments of `zoo explain`."""

import argparse

SUMMARY = "say whether the attention of a weight explains its answers"
EXAMPLE = (
    "zoo explain han.imdb                                 # what was measured for this weight\n"
    "  zoo explain han.imdb --certificate --data.root DATA  # measures it, on the test data of its recipe\n"
    "  zoo explain local-dir:my_weights --certificate --inputs reviews.txt --limit 100 --json"
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument(
        "name", help="a name of `zoo list`; with --inputs also local-dir:FOLDER or hf-hub:...@REVISION"
    )
    command.add_argument(
        "--certificate",
        action="store_true",
        help="measure it now (default: print what was measured for a shipped weight)",
    )
    command.add_argument(
        "--inputs",
        metavar="FILE",
        help="a text per line, two with a tab between for a model of pairs, or an image file per line (default: the test data of the recipe)",
    )
    command.add_argument("--limit", type=int, metavar="N", help="inputs, drawn at random with --seed (default: 100)")
    command.add_argument("--seed", type=int, metavar="N", help="of all random choices (default: 0)")
    command.add_argument(
        "--data.root",
        dest="root",
        metavar="DATA",
        help="folder of the recipe's data (default: ZOO_DATA, else downloaded where that is possible)",
    )
    command.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.explain import run

    run(options)
