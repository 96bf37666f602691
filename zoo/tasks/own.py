"""The modules of a user that a model needs: with its class, or with a choice that it has registered."""

from typing import Any

from zoo.layers.attention import ATTENTIONS, NORMALIZATIONS
from zoo.layers.scores import SCORES
from zoo.utils.modules import REGISTERED

TABLES = dict(zip(REGISTERED, (SCORES, ATTENTIONS, NORMALIZATIONS), strict=True))


def own_modules(model: Any) -> list[str]:
    """Names of the modules to import before such a model is loaded; none for a model of this package."""
    chosen = (table.get(model.config.get(argument)) for argument, table in TABLES.items())
    names = {part.__module__ for part in (type(model), *chosen) if part is not None}
    return sorted(name for name in names if not name.startswith("zoo."))
