"""Does attention order words as gradients and leaving them out do? The model of Jain and Wallace, on SST-2 and IMDB.

Jain and Wallace 2019, "Attention is not Explanation", https://arxiv.org/abs/1902.10186, section 4.1.

    python benchmarks/correlations.py                            # the table of docs/faithfulness.md, as stored
    python benchmarks/correlations.py --root DATA --out FOLDER    # trains and measures again, and stores that

The model is theirs: one additive attention with a learnt query over a bidirectional LSTM, or over words that know
nothing of each other, and an output layer that sees the context only. Training skips models that the folder has.

Shapes: B texts, N words of a text, P words of all texts, E embedding size, D = 2 H size of a state.
"""

import argparse
import json
import math
import random
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from lightning import Trainer, seed_everything
from torch import Tensor, nn

from zoo.data import IMDB, SST
from zoo.explanations.ranks import kendall_tau
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.tasks.optimizer import AdamW
from zoo.training.checkpoints import ExactCheckpoints

RESULTS = Path(__file__).with_suffix(".json")
MOST_WORDS = 400  # of a review
DATA: dict[str, Any] = {
    "SST-2": partial(SST, vocab_size=16000, batch_size=32),
    "IMDB": partial(IMDB, split_sentences=False, vocab_size=16000, batch_size=32, max_words=MOST_WORDS),
}
EPOCHS = {"SST-2": 8, "IMDB": 4}
ENCODERS = {
    "lstm": "bidirectional LSTM",
    "lstm, pretrained": "bidirectional LSTM, word vectors pretrained on IMDB",
    "words": "each word by itself",
}
PAIRS = {
    "attention, gradient": "attention and gradient",
    "attention, leaving out": "attention and leaving out",
    "gradient, leaving out": "gradient and leaving out",
    "attention, whole gradient": "attention and gradient through the weights too",
}

# Means and standard deviations over test texts, and accuracies, from the outputs that the authors have published:
# https://github.com/successar/AttentionExplanation, commit 425a89a, graph_outputs/CorrStats_kendalltau (al, ag, gl) and
# graph_outputs/evaluate, the files {sst,imdb}+{lstm,average}+tanh.
THEIRS: dict[str, dict[str, dict[str, Any]]] = {
    "SST-2": {
        "lstm": {
            "accuracy": [80.81],
            "attention, gradient": (0.35, 0.21),
            "attention, leaving out": (0.29, 0.19),
            "gradient, leaving out": (0.66, 0.16),
        },
        "words": {
            "accuracy": [80.70],
            "attention, gradient": (0.61, 0.20),
            "attention, leaving out": (0.62, 0.15),
            "gradient, leaving out": (0.56, 0.25),
        },
    },
    "IMDB": {
        "lstm": {
            "accuracy": [89.81],
            "attention, gradient": (0.44, 0.06),
            "attention, leaving out": (0.34, 0.07),
            "gradient, leaving out": (0.52, 0.10),
        },
        "words": {
            "accuracy": [88.27],
            "attention, gradient": (0.67, 0.05),
            "attention, leaving out": (0.58, 0.10),
            "gradient, leaving out": (0.64, 0.19),
        },
    },
}


class EachWord(nn.Module):
    """tanh(W x) of each word: an encoder whose states know nothing of other words.

    Args:
        input_size: E.
        size: D.
    """

    def __init__(self, input_size: int, size: int):
        super().__init__()
        self.projection = nn.Linear(input_size, size)

    def flat(self, inputs: Tensor, lengths: Tensor, rows: Tensor | None = None) -> tuple[Tensor, list[Any]]:
        """As `RecurrentEncoder.flat`: inputs (R, E), rows (P,) -> states (P, D), and no final states."""
        states = torch.tanh(self.projection(inputs))
        return states if rows is None else states[rows], []


def untrained(encoder: str, hidden_size: int = 128, embedding_size: int = 100, **settings: Any) -> Any:
    """A model with one of `ENCODERS`; settings as of StructuredSelfAttention."""
    model: Any = StructuredSelfAttention(
        embedding_size=embedding_size,
        hidden_size=hidden_size,
        attention_size=hidden_size,
        hops=1,
        penalty=0.0,
        mlp_size=0,
        **settings,
    )
    if encoder == "words":
        model.encoder = EachWord(embedding_size, 2 * hidden_size)
    return model


def trained(name: str, encoder: str, seed: int, options: argparse.Namespace) -> Any:
    """The model of a data set, encoder and seed, trained now unless its file is there.

    Args:
        name: one of `DATA`.
        encoder: one of `ENCODERS`.
        seed: of parameters, dropout and the order of the data.
        options: root, out, epochs.
    """
    folder = Path(options.out) / name / encoder / f"seed{seed}"
    seed_everything(seed)
    vectors = {"word_vectors": "word2vec", "extra_text": ["IMDB"]} if encoder == "lstm, pretrained" else {}
    data = DATA[name](root=options.root, seed=seed, **vectors)
    model = untrained(encoder, vocab_size=data.vocab_size, num_classes=2)
    model.optimizer = partial(AdamW, lr=0.001)
    best = ExactCheckpoints(dirpath=folder, filename="best", monitor="val/accuracy", mode="max")
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=options.epochs or EPOCHS[name],
        gradient_clip_val=1.0,
        callbacks=[best],
        logger=False,
        enable_progress_bar=False,
        default_root_dir=folder,
    )
    if not (folder / "best.ckpt").exists():
        trainer.fit(model, data)
    trainer.validate(model, data, ckpt_path=folder / "best.ckpt", verbose=False)
    return model.eval()


