"""Speed and memory of the readers beside the same models as they are usually written, in one run.

    python benchmarks/reading.py [--threads 2] [--batches 4] [--rounds 4] [--device cpu]

Attention over attention and the attention-sum reader: documents of 150 to 1,200 words, queries of 5 to 120, ten
candidates, embeddings 128, one shared GRU of 128 + 128 states, vocabulary 20,000, batch 32. Words follow Zipf's law.
All sides see the same ragged batches, sorted and grouped by nothing, and are trained with the same optimiser.

* dense: torch's GRU over padded rows of words (so its backward states begin in the pads), masks in both softmaxes,
  pointer sums by a mask over the padded document for each candidate.
* packed: the same over pack_padded_sequence.
* grouped: what our data modules feed, batches of documents of similar length; words a second, ours and dense.
* peak: memory above what the process had before, each side in a process of its own; on a GPU what it allocated there.
"""

import argparse
from collections.abc import Callable

import measuring
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from zoo.batches.reading import ClozeBatch, collate_questions
from zoo.models.attention_over_attention import AttentionOverAttentionReader

B, V, E, H = 32, 20_000, 128, 128


class PlainReader(nn.Module):
    """Padded documents and queries, with or without packed sequences."""

    def __init__(self, attention: str, packed: bool):
        super().__init__()
        self.attention, self.packed = attention, packed
        self.embedding = nn.Embedding(V, E)
        self.gru = nn.GRU(E, H, bidirectional=True, batch_first=True)

    def states(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding(tokens)
        if not self.packed:
            states, last = self.gru(x)
        else:
            states, last = self.gru(pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False))
            states, _ = pad_packed_sequence(states, batch_first=True)
        return states, torch.cat([last[0], last[1]], dim=-1)

    def forward(
        self, document: Tensor, lengths: Tensor, query: Tensor, query_lengths: Tensor, candidates: Tensor
    ) -> Tensor:
        mask = torch.arange(document.size(1), device=document.device) < lengths.unsqueeze(1)  # (B, D)
        query_mask = torch.arange(query.size(1), device=query.device) < query_lengths.unsqueeze(1)  # (B, L)
        d, _ = self.states(document, lengths)
        q, last = self.states(query, query_lengths)
        if self.attention == "sum":
            s = torch.bmm(d, last.unsqueeze(-1)).squeeze(-1).float().masked_fill(~mask, -torch.inf).softmax(1)
        else:
            m = torch.bmm(d, q.transpose(1, 2)).float()  # (B, D, L)
            alpha = m.masked_fill(~mask.unsqueeze(-1), -torch.inf).softmax(1)
            beta = m.masked_fill(~query_mask.unsqueeze(1), -torch.inf).softmax(2) * mask.unsqueeze(-1)
            s = torch.bmm(alpha, (beta.sum(1) / lengths.unsqueeze(-1)).unsqueeze(-1)).squeeze(-1)
        return ((document.unsqueeze(1) == candidates.unsqueeze(-1)) * s.unsqueeze(1)).sum(-1)  # (B, C)


def questions(rng: np.random.Generator, lengths: np.ndarray) -> tuple[ClozeBatch, tuple[Tensor, ...]]:
    """The same questions for us, and padded; the first candidate is the answer."""
    documents = [rng.zipf(1.2, n) % (V - 4) + 4 for n in lengths]
    queries = [rng.zipf(1.2, n) % (V - 4) + 4 for n in np.clip(np.rint(rng.lognormal(3.0, 0.6, B)), 5, 120).astype(int)]
    candidates = np.stack([rng.choice(document, 10) for document in documents])
    batch = collate_questions(documents, queries, list(candidates), candidates[:, 0].tolist(), np.arange(V))
    padded = (
        pad_sequence([torch.from_numpy(text) for text in texts], batch_first=True) for texts in (documents, queries)
    )
    document, query = padded
    return batch, (document, batch.document_lengths, query, batch.query_lengths, torch.from_numpy(candidates))


def draw(count: int, grouped: bool) -> list[tuple[ClozeBatch, tuple[Tensor, ...]]]:
    rng = np.random.default_rng(0)
    lengths = np.clip(np.rint(rng.lognormal(6.0, 0.35, count * B)), 150, 1200).astype(int)
    if grouped:
        lengths.sort()
    return [questions(rng, part) for part in lengths.reshape(count, B)]


