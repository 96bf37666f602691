"""`zoo compare`: tiny trainings from beginning to end, what it measures, what it refuses, and its real recipes."""

import importlib
import inspect
import itertools
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from comparison_fakes import fails, options, result, write
from filelock import FileLock
from forks import Fork
from matplotlib.text import Text
from other_system import everything

from zoo.cli import main
from zoo.comparison import measures, pictures, runner
from zoo.comparison.attention import attention_measures, mean_attention_measures
from zoo.comparison.jobs import Job, Plan
from zoo.comparison.recipes import Recipes, read_yaml
from zoo.comparison.tasks.base import Score
from zoo.comparison.tasks.translation import length_bins
from zoo.plots.style import new_figure

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes" / "comparison"
NAMES = sorted(path.stem for path in RECIPES.glob("*.yaml") if path.stem not in ("base", "search"))


def test_from_training_to_the_page(place, within, capsys):
    assert main(["compare", *options(place)]) == 0
    assert "dot, seed 1: BLEU" in (out := capsys.readouterr().out) and out.splitlines()[-1] == str(
        place / "out" / "README.md"
    )
    assert within == [[name, part] for name in ("dot", "none") for part in ("zoo", "zoo.comparison.evaluation")]
    results = {
        name: json.loads((place / "out" / name / "seed1" / "result.json").read_text()) for name in ("dot", "none")
    }
    dot, none = results["dot"], results["none"]
    assert none["validation"]["attention"] is None and dot["validation"]["attention"]["relative_entropy"] > 0
    assert dot["training"]["epochs"] == 2 and len(dot["training"]["validation"]) == 2
    assert (
        dot["training"]["steps"] == 24
        and dot["training"]["tokens_per_second"] > 0
        and dot["training"]["peak_memory_mb"] > 10
    )
    assert dot["training"]["tokens"] == none["training"]["tokens"], "an equal budget"
    assert sum(part["sentences"] for part in dot["test"]["bleu_by_length"].values()) == 12
    assert max(scores["bleu"] for scores in dot["training"]["validation"]) >= 0 and dot["device"] == "cpu"

    page = (place / "out" / "README.md").read_text(encoding="utf-8")
    table = page.split("\n\n")[3]
    rows = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")}
    assert rows.keys() == {"dot", "none"}
    assert (
        f"{dot['parameters'] / 1e6:.2f} M" in rows["dot"] and rows["none"].count("–") == 4
    )  # feeding and three of attention
    assert (
        "* `dot`: Dot score." in page
        and "That took 24 steps, at most 2 epochs; 2 of 2" in page
        and dot["signature"] in page
    )
    assert (place / "out" / "bleu_against_cost.png").read_bytes().startswith(b"\x89PNG")

    # again: nothing is done twice; what is deleted is done again, the training not
    within.clear()
    (place / "data" / "multi30k").rename(place / "elsewhere")  # nothing is left to do, so the data are not needed
    before = {path: path.stat().st_mtime_ns for path in (place / "out").glob("*/seed1/*.json")}
    assert main(["compare", *options(place)]) == 0
    assert within == [] and capsys.readouterr().out.count("already done") == 2
    assert before == {path: path.stat().st_mtime_ns for path in before}
    (place / "elsewhere").rename(place / "data" / "multi30k")
    (place / "out" / "none" / "seed1" / "result.json").unlink()
    assert main(["compare", *options(place)]) == 0
    assert within == [["none", "zoo.comparison.evaluation"]]

    # other settings: one line, before anything runs
    within.clear()
    capsys.readouterr()
    line, _ = fails(capsys, *options(place, "--epochs", "3"))
    assert "2 epochs, not 3: choose another --out, or delete" in line
    recipe = place / "recipes" / "dot.yaml"
    recipe.write_text("# Another comment.\n" + recipe.read_text())
    assert main(["compare", *options(place)]) == 0
    recipe.write_text(recipe.read_text().replace("score: dot", "score: general"))
    line, _ = fails(capsys, *options(place))
    assert "dot/seed1/result.json is of another recipe: choose another --out" in line
    assert within == []


