"""Attention against gradients and leaving words out: benchmarks/correlations.py, on invented sentences."""

import json
import subprocess
import sys
from pathlib import Path

import benchmark_scripts
import pytest
import torch
from labeled_fakes import invent

from zoo.data import SST

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
WORDS = [4, 7, 5, 9, 6]


@pytest.fixture(scope="module")
def script():
    return benchmark_scripts.script("correlations")


@pytest.fixture(params=["lstm", "words"])
def model(script, request):
    torch.manual_seed(0)
    found = script.untrained(request.param, hidden_size=4, embedding_size=6, vocab_size=12, num_classes=2).double()
    return found.eval()


def probabilities(model, embedded, weights=None):
    """The output for given embeddings (N, E), with the model's own attention weights or with those given."""
    states, _ = model.encoder.flat(embedded, torch.tensor([len(embedded)]))
    if weights is None:
        weights = model.attention.scores(states)[:, 0].softmax(0)
    return model.classifier(weights @ states).softmax(-1), weights


@pytest.mark.parametrize("through_weights", [False, True])
def test_gradients_are_those_of_finite_differences(script, model, through_weights):
    tokens = torch.tensor(WORDS)
    attention, gradient = script.gradient_by_word(model, tokens, through_weights)
    embedded = model.embedding(tokens).detach()
    with torch.no_grad():
        output, weights = probabilities(model, embedded)
        assert torch.allclose(attention, weights)
        fixed, step = None if through_weights else weights, 1e-6
        for n in range(len(WORDS)):
            towards, back = embedded.clone(), embedded.clone()
            towards[n] *= 1 + step
            back[n] *= 1 - step
            moved = probabilities(model, towards, fixed)[0] - probabilities(model, back, fixed)[0]
            assert abs(float(moved[output.argmax()])) / (2 * step) == pytest.approx(float(gradient[n]), rel=1e-4)


def test_leaving_out_is_reading_the_other_words(script, model):
    found = script.left_out(model, WORDS)
    with torch.no_grad():
        whole, _ = probabilities(model, model.embedding(torch.tensor(WORDS)))
        for n in range(len(WORDS)):
            others, _ = probabilities(model, model.embedding(torch.tensor(WORDS[:n] + WORDS[n + 1 :])))
            assert float(found[n]) == pytest.approx(float((others - whole).abs().max()))


def test_words_by_themselves_do_not_see_each_other(script):
    for encoder, same in (("words", True), ("lstm", False)):
        model = script.untrained(encoder, hidden_size=4, embedding_size=6, vocab_size=12, num_classes=2).eval()
        states = [
            model.encoder.flat(model.embedding(torch.tensor([5, other])), torch.tensor([2]))[0][0] for other in (4, 8)
        ]
        assert torch.equal(*states) == same


def test_it_trains_and_measures(script, tmp_path):
    invent(SST, {}, tmp_path / "data")
    arguments = benchmark_scripts.folders(tmp_path)
    arguments += ["--data", "SST-2", "--encoders", "lstm", "words", "--seeds", "2", "--texts", "3", "--epochs", "1"]
    subprocess.run([sys.executable, script.__file__, *arguments], check=True, capture_output=True)
    found = json.loads((tmp_path / "r.json").read_text())["found"]["SST-2"]
    assert list(found) == ["lstm", "words"]
    for encoder in found.values():
        assert len(encoder["accuracy"]) == 2 and all(0 <= score <= 100 for score in encoder["accuracy"])
        assert all(-1 <= encoder[pair][0] <= 1 and encoder[pair][1] >= 0 for pair in script.PAIRS)


def test_the_page_shows_what_is_stored(script):
    page = (ROOT / "docs" / "faithfulness.md").read_text(encoding="utf-8")
    assert script.table(json.loads(script.RESULTS.read_text(encoding="utf-8"))) in page
