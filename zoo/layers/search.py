"""Search for the best output sequence: greedy, beam search and sampling, batched over sentences and hypotheses.

The three functions drive any autoregressive decoder through one callable:

    step(tokens (B, K), state, memory, t) -> (logits (B, K, V), state, attn_weights (B, K, S) or None)

`memory` is what all hypotheses of a sentence share (leading dimension B, never repeated per hypothesis); `state` is
what each hypothesis owns (leading dimensions B, K; the first one is given as B, 1). Both are tensors or arbitrarily
nested (named) tuples, lists, dicts and dataclasses of tensors; other entries are passed on unchanged. B shrinks when
finished sentences are dropped from the batch, and beam search first calls `step` with one hypothesis per sentence, then
with up to K. Without any sentence (B = 0) it is never called.

Scores are length-normalised log-probabilities, Wu et al. 2016 (arXiv:1609.08144), Eq. 14 without its coverage term:

    score(Y) = log p(Y) / lp(n),    lp(n) = ((5 + n) / 6) ** alpha

where n is the length of Y, EOS included. `log p` is always the model's own: forbidden tokens, temperature and top-k
restrict the choice but never renormalise the reported value.

Shapes: B sentences, K hypotheses per sentence, N hypotheses returned, V vocabulary, S source positions, T output
length.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from zoo.layers.kernels.products import constant_weights
from zoo.layers.nested import mapped, taken, tensors_of
from zoo.layers.selection import first_largest, largest
from zoo.utils.search_options import (
    NOT_A_NUMBER,
    check_beam,
    check_rules,
    check_sampling,
    check_search,
    length_norm,
    never_produced,
)

Step = Callable[[Tensor, Any, Any, int], tuple[Tensor, Any, Tensor | None]]

_PAD, _BOS, _EOS = 0, 2, 3
_CHECK_EVERY = 8  # steps between two checks for finished sentences, on asynchronous devices
_INF = float("inf")


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of a search: for each sentence the best hypothesis first (samples: in the order drawn).

    A hypothesis that does not exist, because fewer outputs are possible than requested, has length 0, only PAD tokens,
    and score and log-probability -inf.

    Attributes:
        tokens: (B, N, T) int64 without BOS, with EOS (absent only if `max_length` cut the output), then PAD.
        lengths: (B, N) int64, EOS included.
        scores: (B, N) float, log-probability divided by lp(length).
        log_probs: (B, N) float, sum of the log-probabilities of the tokens.
        attn_weights: (B, N, T, S) float, 0 beyond the length; None if `step` gives none or they were not requested.
    """

    tokens: Tensor
    lengths: Tensor
    scores: Tensor
    log_probs: Tensor
    attn_weights: Tensor | None

    def cpu(self) -> "SearchResult":
        """A copy on the CPU."""
        weights = None if self.attn_weights is None else self.attn_weights.cpu()
        return SearchResult(self.tokens.cpu(), self.lengths.cpu(), self.scores.cpu(), self.log_probs.cpu(), weights)


@torch.no_grad()
@constant_weights()
def greedy_search(
    step: Step,
    state: Any,
    memory: Any,
    *,
    max_length: int | Tensor,
    min_length: int = 0,
    length_penalty: float = 0.0,
    forbid: Sequence[int] = (),
    no_repeat_ngram: int = 0,
    bos: int = _BOS,
    eos: int = _EOS,
    pad: int = _PAD,
    return_attention: bool = True,
) -> SearchResult:
    """Takes the most probable token at every step.

    Args:
        step: the decoder, see the top of this file.
        state: initial decoder state, leading dimensions (B, 1).
        memory: what `step` reads of the source, leading dimension B.
        max_length: maximum number of tokens, including EOS: one number, or (B,) int64, one per sentence.
        min_length: minimum number of tokens, including EOS; a smaller `max_length` of a sentence takes precedence.
            With `max_length` + 1 no output ends by itself.
        length_penalty: alpha of lp; it cannot change the greedy choice, only the reported score.
        forbid: token ids never produced, such as UNK. BOS and PAD are never produced, unless they are EOS too.
        no_repeat_ngram: n > 0 forbids repeating an n-gram of the output.
        bos: id that starts the decoder.
        eos: id that ends an output.
        pad: padding id after the end.
        return_attention: return the attention weights.

    Returns:
        One hypothesis per sentence (N = 1).

    Raises:
        ValueError: for arguments outside their range.
    """
    rules = _Rules(state, memory, max_length, min_length, forbid, no_repeat_ngram, bos, eos, pad)
    return _roll_out(step, state, memory, first_largest, 1, length_penalty, rules, return_attention)


