"""Every model of zoo/models, and every variant of it, found by itself."""

import importlib
import inspect
import itertools
import pkgutil
from typing import Any, Literal, get_args, get_origin

import pytest

import zoo.models
from zoo.tasks.base import ZooModule

# Every combination of these arguments is built; each choice of the other arguments is built alone.
_CROSSED = ("attention", "score", "input_feeding")
WITHOUT_GRAPHS = ("LSTMNLM", "PointerSentinelLM")  # models without an ONNX form


def model_classes() -> list[type[ZooModule]]:
    """The ZooModule subclasses defined in zoo/models, in the order of their names."""
    modules = [importlib.import_module(f"zoo.models.{m.name}") for m in pkgutil.iter_modules(zoo.models.__path__)]
    found = {c for m in modules for c in vars(m).values() if inspect.isclass(c) and c.__module__ == m.__name__}
    return sorted((c for c in found if issubclass(c, ZooModule)), key=lambda c: c.__name__)


def _choices(cls: type[ZooModule]) -> dict[str, list[Any]]:
    """Argument -> values other than the default, for the Literal and bool arguments."""
    out = {}
    for name, p in inspect.signature(cls.__init__).parameters.items():
        values = (
            get_args(p.annotation)
            if get_origin(p.annotation) is Literal
            else (True, False)
            if p.annotation is bool
            else ()
        )
        if values:
            out[name] = [value for value in values if value != p.default]
    return out


def _valid(options: dict[str, Any]) -> bool:
    """Sets the options that the given ones require; False if they exclude each other."""
    if {"baseline", "decoding"} & options.keys():  # mean nothing to soft attention
        options["attention"] = "hard"
    if options.get("attentional_state") is False:
        options["input_feeding"] = False
    if options.get("shared_vocab"):
        options["src_vocab_size"] = options["tgt_vocab_size"]
    return options.get("score") != "location" or options.get("attention", "global") == "global"


def variants(cls: type[ZooModule]) -> list[dict[str, Any]]:
    """Arguments that differ from the tiny model's."""
    choices = _choices(cls)
    singles = [{name: value} for name, values in choices.items() for value in values]
    crossed = {name: values for name, values in choices.items() if name in _CROSSED}
    default = {name: p.default for name, p in inspect.signature(cls.__init__).parameters.items()}
    grid = [dict(zip(crossed, row)) for row in itertools.product(*([default[n], *v] for n, v in crossed.items()))]
    layers = [{name: 2} for name in default if name.endswith("_layers")]
    valid = [v for v in [{}, *singles, *grid, *layers] if _valid({**cls.tiny, **v})]
    return list({repr(sorted({**default, **cls.tiny, **v}.items())): v for v in reversed(valid)}.values())[::-1]


def build(cls: type[ZooModule], **options: Any) -> ZooModule:
    """A tiny model; the window is small enough to matter on short sentences."""
    arguments = {**cls.tiny, **options}
    if "window" in inspect.signature(cls.__init__).parameters:
        arguments.setdefault("window", 2)
    _valid(arguments)
    return cls(**arguments)


# The variants of each class that tests/models/test_modes.py runs beside the tiny model: those that compute something
# else, not those that only change a size, share a matrix or choose what is shown.
_MAIN: dict[str, list[dict[str, Any]]] = {
    "AttentionClassifier": [
        {"attention": "local_p"},
        {"attention": "none"},
        {"score": "uniform"},
        {"normalize": "sparsemax"},
        {"cell": "gru", "bidirectional": False, "num_layers": 2},
    ],
    "AttentionOverAttentionReader": [
        {"attention": "sum", "shared_encoder": False},
        {"context_size": 4, "context_embedding_size": 6, "num_unknown": 3},
    ],
    "BahdanauNMT": [{"decoder": "conditional_gru", "encoder_layers": 2}, {"tie_output": True}],
    "HAN": [{"cell": "lstm", "word_layers": 2}],
    "KeyValueNMT": [{"decoder": "conditional_gru", "linear": True}],
    "KeyValuePredictLM": [{"attention": a} for a in ("none", "ngram", "attention", "key_value")]
    + [{"num_layers": 2, "tie_output": False}],
    "LSTMNLM": [],
    "LuongNMT": [
        {"attention": "local_p", "cell": "gru"},
        {"attention": "local_m", "score": "concat", "decoder_layers": 2},
        {"input_feeding": False, "attention": "local_p_star", "encoder_layers": 2},
        {"attentional_state": False, "score": "dot", "bidirectional": False},
        {"normalize": "sparsemax"},
    ],
    "PointerSentinelLM": [{"num_layers": 2, "tie_output": False}],
    "Seq2SeqNMT": [{"variant": "cho"}, {"num_layers": 2}],
    "ShowAttendTell": [
        {"attention": "hard"},
        {"attention": "hard", "baseline": "soft_context", "score": "bilinear", "init_layers": 3},
    ],
    "StructuredSelfAttention": [{"pair": True, "num_layers": 2}],
    "TransformerNMT": [
        {"norm": "pre", "decoder_layers": 2, "key_size": 3, "output_projection": False},
        {"shared_vocab": True, "tie_output": True},
    ],
    "TutorialAttentionNMT": [{"tie_output": True, "attention": "none"}],
}


def _case(cls: type[ZooModule], options: dict[str, Any], *marks: Any) -> Any:
    name = "-".join([cls.__name__, *(f"{k}={v}" for k, v in options.items())])
    return pytest.param(cls, options, id=name, marks=marks)


def _marks(options: dict[str, Any]) -> list[Any]:
    """Combinations are slow tests; by default each choice is tried alone, and each attention with one more score."""
    crossed = [name for name in _CROSSED if name in options]
    with_a_score = options.get("score") == "concat" and options.get("input_feeding", True)
    return [pytest.mark.slow] if len(crossed) > 1 and not with_a_score else []


CASES = [_case(cls, options, *_marks(options)) for cls in model_classes() for options in variants(cls)]
_other = _MAIN.keys() ^ {cls.__name__ for cls in model_classes()}
assert not _other, f"_MAIN in {__file__} needs one entry, possibly [], for each model; see {', '.join(_other)}"
MAIN = [_case(cls, options) for cls in model_classes() for options in [{}, *_MAIN[cls.__name__]]]
CLASSES = [pytest.param(cls, id=cls.__name__) for cls in model_classes()]
