"""captum's methods and bertviz's views on our models; without these packages only what is passed to them."""

from pathlib import Path

import pytest
import torch
from model_cases import build

import zoo
from zoo.bridges.bertviz import heads
from zoo.bridges.captum import questions
from zoo.models.key_value_predict_lm import KeyValuePredictLM

ROOT = Path(__file__).parents[2]
SENTENCES = {
    "structured_self_attention.trec6": "How far is it from Denver to Aspen ?",
    "structured_self_attention.sick": ("A dog is running", "A dog is not running"),
    "han.imdb": "What a cast! The last scene is wonderful.",
    "luong_dot.dates": "3 May 1999",
    "transformer_tiny.multi30k_en_de": "A dog runs in the snow.",
    "transformer_128.multi30k_en_de": "A dog runs in the snow.",
    "luong_scaled_dot_no_feed.multi30k_en_de": "A dog runs in the snow.",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_question_is_what_the_model_answers(name):
    model = zoo.load(name)
    question = questions(model, SENTENCES[name])[0]
    found = question.forward(question.inputs.expand(2, -1, -1))
    assert found[0].argmax() == question.target and torch.allclose(found[0], found[1], atol=1e-5)
    torch.testing.assert_close(question.forward_ids(question.ids), found[:1], rtol=1e-4, atol=1e-6)
    if model.task.name == "classification":
        probabilities = model.classify(SENTENCES[name]).probabilities
        torch.testing.assert_close(found[0], torch.tensor(list(probabilities.values())), rtol=1e-4, atol=1e-5)
        assert question.answer == max(probabilities, key=probabilities.__getitem__)
    else:
        result = model.translate(SENTENCES[name])
        assert question.answer in result.tokens and question.words == result.source_tokens
    assert len(question.words) == question.inputs.size(1)
    assert not question.baselines.any() and question.baselines.shape == question.inputs.shape


def test_images_have_no_words():
    (question,) = questions(zoo.load("show_attend_tell_soft.flickr8k"), str(ROOT / "docs/photos/beach.jpg"))
    assert question.forward(question.inputs).sum().item() == pytest.approx(1, abs=1e-4)
    assert question.words[:10] == [*(f"row 1, column {n}" for n in range(1, 10)), "row 2, column 1"]
    with pytest.raises(ValueError, match="an image has no words: use forward and inputs"):
        question.forward_ids(torch.zeros(1, 1))


def test_other_tasks():
    with pytest.raises(ValueError, match="models for language modelling cannot be explained"):
        questions(build(KeyValuePredictLM), "a b")


@pytest.mark.parametrize("name", SENTENCES)
def test_captum(name):
    attr = pytest.importorskip("captum.attr", reason="captum is not installed")
    question = questions(zoo.load(name), SENTENCES[name])[0]
    gained = (question.forward(question.inputs) - question.forward(question.baselines))[0, question.target].item()
    method = attr.IntegratedGradients(question.forward)
    scores = method.attribute(question.inputs, question.baselines, question.target, n_steps=400, internal_batch_size=50)
    assert scores.shape == question.inputs.shape
    assert scores.sum().item() == pytest.approx(gained, abs=0.05)  # completeness (Sundararajan et al. 2017)
    layer = attr.LayerIntegratedGradients(question.forward_ids, question.layer)
    scores = layer.attribute(question.ids, question.ids_baseline, question.target, n_steps=10)
    assert scores.shape == question.inputs.shape and scores.isfinite().all()


def test_other_arguments():
    model = zoo.load("luong_dot.dates")
    for seed, kind in ((-1, ValueError), (2**70, ValueError), ("0", TypeError)):
        with pytest.raises(kind, match="^seed must be "):
            questions(model, "3 May 1999", seed)
    with pytest.raises(TypeError, match=r"^heads are those of model.look\(source\); got Translation$"):
        heads(model.translate("3 May 1999"))


def test_heads():
    look = zoo.load("transformer_tiny.multi30k_en_de").look("A dog runs.", "Ein Hund rennt.")
    found = heads(look)
    assert len(found["cross_attention"]) == 3
    assert found["cross_attention"][1].shape == (1, 4, len(found["decoder_tokens"]), len(found["encoder_tokens"]))
    assert torch.equal(found["encoder_attention"][2][0], look.encoder[2])
    assert found["decoder_tokens"][0] == "<bos>" and found["encoder_tokens"] == look.source_tokens


@pytest.mark.parametrize("view", ["head_view", "model_view"])
def test_bertviz(view):
    bertviz = pytest.importorskip("bertviz", reason="bertviz is not installed")
    look = zoo.load("transformer_tiny.multi30k_en_de").look("A dog runs.", "Ein Hund rennt.")
    page = getattr(bertviz, view)(**heads(look), html_action="return")
    assert "Cross" in page.data and "Hund" in page.data
