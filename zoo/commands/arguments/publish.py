"""Arguments of `zoo publish`."""

import argparse

SUMMARY = "upload weights and their card to the Hugging Face Hub, in one commit"
EXAMPLE = (
    "zoo publish my_weights my-name/my-model --dry-run\n"
    "  zoo publish my_weights my-name/my-model --private\n"
    "  zoo publish --all my-name                          # every weight of `zoo list`; resumes where it stopped"
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument("source", nargs="?", help="a folder of weights (or local-dir:FOLDER), or a name of `zoo list`")
    command.add_argument(
        "repo", nargs="?", metavar="ORG/REPO", help="repository on the Hub; created if it does not exist"
    )
    command.add_argument(
        "--all", metavar="ORG", help="publish every weight of `zoo list` as ORG/NAME instead, and write their pins"
    )
    command.add_argument(
        "--pins",
        metavar="FILE",
        help="with --all: file of the commits, from which zoo.load fetches (default: zoo/pins.json of this package)",
    )
    command.add_argument("--private", action="store_true", help="create it as a private repository")
    command.add_argument(
        "--dry-run", action="store_true", help="check everything and show what would be uploaded, without network"
    )
    command.add_argument(
        "--replace-card", action="store_true", help="replace the README.md on the Hub even if a person wrote it"
    )


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.publish import run

    run(options)
