"""LanguageModelModule: what all language models share: loss, perplexity and carried state.

A model implements

    start(batch_size)               -> state             before the first word: tensors (B, ...)
    read(inputs, state, lengths)    -> readouts, weights, state      any number of words

and owns `words` (Words), whose output layer turns readouts into scores of the vocabulary. Of a model whose attention is
a part of the prediction, `pointed` gives the words to which the weights point (zoo/layers/pointer_sentinel.py).

A text is read as written: EOS stands at the end of each line and before the first one. The state keeps what was read.
It is carried from one training batch to the next without gradient (truncated back-propagation), and into the
checkpoints.

Shapes: B streams or texts, T words, L window of the attention, D readout size, E embedding, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from zoo.batches.language_modelling import LMBatch
from zoo.layers.kernels import wide
from zoo.layers.kernels.cross_entropy import soft_cross_entropy
from zoo.layers.pointer_sentinel import mixed_log_probs, mixed_losses
from zoo.layers.search import SearchResult, search
from zoo.metrics.gather import gathered
from zoo.tasks.base import ZooModule, score_prefix
from zoo.tasks.cached_text import CACHE_STATES, CachedText, next_words
from zoo.tasks.precision import chosen, for_scores, widest
from zoo.tasks.vocabulary import check_fits
from zoo.tasks.words import Words
from zoo.text import EOS, PAD
from zoo.utils.continuous_cache import ContinuousCache
from zoo.verbs.base import evaluated
from zoo.verbs.language_modelling import Completer, perplexity_of

STEPS_AT_ONCE = 256  # in evaluation
NEAR = 5  # distances whose share of the attention is reported separately

State = tuple[Tensor, ...]


class LanguageModelModule(Completer, ZooModule):
    """Base class of the language models.

    Every subclass has vocab_size among its `__init__` arguments (read from `self.config`).

    Attributes:
        cache: with which `zoo validate` and `zoo test` also measure the perplexity.
    """

    required = ("vocab_size",)
    methods = ("start", "read")
    measures = ("mean_distance", *(f"share_{d}" for d in range(1, NEAR + 1)))
    words: Words
    cache: ContinuousCache | None = None

    def __init__(self):
        super().__init__()
        self._carried: dict[
            bool, State
        ] = {}  # by `self.training`: validation within an epoch does not change the training state
        self._totals: list[Tensor] = []
        self._cached: CachedText | None = None

    # ---- filled in by the model ----

    def start(self, batch_size: int) -> State:
        """State before the first word, tensors (B, ...)."""
        raise NotImplementedError

    def read(self, inputs: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None, State]:
        """Reads words from a given state on.

        Args:
            inputs: (B, T) ids.
            state: from `start` or the previous call.
            lengths: (B,) number of real words in each row, 0 to T; padding follows them. All if not given.

        Returns:
            readouts (B, T, D), which predict the next word; weights (B, T, L) on the words 1, 2, ... L steps back,
            0 where there are none, or None; and the state after the real words.
        """
        raise NotImplementedError

    def pointed(self, inputs: Tensor, state: State) -> Tensor | None:
        """The words (B, T, L) 1, 2, ... L steps back, if they get their weights as probability; else None.

        Args:
            inputs, state: as in `read`.
        """
        return None

    # ---- the distribution of the next word ----

    def next_logits(self, readouts: Tensor, weights: Tensor | None, pointed: Tensor | None) -> Tensor:
        """Scores (..., V), from what `read` and `pointed` returned: (..., D), (..., L) and (..., L)."""
        logits = self.words.logits(readouts)
        return logits if weights is None or pointed is None else mixed_log_probs(logits, weights, pointed)

    def next_losses(self, readouts: Tensor, weights: Tensor | None, pointed: Tensor | None, labels: Tensor) -> Tensor:
        """-log p of the labels (N,), without a gradient, from (N, D), (N, L) and (N, L)."""
        losses = self.words.losses(readouts, labels)
        return losses if weights is None or pointed is None else mixed_losses(-losses, weights, pointed, labels)

    # ---- training ----

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Reads whole texts: inputs (B, T) -> logits of the next words (B, T, V), weights (B, T, L) or None."""
        state = self.start(len(inputs))
        pointed = self.pointed(inputs, state)
        readouts, weights, _ = self.read(inputs, state)
        return self.next_logits(readouts, weights, pointed), weights

    def loss(self, batch: LMBatch) -> tuple[Tensor, int]:
        """Summed loss in nats over the labels, and their number; continues the previous batch unless `first`."""
        readouts, weights, pointed = self._go_on(batch)
        real = batch.labels != PAD
        readouts, labels = readouts[real], batch.labels[real]
        soft = batch.soft and (batch.soft.words[real], batch.soft.probabilities[real])
        if weights is None or pointed is None:
            loss = self.words.soft_loss(readouts, *soft) if soft else self.words.loss(readouts, labels)
            return loss, len(labels)
        if soft:
            return soft_cross_entropy(self.next_logits(readouts, weights[real], pointed[real]), *soft), len(labels)
        log_probs = wide(self.words.logits(readouts)).log_softmax(-1)
        log_probs = log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return mixed_losses(log_probs, weights[real], pointed[real], labels).sum(), len(labels)

    def _go_on(self, batch: LMBatch) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Readouts, weights and the words to which they point; continues the previous batch unless `first`."""
        streams, state = len(batch.inputs), None if batch.first else self._carried.get(self.training)
        if state is None:
            state = self.start(streams)
        elif len(state[0]) != streams:
            raise ValueError(
                f"a batch of {streams} streams cannot continue one of {len(state[0])}; give equal batches, "
                "or one with first=True"
            )
        state = tuple(x.to(self.device) for x in state)
        pointed = self.pointed(batch.inputs, state)
        readouts, weights, state = self.read(batch.inputs, state)
        self._carried[self.training] = tuple(x.detach() for x in state)
        return readouts, weights, pointed

    def adapt(self, data: Any, stage: str) -> None:
        """Takes the vocabulary of a data module: as it is, or the words that it adds to that of a pretrained model.

        A model without a vocabulary is new: its output bias is initialised with the word frequencies, because otherwise
        the first steps would saturate its readouts.
        """
        if self.tokenizer is None:
            check_fits(data.tokenizer, self.config["vocab_size"])
        if self.tokenizer is None and stage == "fit":
            self.words.expect(data.word_counts())
        if self.tokenizer is not None and len(data.tokenizer) > len(self.tokenizer):
            self._give_rows(len(self.tokenizer), len(data.tokenizer))
        self.tokenizer = data.tokenizer

    def extend_vocabulary(self, words: Sequence[str]) -> None:
        """Appends words to the vocabulary, to be learnt in training. All other weights stay bit-identical.

        See zoo/tasks/vocabulary.py.

        Args:
            words: single words; known ones are skipped.

        Raises:
            ValueError: no tokenizer, or one that splits a word.
        """
        self.check_ready(self.tokenizer)
        extended = self.vocabulary.extended(words)
        self._give_rows(len(self.vocabulary), len(extended))
        self.tokenizer = extended

    def _give_rows(self, known: int, size: int) -> None:
        if size > known:
            self.words.extend(known, size)
            self.config["vocab_size"] = len(self.words.table.weight)

    def training_step(self, batch: LMBatch, batch_idx: int) -> Tensor:
        loss, words = self.loss(batch)
        self.log("train/loss", loss.detach() / max(words, 1), prog_bar=True, batch_size=max(words, 1))
        return self.normalize_gradient(loss, words)

    def on_validation_epoch_start(self) -> None:
        self._totals, self._cached = [], None

    def validation_step(self, batch: LMBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        self._measure(batch)

    def on_validation_epoch_end(self) -> None:
        values = self._values()
        for key, value in values.items():
            self.log(f"val/{key}", value, prog_bar=key in ("loss", "perplexity"))
        if self.trainer.state.fn != "fit":
            self._print_scores("val", "val/", values)

    on_test_epoch_start = on_validation_epoch_start
    test_step = validation_step

    def on_test_epoch_end(self) -> None:
        values, name = self._values(), self.data_module.test_names[0]
        for key, value in values.items():
            self.log(f"{score_prefix(name)}{key}", value)
        self._print_scores(name, score_prefix(name), values)

    def _print_scores(self, name: str, prefix: str, values: dict[str, float]) -> None:
        width = max(22, *(len(prefix + key) + 1 for key in values))
        lines = [f"  {prefix + key:{width}}{value:8.4f}" for key, value in values.items()]
        precision = chosen(self.precision, self.device.type)
        self.print("\n".join([f"\n{name}, {precision}, {self._sums()[1]:,.0f} tokens", *lines]))

    def _measure(self, batch: LMBatch) -> None:
        """Notes the totals of a batch.

        They are: loss, labels, loss with the cache, the weight on all words, and that at each distance.
        """
        with for_scores(self.precision, self.device.type):  # they do not depend on the training's
            readouts, weights, pointed = self._go_on(batch)
            real = batch.labels != PAD
            weights = None if weights is None else weights[real]  # (N, L)
            pointed = None if pointed is None else pointed[real]
            losses = self.next_losses(readouts[real], weights, pointed, batch.labels[real])
            with_cache = self._losses_with_cache(batch, readouts, losses) if self.cache else losses
        dtype = widest(losses.device.type)
        totals = [x.sum(dtype=dtype) for x in (losses, real, with_cache)]
        if weights is not None:
            totals += [weights.sum(dtype=dtype), *weights.sum(0, dtype=dtype)]
        self._totals.append(torch.stack(totals))

    def _losses_with_cache(self, batch: LMBatch, readouts: Tensor, losses: Tensor) -> Tensor:
        """The losses of the labels, (N,) like those without; the cache continues from the previous batch."""
        if self._cached is None or batch.first:
            self._cached = CachedText(cast(ContinuousCache, self.cache), readouts)
        return self._cached.losses(readouts, batch.labels, losses)

    def _values(self) -> dict[str, float]:
        """loss, perplexity, with a cache perplexity_with_cache, with attention mean_distance and share_1 to share_5.

        These are the weights 1 to 5 steps back.
        """
        loss, labels, with_cache, *seen = self._sums()
        values = {"loss": loss / labels, "perplexity": perplexity_of(loss / labels)}
        if self.cache:
            values["perplexity_with_cache"] = perplexity_of(with_cache / labels)
        if seen and seen[0]:
            shares = [weight / seen[0] for weight in seen[1:]]
            values["mean_distance"] = sum(d * share for d, share in enumerate(shares, start=1))
            values |= {f"share_{d}": share for d, share in enumerate(shares[:NEAR], start=1)}
        return values

    def _sums(self) -> list[float]:
        """The totals of `_measure` over all processes."""
        if not self._totals:
            raise ValueError("there is no text to measure; give validation and test data with a word at least")
        totals = torch.stack(self._totals).cpu().double().sum(0)
        return sum(gathered([totals]), torch.zeros_like(totals)).tolist()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Stores the carried training state of all processes, in their order."""
        super().on_save_checkpoint(checkpoint)
        carried = self._carried.get(True, ())
        checkpoint["zoo_carried"] = [
            self.of_all_processes(x).reshape(len(x) * self.trainer.world_size, *x.shape[1:]).cpu() for x in carried
        ]

    def make_room(self, config: Mapping[str, Any]) -> None:
        self._give_rows(self.config["vocab_size"], config.get("vocab_size", 0))

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores it, each process its own streams."""
        super().on_load_checkpoint(checkpoint)
        rank, processes = (self.trainer.global_rank, self.trainer.world_size) if self._trainer else (0, 1)
        if carried := checkpoint.get("zoo_carried"):
            self._carried[True] = tuple(x.tensor_split(processes)[rank] for x in carried)

    # ---- use: what the verbs `complete` and `perplexity` compute ----

    def predict_batch(self, batch: LMBatch) -> tuple[Tensor, Tensor | None]:
        """As `forward`, of the inputs of a batch, which are read from their beginning."""
        return self(batch.inputs)

    def continued(
        self, rows: Sequence[list[int]], cache: ContinuousCache | None = None, **options: Any
    ) -> tuple[SearchResult, list[Tensor] | None]:
        seen: list[Tensor] = []
        labels = _padded([row[1:] for row in rows], self.device)
        cached = self._cache_of(labels, cache, more=options["max_length"]) if cache else None

        def add(first: int, readouts: Tensor, weights: Tensor | None, pointed: Tensor | None) -> None:
            if weights is not None:
                seen.append(weights)
            if cached:
                cached.remember(readouts, labels[:, first : first + readouts.size(1)])

        state = self._follow([row[:-1] for row in rows], add)
        step = self._step
        if cached:
            step, state = partial(step, cache=cached.cache), (*state, *cached.state())
        last = torch.tensor([row[-1] for row in rows], device=self.device)
        found = search(step, tuple(x.unsqueeze(1) for x in state), last, **options).cpu()
        if found.attn_weights is None:
            return found, None
        none = found.attn_weights.new_zeros(len(rows), 0, found.attn_weights.size(-1))
        weights = torch.cat([none, *(x.cpu() for x in seen)], 1)
        return found, [weights[n, : len(row) - 1] for n, row in enumerate(rows)]

    def total_losses(self, rows: Sequence[list[int]], cache: ContinuousCache | None = None) -> list[float]:
        labels = _padded([row[1:] for row in rows], self.device)
        cached = self._cache_of(labels, cache) if cache else None
        total = torch.zeros(len(rows), dtype=torch.float64)

        def add(first: int, readouts: Tensor, *attention: Tensor | None) -> None:
            wanted = labels[:, first : first + readouts.size(1)]
            real = wanted != PAD
            weights, pointed = (None if x is None else x[real] for x in attention)
            losses = self.next_losses(readouts[real], weights, pointed, wanted[real])
            losses = cached.losses(readouts, wanted, losses) if cached else losses
            total.index_add_(0, real.nonzero()[:, 0].cpu(), losses.cpu().double())

        self._follow([row[:-1] for row in rows], add)
        return total.tolist()

    def _cache_of(self, labels: Tensor, cache: ContinuousCache, more: int = 0) -> CachedText:
        """An empty cache for texts with labels (B, T) and so many words more, no larger than they need."""
        small = replace(cache, size=max(1, min(cache.size, labels.size(1) + more)))
        return CachedText(small, self.words.output.bias.new_zeros(len(labels), 1, self.words.readout_size))

    def _follow(
        self, rows: list[list[int]], visit: Callable[[int, Tensor, Tensor | None, Tensor | None], None]
    ) -> State:
        """Reads texts in chunks of steps; calls visit(first step, readouts, weights, pointed). Returns the state."""
        inputs, lengths = _padded(rows, self.device), torch.tensor([len(row) for row in rows], device=self.device)
        state = self.start(len(rows))
        for first in range(0, inputs.size(1), STEPS_AT_ONCE):
            piece = inputs[:, first : first + STEPS_AT_ONCE]
            pointed = self.pointed(piece, state)
            readouts, weights, state = self.read(piece, state, (lengths - first).clamp(0, piece.size(1)))
            visit(first, readouts, weights, pointed)
        return state

    def _step(
        self, tokens: Tensor, state: State, last: Tensor, t: int, cache: ContinuousCache | None = None
    ) -> tuple[Tensor, State, Tensor | None]:
        """One search step: last words (B, K), at first the last given ones (B,) -> logits (B, K, V), state, weights.

        With a cache its state comes after that of the model.
        """
        if t == 0:
            tokens = last.unsqueeze(1).expand_as(tokens)
        shape, words, flat = tokens.shape, tokens.reshape(-1, 1), tuple(x.flatten(0, 1) for x in state)
        of_cache = flat[len(flat) - CACHE_STATES :] if cache else ()
        before = flat[: len(flat) - len(of_cache)]
        pointed = self.pointed(words, before)
        readouts, weights, state = self.read(words, before)
        logits = self.next_logits(readouts, weights, pointed)
        if cache:
            logits, of_cache = next_words(cache, logits, readouts, words if t else None, of_cache)
        weights = None if weights is None else weights.view(*shape, -1)
        return logits.view(*shape, -1), tuple(x.unflatten(0, shape) for x in (*state, *of_cache)), weights

    # ---- bundle and tests ----

    def example_batch(self, batch_size: int) -> LMBatch:
        """The first batch of streams of random words, the last ones shorter than the others."""
        generator = torch.Generator().manual_seed(batch_size)
        words = torch.randint(EOS + 1, self.config["vocab_size"], (batch_size, 7), generator=generator)
        inputs, labels = words[:, :-1].clone(), words[:, 1:].clone()
        inputs[batch_size // 2 :, -2:] = labels[batch_size // 2 :, -2:] = PAD
        return LMBatch(inputs, labels, first=True)

    @evaluated
    def golden(self) -> dict[str, Tensor]:
        """About a hundred columns of the logits of a fixed batch, and its attention."""
        inputs = self.example_batch(6).inputs.to(self.device)
        logits, weights = self(inputs)
        found = {"inputs": inputs, "logits": logits[..., :: max(1, logits.size(-1) // 100)].contiguous()}
        return found if weights is None else {**found, "weights": weights.contiguous()}


def _padded(rows: list[list[int]], device: torch.device) -> Tensor:
    """(B, longest) ids, padded with PAD."""
    out = torch.full((len(rows), max(map(len, rows), default=0)), PAD, dtype=torch.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = torch.tensor(row, dtype=torch.int64)
    return out.to(device)
