"""The study around the trainings of `zoo compare`: search, published results, fewer pairs, limited time."""

import json
import shutil
import sys
import time
from pathlib import Path

import pytest
import yaml
from comparison_fakes import fails, options, played_bleu

from zoo.cli import main
from zoo.comparison.files import read_outputs
from zoo.comparison.jobs import Job, Plan, Trial
from zoo.comparison.publishing import _places, _without
from zoo.comparison.recipes import Recipes
from zoo.comparison.runner import Runner
from zoo.comparison.search import Space

ROOT = Path(__file__).parents[2]
SHIPPED = Recipes(ROOT / "recipes" / "comparison")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


# ---- the search ----


def test_search(place, jobs, capsys):
    """Two rates with the recipe's dropout, then the other dropout with the better rate; the choice is trained."""
    arguments = options(place, "--only", "dot", "--search")
    assert main(["compare", *arguments]) == 0
    folder = place / "out" / "dot"
    trials = {path.parent.name: read(path) for path in folder.glob("search/*/training.json")}
    scores = {name: max(x["bleu"] for x in found["validation"]) for name, found in trials.items()}
    rate = max((0.002, 0.02), key=lambda rate: scores[f"lr{rate}_dropout0.3"])
    dropout = max((0.1, 0.3), key=lambda dropout: scores[f"lr{rate}_dropout{dropout}"])
    assert scores.keys() == {"lr0.002_dropout0.3", "lr0.02_dropout0.3", f"lr{rate}_dropout0.1"}
    assert all(found["epochs"] == 1 for found in trials.values())
    assert not [*folder.glob("search/**/result.json"), *folder.glob("search/**/*.gz")], "no trial is tested"
    assert not [*folder.glob("search/**/*.ckpt")]

    choice = read(folder / "search.json")
    assert choice["options"] == {"optimizer.lr": rate, "model.dropout": dropout}
    assert [trial["bleu"] for trial in choice["trials"]] == [
        scores[f"lr{trial['options']['optimizer.lr']}_dropout{trial['options']['model.dropout']}"]
        for trial in choice["trials"]
    ]
    assert read(folder / "seed1" / "result.json")["settings"]["options"] == choice["options"]
    used = yaml.safe_load((next(folder.glob("seed1/base/*/config.yaml"))).read_text())
    assert used["optimizer"]["init_args"]["lr"] == rate and used["model"]["init_args"]["dropout"] == dropout
    page = (place / "out" / "README.md").read_text(encoding="utf-8")
    assert "For each mechanism 3 trials of 1 epochs with seed 1" in page and f"| lr {rate}, dropout {dropout} |" in page
    assert jobs == [["dot", "zoo"]] * 4 + [["dot", "zoo.comparison.evaluation"]]

    # again: nothing is left; without --search the choice is used too
    jobs.clear()
    assert main(["compare", *arguments]) == main(["compare", *options(place, "--only", "dot")]) == 0
    assert jobs == []

    # the choice is part of what a result depends on
    choice["options"]["model.dropout"] = 0.25
    (folder / "search.json").write_text(json.dumps(choice))
    capsys.readouterr()
    line, _ = fails(capsys, *options(place, "--only", "dot"))
    assert "is of another choice of the search (" in line and "choose another --out" in line
    (folder / "search.json").write_text("{")
    assert "search.json is damaged: delete it" in fails(capsys, *options(place, "--only", "dot"))[0]


def test_later_settings_are_tried_with_the_best_of_the_earlier_ones(place, played):
    """Where that is not the recipe's own value."""
    better = next(n / 1000 for n in range(3, 100) if played_bleu(n / 1000, 0.3) > played_bleu(0.002, 0.3))
    space = place / "recipes" / "search.yaml"
    space.write_text(space.read_text().replace("0.02]", f"{better}]"))
    assert main(["compare", *options(place, "--only", "dot", "--search")]) == 0
    trials = {path.parent.name for path in (place / "out" / "dot").glob("search/*/training.json")}
    assert trials == {"lr0.002_dropout0.3", f"lr{better}_dropout0.3", f"lr{better}_dropout0.1"}
    best = max((0.1, 0.3), key=lambda dropout: played_bleu(better, dropout))
    assert read(place / "out" / "dot" / "search.json")["options"] == {"optimizer.lr": better, "model.dropout": best}


