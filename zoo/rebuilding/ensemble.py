"""Several language models as one: the mean of the probabilities that they give the next word.

Shapes: B texts, T words, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from zoo import registry
from zoo.tasks.language_modelling import LanguageModelModule
from zoo.tasks.precision import in_precision
from zoo.text import Tokenizer


class Ensemble:
    """Language models with one vocabulary, which read the same texts.

    Args:
        names: names of `zoo list`, or local-dir:FOLDER.

    Attributes:
        tokenizer: that of all models.

    Raises:
        ValueError: one is no language model, or has another vocabulary than the first.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._models = [_model(name) for name in names]
        self.tokenizer: Tokenizer = self._models[0].vocabulary
        for name, model in zip(names, self._models, strict=True):
            if model.vocabulary.to_json() != self.tokenizer.to_json():
                raise ValueError(f"{name} has another vocabulary than {names[0]}")

    def start(self, texts: int) -> None:
        """Forgets what was read; from now on so many texts are."""
        self._states = [model.start(texts) for model in self._models]

    @torch.no_grad()
    def read(self, inputs: Tensor) -> Tensor:
        """Reads on: ids (B, T) -> probabilities of the words after each of them (B, T, V)."""
        total = torch.zeros(())
        for i, model in enumerate(self._models):
            with in_precision("bf16", "cpu"):
                pointed = model.pointed(inputs, self._states[i])
                readouts, weights, self._states[i] = model.read(inputs, self._states[i])
                logits = model.next_logits(readouts, weights, pointed)
            total = total + logits.float().softmax(-1)
        return total / len(self._models)


def _model(name: str) -> LanguageModelModule:
    model = registry.load(name)
    if not isinstance(model, LanguageModelModule):
        raise ValueError(f"{name} is no language model; it is a model for {model.task.name}")
    return model
