"""Checks the settings of all fits before the first one begins.

    python -m zoo.rebuilding.check JOBS      JOBS: JSON, [[name of the stage, arguments of `zoo fit`, WAITS], ...]

WAITS: the stage reads files that earlier ones make, so it does not matter that one is missing.
"""

import json
import sys
from argparse import ArgumentError
from collections.abc import Sequence

from lightning.fabric.utilities.exceptions import MisconfigurationException

from zoo.training.endings import explained
from zoo.training.lightning_cli import TrainingCLI
from zoo.training.quiet import quiet


class _Parsed(TrainingCLI):
    """Reads the arguments, and builds and trains nothing."""

    def instantiate_classes(self) -> None:
        """Builds nothing."""

    def _set_seed(self) -> None:
        """Draws nothing."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Trains nothing."""


def main(arguments: Sequence[str]) -> int:
    """Checks all jobs.

    Returns:
        The exit code: 0, or 2 after an error, which one line on standard error explains.
    """
    for name, args, waits in json.loads(arguments[0]):
        parsed = _Parsed.__new__(_Parsed)
        try:
            with quiet():
                parsed.__init__(args)
        except (ArgumentError, ValueError, OSError, MisconfigurationException) as error:
            if waits and isinstance(error, FileNotFoundError):
                continue
            said = " ".join(str(explained(error, parsed, args)).split())
            print(f"zoo: error: stage {name}: {said}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
