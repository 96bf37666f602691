"""Confidence and warnings: the map, its limits, its file, and who keeps it."""

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

import zoo
from zoo.bundles.files import Bundle, BundleError, rewrite
from zoo.commands.average import average
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.results.translation import Translation
from zoo.text import UNK, Tokenizer
from zoo.text.familiar import known_share
from zoo.verbs.confidence import (
    CALIBRATION,
    Calibration,
    Evidence,
    Judged,
    calibration_error,
    fitted,
    is_withheld,
    log_odds,
    trusted,
    warnings_of,
    with_limits,
)

CALIBRATED = Calibration("it is right", -1.0, {"score": 2.0}, 0.1, 0.4, language="en", examples=10, error=0.02)
DATES = Calibration("it is right", 5.0, {}, 0.5, 0.4, answers="date", exact=True)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_the_map_is_found_again():
    """Answers are right with the probability that a known map gives."""
    rng = np.random.default_rng(0)
    judged = Judged()
    for score, noise in rng.normal(0, 2, (20_000, 2)):
        happens = bool(rng.random() < sigmoid(0.5 + 1.5 * score))
        judged.add(Evidence({"score": float(score), "noise": -abs(float(noise)) * happens}), happens)
    found = fitted(judged, "it is right")
    assert found.weights == {"score": pytest.approx(1.5, rel=0.1)}, "evidence that speaks against is dropped"
    assert found.bias == pytest.approx(0.5, abs=0.1)
    first, second = judged.halves()
    half = fitted(first, "it is right")
    sure = [half.confidence(evidence) for evidence in second.evidence]
    assert calibration_error(sure, second.right) < 0.02
    assert len(first.right) + len(second.right) == 20_000 and judged.halves()[0].right == first.right


def test_expected_calibration_error_by_hand():
    sure, right = [0.05, 0.15, 0.15, 0.95, 1.0], [False, True, False, True, False]
    want = (abs(0.05 - 0) * 1 + abs(0.15 - 0.5) * 2 + abs(0.975 - 0.5) * 2) / 5
    assert calibration_error(sure, right) == pytest.approx(want)


def test_answers_of_one_kind_cannot_be_calibrated():
    with pytest.raises(ValueError, match="needs right and wrong answers; of 2 answers 2 are right"):
        fitted(Judged([Evidence({"score": 1.0})] * 2, [True, True]), "it is right")


def test_few_usual_inputs_get_a_warning():
    rng = random.Random(0)
    usual = [Evidence({"score": rng.gauss(0, 1)}, known=rng.uniform(0.6, 1)) for _ in range(1000)]
    found = with_limits(CALIBRATED, usual)
    warned = [bool(trusted(Translation("", 0, [], [], None), found, evidence).warnings) for evidence in usual]
    assert 0 < sum(warned) <= 10


def test_the_limit_of_exact_answers_is_fixed():
    """Else a model that calls one date in a hundred none, with confidence 0, would print whatever it guesses."""
    usual = [Evidence({"score": 9.0}, 1.0, "3 May 1995", "1995-05-03")] * 99
    usual.append(Evidence({"score": 9.0}, 1.0, "3 May 1995", "no date"))
    assert with_limits(DATES, usual).low_confidence == 0.5
    assert with_limits(DATES, usual[:1]).low_confidence == 0.5


def result(evidence, calibration):
    return trusted(Translation("a", 0.0, [], [], None), calibration, evidence)


def test_warnings_say_why():
    calm = result(Evidence({"score": 1.0}, 0.9, "the dog is in the snow"), CALIBRATED)
    assert calm.confidence == pytest.approx(sigmoid(1.0)) and calm.warnings == []
    odd = result(Evidence({"score": -2.0}, 0.3, "le chien est dans la neige", notes=("it was cut",)), CALIBRATED)
    assert odd.warnings == [
        "it was cut",
        "the model knows few of the words",
        "the text looks French; the model reads English",
        "low confidence (0.01)",
    ]
    assert odd.to_dict()["confidence"] == round(sigmoid(-5.0), 4) and odd.to_dict()["warnings"] == odd.warnings


