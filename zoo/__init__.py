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
    from zoo.registry import list_models, load
    from zoo.results.several import page

__all__ = ["BundleError", "DamagedError", "FetchError", "MisfitError", "__version__", "list_models", "load", "page"]

_HOME = {"list_models": "zoo.registry", "load": "zoo.registry", "page": "zoo.results.several"}
_HOME |= dict.fromkeys(["BundleError", "DamagedError", "FetchError", "MisfitError"], "zoo.bundles.files")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'zoo' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
