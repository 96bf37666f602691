"""`zoo export --format onnx`: a model as ONNX graphs, which run without torch.

A translator or a captioner becomes an encoder and one decoder step (encoder_decoder.py), a language model a step that
reads any number of words (language_models.py), a classifier (classifiers.py) or a reader (readers.py) one graph. The
loops around them are in zoo/runtime; examples/onnx_translate.py shows one without this package. Batch size, length and
number of hypotheses are dynamic. `onnx.json` describes inputs, outputs, special tokens and this package's search
settings, and has the sha256 of every other file.

The models' own code is traced, with two exceptions (tracing.py):

* Recurrences, which in this package run without padding (zoo/layers/packed.py) or over all steps at once, become ONNX's
  LSTM and GRU. Those take the lengths of the rows: padding changes nothing, and the backward direction begins at the
  end of a row. Classifiers and readers, whose words are flat, are read padded instead.
* Functions with a hand-written gradient are replaced by what they compute.

With `--int8` the graphs are then rewritten with weights in 8 bits (quantized.py).
"""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from zoo.bundles.exports import replaceable_export, write_manifest
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.onnx_export.classifiers import CLASSIFIERS, write_classifier
from zoo.onnx_export.encoder_decoder import write_encoder_decoder
from zoo.onnx_export.graphs import OPSET, no_form
from zoo.onnx_export.language_models import write_language_model
from zoo.onnx_export.quantized import SHARED, quantize_graphs
from zoo.onnx_export.readers import write_reader
from zoo.onnx_export.tracing import traceable
from zoo.runtime.graphs import EXACT_PRODUCTS, FORMAT, MANIFEST
from zoo.runtime.searching import ENCODER
from zoo.tasks.base import ZooModule
from zoo.utils.atomic import new_folder, target_folder
from zoo.utils.extras import require
from zoo.utils.version import __version__
from zoo.verbs.confidence import CALIBRATION


def export_onnx(model: ZooModule, folder: str | os.PathLike, source: str, int8: bool = False) -> Path:
    """Writes the graphs of a model, its other files (tokenizer, labels), and onnx.json.

    Args:
        model: a translator, a captioner, a classifier, a language model or a reader; exported in float32 whatever its
            precision.
        folder: target: new, empty, or an earlier export, which is then replaced.
        source: origin of the model, recorded in onnx.json.
        int8: store the weights in 8 bits and multiply in integers; the numbers then differ slightly from torch's.

    Raises:
        ValueError: a package is missing, the model has no ONNX form, `folder` holds other files, or onnxruntime
            gives other numbers than torch.
    """
    require("onnx", "export to ONNX")
    folder = Path(folder).absolute()
    target_folder(folder, replaceable_graphs)
    model = copy.deepcopy(model).cpu().float().eval()
    write = _writer(model)
    with new_folder(folder, replaceable_graphs) as new:
        with torch.no_grad():
            manifest = write(model, traceable(model), new)
        if int8:
            manifest["one_at_a_time"] = quantize_graphs(sorted(new.glob("*.onnx")), {ENCODER})
        assets = model.assets()
        if model.calibration is not None:
            assets[CALIBRATION] = model.calibration.to_json()
        for name, text in assets.items():
            (new / name).write_bytes(text.encode())
        about = {
            "format": FORMAT,
            "source": source,
            "class": type(model).__name__,
            "attention_zoo": __version__,
            "opset": OPSET,
            "weights": "int8" if int8 else "float32",
            "session": dict([EXACT_PRODUCTS]) if int8 else {},
            "parameters": sum(p.numel() for p in model.parameters()),
            "config": model.config,
        }
        if model.explains and not int8:
            about["explains"] = model.explains
        write_manifest(new, MANIFEST, {**about, **manifest})
    return folder


def replaceable_graphs(folder: Path) -> set[str]:
    """Names of the files of an earlier export that a new one may replace; README.md and pictures are not among them.

    Raises:
        ValueError: The folder is not a complete export, or holds other files.
    """
    return replaceable_export(
        folder, MANIFEST, "an ONNX export", lambda name: name.endswith((".json", ".onnx")) or name == SHARED
    )


def _writer(model: ZooModule) -> Callable[[Any, Any, Path], dict[str, Any]]:
    """The function that writes the graphs of a model and returns their description for onnx.json."""
    if model.task.name in ("translation", "captioning"):
        return write_encoder_decoder
    writers = dict.fromkeys(CLASSIFIERS, write_classifier)
    writers |= {KeyValuePredictLM: write_language_model, AttentionOverAttentionReader: write_reader}
    if type(model) not in writers:
        raise no_form(model, f"translators, captioners, {', '.join(cls.__name__ for cls in writers)} have one")
    return writers[type(model)]
