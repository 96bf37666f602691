"""Show, Attend and Tell: image captions with soft (deterministic) or hard (stochastic) attention.

Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel and Bengio 2015, https://arxiv.org/abs/1502.03044: the encoder cut
at a convolutional layer (section 3.1.1), the LSTM and its initial state (Eq. 1-3), additive attention (Eq. 4-6), the
deep output layer (Eq. 7), and soft attention with the selector gate. What is learnt from is in
zoo/tasks/hard_attention.py: hard attention by REINFORCE (Eq. 8-13), and the doubly stochastic term (Eq. 14).

Where paper and authors' code disagree:
- the deep output has the code's tanh; the gated context enters both the LSTM and the deep output, as in the code;
- the doubly stochastic term is the paper's, summed over positions and real steps of a caption (the code takes the mean
  over positions); hard attention goes without it unless `doubly_stochastic` says otherwise;
- REINFORCE is the paper's Eq. 12-13 with log p of a whole caption as reward, unbiased (the code's weight depends on
  batch size and length); each sampled caption decides for itself whether it takes the expected context instead;
- f_init may have hidden layers, shared by h_0 and c_0 as in the code, whose settings for COCO have `init_layers` 2;
- `decoding` "expectation" is what the code does at test time.

Differs from the paper:
- the moving average of the baseline is that of a word's log p, times a caption's words: it does not punish length;
- features may be projected to `feature_size`; dropout acts on features and embeddings too;
- `score: bilinear` replaces Eq. 4's MLP by e_ti = a_i^T W h_{t-1} (the general score of Luong et al. 2015);
- the first input is the embedding of BOS, not zeros;
- self-critical training at the end (`self_critical_epoch`), if it is asked for;
- AdamW with warm-up and cosine; losses are normalised by the number of words of a batch.

Shapes: N images, L positions, D features, K captions (or hypotheses) an image, T steps, E embedding, H hidden, A
attention, V vocabulary.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from zoo.layers.attention import replaced
from zoo.layers.dropout import Dropout
from zoo.layers.hard_attention import draw, one_hot
from zoo.layers.kernels import wide
from zoo.layers.losses import output_logits
from zoo.layers.recurrent import LSTMCell
from zoo.layers.scores import additive_score
from zoo.tasks.hard_attention import Choose, HardAttentionModule, Look, for_each
from zoo.tasks.self_critical import State


class ImageMemory(NamedTuple):
    """What the decoder needs of an image, computed once."""

    keys: Tensor  # (N, L, A), W_a a_i + b; for the bilinear score (N, L, D), a_i
    values: Tensor  # (N, L, D), a_i


class AttendingLSTM(nn.Module):
    """The decoder, Eq. 1-6: where to look from h_{t-1}, the gated context, the LSTM.

    Args:
        embedding_size, hidden_size, feature_size, attention_size: E, H, D and A.
        temperature: factor on the scores before the softmax (an inverse temperature).
        score: "additive", or "bilinear", which has no A.
        init_layers: layers of f_init; the last is a tanh layer each for h_0 and c_0, the others are hidden ones.
        dropout: after each of the hidden ones.
    """

    def __init__(
        self, embedding_size: int, hidden_size: int, feature_size: int, attention_size: int,
        temperature: float = 1.0, score: str = "additive", init_layers: int = 1, dropout: float = 0.0,
    ):  # fmt: skip
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

    def start(self, features: Tensor) -> State:
        """h_0 and c_0 from the mean feature: (N, L, D) -> (N, H) each."""
        mean = self.init(features.mean(1))
        return wide(torch.tanh(self.init_hidden(mean))), wide(torch.tanh(self.init_cell(mean)))

    def project(self, features: Tensor) -> ImageMemory:
        return ImageMemory(wide(features if self.bilinear else self.w_features(features)), features)

    def scores(self, hidden: Tensor, keys: Tensor) -> Tensor:
        """e_ti = v^T tanh(W_a a_i + b + W_h h_{t-1}), or a_i^T W h_{t-1}: (N, K, H) -> (N, K, L)."""
        query = self.w_hidden(hidden)
        if self.bilinear:
            return torch.matmul(query.to(keys.dtype), keys.transpose(1, 2))
        return additive_score(query, keys, self.v)

    def attend(self, hidden: Tensor, keys: Tensor) -> Tensor:
        """alpha_t, the softmax of e_t, in fp32 at least: (N, K, H) -> (N, K, L)."""
        return torch.softmax(wide(self.scores(hidden, keys)) * self.temperature, dim=-1)

    def context(self, chosen: Tensor, hidden: Tensor, values: Tensor) -> Tensor:
        """beta_t sum_i s_ti a_i; the selector beta_t is one number a caption: (N, K, L), (N, K, H) -> (N, K, D)."""
        beta = torch.sigmoid(wide(self.gate(hidden.to(values.dtype))))
        return beta * torch.matmul(chosen.to(values.dtype), values)

    def advance(self, embedded: Tensor, context: Tensor, state: State) -> State:
        """h_t and c_t of E y_{t-1} (N, K, E) and the context."""
        return self.lstm(torch.cat([embedded, context.to(embedded.dtype)], dim=-1), state)

    def forward(
        self,
        embedded: Tensor,
        state: State,
        memory: ImageMemory,
        choose: Choose | None = None,
        given: Tensor | None = None,
    ) -> Look:
        """One step from E y_{t-1} (N, K, E) and (h, c); without `choose` the context is the expected one.

        Weights that are `given` (N, K, L) replace the computed ones, and make the context as they are: see `replaced`.
        """
        weights = replaced(self.attend(state[0].to(embedded.dtype), memory.keys), given)
        chosen = weights if choose is None else replaced(choose(weights), given)
        context = self.context(chosen, state[0], memory.values)
        hidden, cell = self.advance(embedded, context, state)
        return Look(hidden, cell, context, weights, chosen)


class ShowAttendTell(HardAttentionModule[ImageMemory]):
    """Image captioning with attention.

    Args:
        vocab_size: V.
        attention: "soft": the expected context; "hard": a sampled position a step, trained by REINFORCE.
        backbone: "efficientnet_lite0", "efficientnet_lite2", "mobilenet_v2_tf", or the name of a torchvision
            classification model.
        layer: where the backbone is cut, e.g. "conv_head"; "features" of mobilenet_v2, "layer4" of resnet101.
        backbone_weights: what a new training starts from: a .safetensors file (also relative to the data), or the name
            of weights such as "DEFAULT" (`zoo.vision.backbones.load_backbone`); None: random.
        encoder_epoch: epoch from which the backbone is trained too; before, it is frozen and its features are computed
            once. None: never.
        image_size: pixels of a side of the square that the backbone sees.
        resize: "squash" the whole frame to the square, or "crop" the middle.
        feature_size: D, by a linear layer with ReLU on the features; None: as the backbone gives them.
        embedding_size: E.
        hidden_size: H.
        attention_size: A of the additive score.
        score: "additive", as in the paper, or "bilinear", a_i^T W h_{t-1}.
        init_layers: layers of f_init; those before the last are D to D with ReLU (authors' code: 2).
        dropout: on hidden layers of f_init, features, embeddings, h_t before the deep output, and the deep output.
        doubly_stochastic: lambda of sum_i (1 - sum_t alpha_ti)^2; None: 1 for soft, 0 for hard attention.
        samples: Monte-Carlo samples of a caption in training (hard).
        reinforce: lambda_r, weight of the REINFORCE term (hard).
        entropy: lambda_e, weight of the entropy of the attention, in nats (hard).
        baseline: of the reward (hard): "moving_average" (0.9 of the old, 0.1 of the new value), or "soft_context": each
            word's log-probability with the expected context at its step (Deng et al. 2018, arXiv:1807.03756), which has
            less variance but leaves out how a choice changes later words.
        expected_share: probability that a sample takes the expected context throughout, and no REINFORCE term (hard).
        temperature: factor on the scores before the softmax.
        decoding: hard attention after training: context of the "expectation", of the most probable position ("argmax"),
            or of a "sample".
        self_critical_epoch: epoch from which the model learns from captions that it draws itself
            (zoo/tasks/self_critical.py), hard attention also from where it looked; None: never.
        right_words: weight of the share of right words (`zoo.metrics.captions.right_words`) in its reward beside
            CIDEr-D, of which 1 is a high value; above 0 it keeps captions from becoming short.
        likelihood: weight of -log p of the given captions beside it; above 0 it keeps sentences well formed.
        label_smoothing: share of the target probability spread over the vocabulary.
        beam_size: beam size in `caption` and in testing.
        length_penalty: alpha of the length normalisation in the search.
    """

    tiny: ClassVar[dict[str, Any]] = dict(
        vocab_size=12, layer="blocks.0", encoder_epoch=0, image_size=6, feature_size=7, embedding_size=8, hidden_size=6,
        attention_size=4, dropout=0.0, doubly_stochastic=0.001, beam_size=2,
    )  # fmt: skip

    def __init__(
        self, vocab_size: int, attention: Literal["soft", "hard"] = "soft",
        # the image encoder
        backbone: str = "efficientnet_lite0", layer: str = "conv_head", backbone_weights: str | None = None,
        encoder_epoch: int | None = None, image_size: int = 224, resize: Literal["squash", "crop"] = "squash",
        # the decoder
        feature_size: int | None = 512, embedding_size: int = 256, hidden_size: int = 512, attention_size: int = 512,
        score: Literal["additive", "bilinear"] = "additive", init_layers: int = 1, dropout: float = 0.5,
        # the loss, of hard attention too
        doubly_stochastic: float | None = None, samples: int = 1, reinforce: float = 1.0, entropy: float = 0.002,
        baseline: Literal["moving_average", "soft_context"] = "moving_average", expected_share: float = 0.5,
        temperature: float = 1.0, decoding: Literal["expectation", "argmax", "sample"] = "expectation",
        # self-critical training
        self_critical_epoch: int | None = None, right_words: float = 0.0, likelihood: float = 0.0,
        label_smoothing: float = 0.0, beam_size: int = 5, length_penalty: float = 1.0,
    ):  # fmt: skip
        super().__init__()
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
        self.doubly_stochastic = (attention == "soft") if doubly_stochastic is None else doubly_stochastic

    # ---- the decoder ----

    def encode(self, images: Tensor) -> tuple[ImageMemory, State]:
        features = self.dropout(self.adapter(self.features(images)))  # (N, L, D)
        return self.decoder.project(features), self.decoder.start(features)

    def read(self, hidden: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """Deep output, Eq. 7: tanh(W_h h_t + W_z z_t + b + E y_{t-1}), (..., E)."""
        joined = torch.cat([self.dropout(hidden), context.to(hidden.dtype)], dim=-1).to(embedded.dtype)
        return self.dropout(torch.tanh(self.deep_output(joined) + embedded))

    def steps(self, embedded: Tensor, memory: ImageMemory, state: State, choose: Choose | None) -> Look:
        """Teacher forcing of the embedded inputs (N, K, T, E) from the state (N, K, H)."""
        found = []
        for y in embedded.unbind(2):
            found.append(self.decoder(y, state, memory, choose))
            state = found[-1].hidden, found[-1].cell
        return Look(*(torch.stack(x, dim=2) for x in zip(*found, strict=True)))

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
        found = self.steps(embedded, memory, for_each(state, captions.size(1)), self.chooser())
        return self.output(self.read(found.hidden, found.context, embedded)), found.weights

    def step(
        self, tokens: Tensor, state: State, memory: ImageMemory, t: int, given: Tensor | None = None
    ) -> tuple[Tensor, State, Tensor]:
        logits, found = self.look_and_write(tokens, state, memory, self.chooser(), given)
        return logits, (found.hidden, found.cell), found.weights

    def look_and_write(
        self, tokens: Tensor, state: State, memory: ImageMemory, choose: Choose | None, given: Tensor | None = None
    ) -> tuple[Tensor, Look]:
        embedded = self.embedding(tokens)
        found = self.decoder(embedded, state, memory, choose, given)
        return output_logits(self.output, self.read(found.hidden, found.context, embedded)), found

    def chooser(self) -> Choose | None:
        """How a context is chosen after training; None: by the weights themselves."""
        decoding = self.config["decoding"] if self.config["attention"] == "hard" else "expectation"
        choices = {"expectation": None, "argmax": lambda weights: one_hot(weights.argmax(-1), weights), "sample": draw}
        return choices[decoding]
