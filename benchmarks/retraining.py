"""The same classifier with learnt and with uniform attention, and how much attention varies over seeds, on SST-2.

Wiegreffe and Pinter 2019, "Attention is not not Explanation", https://aclanthology.org/D19-1002, sections 3.2 and 3.3.

    python benchmarks/retraining.py                                   # the tables of docs/faithfulness.md, as stored
    python benchmarks/retraining.py --root DATA --out runs/retraining    # trains and measures again, and stores that

Only the weights become uniform; all else, the initial parameters and the order of the data among it, is the same for a
seed. Training skips models that the folder has. Further options go to `zoo fit`, e.g. --trainer.max_epochs 1.

Shapes: N words of a text, C classes.
"""

import argparse
import json
import random
import shutil
import time
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor

import zoo
from zoo.cli import main as zoo_command
from zoo.comparison.significance import half_interval
from zoo.data import SST
from zoo.explanations.counterfactual import adversary
from zoo.explanations.distances import jensen_shannon, total_variation
from zoo.explanations.intervals import Interval, interval
from zoo.explanations.measure import decisions
from zoo.tasks.evaluation import without_dropout

HERE = Path(__file__).parent
RECIPE = HERE / "retraining.yaml"
RESULTS = HERE / "retraining.json"
KINDS = {"learnt": "softmax", "uniform": "uniform"}
SCORES = {
    "learnt": "learnt",
    "uniform": "uniform, in training and test",
    "made uniform": "learnt in training, uniform in the test",
}
MEASURES = {
    "seeds": "of a model with another seed",
    "uniform": "uniform, of the model trained so",
    "uniform, other seeds": "uniform, of a model trained so with another seed",
    "adversary": "found by the adversary for this model",
}


@zoo.register_normalization("uniform")
def uniform(scores: Tensor, mask: Tensor) -> Tensor:
    """The same weight for each word: scores (B, T, N) of any value, mask bool, True where attention may go."""
    real = mask.to(scores.dtype).expand_as(scores)
    return real / real.sum(-1, keepdim=True).clamp(min=1)


class Answer(NamedTuple):
    """What a model says about a text."""

    label: str | None
    output: Tensor  # (C,) probabilities
    attention: Tensor  # (N,)


