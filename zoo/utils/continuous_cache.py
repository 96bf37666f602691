"""The options of a continuous cache (zoo/layers/continuous_cache.py)."""

from dataclasses import dataclass

from zoo.utils.numbers_given import check_integer, check_number

LARGEST = 1_000_000  # pairs; more would not fit into memory


@dataclass(frozen=True)
class ContinuousCache:
    """A cache of what a language model has read, which makes it repeat words (Grave et al. 2017, arXiv:1612.04426).

    The defaults are the best ones for key_value_predict.ptb on the validation text of the Penn Treebank. For another
    model or text choose your own on validation data.

    Args:
        size: N, number of words that the cache holds.
        theta: how strongly it prefers the words that followed a similar state; 0: all alike, a unigram cache.
        share: lambda, the share of the cache in the probability of a word; 0: the model alone.
        half_life: a word counts half as much as one that was read `half_life` words later; None: as much, which is the
            cache of the paper.

    Raises:
        ValueError: a value outside its range.
        TypeError: a value that is no number.
    """

    size: int = 2000
    theta: float = 0.55
    share: float = 0.13
    half_life: float | None = 200

    def __post_init__(self) -> None:
        check_integer("the size of a cache", self.size)
        check_number("theta of a cache", self.theta)
        check_number("the share of a cache", self.share)
        if not 1 <= self.size <= LARGEST:
            raise ValueError(f"the size of a cache must be from 1 to {LARGEST:,}; got {self.size:,}")
        if not 0 <= self.theta < float("inf"):
            raise ValueError(f"theta of a cache must be at least 0 and finite; got {self.theta}")
        if not 0 <= self.share < 1:
            raise ValueError(f"the share of a cache must be at least 0 and below 1; got {self.share}")
        if self.half_life is None:
            return
        check_number("the half-life of a cache", self.half_life)
        if not 1 <= self.half_life < float("inf"):
            raise ValueError(f"the half-life of a cache must be at least 1 word and finite; got {self.half_life}")
