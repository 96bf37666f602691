"""Runs the code of a lesson in this process, as a notebook would."""

import sys

import matplotlib
from IPython.core.interactiveshell import InteractiveShell


def run_cells(cells: list[str]) -> None:
    """Runs cells one after the other; ends the process at the first that fails."""
    matplotlib.use("agg")
    shell = InteractiveShell.instance()
    for source in cells:
        if not shell.run_cell(source).success:  # which has printed why
            sys.exit(1)
