"""All that a page of the comparison tells: recipes, results, choices of the search, and significance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zoo.comparison import tables
from zoo.comparison.budgets import common_seconds, of_one_machine
from zoo.comparison.data import data_settings, load_data
from zoo.comparison.files import CHOICE, OUTPUTS
from zoo.comparison.outputs import output_counts
from zoo.comparison.recipes import Recipes
from zoo.comparison.results import Results, Row, read_results
from zoo.comparison.search import read_choice
from zoo.comparison.seeds import check_runs
from zoo.comparison.significance import Bootstrap, bootstrap
from zoo.comparison.tasks.base import ComparedTask, Counts


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
    selected: bool = False  # some mechanisms that there are were left out on request

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
        own = {path.stem for path in self.recipes.folder.glob("*.yaml")}
        every = own.union(*({path.stem for path in folder.parent.glob("*.yaml")} for folder in self.recipes.published))
        links = {row.name: f"{row.name}.yaml" for row in rows if self.linked and row.name in own}
        return tables.names(rows, sorted(every), links, self.task.has_feeding)

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


def read_study(
    out: Path,
    recipes: Recipes,
    root: str | None,
    minutes: float | None,
    page: Path,
    only: Sequence[str] | None = None,
) -> Study:
    """Reads all results, and compares the outputs with the references.

    Args:
        out: folder of the results.
        recipes: the recipes.
        root: folder of the data; without the data there is no significance, and a line says so.
        minutes: of equal training time.
        page: folder of the page.
        only: names of the mechanisms to show; None: all.

    Raises:
        ValueError: see `read_results` and `check_runs`, or there are no results of a name.
    """
    results = read_results(out, recipes)
    if only:
        results = _selected(results, only)
    all_rows = [row for rows in (results.rows, *results.sizes.values()) for row in rows]
    check_runs({run.folder: run for row in all_rows for run in row.runs}.values(), recipes)
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
    found = bootstrap(counts, task.total, falls=task.score.falls) if counts else None
    units = len(next(iter(counts.values()))[0]) if counts else 0
    linked = page.resolve() == recipes.folder.resolve()
    return Study(recipes, results, _choices(out, recipes, results.rows), found, units, minutes, linked, bool(only))


def _selected(results: Results, only: Sequence[str]) -> Results:
    """The results of some mechanisms."""
    there = [row.name for row in results.rows]
    if unknown := [name for name in only if name not in there]:
        raise ValueError(f"--only: there are no results of {', '.join(unknown)}, but of {', '.join(there)}")
    sizes = {size: [row for row in rows if row.name in only] for size, rows in results.sizes.items()}
    rows = [row for row in results.rows if row.name in only]
    return replace(results, rows=rows, sizes={size: rows for size, rows in sizes.items() if rows})


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