@torch.no_grad()
@constant_weights()
def sample(
    step: Step,
    state: Any,
    memory: Any,
    *,
    max_length: int | Tensor,
    num_samples: int = 1,
    temperature: float = 1.0,
    top_k: int = 0,
    generator: torch.Generator | None = None,
    min_length: int = 0,
    length_penalty: float = 0.0,
    forbid: Sequence[int] = (),
    no_repeat_ngram: int = 0,
    bos: int = _BOS,
    eos: int = _EOS,
    pad: int = _PAD,
    return_attention: bool = True,
) -> SearchResult:
    """Draws outputs at random from softmax(logits / temperature).

    Args:
        num_samples: N, independent outputs per sentence (they may be equal).
        temperature: > 0 and finite; 1 samples from the model, lower values are closer to greedy.
        top_k: draw from the k most probable tokens; 0: from all.
        generator: source of randomness, on the device of the logits.

        The others: see `greedy_search`.

    Returns:
        N = `num_samples` hypotheses per sentence, in the order drawn, with their log-probabilities at temperature 1.

    Raises:
        ValueError: for arguments outside their range.
    """
    check_sampling(num_samples, temperature, top_k)
    temperature = float(temperature)  # tensors are divided by no fraction

    def choose(log_probs: Tensor) -> Tensor:
        log_probs, tokens = log_probs.flatten(0, 1), None  # (B K, V)
        if 0 < top_k < log_probs.shape[1]:
            no_bias = log_probs.new_zeros(len(log_probs), 1)
            log_probs, _, tokens = largest(log_probs[:, None], no_bias, top_k)  # (B K, top_k)
        # Inverse transform sampling with one uniform number per row; torch.multinomial would draw V of them.
        below = log_probs - log_probs.amax(-1, keepdim=True)  # else tiny temperatures would make all of them -inf
        cumulated = (below / max(temperature, torch.finfo(below.dtype).tiny)).softmax(-1).cumsum(-1)
        drawn = torch.rand(len(log_probs), 1, dtype=log_probs.dtype, device=log_probs.device, generator=generator)
        drawn = drawn * cumulated[:, -1:]
        drawn = torch.searchsorted(cumulated, drawn, right=True).clamp(max=log_probs.shape[1] - 1)  # (B K, 1)
        return (drawn if tokens is None else tokens.gather(1, drawn)).view(-1, num_samples)

    rules = _Rules(state, memory, max_length, min_length, forbid, no_repeat_ngram, bos, eos, pad)
    return _roll_out(step, state, memory, choose, num_samples, length_penalty, rules, return_attention)


