"""`zoo compare`: trains every attention mechanism of a task by the same rules, with several seeds, and compares them.

A folder of recipes holds base.yaml, what all mechanisms share, and one short file per mechanism.
zoo/comparison/files.py says what is written where.
"""

import argparse
import inspect
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from zoo.comparison.data import data_settings, load_data
from zoo.comparison.files import BASE, JOB, RECIPES, RESULT, SEEDS, SIZES
from zoo.comparison.jobs import WAS, Job, Plan, read_settings
from zoo.comparison.page import check_page, write_page
from zoo.comparison.publishing import publish
from zoo.comparison.recipes import Recipes
from zoo.comparison.results import changed_recipes, check_names, read_runs
from zoo.comparison.runner import Runner
from zoo.comparison.search import Space, chosen, search, unused
from zoo.comparison.seeds import check_runs
from zoo.utils.extras import require
from zoo.utils.modules import find_local_modules

TRAINED = ("seeds", "pairs", "search", "hours")  # options that say what to train, and not what a page shows


def run(options: argparse.Namespace) -> None:
    """Runs `zoo compare`.

    Raises:
        ValueError: an option is invalid, or jobs failed.
    """
    require("plots", "`zoo compare`")
    recipes, out = Recipes(Path(options.recipes or RECIPES)), Path(options.out)
    page = Path(options.page or out)
    if not recipes.names(() if options.report else options.only or ()):
        raise ValueError(f"{recipes.folder} has no mechanism: put a recipe beside {BASE}.yaml")
    _check(options)
    find_local_modules()  # a recipe may name a class of one
    check_page(page)
    failed, taken, count = [], [], 0
    if not options.report:
        require("scores", "`zoo compare`")
        runner = _train(options, make_plan(options, recipes))
        failed, taken, count = sorted(runner.failed), runner.taken, runner.count
    if any(out.glob(f"{SEEDS}/{RESULT}")) or not (failed or taken or options.hours or options.pairs):
        shown = options.only if options.report else None
        print(write_page(out, recipes, page, options.root, options.minutes, shown))
    elif taken:
        print(f"no page yet: another process runs {', '.join(taken)}; the same command makes it when that has ended")
    elif options.pairs:
        print("no page yet: it begins with trainings on all pairs, so leave --pairs out, or give as many as there are")
    if options.publish:
        if changed := changed_recipes(out, recipes):
            raise ValueError(
                f"results of {', '.join(changed)} are of another version of the recipe: restore it, or train again "
                "elsewhere; nothing was published"
            )
        copied = publish(_plan(options, recipes), Path(options.publish))
        print(f"{options.publish}: {copied} trainings")
    if failed:
        raise ValueError(f"{len(failed)} of {count} jobs failed: {'; '.join(failed)}; the same command retries them")


def _train(options: argparse.Namespace, plan: Plan) -> Runner:
    """Runs the search and the trainings; returns what ran them."""
    names = plan.recipes.names(options.only or ())
    runner = Runner(plan, options.hours)
    if options.search:
        space = Space.read(plan.recipes)
        names = search(plan, space, names, runner.run)
    jobs = make_jobs(plan, names, options.seeds, options.pairs)
    for job in jobs:
        job.check()
    runner.run(jobs)
    if runner.is_over:
        left = sum(not job.end.is_file() for job in jobs)
        waiting = len(plan.recipes.names(options.only or ())) - len(names)
        more = f", and the search of {waiting} mechanisms" if waiting else ""
        print(f"the time is over: {left} of {len(jobs)} trainings are left{more}; the same command resumes them")
    return runner


def _check(options: argparse.Namespace) -> None:
    """Raises ValueError for an option out of its range."""
    for option in ("epochs", "jobs", "threads"):
        if (value := getattr(options, option)) is not None and value < 1:
            raise ValueError(f"--{option} must be at least 1; got {value}")
    for option in ("hours", "minutes"):
        if (value := getattr(options, option)) is not None and not value > 0:  # nan neither
            raise ValueError(f"--{option} must be above 0; got {value}")
    if options.root and not Path(options.root).is_dir():
        raise ValueError(f"--data.root {options.root}: no such folder")
    if options.report and (given := [f"--{name}" for name in TRAINED if getattr(options, name)]):
        raise ValueError(f"--report writes the page of all results in {options.out}; leave out {', '.join(given)}")
    options.seeds = options.seeds or [1]
    if min(options.seeds) < 0:
        raise ValueError(f"--seeds must be at least 0; got {min(options.seeds)}")
    if min(options.pairs or [1]) < 1:
        raise ValueError(f"--pairs must be at least 1; got {min(options.pairs)}")


