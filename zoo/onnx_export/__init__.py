"""`zoo export --format onnx`: a model as ONNX graphs, which run without torch and without this package.

A translator or a captioner becomes an encoder and one decoder step (encoder_decoder.py), a language model a step that
reads any number of words (language_models.py), a classifier (classifiers.py) or a reader (readers.py) one graph. The
loops around them are the user's: see examples/onnx_translate.py, onnx_complete.py and onnx_answer.py. Batch size,
length and number of hypotheses are dynamic. `onnx.json` describes inputs, outputs, special tokens and this package's
search settings, and has the sha256 of every other file.

The models' own code is traced, with two exceptions (tracing.py):

* Recurrences, which in this package run without padding (zoo/layers/packed.py) or over all steps at once, become ONNX's
  LSTM and GRU. Those take the lengths of the rows: padding changes nothing, and the backward direction begins at the
  end of a row. Classifiers and readers, whose words are flat, are read padded instead.
* Functions with a hand-written gradient are replaced by what they compute.
"""

import copy
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from zoo.bundles.files import PICTURES, README, file_hashes
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.onnx_export.classifiers import CLASSIFIERS, write_classifier
from zoo.onnx_export.encoder_decoder import write_encoder_decoder
from zoo.onnx_export.graphs import OPSET, no_form
from zoo.onnx_export.language_models import write_language_model
from zoo.onnx_export.readers import write_reader
from zoo.onnx_export.tracing import traceable
from zoo.tasks.base import ZooModule
from zoo.utils import strict_json
from zoo.utils.atomic import new_folder, target_folder
from zoo.utils.extras import require
from zoo.utils.regular import check_regular
from zoo.utils.version import __version__

MANIFEST = "onnx.json"


def export_onnx(model: ZooModule, folder: str | os.PathLike, source: str) -> Path:
    """Writes the graphs of a model, its other files (tokenizer, labels), and onnx.json.

    Args:
        model: a translator, a captioner, a classifier, a language model or a reader.
        folder: target: new, empty, or an earlier export, which is then replaced.
        source: origin of the model, recorded in onnx.json.

    Raises:
        ValueError: a package is missing, the model has no ONNX form, `folder` holds other files, or onnxruntime
            gives other numbers than torch.
    """
    require("onnx", "export to ONNX")
    folder = Path(folder).absolute()
    target_folder(folder, replaceable_graphs)
    model = copy.deepcopy(model).cpu().eval()
    write = _writer(model)
    with new_folder(folder, replaceable_graphs) as new:
        with torch.no_grad():
            manifest = write(model, traceable(model), new)
        for name, text in model.assets().items():
            (new / name).write_bytes(text.encode())
        about = {"source": source, "class": type(model).__name__, "attention_zoo": __version__, "opset": OPSET}
        text = json.dumps(
            {**about, **manifest, "sha256": file_hashes(new)}, indent=2, ensure_ascii=False, allow_nan=False
        )
        (new / MANIFEST).write_bytes(f"{text}\n".encode())
    return folder


def replaceable_graphs(folder: Path) -> set[str]:
    """Names of the files of an earlier export that a new one may replace; README.md and pictures are not among them.

    Raises:
        ValueError: The folder is not a complete export, or holds other files.
    """
    try:
        check_regular(folder / MANIFEST)
        listed = strict_json.loads((folder / MANIFEST).read_text(encoding="utf-8"), 2**16)["sha256"]
        names = {MANIFEST, *listed}
        kept = {file.name for file in folder.iterdir() if file.name == README or file.name.lower().endswith(PICTURES)}
        foreign = {file.name for file in folder.iterdir()} - names - kept
        if foreign := sorted(foreign | {name for name in names if not name.endswith((".json", ".onnx"))}):
            raise ValueError(f"it also holds {', '.join(map(repr, foreign[:5]))}")
        found = {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in listed
            if _is_plain(folder / name)
        }
        if found != listed or not all(map(_is_plain, (folder / name for name in kept | {MANIFEST}))):
            raise ValueError(f"its files are not those that {MANIFEST} lists")
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = f"it has no {MANIFEST}" if isinstance(error, FileNotFoundError) else error
        raise ValueError(f"{folder} exists and is not an ONNX export: {why}; give a new or an empty folder") from error
    return names


def _is_plain(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


def _writer(model: ZooModule) -> Callable[[Any, Any, Path], dict[str, Any]]:
    """The function that writes the graphs of a model and returns their description for onnx.json."""
    if model.task.name in ("translation", "captioning"):
        return write_encoder_decoder
    writers = dict.fromkeys(CLASSIFIERS, write_classifier)
    writers |= {KeyValuePredictLM: write_language_model, AttentionOverAttentionReader: write_reader}
    if type(model) not in writers:
        raise no_form(model, f"translators, captioners, {', '.join(cls.__name__ for cls in writers)} have one")
    return writers[type(model)]
