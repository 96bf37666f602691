"""From untrusted files to a model: checked argument types, a model without memory, matching tensors, then memory.

The order matters. `init_args` may ask for any amount of memory, so the model is first built without memory and compared
with the header of model.safetensors. Then only as much is allocated as the file itself contains.
"""

import json
import math
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import torch
from torch import Tensor, nn
from torch.nn import functional, init
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.overrides import TorchFunctionMode

from zoo.bundles.files import BundleError, MisfitError
from zoo.bundles.tensors import MAX_HEADER_BYTES, Stored, one_line
from zoo.utils.modules import OF_A_MODULE, REGISTERED
from zoo.utils.signatures import argument_types

MAX_TENSORS = (
    2000  # parameters and buffers of a model: an argument such as a number of layers costs time, not only memory
)
MAX_COUNTED = 2**20  # most elements of a tensor that a constructor may compute
LARGEST = 2**31 - 1  # largest absolute value of a numeric argument
# What a user may do to parts of a model, by what it puts into the names of their tensors.
_CHANGED = {
    r"\b_orig_mod\.": "torch.compile (`_orig_mod` is the part itself)",
    r"\bparametrizations\.": "the parametrizations (torch.nn.utils.parametrize.remove_parametrizations)",
    r"_orig$": "the pruning (torch.nn.utils.prune.remove)",
}
_LISTS, _MAPPINGS = (list, tuple, Sequence, Iterable), (dict, Mapping)  # whose values a file holds as list and object

# Exceptions that a constructor, or reading an asset, may raise for invalid values.
_AT_FAULT = (ValueError, TypeError, ArithmeticError, LookupError, RuntimeError, AssertionError, MemoryError)

M = TypeVar("M", bound=nn.Module)


# ---- arguments ----


def check_types(cls: type, arguments: Mapping[str, Any]) -> None:
    """Raises `ValueError` unless each value has the type in the signature of `cls.__init__`, and a file can hold it."""
    types = argument_types(cls)
    for name, value in arguments.items():
        if not _is_a(value, types[name]):
            hint = OF_A_MODULE if name in REGISTERED and isinstance(value, str) else ""
            wanted = _in_words(types[name])
            raise ValueError(f"{name} must be {wanted}; got {reprlib.repr(value)}{hint}")


