"""`zoo lesson`: the lessons, a copy of a notebook, and what is right in it."""

import argparse
import sys
from pathlib import Path

from zoo import registry
from zoo.bundles.cache import is_cached
from zoo.lessons import LESSONS
from zoo.lessons.notebooks import copy, judged


def run(options: argparse.Namespace) -> None:
    """Prints the lessons, copies a notebook, or prints for each exercise whether its answer is right.

    Args:
        options: action: "list", "open" or "check"; number: None or the lesson; path: None, the folder for the copy or
            the notebook.

    Raises:
        ValueError: no such lesson, no notebook, or arguments that do not suit the action.
        SystemExit: with 1 after `check`, if an answer is wrong.
    """
    if options.action == "list":
        if options.number is not None:
            raise ValueError("zoo lesson list takes no number; zoo lesson open copies a notebook")
        for number, lesson in LESSONS.items():
            print(f"{number}  {lesson.question}")
    elif options.number not in LESSONS:
        got = "none" if options.number is None else options.number
        raise ValueError(f"give the number of a lesson, from {min(LESSONS)} to {max(LESSONS)}; got {got}")
    elif options.action == "open":
        print(copy(options.number, options.path or Path()))
        _tell_what_to_fetch(options.number)
    else:
        _check(options.number, options.path or Path(f"{LESSONS[options.number].name}.ipynb"))


def _tell_what_to_fetch(lesson: int) -> None:
    """Says in one line which weights of a lesson this installation lacks, before a cell of the notebook does."""
    lacks, pins = [name for name in LESSONS[lesson].weights if not registry.is_bundled(name)], registry.all_pins()
    if unpublished := [name for name in lacks if name not in pins]:
        print(f"zoo: lesson {lesson} needs a weight: {registry.nowhere(unpublished)}", file=sys.stderr)
    elif absent := [name for name in lacks if not is_cached(*pins[name])]:
        names = " ".join(absent)
        print(
            f"zoo: lesson {lesson} needs a weight that is not here; fetch it with: zoo download {names}",
            file=sys.stderr,
        )


def _check(lesson: int, notebook: Path) -> None:
    if not notebook.is_file():
        raise ValueError(f"there is no notebook {notebook}; zoo lesson open {lesson} copies that of the lesson here")
    hints = judged(lesson, notebook)
    for number, hint in hints.items():
        print(f"{number} right" if hint is None else f"{number} wrong: {hint}")
    if any(hints.values()):
        sys.stdout.flush()
        sys.exit(1)