@torch.no_grad()
@constant_weights()
def beam_search(
    step: Step,
    state: Any,
    memory: Any,
    *,
    beam_size: int,
    max_length: int | Tensor,
    n_best: int = 1,
    length_penalty: float = 0.6,
    early_stopping: bool = False,
    min_length: int = 0,
    forbid: Sequence[int] = (),
    no_repeat_ngram: int = 0,
    bos: int = _BOS,
    eos: int = _EOS,
    pad: int = _PAD,
    return_attention: bool = True,
) -> SearchResult:
    """Beam search that returns exactly the best hypotheses that its beam ever finishes.

    Each step takes the 2K best extensions of the K live hypotheses: those that end in EOS are finished, the K best
    others stay alive. Hypotheses still alive at `max_length` count as finished. The `n_best` finished hypotheses of
    highest score are returned.

    A sentence stops early only when its result can no longer change. A live hypothesis of log-probability L <= 0 has at
    most L at any later length, hence a score of at most L / max(lp(next length), lp(max_length)). The sentence is done
    when that is no better than its n_best-th finished score; a tighter `max_length` makes this happen sooner.

    Args:
        beam_size: K, live hypotheses per sentence.
        n_best: N <= K, hypotheses to return.
        length_penalty: alpha of lp. 0 ranks by log-probability, which favours short outputs; larger values favour
            longer ones (0.6 to 1 is usual for translation).
        early_stopping: also stop a sentence as soon as K hypotheses have finished, as most toolkits do: faster, but
            it may miss a longer, better hypothesis.

            The others: see `greedy_search`. `beam_size=1` is not greedy search: it also keeps an ending that was only
            second best at its step.

    Returns:
        N = `n_best` distinct hypotheses per sentence, best first.

    Raises:
        ValueError: for arguments outside their range.
    """
    check_beam(beam_size, n_best)
    rules = _Rules(state, memory, max_length, min_length, forbid, no_repeat_ngram, bos, eos, pad)
    if not rules.batch:
        return rules.no_result(n_best)
    batch, device, limits = rules.batch, rules.device, rules.max_length

    tokens = torch.full((batch, 1), bos, device=device)  # live hypotheses (b, k), best first; k grows from 1 to K
    log_probs = torch.zeros(batch, 1, dtype=torch.float32, device=device)
    history = tokens.new_empty(batch, 1, 0) if no_repeat_ngram else None  # (b, k, t), else only back-pointers are kept
    # Finished hypotheses (b, N), best first. A trace is (step, slot of the parent before that step, last token).
    pool = (
        torch.full((batch, n_best), -_INF, dtype=torch.float32, device=device),  # scores
        torch.full((batch, n_best), -_INF, dtype=torch.float32, device=device),  # log-probabilities
        tokens.new_zeros(batch, n_best, 3),
    )
    result = tuple(x.clone() for x in pool)
    finished = tokens.new_zeros(batch)
    done = torch.zeros(batch, dtype=torch.bool, device=device)
    rows = torch.arange(batch, device=device)  # sentence of each row still in the batch
    steps = []

    for t in range(rules.horizon):
        logits, state, attn = step(tokens, state, memory, t)
        gains = rules.log_probs(logits, t, history)  # (b, k, V)
        width = gains.shape[1]
        count = min(2 * beam_size, gains[0].numel())
        values, parents, tokens = largest(gains, log_probs, count)  # (b, count) each, best first
        if rules.is_check(t) and values.isnan().any():  # NaN sorts first, with a parent that may not exist
            raise ValueError(NOT_A_NUMBER)

        is_eos = tokens == eos
        last = t + 1 >= limits
        ending = (is_eos | last[:, None]) & ~done[:, None]
        ended = values.masked_fill(~ending, -_INF)
        trace = torch.stack((torch.full_like(tokens, t), parents, tokens), -1)
        pool = _merge(pool, (ended / length_norm(t + 1, length_penalty), ended, trace))

        # Stable: moves the others before EOS and keeps them ordered by value.
        order = is_eos.byte().sort(dim=1, stable=True).indices[:, : min(beam_size, count - width)]
        log_probs, parents, tokens = (x.gather(1, order) for x in (values, parents, tokens))
        steps.append((rows, tokens, parents, attn if return_attention else None))

        norm = length_norm(limits, length_penalty).clamp(min=length_norm(t + 2, length_penalty))
        done = done | last | (log_probs[:, 0] / norm <= pool[0][:, -1])
        if early_stopping:
            finished = finished + (ended > -_INF).sum(1)
            done = done | (finished >= beam_size)

        keep = _unfinished(done, rules.is_check(t))
        if keep is not None:
            for whole, part in zip(result, pool, strict=True):
                whole.index_copy_(0, rows, part)
            if not len(keep):
                break
            live = (tokens, parents, log_probs, history, pool, finished, done, rows, limits, memory)
            live = taken(live, keep)
            tokens, parents, log_probs, history, pool, finished, done, rows, limits, memory = live
        first = torch.arange(len(rows), device=device) if keep is None else keep
        source = first[:, None] * width + parents  # (b, K) row of each hypothesis' parent among all b k of the step
        state = mapped(partial(_reorder, source=source), state)
        if history is not None:
            history = torch.cat((history.gather(1, parents[..., None].expand(-1, -1, t)), tokens[..., None]), -1)

    return _trace_back(result, steps, pad)


def search(
    step: Step,
    state: Any,
    memory: Any,
    *,
    beam_size: int,
    n_best: int = 1,
    temperature: float | None = None,
    top_k: int = 0,
    **options: Any,
) -> SearchResult:
    """`sample` if there is a temperature, `greedy_search` for one hypothesis, else `beam_search`, with `options`.

    Raises:
        ValueError: for arguments outside their range, including those of `check_search`.
    """
    check_search(beam_size, options.get("length_penalty", 0.0))
    if temperature is not None:
        return sample(step, state, memory, temperature=temperature, top_k=top_k, num_samples=n_best, **options)
    if beam_size == 1 and n_best == 1:
        return greedy_search(step, state, memory, **options)
    return beam_search(step, state, memory, beam_size=beam_size, n_best=n_best, **options)


