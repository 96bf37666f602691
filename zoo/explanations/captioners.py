"""Decisions of captioners: a word of the model's own caption, given those before it.

An erased region is grey: its square of the image gets the mean colour that the model subtracts.

Shapes: L regions, S pixels a side, K variants, V vocabulary, C channels.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.explanations.decision import Decision
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.tasks.captioning import CaptioningModule
from zoo.tasks.hard_attention import Look, for_each
from zoo.text import BOS
from zoo.vision.images import open_image

PER_IMAGE = 1  # words of a caption that are looked at, drawn at random; each takes seconds
AT_ONCE = 32  # images


class WordDecision(Decision):
    """A word of a caption.

    Args:
        model: a captioner without dropout.
        pixels: (3, S, S) uint8, as the model sees the image.
        features: (1, L, C) of it.
        target: tokens of the caption up to the one to explain.
    """

    def __init__(self, model: ShowAttendTell, pixels: Tensor, features: Tensor, target: list[int]):
        self._model, self._pixels, self._features = model, pixels, features
        self._read, self.answer = torch.tensor([BOS, *target[:-1]]), target[-1]
        self.size = features.size(1)
        self._rows = round(self.size**0.5)
        with torch.no_grad():
            self._embedded = model.embedding(self._read)  # (T, E)
            self._memory, state = model.encode(features)
            self._state = for_each(state, 1)
            for step in range(len(self._read) - 1):
                self._state = self._look(step, 1)[:2]
            self.weights = self._look(len(self._read) - 1, 1).weights[0, 0]
        self.groups = torch.zeros(self.size, dtype=torch.int64)

    def _look(self, step: int, count: int, weights: Tensor | None = None) -> Look:
        """A step of the decoder, the same for `count` variants, or with the weights (K, L) of each."""
        state = tuple(x.expand(-1, count, -1) for x in self._state)
        choose = self._model.chooser() if weights is None else lambda own: weights.unsqueeze(0).to(own.dtype)
        return self._model.decoder(self._embedded[step].expand(1, count, -1), state, self._memory, choose)

    def output(self, kept: Tensor) -> Tensor:
        found = []
        for rows in kept.split(AT_ONCE):
            with torch.no_grad():
                found.append(self._probabilities(self._model.features(self._greyed(rows))))
        return torch.cat(found)

    def _greyed(self, kept: Tensor) -> Tensor:
        """The image without some regions: (K, L) -> (K, 3, S, S)."""
        side = self._pixels.size(-1)
        place = torch.arange(side) * self._rows // side  # of each pixel
        stays = kept.unflatten(1, (self._rows, self._rows))[:, place][:, :, place].unsqueeze(1)
        grey = torch.tensor(self._model.transform.mean).mul(255).round().to(torch.uint8).reshape(1, 3, 1, 1)
        return torch.where(stays, self._pixels, grey)

    def _probabilities(self, features: Tensor) -> Tensor:
        memory, state = self._model.encode(features)
        embedded = self._embedded.expand(len(features), 1, -1, -1)
        found = self._model.steps(embedded, memory, for_each(state, 1), self._model.chooser())
        return self._words(found.hidden[:, 0, -1], found.context[:, 0, -1])

    def _words(self, hidden: Tensor, context: Tensor) -> Tensor:
        """After the last step: (K, H), (K, D) -> (K, V)."""
        readouts = self._model.read(hidden, context, self._embedded[-1].expand(len(hidden), -1))
        return self._model.output(readouts).softmax(-1)

    def attend(self, weights: Tensor) -> Tensor:
        found = self._look(len(self._read) - 1, len(weights), weights)  # the steps before do not depend on them
        return self._words(found.hidden[0], found.context[0])

    def show(self, weights: Tensor) -> Tensor:
        return weights

    @property
    def words(self) -> list[str]:
        """The regions, row by row."""
        return [f"row {n // self._rows + 1}, column {n % self._rows + 1}" for n in range(self.size)]

    @property
    def said(self) -> str:
        """The word that is explained."""
        return self._model.vocabulary.tokens([self.answer])[0]

    def more(self) -> dict[str, float]:
        """How far the probability falls when one region is grey: the most attended one, and a random one (the mean
        over all).
        """
        kept = torch.cat([torch.ones(1, self.size, dtype=torch.bool), ~torch.eye(self.size, dtype=torch.bool)])
        whole, without = self.probability(kept).split([1, self.size])
        lost = whole - without
        return {"one region, attention": float(lost[self.weights.argmax()]), "one region, random": float(lost.mean())}

    def embedded(self) -> Tensor:
        return self._features.detach()

    def read(self, embedded: Tensor) -> Tensor:
        return self._probabilities(embedded)


def check(model: CaptioningModule) -> None:
    """Raises ValueError for a captioner whose words cannot be explained."""
    if not isinstance(model, ShowAttendTell):
        raise ValueError(f"a certificate of captions is for ShowAttendTell; got {type(model).__name__}")
    if model.config["attention"] == "hard" and (decoding := model.config["decoding"]) != "expectation":
        raise ValueError(
            f"hard attention is explained with its expected context; this model decodes with {decoding!r}: "
            'load it with {"decoding": "expectation"}'
        )


def decisions(model: ShowAttendTell, image: Any, generator: torch.Generator) -> list[WordDecision]:
    """Some words of the caption of an image, of a model that passed `check`."""
    pixels = model.transform.array(open_image(image, side=model.transform.size))
    with torch.no_grad():
        features = model.features(torch.from_numpy(np.stack([pixels])))
        found = model._search(features, model.config["beam_size"])
    target = found.tokens[0, 0, : int(found.lengths[0, 0])].tolist()
    steps = torch.randperm(len(target) - 1, generator=generator)[:PER_IMAGE].tolist()
    return [WordDecision(model, torch.from_numpy(pixels), features, target[: step + 1]) for step in sorted(steps)]