def test_a_trial_without_a_score(place, played, capsys):
    """Such as one whose validations were all NaN: the others are compared, and the page has a dash."""
    plan = Plan(Recipes(place / "recipes"), place / "out", None, 1, "cpu", 1, 0)
    trial = Trial(plan, "dot", 1, {"optimizer.lr": 0.02, "model.dropout": 0.3})
    trial.folder.mkdir(parents=True)
    none = dict(epochs=1, steps=12, seconds=1.0, validation=[dict(step=12, seconds=1.0, bleu=None)])
    trial.end.write_text(json.dumps(none))
    assert main(["compare", *options(place, "--only", "dot", "--search")]) == 0
    choice = read(place / "out" / "dot" / "search.json")
    assert choice["options"]["optimizer.lr"] == 0.002
    assert [trial["bleu"] for trial in choice["trials"] if trial["options"]["optimizer.lr"] == 0.02] == [None]
    assert "lr 0.02, dropout 0.3: –" in (place / "out" / "README.md").read_text(encoding="utf-8")


def test_a_search_that_chooses_the_recipes_own_values_repeats_no_training(place, jobs):
    """The runs before the search had them too."""
    (place / "recipes" / "search.yaml").write_text(
        "epochs: 1\nsettings:\n  optimizer.lr: [0.002]\n  model.dropout: [0.3]\n"
    )
    assert main(["compare", *options(place, "--only", "dot")]) == 0
    before = read(place / "out" / "dot" / "seed1" / "result.json")
    assert before["settings"]["options"] == {}
    jobs.clear()
    assert main(["compare", *options(place, "--only", "dot", "--search")]) == 0
    assert jobs == [["dot", "zoo"]], "only the trial"
    assert read(place / "out" / "dot" / "seed1" / "result.json") == before
    page = (place / "out" / "README.md").read_text(encoding="utf-8")
    assert "For each mechanism 1 trials of 1 epochs with seed 1" in page and "| lr 0.002, dropout 0.3 |" in page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "search.yaml is missing: it says what --search tries"),
        ("epochs: 2\n", "must have `epochs: N` and `settings:`"),
        ("epochs: 1\nsettings: {optimizer.lr: 0.1}\n", "each setting needs a list of values"),
        (
            "epochs: 1\nsettings: {optimizer.lr: [0.002, 0.1]}\nown: {dot: {optimizer.lr: [0.002]}}\n",
            "dot must have as many values of optimizer.lr as the other mechanisms",
        ),
        (
            "epochs: 1\nsettings: {optimizer.lr: [0.1, 0.2]}\n",
            "optimizer.lr of dot is 0.002 in its recipe, which is not",
        ),
        ("epochs: 1\nsettings: {model.size: [1, 2]}\n", "there is no setting model.size"),
        ("epochs: 1\nsettings: {data.seed: [1, 2]}\n", "data.seed is no setting of"),
        (
            "epochs: 1\nsettings: {optimizer.lr: [0.002]}\nown: {dott: {optimizer.lr: [0.002]}}\n",
            "search.yaml: `own:` has values of dott, which is no mechanism here: dot, none",
        ),
    ],
)
def test_a_search_that_is_wrong(place, capsys, text, message):
    file = place / "recipes" / "search.yaml"
    file.unlink() if text is None else file.write_text(text)
    assert message in fails(capsys, *options(place, "--search"))[0]


def test_own_values_of_a_shipped_mechanism_may_stay_in_a_copy(place):
    text = (place / "recipes" / "search.yaml").read_text()
    (place / "recipes" / "search.yaml").write_text(f"{text}own: {{transformer: {{optimizer.lr: [0.1, 0.2]}}}}\n")
    assert Space.read(Recipes(place / "recipes")).of("dot")["optimizer.lr"] == [0.002, 0.02]


