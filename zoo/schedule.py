"""The optimiser that all recipes of this package use: AdamW with a linear warm-up and a cosine."""

import math
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


def adamw(model: torch.nn.Module, config: dict[str, Any], rates: dict[float, list[torch.nn.Parameter]] | None = None) -> dict[str, Any]:
    """What `configure_optimizers` returns.

    Args:
        model: its parameters are trained.
        config: learning_rate, weight_decay, warmup_steps, total_steps (None: constant after the warm-up), cycles.
        rates: parameters with another peak rate than `learning_rate`.
    """
    others = [{"params": parameters, "lr": rate} for rate, parameters in (rates or {}).items()]
    special = {parameter for group in others for parameter in group["params"]}
    groups = [{"params": [parameter for parameter in model.parameters() if parameter not in special]}, *others]
    optimizer = torch.optim.AdamW(
        groups, lr=config["learning_rate"], betas=(0.9, 0.98), weight_decay=config["weight_decay"], fused=True
    )
    # else the optimiser would unscale fp16 gradients itself, after clipping, and Lightning refuses to clip
    optimizer._step_supports_amp_scaling = False
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(config, step))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
