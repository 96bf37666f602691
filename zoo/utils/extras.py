"""Parts of the package that are installed only where somebody wants them; what lacks one says so in one line."""

import importlib.util

EXTRAS = {  # extra of pyproject.toml -> what is imported of it
    "plots": ("matplotlib",),
    "scores": ("sacrebleu", "sacremoses"),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "serve": ("uvicorn",),
    "word2vec": ("gensim",),
    "meteor": ("pycocoevalcap",),
}


def missing(extra: str) -> list[str]:
    """The packages of an extra that cannot be imported; imports none of them."""
    return [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]


def require(extra: str, what: str) -> None:
    """Refuses what cannot work without an extra, before any work is done.

    Args:
        extra: A key of EXTRAS.
        what: What needs it, as the message begins.

    Raises:
        ValueError: One of its packages is missing; the message says how to install it.
    """
    if names := missing(extra):
        raise ValueError(f'{what} needs {", ".join(names)}; install with: pip install "attention-zoo[{extra}]"')
