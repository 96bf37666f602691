"""Pretrained attention models by name.

    import zoo
    model = zoo.load("luong_general.multi30k_en_de")
    print(model.translate(["A dog runs in the snow."])[0].text)

Importing this package does not import torch; `zoo.load` does.
"""

import importlib
from typing import TYPE_CHECKING, Any

from zoo.utils.version import __version__

if TYPE_CHECKING:
    from zoo.bundles.files import BundleError, DamagedError, FetchError, MisfitError
    from zoo.extensions import register_attention, register_normalization, register_score
    from zoo.registry import list_models, load, register
    from zoo.results.several import page

__all__ = [
    "BundleError",
    "DamagedError",
    "FetchError",
    "MisfitError",
    "__version__",
    "list_models",
    "load",
    "page",
    "register",
    "register_attention",
    "register_normalization",
    "register_score",
]

_HOME = dict.fromkeys(["list_models", "load", "register"], "zoo.registry")
_HOME["page"] = "zoo.results.several"
_HOME |= dict.fromkeys(["register_attention", "register_normalization", "register_score"], "zoo.extensions")
_HOME |= dict.fromkeys(["BundleError", "DamagedError", "FetchError", "MisfitError"], "zoo.bundles.files")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'zoo' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
