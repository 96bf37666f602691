"""The page of the comparison: README.md with tables and pictures of all results, see zoo/comparison/files.py.

All numbers come from the files of the results; the description of each mechanism comes from the first lines of its
recipe. What has no results is not on the page.
"""

import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from zoo.comparison import pictures, sections, tables
from zoo.comparison.files import BASE
from zoo.comparison.recipes import Recipes, rule_of, shipped_folders
from zoo.comparison.results import NONE, count_runs, distinct
from zoo.comparison.sections import PAIRS, RANKS
from zoo.comparison.study import Study, read_study
from zoo.comparison.tasks.known import TASKS
from zoo.utils.atomic import write_text
from zoo.utils.extras import require

PAGE = "README.md"

TITLE = "# Attention mechanisms, each trained by the same rule\n"
NOTES = """\
{scored}{spread}
{legend}{speed}{clock} Memory: peak of the training, {memory}.
"""


def _is_shipped_page(study: Study) -> bool:
    return study.linked and study.recipes.folder.resolve() in {folder.resolve() for folder in shipped_folders()}


def _elsewhere(study: Study) -> str:
    """A line with the pages of the other shipped comparisons, on the page of a shipped one."""
    if not _is_shipped_page(study):
        return ""
    others = [folder for folder in shipped_folders() if folder.resolve() != study.recipes.folder.resolve()]
    pages = [folder for folder in others if (folder / PAGE).is_file()]
    links = [f"[{Recipes(folder).data}](../{folder.name}/{PAGE})" for folder in pages]
    return f"The same on other data: {', '.join(links)}.\n" if links else ""


def _missing(study: Study) -> str:
    """A line with the mechanisms of a shipped comparison that its page has no results of, or that it was asked for."""
    if study.selected:
        names = ", ".join(f"`{row.name}`" for row in study.rows)
        return f"**A selection** of the results there are (`--only`), without the others in any figure: {names}.\n"
    if not _is_shipped_page(study):
        return ""
    trained = {row.name for row in study.rows}
    names = [f"[`{name}`]({name}.yaml)" for name in study.recipes.names() if name not in trained]
    return f"**Not complete:** not trained yet are {', '.join(names)}.\n" if names else ""


def _budget(study: Study) -> str:
    """How long the trainings were, and by which rule they ended."""
    first = study.rows[0].results[0]
    most = first["settings"]["epochs"]
    rule = rule_of(study.recipes.base["trainer"])
    steps = [steps for row in study.rows for steps in row.values("training", "steps")]
    took = f"{min(steps):,.0f} to {max(steps):,.0f} steps" if min(steps) < max(steps) else f"{steps[0]:,.0f} steps"
    if rule is None:
        return f"Budget: {most} epochs, {took}, {first['training']['tokens']:,} {study.task.counted}.\n"
    given = {"patience": 2, "halvings": 3, **rule}
    capped = sum(epochs >= most for row in study.rows for epochs in row.values("training", "epochs"))
    moving, move = ("falling", "fall") if study.task.score.falls else ("rising", "rise")
    waits = "1 validation" if given["patience"] == 1 else f"{given['patience']} validations"
    halve = "halves" if given["patience"] == 1 else "halve"
    full = f"; {capped} of {len(steps)} trainings reached that limit" if capped else ""
    return (
        f"Each training ends when validation {study.score} stops {moving}: {waits} without a {move} "
        f"{halve} the learning rate, and after {given['halvings']} halvings without a {move} it stops. That took {took}, "
        f"at most {most} epochs{full}.\n"
    )


def _notes(study: Study) -> str:
    rows, first = study.rows, study.rows[0].results[0]
    timed = study.timed
    on_gpu, threads = distinct(timed, "device") == ["cuda"], distinct(timed, "threads")
    clock = ""
    if not on_gpu and threads == [1]:
        clock = " Both use processor time: waiting is not in it, but other work on the machine can still slow it, by a third in what was seen."
    elif max(distinct(timed, "at_once") or [1]) > 1:
        clock = " Several trainings ran at a time, so both are lower than of one alone."
    if count_runs(timed) < count_runs(rows):
        (machine,) = distinct(timed, "hardware")
        clock += f" Speed and memory are of the {count_runs(timed)} of {count_runs(rows)} trainings on {machine} with {threads[0]} thread(s)."
    even = [value for row in rows for value in row.values("validation", "attention", "uniform_band")]
    single = " One seed does not show the variance: train several (`--seeds 1 2 3`) before you compare close results."
    several = any(len(row.results) > 1 for row in rows)
    own = [row for row in rows if not row.published] if any(row.published for row in rows) else []
    spread = " ± is half the 95 % interval of the mean over the seeds (Student's t)." if several else ""
    return NOTES.format(
        scored=study.task.scored(first),
        spread=spread + (single if not several or any(len(row.results) == 1 for row in own) else ""),
        legend=study.task.legend.format(uniform=f"{statistics.fmean(even):.2f}" if even else NONE),
        speed=study.task.speed_note,
        clock=clock,
        memory="of the GPU's tensors" if on_gpu else "of the whole process",
    )