@pytest.mark.parametrize(
    "answer, repeats",
    [
        ("a" * 20, True),
        ("x " + "0.5," * 20, True),
        ("a dog and a cat " * 4, True),
        ("Nooooooooo ............", False),
        ("a dog and a cat " * 2, False),
        ("ab " * 20, True),
    ],
)
def test_an_answer_that_repeats_itself(answer, repeats):
    assert ("the answer repeats itself" in warnings_of(None, Evidence({}, answer=answer))) is repeats


def test_without_a_calibration_the_vocabulary_tells_the_language():
    words = "the a an of to in is are was were and that it he she they you i we for on with at this not be have has"
    vocabulary = Tokenizer.train([words + " from his her by as or what there but my your do does"], "word", 100)
    french = Evidence({}, 1.0, "Un chien court dans la neige.", vocabulary=vocabulary)
    assert warnings_of(None, french) == ["the text looks French; the model reads English"]
    assert warnings_of(None, replace(french, text="The dog is in the snow.")) == []
    assert warnings_of(None, replace(french, vocabulary=None)) == []


def test_without_a_calibration_there_is_no_confidence():
    found = result(Evidence({"score": 1.0}, 0.9, "le chien est dans la neige"), None)
    assert found.confidence is None and found.warnings == []
    assert result(Evidence({}, 0.4), None).warnings == ["the model knows few of the words"]
    two_unknown = Evidence({}, known_share([UNK, UNK], Tokenizer.train(["a b"], "word", 10)))
    assert result(two_unknown, None).warnings == ["the model knows few of the words"]
    assert result(Evidence({"score": math.nan}, 1.0), CALIBRATED).confidence is None


@pytest.mark.parametrize(
    "text, answer, warning",
    [
        ("3 May 1995", "1995-05-03", None),
        ("19950503", "1995-05-03", None),
        ("may the 3rd, 1995", "1995-05-03", None),
        ("3/5/95", "1995-05-03", None),
        ("the third of May '95", "1995-05-03", None),
        ("third of may nineteen ninety-five", "1995-05-03", None),
        ("May '95", "1995-05-03", "the answer is a date that is not in the text"),
        ("next tuesday", "no date", "the model sees no clear date in the text"),
        ("banana", "1011-01-01", "the answer is a date that is not in the text"),
        ("93 May 1995", "1995-05-03", "the answer is a date that is not in the text"),
        ("31 February 2020", "2020-02-31", "the answer is not a date"),
        ("hello", "hello", "the answer is not a date"),
        ("", "", "the answer is not a date"),
    ],
)
def test_an_answer_that_is_not_the_date_of_the_text(text, answer, warning):
    found = result(Evidence({}, 1.0, text, answer), DATES)
    assert found.warnings == ([] if warning is None else [warning])
    assert (found.confidence == 0) == is_withheld(DATES, found.confidence) == (warning is not None)


def test_a_given_target_is_no_answer():
    assert warnings_of(DATES, Evidence({}, 1.0, "3 May 1995")) == []


def test_only_exact_answers_are_withheld():
    assert not is_withheld(CALIBRATED, 0.0) and not is_withheld(None, None) and not is_withheld(DATES, None)


def test_log_odds():
    assert log_odds(math.log(0.2)) == pytest.approx(math.log(0.25))
    assert 15 < log_odds(0.0) < 17 and math.isfinite(log_odds(-1e4))


# ---- the file ----


def test_the_file_round_trips():
    for calibration in (CALIBRATED, DATES):
        assert Calibration.from_json(calibration.to_json()) == calibration