def gradient_by_word(model: Any, tokens: Tensor, through_weights: bool) -> tuple[Tensor, Tensor]:
    """The attention to each word, and |gradient times embedding| of the probability of the chosen label.

    Args:
        model: of `untrained`.
        tokens: (N,) the words.
        through_weights: let the gradient pass the attention weights too; Jain and Wallace hold them fixed.

    Returns:
        two (N,).
    """
    embedded = model.embedding(tokens).detach().requires_grad_()
    states, _ = model.encoder.flat(embedded, torch.tensor([len(tokens)]))
    _, weights = model.attention(states, torch.ones(1, len(tokens), dtype=torch.bool))  # (1, 1, N)
    context = (weights if through_weights else weights.detach()) @ states.unsqueeze(0)
    probability = model.classifier(model.mlp(context)).softmax(-1).max()
    (gradient,) = torch.autograd.grad(probability, [embedded])
    return weights[0, 0].detach(), (gradient * embedded.detach()).sum(-1).abs()


@torch.no_grad()
def left_out(model: Any, words: list[int]) -> Tensor:
    """How far the output moves without each of the N words: (N,)."""
    whole = _probabilities(model, [words])
    without = [words[:n] + words[n + 1 :] for n in range(len(words))]
    found = torch.cat([_probabilities(model, without[start : start + 64]) for start in range(0, len(without), 64)])
    return (found - whole).abs().sum(-1) / 2


def _probabilities(model: Any, texts: Sequence[list[int]]) -> Tensor:
    logits, _ = model.read(model.collate([[words] for words in texts]))
    return logits.softmax(-1)


def correlations(model: Any, words: list[int]) -> dict[str, float]:
    """Kendall's tau of each of `PAIRS` for one text of at least two words."""
    tokens = torch.tensor(words)
    attention, gradient = gradient_by_word(model, tokens, through_weights=False)
    _, whole_gradient = gradient_by_word(model, tokens, through_weights=True)
    without = left_out(model, words)
    return {
        "attention, gradient": kendall_tau(attention, gradient),
        "attention, leaving out": kendall_tau(attention, without),
        "gradient, leaving out": kendall_tau(gradient, without),
        "attention, whole gradient": kendall_tau(attention, whole_gradient),
    }


def over_texts(model: Any, texts: Sequence[str]) -> dict[str, list[float]]:
    """The correlations of each text, where they exist: not of a single word, nor where all values are equal."""
    taus: dict[str, list[float]] = {pair: [] for pair in PAIRS}
    read = [model.encode(text)[0][0][:MOST_WORDS] for text in texts]
    for words in read:
        for pair, tau in correlations(model, words).items() if len(words) > 1 else ():
            taus[pair] += [] if math.isnan(tau) else [tau]
    return taus


def accuracy(model: Any, examples: Sequence[Any]) -> float:
    """In percent."""
    said = model.classify([example.text for example in examples])
    return 100 * mean(one.label == example.labels[0] for one, example in zip(said, examples, strict=True))


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Trains all models and measures them on test texts."""
    found: dict[str, Any] = {}
    for name in options.data:
        data = DATA[name](root=options.root)
        data.fetch()
        examples = list(data.examples("test"))
        chosen = sorted(random.Random(0).sample(range(len(examples)), min(options.texts, len(examples))))
        texts = [examples[number].text for number in chosen]
        found[name] = {}
        for encoder in options.encoders:
            models = [trained(name, encoder, seed, options) for seed in range(1, options.seeds + 1)]
            of_models = [over_texts(model, texts) for model in models]
            taus = {pair: list(chain.from_iterable(of[pair] for of in of_models)) for pair in PAIRS}
            found[name][encoder] = {
                "accuracy": [round(accuracy(model, examples), 2) for model in models],
                **{pair: [round(mean(of), 4), round(stdev(of), 4)] for pair, of in taus.items()},
            }
    return {"torch": torch.__version__.split("+")[0], "found": found}


def table(stored: dict[str, Any]) -> str:
    """Their figures and ours, side by side."""
    rows = [
        f"| data, encoder | | accuracy, % | {' | '.join(PAIRS.values())} |",
        f"|---|---|---:|{'---:|' * len(PAIRS)}",
    ]
    for name, encoders in stored["found"].items():
        for encoder, ours in encoders.items():
            title = f"{name}, {ENCODERS[encoder]}"
            for whose, figures in (("theirs", THEIRS[name].get(encoder)), ("ours", ours)):
                if figures:
                    cells = [f"{mean(figures['accuracy']):.1f}", *(_figure(figures.get(pair)) for pair in PAIRS)]
                    rows.append(f"| {title} | {whose} | {' | '.join(cells)} |")
                    title = '"'
    return "\n".join(rows)


def _figure(found: Sequence[float] | None) -> str:
    return "–" if found is None else f"{found[0]:.2f} ± {found[1]:.2f}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="of the data: trains and measures; by default what is stored is printed")
    parser.add_argument("--out", default="runs/correlations", help="folder of the trained models")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the results are stored")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--encoders", nargs="+", choices=ENCODERS, default=list(ENCODERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="instead of those of each data set")
    parser.add_argument("--texts", type=int, default=300, help="test texts that are measured")
    options = parser.parse_args(argv)
    if options.root:
        found = measured(options)
        options.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(json.loads(options.results.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