def test_a_page_of_some_mechanisms(place, played, capsys):
    """As if the others did not exist: the common variance of the seeds is theirs alone."""
    assert main(["compare", *options(place, "--epochs", "1", "--seeds", "1", "2")]) == 0
    page = place / "page"
    assert main(["compare", *options(place, "--report", "--page", str(page), "--only", "dot")]) == 0
    text = (page / "README.md").read_text(encoding="utf-8")
    assert "| `dot`" in text and "| `none`" not in text and not (page / "pairs.csv").exists()
    assert "**A selection** of the results there are (`--only`), without the others in any figure: `dot`.\n" in text
    assert "A selection" not in (place / "out" / "README.md").read_text(encoding="utf-8")
    line, _ = fails(capsys, *options(place, "--report", "--page", str(page), "--only", "dot", "dots"))
    assert line.startswith("--only: there are no results of dots, but of ") and "dot" in line


@pytest.mark.parametrize("is_below", [False, True], ids=["whole paths", "below --data.root"])
def test_data_files_that_changed_in_place(place, played, capsys, is_below):
    """A table of results on two states of the data would compare nothing."""
    files, base = place / "data" / "multi30k", place / "recipes" / "base.yaml"
    parts = {"train": "train", "val": "val", "test": "test_2016_flickr"}
    sides = (("src", "en"), ("tgt", "de"))
    named = {
        f"{key}_{side}": f"{'multi30k' if is_below else files}/{name}.{end}"
        for key, name in parts.items()
        for side, end in sides
    }
    settings = yaml.safe_load(base.read_text())
    settings["data"] = {"class_path": "zoo.data.ParallelText", "init_args": named | {"vocab_size": 120}}
    base.write_text(yaml.safe_dump(settings))
    assert main(["compare", *options(place, "--only", "dot")]) == 0
    ran, train = len(played), files / "train.de"
    before = train.read_text(encoding="utf-8")
    train.write_text(before.swapcase(), encoding="utf-8")
    line, _ = fails(capsys, *options(place))
    folder = place / "out" / "dot" / "seed1"
    assert line == (
        f"{folder / 'result.json'} is of data files that have changed since: choose another --out, or delete {folder} "
        "to train it again"
    )
    train.unlink()  # a page needs no training data
    assert main(["compare", *options(place, "--report")]) == 0
    train.write_text(before, encoding="utf-8")
    for name in ("result.json", "job.json"):  # of a version before
        known = json.loads((folder / name).read_text())
        known["settings"].pop("files", None)
        (folder / name).write_text(json.dumps(known))
    train.write_text(before.swapcase(), encoding="utf-8")
    assert main(["compare", *options(place)]) == 0 and len(played) == ran + 2  # `none`, in two processes


def test_a_published_choice_that_is_not_used_is_named(place, played, capsys):
    """The recipe has another rate since: the search was of the recipe before."""
    assert main(["compare", *options(place, "--only", "dot", "--search")]) == 0
    published = place / "recipes" / "results"
    assert main(["compare", *options(place, "--report", "--publish", str(published))]) == 0
    new = ["--out", str(place / "new"), *options(place, "--only", "dot", "--seeds", "1", "2")[2:]]
    capsys.readouterr()
    assert main(["compare", *new]) == 0
    assert "is not used" not in capsys.readouterr().out
    recipe = place / "recipes" / "dot.yaml"
    recipe.write_text(f"{recipe.read_text()}optimizer: {{init_args: {{lr: 0.5}}}}\n")
    assert main(["compare", "--out", str(place / "newer"), *new[2:]]) == 0
    line = (
        f"{published / 'dot' / 'search.json'} is of another {recipe}, so its choice is not used; --search finds one\n"
    )
    assert capsys.readouterr().out.count(line) == 1


@pytest.mark.parametrize("key", ["max_epochs", "max_steps", "limit_train_batches"])
def test_the_budget_is_that_of_all(place, capsys, key):
    recipe = place / "recipes" / "dot.yaml"
    recipe.write_text(f"{recipe.read_text()}trainer: {{{key}: 50}}\n")
    line = f"dot.yaml: `trainer: {key}:` is the budget, which all mechanisms share: give it in base.yaml"
    assert fails(capsys, *options(place))[0].endswith(line)


