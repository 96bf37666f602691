"""Language models in a comparison: what is noted of each line, against loops over one pass through the whole text."""

import pytest
import torch

from zoo.comparison.tasks import language_modelling
from zoo.comparison.tasks.language_modelling import LanguageModellingTask
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.text import EOS, Tokenizer

LINES = ["the cat sat", "", "the dog sat on the cat", "a cat"]


@pytest.mark.parametrize("attention", ["attention", "none"])
@pytest.mark.parametrize("steps", [4, 1000])
def test_losses_and_distances_of_lines(attention, steps, monkeypatch):
    monkeypatch.setattr(language_modelling, "STEPS_AT_ONCE", steps)  # the state goes on in the next piece
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(LINES, "word", 20)
    options = {**KeyValuePredictLM.tiny, "vocab_size": len(tokenizer), "attention": attention, "window": 3}
    model = KeyValuePredictLM(**options).eval()
    for p in model.parameters():  # large weights, so that a difference shows
        p.data.mul_(3)
    model.tokenizer = tokenizer
    found = LanguageModellingTask().answer(model, LINES)

    words = [i for line in LINES for i in (*tokenizer.encode(line), EOS)]
    with torch.no_grad():
        logits, weights = model(torch.tensor([[EOS, *words[:-1]]]))
    losses, t = -logits[0].log_softmax(-1)[range(len(words)), words], 0
    assert len(found) == len(LINES)
    for line, one in zip(LINES, found, strict=True):
        rows = range(t, t + len(line.split()) + 1)
        back = [] if weights is None else [(float(weights[0, n, d]), d + 1) for n in rows for d in range(3)]
        assert one.words == len(rows) and one.nats == pytest.approx(losses[rows].sum().item(), rel=1e-5)
        assert one.weight == pytest.approx(sum(weight for weight, _ in back), rel=1e-5)
        assert one.distance == pytest.approx(sum(weight * d for weight, d in back), rel=1e-5)
        t = rows.stop
    measures = LanguageModellingTask().attention_measures(found)
    assert (measures is None) == (attention == "none")
    if measures:
        expected = sum(one.distance for one in found) / sum(one.weight for one in found)
        assert measures == {"mean_distance": pytest.approx(expected, abs=1e-4)} and 1 < expected < 3
