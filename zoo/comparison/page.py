"""The page of the comparison: README.md with tables and pictures of all results, see zoo/comparison/files.py.

All numbers come from the files of the results; the description of each mechanism comes from the first lines of its
recipe. What has no results is not on the page.
"""

import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.comparison import pictures, tables
from zoo.comparison.budgets import common_seconds, of_one_machine
from zoo.comparison.data import data_settings, load_data
from zoo.comparison.files import BASE, CHOICE, OUTPUTS
from zoo.comparison.outputs import output_counts
from zoo.comparison.recipes import Recipes, shipped_folders
from zoo.comparison.results import FEEDING, NONE, Results, Row, distinct, read_results
from zoo.comparison.search import read_choice
from zoo.comparison.significance import SAMPLES, Bootstrap, bootstrap
from zoo.comparison.tasks.base import ComparedTask, Counts
from zoo.utils.atomic import write_text
from zoo.utils.extras import require
from zoo.utils.modules import imports

PAGE, PAIRS, RANKS = "README.md", "pairs.csv", "ranks.csv"
UNTIL = "zoo.training.plateau.HalveThenStop"

TITLE = "# All attention mechanisms under one budget\n"
NOTES = """\
{scored}{spread}
{legend}{speed}{clock} Memory: peak of the training, {memory}.
"""

SIGNIFICANCE = """\
## How sure the differences are

{samples:,} samples of a paired bootstrap over the {units:,} {unit}{seeds}. *Best*: share of the samples in which the mechanism has the
{highest} {score}. *Ranks*: where it is in 95 % of them.

{ranks}
Each row against each column: the difference in {score}, coloured where p < 0.05 (two-sided), which holds for {low} of the {all_pairs} pairs. Corrected for the
number of pairs (Holm 1979) it holds for {lower}{near}.{apart} All differences with interval and p: [`{pairs}`]({pairs}); the probability of each rank: [`{all_ranks}`]({all_ranks}).

![Differences between the mechanisms]({picture})
"""

TIME = """\
## With equal training time

The best validation {score}{while_training} that each mechanism has reached after {minutes:.1f} minutes of training, {why}.{shared}{others}

{table}
![Validation {score} against training time]({picture})
"""

SIZE = """\
## With fewer training pairs

The first pairs of one fixed shuffle, so that each smaller set is part of the larger ones; validated after as many steps, and ended by the same
rule.{search}

{table}
![Test {score} against training pairs]({picture})
"""

SEARCH = """\
## The search

For each mechanism {count} trials of {epochs} epochs with seed {seed}, chosen by validation {score} alone; the test set was not read.{without}

{table}"""


@dataclass(frozen=True)
class Study:
    """Everything that is on a page."""

    recipes: Recipes
    results: Results
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    found: Bootstrap | None = None
    units: int = 0  # that the bootstrap has drawn from
    minutes: float | None = None  # of equal training time; None: until the fastest one stopped
    linked: bool = False  # the recipes are next to the page

    @property
    def rows(self) -> list[Row]:
        return self.results.rows

    @property
    def task(self) -> ComparedTask:
        return self.rows[0].task

    @property
    def score(self) -> str:
        return self.task.score.name

    def names(self, rows: Sequence[Row]) -> list[tables.Column]:
        every = [path.stem for path in self.recipes.folder.glob("*.yaml")]
        links = {row.name: f"{row.name}.yaml" for row in rows if self.linked and row.name in every}
        return tables.names(rows, every, links, self.task.has_feeding)

    @property
    def seconds(self) -> float | None:
        return common_seconds(self.timed) if self.minutes is None else 60 * self.minutes

    @property
    def timed(self) -> list[Row]:
        """The rows whose times are compared, with the runs that are."""
        return of_one_machine(self.rows)

    @property
    def not_timed(self) -> str:
        """The mechanisms whose times are not compared."""
        timed = {row.name for row in self.timed}
        return ", ".join(f"`{row.name}`" for row in self.rows if row.name not in timed)


def _is_shipped_page(study: Study) -> bool:
    return study.linked and study.recipes.folder.resolve() in {folder.resolve() for folder in shipped_folders()}


def _elsewhere(study: Study) -> str:
    """A line with the pages of the other shipped comparisons, on the page of a shipped one."""
    if not _is_shipped_page(study):
        return ""
    others = [folder for folder in shipped_folders() if folder.resolve() != study.recipes.folder.resolve()]
    pages = [folder for folder in others if (folder / PAGE).is_file()]
    links = [f"[{_data(Recipes(folder))}](../{folder.name}/{PAGE})" for folder in pages]
    return f"The same on other data: {', '.join(links)}.\n" if links else ""


