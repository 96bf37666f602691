"""Arguments of `zoo compare`."""

import argparse

SUMMARY = (
    "train several attention mechanisms by the same rules, and write a page of tables and plots (default: all for translation, "
    "on Multi30k; other tasks with --recipes)"
)
EXAMPLE = (
    "zoo compare --out runs/comparison --data.root DATA --search\n"
    "  zoo compare --out runs/comparison --seeds 1 2 3 --jobs 4      # resumes where it stopped\n"
    "  zoo compare --out runs/comparison --report                    # only the page\n"
    "  zoo compare --recipes recipes/comparison_trec6 --out runs/comparison_trec6 --data.root DATA"
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="folder of runs and results; finished runs are not repeated",
    )
    command.add_argument(
        "--data.root",
        dest="root",
        metavar="DATA",
        help="folder of the recipes' data (default: ZOO_DATA, else downloaded where that is possible)",
    )
    command.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="mechanisms to train, by recipe name; with --report those to show (default: all)",
    )
    command.add_argument("--seeds", nargs="+", type=int, metavar="N", help="one run per seed (default: 1)")
    command.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="at most that many epochs, of trials too (default: base.yaml's)",
    )
    command.add_argument(
        "--search",
        action="store_true",
        help="first search the settings of search.yaml, such as the learning rate, on validation data, with as many trials for each mechanism",
    )
    command.add_argument(
        "--pairs",
        nargs="+",
        type=int,
        metavar="N",
        help="train on the first N training pairs of a fixed shuffle, for a curve (default: all)",
    )
    command.add_argument(
        "--hours",
        type=float,
        metavar="H",
        help="stop after that time; the same command resumes what is left",
    )
    command.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="training time of the table at equal time (default: until the fastest mechanism stopped)",
    )
    command.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="parallel runs, distributed over the GPUs; several share one (default: %(default)s)",
    )
    command.add_argument(
        "--threads", type=int, metavar="N", help="CPU threads per run (default: all processors, divided among the runs)"
    )
    command.add_argument("--device", choices=("cpu", "cuda"), help="(default: cuda where there is a GPU)")
    command.add_argument(
        "--recipes",
        metavar="FOLDER",
        help="folder of other recipes, of any task: base.yaml and one file per mechanism",
    )
    command.add_argument("--report", action="store_true", help="train nothing; write the page of the existing results")
    command.add_argument(
        "--publish",
        metavar="FOLDER",
        help="copy results, outputs, curves, settings and logs there, without checkpoints",
    )
    command.add_argument(
        "--page", metavar="FOLDER", help="folder for README.md and its plots (default: the results folder)"
    )


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.comparison.command import run

    run(options)
