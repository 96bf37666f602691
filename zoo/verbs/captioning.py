"""Captioner: `caption`.

Shapes: N images, S pixels a side, L cells to attend to, T words.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar, cast, overload

import numpy as np
from PIL.Image import Image

from zoo.results.captioning import Caption
from zoo.text import EOS, Tokenizer
from zoo.verbs.base import Hypotheses, Verbs, evaluated
from zoo.verbs.checks import Many, check_assets, check_batch_size, check_many, present
from zoo.verbs.confidence import Evidence, log_odds, trusted
from zoo.verbs.given import NO_ATTENTION, Given, given_weights
from zoo.verbs.task import Task
from zoo.vision.images import ImageTransform, open_image

MAX_WORDS = 40  # of a caption, EOS included
IMAGES = "an image (a path, bytes or a PIL image) or a list of them"
KEPT_PIXELS = 1280  # longer side of the image that a result keeps

Source = str | os.PathLike | bytes | Image
S = TypeVar("S", bound=Source)


class Captioner(Verbs):
    """The verb of captioners. `config` has vocab_size, image_size, resize and beam_size."""

    task = Task(
        "captioning", "caption", "image", Caption, "image-to-text", 'model.caption("photo.jpg").text', searches=True
    )
    tokenizer: Tokenizer | None = None
    transform: ImageTransform
    cells: int  # L, of the square grid that is attended to; 0 if weights cannot be given

    @property
    def vocabulary(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ValueError: there is none yet.
        """
        return present(self.tokenizer)

    # ---- filled in by the engine ----

    def hypotheses(self, pixels: Sequence[np.ndarray], beam_size: int, **options: Any) -> Hypotheses:
        """Searches for captions.

        Args:
            pixels: (3, S, S) uint8 of each image.
            beam_size: number of hypotheses.
            **options: n_best, length_penalty (None for the model's own), no_repeat_ngram, temperature, top_k as in
                `caption`; only if they are given, attention weights `given` (N, T, L) of the first T words, with zeros
                where the model decides.
        """
        raise NotImplementedError

    # ---- the verb ----

    @overload
    def caption(
        self,
        images: Source,
        beam_size: int | None = ...,
        n_best: int = ...,
        length_penalty: float | None = ...,
        no_repeat_ngram: int = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
        attention: Given | None = ...,
    ) -> Caption: ...

    @overload
    def caption(
        self,
        images: Many[S],
        beam_size: int | None = ...,
        n_best: int = ...,
        length_penalty: float | None = ...,
        no_repeat_ngram: int = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
    ) -> list[Caption]: ...

    @overload
    def caption(
        self,
        images: Source | Iterable[Source],
        beam_size: int | None = ...,
        n_best: int = ...,
        length_penalty: float | None = ...,
        no_repeat_ngram: int = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
        attention: Given | None = ...,
    ) -> Caption | list[Caption]: ...

    @evaluated
    def caption(
        self,
        images: Source | Iterable[Source],
        beam_size: int | None = None,
        n_best: int = 1,
        length_penalty: float | None = None,
        no_repeat_ngram: int = 0,
        temperature: float | None = None,
        top_k: int = 0,
        batch_size: int = 32,
        attention: Given | None = None,
    ) -> Caption | list[Caption]:
        """Describes images.

        Args:
            images: a path, a PIL image, the bytes of an image file, or a list of these; any size, mode and orientation.
            beam_size: hypotheses kept; 1 is greedy search. The model's own setting if not given.
            n_best: alternatives in `Caption.n_best`, at most `beam_size`.
            length_penalty: alpha of the length normalisation; the model's own setting if not given.
            no_repeat_ngram: n > 0 forbids repeating any n-gram of words.
            temperature: draw `n_best` captions at random instead of searching; 1 is the model's own distribution.
            top_k: with a temperature: draw each word from the k most probable ones only; 0 from all.
            batch_size: images captioned together.
            attention: for one image: weights that the model must use instead of its own. A dict from positions in
                `tokens` to the weights of the cells of the grid, row by row: one for each, as a list or a matrix, or a
                dict from cells to weights. They sum to 1, or less if a part of the attention is to be missing.

        Returns:
            One Caption for one image, a list of them for a list, in the order given.

        Raises:
            ImageError: an image cannot be read.
            ValueError: no tokenizer, or an option outside its range.
            TypeError: `images` is something else.
        """
        self.check_ready(self.tokenizer)
        check_batch_size(batch_size)
        one = isinstance(images, (str, os.PathLike, bytes, bytearray, memoryview, Image))
        if not one:
            if hasattr(images, "read"):
                raise TypeError(f"caption takes {IMAGES}; got {type(images).__name__}: give what its read() returns")
            check_many(images, "caption", IMAGES)
        sources = iter([cast(Source, images)] if one else cast(Iterable[Source], images))
        if attention is not None and not one:
            raise ValueError("attention is for one image; got a list")
        if attention is not None and not self.cells:
            raise ValueError(NO_ATTENTION)
        more = {} if attention is None else {"given": given_weights(attention, self.cells, MAX_WORDS)}
        results: list[Caption] = []
        while group := list(islice(sources, batch_size)):
            results += self._captions(
                [self._seen(source) for source in group],
                self.config["beam_size"] if beam_size is None else beam_size,
                n_best=n_best,
                length_penalty=length_penalty,
                no_repeat_ngram=no_repeat_ngram,
                temperature=temperature,
                top_k=top_k,
                **more,
            )
        return results[0] if one else results

    def _seen(self, source: Source) -> tuple[np.ndarray, Image]:
        """The pixels of an image for the model, and a smaller image of the same frame for pictures."""
        image = open_image(source, side=self.transform.size)
        framed = self.transform.framed(image)
        framed.thumbnail((KEPT_PIXELS, KEPT_PIXELS))
        return self.transform.array(image), framed

    def _captions(self, seen: list[tuple[np.ndarray, Image]], beam_size: int, **options: Any) -> list[Caption]:
        found = self.hypotheses([pixels for pixels, _ in seen], beam_size, **options)
        if (weights := found.attn_weights) is None:
            raise ValueError("the model gives no attention weights for its captions; its step must return some")
        side = round(weights.shape[-1] ** 0.5)
        captions = []
        for row, (_, image) in enumerate(seen):
            n_best = [
                (self.vocabulary.decode(ids[:length].tolist()), float(score))
                for ids, length, score in zip(found.tokens[row], found.lengths[row], found.scores[row], strict=True)
            ]
            length = int(found.lengths[row, 0])
            caption = Caption(
                *n_best[0],
                tokens=self.vocabulary.tokens(found.tokens[row, 0, :length].tolist()),
                attention=weights[row, 0, :length].reshape(length, side, side),
                n_best=n_best,
                image=image,
            )
            captions.append(trusted(caption, self.calibration, evidence_of(found, row)))
        return captions

    # ---- bundle ----

    def assets(self) -> dict[str, str]:
        """tokenizer.json and preprocessing.json."""
        if self.tokenizer is None:
            return {}
        return {"tokenizer.json": self.tokenizer.to_json(), "preprocessing.json": self.transform.to_json()}

    def load_assets(self, assets: dict[str, str]) -> None:
        if not assets:
            return
        check_assets(assets, words := "tokenizer.json", pixels := "preprocessing.json")
        self.tokenizer = Tokenizer.from_json(assets[words], self.config["vocab_size"], words)
        transform = ImageTransform.from_json(assets[pixels])
        for name, stored in (("image_size", transform.size), ("resize", transform.resize)):
            if stored != self.config[name] and name not in self.overridden:
                raise ValueError(f"{pixels} has {name} {stored!r}, init_args {self.config[name]!r}")
        self.transform = replace(transform, size=self.config["image_size"], resize=self.config["resize"])


def evidence_of(found: Hypotheses, row: int) -> Evidence:
    """What a search tells about its best output: the log-odds of its mean word."""
    score = log_odds(float(found.log_probs[row, 0]) / max(1, int(found.lengths[row, 0])))
    cut = EOS not in found.tokens[row, 0].tolist()
    return Evidence({"score": score}, notes=("the caption was cut at its maximum length",) * cut)
