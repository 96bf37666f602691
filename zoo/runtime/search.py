"""Search for the best output sequence with NumPy: what zoo/layers/search.py does with torch, for exported graphs.

Options, rules, results and messages are those of zoo/layers/search.py, which says what they mean. The decoder is

    step(tokens (B, K) int64, state, memory, t) -> (log_probs (B, K, V) float32, state, attn_weights (B, K, S) or None)

`memory` and `state` are dicts of arrays: what all hypotheses of a sentence share (leading dimension B) and what each
hypothesis owns (leading dimensions B, K; the first one is given as B, 1). B shrinks when finished sentences are
dropped, and beam search first calls `step` with one hypothesis per sentence, then with up to K. Without any sentence
(B = 0) it is never called.

`step` gives its arrays away: the search writes -inf into `log_probs`, and keeps `attn_weights` until it ends.

A step costs a single sentence tens of calls of NumPy and little else, so there are few calls, and none that is written
in Python, such as `np.take_along_axis`.

Shapes: B sentences, K hypotheses per sentence, N hypotheses returned, V vocabulary, S source positions, T output
length; b and k are those of one step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from zoo.utils.search_options import (
    NOT_A_NUMBER,
    check_beam,
    check_rules,
    check_sampling,
    check_search,
    length_norm,
    never_produced,
)

Arrays = dict[str, ndarray]
Step = Callable[[ndarray, Arrays, Arrays, int], tuple[ndarray, Arrays, ndarray | None]]

_PAD, _BOS, _EOS = 0, 2, 3
_INF = float("inf")


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of a search: for each sentence the best hypothesis first (samples: in the order drawn).

    A hypothesis that does not exist, because fewer outputs are possible than requested, has length 0, only PAD tokens,
    and score and log-probability -inf.

    Attributes:
        tokens: (B, N, T) int64 without BOS, with EOS (absent only if `max_length` cut the output), then PAD.
        lengths: (B, N) int64, EOS included.
        scores: (B, N) float32, log-probability divided by lp(length).
        log_probs: (B, N) float32, sum of the log-probabilities of the tokens.
        attn_weights: (B, N, T, S) float, 0 beyond the length; None if `step` gives none or they were not requested.
    """

    tokens: ndarray
    lengths: ndarray
    scores: ndarray
    log_probs: ndarray
    attn_weights: ndarray | None


