"""How sure a difference between mechanisms is: intervals over seeds, and a paired bootstrap over units and seeds.

The units of a test set are sentences of a translation, texts of a classifier, blocks of lines of a language model,
photos of a captioner, questions of a reader.
A mechanism's score is the mean over its seeds of the score of the whole test set. Another test set of the same kind and
other seeds would have given other scores. Each sample of the bootstrap draws

    units    as many as there are, with replacement, the same ones for all mechanisms (Koehn 2004), and
    seeds    for each mechanism as many deviations from its mean as it has seeds, with replacement.

The deviations of n seeds from their own mean are too small by sqrt((n - 1) / n), and are stretched by its inverse.
They hold the chance of the units too, which the drawn units bring in once more: that part, as large as the deviations
of the seeds differ from sample to sample, is taken out by making them smaller.
Those of all mechanisms are drawn from together: with three seeds of its own a mechanism says little about its variance,
but one whose seeds differ more than those of the others then looks surer than it is. So there is a second p, for which
the deviation of each mechanism is a draw with a variance that its own seeds may have (by the chi-squared distribution),
less the chance of the units. It is cautious: of equal mechanisms fewer than 5 % of the pairs have such a p < 0.05, and
seeds that happen to be alike do not count as seeds that cannot differ.
A mechanism with a single seed is treated like the others; if all have a single one, nothing is known of
the seeds, and only units are drawn.

The variance of so few deviations is itself a matter of chance, so each sample has them longer or shorter by a draw of
what it may be, as in Student's t. In simulations of eight or ten equal systems with three seeds, translators with 60 or
300 sentences and classifiers with 500 texts, whose seeds differ not at all to a lot, p < 0.05 comes up for 3 to 7 % of
the pairs; for 0.3 to 9 % without this and with the chance of the units still in the deviations. With fewer seeds it
comes up for more: of two systems with two seeds and one for 4 to 13 %. The second p remains below 8 % where all have
several seeds (of mechanisms with one it is that of all). Of few items on which two systems differ p is too small, as
their differences are tied: 4 right against 0 of 500 give 0.03 to 0.05, where an exact sign test gives 0.125.

In formulas: x_ms is the score of seed s of mechanism m on the whole test set, x_m the mean of its n_m seeds; y_ms and
y_m are the same of the drawn units, in each of B samples; chi2_k is a draw from the chi-squared distribution with k
degrees of freedom.

    d_ms      (x_ms - x_m) sqrt(n_m / (n_m - 1)), of all mechanisms with n_m > 1
    u_m       variance over the samples of (y_ms - y_m) sqrt(n_m / (n_m - 1)), mean over s; u is the mean over all d_ms
    pool      all d_ms, each times sqrt(max(0, 1 - u / mean of d_ms^2))
    sample    y_m + sqrt(f / chi2_f) times the mean of n_m draws from the pool; f is the number of all trainings minus
              that of mechanisms, and all mechanisms of a sample have the same chi2_f
              for the second p, where n_m > 1: y_m + a standard normal draw times sqrt(max(0, v_m - u_m) / n_m), with
              v_m = the sum of (x_ms - x_m)^2 / chi2_(n_m - 1)
    p         (1 + number of samples with |z - mean of z| >= |x_a - x_b|) / (1 + B) for mechanisms a and b; z is the
              difference of their samples, its mean that of y_a - y_b
    interval  from the 2.5 to the 97.5 % quantile of z
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

import numpy as np

from zoo.comparison.tasks.base import Counts

SAMPLES, MOST_SAMPLES = 10_000, 100_000
SAMPLES_PER_PAIR = 1_000  # Holm asks for p < 0.05 / pairs first: the share of 50 samples
CHUNK = 100  # samples computed at a time
# 97.5 % quantile of Student's t for 1, 2, ... degrees of freedom
STUDENT = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
]  # fmt: skip


def half_interval(values: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval of a mean, by Student's t; None for a single value."""
    if len(values) < 2:
        return None
    quantile = STUDENT[min(len(values) - 1, len(STUDENT)) - 1]
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