@pytest.mark.parametrize("change", ["removed", "longer"])
def test_trainings_end_by_one_rule(place, capsys, change):
    recipe, name = place / "recipes" / "dot.yaml", "zoo.training.plateau.HalveThenStop"
    callbacks = yaml.safe_load((place / "recipes" / "base.yaml").read_text())["trainer"]["callbacks"]
    rule = next(one for one in callbacks if one["class_path"] == name)
    shared = dict(rule["init_args"])
    if change == "removed":
        callbacks.remove(rule)
    else:
        rule["init_args"]["patience"] = 50
    recipe.write_text(f"{recipe.read_text()}{yaml.safe_dump({'trainer': {'callbacks': callbacks}})}")
    line = f"dot.yaml: `trainer: callbacks:` must end its training by {name} with {shared}, as base.yaml says for all"
    assert fails(capsys, *options(place))[0].endswith(line)


@pytest.mark.parametrize("text", ["optimizer: {lr: 0.5}", "data: {batch_size: 2}", "lr_scheduler: {init_arg: {}}"])
def test_arguments_stand_below_init_args(place, capsys, text):
    """`zoo fit` takes them beside class_path too, the search and the evaluation would not see them."""
    recipe = place / "recipes" / "dot.yaml"
    recipe.write_text(f"{recipe.read_text()}{text}\n")
    (section,), (key,) = yaml.safe_load(text), *yaml.safe_load(text).values()
    line, _ = fails(capsys, *options(place, "--search"))
    assert line == (
        f"{recipe}: `{section}:` may only have `class_path:` and `init_args:`, below which all arguments stand; got {key!r}"
    )


def test_a_search_that_was_not_equal_for_all(place, played):
    """Such as one by an own search.yaml beside published choices: the page does not say that all had as many trials."""
    assert main(["compare", *options(place, "--search")]) == 0
    file = place / "out" / "none" / "search.json"
    choice = read(file)
    choice["settings"] |= {"epochs": 7, "seed": 4}
    choice["trials"].pop()
    file.write_text(json.dumps(choice))
    assert main(["compare", *options(place, "--report")]) == 0
    page = (place / "out" / "README.md").read_text(encoding="utf-8")
    assert "For `dot` 3 trials of 1 epochs with seed 1, chosen by" in page
    assert "**Not alike for all**; for `none` 2 of 7 with seed 4." in page and "each mechanism 3" not in page


def test_seeds_trained_here_stand_in_place_of_the_published_ones(place, played):
    assert main(["compare", *options(place, "--seeds", "1", "2")]) == 0
    assert main(["compare", *options(place, "--report", "--publish", str(place / "recipes" / "results"))]) == 0
    assert main(["compare", "--out", str(place / "new"), *options(place, "--only", "dot", "--seeds", "3")[2:]]) == 0
    page = (place / "new" / "README.md").read_text(encoding="utf-8")
    assert "Of `dot` all seeds are of the trainings here; those published in `recipes` are left out." in page
    assert "Published results, not trained here: `none`." in page


def test_callbacks_that_are_mere_names(place, played):
    base = place / "recipes" / "base.yaml"
    settings = yaml.safe_load(base.read_text())
    settings["trainer"]["callbacks"].insert(0, "lightning.pytorch.callbacks.ModelSummary")
    base.write_text(yaml.safe_dump(settings))
    assert main(["compare", *options(place, "--only", "dot")]) == 0
    assert "Each training ends when validation BLEU stops" in (place / "out" / "README.md").read_text(encoding="utf-8")


def test_the_shipped_search_is_equal_for_all():
    space = Space.read(SHIPPED)
    assert space.trials == 5
    for name in SHIPPED.names():
        assert {setting: len(values) for setting, values in space.of(name).items()} == {
            "optimizer.lr": 3,
            "model.dropout": 3,
        }
        space.start(SHIPPED, name)
    assert space.of("transformer")["optimizer.lr"] == [0.0015, 0.003, 0.006]


# ---- published results ----


