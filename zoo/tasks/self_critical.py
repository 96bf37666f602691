"""Self-critical training of a captioner: CIDEr-D as a reward for captions that it draws itself.

Rennie et al. 2017, arXiv:1612.00563; the baseline is that of Luo 2020, arXiv:2003.09971: each of the K captions drawn
for an image is compared with the mean reward of its others.

Shapes: N images, K captions of an image, T words, V vocabulary.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

import torch
from torch import Tensor

from zoo.batches.captioning import CaptionBatch
from zoo.layers.hard_attention import draw
from zoo.layers.kernels import wide
from zoo.tasks.captioning import MAX_WORDS, CaptioningModule, Memory
from zoo.text import BOS, EOS, PAD

if TYPE_CHECKING:
    from zoo.metrics import CiderD

State = tuple[Tensor, ...]
DrawingStep = Callable[[Tensor, State], tuple[Tensor, State, Tensor | float]]


class SelfCriticalModule(CaptioningModule[Memory], Generic[Memory]):
    """Base class of captioners that learn from given captions first, and from captions that they draw later.

    Beside those of `CaptioningModule` these are among the `__init__` arguments of a subclass: self_critical_epoch,
    right_words, likelihood.
    """

    methods = ("likelihood_loss", "drawing_step")
    _cider: "CiderD | None" = None

    # ---- filled in by the model ----

    def likelihood_loss(self, batch: CaptionBatch) -> tuple[Tensor, int]:
        """Minus the summed log-likelihood of the batch's captions, with the terms of training, and their words."""
        raise NotImplementedError

    def drawing_step(self, images: Tensor, captions: int) -> tuple[State, DrawingStep]:
        """First decoder state (N, K, ...) of K captions an image, and the function of one step.

        The function takes the last words (N, K) and the state, and returns logits (N, K, V), the next state, and the
        log-probability (N, K) of whatever else the model drew at this step (0.0 if nothing).
        """
        raise NotImplementedError

    # ---- training ----

    def setup(self, stage: str) -> None:
        if stage == "fit":
            self._cider = None  # of the captions of an earlier training
        super().setup(stage)

    def loss(self, batch: CaptionBatch) -> tuple[Tensor, int]:
        first = self.config["self_critical_epoch"]
        if not self.training or first is None or self.current_epoch < first:
            return self.likelihood_loss(batch)
        self.eval()  # captions are drawn without dropout
        try:
            loss, words = self.self_critical_loss(batch)
        finally:
            self.train()
        if share := self.config["likelihood"]:
            loss = loss + share * self.likelihood_loss(batch)[0]
        return loss, words

    def self_critical_loss(self, batch: CaptionBatch) -> tuple[Tensor, int]:
        """-sum of advantage times log-probability of drawn captions, and the number of their words."""
        count = batch.captions.size(1)
        if count < 2:
            raise ValueError(
                "self-critical training compares the captions of an image: set captions_per_image to 2 or more; got "
                f"{count}"
            )
        captions, log_prob = self.draw_captions(batch.images, count)
        reward = self.rewards(captions, batch).to(log_prob)
        advantage = reward - (reward.sum(1, keepdim=True) - reward) / (count - 1)
        if self._trainer is not None:
            self.log("train/reward", reward.mean(), prog_bar=True, batch_size=len(reward))
        return -(advantage * log_prob).sum(), int((captions != PAD).sum())

    def draw_captions(self, images: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Captions (N, K, T) drawn from the model, and the log-probability (N, K) of all that was drawn for each."""
        state, step = self.drawing_step(images, count)
        tokens = torch.full((len(images), count), BOS, device=self.device)
        forbidden = torch.tensor(self.forbidden(), device=self.device)
        alive, log_prob, drawn = torch.ones_like(tokens, dtype=torch.bool), torch.zeros((), device=self.device), []
        while alive.any() and len(drawn) < MAX_WORDS:
            logits, state, looked = step(tokens, state)
            log_probs = wide(logits).index_fill(-1, forbidden, -torch.inf).log_softmax(-1)
            tokens = draw(log_probs.exp()).argmax(-1)
            word = log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
            log_prob = log_prob + (word + looked) * alive
            drawn.append(tokens.masked_fill(~alive, PAD))
            alive = alive & (tokens != EOS)
        return torch.stack(drawn, dim=-1), log_prob

    def rewards(self, captions: Tensor, batch: CaptionBatch) -> Tensor:
        """CIDEr-D, plus `right_words` times the share of right words, of captions (N, K, T) against those of the batch,
        (N, K).

        Document frequencies are those of the training set. The end of a caption counts as a token; otherwise a caption
        that breaks off would score as well as a finished one.
        """
        from zoo.metrics import CiderD, right_words  # late: torchmetrics takes a second

        if self._cider is None:
            self._cider = CiderD(self.data_module.training_captions())
        references = [
            [row[1 : 1 + length] for row, length in zip(rows, lengths, strict=True) if length]
            for rows, lengths in zip(batch.captions.tolist(), batch.lengths.tolist(), strict=True)
        ]
        drawn = [[token for token in row if token != PAD] for rows in captions.tolist() for row in rows]
        references = [image for image in references for _ in range(captions.size(1))]
        scores = self._cider.score(drawn, references)
        if weight := self.config["right_words"]:
            scores = [
                score + weight * right_words(*pair) for score, *pair in zip(scores, drawn, references, strict=True)
            ]
        return torch.tensor(scores, device=captions.device).view(captions.shape[:2])
