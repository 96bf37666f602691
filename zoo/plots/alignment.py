"""The alignment of two token sequences."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from torch import Tensor

from zoo.plots.style import COLOURS, DPI, GRID, INK, MAX_PIXELS

CELL = 0.32  # inches


def alignment_heatmap(
    path: str | PathLike,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    attention: Tensor,
    title: str | None = None,
) -> Path:
    """Draws who attends to whom: a row for each target token, a column for each source token.

    The picture grows with the number of tokens. Its format follows from the suffix of `path` (png, pdf, svg, ...).

    Args:
        path: The file to write.
        source_tokens: S labels, on top.
        target_tokens: T labels, on the left.
        attention: (T, S) weights between 0 and 1.
        title: Optional heading.

    Returns:
        `path`.

    Raises:
        ValueError: The shape of `attention` does not match the labels, or there is nothing to draw.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    t, s = len(target_tokens), len(source_tokens)
    if tuple(attention.shape) != (t, s):
        raise ValueError(
            f"attention must have a row for each of the {t} target tokens and a column for each of the {s} source "
            f"tokens; got shape {tuple(attention.shape)}"
        )
    if not (t and s):
        raise ValueError("there is no token to draw")

    width, height = s * CELL, t * CELL
    dpi = min(DPI, MAX_PIXELS / max(width, height))  # an absurdly long text must not eat the memory
    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))  # the grid fills the figure; savefig makes room for what is around it
    colours = LinearSegmentedColormap.from_list("attention", COLOURS)
    image = axes.imshow(attention.detach().float().cpu().numpy(), cmap=colours, vmin=0, vmax=1, aspect="equal")

    slanted = max(map(len, source_tokens)) > 2
    axes.xaxis.tick_top()
    axes.set_xticks(range(s), _plain(source_tokens), rotation_mode="anchor")
    if slanted:
        axes.tick_params(axis="x", labelrotation=45)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("left")
    axes.set_yticks(range(t), _plain(target_tokens))
    axes.tick_params(length=0, pad=5, labelsize=10, labelcolor=INK)
    axes.set_xticks([i - 0.5 for i in range(s + 1)], minor=True)
    axes.set_yticks([i - 0.5 for i in range(t + 1)], minor=True)
    axes.grid(which="minor", color=GRID, linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set(edgecolor=GRID, linewidth=0.6)
    if title:
        axes.set_title(title, loc="left", fontsize=12, color=INK, pad=10)

    length = min(height, 2.0)
    bar = figure.add_axes((1 + 0.18 / width, 1 - length / height, 0.1 / width, length / height))
    scale = figure.colorbar(image, cax=bar, ticks=[0, 0.5, 1], format="%g")
    scale.ax.tick_params(length=0, pad=4, labelsize=8, labelcolor=INK)
    scale.outline.set(edgecolor=GRID, linewidth=0.6)
    figure.savefig(path, bbox_inches="tight", pad_inches=0.2)
    return Path(path)


def _plain(tokens: Sequence[str]) -> list[str]:
    """Labels in which a dollar sign is no mathematics and a space can be seen."""
    return ["␣" if token.isspace() else token.replace("$", r"\$") for token in tokens]
