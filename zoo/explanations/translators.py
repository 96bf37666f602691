"""Decisions of translators: a token of the model's own translation, given those before it.

An erased source token is left out of the sentence. The weights of the token's step are replaced, in all heads of the
layer that is shown; those of the other steps stay the model's own.

Shapes: S source tokens with the end of the sentence, T target tokens, K variants, W weights, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn

from zoo.batches.translation import pad_batch
from zoo.explanations.decision import Decision, chosen
from zoo.explanations.erasure import erasure, top_first
from zoo.explanations.flow import flow, rollout
from zoo.explanations.given import attention_layers, given_attention
from zoo.tasks.heads import MultiHeadTranslation
from zoo.tasks.translation import TranslationModule
from zoo.text import BOS
from zoo.utils.replaced import replaced

PER_SENTENCE = 2  # tokens of a translation that are looked at, drawn at random
AT_ONCE = 64  # variants


class TokenDecision(Decision):
    """A token of a translation.

    Args:
        model: a translator without dropout, whose methods may be replaced for a while.
        source: tokens of the sentence, without EOS.
        target: tokens of its translation up to the one to explain.
    """

    def __init__(self, model: TranslationModule, source: list[int], target: list[int]):
        self._model, self._source = model, source
        self._read, self.answer = torch.tensor([BOS, *target[:-1]]), target[-1]
        self.size = len(source)
        self._layer = shown_layer(model)
        self._own: list[Tensor] = []
        with torch.no_grad():
            self._batch = pad_batch([source])
            self._memory, self._state = model.encode(self._batch.src, self._batch.src_lengths)
            with given_attention([self._layer], self._record):
                model.decode(self._read.unsqueeze(0), self._memory, self._state)
        own = torch.cat(self._own, dim=-2)[0, ..., -1, :]  # (S,), or (H, S)
        self._heads = own.shape[:-1]
        self.weights = own.flatten()
        self.groups = torch.arange(len(self.weights)) // own.size(-1)

    def _record(self, weights: Tensor) -> Tensor:
        self._own.append(weights)
        return weights

    def output(self, kept: Tensor) -> Tensor:
        found = []
        for rows in kept.split(AT_ONCE):
            batch = pad_batch([chosen(self._source, row) for row in rows])
            with torch.no_grad():
                found.append(self._probabilities(*self._model.encode(batch.src, batch.src_lengths), len(rows)))
        return torch.cat(found)

    def _probabilities(self, memory: Any, state: Any, count: int) -> Tensor:
        readouts, _ = self._model.decode(self._read.expand(count, -1), memory, state)
        return self._model.embeddings.logits(readouts[:, -1]).softmax(-1)

    def attend(self, weights: Tensor) -> Tensor:
        count, last = len(weights), len(self._read) - 1
        given = weights.unflatten(1, (*self._heads, -1)).unsqueeze(-2)  # (K, 1, S), or (K, H, 1, S)
        done = 0

        def choose(own: Tensor) -> Tensor:
            """Decoders ask for all steps at once, or for one after the other."""
            nonlocal done
            done += own.size(-2)
            return own if done <= last else torch.cat([own[..., :-1, :], given.to(own.dtype)], dim=-2)

        with given_attention([self._layer], choose):
            return self._probabilities(_repeated(self._memory, count), _repeated(self._state, count), count)

    def show(self, weights: Tensor) -> Tensor:
        heads = weights.unflatten(1, (*self._heads, -1))
        if self._heads:
            head = self._model.config["shown_head"]
            heads = heads.mean(1) if head is None else heads[:, head]
        return heads / heads.sum(-1, keepdim=True)

    def more(self) -> dict[str, float]:
        """Comprehensiveness in the order of rollout and flow, for encoders with self-attention."""
        if not isinstance(self._model, MultiHeadTranslation):
            return {}
        maps = self._model.attention_maps(self._batch.src, self._batch.src_lengths, self._read.unsqueeze(0)).encoder
        top = self.show(self.weights.unsqueeze(0))[0]
        orders = {"rollout": top @ rollout(maps[:, 0]), "flow": flow(maps[:, 0], top)}
        return {
            f"comprehensiveness, {order}": erasure(self.probability, top_first(importance[: self.size]))[0]
            for order, importance in orders.items()
        }

    @property
    def ids(self) -> Tensor:
        """The source tokens with the end of the sentence, (1, S)."""
        return self._batch.src

    @property
    def table(self) -> nn.Embedding:
        """The layer that gives their embeddings, before they are scaled."""
        return self._model.embeddings.source

    def embedded(self) -> Tensor:
        return self.table(self.ids).detach()

    def read(self, embedded: Tensor) -> Tensor:
        count = len(embedded)
        with replaced(self._model.embeddings, "src", lambda ids: embedded * self._model.embeddings.scale):
            memory, state = self._model.encode(self.ids.expand(count, -1), self._batch.src_lengths.expand(count))
        return self._probabilities(memory, state, count)


def shown_layer(model: TranslationModule) -> nn.Module:
    """The attention layer whose weights the results show."""
    if "shown_layer" in model.config:
        return model.decoder[model.config["shown_layer"]].cross_attention  # pyright: ignore
    return attention_layers(model)[0]


def decisions(model: TranslationModule, text: str, generator: torch.Generator) -> list[TokenDecision]:
    """Some tokens of the translation of a sentence; none if one of them has fewer than two tokens."""
    source = model.tokenizers[0].encode(text)
    if len(source) < 2:
        return []
    with torch.no_grad():
        found = model.hypotheses([source], model.config["beam_size"])
    target = found.tokens[0, 0, : int(found.lengths[0, 0])].tolist()
    steps = torch.randperm(len(target) - 1, generator=generator)[:PER_SENTENCE].tolist()  # never the end
    return [TokenDecision(model, source, target[: step + 1]) for step in sorted(steps)]


def _repeated(x: Any, times: int) -> Any:
    """A nested (named) tuple of tensors (1, ...) -> (times, ...)."""
    if isinstance(x, Tensor):
        return x.expand(times, *x.shape[1:])
    parts = [_repeated(part, times) for part in x]
    return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