@dataclass(frozen=True)
class Bootstrap:
    """Scores of all mechanisms in all samples.

    Attributes:
        names: the mechanisms.
        means: (M,) scores on the whole test set, mean over the seeds.
        samples: (B, M) scores in each sample.
        centres: (M,) around which these lie: the mean over the drawn units; seeds add nothing to it on average.
        apart: (B, M) the same with the variance between seeds of each mechanism alone; None if no mechanism has one.
        falls: the lowest score is the best.
    """

    names: list[str]
    means: np.ndarray
    samples: np.ndarray
    centres: np.ndarray
    apart: np.ndarray | None = None
    falls: bool = False

    def difference(self, first: str, second: str) -> tuple[float, float, float]:
        """By how much the first is higher, and the ends of the 95 % interval."""
        a, b = self.names.index(first), self.names.index(second)
        low, high = np.quantile(self.samples[:, a] - self.samples[:, b], [0.025, 0.975])
        return float(self.means[a] - self.means[b]), float(low), float(high)

    def p_value(self, first: str, second: str, apart: bool = False) -> float:
        """How often a difference as large as this one, in either direction, would arise if there was none.

        The differences of the samples, moved to the mean 0, are what chance alone would give. (sacrebleu moves their
        absolute values, which for clear differences is the share of one direction, half of this.) `centres` is that
        mean: a few draws of a variance that two seeds tell are so far off that they would move the samples' own.

        Args:
            first: a mechanism.
            second: another one.
            apart: of the samples in which each mechanism has the variance of its own seeds, where there are such.
        """
        samples = self.apart if apart and self.apart is not None else self.samples
        a, b = self.names.index(first), self.names.index(second)
        chance = samples[:, a] - samples[:, b] - (self.centres[a] - self.centres[b])
        larger = np.abs(chance) >= abs(self.means[a] - self.means[b])
        return (int(larger.sum()) + 1) / (len(chance) + 1)

    def corrected(
        self, apart: bool = False, pairs: Iterable[tuple[str, str]] | None = None
    ) -> dict[tuple[str, str], float]:
        """The p value of each pair, once, corrected for the number of pairs by Holm's method (Holm 1979).

        Args:
            apart: see `p_value`.
            pairs: those that are asked about; None: all.
        """
        pairs = combinations(self.names, 2) if pairs is None else pairs
        values = sorted((self.p_value(*pair, apart), pair) for pair in pairs)
        steps = [p * (len(values) - n) for n, (p, _) in enumerate(values)]
        return {pair: min(1.0, p) for (_, pair), p in zip(values, accumulate(steps, max))}

    def near(self, limit: float = 0.05, apart: bool = False) -> int:
        """Number of pairs whose corrected p is so near a limit that other samples could bring it to the other side.

        Args:
            limit: of p.
            apart: see `p_value`.
        """
        count = len(self.samples)
        corrected = self.corrected(apart)
        own = {pair: self.p_value(*pair, apart) for pair in corrected}
        errors = {pair: 2 * p / own[pair] * math.sqrt(own[pair] / count) for pair, p in corrected.items()}
        return sum(abs(p - limit) < errors[pair] for pair, p in corrected.items())

    def ranks(self) -> np.ndarray:
        """(M, M) share of the samples in which mechanism m has rank r, 0 for the best; of equal scores dice decide."""
        dice = np.random.default_rng(0).random(self.samples.shape)
        order = np.lexsort((dice, self.samples if self.falls else -self.samples), axis=1)
        places = np.argsort(order, axis=1, kind="stable")  # (B, M): the rank of each mechanism
        count = len(self.names)
        return np.stack([np.bincount(places[:, m], minlength=count) for m in range(count)]) / len(self.samples)


