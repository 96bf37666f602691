"""What each kernel saves of a training step, for the model of each kind of recipe.

    python benchmarks/kernels.py [--rounds 5] [--only han.imdb]

A model has the settings of its recipe and a batch of random words of the lengths that its data set has. A step is loss,
backward pass and AdamW. All kernels, each kernel switched off and plain torch take turns on one thread; a figure is the
shortest of the rounds (whatever else the machine does only adds), in seconds of processor time. It says by how much a
step without the kernel is longer.
"""

import argparse
import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

import zoo
from zoo.batches.captioning import CaptionBatch
from zoo.layers import kernels
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.cores import processor

RECIPES = Path(__file__).parents[1] / "recipes"
# (items, words of each): of a batch, as the data set of the recipe has them
SHAPES = {
    "luong_general.multi30k_en_de": (64, 14),
    "bahdanau.multi30k_en_de": (64, 14),
    "transformer_tiny.multi30k_en_de": (128, 14),
    "tutorial_location.tatoeba_fra_en": (64, 8),
    "han.imdb": (32, 250),
    "structured_self_attention.imdb": (32, 250),
    "attention_classifier_local_p.imdb": (32, 250),
    "structured_self_attention.sst2": (64, 20),
    "luong_concat_no_feed.multi30k_en_de": (64, 14),
    "show_attend_tell_soft.flickr8k": (32, 11),
    "reference_key_value_predict_small.ptb": (20, 35),
    "attention_over_attention.cbtlike_cn": (64, 350),
}


def model_of(recipe: str) -> Any:
    """The model of a recipe, untrained, or that of the weight that it starts from."""
    part = yaml.safe_load((RECIPES / f"{recipe}.yaml").read_text(encoding="utf-8"))["model"]
    arguments = part["init_args"] | ({"backbone_weights": None} if "backbone_weights" in part["init_args"] else {})
    module, _, name = part["class_path"].rpartition(".")
    return (zoo.load if part["class_path"] == "zoo.load" else getattr(importlib.import_module(module), name))(
        **arguments
    ).train()


def batch_of(model: Any, items: int, words: int) -> Any:
    """A batch of random words, all of whose texts are between a half and one and a half times as long as `words`."""
    rng = np.random.default_rng(0)
    size = model.config.get("vocab_size") or model.config["src_vocab_size"]

    def texts(mean: int) -> list[list[int]]:
        return [
            (rng.zipf(1.3, rng.integers(mean // 2, mean * 3 // 2 + 1)) % (size - 4) + 4).tolist() for _ in range(items)
        ]

    if hasattr(model, "translate"):
        from zoo.batches.translation import pad_batch

        return pad_batch(texts(words), texts(words))
    if hasattr(model, "caption"):
        captions = torch.tensor(rng.integers(4, size, (items, 5, words + 2)))
        captions[..., 0], captions[..., -1] = 2, 3
        features = torch.rand(items, model.cells, model.adapter[0].in_features)
        return CaptionBatch(features, captions, torch.full((items, 5), words + 1))
    if hasattr(model, "perplexity"):
        from zoo.batches.language_modelling import LMBatch

        stream = torch.tensor(rng.zipf(1.3, (items, words + 1)) % (size - 4) + 4)
        return LMBatch(stream[:, :-1], stream[:, 1:], first=True)
    if hasattr(model, "answer"):
        from zoo.batches.reading import collate_questions

        documents, queries = ([np.array(text) for text in texts(n)] for n in (words, 25))
        answers = [int(d[0]) for d in documents]
        return collate_questions(documents, queries, [d[:10] for d in documents], answers, np.arange(size))
    from zoo.batches.classification import collate_documents, collate_texts

    labels = torch.tensor(rng.integers(0, 2, items))
    if getattr(model, "structure", "") == "document":
        documents = [[text[n : n + 20] for n in range(0, len(text), 20)] for text in texts(words)]
        return collate_documents(documents, labels)
    return collate_texts(texts(words), labels)


def step_of(model: Any, batch: Any) -> Callable[[], None]:
    """One training step."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        model.loss(batch)[0].backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None]) -> float:
    """Processor time of a step."""
    start = time.thread_time()
    step()
    return time.thread_time() - start


def measure(recipe: str, rounds: int) -> dict[str, float]:
    """Share of a step's time that each kernel saves, and all of them."""
    model = model_of(recipe)
    step = step_of(model, batch_of(model, *SHAPES[recipe]))
    ways = {"": ("_",), **{name: (name,) for name in kernels.KERNELS}, "all": kernels.KERNELS}
    found: dict[str, list[float]] = {way: [] for way in ways}
    for n in range(rounds + 1):
        for way, off in ways.items():
            if way:
                with kernels.plain(*off):
                    taken = seconds(step)
            else:
                taken = seconds(step)
            if n:  # the first round warms up
                found[way].append(taken)
    best = min(found.pop(""))
    return {"seconds": best, **{way: min(times) / best - 1 for way, times in found.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*", default=list(SHAPES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as `zoo fit` does
    names = [*kernels.KERNELS, "all"]
    print(f"{processor()} ({torch.backends.cpu.get_cpu_capability()}), torch {torch.__version__}, one thread, fp32\n")
    print(f"| recipe | step, s | {' | '.join(names)} |\n|---|---:|{'---:|' * len(names)}")
    for recipe in options.only:
        found = measure(recipe, options.rounds)
        print(
            f"| {recipe} | {found['seconds']:.3f} | {' | '.join(f'{found[name]:+.0%}' for name in names)} |", flush=True
        )


if __name__ == "__main__":
    main()
