"""Learning where to look: soft attention by the likelihood, hard attention by REINFORCE (Xu et al. 2015, section 4).

Shapes: N images, L positions, K captions of an image, T steps, E embedding, H hidden, D features, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor

from zoo.batches.captioning import CaptionBatch
from zoo.layers.hard_attention import draw, log_weights
from zoo.layers.masking import lengths_to_mask
from zoo.tasks.captioning import Memory
from zoo.tasks.self_critical import DrawingStep, SelfCriticalModule, State

Choose = Callable[[Tensor], Tensor]  # of weights alpha (..., L), what they give to each position


class Look(NamedTuple):
    """A step of the decoder: where it looked, and its state; one step (N, K, ...), or all (N, K, T, ...)."""

    hidden: Tensor  # h_t (..., H)
    cell: Tensor  # c_t (..., H)
    context: Tensor  # gated z_t (..., D)
    weights: Tensor  # alpha_t (..., L)
    chosen: Tensor  # s_t as a one-hot vector, or alpha_t where the expected context was taken (..., L)


class HardAttentionModule(SelfCriticalModule[Memory], Generic[Memory]):
    """Base class of captioners whose attention is soft, or hard: a position drawn at each step.

    Beside those of `SelfCriticalModule` these are among the `__init__` arguments of a subclass: attention, samples,
    reinforce, entropy, baseline, expected_share.

    Attributes:
        decoder: has `context` and `advance`, which the baseline "soft_context" calls.
        doubly_stochastic: lambda of Eq. 14.
        word_baseline: moving average of log p of a word.
    """

    methods = ("steps", "look_and_write", "read", "chooser")
    decoder: Any
    dropout: torch.nn.Module
    doubly_stochastic: float
    word_baseline: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("word_baseline", torch.zeros(()))
        self._rewarded: tuple[Tensor, Tensor] | None = None  # sum of log p of the last batch, and its words

    # ---- filled in by the model ----

    def steps(self, embedded: Tensor, memory: Memory, state: State, choose: Choose | None) -> Look:
        """All steps of teacher forcing, (N, K, T, ...)."""
        raise NotImplementedError

    def look_and_write(
        self, tokens: Tensor, state: State, memory: Memory, choose: Choose | None
    ) -> tuple[Tensor, Look]:
        """Last words (N, K) -> logits (N, K, V), and the step."""
        raise NotImplementedError

    def read(self, hidden: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """What the output layer sees, (..., E)."""
        raise NotImplementedError

    def chooser(self) -> Choose | None:
        """How a context is chosen after training; None: by the weights themselves."""
        raise NotImplementedError

    # ---- training ----

    def likelihood_loss(self, batch: CaptionBatch) -> tuple[Tensor, int]:
        hard, training = self.config["attention"] == "hard", self.training
        memory, state = self.encode(batch.images)
        tokens, labels = batch.captions[..., :-1], batch.captions[..., 1:]
        real = lengths_to_mask(batch.lengths, labels.size(-1))  # (N, K, T)
        words = int(batch.lengths.sum())
        if hard and training:
            samples = self.config["samples"]
            tokens, labels, real = (x.repeat_interleave(samples, dim=1) for x in (tokens, labels, real))
            loss, reward = self.hard_loss(memory, state, tokens, labels, real)
            self._rewarded = reward.detach(), real.sum()
            return loss / samples, words
        embedded = self.dropout(self.embedding(tokens))
        found = self.steps(embedded, memory, for_each(state, tokens.size(1)), self.chooser())
        nll, _ = self.word_losses(self.read(found.hidden[real], found.context[real], embedded[real]), labels[real])
        return nll + self._doubly_stochastic(found.weights, real) if training else nll, words

    def _doubly_stochastic(self, weights: Tensor, real: Tensor) -> Tensor | float:
        """lambda sum_i (1 - sum_t alpha_ti)^2 of Eq. 14, summed over the captions that are not missing."""
        if not self.doubly_stochastic:
            return 0.0
        seen = (weights * real.unsqueeze(-1)).sum(2)  # (N, K, L)
        return self.doubly_stochastic * ((1 - seen).square().sum(-1) * real[..., 0]).sum()

    def hard_loss(
        self, memory: Memory, state: State, tokens: Tensor, labels: Tensor, real: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Surrogate whose gradient is that of Eq. 12-13 for one sample of each caption, and the sum of log p of all
        words.

        Args:
            memory, state: from `encode`.
            tokens, labels: (N, K, T) inputs and next words.
            real: (N, K, T) bool.
        """
        c = self.config
        takes_expected, choose = self._semi_sampling(tokens.shape[:2])
        embedded, start = self.dropout(self.embedding(tokens)), for_each(state, tokens.size(1))
        found = self.steps(embedded, memory, start, choose)
        nll, words = self.word_losses(self.read(found.hidden[real], found.context[real], embedded[real]), labels[real])
        log_probs = torch.zeros_like(real, dtype=words.dtype).masked_scatter_(real, -words)  # log p(y_t | s, y_<t)
        if c["baseline"] == "soft_context":
            soft = self._expected_losses(embedded, memory, start, found, labels, real)
            advantage = torch.zeros_like(log_probs).masked_scatter_(real, soft - words)
        else:  # one for all steps of a caption
            advantage = (log_probs.sum(-1) - self.word_baseline * real.sum(-1)).unsqueeze(-1)
        credited = real & ~takes_expected.unsqueeze(-1)
        log_alpha = log_weights(found.weights)
        log_choice = (log_alpha * found.chosen.detach()).sum(-1)  # log alpha of the position chosen
        reinforce = (advantage * log_choice)[credited].sum()
        entropy = -(found.weights * log_alpha).sum(-1)[real].sum()
        loss = nll - c["reinforce"] * reinforce - c["entropy"] * entropy + self._doubly_stochastic(found.weights, real)
        return loss, log_probs.sum()

    @torch.no_grad()
    def _expected_losses(
        self, embedded: Tensor, memory: Any, start: State, found: Look, labels: Tensor, real: Tensor
    ) -> Tensor:
        """-log p of the real words, had each taken the expected context at its own step only."""
        before = tuple(torch.cat([x.unsqueeze(2), y[:, :, :-1]], dim=2) for x, y in zip(start, found[:2], strict=True))
        steps = embedded.shape[1:3]
        context = self.decoder.context(found.weights.flatten(1, 2), before[0].flatten(1, 2), memory.values)
        hidden, _ = self.decoder.advance(embedded, context.unflatten(1, steps), before)
        return self.word_losses(
            self.read(hidden[real], context.unflatten(1, steps)[real], embedded[real]), labels[real]
        )[1]

    def _semi_sampling(self, shape: torch.Size) -> tuple[Tensor, Choose]:
        """Which captions (N, K) take the expected context throughout, and the choice of where all of them look."""
        takes_expected = torch.rand(shape, device=self.device) < self.config["expected_share"]
        return takes_expected, lambda weights: torch.where(takes_expected.unsqueeze(-1), weights, draw(weights))

    def drawing_step(self, images: Tensor, captions: int) -> tuple[State, DrawingStep]:
        memory, state = self.encode(images)
        takes_expected, choose = None, None
        if self.config["attention"] == "hard":
            takes_expected, choose = self._semi_sampling(torch.Size([len(images), captions]))

        def step(tokens: Tensor, state: State) -> tuple[Tensor, State, Tensor | float]:
            logits, found = self.look_and_write(tokens, state, memory, choose)
            looked = 0.0
            if takes_expected is not None:
                log_choice = (log_weights(found.weights) * found.chosen.detach()).sum(-1)
                looked = self.config["reinforce"] * log_choice * ~takes_expected
            return logits, (found.hidden, found.cell), looked

        return for_each(state, captions), step

    def training_step(self, batch: CaptionBatch, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        self.update_baseline()  # here and not in the loss, which may be computed twice (activation checkpointing)
        return loss

    def update_baseline(self) -> None:
        """b <- 0.9 b + 0.1 (mean log p of a word of the last batch), over all processes; hard attention only."""
        if self._rewarded is None:
            return
        reward, words = self._rewarded
        total, self._rewarded = torch.stack([reward, words.to(reward.dtype)]), None
        if self._trainer is not None and self.trainer.world_size > 1:
            total = self.trainer.strategy.reduce(total, reduce_op="sum")
        self.word_baseline.mul_(0.9).add_(0.1 * total[0] / total[1].clamp(min=1))


def for_each(state: State, captions: int) -> State:
    """The state of an image (N, H) for each of its captions, (N, K, H)."""
    return tuple(x.unsqueeze(1).expand(-1, captions, -1) for x in state)
