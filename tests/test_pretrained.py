"""Each weight computes what it did when it was published, answers raw text, and scores what its card says."""

import csv
import os
import re
from pathlib import Path

import captions_fakes
import pytest
import torch
import yaml
from safetensors.torch import load_file

import zoo
from zoo import registry
from zoo.bundles.files import GOLDEN
from zoo.cli import main
from zoo.commands import cards

RECIPES = Path(__file__).parent.parent / "recipes"
NAMES = registry.list_models()
BUNDLED = [name for name in NAMES if registry.is_bundled(name)]
SENTENCES = {
    "en": "A dog runs in the snow.",
    "de": "Ein Hund läuft im Schnee.",
    "fr": "Un chien court dans la neige.",
    "cs": "Pes běží ve sněhu.",
}


@pytest.mark.parametrize("name", BUNDLED)
def test_golden(name):
    golden = load_file(registry.BUNDLED / name / GOLDEN)
    found = zoo.load(name).golden()
    assert found.keys() == golden.keys()
    for key, expected in golden.items():
        if expected.is_floating_point():  # another processor sums in another order
            torch.testing.assert_close(found[key], expected, rtol=0, atol=2e-3)
        else:
            assert torch.equal(found[key], expected), key


@pytest.mark.parametrize("name", BUNDLED)
def test_raw_input_gives_an_answer(name):
    model, text = zoo.load(name), SENTENCES[cards.read_card(name)[0]["language"][0]]  # the source comes first
    if hasattr(model, "caption"):
        caption = model.caption(captions_fakes.picture(0, 300, 200))
        assert re.search(r"\w", caption.text) and caption.attention.shape == (len(caption.tokens), 9, 9)
    elif hasattr(model, "translate"):
        assert re.search(r"\w", model.translate(text).text)
    elif hasattr(model, "answer"):
        result = model.answer(
            "Alice met a dog. The dog ran after Alice.", "Then XXXXX ran home.", ["Alice", "dog"]
        )  # a name and a noun
        assert result.answer in ("Alice", "dog") and sum(result.probabilities.values()) > 0.2
    elif hasattr(model, "complete"):
        written = model.complete(text, max_words=5)
        assert re.search(r"\w", written.continuation) and written.attention.shape == (
            len(written.tokens),
            model.config["window"],
        )
        assert 1 < model.perplexity(text) < model.config["vocab_size"]
    else:
        result = model.classify((text, text) if model.config.get("pair") else text)
        assert list(result.probabilities) == model.label_names and any(result.tokens)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_scores_of_the_card(name, tmp_path, monkeypatch):
    """`zoo test` gives each score again, to the digit printed on the card."""
    recipe = RECIPES / f"{name}.yaml"
    generated = yaml.safe_load(recipe.read_text(encoding="utf-8"))["data"]["class_path"] == "zoo.data.Dates"
    if not generated and "ZOO_TEST_DATA" not in os.environ:
        pytest.skip("needs the test data of the recipe: set ZOO_TEST_DATA to the folder that holds it")
    monkeypatch.setenv("ZOO_DATA", os.environ.get("ZOO_TEST_DATA", ""))
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert main(["test", "--config", str(recipe), "--weights", name, "--trainer.accelerator", "cpu"]) == 0
    with open(next(Path("runs").rglob("metrics.csv")), newline="") as file:
        computed = next(csv.DictReader(file))

    front_matter = (cards.CARDS / f"{name}.md").read_text(encoding="utf-8").split("---\n")[1]
    for score in yaml.load(front_matter, yaml.BaseLoader)["scores"]:  # BaseLoader: numbers as they are printed
        prefix = "test" if score["split"] == "test" else f"test/{score['split']}"
        value = float(computed[f"{prefix}/{score['metric'].lower().replace(' ', '_')}"])
        decimals = len(score["value"].partition(".")[2])
        assert f"{value:.{decimals}f}" == score["value"], f"{score['metric']} of {score['split']}"
