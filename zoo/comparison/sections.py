"""The sections of the page of the comparison below its table, each as Markdown; "" where there is nothing to tell."""

from collections import Counter
from collections.abc import Sequence

from zoo.comparison import pictures, tables
from zoo.comparison.recipes import Recipes, shipped_folders
from zoo.comparison.results import FEEDING, Row, count_runs, distinct
from zoo.comparison.significance import Bootstrap
from zoo.comparison.study import Study
from zoo.utils.modules import imports

PAIRS, RANKS = "pairs.csv", "ranks.csv"

SIGNIFICANCE = """\
## How sure the differences are

{samples:,} samples of a paired bootstrap over the {units:,} {unit}{seeds}. *Best*: share of the samples in which the mechanism has the
{highest} {score}; of mechanisms that are all equal some one is ahead, too, so it is no probability of being best. *Ranks*: where it is in 95 % of them.

{ranks}
Each row against each column: the difference in {score}, coloured where p < 0.05 (two-sided), which holds for {low} of {all_pairs}. Corrected for the
number of pairs (Holm 1979) it holds for {lower}{near}.{apart} All differences with interval and p: [`{pairs}`]({pairs}); the share of samples with each rank: [`{all_ranks}`]({all_ranks}).

![Differences between the mechanisms]({picture})
"""

TIME = """\
## With equal training time

The best validation {score}{while_training} that each mechanism has reached after a quarter, half and all of {minutes:.1f} minutes of training, {why}.{shared}{others}

{table}
![Validation {score} against training time]({picture})
"""

STEPS = """\
## By training steps

Times of {names} are of another machine than those of the others, so they are not in the pictures of time; steps are alike everywhere.

![Validation {score} against training steps]({picture})
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

For {which} {count} trials of {epochs} epochs with seed {seed}, chosen by validation {score} alone; the test set was not read.{more}{without}

{table}"""


