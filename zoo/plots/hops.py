"""Attention of a classifier with several hops over one text."""

import math
from collections.abc import Sequence
from os import PathLike

from zoo.plots.alignment import CELL
from zoo.plots.page import (
    LINE,
    MARGIN,
    MAX_WIDTH,
    SIZE,
    SMALL,
    Page,
    clean,
    column,
    heaviest_lines,
    measure,
    most_lines,
    shorten,
    wrap,
)
from zoo.plots.style import MUTED, Drawn
from zoo.plots.weights import HopWeights, Matrix, hop_weights, largest
from zoo.utils.extras import require

NAMED = 60  # tokens; a longer text has positions instead of tokens above its heat map
LABEL = 8  # font size of the tokens above the heat map
LONGEST = 84  # points; longer tokens are cut there
ROUND = [digit * 10**zeros for zeros in range(1, 9) for digit in (1, 2, 5)]  # distances between positions
LEFT = 34  # width of the names of the rows


def hops_picture(
    path: str | PathLike | None,
    texts: Sequence[Sequence[str]],
    attentions: Sequence[Matrix],
    title: str | None = None,
    labels: Sequence[str] | None = None,
) -> Drawn:
    """Plots every hop of a structured self-attentive embedding (Lin et al. 2017, section 2.3) and their sum.

    For each text: the words on shades of the sum over the hops, normalised to sum to 1; below, a heat map with one row
    per hop and one for the sum. The suffix of `path` gives the format of the picture.

    Args:
        path: The file to write; None for none.
        texts: One text, or more (a pair of sentences): lists of n tokens.
        attentions: For each text (r, n) weights; each row sums to 1.
        title: Optional heading.
        labels: Optional name of each text, e.g. ["premise", "hypothesis"].

    Returns:
        `path`, or the figure if there is none.

    Raises:
        ValueError: The number of weights does not match the tokens, a weight is negative or not finite, there is
            nothing to draw, or matplotlib is missing.
        TypeError: A text is a string instead of a list of tokens.
    """
    require("plots", "a picture of attention")
    weights = hop_weights(texts, attentions, labels)
    words = clean(texts)
    cells = [min(72 * CELL, MAX_WIDTH / len(text)) for text in words]
    width = max(column(words), *(cell * len(text) for cell, text in zip(cells, words)), *map(_overhang, words, cells))

    page = Page(MARGIN + LEFT + width + MARGIN)
    if title:
        page.heading(title)
    for n, (text, cell, hops) in enumerate(zip(words, cells, weights)):
        page.y += LINE if n else 0
        if labels:
            page.heading(labels[n], SIZE)
        _text(page, text, hops, width, most_lines() // len(words))
        _heat_map(page, text, hops, cell)
    return page.save(path)


def _overhang(text: Sequence[str], cell: float) -> float:
    """Where the last slanted label above a heat map ends, from the left edge of the map."""
    if len(text) > NAMED:
        return 0.0
    across = math.cos(math.radians(_angle(cell)))
    return max((n + 0.5) * cell + across * _slanted(token) for n, token in enumerate(text))


def _angle(cell: float) -> float:
    """Slant of the labels in degrees: steeper over narrow columns, where they would touch."""
    return 45.0 if cell > 15 else 60.0


def _slanted(token: str) -> float:
    """Length of a label, with some space for its height."""
    return measure(shorten(token, LONGEST, LABEL), LABEL) + LABEL


def _text(page: Page, text: Sequence[str], hops: HopWeights, width: float, limit: int) -> None:
    """The text on shades of its total attention."""
    top = largest([hops.total])
    several = len(hops.hops) > 1
    page.scale(
        MARGIN + LEFT, page.y + SMALL, f"sum of {len(hops.hops)} hops, normalised" if several else "attention", top
    )
    page.y += SMALL + 2
    lines, note = heaviest_lines(wrap(text, width), hops.total, limit)
    if note:
        page.note(MARGIN + LEFT, note)
    page.words(MARGIN + LEFT, lines, [w / top for w in hops.total])
    page.y += 4


def _heat_map(page: Page, text: Sequence[str], hops: HopWeights, cell: float) -> None:
    """One row per hop and, if there are several, one for their sum; one column per token."""
    r, left = len(hops.hops), MARGIN + LEFT
    rows = hops.hops if r > 1 else [hops.total]  # on the scale of the text
    top = largest(rows)
    height = max(min(cell, 18.0), 10.0)
    page.y += LINE
    _columns(page, text, cell)
    if r > 1:
        page.text(left - 5, page.y - 4, "hop", SMALL, MUTED, ha="right")
    _rows(page, rows, [f"{n + 1}" for n in range(r)] if r > 1 else [""], cell, height, top)
    if r > 1:
        page.y += 4
        _rows(page, [hops.total], ["sum"], cell, height, largest([hops.total]))
        page.y += 1.1 * LINE
        page.scale(left, page.y, "each hop", top)


def _columns(page: Page, text: Sequence[str], cell: float) -> None:
    """Labels above the heat map: the tokens, or for a long text round positions; moves down."""
    if len(text) <= NAMED:
        angle = _angle(cell)
        page.y += math.sin(math.radians(angle)) * max(map(_slanted, text))
        for n, token in enumerate(text):
            x = MARGIN + LEFT + (n + 0.5) * cell
            slant = {"rotation": angle, "rotation_mode": "anchor", "ha": "left"}
            page.text(x, page.y - 4, shorten(token, LONGEST, LABEL), LABEL, **slant)
        return
    page.y += 14
    step = next(step for step in ROUND if step * cell >= 30)
    for n in (0, *range(step - 1, len(text), step)):
        x = MARGIN + LEFT + (n + 0.5) * cell
        page.text(x, page.y - 5, f"{n + 1}", SMALL, MUTED, ha="center")
        page.box(x - 0.3, page.y - 3, 0.6, 3, MUTED)


def _rows(page: Page, rows: list[list[float]], names: list[str], cell: float, height: float, top: float) -> None:
    """A heat map with names on the left and, unless it has many columns, a grid; moves down."""
    left = MARGIN + LEFT
    page.heat(left, page.y, cell, height, rows, top)
    if len(rows[0]) <= NAMED:
        page.grid(left, page.y, cell, height, len(rows), len(rows[0]))
    for n, name in enumerate(names):
        page.text(left - 5, page.y + (n + 0.5) * height, name, SMALL, MUTED, ha="right", va="center_baseline")
    page.y += len(rows) * height