def trained(kind: str, seed: int, options: argparse.Namespace, settings: Sequence[str]) -> Any:
    """The model of a kind and seed, trained now unless its folder has it.

    Args:
        kind: one of `KINDS`.
        seed: of parameters, dropout and the order of the data.
        options: root, out.
        settings: further arguments of `zoo fit`.

    Raises:
        RuntimeError: the training failed.
    """
    folder = Path(options.out) / kind / f"seed{seed}"
    if not (folder / "weights").is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        given = ["--seed_everything", str(seed), "--data.seed", str(seed), "--model.normalize", KINDS[kind]]
        places = ["--data.root", options.root, "--trainer.default_root_dir", str(folder)]
        quiet = ["--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]
        best = folder / RECIPE.stem / "checkpoints" / "best.ckpt"
        for command in (
            ["fit", "--config", str(RECIPE), *given, *places, *quiet, *settings],
            ["export", str(best), str(folder / "weights")],
        ):
            if zoo_command(command):
                raise RuntimeError(f"zoo {command[0]} failed for {kind} attention, seed {seed}")
    return without_dropout(zoo.load(f"local-dir:{folder / 'weights'}"))


def answers(model: Any, texts: Sequence[str]) -> list[Answer]:
    """The answers about all texts."""
    return [
        Answer(found.label, torch.tensor(list(found.probabilities.values())), found.attention[0][0])
        for found in model.classify(list(texts))
    ]


def accuracy(found: Sequence[Answer], labels: Sequence[str]) -> float:
    """In percent."""
    return 100 * mean(answer.label == label for answer, label in zip(found, labels, strict=True))


def distances(pairs: Sequence[tuple[Answer, Answer]]) -> tuple[float, float]:
    """Means over pairs of answers about a text: the divergence of attention, and the change of the output."""
    return (
        mean(float(jensen_shannon(a.attention, b.attention)) for a, b in pairs),
        mean(float(total_variation(a.output, b.output)) for a, b in pairs),
    )


def adversarial(model: Any, text: str, number: int) -> tuple[float, float]:
    """The divergence of the weights that the adversary finds for a text, and the change of the output."""
    generator = torch.Generator().manual_seed(number)
    (decision,) = decisions(model, text, generator)
    weights = decision.weights.detach()
    found, other = adversary(decision.attend, weights, decision.groups, decision.show, decision.distance, generator)
    with torch.no_grad():
        outputs = decision.attend(torch.stack([weights, other]))
    return found, float(decision.distance(outputs[0], outputs[1]))


def measured(options: argparse.Namespace, settings: Sequence[str]) -> dict[str, Any]:
    """Trains all models, and compares them on the test sentences."""
    began = time.process_time()
    data = SST(root=options.root)
    data.fetch()
    examples = [example for example in data.examples("test") if len(example.text.split()) > 1]
    texts, labels = [example.text for example in examples], [example.labels[0] for example in examples]
    seeds = range(1, options.seeds + 1)
    models = {(kind, seed): trained(kind, seed, options, settings) for seed in seeds for kind in KINDS}
    said = {key: answers(model, texts) for key, model in models.items()}
    scores = {kind: [accuracy(said[kind, seed], labels) for seed in seeds] for kind in KINDS}
    looked_at = random.Random(0).sample(range(len(texts)), min(options.texts, len(texts)))
    of_texts: dict[str, list[tuple[float, float]]] = {measure: [] for measure in MEASURES}
    for n in looked_at:
        learnt, other = ([said[kind, seed][n] for seed in seeds] for kind in KINDS)
        found = [adversarial(models["learnt", seed], texts[n], n) for seed in seeds]
        of_texts["seeds"].append(distances(list(combinations(learnt, 2))))
        of_texts["uniform"].append(distances(list(zip(learnt, other, strict=True))))
        apart = [(a, b) for (n_a, a), (n_b, b) in product(enumerate(learnt), enumerate(other)) if n_a != n_b]
        of_texts["uniform, other seeds"].append(distances(apart))
        of_texts["adversary"].append((mean(d for d, _ in found), mean(change for _, change in found)))
    scores["made uniform"] = []
    for seed in seeds:
        models["learnt", seed].attention.normalize = uniform
        scores["made uniform"].append(accuracy(answers(models["learnt", seed], texts), labels))
    figures = {
        measure: {part: interval(column)._asdict() for part, column in zip(("attention", "output"), zip(*rows))}
        for measure, rows in of_texts.items()
    }
    return {
        "texts": len(texts),
        "torch": torch.__version__.split("+")[0],
        "seconds": round(time.process_time() - began),
        "accuracy": {kind: [round(score, 2) for score in found] for kind, found in scores.items()},
        "distances": figures,
    }


def table(found: dict[str, Any]) -> str:
    """Accuracy of each kind, then how different weights are that others have."""
    scores = found["accuracy"]
    rows = ["| attention | accuracy, % | of each seed |", "|---|---:|---|"]
    rows += [f"| {title} | {_mean(scores[kind])} | {_each(scores[kind])} |" for kind, title in SCORES.items()]
    gained = [a - b for a, b in zip(scores["learnt"], scores["uniform"], strict=True)]
    rows += [f"| learnt minus uniform | {_mean(gained)} | {_each(gained)} |", ""]
    rows += [
        "| other weights | divergence from its own | change of the output |",
        "|---|---:|---:|",
    ]
    for measure, title in MEASURES.items():
        cells = [_interval(Interval(**found["distances"][measure][part])) for part in ("attention", "output")]
        rows.append(f"| {title} | {cells[0]} | {cells[1]} |")
    return "\n".join(rows)


def _mean(values: Sequence[float]) -> str:
    half = half_interval(values)
    return f"{mean(values):.2f}" + ("" if half is None else f" ± {half:.2f}")


def _each(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _interval(found: Interval) -> str:
    return f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="of the data: trains and measures; by default what is stored is printed")
    parser.add_argument("--out", default="runs/retraining", help="folder of the trained models")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the results are stored")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=100, help="test sentences whose attention is compared")
    options, settings = parser.parse_known_args(argv)
    if options.root:
        found = measured(options, settings)
        options.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(json.loads(options.results.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
