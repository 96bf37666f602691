"""Optional parts of the package; a missing one is reported in one line."""

import importlib.util

EXTRAS = {  # extra of pyproject.toml -> its imported packages
    "plots": ("matplotlib",),
    "scores": ("sacrebleu", "sacremoses"),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "serve": ("uvicorn",),
    "word2vec": ("gensim",),
    "meteor": ("pycocoevalcap",),
}


def missing(extra: str) -> list[str]:
    """The packages of an extra that cannot be imported, without importing them."""
    return [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]


def require(extra: str, what: str) -> None:
    """Raises early if an extra is missing.

    Args:
        extra: A key of EXTRAS.
        what: What needs it: the beginning of the message.

    Raises:
        ValueError: One of its packages is missing; the message says how to install it.
    """
    if names := missing(extra):
        raise ValueError(f'{what} needs {", ".join(names)}; install with: pip install "attention-zoo[{extra}]"')
