"""Decisions of classifiers. An erased word is left out of its text.

Several hops count as their mean, both texts of a pair as one, and the words of a document by their weight in the
sentence times that of the sentence.

Shapes: B texts, K variants, N words, S sentences, W weights, C classes.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from zoo.explanations.decision import Decision, chosen
from zoo.explanations.distances import largest_change
from zoo.explanations.given import attention_layers, given_attention
from zoo.layers.recurrent import RecurrentEncoder
from zoo.tasks.classification import ClassificationModule, TextClassifier
from zoo.utils.replaced import replaced
from zoo.verbs.groups import groups_of_similar_size

Ids = list[list[int]]  # of each sentence of a document, or of each text


class TextDecision(Decision):
    """The label of a text, or of a pair of texts.

    Args:
        model: a classifier without dropout, whose methods may be replaced for a while.
        ids: the words of the text, or of both texts.
    """

    def __init__(self, model: ClassificationModule, ids: Ids):
        self._model, self._ids = model, ids
        self._parts = list(map(len, ids))
        self.size = sum(self._parts)
        if model.config["multi_label"]:
            self.distance, self.exclusive = largest_change, False
        self._layers = attention_layers(model)
        self._encoder = next((module for module in model.modules() if isinstance(module, RecurrentEncoder)), None)
        self._encoded: list[tuple[Tensor, list]] = []
        with torch.no_grad(), self._encoding(self._record):
            logits, attention = model.read(model.collate([ids]))
        self.weights, self.groups = self._flat(attention)
        self.answer = int(logits.argmax())
        self.is_given = not model.config["multi_label"] or bool(logits.max() > 0)

    def _encoding(self, flat: Callable) -> AbstractContextManager:
        """Context: the recurrent encoder, if the model has one, encodes by another function."""
        return replaced(self._encoder, "flat", flat) if self._encoder else nullcontext()

    def _record(self, *inputs: Any) -> tuple[Tensor, list]:
        assert self._encoder is not None
        self._encoded.append(RecurrentEncoder.flat(self._encoder, *inputs))
        return self._encoded[-1]

    def output(self, kept: Tensor) -> Tensor:
        variants = [self._variant(row) for row in kept]
        found = self._model.zeros((len(variants), self._model.config["num_classes"]))
        for rows in groups_of_similar_size([sum(map(len, variant)) for variant in variants]):
            with torch.no_grad():
                found[rows] = self._probabilities(self._model.collate([variants[n] for n in rows]))
        return found

    def _variant(self, kept: Tensor) -> Ids:
        return [chosen(part, stays) for part, stays in zip(self._ids, kept.split(self._parts), strict=True)]

    def _probabilities(self, batch: Any) -> Tensor:
        logits, _ = self._model.read(batch)
        return logits.sigmoid() if self._model.config["multi_label"] else logits.softmax(-1)

    def attend(self, weights: Tensor) -> Tensor:
        calls = iter(self._calls(weights))
        encoded = iter(
            [(states.repeat(len(weights), 1), _repeated(ends, len(weights))) for states, ends in self._encoded]
        )
        with (
            self._encoding(lambda *_: next(encoded)),  # the states do not depend on the weights
            given_attention(self._layers, lambda: next(calls)),
        ):
            return self._probabilities(self._model.collate([self._ids] * len(weights)))

    @property
    def ids(self) -> Tensor:
        """The words, (1, N)."""
        return torch.tensor([list(chain.from_iterable(self._ids))])

    @property
    def words(self) -> list[str]:
        """The words as the model knows them."""
        return self._model.vocabulary.tokens(self.ids[0].tolist())

    @property
    def said(self) -> str:
        """The label."""
        names = self._model.label_names
        return names[self.answer] if names else str(self.answer)

    @property
    def table(self) -> nn.Embedding:
        """The layer that gives their embeddings."""
        return self._model.embedding

    def embedded(self) -> Tensor:
        return self.table(self.ids).detach()

    def read(self, embedded: Tensor) -> Tensor:
        # the texts of a pair are read one after the other
        parts = iter(embedded.split(self._parts if self._model.config.get("pair") else self.size, dim=1))

        def embed(tokens: Tensor) -> tuple[Tensor, Tensor]:
            return next(parts).flatten(0, 1), torch.arange(len(tokens))

        with replaced(self._model, "embed_words", embed):
            return self._probabilities(self._model.collate([self._ids] * len(embedded)))

    # ---- the weights, flat: hop after hop of the first text, then of the second ----

    def _flat(self, attention: list[Tensor]) -> tuple[Tensor, Tensor]:
        hops = [part[0] for part in attention]  # (hops, n) each
        self._hops = len(hops[0])
        rows = list(chain.from_iterable(hops))
        groups = [torch.full_like(row, n, dtype=torch.int64) for n, row in enumerate(rows)]
        return torch.cat(rows), torch.cat(groups)

    def _calls(self, weights: Tensor) -> Iterator[Tensor]:
        """The weights of each call of the attention layer: (K, hops, n) of each text."""
        parts = weights.split([self._hops * size for size in self._parts], dim=1)
        return (part.unflatten(1, (self._hops, -1)) for part in parts)

    def show(self, weights: Tensor) -> Tensor:
        found = torch.cat([part.mean(1) for part in self._calls(weights)], dim=-1)
        return found / found.sum(-1, keepdim=True)  # those of local-p sum to less than 1


class DocumentDecision(TextDecision):
    """The label of a document of sentences; weights are those of all words, then those of the sentences."""

    def __init__(self, model: ClassificationModule, ids: Ids):
        super().__init__(model, [sentence for sentence in ids if sentence])

    def _flat(self, attention: Any) -> tuple[Tensor, Tensor]:
        words, sentences = attention
        self._owner = torch.repeat_interleave(torch.arange(len(sentences)), torch.tensor(self._parts))
        groups = torch.cat([self._owner, torch.full_like(self._owner[: len(sentences)], len(sentences))])
        return torch.cat([words, sentences]), groups

    def _calls(self, weights: Tensor) -> Iterator[Tensor]:
        return (part.flatten() for part in weights.split([self.size, len(self._parts)], dim=1))

    def show(self, weights: Tensor) -> Tensor:
        words, sentences = weights.split([self.size, len(self._parts)], dim=1)
        return words * sentences[:, self._owner]


def decisions(model: ClassificationModule, text: Any) -> list[TextDecision]:
    """The decision about a raw text or pair: the label, or the most probable one of several.

    None about a text with fewer than two words, or to which a model of several labels gives none.
    """
    ids, _ = model.encode(text)
    if sum(map(len, ids)) < 2 or (model.config.get("pair") and not all(ids)):
        return []
    found = (TextDecision if isinstance(model, TextClassifier) else DocumentDecision)(model, ids)
    return [found] if found.is_given else []


def _repeated(ends: list[tuple[Tensor, ...]], times: int) -> list[tuple[Tensor, ...]]:
    return [tuple(x.repeat(times, 1) for x in layer) for layer in ends]
