"""What tests of torch's modes share: a model as one function from its parameters to a loss, and that loss and its
gradients in float64.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.pytorch import LightningModule
from model_cases import MAIN, build
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from zoo.layers.kernels import plain

FLOAT32_EPS = torch.finfo(torch.float32).eps
ITEMS = 6  # of the example batch


class Loss(nn.Module):
    """A model as the wrappers of torch want it: a module whose forward gives what is trained."""

    def __init__(self, model: LightningModule) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any) -> Tensor:
        return self.model.loss(batch)[0]


class Found(NamedTuple):
    """A loss and the gradient of each parameter by its name; zeros where there is none."""

    loss: Tensor
    gradients: dict[str, Tensor]


def make(cls: type, options: dict[str, Any], dtype: torch.dtype = torch.float64, **others: Any) -> tuple[Loss, Any]:
    """The same model at each call, in training mode, and its batch. No bias is left zero: what is zero cannot be
    missed.
    """
    torch.manual_seed(0)
    model = build(cls, **options, **others)
    generator = torch.Generator().manual_seed(1)
    for p in model.parameters():
        if p.dim() == 1:
            p.data.add_(torch.randn(p.shape, generator=generator), alpha=0.2)
    return Loss(model.to(dtype).train()), model.example_batch(ITEMS)


@contextlib.contextmanager
def drawn() -> Iterator[None]:
    """Random numbers that are the same in each precision, at each call and in each mode: hard attention draws where it
    looks.
    """
    rand, rand_like = torch.rand, torch.rand_like

    def spread(*size: Any, device: Any = None, dtype: Any = None, **_: Any) -> Tensor:
        shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
        numbers = (torch.arange(1, shape.numel() + 1, dtype=torch.float64) * math.sqrt(2)).frac().view(shape)
        return numbers.to(device=device, dtype=dtype or torch.get_default_dtype())

    torch.rand = spread
    torch.rand_like = lambda x, **_: spread(x.shape, device=x.device, dtype=x.dtype)
    try:
        yield
    finally:
        torch.rand, torch.rand_like = rand, rand_like


def parameters(module: nn.Module) -> dict[str, Tensor]:
    """Those that are trained."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """What `backward` left at the parameters."""
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in parameters(module).items()}


def trained(module: nn.Module, batch: Any, call: Callable[[Any], Tensor] | None = None) -> Found:
    """Loss and gradients of one `backward`, of `call(batch)` if it is given."""
    module.zero_grad()
    loss = (module if call is None else call)(batch)
    loss.backward()
    return Found(loss.detach().clone(), gradients(module))


def key(cls: type, options: dict[str, Any]) -> tuple:
    return cls, tuple(sorted(options.items()))


@functools.cache
def _reference(case: tuple) -> Found:
    with drawn(), plain():
        return trained(*make(case[0], dict(case[1])))


def reference(cls: type, options: dict[str, Any]) -> Found:
    """What every mode must find: float64, plain torch without a kernel, one call and `backward`."""
    return _reference(key(cls, options))


@functools.cache
def _rounding(case: tuple, eps: float, draws: int) -> Found:
    found, true = [], _reference(case)
    for seed in range(draws):
        module, batch = make(case[0], dict(case[1]))
        generator = torch.Generator().manual_seed(seed)
        for p in module.parameters():
            p.data.mul_(1 + eps * torch.empty_like(p).uniform_(-1, 1, generator=generator))
        with drawn(), plain():
            found.append(trained(module, batch))
    # a gradient that is nearly 0 is the difference of larger ones
    largest = max(gradient.abs().max() for gradient in true.gradients.values())
    spread = {
        name: torch.stack([(f.gradients[name] - gradient).abs().max() for f in found]).max() + eps * largest
        for name, gradient in true.gradients.items()
    }
    return Found(torch.stack([(f.loss - true.loss).abs() for f in found]).max() + eps * true.loss.abs(), spread)


def rounding(cls: type, options: dict[str, Any], eps: float = FLOAT32_EPS, draws: int = 4) -> Found:
    """How far the loss and each gradient move, in float64, when each weight is rounded at random by up to eps, and the
    result once.

    Nothing that computes in that precision can be held to less, and a backward stable algorithm is some such roundings
    away: as many as
    it has operations in a row, of random sign. It measures what a bound by hand must guess: depth, magnitude and how
    steep the model is.
    """
    return _rounding(key(cls, options), eps, draws)


def same(found: Found, expected: Found, bounds: Found | None = None, times: float = 1.0) -> None:
    """Raises AssertionError unless loss and all gradients are those expected.

    Args:
        found: of any precision.
        expected: in float64.
        bounds: how far each may be away; by default 1e-9 of the largest of its tensor.
        times: factor of the bounds.
    """
    assert found.gradients.keys() == expected.gradients.keys()
    loss_bound = 1e-9 * max(1.0, expected.loss.abs().item()) if bounds is None else times * bounds.loss.item()
    wrong = (
        []
        if abs(found.loss.item() - expected.loss.item()) <= loss_bound
        else [f"loss {found.loss} for {expected.loss}"]
    )
    for name, true in expected.gradients.items():
        bound = 1e-9 * max(1.0, true.abs().max().item()) if bounds is None else times * bounds.gradients[name].item()
        error = (found.gradients[name].double() - true).abs().max().item()
        if not error <= bound:
            scale = found.gradients[name].double().norm() / true.norm()
            wrong.append(f"{name}: {error:.2g} away, allowed are {bound:.2g}; {scale:.3f} times as long")
    assert not wrong, "\n".join(wrong)


def distributed(folder: str) -> None:
    """One process of several that each train on their own half of the batch; the first one writes what it found for
    each case.
    """
    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    found = {}
    for number, case in enumerate(MAIN):
        try:
            with drawn():
                module, batch = make(*case.values)
                part = half(batch, rank, size)
                found[number] = trained(module, part, DistributedDataParallel(module))
        except RuntimeError as error:
            found[number] = str(error)
    if rank == 0:
        torch.save(found, Path(folder) / "found.pt")
    torch.distributed.destroy_process_group()


def half(batch: Any, rank: int, size: int) -> Any:
    """The items of one process."""
    rows = slice(ITEMS * rank // size, ITEMS * (rank + 1) // size)
    if hasattr(batch, "select"):
        return batch.select(rows)
    return type(batch)(*(x[rows] if isinstance(x, Tensor) else x for x in batch))
