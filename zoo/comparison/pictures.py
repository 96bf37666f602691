"""The pictures of the comparison."""

import io
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from zoo.comparison.budgets import best_so_far
from zoo.comparison.results import FEEDING, Row
from zoo.comparison.significance import Bootstrap, half_interval
from zoo.comparison.tasks.base import ComparedTask, Score
from zoo.plots.style import COLOURS, DPI, GRID, INK, MUTED, new_figure, text_on
from zoo.utils.atomic import write_bytes

CURVES, STEPS, SIZES, PAIRS = "curves.png", "steps.png", "sizes.png", "significance.png"
BETTER, WORSE, UNSURE = COLOURS[3], "#e0a37f", "#f3f5f7"
LINES = ["#0a3a5f", "#b5541c", "#2e7d4f", "#7a3b8f", "#2f86ae", "#a8821a", "#8a1f3d", "#5d6a77", "#3d9c9c", "#6b4e2e"]
STROKES = ["-", "--", "-."]  # with ten colours 30 mechanisms


def cost_name(task: ComparedTask) -> str:
    """File name of `plot_cost`, e.g. "bleu_against_cost.png"."""
    return f"{task.score.key}_against_cost.png"


def save(figure: Any, path: Path) -> Path:
    """Writes a picture in 256 colours, which take a third of the space of all."""
    full, content = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png")
    Image.open(full).convert("RGB").quantize(dither=Image.Dither.NONE).save(content, "PNG", optimize=True)
    with content.getbuffer() as written:
        write_bytes(path, written)
    return path


def plot_cost(rows: Sequence[Row], timed: Sequence[Row], path: Path) -> Path:
    """Plots the test score against two times; a line joins a mechanism to the same with input feeding.

    The times are of the training, and of an example of the test set.

    Args:
        rows: the results.
        timed: the rows that are shown, with the runs whose times are compared.
        path: image file.
    """
    figure, task = new_figure(figsize=(9.6, 10.4), dpi=DPI, layout="constrained"), rows[0].task
    costs: list[tuple[str, Callable[[Row], float | None]]] = [
        ("minutes of training, without validation", lambda row: row.minutes),
        (task.cost, lambda row: row.milliseconds),
    ]
    panels, scores = figure.subplots(2, 1), {row.name: row.scores("test") for row in rows}
    for axes, (title, cost) in zip(panels, costs, strict=True):
        points = {row.name: (x, scores[row.name]) for row in timed if (x := cost(row)) is not None}
        _panel(axes, points)
        axes.set_xlabel(title, color=INK)
        axes.set_ylabel(f"test {task.score.name}", color=INK)
    if any(row.name.endswith(FEEDING) for row in timed):
        for name, colour in (("without input feeding", "white"), ("with", COLOURS[5])):
            panels[0].plot([], [], "o", markersize=7, color=COLOURS[5], markerfacecolor=colour, label=name)
        figure.legend(
            *panels[0].get_legend_handles_labels(),
            loc="outside upper right",
            ncols=2,
            frameon=False,
            labelcolor=INK,
            fontsize=9,
        )
    return save(figure, path)


def _panel(axes: Any, points: dict[str, tuple[float, list[float]]]) -> None:
    """Plots points name -> (x, y of each seed), with names next to them, or at the sides if they are close together."""
    _plain_axes(axes)
    if not points:
        return
    means = {name: (x, statistics.fmean(values)) for name, (x, values) in points.items()}
    bars = {name: half_interval(values) or 0.0 for name, (_, values) in points.items()}
    for name, (x, y) in means.items():
        if name + FEEDING in means:
            axes.plot(*zip((x, y), means[name + FEEDING]), color=COLOURS[2], linewidth=1.2, zorder=1)
        if bars[name]:
            axes.errorbar(x, y, yerr=bars[name], color=COLOURS[4], linewidth=0.8, capsize=2, zorder=2)
        axes.plot(
            x,
            y,
            "o",
            markersize=7,
            color=COLOURS[5],
            markerfacecolor=COLOURS[5] if name.endswith(FEEDING) else "white",
            zorder=4,
        )
    low, high = (pick(x for x, _ in means.values()) for pick in (min, max))
    values = [value for _, of_seeds in points.values() for value in of_seeds]
    beyond = (max(values) - min(values)) / 2  # a longer bar, as of two seeds, is cut
    bottom = max(min(y - bars[name] for name, (_, y) in means.items()), min(values) - beyond)
    top = min(max(y + bars[name] for name, (_, y) in means.items()), max(values) + beyond)
    width, height = max(high - low, 1e-3 * high), max(top - bottom, 1.0)
    axes.set_ylim(bottom - 0.12 * height, top + 0.12 * height)
    shares = {name: ((x - low) / width, (y - bottom) / (1.24 * height) + 0.097) for name, (x, y) in means.items()}
    if _are_apart(list(shares.values())):
        axes.set_xlim(low - 0.12 * width, high + 0.35 * width)
        for name, point in means.items():
            axes.annotate(short(name), point, (8, 0), textcoords="offset points", va="center", fontsize=8.5, color=INK)
    else:
        axes.set_xlim(low - 0.55 * width, high + 0.55 * width)  # room for the names
        _name_at_the_sides(axes, means, {name: y for name, (_, y) in shares.items()})


