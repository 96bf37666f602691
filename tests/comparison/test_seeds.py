"""Only trainings that differ in the seed alone have a mean: what `zoo compare` says of others."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from comparison_fakes import fails, options, result, write

from zoo.cli import main
from zoo.comparison.recipes import Recipes, shipped_folders
from zoo.comparison.results import read_runs
from zoo.comparison.seeds import check_runs


def trained(name, seed, losses, rate=0.001, root="/data", **more):
    """A result with its settings, as trained on some machine."""
    found = result(name, seed, 30.0 + seed)
    for scores, loss in zip(found["training"]["validation"], losses, strict=True):
        scores["loss"] = loss
    config = {
        "seed_everything": seed,
        "trainer": {"accelerator": "cpu", "default_root_dir": f"{root}/out", "callbacks": [{"class_path": "Meter"}]},
        "model": {"class_path": "zoo.models.luong.LuongNMT", "init_args": {"dropout": 0.3}},
        "optimizer": {"class_path": "AdamW", "init_args": {"lr": rate}},
        "data": {"class_path": "Multi30k", "init_args": {"seed": seed, "root": root}},
        **more,
    }
    return found, config


def put(out, *trainings):
    for found, config in trainings:
        write(out, found)
        folder = out / found["name"] / f"seed{found['seed']}" / "base" / "version_0"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(config))


def report(out, capsys):
    return fails(capsys, "--out", out, "--report")[0]


def test_seeds_of_several_machines_are_averaged(tmp_path):
    trainer = {"accelerator": "gpu", "devices": 1, "callbacks": [{"class_path": "Meter"}]}
    put(tmp_path, trained("dot", 1, [3.0, 2.0]), trained("dot", 2, [3.1, 2.1], root="/other", trainer=trainer))
    assert main(["compare", "--out", str(tmp_path), "--report"]) == 0


def test_seeds_of_different_settings_are_not_averaged(tmp_path, capsys):
    put(tmp_path, trained("dot", 1, [3.0, 2.0]), trained("dot", 2, [3.1, 2.1], rate=0.01))
    one, two = tmp_path / "dot" / "seed1", tmp_path / "dot" / "seed2"
    assert report(tmp_path, capsys) == (
        f"{one} and {two} differ in optimizer.lr (0.001 and 0.01), so they have no common mean: keep one in another "
        "--out, or train it again"
    )
    callbacks = [{"class_path": "Meter"}, {"class_path": "EMAWeights"}]
    shutil.rmtree(two)
    put(tmp_path, trained("dot", 2, [3.1, 2.1], trainer={"callbacks": callbacks[::-1]}))
    assert "differ in trainer.callbacks.0.class_path ('Meter' and 'EMAWeights'), so" in report(tmp_path, capsys)


def test_seeds_of_different_data_are_not_averaged(tmp_path, capsys):
    """Files of the user keep their names when more texts come in."""
    (first, config), second = trained("dot", 1, [3.0, 2.0]), trained("dot", 2, [3.1, 2.1])
    put(tmp_path, ({**first, "pairs": 1000}, config), second)
    assert main(["compare", "--out", str(tmp_path), "--report"]) == 0, "an older result does not say"
    shutil.rmtree(tmp_path / "dot" / "seed2")
    put(tmp_path, ({**second[0], "pairs": 900}, second[1]))
    assert "differ in the number of training examples (1,000 and 900), so they have no common mean" in report(
        tmp_path, capsys
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"recipe": "y"}, "differ in the recipe, so they have no common mean"),
        ({"options": {"optimizer.lr": 0.5}}, "differ in the choice of the search ({} and {'optimizer.lr': 0.5}), so"),
    ],
)
def test_results_without_settings_are_told_apart_by_their_recipe(tmp_path, capsys, settings, said):
    other = result("dot", 2, 31.0)
    other["settings"] |= settings
    write(tmp_path, result("dot", 1, 30.0), other)
    assert said in report(tmp_path, capsys)


def test_a_copy_is_not_another_seed(tmp_path, capsys):
    put(tmp_path, trained("dot", 1, [3.0, 2.0]))
    one, two = tmp_path / "dot" / "seed1", tmp_path / "dot" / "seed2"
    shutil.copytree(one, two)
    assert report(tmp_path, capsys) == (
        f"{two} has the result of dot/seed1, so it is a copy of that: delete it, or train it"
    )
    found = json.loads((one / "result.json").read_text()) | {"seed": 2}
    (two / "result.json").write_text(json.dumps(found))
    assert report(tmp_path, capsys).startswith(f"{two} has the settings of seed 1, so it is a copy: delete it")
    shutil.rmtree(two / "base")
    line = report(tmp_path, capsys)
    assert line.startswith(f"{one} and {two} are the same training, with equal validation losses: delete one, or train")
    shutil.rmtree(two)
    shutil.copytree(one, tmp_path / "none" / "seed1")
    assert "none/seed1 has the result of dot/seed1, so it is a copy" in report(tmp_path, capsys)


def test_trainings_without_a_finite_loss_are_not_taken_for_copies(tmp_path):
    put(tmp_path, trained("dot", 1, [3.0, None]), trained("dot", 2, [3.0, None]))
    assert main(["compare", "--out", str(tmp_path), "--report"]) == 0


def test_a_copy_is_named_before_anything_is_trained(place, played, capsys):
    assert main(["compare", *options(place, "--only", "dot")]) == 0
    one, two = place / "out" / "dot" / "seed1", place / "out" / "dot" / "seed2"
    shutil.copytree(one, two)
    played.clear()
    line, _ = fails(capsys, *options(place, "--seeds", "1", "2", "3"))
    assert line == f"{two / 'result.json'} is of dot, seed 1, not of dot, seed 2: delete {two} to train it again"
    (two / "result.json").unlink()  # of a training that was not over when it was copied
    assert f"{two / 'job.json'} is of dot, seed 1, not of" in fails(capsys, *options(place, "--seeds", "2"))[0]
    assert played == []


@pytest.mark.integration  # reads all settings
@pytest.mark.parametrize("folder", shipped_folders(), ids=lambda folder: folder.name)
def test_the_published_seeds_differ_in_the_seed_alone(folder):
    recipes = Recipes(Path(folder))
    check_runs(read_runs(folder / "results", recipes.task, published=True), recipes)
