"""Show, Attend and Tell: image captions with soft (deterministic) or hard (stochastic) attention.

Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel and Bengio 2015, https://arxiv.org/abs/1502.03044: the encoder cut
at a convolutional layer (section 3.1.1), the LSTM and its initial state (Eq. 1-3), additive attention (Eq. 4-6), the
deep output layer (Eq. 7), hard attention by REINFORCE (Eq. 8-13), soft attention with the selector gate and the doubly
stochastic term (Eq. 14).

Where paper and authors' code disagree, this is done:
- the deep output has the code's tanh; the gated context enters both the LSTM and the deep output, as in the code;
- the doubly stochastic term is the paper's, lambda sum_i (1 - sum_t alpha_ti)^2 for each caption, real steps only (the
  code's mean over positions is smaller by the number of positions); hard attention goes without it unless
  `doubly_stochastic` says otherwise;
- REINFORCE is the paper's Eq. 12-13 with the log-probability of a whole caption as reward, unbiased (the code's weight
  depends on batch size and length), and each sampled caption or image decides for itself whether it takes the expected
  context instead;
- f_init may have hidden layers before its tanh layers for h_0 and c_0, m <- dropout(ReLU(W m + b)), which the two share
  as in the code: `init_layers` is the code's `n_layers_init`, 2 in its settings for COCO;
- `decoding` "expectation" is what the code does at test time.

Differs from the paper:
- the moving average of the baseline is one of the log-probability of a word; times a caption's words it is that
  caption's baseline, so that long captions are not punished for their length;
- features may be projected to `feature_size`;
- `score: bilinear` compares by e_ti = a_i^T W h_{t-1} (the general score of Luong et al. 2015, section 3.1) instead of
  Eq. 4's MLP;
- the first input is the embedding of BOS, not zeros; dropout is inverted, and acts on features and embeddings as well;
- self-critical training at the end (`self_critical_epoch`), if it is asked for;
- AdamW with warm-up and cosine; losses are normalised by the number of words of a batch.

Shapes: N images, L positions, D features, K captions (or hypotheses) an image, T steps, E embedding, H hidden, A
attention, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from zoo.batches.captioning import CaptionBatch
from zoo.layers.dropout import Dropout
from zoo.layers.kernels import wide
from zoo.layers.masking import lengths_to_mask
from zoo.layers.recurrent import LSTMCell
from zoo.layers.scores import additive_score
from zoo.tasks.captioning import MAX_WORDS, CaptioningModule
from zoo.text import BOS, EOS, PAD

Choose = Callable[[Tensor], Tensor]


class ImageMemory(NamedTuple):
    """What the decoder needs of an image, computed once."""

    keys: Tensor  # (N, L, A), W_a a_i + b; for the bilinear score (N, L, D), a_i
    values: Tensor  # (N, L, D), a_i


class Steps(NamedTuple):
    """All steps of a decoder, (N, K, T, ...)."""

    hidden: Tensor  # h_t (N, K, T, H)
    context: Tensor  # gated z_t (N, K, T, D)
    weights: Tensor  # alpha_t (N, K, T, L)
    chosen: Tensor | None  # s_t as a one-hot vector, or alpha_t where the expected context was taken (N, K, T, L)
    expected: tuple[Tensor, Tensor] | None  # hidden and context had the expected context been taken at this step only


class AttendingLSTM(nn.Module):
    """One step: scores from h_{t-1}, a choice of where to look, the gated context, the LSTM.

    Args:
        embedding_size: E.
        hidden_size: H.
        feature_size: D.
        attention_size: A.
        temperature: factor on the scores before the softmax (an inverse temperature).
        score: "additive", or "bilinear", which has no A.
        init_layers: layers of f_init; the last is a tanh layer each for h_0 and c_0, the others are hidden ones.
        dropout: after each of the hidden ones.
    """

    def __init__(
        self,
        embedding_size: int,
        hidden_size: int,
        feature_size: int,
        attention_size: int,
        temperature: float,
        score: str = "additive",
        init_layers: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.bilinear = score == "bilinear"
        if self.bilinear:
            self.w_hidden = nn.Linear(hidden_size, feature_size, bias=False)
        else:
            self.w_features = nn.Linear(feature_size, attention_size)
            self.w_hidden = nn.Linear(hidden_size, attention_size, bias=False)
            self.v = nn.Parameter(torch.empty(attention_size).uniform_(-(attention_size**-0.5), attention_size**-0.5))
        hidden = [(nn.Linear(feature_size, feature_size), nn.ReLU(), Dropout(dropout)) for _ in range(init_layers - 1)]
        self.init = nn.Sequential(*(part for layer in hidden for part in layer))
        self.gate = nn.Linear(hidden_size, 1)
        self.lstm = LSTMCell(embedding_size + feature_size, hidden_size)
        self.init_hidden, self.init_cell = nn.Linear(feature_size, hidden_size), nn.Linear(feature_size, hidden_size)
        self.temperature = temperature

    def start(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """h_0 and c_0 from the mean feature: (N, L, D) -> (N, H) each."""
        mean = self.init(features.mean(1))
        return wide(torch.tanh(self.init_hidden(mean))), wide(torch.tanh(self.init_cell(mean)))

    def project(self, features: Tensor) -> ImageMemory:
        return ImageMemory(wide(features if self.bilinear else self.w_features(features)), features)

    def score(self, hidden: Tensor, keys: Tensor) -> Tensor:
        """e_ti: v^T tanh(W_a a_i + b + W_h h_{t-1}), or a_i^T W h_{t-1}: (N, K, H), (N, L, A or D) -> (N, K, L)."""
        query = self.w_hidden(hidden)
        if self.bilinear:
            return torch.matmul(query.to(keys.dtype), keys.transpose(1, 2))
        return additive_score(query, keys, self.v)

    def forward(
        self,
        embedded: Tensor,
        state: tuple[Tensor, Tensor],
        memory: ImageMemory,
        choose: Choose | None = None,
        both: bool = False,
    ) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor, Tensor, tuple[Tensor, Tensor] | None]:
        """One step: E y_{t-1} (N, K, E), (h, c) -> (h, c), gated z, alpha, what was chosen, and if `both` h and z had
        it been alpha.
        """
        weights = torch.softmax(self.score(state[0], memory.keys) * self.temperature, dim=-1)  # alpha_t
        beta = torch.sigmoid(wide(self.gate(state[0])))  # selector, one number a caption
        chosen = weights if choose is None else choose(weights)
        context = beta * torch.matmul(chosen.to(memory.values.dtype), memory.values)  # beta_t sum_i s_ti a_i
        expected = None
        if both:
            with torch.no_grad():
                soft = beta * torch.matmul(weights.to(memory.values.dtype), memory.values)
                expected = self.lstm(torch.cat([embedded, soft.to(embedded.dtype)], dim=-1), state)[0], soft
        state = self.lstm(torch.cat([embedded, context.to(embedded.dtype)], dim=-1), state)
        return state, context, weights, chosen, expected


class ShowAttendTell(CaptioningModule):
    """Image captioning with attention.

    Args:
        vocab_size: V.
        attention: "soft": the expected context; "hard": a sampled position a step, trained by REINFORCE.
        backbone: "efficientnet_lite0", "mobilenet_v2_tf", or the name of a torchvision classification model.
        layer: where the backbone is cut, e.g. "conv_head", or for torchvision e.g. "features" (mobilenet_v2), "layer4"
            (resnet101).
        backbone_weights: what a new training starts from: a .safetensors file (also relative to the data), or the name
            of weights of torchvision such as "DEFAULT"; None: random.
        encoder_epoch: epoch from which the backbone is trained too; before it is frozen, and its features are computed
            once. None: never.
        image_size: pixels of a side of the square that the backbone sees.
        resize: "squash" the whole frame to the square, or "crop" the middle.
        feature_size: D, a linear layer with ReLU brings the features to this size; None: as the backbone gives them.
        embedding_size: E.
        hidden_size: H.
        attention_size: A of the additive score.
        score: "additive", as in the paper, or "bilinear", a_i^T W h_{t-1}.
        init_layers: layers that make h_0 and c_0 of the mean feature; those before the last are D to D with ReLU
            (authors' code: 2).
        dropout: on the hidden layers that make h_0 and c_0, features, embeddings, h_t before the deep output, and the
            deep output.
        doubly_stochastic: lambda of sum_i (1 - sum_t alpha_ti)^2; None: 1 for soft, 0 for hard attention.
        samples: Monte-Carlo samples of a caption in training (hard).
        reinforce: lambda_r, weight of the REINFORCE term (hard).
        entropy: lambda_e, weight of the entropy of the attention, in nats (hard).
        baseline: of the reward (hard): "moving_average" (0.9 of the old, 0.1 of the new value), or "soft_context": for
            each word the log-probability that it has with the expected context at its step (Deng et al. 2018,
            arXiv:1807.03756), which has less variance, but leaves out how a choice changes later words.
        expected_share: probability that a sample takes the expected context throughout, and no REINFORCE term (hard).
        temperature: factor on the scores before the softmax.
        decoding: hard attention after training: context of the "expectation", of the most probable position ("argmax"),
            or of a "sample".
        self_critical_epoch: epoch from which the model is trained by the CIDEr-D of captions that it draws itself, one
            for each caption of an image, against the mean of its others (Rennie et al. 2017, arXiv:1612.00563; baseline
            of Luo 2020, arXiv:2003.09971), without dropout; hard attention then draws where it looks as well. None:
            never.
        right_words: weight of the share of right words (`zoo.metrics.captions.right_words`) in that reward beside
            CIDEr-D, of which 1 is a high value; above 0 it keeps captions from becoming short.
        likelihood: weight of -log p of the given captions beside the self-critical term; above 0 it keeps sentences
            well formed.
        label_smoothing: share of the target probability spread over the vocabulary.
        beam_size: hypotheses of the search in `caption` and in tests.
        length_penalty: alpha of its length normalisation.
    """

    tiny: ClassVar[dict[str, Any]] = dict(
        vocab_size=12,
        layer="blocks.0",
        encoder_epoch=0,
        image_size=6,
        feature_size=7,
        embedding_size=8,
        hidden_size=6,
        attention_size=4,
        dropout=0.0,
        doubly_stochastic=0.001,
        beam_size=2,
    )

    def __init__(
        self,
        vocab_size: int,
        attention: Literal["soft", "hard"] = "soft",
        backbone: str = "efficientnet_lite0",
        layer: str = "conv_head",
        backbone_weights: str | None = None,
        encoder_epoch: int | None = None,
        image_size: int = 224,
        resize: Literal["squash", "crop"] = "squash",
        feature_size: int | None = 512,
        embedding_size: int = 256,
        hidden_size: int = 512,
        attention_size: int = 512,
        score: Literal["additive", "bilinear"] = "additive",
        init_layers: int = 1,
        dropout: float = 0.5,
        doubly_stochastic: float | None = None,
        samples: int = 1,
        reinforce: float = 1.0,
        entropy: float = 0.002,
        baseline: Literal["moving_average", "soft_context"] = "moving_average",
        expected_share: float = 0.5,
        temperature: float = 1.0,
        decoding: Literal["expectation", "argmax", "sample"] = "expectation",
        self_critical_epoch: int | None = None,
        right_words: float = 0.0,
        likelihood: float = 0.0,
        label_smoothing: float = 0.0,
        beam_size: int = 5,
        length_penalty: float = 1.0,
    ):
        super().__init__()
        for name, value, allowed in [
            ("attention", attention, ("soft", "hard")),
            ("score", score, ("additive", "bilinear")),
            ("baseline", baseline, ("moving_average", "soft_context")),
            ("decoding", decoding, ("expectation", "argmax", "sample")),
        ]:
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
        if samples < 1:
            raise ValueError(f"samples must be at least 1; got {samples}")
        if not 0 <= expected_share <= 1:
            raise ValueError(f"expected_share must be in [0, 1]; got {expected_share}")
        channels = self.encoder_channels
        self.adapter = nn.Identity()
        if feature_size:
            self.adapter, channels = nn.Sequential(nn.Linear(channels, feature_size), nn.ReLU()), feature_size
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        nn.init.normal_(self.embedding.weight, std=embedding_size**-0.5)
        sizes = (embedding_size, hidden_size, channels, attention_size)
        self.decoder = AttendingLSTM(*sizes, temperature, score, init_layers, dropout)
        self.deep_output = nn.Linear(hidden_size + channels, embedding_size)
        self.output = nn.Linear(embedding_size, vocab_size)
        self.dropout = Dropout(dropout)
        self.register_buffer("word_baseline", torch.zeros(()))  # moving average of log p of a word (hard)
        self._rewarded: tuple[Tensor, Tensor] | None = None  # sum of log p of the last batch, and its words
        self._lambda = (1.0 if attention == "soft" else 0.0) if doubly_stochastic is None else doubly_stochastic

    # ---- the decoder ----

    def encode(self, images: Tensor) -> tuple[ImageMemory, tuple[Tensor, Tensor]]:
        features = self.dropout(self.adapter(self.features(images)))  # (N, L, D)
        return self.decoder.project(features), self.decoder.start(features)

    def read(self, hidden: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """Deep output: tanh(W_h h_t + W_z z_t + b + E y_{t-1}), (..., E)."""
        joined = torch.cat([self.dropout(hidden), context.to(hidden.dtype)], dim=-1).to(embedded.dtype)
        return self.dropout(torch.tanh(self.deep_output(joined) + embedded))

    def steps(
        self, embedded: Tensor, memory: ImageMemory, state: tuple[Tensor, Tensor], choose: Choose | None, both: bool
    ) -> Steps:
        """Teacher forcing of the embedded inputs (N, K, T, E)."""
        captions = embedded.size(1)
        state = tuple(x.unsqueeze(1).expand(-1, captions, -1) for x in state)
        found = []
        for y in embedded.unbind(2):
            state, *rest = self.decoder(y, state, memory, choose, both)
            found.append((state[0], *rest))
        hidden, context, weights, chosen, expected = zip(*found, strict=True)
        stacked = (torch.stack(x, dim=2) for x in (hidden, context, weights))
        pairs = tuple(torch.stack(x, dim=2) for x in zip(*expected, strict=True)) if both else None
        return Steps(*stacked, torch.stack(chosen, dim=2) if choose else None, pairs)

    def forward(self, images: Tensor, captions: Tensor) -> tuple[Tensor, Tensor]:
        """Teacher forcing, with the context that decoding uses.

        Args:
            images: (N, 3, S, S) uint8, or cached features (N, L, C).
            captions: (N, K, T) decoder inputs, BOS first.

        Returns:
            logits (N, K, T, V) and attention weights (N, K, T, L).
        """
        memory, state = self.encode(images)
        embedded = self.dropout(self.embedding(captions))
        found = self.steps(embedded, memory, state, self._chooser(), both=False)
        return self.output(self.read(found.hidden, found.context, embedded)), found.weights

    def step(self, tokens: Tensor, state: tuple, memory: ImageMemory, t: int) -> tuple[Tensor, tuple, Tensor]:
        embedded = self.embedding(tokens)  # (N, K, E)
        state, context, weights, _, _ = self.decoder(embedded, state, memory, self._chooser())
        return self.output(self.read(state[0], context, embedded)), state, weights

    def _chooser(self) -> Choose | None:
        """How a context is chosen after training; None: by the weights themselves."""
        decoding = self.config["decoding"] if self.config["attention"] == "hard" else "expectation"
        choices = {"expectation": None, "argmax": lambda weights: _one_hot(weights.argmax(-1), weights), "sample": draw}
        return choices[decoding]

    # ---- training ----

    def loss(self, batch: CaptionBatch) -> tuple[Tensor, int]:
        first = self.config["self_critical_epoch"]
        if not self.training or first is None or self.current_epoch < first:
            return self.likelihood_loss(batch)
        self.eval()
        try:
            loss, words = self.self_critical_loss(batch)
        finally:
            self.train()
        if share := self.config["likelihood"]:
            loss = loss + share * self.likelihood_loss(batch)[0]
        return loss, words

    def likelihood_loss(self, batch: CaptionBatch) -> tuple[Tensor, int]:
        """Minus the log-likelihood of the batch's captions, with the terms of training, and their words."""
        hard, training = self.config["attention"] == "hard", self.training
        memory, state = self.encode(batch.images)
        tokens, labels = batch.captions[..., :-1], batch.captions[..., 1:]
        real = lengths_to_mask(batch.lengths, labels.size(-1))  # (N, K, T)
        if not (hard and training):
            embedded = self.dropout(self.embedding(tokens))
            found = self.steps(embedded, memory, state, self._chooser(), both=False)
            nll, _ = self.word_losses(self.read(found.hidden[real], found.context[real], embedded[real]), labels[real])
            regularised = nll + self._doubly_stochastic(found.weights, real) if training else nll
            return regularised, int(batch.lengths.sum())
        samples = self.config["samples"]
        tokens, labels, real = (x.repeat_interleave(samples, dim=1) for x in (tokens, labels, real))
        loss, reward = self.hard_loss(memory, state, tokens, labels, real)
        self._rewarded = reward.detach(), real.sum()
        return loss / samples, int(batch.lengths.sum())

    def hard_loss(
        self, memory: ImageMemory, state: tuple[Tensor, Tensor], tokens: Tensor, labels: Tensor, real: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Surrogate whose gradient is that of Eq. 12-13 for one sample of each caption, and the sum of log p of all
        words.

        Args:
            memory, state: from `encode`.
            tokens: (N, K, T) inputs.
            labels: (N, K, T) next words.
            real: (N, K, T) bool.
        """
        c = self.config
        both = c["baseline"] == "soft_context"
        takes_expected, choose = self._semi_sampling(tokens.shape[:2])
        embedded = self.dropout(self.embedding(tokens))
        found = self.steps(embedded, memory, state, choose, both)
        nll, words = self.word_losses(self.read(found.hidden[real], found.context[real], embedded[real]), labels[real])
        log_probs = torch.zeros_like(real, dtype=words.dtype).masked_scatter_(
            real, -words
        )  # (N, K, T), log p(y_t | s, y_<t)
        if both:
            with torch.no_grad():
                _, soft = self.word_losses(self.read(*(x[real] for x in found.expected), embedded[real]), labels[real])
            advantage = torch.zeros_like(log_probs).masked_scatter_(real, soft - words)
        else:  # one for all steps of a caption
            advantage = (log_probs.sum(-1) - self.word_baseline * real.sum(-1)).unsqueeze(-1)
        log_weights = _log(found.weights)
        log_choice = (log_weights * found.chosen.detach()).sum(-1)  # log alpha of the position chosen
        credited = real & ~takes_expected.unsqueeze(-1)
        reinforce = (advantage * log_choice)[credited].sum()
        entropy = -(found.weights * log_weights).sum(-1)[real].sum()
        loss = nll - c["reinforce"] * reinforce - c["entropy"] * entropy + self._doubly_stochastic(found.weights, real)
        return loss, log_probs.sum()

    def _semi_sampling(self, shape: torch.Size) -> tuple[Tensor, Choose]:
        """Which captions (N, K) take the expected context throughout, and the choice of where all of them look."""
        takes_expected = torch.rand(shape, device=self.device) < self.config["expected_share"]
        return takes_expected, lambda weights: torch.where(takes_expected.unsqueeze(-1), weights, draw(weights))

    def self_critical_loss(self, batch: CaptionBatch) -> tuple[Tensor, int]:
        """-sum of advantage times log-probability of drawn captions (and, of hard attention, of where it looked), and
        their words.
        """
        count = batch.captions.size(1)
        if count < 2:
            raise ValueError(
                "self-critical training compares the captions of an image: set captions_per_image to 2 or more; got "
                f"{count}"
            )
        memory, state = self.encode(batch.images)
        state = tuple(x.unsqueeze(1).expand(-1, count, -1) for x in state)
        tokens = torch.full(batch.captions.shape[:2], BOS, device=self.device)
        takes_expected, choose = torch.ones_like(tokens, dtype=torch.bool), None
        if self.config["attention"] == "hard":
            takes_expected, choose = self._semi_sampling(tokens.shape)
        forbidden = torch.tensor(self.forbidden(), device=self.device)
        alive, log_prob, drawn = torch.ones_like(tokens, dtype=torch.bool), 0.0, []
        while alive.any() and len(drawn) < MAX_WORDS:
            embedded = self.embedding(tokens)
            state, context, weights, chosen, _ = self.decoder(embedded, state, memory, choose)
            logits = wide(self.output(self.read(state[0], context, embedded)))
            log_probs = logits.index_fill(-1, forbidden, -torch.inf).log_softmax(-1)
            tokens = draw(log_probs.exp()).argmax(-1)
            found = log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
            if choose is not None:
                found = found + self.config["reinforce"] * (_log(weights) * chosen).sum(-1) * ~takes_expected
            log_prob = log_prob + found * alive  # (N, K)
            drawn.append(tokens.masked_fill(~alive, PAD))
            alive = alive & (tokens != EOS)
        captions = torch.stack(drawn, dim=-1)
        reward = self.rewards(captions, batch).to(log_prob)
        advantage = reward - (reward.sum(1, keepdim=True) - reward) / (count - 1)
        if self._trainer is not None:
            self.log("train/reward", reward.mean(), prog_bar=True, batch_size=len(reward))
        return -(advantage * log_prob).sum(), int((captions != PAD).sum())

    def _doubly_stochastic(self, weights: Tensor, real: Tensor) -> Tensor | float:
        """lambda sum_i (1 - sum_t alpha_ti)^2, summed over the captions that are not missing."""
        if not self._lambda:
            return 0.0
        seen = (weights * real.unsqueeze(-1)).sum(2)  # (N, K, L)
        return self._lambda * ((1 - seen).square().sum(-1) * real[..., 0]).sum()

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


def _log(weights: Tensor) -> Tensor:
    """log alpha, finite where a weight is 0."""
    return weights.clamp(min=torch.finfo(torch.float32).tiny).log()


def _one_hot(index: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(like).scatter_(-1, index.unsqueeze(-1), 1.0)


def draw(weights: Tensor) -> Tensor:
    """Multinoulli samples, one for each distribution: (..., L) -> one-hot (..., L), without a gradient."""
    cumulated = weights.detach().cumsum(-1)
    threshold = torch.rand_like(cumulated[..., :1]) * cumulated[..., -1:]
    index = torch.searchsorted(cumulated, threshold, right=True).clamp_(max=weights.size(-1) - 1)
    return _one_hot(index.squeeze(-1), cumulated)
