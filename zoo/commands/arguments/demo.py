"""Arguments of `zoo demo`."""

import argparse

SUMMARY = "open a page in the browser that shows the attention of the models, and lets you change it"
EXAMPLE = (
    "zoo demo\n"
    "  zoo demo han.imdb show_attend_tell_soft.flickr8k      # with these prepared before the page opens\n"
    "  zoo demo local-dir:my_weights                         # your own model, as `zoo export` wrote it\n"
    "  zoo demo --export site luong_general.multi30k_en_de   # a folder of static files, for any web server"
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument(
        "name",
        nargs="*",
        help="names of `zoo list`, or local-dir:FOLDER of your own, to prepare first (default: those prepared before, or "
        "luong_general.multi30k_en_de); the page begins with the first one. It offers the others too, and prepares one when it is "
        "chosen. With --export: the models in the folder (default: all of `zoo list`)",
    )
    command.add_argument("--port", type=int, default=8765, help="0 for any that is free (default: %(default)s)")
    command.add_argument("--no-browser", action="store_true", help="only print the address")
    command.add_argument(
        "--export",
        metavar="DIR",
        help="write the page and the models into a new or empty folder, or over an earlier page, and end",
    )


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.demo import run

    run(options)