def jobs(
    attention: str, side: str, count: int, grouped: bool, device: torch.device
) -> tuple[dict[str, Callable[[], None]], int]:
    """Training and inference over `count` batches, as functions, and their number of words."""
    torch.manual_seed(0)
    if side == "ours":
        sizes = dict(embedding_size=E, hidden_size=H, num_unknown=0, dropout=0.0)
        model: nn.Module = AttentionOverAttentionReader(V, attention, **sizes)
    else:
        model = PlainReader(attention, packed=side == "packed")
    model.to(device)
    data = measuring.on(draw(count, grouped), device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def loss(ours: ClozeBatch, padded: tuple[Tensor, ...]) -> Tensor:
        if side == "ours":
            return model.loss(ours)[0] / B
        return -model(*padded)[:, 0].clamp(min=1e-30).log().mean()

    def train(dtype: torch.dtype) -> Callable[[], None]:
        def run() -> None:
            model.train()
            for batch in data:
                with measuring.autocast(device, dtype):
                    value = loss(*batch)
                optimizer.zero_grad()
                value.backward()
                optimizer.step()

        return run

    def infer(dtype: torch.dtype) -> Callable[[], None]:
        @torch.no_grad()
        def run() -> None:
            model.eval()
            for batch, padded in data:
                with measuring.autocast(device, dtype):
                    if side == "ours":
                        weights, _ = model(batch)
                        model.candidate_probabilities(model.word_probabilities(weights, batch), batch)
                    else:
                        model(*padded)

        return run

    total = sum(int(batch.document_lengths.sum() + batch.query_lengths.sum()) for batch, _ in data)
    found = {}
    for name, dtype in measuring.precisions(device).items():
        found |= {f"train {name}": train(dtype), f"infer {name}": infer(dtype)}
    return found, total


def check(attention: str) -> None:
    """The packed side computes what ours does, so the two do the same work. (On the CPU, in full fp32.)"""
    torch.manual_seed(0)
    ours, plain = (
        AttentionOverAttentionReader(V, attention, num_unknown=0, dropout=0.0),
        PlainReader(attention, packed=True),
    )
    batch, padded = draw(1, False)[0]
    ours.eval().embedding.weight.data.copy_(plain.embedding.weight)
    for cell, suffix in zip(ours.encoders[0].layers[0], ("", "_reverse")):
        cell.weight_input.data.copy_(getattr(plain.gru, f"weight_ih_l0{suffix}"))
        cell.weight_hidden.data.copy_(getattr(plain.gru, f"weight_hh_l0{suffix}"))
        getattr(plain.gru, f"bias_hh_l0{suffix}").data.zero_()  # one bias is enough for both
        cell.bias.data.copy_(getattr(plain.gru, f"bias_ih_l0{suffix}"))
    with torch.no_grad():
        weights, _ = ours(batch)
        found = ours.candidate_probabilities(ours.word_probabilities(weights, batch), batch).view(B, 10)
        torch.testing.assert_close(found, plain(*padded), rtol=1e-3, atol=1e-6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=4)
    options = measuring.parse(parser)
    device = options.device
    for attention in ("over_attention", "sum"):
        check(attention)
        found = {side: jobs(attention, side, options.batches, False, device) for side in ("ours", "dense", "packed")}
        grouped = {side: jobs(attention, side, options.batches, True, device) for side in ("ours", "dense")}
        names, total = list(found["ours"][0]), found["ours"][1]
        seconds, sorted_seconds = (
            measuring.fastest(
                {(job, side): sides[side][0][job] for job in names for side in sides}, options.rounds, device
            )
            for sides in (found, grouped)
        )
        print(f"\nattention {attention}: {total / options.batches:.0f} words a batch of {B}")
        head = f"{'':12}{'ours, words/s':>14}{'dense':>9}{'ratio':>7}{'packed':>9}{'ratio':>7}"
        print(f"{head}{'grouped':>10}{'dense':>9}{'ratio':>7}{'peak MB':>9}{'dense':>7}")
        for job in names:
            ours, dense, packed = (total / seconds[job, side] for side in ("ours", "dense", "packed"))
            line = f"{job:12}{ours:14.0f}{dense:9.0f}{ours / dense:7.2f}{packed:9.0f}{ours / packed:7.2f}"
            ours, dense = (total / sorted_seconds[job, side] for side in ("ours", "dense"))
            line += f"{ours:10.0f}{dense:9.0f}{ours / dense:7.2f}"
            if job.endswith("fp32"):
                peaks = [
                    measuring.peak(jobs, (attention, side, options.batches, False), job, options.threads, device)
                    for side in ("ours", "dense")
                ]
                line += f"{peaks[0]:9.0f}{peaks[1]:7.0f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
