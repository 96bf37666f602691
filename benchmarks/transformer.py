"""Speed of the Transformer beside code on torch.nn.Transformer's layers of equal size, in one run.

    python benchmarks/transformer.py [--threads 2] [--rounds 5] [--device cpu]

4 + 4 layers of 128 with 4 heads, feed-forward 256, shared vocabulary of 5,000, dropout 0.3; sentences of 6 to 20 tokens
in batches of 128 sorted by length, as the data modules make them. Greedy search writes exactly 16 tokens for each of
128 sentences on both sides.

* train: one optimiser step.
* cached: greedy decoding; the baseline keeps each layer's input and lets torch's layer attend from the last position to
  it.
* full: greedy decoding as it is usually written around nn.Transformer, which runs the whole prefix through the decoder
  at every step.
* limit: the products by the weights alone, each timed alone for the real tokens (decoding: one step after the other):
  nothing inside the attentions, no elementwise work, no optimiser.
* share: of the limit, ours.
"""

import argparse
import math

import measuring
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from zoo.batches.translation import pad_batch
from zoo.layers.positions import positions
from zoo.layers.search import greedy_search
from zoo.models.transformer import TransformerNMT
from zoo.text import BOS, EOS, PAD

D, HEADS, FF, LAYERS, V, B, STEPS = 128, 4, 256, 4, 5000, 128, 16