def _is_a(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_a(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if kind is Any:
        plain = value is None or type(value) in (bool, str) or _is_a(value, float)
        return plain or _is_a(value, list[Any]) or _is_a(value, dict[str, Any])
    if origin in _LISTS:
        if not isinstance(value, (list, tuple)):
            return False
        if origin is not tuple or not parts or parts[-1] is Ellipsis:
            return all(_is_a(item, parts[0] if parts else Any) for item in value)
        return len(value) == len(parts) and all(map(_is_a, value, parts))
    if origin in _MAPPINGS:
        of = parts[1] if parts else Any
        return type(value) is dict and all(type(key) is str and _is_a(item, of) for key, item in value.items())
    if kind in (int, float):
        whole = type(value) is int
        return (whole or kind is float and type(value) is float and math.isfinite(value)) and abs(value) <= LARGEST
    return type(value) is kind


def _in_words(kind: Any) -> str:
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(map(_in_words, parts))
    if origin is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if origin in _LISTS:
        return f"a list of {' and '.join(_in_words(part) for part in parts or (Any,) if part is not Ellipsis)}"
    if origin in _MAPPINGS:
        return f"a dict from text to {_in_words(parts[1] if parts else Any)}"
    limit = f"up to {LARGEST:,}"
    names = {
        int: f"a whole number {limit}",
        float: f"a number {limit}",
        bool: "true or false",
        str: "text",
        NoneType: "null",
        Any: "text, a number, true, false or null, or lists or dicts of these",
    }
    return names.get(kind, f"what config.json can hold, which {getattr(kind, '__name__', kind)} is not")


# ---- a model without memory ----


class _WithoutMemory(TorchFunctionMode):
    """Context: tensors created by size, and buffers, only have a shape (torch's device "meta").

    Values that a constructor computes, such as those of `torch.arange`, stay real, which the device itself would not
    allow. Functions that only fill values, or keep the shape, are skipped: they would have nothing to do.
    """

    _SIZED = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye}
    _COUNTED = {torch.arange, torch.linspace}
    _FILLING = {init.normal_, init.uniform_, init.constant_, init.kaiming_uniform_}
    _FILLING |= {Tensor.normal_, Tensor.uniform_, Tensor.fill_, Tensor.zero_}
    _KEEPING = {
        functional.relu,
        functional.relu6,
        functional.silu,
        functional.gelu,
        functional.hardswish,
        functional.hardsigmoid,
    }

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("device") is None and func in self._SIZED:
            return func(*args, **{**kwargs, "device": "meta"})
        if kwargs.get("device") is None and func in self._COUNTED:
            found = func(*args, **{**kwargs, "device": "meta"})
            return found if found.numel() > MAX_COUNTED else func(*args, **kwargs)
        if func in self._FILLING:
            t = args[0] if args else kwargs["tensor"]
            return t if t.is_meta else func(*args, **kwargs)
        return args[0] if func in self._KEEPING else func(*args, **kwargs)

    def __enter__(self) -> "_WithoutMemory":
        self._made, self._thread = 0, get_ident()
        hooks = register_module_parameter_registration_hook, register_module_buffer_registration_hook
        # torch declares that the hook returns nothing, and takes what it returns
        self._handles = [hook(self._registered) for hook in hooks]  # pyright: ignore[reportArgumentType]
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        for handle in self._handles:
            handle.remove()
        super().__exit__(*exception)

    def _registered(self, module: nn.Module, name: str, t: Tensor | None) -> Tensor | None:
        if get_ident() != self._thread or t is None:  # the hooks apply to all threads
            return None
        self._made += 1
        if self._made > MAX_TENSORS:
            raise ValueError(f"they ask for more than {MAX_TENSORS:,} tensors")
        return None if isinstance(t, nn.Parameter) else t.to("meta")


def skeleton(cls: type[M], arguments: Mapping[str, Any]) -> M:
    """A model whose tensors have shapes but no memory, in single precision whatever torch's default is.

    Raises:
        ValueError: it cannot be built with these arguments.
    """
    try:
        with torch.device("cpu"), _WithoutMemory():  # even if another device is the default
            model = _single(cls(**arguments))
    except _AT_FAULT as error:
        raise ValueError(f"{cls.__name__} cannot be built with these arguments: {one_line(error)}") from error
    for name, t in model.state_dict().items():
        if not t.numel():
            raise ValueError(
                f"{cls.__name__} cannot be built with these arguments: {name} would be empty, of shape {tuple(t.shape)}"
            )
    return model


def build(cls: type[M], arguments: Mapping[str, Any]) -> M:
    """A model with memory, on the CPU and in single precision, whatever torch's defaults are."""
    with torch.device("cpu"):
        return _single(cls(**arguments))


def _single(model: M) -> M:
    return model if torch.get_default_dtype() == torch.float32 else model.float()


@contextmanager
def at_fault(where: Path) -> Iterator[None]:
    """Context: turns errors of a constructor or asset reader on a file's values into a `BundleError` that names it."""
    try:
        yield
    except BundleError:
        raise
    except _AT_FAULT as error:
        raise MisfitError(f"{where}: {one_line(error)}") from error


def most_bytes(model: nn.Module) -> int:
    """The maximum size of a model's tensors in a file."""
    return MAX_HEADER_BYTES + 8 * sum(t.numel() for t in model.state_dict().values())


def materialize(model: nn.Module) -> bool:
    """Gives a skeleton memory, without values; False if it has tensors that no file would fill."""
    saved = {id(t) for t in model.state_dict(keep_vars=True).values()}
    others = (
        value
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and value.is_meta
    )
    if next(others, None) is not None or any(id(t) not in saved for t in model.buffers()):
        return False
    made: dict[Tensor, Any] = {}  # a parameter for each parameter, else a tensor; so that tied tensors stay tied
    for module in model.modules():
        for group in (module._parameters, module._buffers):
            for name, t in group.items():
                if t is not None and t not in made:
                    # torch.empty_like would first import sympy, which takes up to a second
                    new = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu")
                    made[t] = nn.Parameter(new, t.requires_grad) if isinstance(t, nn.Parameter) else new
                group[name] = None if t is None else made[t]
    return True


# ---- the tensors of the file ----


def check_loadable(model: Any, tensors: Mapping[str, Tensor]) -> None:
    """Raises ValueError if a model of this class and configuration has other tensors than those to be saved."""
    try:
        arguments = _as_read(type(model), model.config)
        check_types(type(model), arguments)
        shape_mismatches(skeleton(type(model), arguments), tensors, Path("model.safetensors"), ())
    except (ValueError, BundleError) as error:
        changed = [how for mark, how in _CHANGED.items() if any(re.search(mark, name) for name in tensors)]
        undo = f"; first undo {' and '.join(changed)}" if changed else ""
        raise ValueError(f"not saved, as the model could not be loaded again: {error}{undo}") from error


def _as_read(cls: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a file gives back of the arguments.

    Raises:
        ValueError: it cannot hold one.
    """
    found = {}
    for name, value in arguments.items():
        try:
            found[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            wanted = _in_words(argument_types(cls)[name])
            raise ValueError(f"{name} must be {wanted}; got {reprlib.repr(value)}") from error
    return found


def shape_mismatches(
    model: nn.Module, stored: Mapping[str, Stored | Tensor], path: Path, heads: Iterable[str]
) -> tuple[str, ...]:
    """Compares the tensors of a file with a model, or with its skeleton.

    Returns:
        The heads whose shapes do not match.

    Raises:
        MisfitError: Any other tensor does not match.
    """
    state = model.state_dict(keep_vars=True)
    problems = dict.fromkeys(stored.keys() - state.keys(), "is not in the model")
    groups: dict[Tensor, list[str]] = {}
    for name, t in state.items():
        groups.setdefault(t, []).append(name)
    for t, names in groups.items():
        there = [name for name in names if name in stored]
        if not there:
            problems[names[0]] = "is not in the file"
        if len(there) > 1:
            problems[there[1]] = f"is the same tensor as {there[0]} and must not be in the file too"
        for name in there:
            shape, dtype = stored[name].shape, stored[name].dtype
            if tuple(shape) != tuple(t.shape):
                problems[name] = f"has shape {tuple(shape)} in the file, {tuple(t.shape)} in the model"
            elif dtype != t.dtype and not (
                t.is_floating_point() and isinstance(dtype, torch.dtype) and dtype.is_floating_point
            ):
                problems[name] = f"has dtype {dtype} in the file, {t.dtype} in the model"

    reset = tuple(head for head in heads if any(name.startswith(f"{head}.") for name in problems))
    left = [
        f"{name if re.fullmatch('[a-zA-Z0-9_.]{1,200}', name) else reprlib.repr(name)} {problem}"
        for name, problem in sorted(problems.items())
        if not _is_in(name, reset)
    ]
    if left:
        more = f" (and {len(left) - 3} more)" if len(left) > 3 else ""
        raise MisfitError(f"{path} does not match {type(model).__name__}: {'; '.join(left[:3])}{more}")
    return reset


def fill(model: nn.Module, stored: Mapping[str, Stored], path: Path, heads: tuple[str, ...]) -> None:
    """Copies tensors that passed `shape_mismatches` into a model, except those of some heads.

    Raises:
        MisfitError: A value is not finite in the precision of the model.
    """
    state = model.state_dict()
    with torch.no_grad():
        for name, part in stored.items():
            if not _is_in(name, heads):
                t = state[name].copy_(part.tensor())
                if t.is_floating_point() and not torch.stack(t.aminmax()).isfinite().all():
                    raise MisfitError(f"{path}: {name} holds NaN or infinite values")


def _is_in(name: str, heads: tuple[str, ...]) -> bool:
    return name.startswith(tuple(f"{head}." for head in heads))
