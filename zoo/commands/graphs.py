"""Graphs for `--runtime onnx`: those of a folder, or of a weight, which are exported once and kept in the cache."""

import argparse
import hashlib
import multiprocessing
import os
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.bundles.files import CONFIG, HF_HUB, LOCAL_DIR
from zoo.runtime.graphs import FORMAT, MANIFEST, Exported
from zoo.utils.cores import usable_cores
from zoo.utils.extras import require
from zoo.utils.modules import imported, imported_files
from zoo.utils.places import at_home, cache_folder
from zoo.utils.whole import is_whole


def is_exported(name: str) -> bool:
    """Whether a name is a folder of exported graphs."""
    return name.startswith(LOCAL_DIR) and _holds(name, MANIFEST)


def _holds(name: str, file: str) -> bool:
    """Whether the folder of a local-dir:FOLDER has a file."""
    return (at_home(name.removeprefix(LOCAL_DIR)) / file).is_file()


def uses_graphs(options: argparse.Namespace) -> bool:
    """Whether graphs answer: they were asked for, or given, or torch does not belong to this installation.

    Raises:
        ValueError: torch was asked for, which cannot answer.
    """
    only_graphs = is_exported(options.name) or not is_whole()
    if options.runtime == "torch" and only_graphs:
        why = f"{options.name} holds exported graphs" if is_whole() else "this is attention-zoo-runtime, without torch"
        raise ValueError(f"{why}: leave out --runtime torch")
    return options.runtime == "onnx" or only_graphs


def load_graphs(name: str, int8: bool = False, threads: int = 1) -> Any:
    """The model of `zoo.runtime` for a weight or a folder.

    Args:
        name: as for `zoo.load`, or local-dir:FOLDER of an export.
        int8: the 8-bit graphs.
        threads: of onnxruntime.

    Raises:
        ValueError: unknown name, a package is missing, the model has no ONNX form, or the folder has no 8-bit graphs.
    """
    require("runtime", "--runtime onnx")
    from zoo import runtime

    if not is_exported(name):
        model = runtime.load(graphs_of(name, int8), threads)
        if name in registry.TABLE and not int8:  # it was measured for these weights
            model.explains = registry.measured(name)
        return model
    model = runtime.load(Path(name.removeprefix(LOCAL_DIR)), threads)
    if int8 and model.about["weights"] != "int8":
        raise ValueError(f"{name} has no 8-bit graphs: export it with --int8, or leave out --int8")
    return model


def export_first(name: str, int8: bool) -> None:
    """Exports a weight that `load_graphs` will need, in a process of its own: its memory ends with it."""
    if is_exported(name) or not is_whole() or exported_graphs(name, int8):
        return
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(_exported, name, int8).result()


def _exported(name: str, int8: bool) -> Path:
    """`graphs_of` in a new process, which has not imported what `--import` named."""
    with imported([]):
        return graphs_of(name, int8)


def open_graphs(int8: bool, name: str, device: str, sharing: int) -> tuple[Any, dict[str, Any]]:
    """What `zoo.serving` asks for: the model with its share of the cores, and facts for `/info`."""
    model = load_graphs(name, int8, max(1, usable_cores() // sharing))
    return model, {key: model.about[key] for key in ("class", "parameters", "weights")}


def cached_graphs() -> dict[str, Path]:
    """Name -> folder of the graphs in the cache."""
    root = _root()
    return {path.name: path for path in sorted(root.iterdir()) if (path / MANIFEST).is_file()} if root.is_dir() else {}


def exported_graphs(name: str, int8: bool) -> Path | None:
    """The folder of a weight in the cache; None if it was not exported yet, or is damaged."""
    folder = _place(name, int8)
    return folder if _is_undamaged(folder) else None


def _is_undamaged(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    require("runtime", "--runtime onnx")
    try:
        Exported(folder).verify()
    except ValueError:
        return False
    return True


def _place(name: str, int8: bool) -> Path:
    sha256 = registry.TABLE[name].sha256 if name in registry.TABLE else _own_digest(name)
    label = Path(name).name if name.startswith(LOCAL_DIR) else name.removeprefix(HF_HUB).replace("/", "--")
    return _root() / "-".join([label, *["int8"] * int8, f"{FORMAT}.{sha256[:12]}"])


def _own_digest(name: str) -> str:
    """Changes with the weights of a folder or of the Hub, and with modules of the user, which may compute with them."""
    sha256 = registry.open_bundle(name).config_sha256
    if not (files := imported_files()):
        return sha256
    found = hashlib.sha256(sha256.encode())
    for file in files:
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def graphs_of(name: str, int8: bool) -> Path:
    """The folder of a weight in the cache; exports the weight if it is not there, or damaged there."""
    if not is_whole() and name.startswith(HF_HUB):
        raise _nowhere(name)
    if not is_whole() and name.startswith(LOCAL_DIR) and not _holds(name, CONFIG):
        raise ValueError(
            f"{name} is not a folder of exported graphs: it has no {MANIFEST}; on a machine with attention-zoo write "
            "one with: zoo export NAME FOLDER --format onnx"
        )
    folder = _place(name, int8)
    if _is_undamaged(folder):
        return folder
    if not is_whole():
        raise _nowhere(name)
    require("onnx", "--runtime onnx, which exports a weight on first use,")
    from zoo.onnx_export import export_onnx

    if folder.is_dir():
        print(f"zoo: {folder} is damaged; exporting {name} again", file=sys.stderr)
        shutil.rmtree(folder)
    else:
        print(f"zoo: exporting {name} to {folder}, once", file=sys.stderr)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return export_onnx(registry.load(name), folder, name, int8)


def _nowhere(name: str) -> ValueError:
    return ValueError(
        f"there are no exported graphs of {name} here, and attention-zoo-runtime cannot make them; on a machine with "
        f"attention-zoo: zoo export {name} graphs --format onnx, then copy that folder here and give local-dir:graphs"
    )


def _root() -> Path:
    return cache_folder() / "graphs"


def size(folder: Path) -> int:
    """Bytes of the files of a folder."""
    return sum(entry.stat().st_size for entry in os.scandir(folder))
