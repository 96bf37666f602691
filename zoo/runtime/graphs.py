"""A folder of exported graphs: onnx.json, the graphs and the other files of a model, verified and opened."""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.utils import strict_json
from zoo.utils.extras import require
from zoo.utils.places import at_home
from zoo.utils.regular import check_regular

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

MANIFEST = "onnx.json"
FORMAT = 2  # of exports; another one is not read
EXACT_PRODUCTS = "session.x64quantprecision", "1"  # of 8 bits: processors without VNNI would add them in 16 bits
MOST_ENTRIES = 2**16  # of onnx.json
Arrays = dict[str, np.ndarray]


class Exported:
    """What `zoo export --format onnx` wrote.

    Args:
        folder: of the export.
        threads: of onnxruntime, for each graph.

    Attributes:
        about: content of onnx.json.

    Raises:
        ValueError: the folder is not an export, a file is damaged, or onnxruntime is missing or cannot read a graph.
    """

    def __init__(self, folder: str | os.PathLike, threads: int = 1) -> None:
        require("runtime", "zoo.runtime")
        self.folder, self.threads = at_home(folder), threads
        if not (self.folder / MANIFEST).is_file():
            raise ValueError(
                f"{folder} is not a folder of exported graphs: it has no {MANIFEST}; "
                "write one with: zoo export NAME FOLDER --format onnx"
            )
        path = self.folder / MANIFEST
        check_regular(path)
        try:
            self.about: dict[str, Any] = strict_json.loads(path.read_text(encoding="utf-8"), MOST_ENTRIES)
            self._sha256 = dict(self.about["sha256"])
            digest = strict_json.digest({key: value for key, value in self.about.items() if key != "digest"})
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}); export the model again") from error
        if self.about.get("format") != FORMAT:
            raise ValueError(f"{self.folder} was exported by another version of attention-zoo; export it again")
        if "digest" not in self.about:
            raise ValueError(
                f"{path} was changed, or exported by an earlier version of attention-zoo: it has no digest; "
                "export the model again"
            )
        if self.about["digest"] != digest:
            raise ValueError(f"{path} was changed or is damaged: its digest does not match; export the model again")
        for name in self._sha256:
            if not name.endswith((".onnx", ".json")):  # these are verified when they are opened
                self.path(name)

    def verify(self) -> None:
        """Raises ValueError if a file is missing or damaged."""
        for name in self._sha256:
            self.path(name)

    def assets(self) -> dict[str, str]:
        """The text files of the model, by name."""
        return {name: self.path(name).read_text(encoding="utf-8") for name in self._sha256 if name.endswith(".json")}

    def path(self, name: str) -> Path:
        """A file, which is as it was exported.

        Raises:
            ValueError: it is missing or damaged.
        """
        path = self.folder / name
        try:
            check_regular(path)
            found = hashlib.sha256()
            with path.open("rb") as file:
                while piece := file.read(2**20):
                    found.update(piece)
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}; export the model again") from error
        if found.hexdigest() != self._sha256.get(name):
            raise ValueError(f"{path} is damaged: it is not what was exported; export the model again")
        return path

    def graph(self, name: str) -> "Graph":
        """A graph, ready to run."""
        return Graph(self.path(name), self.threads)


class Graph:
    """One graph.

    Args:
        path: of its file.
        threads: of onnxruntime.

    Attributes:
        inputs: names.
        shapes: of the inputs; the size of an axis, or its name.
        outputs: names.
    """

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry(*EXACT_PRODUCTS)
        options.enable_cpu_mem_arena = False  # it would keep the memory of the largest batch
        options.log_severity_level = 3  # errors; warnings are about optimisations
        try:
            self._session: InferenceSession = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # of classes that onnxruntime does not document
            raise ValueError(f"{path}: onnxruntime cannot read it ({str(error).splitlines()[0]})") from error
        self.inputs = [value.name for value in self._session.get_inputs()]
        self.shapes = {value.name: value.shape for value in self._session.get_inputs()}
        self.outputs = [value.name for value in self._session.get_outputs()]

    def __call__(self, values: Arrays) -> Arrays:
        """Outputs by name; `values` may hold more than the graph reads."""
        found = self._session.run(self.outputs, {name: values[name] for name in self.inputs})
        return dict(zip(self.outputs, found))  # pyright: ignore[reportReturnType]  # all outputs are arrays


def padded(rows: list[list[int]], fill: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids -> (B, longest) int64 with `fill` after the ends, and (B,) their lengths; at least one column."""
    lengths = np.array([len(row) for row in rows], np.int64)
    out = np.full((len(rows), max(1, int(lengths.max(initial=1)))), fill, np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out, lengths
