"""Each weight has a card, and what the card says is true.

Front matter of a card: `name`, `task`, `language`, `license` (of the weights, as restricted by the data), `datasets`,
`metrics` (names), `parameters` (number), `recipe` (path), `paper` (address) and `scores`: a list of {metric, value,
split, signature}, the main one first (`zoo list` shows it; a signature may be left out only where the metric has no
variants).
"""

from pathlib import Path

import pytest

import zoo
from zoo import cli, registry
from zoo.bundles.files import GOLDEN

ROOT = Path(__file__).parent.parent
NAMES = registry.list_models()
FIELDS = {
    "name": str,
    "task": str,
    "language": list,
    "license": str,
    "datasets": list,
    "metrics": list,
    "parameters": int,
    "recipe": str,
    "paper": str,
    "scores": list,
}


def test_every_weight_has_a_card_and_every_card_a_weight():
    assert {path.stem for path in cli.CARDS.glob("*.md")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_front_matter(name):
    card, prose = cli.read_card(name)
    for field, kind in FIELDS.items():
        assert isinstance(card.get(field), kind) and card[field], f"{field} must be a {kind.__name__} and not empty"
    assert card["name"] == name
    assert card["paper"].startswith("https://")
    assert card["recipe"] == f"recipes/{name}.yaml" and (ROOT / card["recipe"]).is_file()
    for score in card["scores"]:
        assert {"metric", "value", "split"} <= score.keys() <= {"metric", "value", "split", "signature"}
        assert isinstance(score["value"], float)
        assert score["metric"].lower() in [metric.lower() for metric in card["metrics"]]
        assert score.get("signature") or not score["metric"].lower().startswith(("bleu", "sacrebleu", "chrf"))
    assert prose.lstrip().startswith("# ") and f"zoo.load(\"{name}\")" in prose


@pytest.mark.parametrize("name", NAMES)
def test_parameter_count_is_that_of_the_real_weights(name):
    card, _ = cli.read_card(name)
    assert card["parameters"] == sum(p.numel() for p in zoo.load(name).parameters())


def test_bundled_weights_are_small_and_all_registered():
    folders = {path.name: path for path in registry.BUNDLED.iterdir()} if registry.BUNDLED.is_dir() else {}
    assert set(folders) == {name for name in NAMES if registry.entry(name).repo_id is None}
    sizes = {file: file.stat().st_size for folder in folders.values() for file in folder.iterdir()}
    assert not [file for file, size in sizes.items() if size > 16e6]
    assert sum(size for file, size in sizes.items() if file.suffix == ".safetensors") <= 120 * 2**20  # they stay in the history


@pytest.mark.parametrize("name", NAMES)
def test_the_registry_agrees_with_the_bundle(name):
    if registry.entry(name).repo_id is None:
        bundle = registry.open_bundle(name)
        assert all(bundle.read(file, 16 * 10**6) for file in bundle.sha256) and GOLDEN in bundle.sha256
