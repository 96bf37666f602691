"""`zoo rebuild`: makes a weight again by the stages of its recipe, and compares its scores with those of its card."""

import argparse
import os
import signal
import sys
from pathlib import Path

from zoo.commands.recipes import find
from zoo.rebuilding.log import comparison, write_log
from zoo.rebuilding.processes import FailedError, Processes
from zoo.rebuilding.stages import Stage
from zoo.rebuilding.work import Rebuild
from zoo.training.signals import ending_by_signal
from zoo.utils.modules import VARIABLE
from zoo.utils.shell import command_line


def run(options: argparse.Namespace) -> None:
    """Rebuilds, or lists the stages.

    Raises:
        ValueError: something is wrong.
        SystemExit: a stage failed and has said why, or a signal asked for the end.
    """
    work = rebuild(options)
    if options.list:
        rows = [(stage.name, stage.what, _state(work, stage)) for stage in work.stages]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        print("\n".join(f"{name:{widths[0]}}  {what:{widths[1]}}  {state}" for name, what, state in rows))
        return

    def say_stopped(number: int) -> None:
        name = signal.Signals(number).name
        print(f"zoo: stopped by {name}; resume with: {work.processes.resume}", file=sys.stderr, flush=True)

    with ending_by_signal(say_stopped, list):
        try:
            work.run(test=not options.no_test)
        except FailedError as error:
            sys.exit(error.code)
    if options.no_test:
        print(f"weights {work.weights}")
        return
    log = write_log(work)
    print(comparison(work))
    print(f"weights {work.weights}\nlog     {log}")


def _state(work: Rebuild, stage: Stage) -> str:
    try:
        return work.state(stage)
    except ValueError:
        return "made from something else"  # running it says what


def rebuild(options: argparse.Namespace) -> Rebuild:
    """What the command line asks for.

    Raises:
        ValueError: something is wrong with it.
    """
    recipe = Path(options.name) if options.name.endswith((".yaml", ".yml")) else find(options.name)
    output = Path(options.output or Path("runs", "rebuild", recipe.stem))
    root = options.root or os.environ.get("ZOO_DATA")
    if root and not Path(root).is_dir():
        raise ValueError(f"{'--root' if options.root else 'ZOO_DATA'} {root}: no such folder")
    return Rebuild(recipe, output, root, _settings(options.settings), Processes(_command(options)))


def _settings(words: list[str]) -> dict[str, str]:
    """Further options of the command line, by name."""
    found, rest = {}, iter(words)
    for word in rest:
        if not word.startswith("--"):
            raise ValueError(f"'{word}' is neither an option nor the value of one; see zoo rebuild --help")
        # `--trainer.callbacks+=CLASS` adds to a list
        name, equals, value = word.removeprefix("--").partition("=")
        if not equals and (value := next(rest, None)) is None:
            raise ValueError(f"{word} needs a value")
        found[name] = value
    return found


def _command(options: argparse.Namespace) -> str:
    """The command line, for messages; `--import` is read before all others."""
    modules = filter(None, os.environ.get(VARIABLE, "").split(","))
    given = {"--root": options.root, "--output": options.output}
    words = [word for option, value in given.items() if value for word in (option, value)]
    words += ["--no-test"] * options.no_test
    imports = [word for module in modules for word in ("--import", module)]
    return command_line(["zoo", "rebuild", options.name, *words, *options.settings, *imports])
