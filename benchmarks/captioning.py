"""Speed of Show, Attend and Tell beside the same decoder as it is usually written, in one run.

    python benchmarks/captioning.py [--threads 2] [--rounds 5] [--device cpu]

196 positions of 512 features, batches of 32 images with one caption of 18 words each, vocabulary 3,000, all sizes 512.

* plain: the textbook loop with what can be outside of it there: the image is projected once, and the scores of the
  vocabulary are formed for all words at once. Its search goes image by image. The same equations.
* beam-3: captions of exactly 18 words, so that both sides take the same number of steps.
* encoder: images a second of EfficientNet-Lite0 at 224 pixels, for itself.
"""

import argparse
from collections.abc import Callable

import measuring
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from zoo.batches.captioning import CaptionBatch
from zoo.layers.search import beam_search
from zoo.models.show_attend_tell import AttendingLSTM, ShowAttendTell
from zoo.text import BOS, EOS
from zoo.vision.backbones import make_backbone

N, L, D, T, V = 32, 196, 512, 18, 3000


class Plain(nn.Module):
    """The decoder as a loop over the words."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, D)
        self.image, self.hidden, self.full = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, 1)
        self.gate = nn.Linear(D, 1)
        self.cell = nn.LSTMCell(2 * D, D)
        self.init_h, self.init_c = nn.Linear(D, D), nn.Linear(D, D)
        self.deep, self.out = nn.Linear(2 * D, D), nn.Linear(D, V)

    def start(self, features: Tensor) -> tuple[Tensor, Tensor]:
        mean = features.mean(1)
        return torch.tanh(self.init_h(mean)), torch.tanh(self.init_c(mean))

    def step(
        self, words: Tensor, h: Tensor, c: Tensor, features: Tensor, keys: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        e = self.full(torch.tanh(keys + self.hidden(h).unsqueeze(1))).squeeze(2)
        alpha = torch.softmax(e, dim=1)
        z = torch.sigmoid(self.gate(h)) * (features * alpha.unsqueeze(2)).sum(1)
        y = self.embedding(words)
        h, c = self.cell(torch.cat([y, z], dim=1), (h, c))
        return torch.tanh(self.deep(torch.cat([h, z], dim=1)) + y), h, c, alpha

    def forward(self, features: Tensor, captions: Tensor) -> tuple[Tensor, Tensor]:
        h, c = self.start(features)
        keys, readouts, alphas = self.image(features), [], []
        for t in range(captions.size(1)):
            readout, h, c, alpha = self.step(captions[:, t], h, c, features, keys)
            readouts.append(readout)
            alphas.append(alpha)
        return self.out(torch.stack(readouts, 1)), torch.stack(alphas, 1)

    def loss(self, features: Tensor, captions: Tensor) -> Tensor:
        logits, alphas = self(features, captions[:, :-1])
        return cross_entropy(logits.flatten(0, 1), captions[:, 1:].flatten()) + ((1 - alphas.sum(1)) ** 2).mean()

    @torch.no_grad()
    def beam(self, features: Tensor, k: int) -> list[list[int]]:
        """One image: features (L, D)."""
        keys, features = self.image(features), features.expand(k, -1, -1)
        words = torch.full((k,), BOS, device=features.device)
        scores, found = features.new_zeros(k, 1), words.new_zeros(k, 0)
        h, c = self.start(features)
        for t in range(T):
            readout, h, c, _ = self.step(words, h, c, features, keys)
            total = scores + torch.log_softmax(self.out(readout), 1)
            scores, best = total[0].topk(k) if t == 0 else total.flatten().topk(k)
            rows, words = best // V, best % V
            scores = scores.unsqueeze(1)
            h, c, found = h[rows], c[rows], torch.cat([found[rows], words.unsqueeze(1)], 1)
        return found.tolist()


def ours(attention: str = "soft") -> ShowAttendTell:
    """A model whose features come ready; its own encoder is the smallest one and never used."""
    torch.manual_seed(0)
    options = dict(
        layer="blocks.0",
        image_size=32,
        feature_size=None,
        embedding_size=D,
        attention_size=D,
        hidden_size=D,
        dropout=0.0,
    )
    model = ShowAttendTell(V, attention=attention, expected_share=0.0, **options)
    model.decoder, model.deep_output = AttendingLSTM(D, D, D, D, 1.0), nn.Linear(2 * D, D)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = measuring.parse(parser)
    device = options.device
    torch.manual_seed(0)
    features, captions = measuring.on((torch.randn(N, L, D), torch.randint(EOS + 1, V, (N, T + 1))), device)
    batch = CaptionBatch(features, captions.unsqueeze(1), torch.full((N, 1), T, device=device))
    soft, hard, plain = (model.to(device) for model in (ours(), ours("hard"), Plain()))
    encoder = make_backbone("efficientnet_lite0", "conv_head").eval().to(device)
    images = torch.randn(N, 3, 224, 224).to(device, memory_format=torch.channels_last)
    optimizers = {model: torch.optim.AdamW(model.parameters(), fused=True) for model in (soft, hard, plain)}

    def train(model: nn.Module) -> None:
        model.train()
        loss = plain.loss(features, captions) if model is plain else model.loss(batch)[0] / (N * T)
        optimizers[model].zero_grad()
        loss.backward()
        optimizers[model].step()

    @torch.no_grad()
    def infer(model: nn.Module) -> None:
        model.eval()
        plain(features, captions[:, :-1]) if model is plain else model(features, captions[:, None, :-1])

    @torch.no_grad()
    def search() -> None:
        memory, state = soft.eval().encode(features)
        state = tuple(x.unsqueeze(1) for x in state)
        beam_search(soft.step, state, memory, beam_size=3, max_length=T, min_length=T, length_penalty=0.0)

    @torch.no_grad()
    def encode() -> None:
        encoder(images)

    jobs: dict[str, Callable[[], None]] = {
        "train ours": lambda: train(soft),
        "train hard": lambda: train(hard),
        "train plain": lambda: train(plain),
        "infer ours": lambda: infer(soft),
        "infer plain": lambda: infer(plain),
        "beam ours": search,
        "beam plain": lambda: [plain.eval().beam(x, 3) for x in features],
        "encoder": encode,
    }
    for dtype in measuring.precisions(device).values():
        alternated = {name: measuring.cast(job, device, dtype) for name, job in jobs.items()}
        seconds = measuring.fastest(alternated, options.rounds, device)
        words = N * T
        print(f"\n{str(dtype).removeprefix('torch.')}: {options.threads} threads")
        print(f"{'':26}{'ours':>10}{'plain':>10}{'ratio':>8}")
        for label, job, unit in [
            ("training, words/s", "train", words),
            ("teacher forcing, words/s", "infer", words),
            ("beam-3, images/s", "beam", N),
        ]:
            a, b = unit / seconds[f"{job} ours"], unit / seconds[f"{job} plain"]
            print(f"{label:26}{a:10.1f}{b:10.1f}{a / b:8.2f}")
        print(f"hard / soft training time {seconds['train hard'] / seconds['train ours']:.2f}")
        print(f"encoder, images/s {N / seconds['encoder']:.1f}")


if __name__ == "__main__":
    main()