def significance(study: Study) -> str:
    found = study.found
    if found is None or len(found.names) < 2:
        return ""
    counts = {len(row.runs) for row in study.rows if row.name in found.names}
    seeds = (
        " and the seeds" if max(counts) > 1 else "; one seed each, so that the differences between seeds are not in it"
    )
    if min(counts) == 1 < max(counts):
        seeds += " (a mechanism with one seed is taken to vary like the others)"
    corrected = found.corrected()
    text = SIGNIFICANCE.format(
        all_pairs=f"the {len(corrected)} pairs" if len(corrected) > 1 else "1 pair",
        low=sum(found.p_value(*pair) < 0.05 for pair in corrected),
        lower=sum(p < 0.05 for p in corrected.values()),
        near=f"; {_near(near)}" if (near := found.near()) else "",
        apart=_apart(found, min(len(row.runs) for row in study.rows if row.name in found.names)),
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
    count = len(own) * len(others)
    return (
        f"{text}\nTrained here, against the published ones (corrected for these {count} pairs):\n\n"
        f"{tables.against(own, others, found)}"
    )


def _near(count: int) -> str:
    """For how many pairs the samples decide."""
    return f"{count} of all are so near 0.05 that other samples could decide otherwise"


def _apart(found: Bootstrap, fewest: int) -> str:
    """What is left if the mechanisms, which have at least `fewest` seeds, are not taken to vary alike."""
    if found.apart is None:
        return ""
    apart = found.corrected(apart=True)
    low = sum((found.p_value(*pair, apart=True)) < 0.05 for pair in apart)
    close = f" ({_near(near)})" if (near := found.near(apart=True)) else ""
    each = "each" if fewest > 1 else "each that has several (of the others that of all)"
    return (
        f" All this takes the seeds of all mechanisms to vary alike. With the variance of its own seeds for {each}, of which so few say little, p < 0.05\n"
        f"holds for {low} of the pairs, corrected for {sum(p < 0.05 for p in apart.values())}{close}: a difference that only one of the two shows is less sure."
    )


def time(study: Study) -> str:
    rows = [row for row in study.timed if all(run.curve for run in row.runs)]
    if not rows or not study.seconds:
        return ""
    shared = max(distinct(rows, "at_once") or [1])
    others = ""
    if count_runs(study.timed) < count_runs(study.rows):
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


def steps(study: Study) -> str:
    """For mechanisms trained here whose times cannot be compared with the published ones."""
    timed = {row.name for row in study.timed}
    names = ", ".join(f"`{row.name}`" for row in study.rows if not row.published and row.name not in timed)
    beside = any(row.published and run.validations("step") for row in study.rows for run in row.runs)
    return STEPS.format(names=names, score=study.score, picture=pictures.STEPS) if names and beside else ""


def size(study: Study) -> str:
    if not study.results.sizes:
        return ""
    return SIZE.format(
        search=" The search was on all pairs." if study.choices else "",
        score=study.score,
        table=tables.size_table(study.results.sizes, study.names),
        picture=pictures.SIZES,
    )


def search(study: Study) -> str:
    if not study.choices:
        return "## The search\n\nNone: each mechanism has the learning rate and dropout of its recipe.\n"
    kinds: dict[tuple[int, int, int], list[str]] = {}  # trials, epochs, seed -> mechanisms
    for name, found in study.choices.items():
        kind = len(found["trials"]), found["settings"]["epochs"], found["settings"]["seed"]
        kinds.setdefault(kind, []).append(f"`{name}`")
    ((count, epochs, seed), names), *others = sorted(kinds.items(), key=lambda kind: (-len(kind[1]), kind[1]))
    unequal = "".join(f"; for {', '.join(names)} {n} of {long} with seed {s}" for (n, long, s), names in others)
    without = sorted({row.name for row in study.rows} - study.choices.keys())
    return SEARCH.format(
        score=study.score,
        which="each mechanism" if not others else ", ".join(names),
        count=count,
        epochs=epochs,
        seed=seed,
        more=f" **Not alike for all**{unequal}." if others else "",
        without=f" Without a search: {', '.join(f'`{name}`' for name in without)}." if without else "",
        table=tables.search_table(study.choices, study.task.score),
    )


def differences(study: Study) -> str:
    """A line for each mechanism, from the first comments of its recipe."""
    folders = [study.recipes, *(Recipes(folder.parent) for folder in study.recipes.published)]
    found = {}
    for row in study.rows:
        recipes = next((recipes for recipes in folders if recipes.path(row.name).is_file()), None)
        if recipes is not None and not row.name.endswith(FEEDING):
            found[row.name] = recipes.about(row.name)
    lines = "".join(f"* `{name}`: {text}\n" for name, text in sorted(found.items()) if text)
    return f"## What differs\n\n{lines}"


def reproduction(study: Study) -> str:
    rows = [row for row in study.rows if not row.published] or study.rows
    first = rows[0].results[0]
    seeds = sorted({result["seed"] for row in rows for result in row.results})
    which, name = "", "comparison"
    if not study.recipes.are_shipped:
        shipped = {folder.resolve(): folder.name for folder in shipped_folders()}
        name = shipped.get(study.recipes.folder.resolve(), name)
        which = " --recipes FOLDER" if name == "comparison" else f" --recipes recipes/{name}"
    search = " --search" if any(row.name in study.choices for row in rows) else ""
    own = "".join(f" {word}" for word in imports())
    start, epochs = f"    zoo compare{own} --out runs/{name} --data.root DATA{which}", first["settings"]["epochs"]
    command = f"{start}{search} --epochs {epochs} --seeds {' '.join(map(str, seeds))}{_only(study.recipes, rows)}\n"
    if sizes := {
        size: there
        for size, part in study.results.sizes.items()
        if part[0].results[0]["settings"].get("pairs")
        and (there := [row for row in part if row.published == rows[0].published])
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
        f"{machine} ({count} of {count_runs(rows)} trainings)" if len(machines) > 1 else machine
        for machine, count in machines.items()
    ]
    where = f"{'; '.join(counted)}; {threads} thread(s) per run"
    return f"## Reproduce\n\n{command}\nIt resumes where it stopped; `--jobs N` trains N at a time, on all GPUs. Here: {where}{took}.\n"


def _only(recipes: Recipes, rows: Sequence[Row]) -> str:
    """The option that names some of the mechanisms of a folder; "" for all."""
    there = recipes.names()
    own = [name for name in there if name in {row.name for row in rows}]
    return f" --only {' '.join(own)}" if 0 < len(own) < len(there) else ""
