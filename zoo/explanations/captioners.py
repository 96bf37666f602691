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
from zoo.tasks.hard_attention import for_each
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
            _, weights = model(features, self._read[None, None])
        self.weights = weights[0, 0, -1]
        self.groups = torch.zeros(self.size, dtype=torch.int64)

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

    def _probabilities(self, features: Tensor, choose: Any = None) -> Tensor:
        model = self._model
        memory, state = model.encode(features)
        embedded = model.embedding(self._read.expand(len(features), 1, -1))
        found = model.steps(embedded, memory, for_each(state, 1), choose or model.chooser())
        last = model.read(found.hidden[:, 0, -1], found.context[:, 0, -1], embedded[:, 0, -1])
        return model.output(last).softmax(-1)

    def attend(self, weights: Tensor) -> Tensor:
        step, usual = 0, self._model.chooser()

        def choose(own: Tensor) -> Tensor:
            nonlocal step
            step += 1
            if step == len(self._read):
                return weights.unsqueeze(1).to(own.dtype)
            return own if usual is None else usual(own)

        return self._probabilities(self._features.expand(len(weights), -1, -1), choose)

    def show(self, weights: Tensor) -> Tensor:
        return weights

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


def decisions(model: CaptioningModule, image: Any, generator: torch.Generator) -> list[WordDecision]:
    """Some words of the caption of an image.

    Raises:
        ValueError: the captioner is of another kind.
    """
    if not isinstance(model, ShowAttendTell):
        raise ValueError(f"a certificate of captions is for ShowAttendTell; got {type(model).__name__}")
    pixels = model.transform.array(open_image(image, side=model.transform.size))
    with torch.no_grad():
        features = model.features(torch.from_numpy(np.stack([pixels])))
        found = model._search(features, model.config["beam_size"])
    target = found.tokens[0, 0, : int(found.lengths[0, 0])].tolist()
    steps = torch.randperm(len(target) - 1, generator=generator)[:PER_IMAGE].tolist()
    return [WordDecision(model, torch.from_numpy(pixels), features, target[: step + 1]) for step in sorted(steps)]