def _published(study: Study) -> str:
    names = ", ".join(f"`{row.name}`" for row in study.rows if row.published)
    told = f"Published results, not trained here: {names}.\n" if names else ""
    without = ", ".join(sorted(f"`{folder.parent.name}`" for folder in study.results.left_out))
    why = "they are of another base.yaml or another --epochs"
    for folder, own in study.results.instead.items():
        names = ", ".join(f"`{name}`{f' with {pairs:,} pairs' if pairs else ''}" for name, pairs in own)
        told += (
            f"Of {names} all seeds are of the trainings here; those published in `{folder.parent.name}` are left out.\n"
        )
    return told + (f"Not compared are published results of {without}: {why}.\n" if without else "")


def text(study: Study) -> str:
    """The Markdown page."""
    base = f"[`{BASE}.yaml`]({BASE}.yaml)" if study.linked else f"`{BASE}.yaml`"
    parts = [
        TITLE,
        study.task.head.format(data=study.recipes.data, base=base),
        _elsewhere(study),
        _missing(study),
        _budget(study),
        tables.main_table(study.rows, study.timed, study.names(study.rows), study.found),
        _published(study),
        _notes(study),
        f"![{study.score} against cost]({pictures.cost_name(study.task)})\n",
        sections.significance(study),
        sections.time(study),
        sections.steps(study),
        sections.size(study),
        sections.search(study),
        sections.differences(study),
        sections.reproduction(study),
    ]
    return "\n".join(part for part in parts if part)


def draw(study: Study, folder: Path) -> None:
    """Writes the pictures and CSV files of the page."""
    pictures.plot_cost(study.rows, study.timed, folder / pictures.cost_name(study.task))
    if study.found is not None and len(study.found.names) > 1:
        pictures.plot_pairs(study.found, study.task.score, folder / pictures.PAIRS)
        tables.write_pairs(study.found, folder / PAIRS)
        tables.write_ranks(study.found, folder / RANKS)
    else:  # those of an earlier page would not fit to this one
        for name in (pictures.PAIRS, PAIRS, RANKS):
            (folder / name).unlink(missing_ok=True)
    if sections.time(study):
        pictures.plot_curves(study.timed, study.seconds, folder / pictures.CURVES)
    if sections.steps(study):
        pictures.plot_steps(study.rows, folder / pictures.STEPS)
    if study.results.sizes:
        pictures.plot_sizes(study.results.sizes, folder / pictures.SIZES)


def check_page(folder: Path) -> None:
    """Raises ValueError if `write_page` would replace files that it did not write."""
    page = folder / PAGE
    names = PAIRS, RANKS, pictures.PAIRS, pictures.CURVES, pictures.STEPS, pictures.SIZES
    names += tuple(pictures.cost_name(task) for task in TASKS)
    if not os.path.lexists(page) and (other := next((name for name in names if os.path.lexists(folder / name)), None)):
        raise ValueError(
            f"{folder / other} is not of a page of `zoo compare` and would be replaced; give another folder with --page"
        )
    if os.path.lexists(page) and not (page.is_file() and page.read_bytes().startswith(TITLE.rstrip().encode())):
        raise ValueError(
            f"{page} is not a page of `zoo compare` and would be replaced; give another folder with --page"
        )


def write_page(
    out: Path,
    recipes: Recipes,
    folder: Path,
    root: str | None,
    minutes: float | None = None,
    only: Sequence[str] | None = None,
) -> Path:
    """Writes README.md with its pictures and tables into `folder`; see `read_study`."""
    require("plots", "the plot of the comparison")
    study = read_study(out, recipes, root, minutes, folder, only)
    write_text(folder / PAGE, text(study))  # first: it says of whom the other files are
    draw(study, folder)
    return folder / PAGE
