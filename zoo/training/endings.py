"""How a run ends that does not end well: one line that says why, and how it is resumed."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import torch.distributed as dist
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningCLI

from zoo.bundles.files import LOCAL_DIR
from zoo.training.checkpoints import NotWrittenError, is_full
from zoo.training.checks import nearest_argument
from zoo.training.signals import RESUME
from zoo.utils.modules import OF_A_MODULE, REGISTERED, imports
from zoo.utils.shell import command_line


def explained(error: Exception, cli: LightningCLI, args: list[str]) -> Exception:
    """What is to be said of an error; if nothing can be written any more, what is left of the training."""
    causes: list[BaseException] = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    for cause in causes:  # a logger may have failed after a checkpoint did
        if isinstance(cause, NotWrittenError):
            cure = "make room" if is_full(cause.__cause__) else "make it writable"
            left = _left(cli, args)
            return ValueError(f"{cause}; {cure}{', then ' if left.startswith('resume') else '; '}{left}")
    if isinstance(error, OSError) and is_full(error) and hasattr(cli, "trainer"):  # before, settings are only printed
        return ValueError(
            f"{error.filename or 'a file of this run'} could not be written ({error.strerror}); {_left(cli, args)}"
        )
    if isinstance(error, OSError):
        return error
    if isinstance(error, MisconfigurationException):
        return ValueError(str(error))
    path = restoring(cli)
    return ValueError(f"{path}: " * bool(path) + _what_is_wrong(str(error)) + nearest_argument(str(error)))


def say_stopped(cli: LightningCLI, args: list[str], number: int) -> None:
    if RESUME in os.environ:
        return
    left = f"; {_left(cli, args)}" if args[0] == "fit" else ""
    print(f"zoo: stopped by {signal.Signals(number).name}{left}", file=sys.stderr, flush=True)


def _left(cli: LightningCLI, args: list[str]) -> str:
    """How a training that ends now is resumed."""
    if whole := os.environ.get(RESUME):
        return f"resume with: {whole}"
    callbacks = getattr(getattr(cli, "trainer", None), "callbacks", [])
    folders = [
        Path(callback.dirpath) for callback in callbacks if isinstance(callback, ModelCheckpoint) and callback.dirpath
    ]
    if any((folder / "last.ckpt").is_file() for folder in folders):
        return f"resume with: {_resume(args)}"
    return "no checkpoint was written yet, so the same command begins again"


def _resume(args: list[str]) -> str:
    return _command(args[0], args, ["--ckpt_path"], ["--ckpt_path", "last"])


def calibration_of(folder: str, args: list[str]) -> str:
    """The command that calibrates a folder of weights on the validation data of a training.

    Args:
        folder: the exported weights.
        args: the arguments of the training, of which the first is its verb.
    """
    others = ["--ckpt_path", "--weights", "--model", "--optimizer", "--lr_scheduler", "--log"]
    return _command("calibrate", args, others, ["--weights", f"{LOCAL_DIR}{folder}"])


def _command(verb: str, args: list[str], without: list[str], more: list[str]) -> str:
    """A command like that of `args`, without some options and their values, and with others."""

    def left_out(arg: str) -> bool:
        option = arg.partition("=")[0]
        return any(option == name or option.startswith(f"{name}.") for name in without)

    kept = []
    for before, arg in zip(args, args[1:]):
        is_value = not arg.startswith("--") and left_out(before) and "=" not in before
        if not left_out(arg) and not is_value:
            kept.append(arg)
    return command_line(["zoo", verb, *kept, *imports(), *more])


def children(cli: LightningCLI) -> list[subprocess.Popen]:
    """The processes that Lightning started for the run."""
    launcher = getattr(getattr(getattr(cli, "trainer", None), "strategy", None), "launcher", None)
    return getattr(launcher, "procs", [])


def restoring(cli: LightningCLI) -> str | None:
    """The checkpoint that is being taken in now."""
    trainer = getattr(cli, "trainer", None)
    return getattr(trainer.strategy.checkpoint_io, "restoring", None) if trainer else None


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def is_of_lost_process(error: Exception) -> bool:
    """Whether a collective operation failed; gloo has no error class of its own."""
    if not (isinstance(error, RuntimeError) and dist.is_initialized()):
        return False
    return isinstance(error, dist.DistError) or bool(re.search("by peer|Broken pipe", str(error)))


def _what_is_wrong(message: str) -> str:
    """The telling part of a message of jsonargparse, which is a page long."""
    noise = ("Does not validate against", "Subtypes:", "Errors:", "- Expected a <class 'NoneType'>", "Given value")
    lines = [line.strip() for line in message.splitlines()]
    kept = [line.removeprefix("- ").rstrip(":") for line in lines if line and not line.startswith(noise)]
    said = re.sub(r'Parser key "([^"]+)"', r"\1", ": ".join(kept))
    given = re.search(r"^ *Given value: (.*)$", message, re.MULTILINE)  # the innermost, which others hold
    if given and "Expected a <" in said and "Got value" not in said:
        said += f". Got value: {given[1]}"
    choice = rf"\b({'|'.join(REGISTERED)}): Expected a typing.Literal\[(.*?)\]\. Got value: (\w+)"
    return re.sub(choice, rf"\1 must be one of \2; got '\3'{OF_A_MODULE}", said)
