"""Arguments that several commands have."""

import argparse


def add_runtime(command: argparse.ArgumentParser) -> None:
    """Adds --runtime and --int8."""
    command.add_argument(
        "--runtime",
        choices=("torch", "onnx"),
        help="onnx: exported graphs, which start and answer faster on a CPU; those of a name are exported on first use (default: "
        "torch, except for a folder of exported graphs)",
    )
    command.add_argument("--int8", action="store_true", help="with --runtime onnx: weights in 8 bits")


def add_precision(command: argparse.ArgumentParser) -> None:
    """Adds --precision."""
    command.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default="fp32",
        help="bf16 is faster on most GPUs and on processors with AMX, AMD's AVX512-BF16 or ARM BF16, and stays fp32 elsewhere; scores change in "
        "the third digit (default: %(default)s)",
    )