@pytest.mark.integration
def test_published_results_and_a_mechanism_of_a_newcomer(place, jobs, capsys):
    """What is published has no checkpoints and no paths; a newcomer's page shows both, with significance."""
    assert main(["compare", *options(place, "--search")]) == 0
    log = place / "out" / "dot" / "seed1" / "log.txt"
    log.write_text(f"reading {place / 'data'}/train.en, writing {place / 'out'}/dot\n")
    published = place / "recipes" / "results"
    assert main(["compare", *options(place, "--report", "--publish", str(published))]) == 0
    assert capsys.readouterr().out.endswith(f"{published}: 8 trainings\n")
    files = {path.relative_to(published).as_posix() for path in published.rglob("*") if path.is_file()}
    kept = {"result.json", "training.json", "validation.txt.gz", "test.txt.gz", "config.yaml"}
    assert {f"none/seed1/{name}" for name in kept} | {"none/search.json", "dot/seed1/log.txt"} <= files
    assert not [name for name in files if name.endswith(".ckpt")]
    texts = [path.read_text() for path in published.rglob("*") if path.suffix in (".json", ".yaml", ".txt")]
    assert not any(str(place) in text for text in texts)
    assert (published / "dot/seed1/log.txt").read_text() == "reading DATA/train.en, writing OUT/dot\n"
    before, after = (read_outputs(x / "dot/seed1/test.txt.gz") for x in (place / "out", published))
    assert before == after and len(after) == 12

    # a recipe that was changed since
    recipe = place / "recipes" / "dot.yaml"
    before = recipe.read_text()
    recipe.write_text(f"{before}optimizer: {{init_args: {{lr: 0.5}}}}\n")
    assert main(["compare", *options(place, "--report", "--publish", str(place / "other"))]) == 2
    output = capsys.readouterr()
    assert f"version of the recipe than the one there now: results of dot in {place / 'out'}\n" in output.out
    assert "results of dot are of another version of the recipe: restore it, or train again" in output.err
    assert not (place / "other").exists()
    recipe.write_text(before)

    # the published folder by itself gives the same page as the study
    capsys.readouterr()
    assert main(["compare", "--report", "--out", str(published), *options(place)[2:]]) == 0
    assert (published / "pairs.csv").read_text() == (place / "out" / "pairs.csv").read_text()

    for file in published.glob("*/seed1/result.json"):  # trained elsewhere, with two seeds each
        found = read(file) | {"hardware": "another processor"}
        file.write_text(json.dumps(found))
        second = file.parent.parent / "seed2"
        shutil.copytree(file.parent, second)
        for scores in found["training"]["validation"]:
            scores["loss"] = 1.0
        (second / file.name).write_text(json.dumps(found | {"seed": 2}))
        config = yaml.safe_load((second / "config.yaml").read_text()) | {"seed_everything": 2}
        (second / "config.yaml").write_text(yaml.safe_dump(config))

    mine = place / "mine"
    shutil.copytree(place / "recipes", mine, ignore=shutil.ignore_patterns("dot.yaml", "none.yaml"))
    (mine / "general.yaml").write_text("# Mine.\nmodel: {init_args: {score: general}}\n")
    jobs.clear()
    newcomer = ["--out", str(place / "new"), "--recipes", str(mine), *options(place)[4:]]
    assert main(["compare", *newcomer]) == 0
    assert {name for name, _ in jobs} == {"general"}
    page = (place / "new" / "README.md").read_text(encoding="utf-8")
    assert "Published results, not trained here: " in page and "* `general`: Mine." in page
    table = page.split("Trained here, against the published ones (corrected for these 2 pairs):")[1].split("\n\n")[1]
    assert {line.split("|")[2].strip() for line in table.splitlines()[2:]} == {"`dot`", "`none`"}
    pairs = (place / "new" / "pairs.csv").read_text().splitlines()
    assert len(pairs) == 1 + 3 * 2 and pairs[0].startswith("mechanism,other,difference,low,high,p,p_holm,p_own")
    pictures = ("significance.png", "curves.png", "steps.png")  # the last shows it beside the others
    assert all((place / "new" / name).read_bytes().startswith(b"\x89PNG") for name in pictures)
    assert "Times of `general` are of another machine" in page and "One seed does not show the variance" in page
    (command,) = [line for line in page.splitlines() if line.startswith("    zoo compare ")]
    assert "--seeds 1" in command and "--seeds 1 2" not in command and "--search" not in command

    # a change of base.yaml, and the published results cannot be compared
    base = mine / "base.yaml"
    base.write_text(base.read_text().replace("warmup_steps: 4", "warmup_steps: 3"))
    capsys.readouterr()
    assert main(["compare", "--out", str(place / "other"), "--recipes", str(mine), *options(place)[4:]]) == 0
    assert f"not compared, because of another base.yaml or --epochs: published results of {mine / 'results'}" in (
        capsys.readouterr().out
    )
    page = (place / "other" / "README.md").read_text(encoding="utf-8")
    assert "`none`" not in page and "best (%)" not in page
    assert "Not compared are published results of `comparison`, `mine`: they are of another base.yaml" in page