def _missing(study: Study) -> str:
    """A line with the mechanisms of a shipped comparison that its page has no results of."""
    if not _is_shipped_page(study):
        return ""
    trained = {row.name for row in study.rows}
    names = [f"[`{name}`]({name}.yaml)" for name in study.recipes.names() if name not in trained]
    return f"**Not complete:** not trained yet are {', '.join(names)}.\n" if names else ""


def _budget(study: Study) -> str:
    """How long the trainings were, and by which rule they ended."""
    first = study.rows[0].results[0]
    most = first["settings"]["epochs"]
    rule = next((x for x in study.recipes.base["trainer"].get("callbacks") or [] if x.get("class_path") == UNTIL), None)
    steps = [steps for row in study.rows for steps in row.values("training", "steps")]
    took = f"{min(steps):,.0f} to {max(steps):,.0f} steps" if min(steps) < max(steps) else f"{steps[0]:,.0f} steps"
    if rule is None:
        return f"Budget: {most} epochs, {took}, {first['training']['tokens']:,} {study.task.counted}.\n"
    given = {"patience": 2, "halvings": 3, **(rule.get("init_args") or {})}
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


def _runs(rows: Sequence[Row]) -> int:
    return sum(len(row.runs) for row in rows)


def _notes(study: Study) -> str:
    rows, first = study.rows, study.rows[0].results[0]
    timed = study.timed
    on_gpu, threads = distinct(timed, "device") == ["cuda"], distinct(timed, "threads")
    clock = ""
    if not on_gpu and threads == [1]:
        clock = " Both use processor time: waiting is not in it, but other work on the machine can still slow it, by a third in what was seen."
    elif max(distinct(timed, "at_once") or [1]) > 1:
        clock = " Several trainings ran at a time, so both are lower than of one alone."
    if _runs(timed) < _runs(rows):
        (machine,) = distinct(timed, "hardware")
        clock += f" Speed and memory are of the {_runs(timed)} of {_runs(rows)} trainings on {machine} with {threads[0]} thread(s)."
    even = [value for row in rows for value in row.values("validation", "attention", "uniform_band")]
    single = " One seed does not show the variance: train several (`--seeds 1 2 3`) before you compare close results."
    several = any(len(row.results) > 1 for row in rows)
    return NOTES.format(
        scored=study.task.scored(first),
        spread=" ± is half the 95 % interval of the mean over the seeds (Student's t)." if several else single,
        legend=study.task.legend.format(uniform=f"{statistics.fmean(even):.2f}" if even else NONE),
        speed=study.task.speed_note,
        clock=clock,
        memory="of the GPU's tensors" if on_gpu else "of the whole process",
    )


def _published(study: Study) -> str:
    names = ", ".join(f"`{row.name}`" for row in study.rows if row.published)
    return f"Published results, not trained here: {names}.\n" if names else ""


def _significance(study: Study) -> str:
    found = study.found
    if found is None or len(found.names) < 2:
        return ""
    counts = {len(row.runs) for row in study.rows if row.name in found.names}
    seeds = (
        " and the seeds" if max(counts) > 1 else "; one seed each, so that the differences between seeds are not in it"
    )
    if min(counts) == 1 < max(counts):
        seeds += " (a mechanism with one seed is taken to vary like the others)"
    corrected, near = found.corrected(), found.near()
    text = SIGNIFICANCE.format(
        all_pairs=len(corrected),
        low=sum(found.p_value(*pair) < 0.05 for pair in corrected),
        lower=sum(p < 0.05 for p in corrected.values()),
        near=f"; {near} of all are so near 0.05 that other samples could decide otherwise" if near else "",
        apart=_apart(found),
        samples=len(found.samples),
        units=study.units,
        unit=study.task.unit,
        highest="lowest" if study.task.score.falls else "highest",
        score=study.score,
        seeds=seeds,
        ranks=tables.rank_table(study.rows, study.names(study.rows), found),
        pairs=PAIRS,
        all_ranks=RANKS,
        picture=pictures.PAIRS,
    )
    there = [row for row in study.rows if row.name in found.names]
    own, others = [row for row in there if not row.published], [row for row in there if row.published]
    if not (own and others):
        return text
    return f"{text}\nTrained here, against the published ones:\n\n{tables.against(own, others, found)}"


