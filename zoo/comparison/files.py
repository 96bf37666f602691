"""What the files of a comparison are called.

    OUT/dot/search.json                          what the search has chosen, and its trials
    OUT/dot/search/lr0.002_dropout0.3/           a trial: a short training, never tested
    OUT/dot/seed1/                               a training on all data
    OUT/dot/pairs1000/seed1/                     a training on 1,000 pairs

and in the folder of a training

    job.json                   its settings
    log.txt                    output of its processes
    base/                      checkpoints and logs of `zoo fit`
    training.json              speed and validation curve, once the training is done
    result.json                everything, once it is evaluated
    validation.txt.gz, test.txt.gz    its outputs, such as translations: a line for each example

A folder written by `zoo compare --publish` has the same files without job.json and checkpoints, and config.yaml.
"""

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.data.common.files import read_lines
from zoo.utils.atomic import write_bytes, write_text
from zoo.utils.shipped import shipped

RECIPES = shipped("recipes") / "comparison"
PUBLISHED = "results"  # folder next to the recipes, as written by `zoo compare --publish`
BASE = "base"  # the recipe with the common settings
SPACE = "search"  # the file with the values that the search tries
JOB, TRAINING, RESULT, LOG = "job.json", "training.json", "result.json", "log.txt"
CONFIG = "config.yaml"  # all settings of a training, as `zoo fit` writes them
CHOICE = "search.json"
OUTPUTS = {"validation": "validation.txt.gz", "test": "test.txt.gz"}
SEEDS, SIZES = "*/seed*", "*/pairs*/seed*"  # folders of trainings, on all data and on a part


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ValueError: it holds none.
    """
    found = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    if not isinstance(found, dict):
        raise ValueError(f"{type(found).__name__} in place of an object")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} in place of a number")


def check_shape(value: Any, shape: Any) -> None:
    """Raises KeyError or TypeError for a value that lacks a part.

    Args:
        value: what was read.
        shape: a type, or what each part must be: {key: shape}.
    """
    if isinstance(shape, dict):
        for key, inner in shape.items():
            check_shape(value[key], inner)
    elif not isinstance(value, shape):
        raise TypeError(f"{type(value).__name__} in place of {shape}")


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Writes an object as JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_outputs(path: Path, texts: Sequence[str]) -> None:
    """Writes a line for each text; equal texts give equal bytes."""
    lines = [re.sub("[\r\n]+", " ", text) for text in texts]
    write_bytes(path, gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


def read_outputs(path: Path) -> list[str]:
    """The lines of `write_outputs`."""
    return list(read_lines(path))
