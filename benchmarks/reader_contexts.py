"""How much should a reader's model of contexts count? The options of its re-ranking, fitted on validation questions.

    python benchmarks/reader_contexts.py local-dir:READER --kind NE --root DATA

For each share of the attention by contexts, the weights of expectation and of unknown words maximise the likelihood of
the right candidates (a convex problem, in which the logarithm of the attention has a weight too; the others are divided
by it, which changes no answer). The accuracy is that of ten-fold cross-validation. The options of the likeliest share
go into the recipe.
"""

import argparse

import torch
from torch import Tensor

import zoo
from zoo.data import CBTLike
from zoo.layers.masking import lengths_to_mask
from zoo.layers.packed import segment_ids, to_padded
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.text import UNK

FOLDS, PENALTY, LEAST = 10, 1e-4, 1e-6


def features(model: AttentionOverAttentionReader, data: CBTLike) -> tuple[Tensor, Tensor, Tensor]:
    """s, a, expectation and unknown of each candidate (N, C, 4), which are real (N, C), the right one (N,) or -1."""
    contexts, rows, right = model.contexts, [], []
    for batch in data.val_dataloader():
        texts = model.texts(batch)
        near, expected = model.by_contexts(*texts)
        model.contexts = None
        weights = model(batch)[0]
        model.contexts = contexts
        real = lengths_to_mask(batch.document_lengths)
        counts = model.word_probabilities(torch.ones_like(weights), batch).clamp(min=1)
        by_word = [model.word_probabilities(part, batch) for part in (weights, near[real], expected[real])]
        by_word[2] = by_word[2] / counts
        columns = [model.candidate_probabilities(part, batch) for part in (*by_word, (batch.words == UNK).float())]
        mask = lengths_to_mask(batch.candidate_counts)
        rows += [row[m] for row, m in zip(to_padded(torch.stack(columns, 1).double(), mask), mask, strict=True)]
        found = (batch.candidates == batch.known_answers()[segment_ids(batch.candidate_counts)]) & (
            batch.candidates >= 0
        )
        right += [int(row.int().argmax()) if row.any() else -1 for row in to_padded(found, mask)]
    mask = lengths_to_mask(torch.tensor([len(row) for row in rows]))
    return to_padded(torch.cat(rows), mask), mask, torch.tensor(right)


def fit(columns: Tensor, mask: Tensor, right: Tensor) -> Tensor:
    """Weights of the columns (N, C, F) that maximise the likelihood of the right candidates."""
    w = torch.zeros(columns.size(2), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=300, line_search_fn="strong_wolfe")
    asked = right >= 0

    def loss() -> Tensor:
        optimizer.zero_grad()
        log_probs = (columns @ w).masked_fill(~mask, -1e9).log_softmax(1)[asked]
        total = -log_probs.gather(1, right[asked].unsqueeze(1)).mean() + PENALTY * w.square().sum()
        total.backward()
        return total

    optimizer.step(loss)
    return w.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--kind", choices=["NE", "CN"], required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--shares", nargs="+", type=float, default=[n / 10 for n in range(10)])
    options = parser.parse_args()
    model = zoo.load(options.name)
    data = CBTLike(kind=options.kind, vocab_size=model.config["vocab_size"], batch_size=64, root=options.root)
    data.prepare_data()
    data.setup("fit")
    with torch.no_grad():
        found, mask, right = features(model, data)
    fold = torch.randperm(len(right), generator=torch.Generator().manual_seed(0)) % FOLDS
    for share in options.shares:
        mixed = (1 - share) * found[..., 0] + share * found[..., 1]
        columns = torch.stack([mixed.clamp(min=LEAST).log(), found[..., 2], found[..., 3]], 2)
        hits = 0
        for held in range(FOLDS):
            learnt, tested = fold != held, fold == held
            w = fit(columns[learnt], mask[learnt], right[learnt])
            hits += int(((columns[tested] @ w).masked_fill(~mask[tested], -1e9).argmax(1) == right[tested]).sum())
        w = fit(columns, mask, right)
        log_probs = (columns @ w).masked_fill(~mask, -1e9).log_softmax(1)
        loss = -log_probs[right >= 0].gather(1, right[right >= 0].unsqueeze(1)).mean()
        print(
            f"context_share {share:.1f}: expectation_weight {w[1] / w[0]:.3f}, unknown_weight {w[2] / w[0]:.3f}; "
            f"loss {loss:.4f} nats, accuracy {100 * hits / len(right):.2f}"
        )


if __name__ == "__main__":
    main()