def _apart(found: Bootstrap) -> str:
    """What is left if the mechanisms are not taken to vary alike."""
    if found.apart is None:
        return ""
    apart = found.corrected(apart=True)
    low = sum((found.p_apart(*pair) or 1.0) < 0.05 for pair in apart)
    return (
        f" All this takes the seeds of all mechanisms to vary alike. With the variance of its own seeds for each, of which so few say little, p < 0.05\n"
        f"holds for {low} of the pairs, corrected for {sum(p < 0.05 for p in apart.values())}: a difference that needs the common variance is less sure."
    )


def _time(study: Study) -> str:
    rows = [row for row in study.timed if all(run.curve for run in row.runs)]
    if not rows or not study.seconds:
        return ""
    shared = max(distinct(rows, "at_once") or [1])
    others = ""
    if _runs(study.timed) < _runs(study.rows):
        others = " Trainings on another machine or with other threads are not here"
        others += f"; of {study.not_timed} there are no others." if study.not_timed else "."
    return TIME.format(
        minutes=study.seconds / 60,
        score=study.score,
        while_training=study.task.while_training,
        why="when the fastest one had stopped" if study.minutes is None else "the chosen budget",
        shared=f" Up to {shared} trainings ran at a time." if shared > 1 else "",
        others=others,
        table=tables.time_table(rows, study.names(rows), study.seconds),
        picture=pictures.CURVES,
    )


def _size(study: Study) -> str:
    if not study.results.sizes:
        return ""
    return SIZE.format(
        search=" The search was on all pairs." if study.choices else "",
        score=study.score,
        table=tables.size_table(study.results.sizes, study.names),
        picture=pictures.SIZES,
    )


def _search(study: Study) -> str:
    if not study.choices:
        return "## The search\n\nNone: each mechanism has the learning rate and dropout of its recipe.\n"
    first = next(iter(study.choices.values()))
    without = sorted({row.name for row in study.rows} - study.choices.keys())
    return SEARCH.format(
        score=study.score,
        count=len(first["trials"]),
        epochs=first["settings"]["epochs"],
        seed=first["settings"]["seed"],
        without=f" Without a search: {', '.join(f'`{name}`' for name in without)}." if without else "",
        table=tables.search_table(study.choices, study.task.score),
    )


def _about(study: Study) -> str:
    """A line for each mechanism, from the first comments of its recipe."""
    folders = [study.recipes, *(Recipes(folder.parent) for folder in study.recipes.published)]
    found = {}
    for row in study.rows:
        recipes = next((recipes for recipes in folders if recipes.path(row.name).is_file()), None)
        if recipes is not None and not row.name.endswith(FEEDING):
            found[row.name] = recipes.about(row.name)
    return "".join(f"* `{name}`: {text}\n" for name, text in sorted(found.items()) if text)


def _again(study: Study) -> str:
    rows, first = study.rows, study.rows[0].results[0]
    seeds = sorted({result["seed"] for row in rows for result in row.results})
    which, name = "", "comparison"
    if not study.recipes.are_shipped:
        shipped = {folder.resolve(): folder.name for folder in shipped_folders()}
        name = shipped.get(study.recipes.folder.resolve(), name)
        which = " --recipes FOLDER" if name == "comparison" else f" --recipes recipes/{name}"
    search = " --search" if study.choices else ""
    own = "".join(f" {word}" for word in imports())
    start, epochs = f"    zoo compare{own} --out runs/{name} --data.root DATA{which}", first["settings"]["epochs"]
    command = f"{start}{search} --epochs {epochs} --seeds {' '.join(map(str, seeds))}{_only(study.recipes, rows)}\n"
    if sizes := {
        size: part for size, part in study.results.sizes.items() if part[0].results[0]["settings"].get("pairs")
    }:
        partly = list({row.name: row for part in sizes.values() for row in part}.values())
        several = sorted({result["seed"] for part in sizes.values() for row in part for result in row.results})
        command += (
            f"{start} --epochs {epochs} --seeds {' '.join(map(str, several))} --pairs {' '.join(map(str, sizes))}"
            f"{_only(study.recipes, partly)}\n"
        )
    seconds = [x for row in rows for x in row.values("training", "training_seconds")]
    took = (
        f"; training took {sum(seconds) / 3600:.1f} hours in all, without validation and evaluation" if seconds else ""
    )
    threads = "/".join(map(str, sorted(distinct(rows, "threads"))))
    machines = Counter(result["hardware"] for row in rows for result in row.results)
    counted = [
        f"{machine} ({count} of {_runs(rows)} trainings)" if len(machines) > 1 else machine
        for machine, count in machines.items()
    ]
    where = f"{'; '.join(counted)}; {threads} thread(s) per run"
    return f"{command}\nIt resumes where it stopped; `--jobs N` trains N at a time, on all GPUs. Here: {where}{took}.\n"


