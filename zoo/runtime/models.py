"""`load`: the class for the task of an export."""

import importlib
import os
from typing import Any

from zoo.runtime.base import GraphModel
from zoo.runtime.graphs import MANIFEST, Exported
from zoo.verbs.confidence import CALIBRATION, Calibration

_CLASSES = {  # by task; imported when used: a translator needs no images
    "translation": "translation.GraphTranslator",
    "captioning": "captioning.GraphCaptioner",
    "classification": "classification.GraphTextClassifier",
    "classification of documents": "classification.GraphDocumentClassifier",
    "language modelling": "language_modelling.GraphLanguageModel",
    "reading": "reading.GraphReader",
}


def load(folder: str | os.PathLike, threads: int = 1) -> Any:
    """Loads a folder that `zoo export NAME FOLDER --format onnx` wrote; torch is not needed.

    The model has the verbs, options and results of `zoo.load`; the attention of a result is a NumPy array.

    Args:
        folder: of the export.
        threads: of onnxruntime; a single sentence or text gains nothing from more than one.

    Raises:
        ValueError: the folder is not a whole, undamaged export, or onnxruntime is missing.
    """
    if threads < 1:
        raise ValueError(f"threads must be at least 1; got {threads}")
    exported = Exported(folder, threads)
    try:
        return _loaded(exported)
    except (LookupError, TypeError) as error:  # what Exported has not checked
        raise ValueError(f"{exported.folder / MANIFEST} is damaged ({error!r}); export the model again") from error


def _loaded(exported: Exported) -> GraphModel:
    model = _class_of(exported)(exported)
    assets = exported.assets()
    if (text := assets.pop(CALIBRATION, None)) is not None:
        model.calibration = Calibration.from_json(text)
    model.load_assets(assets)
    model.explains = exported.about.get("explains")
    return model


def _class_of(exported: Exported) -> type[GraphModel]:
    task = exported.about.get("task")
    if task == "classification" and "sentence_attention" in exported.about["graphs"]["classifier.onnx"]["outputs"]:
        task = "classification of documents"
    if task not in _CLASSES:
        raise ValueError(f"{exported.folder} is for {task!r}, which this version of attention-zoo does not know")
    module, name = _CLASSES[task].split(".")
    return getattr(importlib.import_module(f"zoo.runtime.{module}"), name)