def _plan(options: argparse.Namespace, recipes: Recipes) -> Plan:
    import torch

    gpus = torch.cuda.device_count()
    device = options.device or ("cuda" if gpus else "cpu")
    if device == "cuda" and not gpus:
        raise ValueError("--device cuda: there is no GPU that torch can use; leave it out or give cpu")
    recipes.check_base()
    epochs = options.epochs or recipes.base["trainer"]["max_epochs"]
    threads = options.threads or max(1, (os.cpu_count() or 1) // options.jobs)
    return Plan(recipes, Path(options.out), options.root, epochs, device, threads, gpus, options.jobs)


def make_plan(options: argparse.Namespace, recipes: Recipes) -> Plan:
    """The settings of all jobs, after everything that a training would miss was looked for.

    Raises:
        ValueError: an option or a recipe is invalid, or the folder has results of other settings.
    """
    plan = _plan(options, recipes)
    names = recipes.names(options.only or ())
    jobs = make_jobs(plan, names, options.seeds, None)
    for job in jobs:
        job.check()
        recipes.check_model(job.name)
        recipes.check_callbacks(job.name)
    if options.search:
        space = Space.read(recipes)
        for name in names:
            space.start(recipes, name)
    else:
        for name in names:
            if file := unused(plan, name):
                print(f"{file} is of another {recipes.path(name)}, so its choice is not used; --search finds one")
    left = [job for job in jobs if not job.end.is_file()]
    _check_settings(left)
    if options.pairs or left:  # what is missing is missed before the trainings
        plan = _with_data(plan, names, options.pairs)
    check_names(recipes, plan.epochs, {name: recipes.fingerprints(name)["recipe"] for name in names})
    for file in sorted(plan.out.glob(f"{SEEDS}/{JOB}")):  # also of jobs not selected now: all appear in one table
        name, seed = file.parent.parent.name, file.parent.name.removeprefix("seed")
        if seed.isdecimal() and recipes.path(name).is_file():
            Job(plan, name, int(seed), chosen(plan, name)).check()
        elif (known := read_settings(file).get("epochs")) != plan.epochs:
            raise ValueError(
                f"{file} is of {known} epochs, not {plan.epochs}: choose another --out, or delete {file.parent}"
            )
    shared = {"epochs": plan.epochs, "base": recipes.fingerprint}
    for file in sorted(plan.out.glob(f"{SIZES}/{JOB}")):  # on the same page
        known = {**shared, **read_settings(file)}
        for key, value in shared.items():
            if known[key] != value:
                was = WAS[key].format(known[key], value)
                raise ValueError(f"{file} is of {was}: choose another --out, or delete {file.parent}")
    check_runs(read_runs(plan.out, recipes.task), recipes)
    return plan


def _check_settings(jobs: Sequence[Job]) -> None:
    """Reads the recipes as `zoo fit` will, one job of each mechanism; ValueError for a wrong setting."""
    if not jobs:
        return
    from zoo.training.parsing import check_arguments

    for job in {job.name: job for job in jobs}.values():
        try:
            check_arguments(job.fit_arguments())
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(f"{job.plan.recipes.path(job.name)}: {error}") from error


def _with_data(plan: Plan, names: Sequence[str], sizes: Sequence[int] | None) -> Plan:
    """Looks at the data, also where a mechanism reads them otherwise; with sizes it counts the training pairs.

    Raises:
        ValueError: data of a mechanism have other references than those of base.yaml.
    """
    task, seen = plan.recipes.task, []
    data = load_data(base := data_settings(plan.recipes, plan.root), task)
    references = [task.examples(data, split)[1] for split in ("val", "test")]
    for name in names:
        settings = data_settings(plan.recipes, plan.root, name)
        if settings != base and settings not in seen:
            seen.append(settings)
            own = load_data(settings, task)
            if [task.examples(own, split)[1] for split in ("val", "test")] != references:
                raise ValueError(
                    f"{plan.recipes.path(name)}: `data:` must give the validation and test examples of base.yaml"
                )
    if not sizes:
        return plan
    if "train_size" not in inspect.signature(type(data)).parameters:
        raise ValueError(f"--pairs: {type(data).__name__} has no option train_size")
    return replace(plan, all_pairs=task.training_size(data))


def make_jobs(plan: Plan, names: Sequence[str], seeds: Sequence[int], sizes: Sequence[int] | None) -> list[Job]:
    """All jobs: every mechanism with the first seed, then with the next one.

    Args:
        plan: their common settings.
        names: the mechanisms.
        seeds: the seeds.
        sizes: numbers of training pairs; None: all pairs. So many as there are, or more, are all pairs too.
    """
    parts = dict.fromkeys(size if size < plan.all_pairs else None for size in sizes) if sizes else [None]
    options = {name: chosen(plan, name) for name in names}
    return [
        Job(plan, name, seed, options[name], pairs)
        for seed in dict.fromkeys(seeds)
        for pairs in parts
        for name in names
    ]
