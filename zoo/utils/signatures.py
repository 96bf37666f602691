"""What the signature of a class says about the arguments that build it."""

import inspect
from typing import Any, get_type_hints


def argument_types(cls: type) -> dict[str, Any]:
    """The type of each argument of `cls.__init__`, by name; Any where none is named, or none that can be found here."""
    init = cls.__init__
    try:
        types = get_type_hints(init)  # of annotations as text, too
    except (NameError, TypeError, SyntaxError):  # e.g. a name that is imported for type checkers only
        types = {name: kind for name, kind in inspect.get_annotations(init).items() if not isinstance(kind, str)}
    return {name: types.get(name, Any) for name in [*inspect.signature(init).parameters][1:]}
