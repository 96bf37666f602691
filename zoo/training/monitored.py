"""The scores that callbacks watch."""

from collections.abc import Iterable


def check_known(callback: object, score: str | None, known: Iterable[str]) -> None:
    """Looks for a score that a callback watches in vain.

    Args:
        callback: which one.
        score: what it watches, e.g. "val/bleu"; None: nothing.
        known: all scores that there are now.

    Raises:
        ValueError: the validation gave scores, and this is none of them.
    """
    known = sorted(known)
    if score and score not in known and any(name.startswith("val/") for name in known):
        raise ValueError(f"{type(callback).__name__}: there is no score {score!r}; choose among {', '.join(known)}")
