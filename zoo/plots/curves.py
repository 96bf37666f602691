"""Learning curves: losses and a score over the steps of a training."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from zoo.plots.style import DPI, GRID, INK, MUTED, new_figure, save
from zoo.utils.extras import require

Curve: TypeAlias = Sequence[tuple[int, float]]  # step, value
LINES = {"train/loss": "#6aaecb", "val/loss": "#0a3a5f"}
SCORE, BEST = "#2e7d4f", "#b5541c"


def learning_curves(
    path: str | PathLike, losses: Mapping[str, Curve], scores: Mapping[str, Curve], best: int | None, title: str
) -> Path:
    """Draws the losses, and below them the scores of the validation, over the same steps.

    Args:
        path: file, with the suffix of its format.
        losses: name -> points.
        scores: name -> points; without any there is one panel.
        best: the step of the best checkpoint, which a dashed line marks.
        title: what was trained.

    Returns:
        The path.

    Raises:
        ValueError: matplotlib is missing.
    """
    require("plots", "a picture of learning curves")
    panels = [curves for curves in (losses, scores) if any(curves.values())]
    figure = new_figure(figsize=(7, 0.6 + 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, curves in zip(axes, panels):
        if best is not None:
            label = f"best checkpoint: step {best:,}" if axis is axes[0] else None
            axis.axvline(best, color=BEST, linestyle="--", linewidth=1.2, zorder=1, label=label)
        _panel(axis, curves, "loss" if curves is losses else ", ".join(curves))
    axes[0].set_title(title, color=INK, loc="left")
    axes[-1].set_xlabel("optimizer steps", color=INK)
    return save(figure, path, dpi=DPI)


def _panel(axis: Any, curves: Mapping[str, Curve], label: str) -> None:
    for name, points in curves.items():
        steps, values = zip(*points) if points else ((), ())
        marker = "o" if len(points) <= 40 else ""  # with more points the line says enough
        axis.plot(steps, values, color=LINES.get(name, SCORE), marker=marker, markersize=3.5, linewidth=1.5, label=name)
    axis.set_ylabel(label, color=INK)
    axis.grid(color=GRID)
    axis.set_axisbelow(True)
    axis.tick_params(colors=MUTED)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, labelcolor=INK, fontsize=9)
