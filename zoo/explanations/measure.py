"""`zoo.faithfulness`: all measures for the answers of a model about some inputs."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from zoo.explanations import captioners, classifiers, translators
from zoo.explanations.certificate import DIFFERENT, ORDERS, ROWS, Certificate, margins
from zoo.explanations.counterfactual import adversary, permutation_change
from zoo.explanations.decision import Decision
from zoo.explanations.erasure import erasure, random_orders, top_first
from zoo.explanations.given import attention_layers
from zoo.explanations.intervals import interval
from zoo.explanations.ranks import kendall_tau
from zoo.tasks.base import ZooModule
from zoo.tasks.evaluation import without_dropout
from zoo.utils.numbers_given import check_integer

SEEDS = 2**32  # so many; with a larger one the generator of an input would overflow
PERMUTATIONS = 50
LEFT_OUT = 32  # words of an input, at most, that are left out one by one

Explained = classifiers.TextDecision | translators.TokenDecision | captioners.WordDecision

# Of each task: what raises ValueError for a model that cannot be explained, and the decisions about one input.
TASKS: dict[str, tuple[Callable[[Any], object], Callable[..., Sequence[Explained]]]] = {
    "classification": (attention_layers, lambda model, text, generator: classifiers.decisions(model, text)),
    "translation": (translators.shown_layers, translators.decisions),
    "captioning": (captioners.check, captioners.decisions),
}


def faithfulness(
    model: ZooModule,
    inputs: Iterable[Any],
    name: str | None = None,
    seed: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
    data: str = "",
) -> Certificate:
    """Measures whether the attention of a model explains its answers.

    Args:
        model: a classifier, translator or captioner with attention, on the CPU.
        inputs: texts, pairs of texts, or images, as its verb takes them; those with fewer than two words, or
            to which a classifier of several labels gives none, are left out.
        name: of the model, for the certificate; by default that of its class.
        seed: of the random orders, permutations and starts; the same inputs and seed give the same certificate.
        progress: wraps the inputs, e.g. `tqdm`.
        data: what the inputs are from, for the certificate.

    Raises:
        ValueError: the task has no certificate, the model has no attention whose weights can be given or is on another
            device, an input cannot be read, there are no inputs, or the seed is negative or above 2**32 - 1.
        TypeError: an input is of another kind, or `inputs` is a single one.
    """
    check_seed(seed)
    check_model(model)
    if isinstance(inputs, str | bytes) or not isinstance(inputs, Iterable):
        raise TypeError(f"inputs is a list; got one {type(inputs).__name__}: put it into a list")
    began = time.process_time()
    values: dict[str, list[float]] = defaultdict(list)
    counts: list[int] = []
    number = 0
    for number, source in enumerate(progress(inputs), 1):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + number - 1)
        try:
            with torch.inference_mode(False), torch.enable_grad():
                found = [measured(one, generator) for one in decisions(model, source, generator)]
        except (ValueError, TypeError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"input {number}{_shown(source)}: {error}") from error
        counts += [len(found)] if found else []
        for measure in found[0] if found else ():
            values[measure].append(_mean([one[measure] for one in found]))
    if not counts:
        raise ValueError("a certificate needs inputs with at least two words and an answer each; got none")
    values["margin"] = margins(values)
    figures = {}
    for measure, of_inputs in values.items():
        try:
            figures[measure] = interval(of_inputs, seed)
        except ValueError as error:
            raise ValueError(f"{ROWS[measure]}: {error}") from error
    seconds = round(time.process_time() - began)
    name = type(model).__name__ if name is None else name
    return Certificate(name, model.task.name, number, len(counts), sum(counts), seed, figures, seconds, data)


def check_seed(seed: int) -> None:
    """Raises TypeError or ValueError for a seed that the generators do not take."""
    check_integer("seed", seed)
    if not 0 <= seed < SEEDS:
        raise ValueError(f"seed must be from 0 to {SEEDS - 1}; got {seed}")


def check_model(model: ZooModule) -> None:
    """Raises TypeError or ValueError unless the answers of a model can be explained."""
    if not isinstance(model, ZooModule):
        raise TypeError(f"a model is explained, such as zoo.load gives; got {type(model).__name__}")
    if model.task.name not in TASKS:
        raise ValueError(f"models for {model.task.name} cannot be explained; those for {', '.join(TASKS)} can")
    if model.device.type != "cpu":
        raise ValueError(f"a model is explained on the CPU; this one is on {model.device}: call model.cpu() first")
    model.check_ready()
    TASKS[model.task.name][0](model)


def decisions(model: ZooModule, source: Any, generator: torch.Generator) -> Sequence[Explained]:
    """The decisions of a model about a raw input; none if it has fewer than two words, or is given no label.

    Args:
        model: a classifier, translator or captioner with attention, on the CPU; it is not modified.
        source: as its verb takes it.
        generator: draws words of a translation or caption.

    Raises:
        ValueError: the task is another one, or the model has no attention, is on another device or in half precision.
        TypeError: the input is of another kind.
    """
    check_model(model)
    if model.config.get("pair"):
        is_pair = isinstance(source, tuple | list) and len(source) == 2
        if not is_pair or not all(isinstance(text, str) for text in source):
            raise TypeError(f"{type(model).__name__} of pairs is explained by two strings; got {source!r:.40}")
    elif model.task.name != "captioning" and not isinstance(source, str):
        raise TypeError(f"{type(model).__name__} is explained by a string; got {type(source).__name__}")
    return TASKS[model.task.name][1](without_dropout(model), source, generator)


def measured(decision: Decision, generator: torch.Generator) -> dict[str, float]:
    """All measures of one decision, by name."""
    attention = decision.attention().detach()
    gradient, product = decision.gradients()
    own = torch.stack([top_first(importance) for importance in (attention, gradient, product)])
    lost = erasure(decision.probability, torch.cat([own, random_orders(decision.size, generator)]))
    found: dict[str, float] = {}
    for measure, of_orders in zip(("comprehensiveness", "sufficiency"), lost, strict=True):
        values = *of_orders[: len(own)].tolist(), float(of_orders[len(own) :].mean())
        found |= {f"{measure}, {order}": value for order, value in zip(ORDERS, values, strict=True)}
    found["advantage"] = found["comprehensiveness, attention"] - found["comprehensiveness, random"]
    words = torch.randperm(decision.size, generator=generator)[:LEFT_OUT]
    found["tau, gradient"] = kendall_tau(attention, gradient)
    found["tau, gradient x input"] = kendall_tau(attention, product)
    found["tau, leaving out"] = kendall_tau(attention[words], decision.left_out(words))
    weights = (decision.attend, decision.weights.detach(), decision.groups)
    found["permutation"] = permutation_change(*weights, decision.distance, PERMUTATIONS, generator)
    found["adversary"], _ = adversary(*weights, decision.show, decision.distance, generator)
    found["adversary, above"] = float(found["adversary"] > DIFFERENT)
    return found | decision.more()


def _shown(source: Any) -> str:
    """The beginning of a text, pair or path, for a message."""
    return f" ({source!r:.60})" if isinstance(source, str | tuple) else ""


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan
