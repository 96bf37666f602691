"""The rules of the certificate, its plain line, and its forms."""

import json
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest
import torch
from model_cases import build

import zoo
from zoo.explanations import Certificate
from zoo.explanations.certificate import margins
from zoo.explanations.intervals import Interval
from zoo.explanations.measure import decisions
from zoo.models.han import HAN
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.luong import LuongNMT
from zoo.models.seq2seq import Seq2SeqNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.text import Tokenizer

GOOD = {
    "comprehensiveness, attention": 0.5,
    "comprehensiveness, gradient": 0.4,
    "comprehensiveness, gradient x input": 0.3,
    "comprehensiveness, random": 0.1,
    "advantage": 0.4,
    "tau, leaving out": 0.35,
    "permutation": 0.2,
    "adversary": 0.2,
    "adversary, above": 0.31,
}


GRADIENTS_GAIN_LITTLE = {"comprehensiveness, gradient": 0.14, "comprehensiveness, gradient x input": 0.12}


def certificate(**changes):
    figures = {measure: Interval(mean, mean - 0.05, mean + 0.05, 9) for measure, mean in (GOOD | changes).items()}
    return Certificate("han.imdb", "classification", 10, 9, 9, 0, figures, 12, "the test data")


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, None),
        ({"advantage": 0.04}, "matter"),
        (GRADIENTS_GAIN_LITTLE | {"advantage": 0.06}, None),
        (GRADIENTS_GAIN_LITTLE | {"advantage": 0.04}, "matter"),  # its interval reaches below 0
        ({"advantage": 0.14}, "matter"),  # less than half of 0.4 - 0.1
        ({"advantage": 0.16}, None),
        ({"comprehensiveness, gradient x input": 0.95}, "matter"),
        ({"tau, leaving out": 0.29}, "agrees"),
        ({"permutation": 0.09}, "used"),
        ({"adversary": 0.36}, "alone"),
    ],
)
def test_each_rule(changes, broken):
    found = certificate(**changes)
    assert [rule for rule, holds in found.checks.items() if not holds] == ([broken] if broken else [])
    assert found.verdict == ("yes" if broken is None else "no" if broken == "matter" else "partly")


def test_what_is_near_a_limit():
    """The margin of the first rule has an interval of its own: gradient and random orders are of the same inputs."""
    assert certificate(**{"tau, leaving out": 0.4}).near == [] and certificate().near == []  # 0.35 - 0.05 is the limit
    found = certificate(margin=0.01, **{"tau, leaving out": 0.28, "adversary": 0.33})
    assert found.near == ["matter", "agrees", "alone"]
    doubt = "whether the words matter, whether their order agrees and whether other weights do."
    assert found.section().count(f"\nNear its limit, so that other inputs may decide otherwise: {doubt}\n\n|") == 1
    assert found.doubt() in found.table() and certificate().doubt() == ""
    assert certificate(advantage=0.16).near == ["matter"] and certificate(margin=0.2).near == []
    level = {"comprehensiveness, gradient": 0.12, "comprehensiveness, gradient x input": 0.11}  # as good as random
    found = certificate(advantage=0.04, margin=0.06, **level)
    assert found.verdict == "no" and found.near == ["matter"], "the interval of the difference holds 0"
    assert certificate(advantage=0.04, margin=-0.2).near == [], "no other inputs would change the margin's half"
    values = {"random": [0.1, 0.3], "gradient": [0.5, 0.5], "gradient x input": [0.9, 0.0]}
    values = {f"comprehensiveness, {order}": of_inputs for order, of_inputs in values.items()}
    assert margins(values | {"advantage": [0.4, 0.0]}) == pytest.approx([0.2, -0.1])  # the gradient is best of all
    names = [f"comprehensiveness, {order}" for order in ("gradient", "gradient x input")]
    turned = values | {names[0]: values[names[1]], names[1]: values[names[0]]}
    assert margins(turned | {"advantage": [0.4, 0.0]}) == pytest.approx([0.2, -0.1])  # now the other one


def test_the_plain_line():
    assert certificate().line() == (
        "may be read as an explanation: yes, because the attended words matter (erasing them costs 0.50 of the probability, "
        "random ones 0.10), their order agrees with leaving each one out (tau 0.35), permuted weights change the answer "
        "(0.20) and other weights with the same answer are on average not very different "
        "(divergence found 0.20 of 0.69, above 0.35 for 31 % of the answers)"
    )
    partly = certificate(adversary=0.6, permutation=0.01).line()
    assert partly.startswith("may be read as an explanation: partly, because the attended words matter")
    assert partly.endswith(
        ", but permuted weights hardly change the answer (0.01) and quite different weights give the same answer "
        "(divergence found 0.60 of 0.69, above 0.35 for 31 % of the answers)"
    )
    regions = replace(certificate(advantage=0.11, permutation=0.05), task="captioning").line()
    assert regions.startswith(
        "may be read as an explanation: no, because the attended regions do not matter enough (erasing them costs 0.50 of "
        "the probability, random ones 0.10, those of the gradient 0.40) and permuted weights hardly change the answer "
        "(0.05), although their order agrees with leaving each one out (tau 0.35) and other weights with the same answer "
    )
    assert (
        "the attended words are not shown to matter (erasing them costs 0.50 of the probability, random ones 0.10, "
        in (certificate(advantage=0.0).line())
    )


def test_a_figure_is_on_its_side_of_the_limit():
    assert "hardly agrees with leaving each one out (tau 0.299)" in certificate(**{"tau, leaving out": 0.299}).line()
    assert "agrees with leaving each one out (tau 0.30)" in certificate(**{"tau, leaving out": 0.301}).line()
    assert "hardly change the answer (0.09997)" in certificate(permutation=0.09997).line()
    assert (
        "are on average not very different (divergence found 0.346 of 0.69, above 0.35 for 31 % of the answers, its interval "
        "reaches above the limit, 0.35)" in certificate(adversary=0.346).line()
    )


def test_its_forms():
    found = certificate()
    assert Certificate.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert "\ncomprehensiveness, random order" in found.table()
    assert found.table().endswith(f"\n{found.line()}\nrough: 9 inputs are few; give some hundred")
    assert replace(found, inputs=30).table().endswith(found.line())
    assert "| Kendall's tau of attention and leaving a word out | 0.350 | 0.300 to 0.400 |" in found.section()
    assert "\n`zoo explain han.imdb --certificate --data.root DATA --limit 10`.\n" in found.section()
    assert "Measured on 9 inputs of the test data (9 answers)" in found.section()
    assert found.table().startswith("han.imdb: 9 inputs of the test data, 9 answers, seed 0, 12 s\n")
    assert replace(found, data="").table().startswith("han.imdb: 9 inputs, 9 answers, seed 0, 12 s\n")
    figures = {measure: figure for measure, figure in found.figures.items() if measure != "adversary, above"}
    assert replace(found, figures=figures).line().endswith("(divergence found 0.20 of 0.69)")  # of an earlier version
    assert "grey" not in found.table()  # only captions have these


def test_tasks_without_a_certificate():
    with pytest.raises(
        ValueError,
        match="models for language modelling cannot be explained; those for classification, translation, captioning can",
    ):
        zoo.faithfulness(build(KeyValuePredictLM), ["a b"])


@pytest.mark.parametrize(
    ("cls", "options", "source", "message"),
    [
        (HAN, {}, ("a b", "c"), "HAN is explained by a string; got tuple"),
        (LuongNMT, {}, None, "LuongNMT is explained by a string; got NoneType"),
        (ShowAttendTell, {}, 5, "an image must be a path, bytes or a PIL image; got int"),
        (StructuredSelfAttention, {"pair": True}, "a b", "of pairs is explained by two strings; got 'a b'"),
        (
            StructuredSelfAttention,
            {"pair": True},
            ("a b", 3),
            r"of pairs is explained by two strings; got \('a b', 3\)",
        ),
    ],
)
def test_inputs_of_another_kind(cls, options, source, message):
    with pytest.raises(TypeError, match=message):
        zoo.faithfulness(build(cls, **options), [source])


@pytest.mark.parametrize("cls", [HAN, LuongNMT])
def test_a_model_on_another_device(cls):
    with pytest.raises(ValueError, match=r"is explained on the CPU; this one is on meta: call model.cpu\(\) first"):
        zoo.faithfulness(build(cls).to("meta"), ["a b"])


def test_what_cannot_be_explained_is_said_before_the_inputs_are_read():
    with pytest.raises(TypeError, match="^inputs is a list; got one str: put it into a list$"):
        zoo.faithfulness(build(HAN), "a b")
    with pytest.raises(TypeError, match="^inputs is a list; got one int: put it into a list$"):
        zoo.faithfulness(build(HAN), 3)
    with pytest.raises(TypeError, match="^a model is explained, such as zoo.load gives; got str$"):
        zoo.faithfulness("han.imdb", ["a b"])
    with pytest.raises(ValueError, match="^the weights must be float32 or float64; got torch.bfloat16"):
        zoo.faithfulness(build(LuongNMT).bfloat16(), ["a b"])
    with pytest.raises(ValueError, match="^Seq2SeqNMT has no attention layer whose weights can be replaced"):
        zoo.faithfulness(build(Seq2SeqNMT), ["a b"])
    for decoding in ("argmax", "sample"):
        with pytest.raises(ValueError, match=f"expected context; this model decodes with '{decoding}': load it with"):
            zoo.faithfulness(build(ShowAttendTell, attention="hard", decoding=decoding), ["photo.jpg"])
    for seed, kind in ((2**32, ValueError), (-1, ValueError), ("0", TypeError), (1.5, TypeError)):
        with pytest.raises(kind, match="^seed must be "):
            zoo.faithfulness(build(HAN), ["a b"], seed=seed)


def test_an_input_that_cannot_be_read_is_named():
    texts = ["a dog runs", "a cat sleeps", 5]
    model = build(StructuredSelfAttention)
    model.tokenizer = Tokenizer.train(texts[:2], kind="word", vocab_size=20)
    with pytest.raises(TypeError, match="^input 3: StructuredSelfAttention is explained by a string; got int$"):
        zoo.faithfulness(model, texts)
    with pytest.raises(ValueError, match=r"^input 1 \('no-such.jpg'\): .*no-such.jpg"):
        zoo.faithfulness(build(ShowAttendTell), ["no-such.jpg"])


def test_a_certificate_of_own_inputs_names_no_command():
    found = replace(certificate(), data="own.txt")
    assert found.section().count("\nMeasured on 9 inputs of own.txt (9 answers).\ndocs/faithfulness.md says") == 1
    assert replace(found, data="the test data", seed=3).command.endswith(" --limit 10 --seed 3")


def test_no_inputs():
    with pytest.raises(
        ValueError, match="a certificate needs inputs with at least two words and an answer each; got none"
    ):
        zoo.faithfulness(build(HAN), [])


def test_a_text_without_a_label_has_nothing_to_explain():
    """Of several labels the most probable one is explained, if the model gives one at all."""
    texts = ["a dog runs", "a cat sleeps"]
    model = build(StructuredSelfAttention, multi_label=True).eval()
    model.tokenizer = Tokenizer.train(texts, kind="word", vocab_size=20)
    with torch.no_grad():
        for bias, count in ((50.0, 1), (-50.0, 0)):
            model.classifier.bias.fill_(bias)
            assert [len(decisions(model, text, torch.Generator())) for text in texts] == [count] * 2
    with pytest.raises(ValueError, match="at least two words and an answer each; got none"):
        zoo.faithfulness(model, texts)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_gradients_are_taken_in_every_context(context):
    model = build(StructuredSelfAttention).eval()
    model.tokenizer = Tokenizer.train(["a dog runs"], kind="word", vocab_size=20)
    found = zoo.faithfulness(model, ["a dog runs"])
    with context():
        assert zoo.faithfulness(model, ["a dog runs"]).figures == found.figures


def test_a_notebook_shows_the_table():
    found, written = certificate(), StringIO()
    found._repr_pretty_(SimpleNamespace(text=written.write), False)
    assert written.getvalue() == found.table()