def test_paths_that_hold_one_another(place, monkeypatch):
    """The longest path is replaced first, and without --data.root the folder of results keeps its word."""
    monkeypatch.delenv("ZOO_DATA", raising=False)
    monkeypatch.chdir(place)
    plan = Plan(Recipes(place / "recipes"), place / "out", None, 1, "cpu", 1, 0)
    text = f"{place}/out/dot {place}/recipes/dot.yaml {place}/other {sys.prefix}/lib {Path.home()}/x"
    expected = "OUT/dot RECIPES/dot.yaml FOLDER/other PYTHON/lib HOME/x"
    assert _without(text, _places(plan)) == expected
    monkeypatch.setenv("ZOO_DATA", str(place / "data"))
    assert _without(f"{place}/data/x", _places(plan)) == "DATA/x"


def test_without_the_data_there_is_no_significance(place, jobs, capsys):
    assert main(["compare", *options(place, "--epochs", "1")]) == 0
    capsys.readouterr()
    (place / "data" / "multi30k" / "test_2016_flickr.de").write_text("EIN\n")
    report = ["compare", "--report", "--page", str(place / "page"), *options(place)]
    assert main(report) == 0
    assert "without significance, which needs the data: " in capsys.readouterr().out
    assert "How sure the differences are" not in (place / "page" / "README.md").read_text(encoding="utf-8")


