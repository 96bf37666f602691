"""Checks of what models are built with, each with a message for the user."""

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any, Literal, get_args, get_origin

from zoo.bundles.files import BundleError, MisfitError
from zoo.utils.modules import OF_A_MODULE, REGISTERED
from zoo.utils.signatures import argument_types

_HOOKS = ("setup", "teardown", "optimizer_step", "load_state_dict")  # of Lightning and torch, beside those with on_


def check_arguments(cls: type, signature: inspect.Signature, required: Sequence[str]) -> None:
    """Raises ValueError if a model class lacks an argument that all models of its task take, or takes unnamed ones."""
    if unnamed := [p for p in signature.parameters.values() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]:
        raise ValueError(
            f"{cls.__name__}.__init__ must name its arguments, which are its configuration; got {unnamed[-1]}: write "
            "out those that it takes"
        )
    if missing := [name for name in required if name not in signature.parameters]:
        raise ValueError(
            f"{cls.__name__}.__init__ must take {', '.join(missing)}, as all models of its task do; see zoo/models"
        )


def check_methods(cls: type) -> None:
    """Raises ValueError if a model class lacks a method that the base class of its task leaves to each model."""
    for base in cls.__mro__:
        left = vars(base).get("methods", ())
        if missing := [name for name in left if getattr(cls, name) is vars(base)[name]]:
            raise ValueError(
                f"{cls.__name__} must define {', '.join(missing)}, which {base.__module__}.{base.__name__} leaves to "
                "each model; see there what it takes and returns"
            )


def warn_of_unused_forward(cls: type) -> None:
    """Warns of a user's model class with another `forward` than its base, which neither training nor verbs call."""
    if cls.__module__.startswith("zoo."):
        return
    own = vars(cls)
    replaced = [
        base.__name__ for base in cls.__mro__[1:-1] if base.__module__.startswith("zoo.") and "forward" in vars(base)
    ]
    left = {name for base in cls.__mro__ for name in vars(base).get("methods", ())}
    if (
        "forward" in own
        and replaced
        and "forward" not in left
        and not own.keys() & {"loss", "training_step", "methods"}
    ):
        called = ", ".join(sorted(left))
        warnings.warn(
            f"{cls.__name__}.forward replaces that of {replaced[0]}, but training and verbs do not call it: they call "
            f"{called}; override those, or loss",
            stacklevel=3,
        )


def warn_of_hooks(cls: type) -> None:
    """Warns of a Lightning hook of a user's model class, or of its mixin, that hides one of its base."""
    if cls.__module__.startswith("zoo."):
        return
    ours = [base for base in cls.__mro__ if base.__module__.startswith("zoo.")]
    hooks = {name: base for base in reversed(ours) for name in vars(base) if name.startswith("on_") or name in _HOOKS}
    for name, hidden in hooks.items():
        definer = next(base for base in cls.__mro__ if name in vars(base))
        own = vars(definer)[name]
        # a class that inherits one was warned of where it stands; super().on_...(), or Base.on_...(self), calls it
        if definer in ours or (definer is not cls and issubclass(definer, hidden)) or not inspect.isfunction(own):
            continue
        if not {"super", name} & _names_in(inspect.unwrap(own).__code__):
            warnings.warn(
                f"{definer.__name__}.{name} hides that of {hidden.__name__}, which training needs: call "
                f"super().{name}(...) in it",
                stacklevel=3,
            )


def _names_in(code: CodeType) -> set[str]:
    """The names that a function uses, also in functions within."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return {*code.co_names}.union(*map(_names_in, inner))


def check_layer_name(model: Any, name: str) -> None:
    """Raises ValueError for a layer with the name of something else, which one of the two would hide.

    Args:
        model: that gets the layer.
        name: of the layer.
    """
    owners = [base.__name__ for base in type(model).__mro__ if name in vars(base)]
    if owners or ((name == "config" or name[0] == "_") and vars(model).get(name) is not None):
        what = f"of {owners[0]}" if owners else "that every model has"
        raise ValueError(
            f"{type(model).__name__}: a layer cannot be called {name!r}, an attribute {what}; give it another name"
        )


def check_choices(cls: type, config: Mapping[str, Any]) -> None:
    """Raises ValueError for a value that is none of those that the signature names, as in `Literal["post", "pre"]`."""
    for name, kind in argument_types(cls).items():
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        if choices and name in config and config[name] not in choices:
            hint = OF_A_MODULE if name in REGISTERED else ""
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {config[name]!r}{hint}")


def check_sizes(config: dict[str, Any], may_be_zero: Sequence[str]) -> None:
    """Raises ValueError for sizes and numbers of layers that are too small."""
    for name, value in config.items():
        least = 0 if name in may_be_zero else 1
        if name.endswith(("_size", "_layers")) and isinstance(value, int) and value < least:
            raise ValueError(f"{name} must be at least {least}; got {value}")


@contextmanager
def naming_overrides(cls: Any, stored: Mapping[str, Any], changed: Mapping[str, Any]) -> Iterator[None]:
    """Context: an error about the stored tensors names the overrides, which are its likely reason.

    Args:
        cls: The class of the model, with `heads`.
        stored: The arguments of the stored model.
        changed: The overrides that differ from them.

    Raises:
        MisfitError: The tensors do not fit, and there are overrides.
    """
    try:
        yield
    except BundleError as error:
        if not changed:
            raise
        defaults = inspect.signature(cls.__init__).parameters
        given = ", ".join(f"{name} {value!r}" for name, value in changed.items())
        kept = ", ".join(f"{name} {stored.get(name, defaults[name].default)!r}" for name in changed)
        free = f" (parts that may change shape: {', '.join(cls.heads)})" if cls.heads else ""
        raise MisfitError(f"overrides {given} do not fit weights of {kept}{free}; leave them out: {error}") from error
