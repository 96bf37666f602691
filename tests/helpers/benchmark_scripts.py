"""The scripts of benchmarks/, which are no package, as modules."""

import importlib.util
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def script(name):
    """benchmarks/NAME.py, loaded anew."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def folders(where):
    """The options of a script that trains, measures and stores: --root, --out and --results in a folder."""
    return ["--root", str(where / "data"), "--out", str(where / "out"), "--results", str(where / "r.json")]
