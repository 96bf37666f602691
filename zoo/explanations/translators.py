"""Decisions of translators: a token of the model's own translation, given those before it.

An erased source token is left out of the sentence. The weights of the token's step are replaced, in all heads of the
layer that is shown; those of the other steps stay the model's own.

Shapes: S source tokens with the end of the sentence, T target tokens, K variants, W weights, V vocabulary.
"""

from collections.abc import Sequence
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

PER_TEXT = 2  # tokens of a translation that are looked at, drawn at random
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
        self._batch = pad_batch([source])
        with torch.no_grad():
            self._memory, state = model.encode(self._batch.src, self._batch.src_lengths)
            self._state = tuple(x.unsqueeze(1) for x in state)  # (1, 1, ...)
            for step in range(len(self._read) - 1):
                _, self._state, _ = self._step(step, 1)
            self._layer, weights = self._watched(shown_layers(model))
        own = weights[0, ..., -1, :]  # (S,), or (H, S)
        self._heads = own.shape[:-1]
        self.weights = own.flatten()
        self.groups = torch.arange(len(self.weights)) // own.size(-1)

    def _watched(self, layers: Sequence[nn.Module]) -> tuple[nn.Module, Tensor]:
        """The first of these layers in the last step, and its weights (1, 1, S), or (1, H, 1, S)."""
        seen: list[tuple[nn.Module, Tensor]] = []
        watches = [layer.register_forward_hook(lambda *call: seen.append((call[0], call[-1][1]))) for layer in layers]
        self._step(len(self._read) - 1, 1)
        for watch in watches:
            watch.remove()
        if not seen:
            raise ValueError(f"{type(self._model).__name__}.step attends by no layer whose weights can be replaced")
        return seen[0]

    def _step(self, step: int, count: int) -> Any:
        """A step of the decoder, the same for `count` variants: readouts (1, K, D), state, weights."""
        state = tuple(x.expand(-1, count, *x.shape[2:]) for x in self._state)
        return self._model.step(self._read[step].expand(1, count), state, self._memory, step)

    def output(self, kept: Tensor) -> Tensor:
        found = []
        for rows in kept.split(AT_ONCE):
            batch = pad_batch([chosen(self._source, row) for row in rows])
            with torch.no_grad():
                found.append(self._probabilities(*self._model.encode(batch.src, batch.src_lengths), len(rows)))
        return torch.cat(found)

    def _probabilities(self, memory: Any, state: Any, count: int) -> Tensor:
        readouts, _ = self._model.decode(self._read.expand(count, -1), memory, state)
        return self._words(readouts[:, -1])

    def _words(self, readouts: Tensor) -> Tensor:
        return self._model.embeddings.logits(readouts).softmax(-1)

    def attend(self, weights: Tensor) -> Tensor:
        given = weights.unflatten(1, (*self._heads, -1)).movedim(0, -2).unsqueeze(0)  # (1, K, S), or (1, H, K, S)
        with given_attention([self._layer], lambda: given):
            readouts, _, _ = self._step(len(self._read) - 1, len(weights))  # those before do not depend on them
        return self._words(readouts[0])

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
        found = {"rollout": top @ rollout(maps[:, 0]), "flow": flow(maps[:, 0], top)}
        orders = torch.stack([top_first(importance[: self.size]) for importance in found.values()])
        lost, _ = erasure(self.probability, orders)
        return {f"comprehensiveness, {order}": one for order, one in zip(found, lost.tolist(), strict=True)}

    @property
    def ids(self) -> Tensor:
        """The source tokens with the end of the sentence, (1, S)."""
        return self._batch.src

    @property
    def words(self) -> list[str]:
        """The source tokens with the end of the sentence."""
        return self._model.tokenizers[0].tokens(self.ids[0].tolist())

    @property
    def said(self) -> str:
        """The token that is explained."""
        return self._model.tokenizers[1].tokens([self.answer])[0]

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


def shown_layers(model: TranslationModule) -> list[nn.Module]:
    """The attention layers of which the results show the weights of the first that a step of the decoder calls."""
    if "shown_layer" in model.config:
        return [model.decoder[model.config["shown_layer"]].cross_attention]  # pyright: ignore
    return attention_layers(model)


def decisions(model: TranslationModule, text: str, generator: torch.Generator) -> list[TokenDecision]:
    """Some tokens of the translation of a text; of its sentences those with fewer than two tokens are left out.

    Sentences are translated one by one, as the verb does.
    """
    sources = [sentence.ids for sentence in model.sentences(text, True, "the text") if len(sentence.ids) > 1]
    if not sources:
        return []
    with torch.no_grad():
        found = model.hypotheses(sources, model.config["beam_size"])
    targets = [row[:length].tolist() for row, length in zip(found.tokens[:, 0], found.lengths[:, 0], strict=True)]
    places = [(n, step) for n, target in enumerate(targets) for step in range(len(target) - 1)]  # never the end
    drawn = torch.randperm(len(places), generator=generator)[:PER_TEXT].tolist()
    return [TokenDecision(model, sources[n], targets[n][: step + 1]) for n, step in sorted(places[i] for i in drawn)]