def bootstrap(
    counts: Mapping[str, Sequence[Counts]],
    total: Callable[[Counts], np.ndarray],
    samples: int | None = None,
    seed: int = 0,
    falls: bool = False,
) -> Bootstrap:
    """Draws units and seeds; see the top of this file.

    Args:
        counts: mechanism -> for each seed the counts of its units, (N, K); all of the same N units.
        total: the score of summed counts, (..., K) -> (...).
        samples: number of samples; None: SAMPLES_PER_PAIR for each pair of mechanisms, but from SAMPLES to
            MOST_SAMPLES.
        seed: of the draws.
        falls: the lowest score is the best.
    """
    if samples is None:
        samples = min(max(SAMPLES, SAMPLES_PER_PAIR * math.comb(len(counts), 2)), MOST_SAMPLES)
    rng = np.random.default_rng(seed)
    scored = {name: total(np.stack([run.sum(0) for run in found])).mean() for name, found in counts.items()}
    names = sorted(counts, key=lambda name: (scored[name] if falls else -scored[name], name))  # whatever order is given
    runs = [run for name in names for run in counts[name]]
    units = len(runs[0])
    table = np.concatenate(runs, axis=1)  # (N, R * K)
    drawn = []
    for start in range(0, samples, CHUNK):
        times = rng.multinomial(units, np.full(units, 1 / units), min(CHUNK, samples - start))
        drawn.append(total((times.astype(np.float64) @ table).reshape(len(times), len(runs), -1)))
    scores, whole = np.concatenate(drawn), total(np.stack([run.sum(0) for run in runs]))  # (B, R), (R,)
    columns = np.split(np.arange(len(runs)), np.cumsum([len(counts[name]) for name in names])[:-1])
    pool = deviations([whole[own] for own in columns], [scores[:, own] for own in columns])
    means = np.stack([scores[:, own].mean(1) for own in columns], axis=1)  # (B, M)
    moved = np.stack([rng.choice(pool, (samples, len(own))).mean(1) for own in columns], axis=1)
    free = len(runs) - len(columns)  # the degrees of freedom of the pool's variance, which is itself a matter of chance
    moved *= np.sqrt(free / rng.chisquare(free, (samples, 1))) if free else 0.0
    apart = means + _apart(rng, whole, scores, columns, moved) if free else None
    given = [names.index(name) for name in counts]
    whole_means = np.array([scored[name] for name in counts])
    apart = None if apart is None else apart[:, given]
    return Bootstrap(list(counts), whole_means, (means + moved)[:, given], means.mean(0)[given], apart, falls)


def _apart(
    rng: np.random.Generator, whole: np.ndarray, scores: np.ndarray, columns: Sequence[np.ndarray], moved: np.ndarray
) -> np.ndarray:
    """Deviations of the mean of each mechanism's seeds by the variance of these alone, (B, M); of one seed `moved`.

    The chance of the units is taken from what the variance may be, sample by sample: taken from the variance itself it
    would leave nothing of seeds that happen to be alike.
    """
    found = moved.copy()
    for m, own in enumerate(columns):
        if (seeds := len(own)) > 1:
            may_be = whole[own].var(ddof=1) * (seeds - 1) / rng.chisquare(seeds - 1, len(found))
            variance = np.maximum(0.0, may_be - _stretched(scores[:, own]).var(0).mean())
            found[:, m] = rng.standard_normal(len(found)) * np.sqrt(variance / seeds)
    return found


def deviations(whole: Sequence[np.ndarray], samples: Sequence[np.ndarray]) -> np.ndarray:
    """How far all seeds are from the mean of their mechanism, without the chance of the units; [0] for single seeds.

    Args:
        whole: for each mechanism the scores of its seeds, (S,).
        samples: for each mechanism those in each sample of units, (B, S).
    """
    found = np.concatenate([_stretched(own) for own in whole])
    if not found.any():
        return np.zeros(1)
    chance = np.concatenate([_stretched(own).var(0) for own in samples])  # variance by the units alone
    return found * math.sqrt(max(0.0, 1 - chance.mean() / (found**2).mean()))


def _stretched(scores: np.ndarray) -> np.ndarray:
    """Deviations from the mean of the last axis, with the variance of single scores: (..., S), (..., 0) if S is 1."""
    seeds = scores.shape[-1]
    if seeds == 1:
        return scores[..., :0]
    return (scores - scores.mean(-1, keepdims=True)) * math.sqrt(seeds / (seeds - 1))
