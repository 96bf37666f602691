"""Modules and classes that a user names: `--import MODULE` of each command, and `class_path` in recipes."""

import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REGISTERED = ("score", "attention", "normalize")  # arguments of which a user may register choices (zoo/extensions.py)
OF_A_MODULE = "; if a module of yours registers it, import that first: --import MODULE at the command line"
VARIABLE = "ZOO_IMPORT"  # names, joined by commas; processes that a command starts import them too


def split_imports(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments without `--import`, and the names given by it; what follows `--` are texts.

    Raises:
        ValueError: it has no value.
    """
    rest, names = [], []
    words = iter(args)
    for word in words:
        if word == "--import":
            names.append(next(words, ""))
        elif word.startswith("--import="):
            names.append(word.partition("=")[2])
        else:
            rest.append(word)
            if word == "--":
                rest += words
    if "" in names:
        raise ValueError("--import needs the name of a module, e.g. --import mechanisms for mechanisms.py")
    return rest, names


def imports(*modules: str) -> list[str]:
    """The options `--import MODULE` of this command, which is read before all others, and for further modules."""
    names = dict.fromkeys(filter(None, [*os.environ.get(VARIABLE, "").split(","), *modules]))
    return [word for name in names for word in ("--import", name)]


def imported_files() -> list[Path]:
    """The files of the modules that `--import` named; of a package all."""
    found = []
    for name in filter(None, os.environ.get(VARIABLE, "").split(",")):
        module = sys.modules[name]
        if folders := getattr(module, "__path__", None):
            found += [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]
        elif file := getattr(module, "__file__", None):  # a module of Python itself, in C, has none
            found.append(Path(file))
    return found


def find_local_modules() -> None:
    """Lets modules of the current folder be imported, after all others, so that they hide none."""
    if "" not in sys.path:
        sys.path.append("")


@contextmanager
def imported(names: Sequence[str]) -> Iterator[None]:
    """Context: modules are imported, here and in the processes that are started inside.

    Args:
        names: Dotted names, in addition to those of the environment.

    Raises:
        ValueError: one cannot be imported, or fails.
    """
    before = os.environ.get(VARIABLE)
    wanted = list(dict.fromkeys(filter(None, [*(before or "").split(","), *names])))
    for name in wanted:
        find_local_modules()
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ValueError(f"--import {name}: {error}") from error
        except (SyntaxError, NameError, AttributeError, TypeError, RuntimeError) as error:
            raise ValueError(f"--import {name}: {_line(error)}: {type(error).__name__}: {error}") from error
    os.environ[VARIABLE] = ",".join(wanted)
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def _line(error: BaseException) -> str:
    """Where in a module an error arose."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}, line {last.lineno}"


def path_of(cls: type) -> str:
    """The dotted path of a class by the module that defines it: a package may offer it under a shorter one."""
    return f"{cls.__module__}.{cls.__qualname__}"


def load_class(class_path: str) -> Any:
    """The class of a dotted path in a recipe, which may name any.

    Raises:
        ValueError: there is none.
    """
    module, _, name = class_path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"there is no class {class_path}: {error}") from error
