"""How much should a reader's model of contexts count? The options of its re-ranking, fitted on validation questions.

    python benchmarks/reader_contexts.py local-dir:READER --kind CN --root DATA
    python benchmarks/reader_contexts.py local-dir:READER --kind NE --unknown 0.8 --root DATA

For each share of the attention by contexts, the weights of expectation and of unknown words maximise the likelihood of
the right candidates (a convex problem, in which the logarithm of the attention has a weight too; the others are divided
by it, which changes no answer). The accuracy is that of ten-fold cross-validation. The options of the likeliest share
go into the recipe.

The books of the validation questions share names with those of the training, and new books do not. With `--unknown` so
many of the candidates are unknown words, as in the training of the reader of names.
"""

import argparse

import torch
from torch import Tensor

import zoo
from zoo.data import CBTLike
from zoo.layers.masking import lengths_to_mask
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.tasks.reranking import learn_weights
from zoo.text import UNK

FOLDS, LEAST = 10, 1e-6


def features(model: AttentionOverAttentionReader, data: CBTLike, unknown: float) -> tuple[list[Tensor], list[int]]:
    """s, a, expectation and unknown of each question's candidates, (C, 4), and the place of the right one or -1.

    Args:
        unknown: share of the candidates that are made unknown.
    """
    contexts, rows, right = model.contexts, [], []
    draw = torch.Generator().manual_seed(0)
    for batch in data.val_dataloader():
        chosen = batch.candidate_places()
        chosen = chosen[chosen >= 0]
        chosen = chosen[torch.rand(len(chosen), generator=draw) < unknown]
        batch = batch._replace(words=batch.words.index_fill(0, chosen, UNK))
        near, expected = model.by_contexts(*model.texts(batch))
        model.contexts = None
        weights, _ = model(batch)
        model.contexts = contexts
        real = lengths_to_mask(batch.document_lengths)
        counts = model.word_probabilities(torch.ones_like(weights), batch).clamp(min=1)
        s, a, sums = (model.word_probabilities(part, batch) for part in (weights, near[real], expected[real]))
        columns = [model.candidate_probabilities(x, batch) for x in (s, a, sums / counts, (batch.words == UNK).float())]
        sizes = batch.candidate_counts.tolist()
        rows += torch.stack(columns, 1).double().split(sizes)
        for candidates, answer in zip(batch.candidates.split(sizes), batch.known_answers().tolist(), strict=True):
            listed = candidates.tolist()
            right.append(listed.index(answer) if answer >= 0 and answer in listed else -1)
    return rows, right


def mixed(rows: list[Tensor], share: float) -> list[Tensor]:
    """Logarithm of the attention, expectation and unknown, (C, 3) of each question."""
    attention = [((1 - share) * row[:, 0] + share * row[:, 1]).clamp(min=LEAST).log() for row in rows]
    return [torch.cat([log.unsqueeze(1), row[:, 2:]], 1) for log, row in zip(attention, rows, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--kind", choices=["NE", "CN"], required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--unknown", type=float, default=0.0)
    parser.add_argument("--shares", nargs="+", type=float, default=[n / 10 for n in range(10)])
    options = parser.parse_args()
    model = zoo.load(options.name)
    data = CBTLike(kind=options.kind, vocab_size=model.config["vocab_size"], batch_size=64, root=options.root)
    data.prepare_data()
    data.setup("fit")
    with torch.no_grad():
        rows, right = features(model, data, options.unknown)
    fold = (torch.randperm(len(right), generator=torch.Generator().manual_seed(0)) % FOLDS).tolist()
    for share in options.shares:
        questions = list(zip(mixed(rows, share), right, fold, strict=True))
        hits = 0
        for held in range(FOLDS):
            w = learn_weights([(x, place) for x, place, part in questions if part != held and place >= 0])
            hits += sum(int((x @ w).argmax()) == place for x, place, part in questions if part == held)
        known = [(x, place) for x, place, _ in questions if place >= 0]
        w = learn_weights(known)
        loss = -torch.stack([(x @ w).log_softmax(0)[place] for x, place in known]).mean()
        print(
            f"context_share {share:.1f}: expectation_weight {w[1] / w[0]:.3f}, unknown_weight {w[2] / w[0]:.3f}; "
            f"loss {loss:.4f} nats, accuracy {100 * hits / len(right):.2f}"
        )


if __name__ == "__main__":
    main()
