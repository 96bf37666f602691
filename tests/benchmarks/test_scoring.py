"""benchmarks/scoring.py: what a card says about its graphs."""

import importlib
from pathlib import Path

import pytest


@pytest.fixture
def scoring(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("scoring")


def test_a_card_says_which_scores_8_bits_move(scoring):
    on_card = [("test", "bleu", 30.0), ("more", "bleu", 20.0), ("test", "cider_d", 60.0)]
    values = {("test", "bleu"): 30.38, ("more", "bleu"): 19.9, ("test", "cider_d"): 60.5}
    text = scoring.section("a.name", on_card, {"fp32": (4.0, values), "int8": (1.0, values)}, "a machine")
    assert text.endswith("(a machine).\n\n8 bits move BLEU on test by +0.38: see docs/guides/onnx.md.\n")
    text = scoring.section("a.name", on_card, {"fp32": (4.0, values), "int8": (1.0, {})}, "a machine")
    assert text.endswith("(a machine).\n")
