"""Attention of a language model when it predicted each word: the previous words on shades of their weights."""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from zoo.plots.html import Section, as_page, asking, level_of, look_rules, scale
from zoo.plots.page import GAP, LINE, MARGIN, MAX_WIDTH, SIZE, SMALL, Page, clean, measure, most_lines, shorten
from zoo.plots.style import MUTED, Drawn, printable, rounded, shade, text_on
from zoo.plots.weights import as_array, check_values
from zoo.utils.extras import require

if TYPE_CHECKING:
    from torch import Tensor

START = "</s>"  # read before the first word
LONGEST, LEGIBLE = 72.0, 22.0  # points: the widest cell, and the narrowest with a word
ARROW = 22.0
NAMED = 3  # words whose weights are shown as numbers


def look_back_picture(
    path: str | PathLike | None,
    tokens: Sequence[str],
    attention: "Tensor | np.ndarray",
    given: int = 0,
    title: str | None = None,
) -> Drawn:
    """Plots one line per predicted word: the words of the window, farthest first, each on the shade of its weight.

    Then come the word read last, which no window has, and after an arrow the predicted word (bold if the model chose
    it).

    The suffix of `path` gives the format (png, pdf, svg, ...). If a text would become illegible at 8,000 pixels (more
    than about 400 words), its beginning is left out, and a line at the top says so.

    Args:
        path: The file to write; None for none.
        tokens: T words.
        attention: (T, L) weights when each word was predicted, on the outputs 1, 2, ... L steps back; 0 where there
            are none.
        given: Number of words that the user gave.
        title: Optional heading.

    Returns:
        `path`, or the figure if there is none.

    Raises:
        ValueError: The number of weights does not match the words, a weight is negative or not finite, there is nothing
            to draw, or matplotlib is missing.
        TypeError: `tokens` is a string instead of a list of words.
    """
    require("plots", "a picture of attention")
    weights = _checked(tokens, attention)
    words = clean([[START, *tokens]])[0]  # word n was read before token n was predicted
    length, first = weights.shape[1], max(0, len(tokens) - most_lines() + 4)
    rows = range(first, len(tokens))
    widest = max(measure(shorten(word, LONGEST, SIZE), SIZE) for word in words[first:]) + 8
    column = min(widest, LONGEST)
    cell = min(column, MAX_WIDTH / length)
    after = MARGIN + length * cell + GAP  # left edge of the word read last

    page = Page(after + 2 * column + ARROW + MARGIN)
    if title:
        page.heading(title)
    top = float(weights.max()) or 1.0
    page.scale(MARGIN, page.y + SMALL, "weight", top)
    page.y += SMALL + 4
    if first:
        page.note(MARGIN, f"the first {first:,} of {len(tokens):,} words are left out")
    page.y += LINE
    step = max(1, round(LEGIBLE / cell))
    for d in range(1, length + 1, step):
        page.text(MARGIN + (length - d + 0.5) * cell, page.y - 4, f"−{d}", SMALL, MUTED, ha="center")
    page.text(after + column / 2, page.y - 4, "read last", SMALL, MUTED, ha="center")
    page.text(after + column + ARROW, page.y - 4, "next", SMALL, MUTED)
    for n in rows:
        for d in range(1, min(length, n) + 1):  # token n is predicted at step n; step n - d had read word n - d
            x, colour = MARGIN + (length - d) * cell, shade(float(weights[n, d - 1]) / top)
            page.box(x, page.y, cell - GAP, LINE - GAP, colour)
            if cell >= LEGIBLE:
                text = shorten(words[n - d], cell - 4, SIZE)
                page.text(x + cell / 2, page.y + 0.7 * LINE, text, SIZE, text_on(colour), ha="center")
        page.text(after + column / 2, page.y + 0.7 * LINE, shorten(words[n], column, SIZE), SIZE, MUTED, ha="center")
        page.text(after + column + 4, page.y + 0.7 * LINE, "→", SIZE, MUTED)
        weight = "bold" if n >= given else "normal"
        page.text(
            after + column + ARROW,
            page.y + 0.7 * LINE,
            shorten(words[n + 1], column, SIZE, weight),
            SIZE,
            weight=weight,
        )
        page.y += LINE
    return page.save(path)


def look_back_section(tokens: Sequence[str], attention: "Tensor | np.ndarray", given: int, title: str) -> Section:
    """The text: pointing at a word shades the previous words on the weights with which it was predicted.

    Words that the model chose are bold. See `look_back_picture` for arguments and errors.

    Args:
        tokens: T words.
        attention: (T, L) weights when each word was predicted, on the outputs 1, 2, ... L steps back; 0 where there
            are none.
        given: Number of words that the user gave.
        title: Heading.
    """
    weights = _checked(tokens, attention)
    top = float(weights.max()) or 1.0
    words = [
        START,
        *tokens,
    ]  # word n was read before token n was predicted, and the output d steps back read word n - d
    seen: list[dict[int, int]] = [{} for _ in words]
    tips = ["read before the first word"]
    for n, row in enumerate(weights.tolist()):
        row = row[:n]
        for d, weight in enumerate(row, 1):
            if level := level_of(weight, top):
                seen[n - d][n + 1] = level
        tips.append(f"{printable(tokens[n])}: {_looked(words, n, row)}")
    hint = "Point at a word, or tap it: the words it was predicted from are shaded by their weights."
    body = [
        scale("weight", top),
        '<div class="look">',
        asking("w", words, {"w": seen}, tips, range(given + 1, len(words))),
        f'<p class="n hint">{hint} Bold words were chosen by the model.</p></div>',
    ]
    return Section(title, "\n".join(body), look_rules("w", len(words)))


look_back_html = as_page(look_back_section)


def _looked(words: Sequence[str], step: int, weights: Sequence[float]) -> str:
    """Where a step looked, in words: the largest of its weights on the outputs 1, 2, ... steps back."""
    total = sum(weights)
    if not total:
        return "looked at no earlier word"
    best = sorted(range(1, len(weights) + 1), key=lambda d: -weights[d - 1])[:NAMED]
    named = " · ".join(f"{printable(words[step - d])} {rounded(weights[d - 1])} (−{d})" for d in best)
    mean = sum(d * weight for d, weight in enumerate(weights, 1)) / total
    return f"{named}; on average {mean:.1f} steps back"


def _checked(tokens: Sequence[str], attention: "Tensor | np.ndarray") -> np.ndarray:
    """(T, L) in float64."""
    if isinstance(tokens, str):
        raise TypeError("tokens must be a list of words; got a string")
    if len(attention.shape) != 2 or len(attention) != len(tokens):
        raise ValueError(
            f"attention must have a row for each of the {len(tokens)} tokens; got shape {tuple(attention.shape)}"
        )
    weights = as_array(attention)
    if not weights.size:
        raise ValueError("there are no words or no attention to plot")
    check_values(weights, "attention")
    return weights