class _Rules:
    """Limits of the length and the forbidden next tokens, checked and moved to the device once."""

    def __init__(
        self,
        state: Any,
        memory: Any,
        max_length: int | Tensor,
        min_length: int,
        forbid: Sequence[int],
        no_repeat_ngram: int,
        bos: int,
        eos: int,
        pad: int,
    ) -> None:
        self.batch, self.device = _check_shapes(state, memory)
        lengths = torch.as_tensor(max_length)
        self.horizon = check_rules(self.batch, lengths, min_length, forbid, no_repeat_ngram, eos)
        self.max_length = lengths.to(self.device).expand(self.batch)  # (B,)
        self.min_length, self.no_repeat_ngram = min_length, no_repeat_ngram
        self.bos, self.eos, self.pad, self.forbid = bos, eos, pad, forbid
        self._never = self._never_early = torch.empty(0, dtype=torch.int64, device=self.device)
        self._buffer = torch.empty(0, dtype=torch.float32, device=self.device)

    def no_result(self, count: int) -> SearchResult:
        """The result for no sentences, with `count` hypotheses each."""
        numbers = torch.zeros(0, count, dtype=torch.float32, device=self.device)
        return SearchResult(numbers.long().unsqueeze(-1)[..., :0], numbers.long(), numbers, numbers.clone(), None)

    def log_probs(self, logits: Tensor, t: int, history: Tensor | None) -> Tensor:
        """The model's log-probabilities (b, k, V) in fp32, with -inf for tokens forbidden after `history` (b, k, t).

        They are valid until the next call: allocating a tensor of this size at each step would cost more in page faults
        than the computation itself.
        """
        if t == 0:
            never = never_produced(logits.size(-1), self.bos, self.eos, self.pad, self.forbid)
            self._never, self._never_early = (torch.tensor(x, dtype=torch.int64, device=self.device) for x in never)
        if self._buffer.numel() < logits.numel():
            self._buffer = self._buffer.new_empty(logits.numel())
        out = self._buffer[: logits.numel()].view(logits.shape)
        torch.log_softmax(logits, -1, dtype=torch.float32, out=out)
        out.index_fill_(-1, self._never_early if t + 1 < self.min_length else self._never, -_INF)
        ngrams = t + 1 - self.no_repeat_ngram
        if history is None or ngrams < 1:
            return out
        # A past n-gram whose first n - 1 tokens equal the last n - 1 tokens forbids its last token.
        seen = torch.ones_like(history[..., :ngrams], dtype=torch.bool)
        for j in range(self.no_repeat_ngram - 1):
            seen &= history[..., j : j + ngrams] == history[..., ngrams + j, None]
        limit = out.new_full(seen.shape, _INF).masked_fill(seen, -_INF)
        return out.scatter_reduce_(-1, history[..., self.no_repeat_ngram - 1 :], limit, "amin")

    def is_check(self, t: int) -> bool:
        """Whether to check after step t which sentences are done; the check waits for the device."""
        return self.device.type == "cpu" or t + 1 == self.horizon or (t + 1) % _CHECK_EVERY == 0


def _roll_out(
    step: Step,
    state: Any,
    memory: Any,
    choose: Callable[[Tensor], Tensor],
    width: int,
    length_penalty: float,
    rules: _Rules,
    return_attention: bool,
) -> SearchResult:
    """Extends `width` independent hypotheses per sentence by choose(log_probs (b, K, V)) -> (b, K) until all ended."""
    if not rules.batch:
        return rules.no_result(width)
    batch, device, max_length = rules.batch, rules.device, rules.max_length
    log_probs = torch.zeros(batch, width, dtype=torch.float32, device=device)
    tokens = torch.full((batch, width), rules.bos, device=device)
    history = tokens.new_empty(batch, width, 0) if rules.no_repeat_ngram else None
    alive, lengths = torch.ones_like(tokens, dtype=torch.bool), torch.zeros_like(tokens)
    rows = torch.arange(batch, device=device)  # sentence of each row still in the batch
    if width > 1:
        state = mapped(lambda x: x.expand(-1, width, *x.shape[2:]), state)
    steps: list[tuple[Tensor, Tensor, Tensor | None]] = []

    for t in range(rules.horizon):
        logits, state, attn = step(tokens, state, memory, t)
        gains = rules.log_probs(logits, t, history)  # (b, K, V)
        tokens = choose(gains)
        gains = gains.gather(-1, tokens[..., None])[..., 0]
        log_probs.index_add_(0, rows, gains.where(alive, 0))
        lengths.index_add_(0, rows, alive.long())
        tokens = tokens.where(alive, rules.pad)
        steps.append((rows, tokens, attn if return_attention else None))
        alive = alive & (tokens != rules.eos) & (t + 1 < max_length)[:, None]
        if history is not None:
            history = torch.cat((history, tokens[..., None]), -1)

        keep = _unfinished(~alive.any(1), rules.is_check(t))
        if keep is not None:
            if not len(keep):
                break
            live = taken((tokens, history, alive, rows, max_length, memory, state), keep)
            tokens, history, alive, rows, max_length, memory, state = live

    out = tokens.new_full((batch, width, len(steps)), rules.pad)
    for t, (rows, tokens, _) in enumerate(steps):
        out[rows, :, t] = tokens
    if log_probs.isnan().any():
        raise ValueError(NOT_A_NUMBER)
    is_possible = log_probs > -_INF
    out, lengths = out.where(is_possible[..., None], rules.pad), lengths.where(is_possible, 0)
    attn_weights = None
    for t, (rows, _, attn) in enumerate(steps):
        if attn is not None:
            if attn_weights is None:
                attn_weights = attn.new_zeros(*out.shape, attn.shape[-1])
            attn_weights[rows, :, t] = attn * (t < lengths[rows])[..., None]
    return SearchResult(out, lengths, log_probs / length_norm(lengths, length_penalty), log_probs, attn_weights)