def _are_apart(points: Sequence[tuple[float, float]]) -> bool:
    """Whether each of some points, in shares of a picture, has room for its name on its right."""
    return all(
        abs(y - other) > 0.05 or abs(x - place) > 0.3 for (x, y), (place, other) in itertools.combinations(points, 2)
    )


def _name_at_the_sides(axes: Any, points: Mapping[str, tuple[float, float]], heights: Mapping[str, float]) -> None:
    """Writes the names of points in a column on either side, with lines that lead to the points."""
    by_cost = sorted(points, key=lambda name: points[name])
    half = (len(by_cost) + 1) // 2
    for names, place, align in ((by_cost[:half], 0.01, "left"), (by_cost[half:], 0.99, "right")):
        names = sorted(names, key=lambda name: points[name][1])
        for name, y in zip(names, spread([heights[name] for name in names], 0.047), strict=True):
            axes.annotate(
                short(name),
                points[name],
                (place, y),
                textcoords="axes fraction",
                ha=align,
                va="center",
                fontsize=8.5,
                color=INK,
                arrowprops=dict(
                    arrowstyle="-",
                    color=MUTED,
                    linewidth=0.6,
                    alpha=0.6,
                    shrinkA=1,
                    shrinkB=4,
                    relpos=(align == "left", 0.5),
                ),
            )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Moves sorted positions in [0, 1] up until neighbours are `gap` apart, then down from the end; less if many."""
    gap = min(gap, 1 / max(1, len(places)))
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else max(place, gap / 2))
    for n in reversed(range(len(moved))):
        moved[n] = min(moved[n], 1 - gap / 2 if n == len(moved) - 1 else moved[n + 1] - gap)
    return moved


def short(name: str) -> str:
    """A mechanism's name in pictures."""
    return f"{name.removesuffix(FEEDING)} + feeding" if name.endswith(FEEDING) else name


def plot_curves(rows: Sequence[Row], seconds: float | None, path: Path) -> Path:
    """Plots the best validation score so far against training time, a line for each seed.

    Args:
        rows: the results.
        seconds: the common budget, which a dashed line marks.
        path: image file.
    """
    curves = {
        row.name: [[(time / 60, best) for time, best in best_so_far(run)] for run in row.runs if run.curve]
        for row in rows
    }
    figure, axes = _best_so_far(curves, rows[0].task.score)
    axes.set_xlabel("minutes of training, without validation", color=INK)
    if seconds:
        axes.axvline(seconds / 60, color=MUTED, linestyle="--", linewidth=1, zorder=1)
    return save(figure, path)


def plot_steps(rows: Sequence[Row], path: Path) -> Path:
    """Plots the best validation score so far against training steps, which no machine changes: a line for each seed.

    Args:
        rows: the results.
        path: image file.
    """
    curves = {row.name: [line for run in row.runs if (line := best_so_far(run, "step"))] for row in rows}
    figure, axes = _best_so_far(curves, rows[0].task.score)
    axes.set_xlabel("training steps", color=INK)
    return save(figure, path)


