"""The optimiser that all recipes of this package use: AdamW with a linear warm-up and a cosine."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch


def check_schedule(config: dict[str, Any]) -> None:
    """Raises ValueError if `warmup_steps`, `total_steps` and `cycles` of a configuration contradict each other."""
    cycles, total, warmup = config["cycles"], config["total_steps"], config["warmup_steps"]
    if cycles < 1:
        raise ValueError(f"cycles must be at least 1; got {cycles}")
    if total is not None and total // cycles <= warmup:
        got = f"{total} steps in {cycles} cycles"
        raise ValueError(f"each cycle of total_steps must exceed warmup_steps ({warmup}); got {got}")


def learning_rate_factor(config: dict[str, Any], step: int) -> float:
    """Linear warm-up, then cosine to 2 % at the end of each cycle (Loshchilov and Hutter 2017), or constant."""
    warmup, total, cycles = (config[key] for key in ("warmup_steps", "total_steps", "cycles"))
    if step < warmup:
        return (step + 1) / warmup
    if total is None:
        return 1.0
    length = total // cycles
    cycle = min(step // length, cycles - 1)
    first = warmup if cycle == 0 else cycle * length
    done = min(1.0, (step - first) / ((cycle + 1) * length - first))
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))


def longest_prefix(name: str, prefixes: Iterable[str]) -> str | None:
    """The longest of the dotted names that is `name`, or is one of a module that holds it; "" holds everything."""
    holding = (prefix for prefix in prefixes if not prefix or f"{name}.".startswith(f"{prefix}."))
    return max(holding, key=len, default=None)


def adamw(
    model: torch.nn.Module,
    config: dict[str, Any],
    rates: Mapping[str, float] | None = None,
    betas: tuple[float, float] = (0.9, 0.98),
) -> dict[str, Any]:
    """What `configure_optimizers` returns.

    Parameters that take no gradient are among those of the optimiser, which leaves them alone, so they may be trained
    later.

    Args:
        model: its parameters are trained; if it has `learning_rates`, of the form of `rates`, they count before those.
        config: learning_rate, weight_decay, warmup_steps, total_steps (None: constant after the warm-up), cycles.
        rates: name of a module or parameter -> its peak rate, in place of `learning_rate`; see `longest_prefix`.
        betas: decay of the averages of the gradient and of its square.
    """
    rates = {**(rates or {}), **getattr(model, "learning_rates", {})}
    groups = {None: {"params": []}, **{prefix: {"params": [], "lr": rate} for prefix, rate in rates.items()}}
    for name, parameter in model.named_parameters():
        groups[longest_prefix(name, rates)]["params"].append(parameter)
    used = [group for group in groups.values() if group["params"]]
    optimizer = torch.optim.AdamW(
        used, lr=config["learning_rate"], betas=betas, weight_decay=config["weight_decay"], fused=True
    )
    # else the optimiser would unscale fp16 gradients itself, after clipping, and Lightning refuses to clip
    optimizer._step_supports_amp_scaling = False
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(config, step))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
