"""Retraining with uniform attention: benchmarks/retraining.py, on invented sentences."""

import json
import subprocess
import sys
from pathlib import Path

import benchmark_scripts
import pytest
import torch
from labeled_fakes import invent

import zoo
from zoo.data import SST
from zoo.explanations.intervals import interval

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SIZES = ["--model.embedding_size", "6", "--model.hidden_size", "8", "--model.score", "concat"]


@pytest.fixture
def script(nothing_registered):
    return benchmark_scripts.script("retraining")


def test_uniform_weights(script):
    mask = torch.tensor([[[True, True, False, True]], [[False] * 4]])
    found = script.uniform(torch.randn(2, 3, 4), mask)
    assert torch.equal(found[0], torch.tensor([1 / 3, 1 / 3, 0, 1 / 3]).expand(3, 4))
    assert torch.equal(found[1], torch.zeros(3, 4))


def test_it_trains_and_compares(script, tmp_path, capsys):
    invent(SST, {"phrases": True}, tmp_path / "data")
    arguments = benchmark_scripts.folders(tmp_path)
    arguments += ["--seeds", "2", "--texts", "3", "--trainer.max_epochs", "1", *SIZES]
    # in a process of its own: jsonargparse does not see a choice that is registered after it has read the class
    subprocess.run([sys.executable, script.__file__, *arguments], check=True, capture_output=True)
    found = json.loads((tmp_path / "r.json").read_text())
    assert {kind: len(scores) for kind, scores in found["accuracy"].items()} == dict.fromkeys(script.SCORES, 2)
    assert all(0 <= score <= 100 for scores in found["accuracy"].values() for score in scores)
    distances = {measure: parts["attention"]["mean"] for measure, parts in found["distances"].items()}
    assert all(0 < distance < 0.694 for distance in distances.values())
    assert found["distances"]["adversary"]["output"]["high"] <= 0.05 + 1e-6

    # only the weights are uniform: both models of a seed have the same parameters, those of the score among them
    learnt, uniform = (zoo.load(f"local-dir:{tmp_path}/out/{kind}/seed1/weights") for kind in script.KINDS)
    assert {name: value.shape for name, value in learnt.state_dict().items()} == {
        name: value.shape for name, value in uniform.state_dict().items()
    }
    answers = script.answers(uniform, ["a good film", "bad"])
    assert answers[0].attention.tolist() == pytest.approx([1 / 3] * 3) and answers[1].attention.tolist() == [1]
    assert max(script.answers(learnt, ["a good film"])[0].attention) > 1 / 3

    # trained models are not trained again, and give the same figures
    weights = tmp_path / "out" / "learnt" / "seed1" / "weights" / "config.json"
    before = weights.stat().st_mtime_ns
    capsys.readouterr()
    script.main(arguments)
    again = json.loads((tmp_path / "r.json").read_text())
    assert weights.stat().st_mtime_ns == before and again["distances"] == found["distances"]
    assert capsys.readouterr().out.endswith(script.table(again) + "\n")


def test_the_distances_of_a_text(script):
    same = script.Answer("a", torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]))
    other = script.Answer("a", torch.tensor([0.25, 0.75]), torch.tensor([0.0, 1.0]))
    assert script.distances([(same, same)]) == (0, 0)
    assert script.distances([(same, other), (same, same)]) == pytest.approx((0.6931 / 2, 0.125), abs=1e-4)
    assert script.accuracy([same, other], ["a", "b"]) == 50


def test_the_table(script):
    figure = interval([0.25, 0.25])._asdict()
    found = {
        "accuracy": {"learnt": [80.0, 82.0], "uniform": [80.0, 81.0], "made uniform": [70.0, 71.0]},
        "distances": {measure: {"attention": figure, "output": figure} for measure in script.MEASURES},
    }
    lines = script.table(found).splitlines()
    assert lines[2] == "| learnt | 81.00 ± 12.71 | 80.00, 82.00 |"
    assert lines[5] == "| learnt minus uniform | 0.50 ± 6.35 | 0.00, 1.00 |"
    assert lines[-1].endswith(" | 0.250 (0.250 to 0.250) | 0.250 (0.250 to 0.250) |")


def test_the_page_shows_what_is_stored(script):
    stored = json.loads(script.RESULTS.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "faithfulness.md").read_text(encoding="utf-8")
    for table in script.table(stored).split("\n\n"):
        assert table in page, f"python benchmarks/retraining.py prints what belongs there:\n{table}"
