"""`zoo test NAME` and `zoo validate NAME`: a weight by its own recipe, next to the scores of its card."""

import pytest
from fakes import Toy

from zoo.cli import main
from zoo.commands import cards, evaluating, recipes
from zoo.training import card_scores

RECIPE = """\
trainer: {accelerator: cpu, enable_progress_bar: false, logger: false}
model: {class_path: fakes.Toy, init_args: {hidden: 6}}
data: {class_path: fakes.ToyData}
"""


@pytest.fixture
def shipped(toy_registry, tmp_path, monkeypatch):
    """The toy weights with a recipe and a card; the current folder is another one."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "toy.v10.yaml").write_text(RECIPE)
    monkeypatch.setattr(recipes, "RECIPES", folder)
    monkeypatch.setattr(card_scores, "shipped", lambda name: cards.CARDS)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return toy_registry


@pytest.fixture
def tested(monkeypatch):
    """The sizes of the models that were tested or validated; a test logs an accuracy of 99.25."""
    seen = []

    def at_end(self):
        seen.append(self.config["hidden"])
        self.log("test/accuracy", 99.25)

    monkeypatch.setattr(Toy, "on_test_epoch_end", at_end, raising=False)
    monkeypatch.setattr(Toy, "on_validation_epoch_end", lambda self: seen.append(self.config["hidden"]), raising=False)
    return seen


@pytest.mark.parametrize("card", ["---\nrecipe: {}\n---\n", "\ufeff---\r\nrecipe: {}\r\n---\r\n"])
@pytest.mark.parametrize("said", ["recipes/toy.v10.yaml", "toy.v10.yaml", "toy.v10"])
def test_the_recipe_that_a_card_names(said, card, shipped, tmp_path):
    (tmp_path / "README.md").write_bytes(card.format(said).encode())
    assert evaluating.expanded(["test", f"local-dir:{tmp_path}"])[1] == "toy.v10"


def fails(capsys, *args):
    assert main(list(args)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("zoo: error: ")


def table(out):
    """The head and the first row of the table of scores."""
    lines = [line.split() for line in out.splitlines()]
    place = next(n for n, words in enumerate(lines) if words[:2] == ["score", "card"])
    return lines[place : place + 2]


def test_a_name_is_tested_by_its_recipe_next_to_its_card(shipped, tested, capsys):
    assert main(["test", "toy.v10", "--data.n", "4"]) == 0
    assert tested == [10]  # not the 6 of the recipe's new model
    head, row = table(capsys.readouterr().out)
    assert head == ["score", "card", "now", "difference"]
    assert row == ["accuracy", "(test)", "99.50", "99.25", "-0.25"]


def test_validation_has_no_card(shipped, tested, capsys):
    assert main(["validate", "toy.v10"]) == 0
    assert tested == [10] and "difference" not in capsys.readouterr().out


@pytest.mark.parametrize("given", ["{}", "local-dir:{}"])
def test_a_folder_of_that_name_too(shipped, tested, capsys, given):
    assert main(["test", given.format(shipped / "weights" / "toy.v10")]) == 0
    assert tested == [10] and table(capsys.readouterr().out)[1][-1] == "-0.25"


def test_the_card_in_a_folder_names_its_recipe(shipped, tested, capsys):
    folder = Toy(hidden=3).save_pretrained("mine")
    (folder / "README.md").write_text("---\nrecipe: recipes/toy.v10.yaml\n---\n# Mine\n")
    assert main(["test", "mine"]) == 0
    assert tested == [3] and table(capsys.readouterr().out)[0][0] == "score"


def test_a_folder_without_a_recipe_needs_one(shipped, tested, capsys):
    Toy(hidden=3).save_pretrained("mine")
    message = fails(capsys, "test", "mine")
    assert message == "no recipe is known for mine, so nor is its data: give --config RECIPE"
    assert main(["test", "mine", "--config", "toy.v10"]) == 0
    assert tested == [3] and "difference" not in capsys.readouterr().out


def test_wrong_names(shipped, capsys):
    assert fails(capsys, "test", "toy.v9").startswith("unknown model 'toy.v9'; nearest: toy.v")
    for option in ("--weights", "--ckpt_path"):
        message = fails(capsys, "validate", "toy.v10", option, "toy.v2")
        assert message == f"toy.v10 and {option} are two models; give one of them"
    assert "no recipe is known for toy.v2" in fails(capsys, "test", "toy.v2")


def test_the_help_says_so(capsys):
    for verb in ("test", "validate"):
        assert main([verb, "--help"]) == 0
        assert f"usage: zoo {verb} NAME | --config RECIPE" in capsys.readouterr().out
    assert main(["fit", "--help"]) == 0
    assert "NAME |" not in capsys.readouterr().out


@pytest.mark.integration
def test_the_card_of_a_shipped_weight(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["test", "luong_textbook.dates", "--trainer.accelerator", "cpu"]) == 0
    assert table(capsys.readouterr().out)[1] == ["exact_match", "(test)", "100.00", "100.00", "+0.00"]