def _trace_back(pool: tuple[Tensor, ...], steps: list[tuple], pad: int) -> SearchResult:
    """Follows the back-pointers of all finished hypotheses from their last token to their first.

    Args:
        pool: scores (B, N), log-probabilities (B, N), and traces (B, N, 3): last step, parent before it, last token.
        steps: for each step the sentences (b,) it was made for, the new tokens (b, k) and their parents (b, k), and
            the attention weights (b, k', S) of the parents, or None.
        pad: padding id after the end.
    """
    scores, log_probs, trace = pool
    end, slot, last_token = trace.unbind(-1)  # (B, N) each
    end = end.where(scores > -_INF, -1)
    lengths = end + 1
    longest = int(lengths.max())
    tokens = last_token.new_full((*scores.shape, longest), pad)
    attn_weights, first = None, steps[0][-1]
    if first is not None:
        attn_weights = first.new_zeros(*tokens.shape, first.shape[-1])
    for t in range(longest - 1, -1, -1):
        rows, step_tokens, parents, attn = steps[t]
        now = slot[rows]
        inside = (t < end)[rows]
        tokens[rows, :, t] = step_tokens.gather(1, now).where(inside, last_token.where(end == t, pad)[rows])
        now = parents.gather(1, now).where(inside, now)
        if attn is not None and attn_weights is not None:
            index = now[..., None].expand(-1, -1, attn.shape[-1])
            attn_weights[rows, :, t] = attn.gather(1, index) * (t <= end)[rows][..., None]
        slot = slot.index_copy(0, rows, now)
    return SearchResult(tokens, lengths, scores, log_probs, attn_weights)


def _merge(pool: tuple[Tensor, ...], new: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Best entries of pool (b, N) and new (b, M) by their first tensor; ties in the order of arrival."""
    both = [torch.cat(pair, 1) for pair in zip(pool, new, strict=True)]
    order = both[0].sort(dim=1, descending=True, stable=True).indices[:, : pool[0].shape[1]]
    rows = torch.arange(len(order), device=order.device)[:, None]
    return tuple(x[rows, order] for x in both)


def _unfinished(done: Tensor, is_check: bool) -> Tensor | None:
    """Rows (b',) to keep, none if all are done; None keeps all, if too few are done to be worth the copies."""
    if not is_check:
        return None
    keep = (~done).nonzero()[:, 0]
    return keep if len(keep) <= 0.875 * len(done) else None


def _reorder(x: Tensor, source: Tensor) -> Tensor:
    """x (b', k', ...), source (b, k) into b' k' -> (b, k, ...). index_select is several times faster than x[source]."""
    return x.flatten(0, 1).index_select(0, source.flatten()).unflatten(0, source.shape)


def _check_shapes(state: Any, memory: Any) -> tuple[int, torch.device]:
    """The number of sentences and the device.

    Raises:
        ValueError: the first state has no tensor, or a leading dimension of a tensor is another one.
    """
    first = tensors_of(state)
    if not first:
        raise ValueError(f"the first state must have a tensor (B, 1, ...), B the number of sentences; got {state!r}")
    batch = first[0].shape[0] if first[0].dim() else 0
    for x in first:
        if x.shape[:2] != (batch, 1):
            shape = tuple(x.shape)
            raise ValueError(f"tensors of the first state must be (B, 1, ...), here ({batch}, 1, ...); got {shape}")
    for x in tensors_of(memory):
        if x.shape[:1] != (batch,):
            raise ValueError(f"tensors of the memory must be (B, ...), here ({batch}, ...); got {tuple(x.shape)}")
    return batch, first[0].device
