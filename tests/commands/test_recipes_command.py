"""`zoo recipes`, and `--config NAME`, which finds a shipped recipe."""

import pytest
import yaml
from fakes import Toy

from zoo.cli import main
from zoo.commands import recipes

TOY = """\
# Made et al. 2020, a toy, on letters
# and "Words". More of it follows
# here.
#
# zoo fit
trainer: {max_epochs: 1, accelerator: cpu, enable_progress_bar: false, log_every_n_steps: 1}
model: {class_path: fakes.Toy, init_args: {hidden: 6}}
data: {class_path: fakes.ToyData}
"""


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Recipes as this package ships them; the current folder is another one, and empty."""
    folder = tmp_path / "shipped"
    (folder / "comparison").mkdir(parents=True)
    (folder / "toy.v2.yaml").write_text(TOY)
    (folder / "toy.v10.yaml").write_text("model: {}\n")
    (folder / "comparison" / "dot.yaml").write_text("# Dot score. See there.\nmodel: {}\n")
    (folder / "comparison" / "README.md").write_text("No recipe.\n")
    monkeypatch.setattr(recipes, "RECIPES", folder)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


def fails(capsys, *args):
    assert main(list(args)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("zoo: error: ")


def test_list(shipped, capsys):
    assert main(["recipes"]) == main(["recipes", "*"]) == main(["recipes", "comparison/*"]) == 0
    toys = ["toy.v10  ", 'toy.v2   Made et al. 2020, a toy, on letters and "Words".']
    assert capsys.readouterr().out.splitlines() == [
        *toys,
        "toy.v10         ",
        'toy.v2          Made et al. 2020, a toy, on letters and "Words".',
        "comparison/dot  Dot score.",
        "comparison/dot  Dot score.",
    ]
    assert fails(capsys, "recipes", "x*") == "no recipe matches 'x*'; `zoo recipes` shows all"


def test_print(shipped, capsys):
    for name in ("toy.v2", "toy.v2.yaml", "recipes/toy.v2.yaml"):
        assert main(["recipes", name]) == 0
        assert capsys.readouterr().out == TOY
    assert main(["recipes", "comparison/dot"]) == 0
    assert capsys.readouterr().out == (shipped / "comparison" / "dot.yaml").read_text()
    unknown = "there is no recipe 'toy.v3'; nearest: toy.v2, toy.v10; `zoo recipes` lists them"
    assert fails(capsys, "recipes", "toy.v3") == unknown
    assert fails(capsys, "recipes", "../here") == "there is no recipe '../here'; `zoo recipes` lists them"


def test_every_recipe_of_this_package_has_a_sentence():
    every = recipes.shipped_recipes()
    assert {"han.imdb", "finetune_translation", "comparison/base"} <= every.keys()
    wrong = {name: text for name, file in every.items() if not 20 < len(text := recipes.summary(file)) < 250}
    assert not wrong


@pytest.mark.parametrize(
    "given", [["--config", "toy.v2"], ["--config=toy.v2.yaml"], ["--config", "recipes/toy.v2.yaml"]]
)
def test_a_recipe_is_found_by_its_name(shipped, given, tmp_path, toy_in_zoo):
    assert main(["fit", *given]) == 0
    assert (tmp_path / "here" / "runs" / "toy.v2" / "checkpoints" / "last.ckpt").is_file()


def test_a_file_goes_before_a_shipped_recipe(shipped, tmp_path):
    mine = yaml.safe_load(TOY)
    mine["model"]["init_args"]["hidden"] = 3
    (tmp_path / "here" / "toy.v2").write_text(yaml.safe_dump(mine))
    assert main(["fit", "--config", "toy.v2"]) == 0
    again = Toy.load_from_checkpoint("runs/toy/checkpoints/last.ckpt", weights_only=True)
    assert again.config["hidden"] == 3


def test_what_is_located(shipped):
    """Every `--config`, and nothing else; a folder of that name is no recipe, and not in the way of one."""
    (shipped.parent / "here" / "toy.v10").mkdir()
    args = ["fit", "--config", "toy.v10", "--model.name", "toy.v2", "--config=comparison/dot", "--weights", "toy.v2"]
    found = recipes.located(args)
    assert found == [
        *["fit", "--config", str(shipped / "toy.v10.yaml"), "--model.name", "toy.v2"],
        *[f"--config={shipped / 'comparison' / 'dot.yaml'}", "--weights", "toy.v2"],
    ]
    untouched = ["fit", "--config", "a: {b: 1}", "--config", "/no/such/file.yaml", "--config", "../x.yaml", "--config"]
    assert recipes.located(untouched) == untouched


@pytest.mark.parametrize("verb", ["fit", "validate", "test"])
def test_unknown(shipped, verb, capsys):
    message = fails(capsys, verb, "--config", "toy.v3.yaml")
    start = "--config toy.v3.yaml: there is no such file, and there is no recipe 'toy.v3'; nearest: toy.v2, toy.v10;"
    assert message == f"{start} `zoo recipes` lists them"
    assert "--config /no/such.yaml: there is no such file" in fails(capsys, verb, "--config", "/no/such.yaml")
