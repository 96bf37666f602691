"""Looks for mistakes in the arguments of a training before it begins."""

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


def check_arguments(args: Sequence[str]) -> None:
    """Parses the arguments of `zoo fit`, which begin with the verb, and its recipes.

    Raises:
        ValueError: a setting is wrong; one line names it.
        FileNotFoundError: a file of the recipe is missing.
    """
    parsed, args = _Parsed.__new__(_Parsed), list(args)
    try:
        with quiet():
            parsed.__init__(args)
    except FileNotFoundError:
        raise
    except (ArgumentError, ValueError, OSError, MisconfigurationException) as error:
        raise ValueError(" ".join(str(explained(error, parsed, args)).split())) from error
