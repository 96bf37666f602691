"""Inputs of a verb that are computed together: those of similar size."""

WORDS_AT_ONCE = 20_000  # in one batch of a user's texts


def groups_of_similar_size(sizes: list[int]) -> list[list[int]]:
    """Indices of texts to read together: similar in size, at most WORDS_AT_ONCE words in all."""
    groups: list[list[int]] = []
    total = 0
    for n in sorted(range(len(sizes)), key=sizes.__getitem__):
        if not groups or total + sizes[n] > WORDS_AT_ONCE:
            groups.append([])
            total = 0
        groups[-1].append(n)
        total += sizes[n]
    return groups


def batches_of_similar_size(sizes: list[int], batch_size: int) -> list[list[int]]:
    """Indices of texts to read together: similar in size, at most `batch_size` of them."""
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