def test_a_job_that_fails_stops_no_other(place, within, capsys):
    (place / "recipes" / "dot.yaml").write_text(
        "model: {class_path: zoo.models.luong.LuongNMT, init_args: {window: 0}}\n"
    )
    line, out = fails(capsys, *options(place, "--epochs", "1"))
    assert line == "1 of 2 jobs failed: dot, seed 1; the same command retries them"
    assert "dot, seed 1: failed: it is broken" in out and "none, seed 1: BLEU" in out
    page = (place / "out" / "README.md").read_text(encoding="utf-8")
    assert "`none`" in page and "`dot`" not in page


def test_a_finished_training(place, within, capsys):
    """A page next to its recipes links them; what is damaged or of another recipe is named, and nothing else is run."""
    train = options(place, "--epochs", "1")
    assert main(["compare", *train, "--page", str(place / "recipes")]) == 0
    page = (place / "recipes" / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((\S+?)\)", page)
    assert {"base.yaml", "dot.yaml"} <= set(links) and all((place / "recipes" / link).is_file() for link in links)
    assert "--recipes FOLDER --epochs 1" in page

    within.clear()
    capsys.readouterr()
    folder = place / "out" / "dot" / "seed1"
    (folder / "result.json").unlink()
    training = (folder / "training.json").read_text()
    (folder / "training.json").write_text(training[:20])
    line, _ = fails(capsys, *train)
    assert line == f"{folder / 'training.json'} is damaged: delete {folder} to train it again"
    (folder / "training.json").write_text(training)
    (best,) = folder.rglob("best.ckpt")
    best.unlink()
    line, _ = fails(capsys, *train)
    assert line == f"{best} of a finished training is missing: delete {folder} to train it again"

    base = place / "recipes" / "base.yaml"
    base.write_text(base.read_text().replace("warmup_steps: 4", "warmup_steps: 3"))
    shutil.rmtree(place / "out" / "dot")
    line, _ = fails(capsys, *train, "--only", "dot")
    folder = place / "out" / "none" / "seed1"
    assert (
        line
        == f"{folder / 'result.json'} is of another base.yaml: choose another --out, or delete {folder} to train it again"
    )
    assert within == []


def test_message_of_a_failed_process(place):
    plan = Plan(Recipes(place / "recipes"), place / "out", None, 1, "cpu", 1, 0)
    job, running = Job(plan, "dot", 1), runner.Runner(plan)
    job.folder.mkdir(parents=True)
    (job.folder / "log.txt").write_text("zoo: error: of an earlier try\n")
    with pytest.raises(
        runner._FailedError, match=rf"No such file or directory: .*\({re.escape(str(job.folder / 'log.txt'))}\)"
    ):
        running._process(job, ["json.tool", "nothing.json"], 0, None)
    running._process(job, ["this"], 0, None)
    assert "Zen of Python" in (job.folder / "log.txt").read_text()


def test_what_a_user_can_get_wrong(place, capsys, monkeypatch):
    assert (
        fails(capsys, *options(place, "--only", "dit"))[0]
        == "no mechanism 'dit'; did you mean 'dot'? There are dot, none"
    )
    assert fails(capsys, *options(place, "--seeds", "-1"))[0] == "--seeds must be at least 0; got -1"
    assert fails(capsys, *options(place, "--jobs", "0"))[0] == "--jobs must be at least 1; got 0"
    assert fails(capsys, *options(place, "--minutes", "nan"))[0] == "--minutes must be above 0; got nan"
    assert fails(capsys, *options(place, "--epochs", "0"))[0] == "--epochs must be at least 1; got 0"
    assert "has no base.yaml" in fails(capsys, *options(place)[:2], "--recipes", place / "nowhere")[0]
    assert (
        fails(capsys, *options(place, "--data.root", str(place / "no")))[0]
        == f"--data.root {place / 'no'}: no such folder"
    )
    folders = f"--recipes {place / 'recipes'} --out {place / 'out'}"
    assert fails(capsys, *options(place, "--report"))[0] == (
        f"{place / 'out'} has no results: train first, with zoo compare {folders}"
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert fails(capsys, *options(place, "--device", "cuda"))[0].startswith("--device cuda: there is no GPU")
    (place / "recipes" / "dot.yaml").write_text("a: [\n")
    assert "dot.yaml is not YAML" in fails(capsys, *options(place))[0]
    (place / "recipes" / "dot.yaml").write_text("a: 1\n")
    assert "dot.yaml is not a recipe" in fails(capsys, *options(place))[0]
    for name in ("a" * 41, "my mechanism", "a|b"):
        file = place / "recipes" / f"{name}.yaml"
        file.write_text("model: {}\n")
        assert f"may have 40 letters, digits and _ . -; got {name!r}: rename it" in fails(capsys, *options(place))[0]
        file.rename(place / "recipes" / f"{'a' * 40}.yaml").unlink()
    for text, said in {
        "model: {init_args: {score: dot}}\nnote: 2026-11-28\n": "dot.yaml: a date, 2026-11-28, is no text, number, list",
        "model: {init_args: nonsense}\n": "dot.yaml: `model: init_args:` must have names and values below it; got 'non",
        "model: {}\noptimizer: nonsense\n": "dot.yaml: `optimizer:` must have names and values below it; got 'nonsense'",
        "model: {}\ntrainer: {gradient_clip: 1}\n": "dot.yaml: Subcommand 'fit' does not accept option 'trainer.gradient_c",
        "model: {}\noptimizer: {init_args: {lrr: 1}}\n": "dot.yaml: optimizer: ",
        "model: {init_args: {dropout: much}}\n": "dot.yaml: model: ",
        "model: {}\nmodle: {a: 1}\n": "dot.yaml: Subcommand 'fit' does not accept option 'modle.a'",
        "model: {}\ntrainer: {callbacks: []}\n": "dot.yaml: `trainer: callbacks:` lacks zoo.comparison.measures.Training",
    }.items():
        (place / "recipes" / "dot.yaml").write_text(text)
        assert said in fails(capsys, *options(place))[0]
    (place / "recipes" / "dot.yaml").write_text("model: {}\n")
    base = (place / "recipes" / "base.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load(base)
    content["trainer"]["callbacks"].pop()
    (place / "recipes" / "base.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    assert (
        "base.yaml: `trainer: callbacks:` lacks zoo.comparison.measures.TrainingMeter, which notes down what a"
        in (fails(capsys, *options(place))[0])
    )
    (place / "recipes" / "base.yaml").write_text("model: {}\n")
    assert "base.yaml must have `data:` and, as the budget" in fails(capsys, *options(place))[0]
    assert "`model:` must have a class_path" in fails(capsys, *options(place, "--report"))[0]
    (place / "recipes" / "base.yaml").write_text(base.replace("zoo.models.luong.LuongNMT", "zoo.tasks.base.ZooModule"))
    kinds = "captioners, language models, readers, and zoo.tasks.base.ZooModule is none of them"
    assert kinds in fails(capsys, *options(place, "--report"))[0]
    (place / "recipes" / "base.yaml").write_text(base)
    for option in (["--seeds", "1"], ["--pairs", "3"], ["--search"], ["--hours", "1"]):
        line = f"--report writes the page of all results in {place / 'out'}; leave out {option[0]}"
        assert fails(capsys, *options(place, "--report", *option))[0] == line
    damaged = place / "out" / "dot" / "seed1" / "result.json"
    damaged.parent.mkdir(parents=True)
    whole = result("dot", 1, 30.0)
    wrongs = ({"settings": None}, {"test": {}}, {"threads": "one"}, {"parameters": float("nan")})
    wrongs += tuple(
        {part: {**whole[part], key: value}}
        for part, key, value in (
            ("settings", "options", [1]),
            ("settings", "pairs", "all"),
            ("training", "training_seconds", "long"),
            ("training", "validation", [{"bleu": "30"}]),
            ("test", "bleu_by_length", {"4-9": {"bleu": [[]], "sentences": "x"}}),
            ("validation", "attention", {"entropy": "low"}),
        )
    )
    lacking = [{**result("dot", 1, 30.0), **wrong} for wrong in wrongs]
    for text in (b"{", b'"\xff"', b'{"name": "dot"}', *(json.dumps(wrong).encode() for wrong in lacking)):
        damaged.write_bytes(text)
        assert "result.json is damaged" in fails(capsys, *options(place, "--report"))[0]
    damaged.write_text(json.dumps({**result("dot", 1, 30.0), "test": {"name": "test", "accuracy": 90.0}}))
    line, _ = fails(capsys, *options(place, "--report"))
    assert line.startswith(f"{damaged} has accuracy, the models of these recipes BLEU: ") and "--recipes" in line
    for name in ("dot", "none"):
        (place / "recipes" / f"{name}.yaml").unlink()
    line = f"{place / 'recipes'} has no mechanism: put a recipe beside base.yaml"
    assert fails(capsys, *options(place))[0] == line


def test_a_recipe_without_arguments(place):
    (place / "recipes" / "dot.yaml").write_text("model:\n  init_args:\n")
    plan = Plan(Recipes(place / "recipes"), place / "out", None, 1, "cpu", 1, 0)
    assert "--trainer.max_epochs" in Job(plan, "dot", 1).fit_arguments()


def test_arguments_of_a_training(place):
    plan = Plan(Recipes(place / "recipes"), place / "out", "DATA", 4, "cuda", 1, 2, all_pairs=36)
    arguments = Job(plan, "dot", 7, {"optimizer.lr": 0.004}).fit_arguments()
    given = dict(zip(arguments[5::2], arguments[6::2], strict=True))
    assert given["--optimizer.lr"] == "0.004" and given["--trainer.max_epochs"] == "4"
    assert given["--seed_everything"] == given["--data.seed"] == "7" and given["--data.root"] == "DATA"
    assert given["--trainer.accelerator"] == "gpu" and "--ckpt_path" not in given
    checkpoint = place / "out" / "dot" / "seed7" / "base" / "checkpoints" / "best.ckpt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    again = Job(plan, "dot", 7).fit_arguments()
    assert again[again.index("--ckpt_path") + 1] == "last" and "--data.train_size" not in again

    part = Job(plan, "dot", 7, pairs=12)
    arguments = part.fit_arguments()
    given = dict(zip(arguments[5::2], arguments[6::2], strict=True))
    assert part.folder == place / "out" / "dot" / "pairs12" / "seed7" and given["--data.train_size"] == "12"
    assert given["--trainer.max_epochs"] == "12" and given["--trainer.check_val_every_n_epoch"] == "3", (
        "as many steps between two validations as with all pairs"
    )


def test_nothing_as_a_choice_of_the_search_is_null(place):
    plan = Plan(Recipes(place / "recipes"), place / "out", None, 1, "cpu", 1, 0)
    arguments = Job(plan, "dot", 1, {"lr_scheduler.total_steps": None}).fit_arguments()
    assert arguments[arguments.index("--lr_scheduler.total_steps") + 1] == "null"  # `zoo fit` takes None for a text


def test_gpus_in_turn(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [runner._visible(n) for n in (0, 1)] == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert [runner._visible(n) for n in (0, 1)] == ["3", "5"]


def test_several_jobs_share_a_gpu(place, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    plan = Plan(Recipes(place / "recipes"), place / "out", None, 1, "cuda", 1, 2, at_once=12)
    job, running = Job(plan, "dot", 1), runner.Runner(plan)
    job.folder.mkdir(parents=True)
    for slot in (0, 3, 10):
        running._process(
            job, ["timeit", "-n1", "-r1", "import os; print('gpu', os.environ['CUDA_VISIBLE_DEVICES'])"], slot, None
        )
    assert re.findall("gpu (.*)", (job.folder / "log.txt").read_text()) == ["0", "1", "0"]


def test_two_at_a_time_and_one_that_is_taken(place, capsys, monkeypatch):
    """Jobs overlap with --jobs 2; a job at which another `zoo compare` is stays with that."""
    at_once, most = [], []

    def run(self, job, command, slot, lock):
        at_once.append(slot)
        most.append(sorted(at_once))
        time.sleep(0.2)
        at_once.remove(slot)
        raise runner._FailedError("enough")

    monkeypatch.setattr(runner.Runner, "_process", run)
    line, _ = fails(capsys, *options(place, "--jobs", "2"))
    assert [0, 1] in most and line.startswith("2 of 2 jobs failed")
    with FileLock(place / "out" / "dot" / "seed1" / "lock"):
        line, out = fails(capsys, *options(place))
        assert "dot, seed 1: another process is running it" in out and line.startswith("1 of 2 jobs failed: none")
        assert main(["compare", *options(place, "--only", "dot")]) == 0
    assert "no page yet: another process runs dot, seed 1; the same command makes it when" in capsys.readouterr().out


# ---- what is measured ----


def test_attention_of_matrices_by_hand():
    one = attention_measures(torch.eye(4))
    assert one == {
        "entropy": 0.0,
        "relative_entropy": 0.0,
        "band": 1.0,
        "uniform_band": pytest.approx((2 + 3 + 3 + 2) / 16),
    }
    alike = attention_measures(torch.full((4, 4), 0.25))
    assert alike["entropy"] == pytest.approx(math.log(4)) and alike["relative_entropy"] == pytest.approx(1)
    assert alike["band"] == pytest.approx(alike["uniform_band"])
    # T = 2, S = 4: t = 1 is at 2 (tokens 1-3), t = 2 at 4 (tokens 3-4)
    weights = torch.tensor([[0.5, 0.0, 0.0, 0.5], [0.75, 0.25, 0.0, 0.0]])
    found = attention_measures(weights)
    assert found["band"] == pytest.approx((0.5 + 0.0) / 2) and found["uniform_band"] == pytest.approx((3 + 2) / 8)
    by_hand = (math.log(2) + -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))) / 2
    assert found["entropy"] == pytest.approx(by_hand) and found["relative_entropy"] == pytest.approx(
        by_hand / math.log(4)
    )
    # scaled rows are the same rows; a row without weight is left out
    assert attention_measures(weights * torch.tensor([[3.0], [0.1]])) == pytest.approx(found)
    assert attention_measures(torch.cat([weights[:1], torch.zeros(1, 4)]))["band"] == pytest.approx(0.5)
    assert attention_measures(torch.zeros(2, 3)) is None
    assert attention_measures(torch.ones(3, 1)) == {
        "entropy": 0.0,
        "relative_entropy": 0.0,
        "band": 1.0,
        "uniform_band": 1.0,
    }
    # a tenth of 40 source tokens: 4 on either side
    wide = torch.zeros(40, 40)
    wide[9, 13] = wide[10, 15] = 1.0  # 4 and 5 away from the diagonal
    assert attention_measures(wide)["band"] == pytest.approx(0.5)


def test_mean_over_sentences():
    even = torch.full((2, 2), 0.5)
    found = mean_attention_measures([torch.eye(2), even, None, torch.zeros(2, 3)])
    assert found["entropy"] == pytest.approx(math.log(2) / 2, abs=1e-4)
    assert mean_attention_measures([None, torch.zeros(1, 3)]) is None


def test_bins_of_length():
    bins = length_bins(["a " * n for n in (5, 1, 2, 3, 4, 6, 7, 8)])
    assert bins == [("1-2", [1, 2]), ("3-4", [3, 4]), ("5-6", [0, 5]), ("7-8", [6, 7])]
    assert length_bins(["a b"] * 5 + ["a b c"]) == [("2", [0, 1, 2, 3, 4]), ("3", [5])], "one length is never parted"


def test_meter_goes_on():
    meter = measures.TrainingMeter()
    meter.rates, meter.tokens, meter.seconds, meter.memory = [10.0, 30.0], 99, 50.0, 7.0
    meter.training_seconds = 12.5
    other = measures.TrainingMeter()
    other.load_state_dict(meter.state_dict())
    assert other.rates == [10.0, 30.0] and other.tokens == 99 and other.state_dict()["seconds"] >= 50.0
    assert other.training_seconds == 12.5


# ---- the page ----


def test_page_of_several_seeds(tmp_path, capsys, monkeypatch):
    fed = result("dot_input_feeding", 1, 33.0)
    write(tmp_path / "out", result("dot", 1, 30.0), result("dot", 2, 32.0), fed, result("none", 1, 20.0))
    assert main(["compare", "--out", str(tmp_path / "out"), "--report", "--page", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "README.md").read_text(encoding="utf-8")
    table = page.split("\n\n")[3].splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table if line.startswith("| `")]
    assert [row[0] for row in rows] == ["`dot`", "`dot`", "`none`"], "best first"
    assert "Multi30k (en to de)" in page and "--recipes" not in page
    assert "    zoo compare --out runs/comparison --data.root DATA --epochs" in page
    assert [row[1] for row in rows] == ["yes", "no", "–"] and [row[2] for row in rows] == ["1", "2", "1"]
    assert rows[1][4] == "31.0 ± 12.7" and rows[0][4] == "33.0" and "half the 95 % interval of the mean" in page
    assert "How sure" not in page, "without translations"
    (tmp_path / "mechanisms.py").touch()  # of the user
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ZOO_IMPORT", "mechanisms")
    shutil.copytree(RECIPES, tmp_path / "recipes")
    beside = ["--recipes", str(tmp_path / "recipes"), "--page", str(tmp_path / "recipes")]
    assert main(["compare", "--out", str(tmp_path / "out"), "--report", *beside]) == 0
    page = (tmp_path / "recipes" / "README.md").read_text(encoding="utf-8")
    assert "    zoo compare --import mechanisms --out runs/comparison" in page
    linked = [
        line.split("|")[1].strip()
        for line in (tmp_path / "recipes" / "README.md").read_text(encoding="utf-8").split("\n\n")[3].splitlines()
        if "| [`" in line
    ]
    assert linked == ["[`dot`](dot_input_feeding.yaml)", "[`dot`](dot.yaml)", "[`none`](none.yaml)"], "best first"
    assert "--seeds 1 2" in page and (tmp_path / "page" / "bleu_against_cost.png").is_file()


def test_budgets_are_not_mixed(tmp_path, capsys):
    write(tmp_path, result("dot", 1, 30.0), result("none", 1, 20.0, epochs=3))
    assert "has results of 3 and 6 epochs" in fails(capsys, "--out", tmp_path, "--report")[0]


def test_results_of_another_base(tmp_path, capsys):
    """The page takes the rule for the end of the training from base.yaml: it must be that of the trainings."""
    found = result("dot", 1, 30.0)
    found["settings"]["base"] = "of other settings"
    write(tmp_path, found)
    line, _ = fails(capsys, "--out", tmp_path, "--report")
    assert line.startswith(f"{tmp_path} has results of another ") and line.endswith("or train again elsewhere")


def test_numbers_of_recipes_are_those_of_a_training(tmp_path):
    (tmp_path / "x.yaml").write_text("a: 1e-3\nb: -2E5\nc: 1e\nd: 1.5e-2\ne: e5\n")
    assert read_yaml(tmp_path / "x.yaml") == {"a": 1e-3, "b": -2e5, "c": "1e", "d": 1.5e-2, "e": "e5"}


@pytest.mark.parametrize(
    "points",
    [
        {"han": (13.6, 90.6)},
        {"han": (13.6, 90.6), "mean": (15.5, 89.72), "general": (19.2, 89.68)},
        {"soft": (40.0, 21.0), "none": (40.5, 21.02), "hard_soft_context": (60.0, 19.0)},
        {f"mechanism{n}": (30 + n % 3, 35 + n / 20) for n in range(19)},
    ],
)
def test_names_of_the_plot_are_apart(points):
    figure = new_figure(figsize=(9.6, 5.2), layout="constrained")
    axes = figure.subplots()
    pictures._panel(axes, {name: (x, [y]) for name, (x, y) in points.items()})
    figure.draw_without_rendering()
    assert sorted(text.get_text() for text in axes.texts) == sorted(points)
    boxes = [Text.get_window_extent(text) for text in axes.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 for box in boxes)
    if len(points) < 3 or "mean" in points:  # with room for it a name is next to its point
        for text, box in zip(axes.texts, boxes, strict=True):
            x, y = axes.transData.transform(points[text.get_text()])
            assert 0 < box.x0 - x < 25 and box.y0 < y < box.y1


def test_crowded_names_keep_their_order():
    placed = pictures.spread([0.5, 0.5, 0.51, 0.99, 1.0], 0.05)
    assert all(b - a > 0.0499 for a, b in zip(placed, placed[1:])) and placed[0] == 0.5 and placed[-1] <= 1
    crowded = pictures.spread([0.5] * 40, 0.05)
    assert crowded[0] >= 0 and crowded[-1] <= 1 and all(b - a > 0.0249 for a, b in zip(crowded, crowded[1:]))


@pytest.mark.parametrize("name", ["perplexity", "bleu"])
def test_curves_fill_their_picture(name):
    curves = {
        "fast": [[(1.0, 190.0), (40.0, 100.0), (60.0, 90.0), (150.0, 84.7)]],
        "slow": [[(2.0, 185.0), (80.0, 101.0), (160.0, 89.0)]],
    }
    score = Score(name, name, falls=name == "perplexity")
    if not score.falls:
        curves = {mechanism: [[(x, 200 - y) for x, y in line] for line in lines] for mechanism, lines in curves.items()}
    figure, axes = pictures._best_so_far(curves, score)
    figure.draw_without_rendering()
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for (line,) in curves.values():
        assert left < line[-1][0] < right and bottom < line[-1][1] < top
    if score.falls:
        assert 36 <= left < 60 and bottom > 80 and 100 < top < 110


# ---- the real recipes ----


def _model(name):
    """The class of a recipe and its arguments, merged as LightningCLI does."""
    base, own = (yaml.safe_load((RECIPES / f"{part}.yaml").read_text(encoding="utf-8")) for part in ("base", name))
    assert "model" in own and own.keys() <= {"model", "optimizer", "lr_scheduler"}, "the rest is of base.yaml"
    module, _, cls = own["model"]["class_path"].rpartition(".")
    cls = getattr(importlib.import_module(module), cls)
    known = inspect.signature(cls.__init__).parameters
    return cls, {key: value for key, value in base["model"]["init_args"].items() if key in known} | own["model"][
        "init_args"
    ]


def test_every_mechanism_has_a_recipe():
    twins = ["dot", "scaled_dot", "general", "concat", "location", "local_m", "local_p", "local_p_full", "local_p_star"]
    others = {"none", "additive", "key_value", "key_value_linear", "partly_zero", "transformer", "single_head"}
    assert set(NAMES) == {*others, *twins, *(f"{name}_input_feeding" for name in twins)}
    for name in twins:
        (_, without), (_, fed) = _model(name), _model(f"{name}_input_feeding")
        assert fed == {**without, "input_feeding": True}, "twins differ in nothing else"
    assert _model("general")[1]["input_feeding"] is False


def test_recipes_build_models_of_equal_size():
    counts = {}
    for name in NAMES:
        cls, arguments = _model(name)
        with torch.device("meta"):
            counts[name] = sum(p.numel() for p in cls(**arguments).parameters())
    median = statistics.median(count for name, count in counts.items() if name != "transformer")
    assert abs(counts["transformer"] / median - 1) < 0.02
    assert all(abs(count / median - 1) < 0.12 for count in counts.values()), counts


@pytest.mark.slow  # twenty models of real size
@pytest.mark.parametrize("name", NAMES)
def test_one_step(place, name, monkeypatch):
    """The recipe on top of base.yaml, as LightningCLI merges them."""
    monkeypatch.chdir(place)
    recipes = [part for file in ("base", name) for part in ("--config", str(RECIPES / f"{file}.yaml"))]
    trainer = [
        "--trainer.fast_dev_run",
        "true",
        "--trainer.accelerator",
        "cpu",
        "--trainer.enable_progress_bar",
        "false",
    ]
    assert main(["fit", *recipes, *trainer, "--data.root", str(place / "data"), "--data.batch_size", "2"]) == 0


@pytest.mark.slow  # five processes
def test_without_posix(place, monkeypatch):
    """As on Windows, in the processes of the jobs too."""
    site = place / "site"
    site.mkdir()
    lines = ["import os, other_system", "other_system.become_windows()", f"open(f'{site}/{{os.getpid()}}', 'w')", ""]
    (site / "sitecustomize.py").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *sys.path]))
    end = Fork(everything, str(place), ["compare", *options(place, "--only", "dot")]).wait()
    assert end.code == 0 and "compare ended with 0" in end.output, end.output
    assert "dot, seed 1: BLEU" in end.output and (place / "out" / "README.md").is_file()
    assert len([path for path in site.iterdir() if path.name.isdecimal()]) >= 2  # training, evaluation


