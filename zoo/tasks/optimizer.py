"""The optimiser and schedule of all recipes: AdamW, with a linear warm-up and a cosine schedule."""

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from zoo.utils.numbers_given import check_at_least


class AdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) with the betas of Vaswani et al. 2017.

    Args:
        params: Parameters, or groups of them.
        lr: Peak learning rate, per optimiser step.
        betas: Decay rates of the averages of the gradient and its square.
        weight_decay: Decoupled weight decay; a step subtracts this times the rate times the weight.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.98),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
        # a fused optimiser unscales fp16 gradients itself, after clipping, so Lightning refuses to clip
        self._step_supports_amp_scaling = False


class WarmupCosine(torch.optim.lr_scheduler.LambdaLR):
    """Linear warm-up, then a cosine down to 2 % of the peak (Loshchilov and Hutter 2017), or a constant rate.

    Args:
        optimizer: The optimiser, with the peak rates.
        warmup_steps: Optimiser steps of the warm-up; 0: none.
        total_steps: Optimiser steps in all; None: the rate stays constant after the warm-up.
        cycles: Number of cosine cycles; the cosine restarts from the peak (cycles - 1) times.

    Attributes:
        warmup_steps, total_steps, cycles: as given.

    Raises:
        ValueError: The steps contradict each other, or a number is too small.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        warmup_steps: int = 100,
        total_steps: int | None = None,
        cycles: int = 1,
    ) -> None:
        check_at_least(warmup_steps=(warmup_steps, 0), cycles=(cycles, 1))
        if total_steps is not None and total_steps // cycles <= warmup_steps:
            got = f"{total_steps} steps in {cycles} cycles"
            raise ValueError(f"each cycle of total_steps must exceed warmup_steps ({warmup_steps}); got {got}")
        self.warmup_steps, self.total_steps, self.cycles = warmup_steps, total_steps, cycles
        # of the attributes, which a resumed training restores
        factor = lambda step: learning_rate_factor(step, self.warmup_steps, self.total_steps, self.cycles)  # noqa: E731
        super().__init__(optimizer, factor)

    def options_for(self, steps: int) -> str:
        """The options of the command line that make this a schedule for so many steps."""
        options = f"--lr_scheduler.total_steps {steps}"
        if steps // self.cycles > self.warmup_steps:
            return options
        return f"{options} --lr_scheduler.warmup_steps {steps // 10} --lr_scheduler.cycles 1"


def learning_rate_factor(step: int, warmup_steps: int, total_steps: int | None, cycles: int = 1) -> float:
    """The factor of the peak rate, counted from step 0."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if total_steps is None:
        return 1.0
    length = total_steps // cycles
    cycle = min(step // length, cycles - 1)
    first = warmup_steps if cycle == 0 else cycle * length
    done = min(1.0, (step - first) / ((cycle + 1) * length - first))
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))


def longest_prefix(name: str, prefixes: Iterable[str]) -> str | None:
    """The longest of the dotted names that is `name` or the name of a module containing it; "" contains everything."""
    holding = (prefix for prefix in prefixes if not prefix or f"{name}.".startswith(f"{prefix}."))
    return max(holding, key=len, default=None)


def parameter_groups(model: nn.Module, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """All parameters of a model, in groups with one learning rate each.

    Frozen parameters are included: the optimiser skips them, and they may be trained later.

    Args:
        model: The model.
        rates: Name of a module or parameter -> its own peak rate; see `longest_prefix`.

    Raises:
        ValueError: a name of `rates` is of no parameter, and of no module that has one.
    """
    parameters = {name.replace("_orig_mod.", ""): p for name, p in model.named_parameters()}  # of compiled parts, too
    parts = {".".join(name.split(".")[:n]): None for name in parameters for n in range(name.count(".") + 2)}
    if unknown := [prefix for prefix in rates if prefix not in parts]:
        nearest = get_close_matches(unknown[0], parts, n=1, cutoff=0)[0]
        raise ValueError(f"learning_rates: {type(model).__name__} has no part {unknown[0]!r}; nearest: {nearest}")
    groups: dict[str | None, dict[str, Any]] = {None: {"params": []}}
    groups |= {prefix: {"params": [], "lr": rate} for prefix, rate in rates.items()}
    for name, parameter in parameters.items():
        groups[longest_prefix(name, rates)]["params"].append(parameter)
    return [group for group in groups.values() if group["params"]]
