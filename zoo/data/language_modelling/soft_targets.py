"""Soft targets of a text: which words other models expect in each place (Hinton, Vinyals and Dean 2015,
https://arxiv.org/abs/1503.02531), in one file of safetensors, with the K most probable words of each place.

Shapes: N words of the text, K words of each.
"""

import hashlib
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from zoo.batches.language_modelling import SoftLabels
from zoo.utils.atomic import new_file
from zoo.utils.regular import check_regular

_TEXT = "sha256 of the text"


class SoftTargets:
    """The soft targets of a text, read from a file that `write` wrote.

    Args:
        file: the file.
        ids: (N,) the words of the text.

    Raises:
        ValueError: the file is none, or of another text.
        OSError: it cannot be read.
    """

    def __init__(self, file: Path, ids: np.ndarray) -> None:
        check_regular(file)
        try:
            with safe_open(file, "np") as found:
                text = (found.metadata() or {}).get(_TEXT)
                if text is None:
                    raise ValueError(f"{file} has no soft targets; `zoo rebuild` writes them, as its stage `predict`")
                if text != _digest(ids):
                    raise ValueError(f"{file} has the soft targets of another text, or of another vocabulary")
                self._words, self._probabilities = (found.get_tensor(name) for name in ("words", "probabilities"))
        except SafetensorError as error:
            raise ValueError(f"{file} is no file of safetensors: {error}") from error
        self._made_of = file, ids

    def __reduce__(self) -> tuple:
        return SoftTargets, self._made_of  # a worker process reads the file itself

    def at(self, places: np.ndarray) -> SoftLabels:
        """What is expected in some places of the text, (B, T)."""
        words = torch.from_numpy(self._words[places].astype(np.int64))
        return SoftLabels(words, torch.from_numpy(self._probabilities[places].astype(np.float32)))

    @staticmethod
    def write(file: Path, ids: np.ndarray, words: np.ndarray, probabilities: np.ndarray) -> None:
        """Writes the soft targets of a text.

        Args:
            file: is made whole or not at all.
            ids: (N,) the words of the text.
            words: (N, K) integers, different ones in each place.
            probabilities: (N, K) of them; their sum may be below 1.
        """
        found = {"words": words, "probabilities": probabilities.astype(np.float16)}
        with new_file(file) as opened:
            opened.write(save(found, metadata={_TEXT: _digest(ids)}))


def _digest(ids: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(ids).tobytes()).hexdigest()
