"""Arguments of `zoo predict`."""

import argparse

from zoo.commands.arguments.common import add_precision, add_runtime

SUMMARY = "translate, classify or complete texts, caption images, or answer questions about a document"
EXAMPLE = (
    'zoo predict luong_general.multi30k_en_de "A dog runs in the snow." --plot alignment.png\n'
    "  zoo predict luong_general.multi30k_en_de --json < english.txt > german.jsonl\n"
    "  zoo predict han.imdb review.txt another.txt --html review.html\n"
    "  zoo predict show_attend_tell_soft.flickr8k photo.jpg --plot photo.png\n"
    '  zoo predict local-dir:my_reader --document story.txt "Then XXXXX ran home." --plot answer.png'
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument("name", help="a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION")
    command.add_argument(
        "text",
        nargs="*",
        help="texts (for a classifier also files, or - for all of standard input; for a model of pairs two texts per pair), or image files "
        "and folders of them; if none is given, lines are read from standard input",
    )
    command.add_argument("--json", action="store_true", help="one JSON object per line, with the attention")
    command.add_argument(
        "--plot", metavar="FILE", help="plot the attention (FILE-2 and so on for further texts or images)"
    )
    command.add_argument(
        "--html", metavar="FILE", help="write the answers and their attention as one web page, at the end"
    )
    command.add_argument(
        "--document",
        metavar="FILE",
        help="readers: file of the document (or its text, or - for standard input); each query has XXXXX in place of the missing word; "
        "queries may also be lines of standard input",
    )
    command.add_argument(
        "--candidates", metavar="W|W|...", help="readers: candidate answers (default: all words of the document)"
    )
    command.add_argument(
        "--beam-size",
        type=int,
        metavar="K",
        help="translation, completion and captions: beam size; 1 is greedy search (default: the model's setting)",
    )
    command.add_argument(
        "--n-best",
        type=int,
        metavar="N",
        help="translation, completion and captions: print the N best outputs with their scores",
    )
    command.add_argument(
        "--no-split-sentences",
        dest="split_sentences",
        action="store_false",
        help="translation: read a text as one sentence (default: translate its sentences one by one)",
    )
    command.add_argument("--device", choices=("cpu", "cuda", "mps"), default="cpu", help="(default: %(default)s)")
    add_precision(command)
    add_runtime(command)


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.predict import run

    run(options)