def greedy_search(
    step: Step,
    state: Arrays,
    memory: Arrays,
    *,
    max_length: int | ndarray,
    min_length: int = 0,
    length_penalty: float = 0.0,
    forbid: Sequence[int] = (),
    no_repeat_ngram: int = 0,
    bos: int = _BOS,
    eos: int = _EOS,
    pad: int = _PAD,
    return_attention: bool = True,
) -> SearchResult:
    """Takes the most probable token at every step, the first of equals.

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
    rules = _Rules(state, max_length, min_length, forbid, no_repeat_ngram, bos, eos, pad)
    return _roll_out(step, state, memory, lambda x: x.argmax(-1), 1, length_penalty, rules, return_attention)


def sample(
    step: Step,
    state: Arrays,
    memory: Arrays,
    *,
    max_length: int | ndarray,
    num_samples: int = 1,
    temperature: float = 1.0,
    top_k: int = 0,
    generator: "np.random.Generator | None" = None,  # in quotes: NumPy imports it when it is named
    min_length: int = 0,
    length_penalty: float = 0.0,
    forbid: Sequence[int] = (),
    no_repeat_ngram: int = 0,
    bos: int = _BOS,
    eos: int = _EOS,
    pad: int = _PAD,
    return_attention: bool = True,
) -> SearchResult:
    """Draws outputs at random from softmax(log_probs / temperature).

    Args:
        num_samples: N, independent outputs per sentence (they may be equal).
        temperature: > 0 and finite; 1 samples from the model, lower values are closer to greedy.
        top_k: draw from the k most probable tokens; 0: from all.
        generator: source of randomness; by default a new one.

        The others: see `greedy_search`.

    Returns:
        N = `num_samples` hypotheses per sentence, in the order drawn, with their log-probabilities at temperature 1.

    Raises:
        ValueError: for arguments outside their range.
    """
    check_sampling(num_samples, temperature, top_k)
    random = np.random.default_rng() if generator is None else generator
    warmth = max(float(temperature), float(np.finfo(np.float32).tiny))

    def choose(log_probs: ndarray) -> ndarray:
        log_probs, tokens = log_probs.reshape(-1, log_probs.shape[-1]), None  # (b k, V)
        if 0 < top_k < log_probs.shape[1]:
            no_bias = np.zeros((len(log_probs), 1), np.float32)
            log_probs, _, tokens = _top(log_probs[:, None], no_bias, top_k)  # (b k, top_k)
        # Inverse transform sampling with one uniform number per row, in float64: the cumulated sum has V terms. Without
        # the maximum tiny temperatures would make all of them -inf; it is -inf itself if no token is allowed.
        highest = log_probs.max(-1, keepdims=True).clip(np.finfo(np.float32).min)
        if np.isnan(highest).any():  # the first token would be drawn, which is forbidden
            raise ValueError(NOT_A_NUMBER)
        cumulated = np.exp(np.subtract(log_probs, highest, dtype=np.float64) / warmth).cumsum(-1)
        drawn = random.random((len(log_probs), 1)) * cumulated[:, -1:]
        drawn = np.minimum((cumulated <= drawn).sum(-1), log_probs.shape[1] - 1)
        return (drawn if tokens is None else tokens[np.arange(len(drawn)), drawn]).reshape(-1, num_samples)

    rules = _Rules(state, max_length, min_length, forbid, no_repeat_ngram, bos, eos, pad)
    return _roll_out(step, state, memory, choose, num_samples, length_penalty, rules, return_attention)


def beam_search(
    step: Step,
    state: Arrays,
    memory: Arrays,
    *,
    beam_size: int,
    max_length: int | ndarray,
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

    `beam_search` of zoo/layers/search.py says how it proceeds and when a sentence stops. Of equally probable extensions
    the one of the better parent comes first, then the smaller token id.

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
        ValueError: for arguments outside their range, and if the model computes NaN.
    """
    check_beam(beam_size, n_best)
    rules = _Rules(state, max_length, min_length, forbid, no_repeat_ngram, bos, eos, pad)
    if not rules.batch:
        return rules.no_result(n_best)
    batch, limits = rules.batch, rules.max_length
    limit_norms = length_norm(limits, length_penalty).astype(np.float32)
    tokens = np.full((batch, 1), bos)  # live hypotheses (b, k), best first; k grows from 1 to K
    log_probs = np.zeros((batch, 1), np.float32)
    # For each hypothesis its tokens, and the slots of its parents: where the attention weights of each step are.
    paths = np.full((batch, 1, 2, rules.horizon), pad, np.int32)
    pool = _Pool.empty(batch, n_best, rules)
    result = _Pool.empty(batch, n_best, rules)
    finished = np.zeros(batch, np.int64)
    done = np.zeros(batch, bool)
    shortest = limits.min()
    rows = np.arange(batch)  # sentence of each row still in the batch
    attention = []

    for t in range(rules.horizon):
        gains, state, attn = step(tokens, state, memory, t)
        gains = rules.restrict(gains, t, paths[:, :, 0, :t])  # (b, k, V)
        width = gains.shape[1]
        count = min(2 * beam_size, gains[0].size)
        # Candidates (b, count), best first; their parents are counted through all b k of the step.
        values, sources, tokens = _top(gains, log_probs, count)
        paths = _reorder(paths, sources)
        paths[:, :, 0, t], paths[:, :, 1, t] = tokens, sources % width
        if return_attention and attn is not None:
            attention.append((rows, attn))

        is_eos = tokens == eos
        some_end = np.count_nonzero(is_eos) > 0
        if some_end or t + 1 >= shortest:
            last = limits <= t + 1
            ended = np.where((is_eos | last[:, None]) & ~done[:, None], values, np.float32(-_INF))
            pool = _merge(pool, ended / length_norm(t + 1, length_penalty), ended, paths, t + 1)
            finished = finished + (ended > -_INF).sum(1)
            done = done | last

        most = min(beam_size, count - width)
        if some_end:
            # Stable: moves the others before EOS and keeps them ordered by value.
            order = is_eos.argsort(1, kind="stable")[:, :most] + (np.arange(len(rows)) * count)[:, None]
            log_probs, sources, tokens, paths = (_reorder(x, order) for x in (values, sources, tokens, paths))
        else:
            log_probs, sources, tokens, paths = (x[:, :most] for x in (values, sources, tokens, paths))

        norms = np.maximum(limit_norms, np.float32(length_norm(t + 2, length_penalty)))
        done = done | (log_probs[:, 0] / norms <= pool.scores[:, -1])
        if early_stopping:
            done |= finished >= beam_size

        keep = _unfinished(done)
        if keep is not None:
            for whole, part in zip(result, pool, strict=True):
                whole[rows] = part
            if not len(keep):
                break
            tokens, log_probs, paths, sources = (_take(x, keep) for x in (tokens, log_probs, paths, sources))
            finished, done, rows, limits, limit_norms = (
                _take(x, keep) for x in (finished, done, rows, limits, limit_norms)
            )
            pool = _Pool(*(_take(x, keep) for x in pool))
            memory = {name: _take(x, keep) for name, x in memory.items()}
        state = {name: _reorder(x, sources) for name, x in state.items()}

    return _result(result, attention, pad)


