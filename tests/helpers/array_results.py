"""A result of each kind with weights of NumPy, as from an engine without torch; as a program, uses all of them.

    python tests/helpers/array_results.py FOLDER

prints the modules of torch and Lightning that were imported: none.
"""

import importlib
import json
import pkgutil
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import zoo.plots
import zoo.text
from zoo.results import (
    Alignment,
    Caption,
    Classification,
    Completion,
    DocumentClassification,
    Look,
    Reading,
    Translation,
    page,
)
from zoo.vision.images import ImageTransform, open_image

WORDS = ["the", "dog", "<b>", "runs", "in", "snow"]


def weights(*shape: int) -> np.ndarray:
    """float32; each row sums to 1."""
    values = np.random.default_rng(sum(shape)).random(shape, dtype=np.float32) ** 4
    return values / values.sum(-1, keepdims=True)


def photo() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8))


RESULTS = {
    "translation": Translation("a b", -0.5, WORDS, ["a", "b", "</s>"], weights(3, 6), [("a", -0.5), ("b", -0.7)]),
    "alignment": Alignment(WORDS, ["a", "b"], weights(2, 6), [(0, 0), (3, 1)]),
    "completion": Completion("the dog runs", "runs", -1.0, ["the", "dog", "runs"], 2, weights(3, 2), []),
    "caption": Caption("a dog", -1.0, ["a", "dog", "</s>"], weights(3, 16).reshape(3, 4, 4), image=photo()),
    "uniform caption": Caption("a", -1.0, ["a"], np.full((1, 7, 7), 1 / 49, np.float32), image=photo()),
    "classification": Classification("b", ["b"], {"a": 0.4, "b": 0.6}, [WORDS], [weights(3, 6)]),
    "pair": Classification("b", ["b"], {"a": 0.4, "b": 0.6}, [WORDS, ["x"]], [weights(2, 6), weights(2, 1)], 3.5),
    "document": DocumentClassification(
        "b", ["b"], {"a": 0.4, "b": 0.6}, [WORDS, ["x"]], weights(2), [weights(6), weights(1)]
    ),
    "reading": Reading("dog", {"dog": 0.9, "snow": 0.1}, WORDS, weights(6), ["who", "?"], weights(2)),
    "reading without query": Reading("dog", {"dog": 0.9, "snow": 0.1}, WORDS, weights(6), ["who", "?"], None),
}
LOOK = Look(WORDS, ["a", "</s>"], weights(1, 2, 6, 6), weights(1, 2, 2, 2), weights(1, 2, 2, 6))


def use_all(folder: Path) -> None:
    """Everything that can be asked of the results, and the pixels of a photo."""
    for name, result in RESULTS.items():
        assert result.line() and repr(result) and json.dumps(result.to_dict())
        assert result.section().body and result._repr_html_()
        assert result.to_html(folder / f"{name}.html").stat().st_size > 1000
        assert len(result.to_pandas()) and result.plot().axes
    assert page(RESULTS.values()).count("<article") == len(RESULTS)
    LOOK.plot(folder / "look.png", heads=[1])
    assert ImageTransform(8).array(open_image(folder / "look.png")).shape == (3, 8, 8)


if __name__ == "__main__":
    for package in (zoo.text, zoo.plots):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    importlib.import_module("zoo.verbs.task")
    use_all(Path(sys.argv[1]))
    print(sorted(sys.modules.keys() & {"torch", "torchvision", "torchmetrics", "lightning"}))
