"""The alignment of two token sequences, by one attention or by several heads."""

from collections.abc import Sequence
from os import PathLike
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.plots.html import Section, as_page, asking, level_of, look_rules, scale
from zoo.plots.page import clean, fonts
from zoo.plots.style import (
    COLOURS,
    DPI,
    GRID,
    INK,
    MAX_PIXELS,
    MUTED,
    Drawn,
    new_figure,
    printable,
    rounded,
    save_or_show,
)
from zoo.plots.weights import as_array, checked
from zoo.utils.extras import require

if TYPE_CHECKING:
    from torch import Tensor

NAMED = 4  # words whose weights are shown as numbers
CELL, GAP, COLUMNS = 0.32, 0.45, 4  # inches, inches, maps per row
LETTER, SHORTEST = 0.095, 40  # inches of a letter of a title; letters of its shortest line


def alignment_heatmap(
    path: str | PathLike | None,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    attention: "Tensor | np.ndarray",
    title: str | None = None,
) -> Drawn:
    """Plots who attends to whom: one row per target token, one column per source token.

    The picture grows with the number of tokens. The suffix of `path` gives its format (png, pdf, svg, ...).

    Args:
        path: The file to write; None for none.
        source_tokens: S labels, on top.
        target_tokens: T labels, on the left.
        attention: (T, S) weights between 0 and 1.
        title: Optional heading.

    Returns:
        `path`, or the figure if there is none.

    Raises:
        ValueError: The shape of `attention` does not match the labels, there is nothing to draw, or matplotlib is
            missing.
    """
    _check_shape(source_tokens, target_tokens, attention)
    return heads_heatmap(path, source_tokens, target_tokens, attention[None], [title or ""])


def alignment_section(
    source_tokens: Sequence[str], target_tokens: Sequence[str], attention: "Tensor | np.ndarray", title: str
) -> Section:
    """Two lines of words: pointing at a target word shades the source words on their weights, and the other way round.

    Args:
        source_tokens: S words.
        target_tokens: T words.
        attention: (T, S) weights between 0 and 1.
        title: Heading.

    Raises:
        ValueError: The shape of `attention` does not match the words, a weight is negative or not finite, or there are
            no words.
    """
    _check_shape(source_tokens, target_tokens, attention)
    if not (source_tokens and target_tokens):
        raise ValueError("there are no tokens to plot")
    rows = checked(attention, "attention")
    source = _line("a", source_tokens, rows.T.tolist(), "b", target_tokens)
    target = _line("b", target_tokens, rows.tolist(), "a", source_tokens)
    hint = "Point at a word, or tap it: the words of the other line are shaded by their weights."
    body = [
        scale("weight", 1),
        f'<div class="look"><p class="n">source</p>{source}<p class="n">target</p>{target}',
        f'<p class="n hint">{hint}</p></div>',
    ]
    rules = look_rules("a", len(source_tokens)) + look_rules("b", len(target_tokens))
    return Section(title, "\n".join(body), rules)


alignment_html = as_page(alignment_section)


