"""Other attention weights, and what they change: permuted and adversarial ones.

Jain and Wallace 2019, "Attention is not Explanation", https://arxiv.org/abs/1902.10186, section 4.2.

Weights are flat, (W,), and `groups` (W,) tells which of them one softmax made: those of a hop, of a head, of the words
of a sentence. Each group keeps its sum.

Shapes: W weights, G groups, K variants of them, N words, C classes.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from zoo.explanations.distances import jensen_shannon

Attend = Callable[[Tensor], Tensor]  # weights (K, W) -> output (K, C), with gradient
Show = Callable[[Tensor], Tensor]  # weights (K, W) -> attention to each word (K, N)
Distance = Callable[[Tensor, Tensor], Tensor]

ALLOWED = 0.05  # change of the output that counts as none
STARTS = 64
STEPS = 100
RATE = 0.5  # of Adam
PRICES = (3.0, 30.0)  # of a change above the allowed one, per unit: of the first and the last start


def permuted(weights: Tensor, groups: Tensor, times: int, generator: torch.Generator) -> Tensor:
    """Random permutations within each group: (W,) -> (times, W)."""
    # sorted by group, at random within it, the places of a group are filled by its weights in another order
    at_random = groups + torch.rand(times, len(weights), generator=generator, dtype=torch.float64)
    places = groups.argsort(stable=True)
    found = weights.expand(times, -1).clone()
    found[:, places] = weights[at_random.argsort(dim=1)]
    return found


def permutation_change(
    attend: Attend, weights: Tensor, groups: Tensor, distance: Distance, times: int, generator: torch.Generator
) -> float:
    """Median distance of the output from that with permuted weights.

    Args:
        attend: weights (K, W) -> output (K, C).
        weights: (W,) the model's own.
        groups: (W,) int.
        distance: of two outputs.
        times: number of permutations.
        generator: draws them.
    """
    with torch.no_grad():
        own = attend(weights.unsqueeze(0))
        found = attend(permuted(weights, groups, times, generator))
    return float(distance(found, own).quantile(0.5))


def adversary(
    attend: Attend,
    weights: Tensor,
    groups: Tensor,
    show: Show,
    distance: Distance,
    generator: torch.Generator,
    allowed: float = ALLOWED,
    starts: int = STARTS,
    steps: int = STEPS,
) -> tuple[float, Tensor]:
    """Searches for weights that look as different as possible while the output stays.

    Adam maximises the Jensen-Shannon divergence of the attention to words, minus a price for each change of the output
    above the allowed one, over the logits of the weights, from several permutations of the model's own (where these are
    all equal, from random weights); the answer is
    the most different weights met on the way whose change is allowed. It is a lower bound of the largest divergence.
    Each start has a price of its own: with a low one the search ends above the allowed change, with a high one it does
    not get past changes in between, and which one is right differs from answer to answer.

    Args:
        attend: weights (K, W) -> output (K, C), differentiable.
        weights: (W,) the model's own.
        groups: (W,) int.
        show: weights (K, W) -> attention to each word (K, N).
        distance: of two outputs.
        generator: draws the starts.
        allowed: largest change of the output.
        starts: number of starts.
        steps: of the optimiser.

    Returns:
        The divergence in nats, 0 to ln 2, and the weights (W,); 0 and the model's own if it finds no others.
    """
    masses = _sums(weights.unsqueeze(0), groups)  # (1, G)
    own = attend(weights.unsqueeze(0)).detach()
    looks = show(weights.unsqueeze(0)).detach()
    logits = (permuted(weights, groups, starts, generator) + 1e-4).log()
    if float((logits - logits[0]).abs().max()) < 1e-6:  # equal weights have one order only
        logits = torch.randn(logits.shape, generator=generator, dtype=logits.dtype)
    logits.requires_grad_()
    prices = torch.logspace(math.log10(PRICES[0]), math.log10(PRICES[1]), starts, dtype=weights.dtype)
    optimizer = torch.optim.Adam([logits], lr=RATE)
    best, best_weights = 0.0, weights
    for _ in range(steps):
        found = _softmax(logits, groups) * masses[:, groups]
        divergence = jensen_shannon(show(found), looks)
        change = distance(attend(found), own)
        reached = divergence.detach().masked_fill(change.detach() > allowed, -1.0)
        if float(reached.max()) > best:
            best, best_weights = float(reached.max()), found[int(reached.argmax())].detach()
        loss = (prices * (change - allowed).clamp(min=0) - divergence).sum()
        (logits.grad,) = torch.autograd.grad(loss, [logits])
        optimizer.step()
    return best, best_weights


def _sums(values: Tensor, groups: Tensor) -> Tensor:
    """Sum of each group: (K, W) -> (K, G)."""
    count = int(groups.max()) + 1
    return values.new_zeros(len(values), count).index_add(1, groups, values)


def _softmax(logits: Tensor, groups: Tensor) -> Tensor:
    """Softmax within each group, (K, W) -> (K, W)."""
    powers = (logits - logits.detach().amax(1, keepdim=True)).clamp(min=-60).exp()
    return powers / _sums(powers, groups)[:, groups]