def search(
    step: Step,
    state: Arrays,
    memory: Arrays,
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
    """Limits of the length and the forbidden next tokens, checked once."""

    def __init__(
        self,
        state: Arrays,
        max_length: int | ndarray,
        min_length: int,
        forbid: Sequence[int],
        no_repeat_ngram: int,
        bos: int,
        eos: int,
        pad: int,
    ) -> None:
        self.batch = len(next(iter(state.values())))
        lengths = np.asarray(max_length)
        self.horizon = check_rules(self.batch, lengths, min_length, forbid, no_repeat_ngram, eos)
        self.max_length = np.broadcast_to(lengths, self.batch)  # (B,)
        self.min_length, self.no_repeat_ngram = min_length, no_repeat_ngram
        self.bos, self.eos, self.pad, self.forbid = bos, eos, pad, forbid
        self._never, self._never_early = [], []

    def no_result(self, count: int) -> SearchResult:
        """The result for no sentences, with `count` hypotheses each."""
        tokens, numbers = np.zeros((0, count, 0), np.int64), np.zeros((0, count), np.float32)
        return SearchResult(tokens, numbers.astype(np.int64), numbers, numbers.copy(), None)

    def restrict(self, log_probs: ndarray, t: int, history: ndarray) -> ndarray:
        """The log-probabilities (b, k, V) with -inf for tokens forbidden after `history` (b, k, t).

        They are the given ones, written to, unless those are read-only, scattered in memory or not float32.
        """
        if log_probs.dtype != np.float32 or not log_probs.flags.carray:
            log_probs = np.array(log_probs, np.float32, order="C")
        rows = log_probs.reshape(-1, log_probs.shape[-1]).T
        if t == 0:
            never = never_produced(log_probs.shape[-1], self.bos, self.eos, self.pad, self.forbid)
            self._never, self._never_early = never
        # several times faster than an array of a few tokens
        for token in self._never_early if t + 1 < self.min_length else self._never:
            rows[token] = -_INF
        ngrams = t + 1 - self.no_repeat_ngram
        if not self.no_repeat_ngram or ngrams < 1:
            return log_probs
        # A past n-gram whose first n - 1 tokens equal the last n - 1 tokens forbids its last token.
        seen = np.ones((*history.shape[:2], ngrams), bool)
        for j in range(self.no_repeat_ngram - 1):
            seen &= history[..., j : j + ngrams] == history[..., ngrams + j, None]
        row, hypothesis, position = seen.nonzero()
        log_probs[row, hypothesis, history[row, hypothesis, position + self.no_repeat_ngram - 1]] = -_INF
        return log_probs


def _roll_out(
    step: Step,
    state: Arrays,
    memory: Arrays,
    choose: Callable[[ndarray], ndarray],
    width: int,
    length_penalty: float,
    rules: _Rules,
    return_attention: bool,
) -> SearchResult:
    """Extends `width` independent hypotheses per sentence by choose(log_probs (b, K, V)) -> (b, K) until all ended."""
    if not rules.batch:
        return rules.no_result(width)
    batch, limits = rules.batch, rules.max_length
    log_probs = np.zeros((batch, width), np.float32)
    out, lengths = np.full((batch, width, rules.horizon), rules.pad), np.zeros((batch, width), np.int64)
    tokens = np.full((batch, width), rules.bos)
    alive = np.ones((batch, width), bool)
    rows = np.arange(batch)  # sentence of each row still in the batch
    attention = []
    length = 0
    if width > 1:
        state = {name: x.repeat(width, axis=1) for name, x in state.items()}

    for t in range(rules.horizon):
        length = t + 1
        gains, state, attn = step(tokens, state, memory, t)
        gains = rules.restrict(gains, t, out[rows, :, :t] if rules.no_repeat_ngram else out)  # (b, K, V)
        tokens = choose(gains)
        starts = np.arange(tokens.size).reshape(tokens.shape) * gains.shape[-1]
        log_probs[rows] += np.where(alive, gains.reshape(-1).take(starts + tokens), np.float32(0))
        lengths[rows] += alive
        tokens = np.where(alive, tokens, rules.pad)
        out[rows, :, t] = tokens
        if return_attention and attn is not None:
            attention.append((rows, attn))
        alive = alive & (tokens != rules.eos) & (limits > length)[:, None]

        keep = _unfinished(~alive.any(1))
        if keep is not None:
            if not len(keep):
                break
            tokens, alive, rows, limits = (_take(x, keep) for x in (tokens, alive, rows, limits))
            state, memory = ({name: _take(x, keep) for name, x in tree.items()} for tree in (state, memory))

    if np.isnan(log_probs).any():
        raise ValueError(NOT_A_NUMBER)
    is_possible = log_probs > -_INF
    out, lengths = np.where(is_possible[..., None], out[..., :length], rules.pad), lengths * is_possible
    attn_weights = None
    if attention:
        attn_weights = np.zeros((*out.shape, attention[0][1].shape[-1]), attention[0][1].dtype)
        for t, (rows, attn) in enumerate(attention):
            attn_weights[rows, :, t] = attn
        attn_weights *= (np.arange(length) < lengths[..., None])[..., None]
    scores = log_probs / length_norm(lengths, length_penalty).astype(np.float32)
    return SearchResult(out, lengths, scores, log_probs, attn_weights)


class _Pool(NamedTuple):
    """Finished hypotheses, best first: scores, log-probabilities and lengths (b, N), paths (b, N, 2, horizon)."""

    scores: ndarray
    log_probs: ndarray
    lengths: ndarray
    paths: ndarray

    @classmethod
    def empty(cls, batch: int, size: int, rules: _Rules) -> "_Pool":
        lowest = np.full((batch, size), -_INF, np.float32)
        paths = np.full((batch, size, 2, rules.horizon), rules.pad, np.int32)
        return cls(lowest, lowest.copy(), np.zeros((batch, size), np.int64), paths)


def _merge(pool: _Pool, scores: ndarray, log_probs: ndarray, paths: ndarray, length: int) -> _Pool:
    """The best of the pool (b, N) and of hypotheses (b, M) of one length; ties in the order of arrival."""
    lengths = np.full(scores.shape, length) * (scores > -_INF)
    both = [np.concatenate(pair, 1) for pair in zip(pool, (scores, log_probs, lengths, paths), strict=True)]
    batch, size = both[0].shape
    order = (-both[0]).argsort(1, kind="stable")[:, : pool.scores.shape[1]]
    order += (np.arange(batch) * size)[:, None]
    return _Pool(*(_reorder(x, order) for x in both))


def _result(pool: _Pool, attention: list[tuple[ndarray, ndarray]], pad: int) -> SearchResult:
    """The finished hypotheses, with the attention weights (b, k, S) of all steps along their paths."""
    longest = int(pool.lengths.max())
    inside = np.arange(longest) < pool.lengths[..., None]  # (B, N, T)
    tokens = np.where(inside, pool.paths[:, :, 0, :longest], pad).astype(np.int64)
    attn_weights = None
    if attention:
        attn_weights = np.zeros((*tokens.shape, attention[0][1].shape[-1]), attention[0][1].dtype)
        for t, (rows, attn) in enumerate(attention[:longest]):
            slots = pool.paths[rows, :, 1, t] * inside[rows, :, t]
            attn_weights[rows, :, t] = attn[np.arange(len(rows))[:, None], slots]
        attn_weights *= inside[..., None]
    return SearchResult(tokens, pool.lengths, pool.scores, pool.log_probs, attn_weights)


def _top(log_probs: ndarray, bias: ndarray, count: int) -> tuple[ndarray, ndarray, ndarray]:
    """The `count` largest of log_probs (b, k, V) + bias (b, k) in each row b, sorted; the first of equals first.

    The tokens of a hypothesis form a table, row after row. The `count`-th largest of the maxima of all columns is at
    most the `count`-th largest number, so only the few columns whose maximum reaches it can hold the largest.

    Returns:
        values, hypotheses (0 ... b k - 1, counted through all rows) and tokens (0 ... V - 1), (b, count) each.

    Raises:
        ValueError: if one of the numbers is NaN.
    """
    batch, width, vocab = log_probs.shape
    height = max(1, min(64, vocab // max(256, 8 * count // width)))  # many more columns than `count`
    columns, rest = divmod(vocab, height)
    table = log_probs[..., : height * columns].reshape(batch, width, height, columns)
    maxima = np.maximum.reduce(table, axis=2)
    if rest:
        np.maximum(maxima[..., :rest], log_probs[..., -rest:], out=maxima[..., :rest])
    maxima = (maxima + bias[..., None]).reshape(batch, width * columns)
    largest = np.partition(maxima, -count, axis=1)[:, -count:]
    if np.count_nonzero(np.isnan(largest)):  # NaN counts as the largest; several times faster than any()
        raise ValueError(NOT_A_NUMBER)
    threshold = largest[:, :1]

    hypothesis, column = np.divmod((maxima >= threshold).reshape(-1).nonzero()[0][:, None], columns)
    token = column + np.arange(0, vocab, columns)  # (columns found, rows of the table)
    index = hypothesis * vocab + token
    values = log_probs.reshape(-1).take(index, mode="clip") + bias.reshape(-1)[hypothesis]
    reaches = values >= (threshold if batch == 1 else threshold[hypothesis[:, 0] // width])
    if rest:
        reaches &= token < vocab  # the last row is not complete
    values, index = values[reaches], index[reaches]
    if batch == 1:
        order = np.lexsort((index, -values))[None, :count]
    else:
        row = index // (width * vocab)
        first = np.searchsorted(row, np.arange(batch))  # each row has `count` or more
        order = np.lexsort((index, -values, row))[first[:, None] + np.arange(count)]
    return values[order], *np.divmod(index[order], vocab)


def _unfinished(done: ndarray) -> ndarray | None:
    """Rows (b',) to keep, none if all are done; None keeps all, if too few are done to be worth the copies."""
    if not np.count_nonzero(done):
        return None
    keep = np.flatnonzero(~done)
    return keep if len(keep) <= 0.875 * len(done) else None


def _reorder(x: ndarray, source: ndarray) -> ndarray:
    """x (b', k', ...), source (b, k) into b' k' -> (b, k, ...)."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]).take(source, axis=0)


def _take(x: ndarray, index: ndarray) -> ndarray:
    return x.take(index, axis=0)