def heads_heatmap(
    path: str | PathLike | None,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    attention: "Tensor | np.ndarray",
    titles: Sequence[str],
    sides: tuple[str, str] = ("source", "target"),
) -> Drawn:
    """Plots several heat maps of the same tokens next to each other, at most four per row.

    Args:
        path: The file to write; None for none.
        source_tokens: S labels, on top of each map.
        target_tokens: T labels, on the left of each row of maps.
        attention: (H, T, S) weights between 0 and 1.
        titles: H headings; an empty one takes no room, a long one has several lines.
        sides: Names of the columns and of the rows.

    Returns:
        `path`, or the figure if there is none.

    Raises:
        ValueError: There is nothing to plot, the shape of `attention` does not match titles and labels, or matplotlib
            is missing.
    """
    require("plots", "a picture of attention")
    if not (source_tokens and target_tokens):
        raise ValueError("there are no tokens to plot")
    if not titles:
        raise ValueError("there are no maps to plot; give a title for each, which may be empty")
    if tuple(attention.shape) != (wanted := (len(titles), len(target_tokens), len(source_tokens))):
        raise ValueError(
            "attention must have a map for each title, a row for each target token and a column for each source "
            f"token, {wanted}; got shape {tuple(attention.shape)}"
        )
    named = [title for title in titles if title]
    source_tokens, target_tokens, named = clean([source_tokens, target_tokens, named], _families())
    rest = iter(named)
    titles = [next(rest) if title else "" for title in titles]
    width, height = len(source_tokens) * CELL, len(target_tokens) * CELL
    columns = min(len(titles), COLUMNS)
    rows = -(-len(titles) // columns)
    longest = max(map(len, source_tokens))
    # inches of labels and heading
    titles = [fill(title.replace("$", r"\$"), max(SHORTEST, int(width / LETTER))) for title in titles]
    lines = max(title.count("\n") + 1 if title else 0 for title in titles)
    above = (0.6 + 0.07 * longest if longest > 2 else 0.6) + (0.15 + 0.2 * lines if lines else 0)
    step_x, step_y = width + GAP, height + above + GAP
    whole = (columns * step_x - GAP, rows * step_y - GAP)
    dpi = min(DPI, MAX_PIXELS / max(whole))  # an extremely long text must not exhaust the memory
    figure = new_figure(figsize=whole, dpi=dpi)
    for n, (title, weights) in enumerate(zip(titles, as_array(attention).astype(np.float32), strict=True)):
        row, column = divmod(n, columns)
        # savefig adds space for the labels
        place = (column * step_x, whole[1] - row * step_y - above - height, width, height)
        axes = figure.add_axes((place[0] / whole[0], place[1] / whole[1], width / whole[0], height / whole[1]))
        image = _draw(axes, source_tokens, target_tokens if column == 0 else [], weights)
        axes.set_xlabel(sides[0], loc="left", fontsize=8, color=MUTED)
        axes.xaxis.set_label_position("top")
        if column == 0:
            axes.set_ylabel(sides[1], loc="top", fontsize=8, color=MUTED)
        if title:
            axes.set_title(title, loc="left", fontsize=12, color=INK, pad=10, fontfamily=_families())
        if n == columns - 1:
            length = min(height, 2.0)
            right = (place[0] + width + 0.18, place[1] + height - length, 0.1, length)
            bar = figure.add_axes((right[0] / whole[0], right[1] / whole[1], right[2] / whole[0], right[3] / whole[1]))
            scale = figure.colorbar(image, cax=bar, ticks=[0, 0.5, 1], format="%g")
            scale.ax.tick_params(length=0, pad=4, labelsize=8, labelcolor=INK)
            scale.ax.set_title("weight", fontsize=8, color=MUTED, loc="left", pad=6)
            scale.outline.set(edgecolor=GRID, linewidth=0.6)
    return save_or_show(figure, path, bbox_inches="tight", pad_inches=0.2)


def _check_shape(source_tokens: Sequence[str], target_tokens: Sequence[str], attention: "Tensor | np.ndarray") -> None:
    t, s = len(target_tokens), len(source_tokens)
    if tuple(attention.shape) != (t, s):
        raise ValueError(
            f"attention must have a row for each of the {t} target tokens and a column for each of the {s} source "
            f"tokens; got shape {tuple(attention.shape)}"
        )


def _line(name: str, words: Sequence[str], weights: list[list[float]], other: str, others: Sequence[str]) -> str:
    """The words of one side, each with its weights for the words of the other side."""
    seen = [{k: level for k, w in enumerate(row) if (level := level_of(w, 1))} for row in weights]
    tips = [f"{printable(word)}: {_heaviest(others, row)}" for word, row in zip(words, weights, strict=True)]
    return asking(name, words, {other: seen}, tips)


def _heaviest(words: Sequence[str], weights: Sequence[float]) -> str:
    """The words with the largest weights, and these."""
    best = sorted(range(len(words)), key=lambda n: -weights[n])[:NAMED]
    return " · ".join(f"{printable(words[n])} {rounded(weights[n])}" for n in best)


def _draw(axes: Any, source_tokens: Sequence[str], target_tokens: Sequence[str], weights: Any) -> Any:
    """One map; without target tokens its rows have no labels."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("attention", COLOURS)
    image = axes.imshow(weights, cmap=colours, vmin=0, vmax=1, aspect="equal")
    t, s = weights.shape
    axes.xaxis.tick_top()
    axes.set_xticks(range(s), _plain(source_tokens), rotation_mode="anchor")
    if max(map(len, source_tokens)) > 2:
        axes.tick_params(axis="x", labelrotation=45)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("left")
    axes.set_yticks(range(t) if target_tokens else [], _plain(target_tokens))
    axes.tick_params(length=0, pad=5, labelsize=10, labelcolor=INK)
    families = _families()
    for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        label.set_fontfamily(families)
    axes.set_xticks([i - 0.5 for i in range(s + 1)], minor=True)
    axes.set_yticks([i - 0.5 for i in range(t + 1)], minor=True)
    axes.grid(which="minor", color=GRID, linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set(edgecolor=GRID, linewidth=0.6)
    return image


def _families() -> list[str]:
    """The fonts of the user, then those for scripts that they lack."""
    from matplotlib import rcParams

    return [*rcParams["font.family"], *fonts()]


def _plain(tokens: Sequence[str]) -> list[str]:
    """Labels in which a dollar sign does not start mathematics."""
    return [token.replace("$", r"\$") for token in tokens]