def _best_so_far(curves: Mapping[str, list[list[tuple[float, float]]]], score: Score) -> Any:
    """A figure of validation curves; its axes show where they end."""
    figure, axes = _lines({name: lines for name, lines in curves.items() if lines})
    axes.set_xscale("log", subs=[])
    axes.xaxis.set_major_locator(_one_two_five())
    axes.xaxis.set_major_formatter("{x:g}")
    every = [line for lines in curves.values() for line in lines]
    ends = [line[-1][1] for line in every]
    spread_of_ends = max(ends) - min(ends)
    if score.falls:  # from far above: the axes begin where the first line comes near the ends
        top = max(ends) + max(spread_of_ends, 0.15 * max(ends))
        axes.set_ylim(min(ends) - 0.1 * (top - min(ends)), top)
        axes.set_xlim(left=0.9 * min(next(time for time, best in line if best <= top) for line in every))
    else:
        axes.set_ylim(bottom=min(ends) - max(0.5 * spread_of_ends, 0.05 * max(ends)))
    axes.set_ylabel(f"best validation {score.name} so far", color=INK)
    return figure, axes


def plot_sizes(sizes: Mapping[int, Sequence[Row]], path: Path) -> Path:
    """Plots the test score against the number of training pairs: the mean over the seeds, and a point for each seed.

    Args:
        sizes: number of pairs -> results.
        path: image file.
    """
    names = {row.name: None for rows in sizes.values() for row in rows}
    found = {(row.name, size): row.scores("test") for size, rows in sizes.items() for row in rows}
    means = {
        name: [[(float(size), statistics.fmean(found[name, size])) for size in sizes if (name, size) in found]]
        for name in names
    }
    figure, axes = _lines(means, "o")
    for (_, size), values in found.items():
        axes.plot([size] * len(values), values, "o", markersize=2.5, color=MUTED, alpha=0.6, zorder=1)
    axes.set_xscale("log")
    axes.set_xticks([*sizes], [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("training pairs", color=INK)
    axes.set_ylabel(f"test {next(iter(sizes.values()))[0].task.score.name}", color=INK)
    return save(figure, path)


def _lines(curves: Mapping[str, list[list[tuple[float, float]]]], marker: str = "") -> Any:
    """A figure with lines, and their names sorted by the height of the ends.

    A mechanism and the same with input feeding, which is dotted, have one colour.
    """
    figure = new_figure(figsize=(9.6, 6.4), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    _plain_axes(axes)
    ends = {name: statistics.fmean(line[-1][1] for line in lines) for name, lines in curves.items()}
    plain = list(dict.fromkeys(name.removesuffix(FEEDING) for name in sorted(curves)))
    for name in sorted(curves, key=lambda name: -ends[name]):
        n = plain.index(name.removesuffix(FEEDING))
        stroke = ":" if name.endswith(FEEDING) else STROKES[n // len(LINES) % len(STROKES)]
        for k, line in enumerate(curves[name]):
            label = short(name) if k == 0 else None
            colour = LINES[n % len(LINES)]
            axes.plot(*zip(*line), stroke, color=colour, linewidth=1.2, marker=marker, markersize=4, label=label)
    figure.legend(loc="outside right upper", frameon=False, labelcolor=INK, fontsize=8.5)
    return figure, axes


def _one_two_five() -> Any:
    from matplotlib.ticker import LogLocator

    return LogLocator(subs=(1, 2, 5))


def plot_pairs(found: Bootstrap, score: Score, path: Path) -> Path:
    """Draws the difference of each pair of mechanisms; coloured where chance hardly explains it (p < 0.05).

    Args:
        found: the bootstrap.
        score: what is compared.
        path: image file.
    """
    names = sorted(found.names, key=lambda name: score.order(found.means[found.names.index(name)]))
    longest = max(len(short(name)) for name in names)
    side = 2.6 + 0.42 * len(names) + 0.15 * max(0, longest - 20)  # room for long names
    figure = new_figure(figsize=(side, side), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.tick_params(colors=INK, length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.set_xticks(range(len(names)), [short(name) for name in names], rotation=60, ha="left", fontsize=8.5)
    axes.set_yticks(range(len(names)), [short(name) for name in names], fontsize=8.5)
    axes.spines[:].set_visible(False)
    for y, row in enumerate(names):
        for x, column in enumerate(names):
            if x == y:
                continue
            difference = found.difference(row, column)[0]
            sure = found.p_value(row, column) < 0.05
            colour = (BETTER if score.order(difference) < 0 else WORSE) if sure else UNSURE
            axes.add_patch(_square(x, y, colour))
            ink = text_on(colour) if sure else MUTED
            axes.text(x, y, f"{difference:+.{score.digits}f}", ha="center", va="center", fontsize=6.5, color=ink)
    return save(figure, path)


def _square(x: int, y: int, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, facecolor=colour, edgecolor="none")


def _plain_axes(axes: Any) -> None:
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, length=0)
    axes.spines[:].set_visible(False)
