"""What `zoo.comparison.significance` does with seeds, by loops."""

import math

import numpy as np


def moves(draws, whole, samples):
    """How far the drawn seeds move the mean score of each mechanism in each sample.

    Args:
        draws: the random generator, after it has drawn the units.
        whole: mechanism -> score of each seed on all units.
        samples: mechanism -> for each sample the score of each seed.
    """
    pool, chance = [], []
    for name, scores in whole.items():
        count = len(scores)
        for seed in range(count if count > 1 else 0):
            stretch = math.sqrt(count / (count - 1))
            pool.append((scores[seed] - sum(scores) / count) * stretch)
            chance.append(np.var([(row[seed] - sum(row) / count) * stretch for row in samples[name]]))
    kept = max(0, 1 - np.mean(chance) / np.mean(np.square(pool)))
    pool = [math.sqrt(kept) * deviation for deviation in pool]
    size = len(next(iter(samples.values())))
    drawn = {name: draws.choice(pool, (size, len(scores))) for name, scores in whole.items()}
    free = sum(len(scores) - 1 for scores in whole.values())
    longer = np.sqrt(free / draws.chisquare(free, size))
    return {name: [factor * sum(row) / len(row) for factor, row in zip(longer, rows)] for name, rows in drawn.items()}