class Plain(nn.Module):
    """The same model around nn.TransformerEncoder and nn.TransformerDecoder."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(V, D, padding_idx=PAD)
        self.dropout = nn.Dropout(0.3)
        encoder = nn.TransformerEncoderLayer(D, HEADS, FF, 0.3, batch_first=True)
        decoder = nn.TransformerDecoderLayer(D, HEADS, FF, 0.3, batch_first=True)
        self.encoder = nn.TransformerEncoder(encoder, LAYERS, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, LAYERS)
        self.register_buffer("places", positions(100, D), persistent=False)

    def embed(self, ids: Tensor, first: int = 0) -> Tensor:
        return self.dropout(self.table(ids) * math.sqrt(D) + self.places[first : first + ids.size(1)])

    def loss(self, batch) -> Tensor:
        pads = batch.src == PAD
        memory = self.encoder(self.embed(batch.src), src_key_padding_mask=pads)
        tgt, labels = batch.tgt[:, :-1], batch.tgt[:, 1:]
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), device=tgt.device)
        found = self.decoder(self.embed(tgt), memory, tgt_mask=causal, memory_key_padding_mask=pads, tgt_is_causal=True)
        return cross_entropy(
            (found @ self.table.weight.t()).flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=0.1
        )

    @torch.no_grad()
    def full(self, src: Tensor) -> Tensor:
        pads = src == PAD
        memory = self.encoder(self.embed(src), src_key_padding_mask=pads)
        words = torch.full((len(src), 1), BOS, device=src.device)
        for _ in range(STEPS):
            causal = nn.Transformer.generate_square_subsequent_mask(words.size(1), device=words.device)
            found = self.decoder(
                self.embed(words), memory, tgt_mask=causal, memory_key_padding_mask=pads, tgt_is_causal=True
            )
            words = torch.cat([words, (found[:, -1:] @ self.table.weight.t()).argmax(-1)], 1)
        return words

    @torch.no_grad()
    def cached(self, src: Tensor) -> Tensor:
        pads = src == PAD
        memory = self.encoder(self.embed(src), src_key_padding_mask=pads)
        words, past = torch.full((len(src), 1), BOS, device=src.device), [None] * LAYERS
        for t in range(STEPS):
            x = self.embed(words[:, -1:], t)
            for n, layer in enumerate(self.decoder.layers):
                past[n] = x if past[n] is None else torch.cat([past[n], x], 1)
                x = layer.norm1(x + layer.self_attn(x, past[n], past[n], need_weights=False)[0])
                x = layer.norm2(
                    x + layer.multihead_attn(x, memory, memory, key_padding_mask=pads, need_weights=False)[0]
                )
                x = layer.norm3(x + layer.linear2(torch.relu(layer.linear1(x))))
            words = torch.cat([words, (x @ self.table.weight.t()).argmax(-1)], 1)
        return words


def limit(src: int, tgt: int, dtype: torch.dtype, backward: bool, device: torch.device) -> float:
    """Seconds of the products by the weights for `src` source tokens, and for `tgt` target tokens at a time."""

    def taken(rows: int, shapes: list[tuple[int, int]]) -> float:
        return sum(measuring.product_seconds(rows, *shape, dtype, backward, device) for shape in shapes)

    both = [(D, D), (D, 2 * D), (D, D), (D, FF), (FF, D)]  # self-attention and feed-forward
    encoder = taken(src, [*both, (D, 2 * D)])  # with what the decoder attends to
    decoder = taken(tgt, [*both, (D, D), (D, D)])
    return LAYERS * encoder + (1 if backward else STEPS) * (LAYERS * decoder + taken(tgt, [(D, V)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = measuring.parse(parser)
    device = options.device
    torch.manual_seed(0)
    batches = []
    for length in (6, 9, 12, 15, 20):
        rows = [[torch.randint(EOS + 1, V, (length - n % 2,)).tolist() for n in range(B)] for _ in range(2)]
        batches.append(measuring.on(pad_batch(*rows), device))
    tokens = sum(int(batch.tgt_lengths.sum()) for batch in batches)
    ours = TransformerNMT(
        V,
        V,
        shared_vocab=True,
        tie_output=True,
        model_size=D,
        num_heads=HEADS,
        feedforward_size=FF,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        dropout=0.3,
    ).to(device)
    plain = Plain().to(device)
    optimizers = {model: torch.optim.AdamW(model.parameters(), fused=True) for model in (ours, plain)}

    def train(model: nn.Module) -> None:
        model.train()
        for batch in batches:
            if model is plain:
                loss = plain.loss(batch)
            else:
                loss, count = ours.loss(batch, 0.1)
                loss = loss / count
            optimizers[model].zero_grad()
            loss.backward()
            optimizers[model].step()

    @torch.no_grad()
    def search() -> None:
        memory, state = ours.eval().encode(batches[2].src, batches[2].src_lengths)
        inner, state = ours.step, tuple(x.unsqueeze(1) for x in state)

        def step(*arguments):
            readouts, state, weights = inner(*arguments)
            return ours.embeddings.logits(readouts), state, weights

        greedy_search(step, state, memory, max_length=STEPS, min_length=STEPS)

    jobs = {
        "train ours": lambda: train(ours),
        "train plain": lambda: train(plain),
        "decode ours": search,
        "decode cached": lambda: plain.eval().cached(batches[2].src),
        "decode full": lambda: plain.eval().full(batches[2].src),
    }
    for dtype in measuring.precisions(device).values():
        alternated = {name: measuring.cast(job, device, dtype) for name, job in jobs.items()}
        seconds = measuring.fastest(alternated, options.rounds, device)
        print(f"\n{str(dtype).removeprefix('torch.')}: {options.threads} threads")
        print(f"{'':28}{'ours':>10}{'plain':>10}{'ratio':>8}{'limit':>10}{'share':>8}")
        sources = sum(int(batch.src_lengths.sum()) for batch in batches)
        training = limit(sources // len(batches), tokens // len(batches), dtype, True, device) * len(batches)
        decoding = limit(int(batches[2].src_lengths.sum()), B, dtype, False, device)
        for label, a, b, unit, least in [
            ("training, target tokens/s", "train ours", "train plain", tokens, training),
            ("greedy, cached, tokens/s", "decode ours", "decode cached", B * STEPS, decoding),
            ("greedy, full, tokens/s", "decode ours", "decode full", B * STEPS, decoding),
        ]:
            print(
                f"{label:28}{unit / seconds[a]:10.0f}{unit / seconds[b]:10.0f}{seconds[b] / seconds[a]:8.2f}"
                f"{unit / least:10.0f}{least / seconds[a]:8.0%}"
            )


if __name__ == "__main__":
    main()
