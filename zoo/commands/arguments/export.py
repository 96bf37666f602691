"""Arguments of `zoo export`."""

import argparse

SUMMARY = "export a checkpoint, or the average of several, as a folder of weights (fp16), or a model as ONNX graphs"
EXAMPLE = (
    "zoo export runs/luong_dot.dates/checkpoints/best.ckpt my_weights\n"
    '  zoo predict local-dir:my_weights "3 May 1995"\n'
    "  zoo export one/checkpoints/best.ckpt two/checkpoints/best.ckpt mean_of_both\n"
    "  zoo export luong_general.multi30k_en_de graphs --format onnx --int8"
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument(
        "model",
        nargs="+",
        help="a checkpoint of `zoo fit`, a name of `zoo list`, local-dir:FOLDER or hf-hub:...@REVISION; of several "
        "that started from the same model, the average is exported",
    )
    command.add_argument("folder", help="new folder; unchanged weights of this package in it are replaced")
    command.add_argument(
        "--format",
        choices=("bundle", "onnx", "ctranslate2"),
        default="bundle",
        help="onnx and ctranslate2 (Transformers) need the extra of this name (default: %(default)s)",
    )
    command.add_argument(
        "--int8",
        action="store_true",
        help="weights in 8 bits: half the size of a folder of weights, a quarter of that of graphs",
    )


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.export import run

    run(options)