def _only(recipes: Recipes, rows: Sequence[Row]) -> str:
    """The option that names some of the mechanisms of a folder; "" for all."""
    there = recipes.names()
    own = [name for name in there if name in {row.name for row in rows}]
    return f" --only {' '.join(own)}" if 0 < len(own) < len(there) else ""


def _data(recipes: Recipes) -> str:
    """Description of base.yaml's data."""
    data = recipes.base["data"]
    options = data.get("init_args") or {}
    languages = (
        f" ({options['src_lang']} to {options['tgt_lang']})" if {"src_lang", "tgt_lang"} <= options.keys() else ""
    )
    return data["class_path"].rpartition(".")[2] + languages


def text(study: Study) -> str:
    """The Markdown page."""
    base = f"[`{BASE}.yaml`]({BASE}.yaml)" if study.linked else f"`{BASE}.yaml`"
    parts = [
        TITLE,
        study.task.head.format(data=_data(study.recipes), base=base),
        _elsewhere(study),
        _missing(study),
        _budget(study),
        tables.main_table(study.rows, study.timed, study.names(study.rows), study.found),
        _published(study),
        _notes(study),
        f"![{study.score} against cost]({pictures.cost_name(study.task)})\n",
        _significance(study),
        _time(study),
        _size(study),
        _search(study),
        "## What differs\n",
        _about(study),
        "## Reproduce\n",
        _again(study),
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
    if _time(study):
        pictures.plot_curves(study.timed, study.seconds, folder / pictures.CURVES)
    if study.results.sizes:
        pictures.plot_sizes(study.results.sizes, folder / pictures.SIZES)


def check_page(folder: Path) -> None:
    """Raises ValueError if `write_page` would replace a README.md that it did not write."""
    page = folder / PAGE
    if os.path.lexists(page) and not (page.is_file() and page.read_bytes().startswith(TITLE.rstrip().encode())):
        raise ValueError(
            f"{page} is not a page of `zoo compare` and would be replaced; give another folder with --page"
        )


def read_study(out: Path, recipes: Recipes, root: str | None, minutes: float | None, page: Path) -> Study:
    """Reads all results, and compares the outputs with the references.

    Args:
        out: folder of the results.
        recipes: the recipes.
        root: folder of the data; without the data there is no significance, and a line says so.
        minutes: of equal training time.
        page: folder of the page.

    Raises:
        ValueError: see `read_results`.
    """
    results = read_results(out, recipes)
    for folder in results.left_out:
        print(f"not compared, because of another base.yaml or --epochs: published results of {folder}")
    for folder, names in results.changed.items():
        print(f"of another version of the recipe than the one there now: results of {', '.join(names)} in {folder}")
    counts: dict[str, list[Counts]] = {}
    task = recipes.task
    if any(run.has_outputs for row in results.rows for run in row.runs):
        try:
            count = task.counter(load_data(data_settings(recipes, root), task))
        except (ValueError, OSError) as error:
            print(f"without significance, which needs the data: {' '.join(str(error).split())}")
        else:
            counts = output_counts(results.rows, count)
            if without := [row.name for row in results.rows if row.name not in counts]:
                print(f"without significance of {', '.join(without)}: no outputs ({OUTPUTS['test']}) for this test set")
    found = bootstrap(counts, task.total, SAMPLES, falls=task.score.falls) if counts else None
    units = len(next(iter(counts.values()))[0]) if counts else 0
    linked = page.resolve() == recipes.folder.resolve()
    return Study(recipes, results, _choices(out, recipes, results.rows), found, units, minutes, linked)


def _choices(out: Path, recipes: Recipes, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """What the search has chosen for the mechanisms of the page, where their runs have used it."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        used: Mapping[str, Any] = row.results[0]["settings"].get("options") or {}
        files = [folder / row.name / CHOICE for folder in (out, *recipes.published)]
        choices = [read_choice(file, recipes.task.score) for file in files if file.is_file()]
        if fitting := [choice for choice in choices if recipes.are_same(row.name, choice["options"], used)]:
            found[row.name] = fitting[0]
    return found


def write_page(out: Path, recipes: Recipes, folder: Path, root: str | None, minutes: float | None = None) -> Path:
    """Writes README.md with its pictures and tables into `folder`; see `read_study`."""
    require("plots", "the plot of the comparison")
    study = read_study(out, recipes, root, minutes, folder)
    draw(study, folder)
    write_text(folder / PAGE, text(study))
    return folder / PAGE