@pytest.mark.parametrize(
    "change, message",
    [
        ({"bias": "1"}, "bias has a value that is not allowed: '1'"),
        ({"weights": {"score": True}}, "weights has a value that is not allowed"),
        ({"weights": {str(n): 1.0 for n in range(9)}}, "weights has a value that is not allowed"),
        ({"low_confidence": 1.5}, "low_confidence has a value that is not allowed: 1.5"),
        ({"language": "xx"}, "language has a value that is not allowed: 'xx'"),
        ({"language": []}, r"language has a value that is not allowed: \[\]"),
        ({"answers": "time"}, "answers has a value that is not allowed: 'time'"),
        ({"event": "a\nb"}, "event has a value that is not allowed"),
        ({"examples": 1.5}, "examples has a value that is not allowed"),
        ({"more": 1}, "must have exactly the fields event, bias, "),
    ],
)
def test_a_file_with_other_content_is_refused(change, message):
    with pytest.raises(ValueError, match=f"{CALIBRATION}.*{message}"):
        Calibration.from_json(json.dumps(json.loads(CALIBRATED.to_json()) | change))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"bias": NaN}'])
def test_a_file_that_is_no_calibration_is_refused(text):
    with pytest.raises(ValueError, match=CALIBRATION):
        Calibration.from_json(text)


# ---- who keeps it ----


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = StructuredSelfAttention(**StructuredSelfAttention.tiny).eval()
    made.tokenizer = Tokenizer.train(["a good film . it is bad"], "word_punct", 12, lowercase=True)
    made.label_names = ["negative", "neutral", "positive"]
    return made


def test_a_bundle_carries_it_and_one_without_it_loads(model, tmp_path):
    model.save_pretrained(tmp_path / "plain")
    plain = zoo.load(f"local-dir:{tmp_path / 'plain'}")
    assert plain.calibration is None and plain.classify("a good film").confidence is None
    before = (tmp_path / "plain/model.safetensors").read_bytes()
    (tmp_path / "plain/README.md").write_text("mine")
    bundle = rewrite(Bundle(tmp_path / "plain"), {CALIBRATION: CALIBRATED.to_json()})
    assert CALIBRATION in bundle.sha256 and (tmp_path / "plain/README.md").read_text() == "mine"
    assert (tmp_path / "plain/model.safetensors").read_bytes() == before
    loaded = zoo.load(f"local-dir:{tmp_path / 'plain'}")
    assert loaded.calibration == CALIBRATED and 0 < loaded.classify("a good film").confidence < 1
    loaded.save_pretrained(tmp_path / "again")
    assert zoo.load(f"local-dir:{tmp_path / 'again'}").calibration == CALIBRATED
    assert zoo.load(f"local-dir:{tmp_path / 'again'}", {"dropout": 0.5}).calibration is None
    rewrite(Bundle(tmp_path / "plain"), {CALIBRATION: "{}"})
    with pytest.raises(BundleError, match=CALIBRATION):
        zoo.load(f"local-dir:{tmp_path / 'plain'}")


def test_other_weights_lose_it(model):
    model.calibration = CALIBRATED
    assert average([model], ["one"]).calibration == CALIBRATED
    assert average([model, model], ["one", "two"]).calibration is None
    model.calibration = CALIBRATED
    model.setup("validate")
    assert model.calibration == CALIBRATED
    model.setup("fit")
    assert model.calibration is None
    model.calibration = CALIBRATED
    model.replace_labels(["a", "b"])
    assert model.calibration is None


def test_completions_are_neither_right_nor_wrong():
    model = KeyValuePredictLM(**KeyValuePredictLM.tiny)
    with pytest.raises(ValueError, match="models for language modelling have no confidence"):
        model.event()


def test_confidence_of_a_classifier_by_hand(model):
    model.calibration = replace(CALIBRATED, language=None)
    found = model.classify("a good film")
    best = max(found.probabilities.values())
    assert found.confidence == pytest.approx(sigmoid(-1 + 2 * math.log(best / (1 - best))), rel=1e-4)
    assert found.to_dict()["confidence"] == round(found.confidence, 4)
    assert model.classify("").warnings[0] == "the text has no words"
    assert "the model knows few of the words" in model.classify("xx yy zz ww vv uu tt").warnings
