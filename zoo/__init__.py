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
    from zoo.explanations import faithfulness
    from zoo.extensions import register_attention, register_normalization, register_score
    from zoo.registry import list_models, load, register
    from zoo.results.several import page
    from zoo.utils.continuous_cache import ContinuousCache

__all__ = [
    "BundleError",
    "ContinuousCache",
    "DamagedError",
    "FetchError",
    "MisfitError",
    "__version__",
    "faithfulness",
    "list_models",
    "load",
    "page",
    "register",
    "register_attention",
    "register_normalization",
    "register_score",
]

_HOME = dict.fromkeys(["list_models", "load", "register"], "zoo.registry")
_HOME["faithfulness"] = "zoo.explanations"
_HOME["ContinuousCache"] = "zoo.utils.continuous_cache"
_HOME["page"] = "zoo.results.several"
_HOME |= dict.fromkeys(["register_attention", "register_normalization", "register_score"], "zoo.extensions")
_HOME |= dict.fromkeys(["BundleError", "DamagedError", "FetchError", "MisfitError"], "zoo.bundles.files")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'zoo' has no attribute '{name}'")
    if name.startswith("register"):
        from zoo.utils.whole import require_whole

        require_whole(f"zoo.{name}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