@pytest.mark.slow  # four processes
def test_stopped_and_gone_on(place):
    """The real processes: the command is stopped in the middle of a training and goes on with it."""
    arguments = [sys.executable, "-m", "zoo", "compare", *options(place, "--only", "dot", "--epochs", "8")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    folder = place / "out" / "dot" / "seed1"
    first = subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True)
    limit = time.monotonic() + 600
    while not (folder / "base" / "checkpoints" / "last.ckpt").is_file():
        assert first.poll() is None and time.monotonic() < limit
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=120)
    assert first.returncode == 128 + signal.SIGTERM and not (folder / "training.json").exists()
    run = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    training = json.loads((folder / "training.json").read_text())
    assert training["steps"] == 96 and len(training["validation"]) == 8
    assert "Restored all states from the checkpoint" in (folder / "log.txt").read_text()


def test_a_readme_of_others_is_not_replaced(tmp_path, capsys):
    (tmp_path / "README.md").write_text("# My project")
    assert main(["compare", "--out", str(tmp_path), "--report"]) == 2
    assert (
        "README.md is not a page of `zoo compare` and would be replaced; give another folder with --page"
        in capsys.readouterr().err
    )
    assert (tmp_path / "README.md").read_text() == "# My project"
    before = tmp_path / "README.md"
    for name in ("pairs.csv", "bleu_against_cost.png"):
        before = before.rename(tmp_path / name)
        assert main(["compare", "--out", str(tmp_path), "--report"]) == 2
        line = f"{name} is not of a page of `zoo compare` and would be replaced; give another"
        assert line in capsys.readouterr().err
        assert before.read_text() == "# My project"