def test_outputs_that_do_not_fit(place, played, capsys):
    """Damaged outputs, or a score that is not theirs, end the command; without outputs a line says who is left out."""
    assert main(["compare", *options(place, "--epochs", "1")]) == 0
    report, folder = options(place, "--report"), place / "out" / "dot" / "seed1"
    pairs, outputs, found = place / "out" / "pairs.csv", folder / "test.txt.gz", read(folder / "result.json")
    whole = outputs.read_bytes()
    assert pairs.is_file() and (place / "out" / "ranks.csv").is_file()
    outputs.write_bytes(whole[: len(whole) // 2])
    assert str(outputs) in fails(capsys, *report)[0]
    outputs.write_bytes(whole)
    bleu = found["test"]["bleu"]
    changed = {**found, "test": {**found["test"], "bleu": bleu + 1}}
    (folder / "result.json").write_text(json.dumps(changed))
    expected = f"result.json has {bleu + 1:.2f} BLEU on the test set, the outputs beside it have {bleu:.2f}: "
    assert expected in fails(capsys, *report)[0]
    (folder / "result.json").write_text(json.dumps(found))
    outputs.unlink()
    assert main(["compare", *report]) == 0
    assert "without significance of dot: no outputs (test.txt.gz) for this test set" in capsys.readouterr().out
    assert not pairs.exists() and not (place / "out" / "ranks.csv").exists(), "of the page before"


def test_the_command_that_repeats_a_part_of_a_study(place, played):
    assert main(["compare", *options(place, "--only", "dot", "--pairs", "12", "100")]) == 0
    page = (place / "out" / "README.md").read_text(encoding="utf-8").split("## Reproduce")[1]
    first, second = [line.strip() for line in page.splitlines() if line.startswith("    zoo compare")]
    assert first.endswith("--seeds 1 --only dot") and second.endswith("--seeds 1 --pairs 12 --only dot")


# ---- fewer pairs ----


def test_fewer_pairs(place, jobs, capsys):
    arguments = options(place, "--only", "dot", "--pairs", "12", "100")
    assert main(["compare", *arguments]) == 0
    folder = place / "out" / "dot"
    part, whole = (read(folder / name / "result.json") for name in ("pairs12/seed1", "seed1"))
    assert part["settings"]["pairs"] == part["pairs"] == 12 and whole["pairs"] == 36, "100 are more than there are"
    assert part["training"]["steps"] == whole["training"]["steps"] == 24
    assert [x["step"] for x in part["training"]["validation"]] == [x["step"] for x in whole["training"]["validation"]]
    page = (place / "out" / "README.md").read_text(encoding="utf-8")
    assert "| mechanism | input feeding | 12 pairs | 36 pairs |" in page
    assert (place / "out" / "sizes.png").read_bytes().startswith(b"\x89PNG")
    jobs.clear()
    assert main(["compare", *arguments]) == 0 and jobs == []
    capsys.readouterr()
    assert main(["compare", *options(place, "--only", "none", "--pairs", "12"), "--out", str(place / "parts")]) == 0
    assert "no page yet: it begins with trainings on all pairs" in capsys.readouterr().out


def test_pairs_of_another_budget_are_named_before_anything_is_trained(place, played, capsys):
    """The page could not show both."""
    assert main(["compare", *options(place, "--only", "none", "--pairs", "12")]) == 0
    capsys.readouterr()
    line, said = fails(capsys, *options(place, "--only", "dot", "--epochs", "3"))
    folder = place / "out" / "none" / "pairs12" / "seed1"
    assert line == f"{folder / 'job.json'} is of 2 epochs, not 3: choose another --out, or delete {folder}"
    assert "training" not in said


def test_pairs_of_other_data(place, capsys):
    base = yaml.safe_load((place / "recipes" / "base.yaml").read_text())
    base["data"] = {"class_path": "zoo.data.Tatoeba", "init_args": {}}
    folder = place / "data" / "tatoeba-eng-fra"
    folder.mkdir()
    (folder / "eng-fra.txt").write_text("".join(f"Dog {n}.\tChien {n}.\n" for n in range(400)))
    (place / "recipes" / "base.yaml").write_text(yaml.safe_dump(base))
    assert fails(capsys, *options(place, "--pairs", "5"))[0] == "--pairs: Tatoeba has no option train_size"
    assert fails(capsys, *options(place, "--pairs", "0"))[0] == "--pairs must be at least 1; got 0"


# ---- limited time ----


class Waiting(Job):
    """A job that takes a minute."""

    def commands(self):
        return [["timeit", "-n1", "-r1", "__import__('time').sleep(60)"]]


def test_the_time_is_over(place, capsys):
    """What runs is ended, what waits is not started, and nothing has failed."""
    plan = Plan(Recipes(place / "recipes"), place / "out", None, 1, "cpu", 1, 0, at_once=2)
    waiting = [Waiting(plan, name, seed) for seed in (1, 2) for name in ("dot", "none")]
    start = time.monotonic()
    runner = Runner(plan, hours=0.5 / 3600)
    runner.run(waiting)
    assert runner.is_over and not runner.failed and time.monotonic() - start < 20
    assert [job.folder.is_dir() for job in waiting] == [True, True, False, False], "the first seed first"
    runner.run([Waiting(plan, "dot", 3)])
    assert not (place / "out" / "dot" / "seed3").exists() and not Runner(plan).is_over
    assert capsys.readouterr().out == ""


def test_hours_and_minutes_are_positive(place, capsys):
    assert fails(capsys, *options(place, "--hours", "0"))[0] == "--hours must be above 0; got 0.0"
    assert fails(capsys, *options(place, "--minutes", "-1"))[0] == "--minutes must be above 0; got -1.0"


def test_left_over(place, jobs, capsys):
    assert main(["compare", *options(place, "--search", "--hours", "1e-9")]) == 0
    line = (
        "the time is over: 0 of 0 trainings are left, and the search of 2 mechanisms; the same command resumes them\n"
    )
    assert capsys.readouterr().out == line and jobs == []
    assert main(["compare", *options(place, "--hours", "1e-9", "--seeds", "1", "2")]) == 0
    assert "the time is over: 4 of 4 trainings are left; the same command resumes them" in capsys.readouterr().out
