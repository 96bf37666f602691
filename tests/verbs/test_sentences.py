"""Texts of several sentences: taken apart, translated one by one, joined."""

import time

import numpy as np
import pytest
import torch

from zoo.models.luong import LuongNMT
from zoo.models.seq2seq import Seq2SeqNMT
from zoo.results import Translation
from zoo.text import EOS, UNK, Tokenizer
from zoo.verbs.confidence import Calibration
from zoo.verbs.sentences import join, read_sentences

TEXT = "A dog runs. Two men play! Why?"
PARTS = ["A dog runs.", "Two men play!", "Why?"]


def build(cls, kind="bpe"):
    torch.manual_seed(0)
    model = cls(**{**cls.tiny, "src_vocab_size": 90, "tgt_vocab_size": 90}).eval()
    model.src_tokenizer = model.tgt_tokenizer = Tokenizer.train([TEXT, TEXT.lower()] * 3, kind, 80)
    model.embeddings.output.bias.data[EOS] = -2
    return model


@pytest.fixture(scope="module")
def model():
    return build(LuongNMT)


def test_the_answers_are_joined(model):
    found, parts = model.translate(TEXT), model.translate(PARTS)
    assert found.text == " ".join(part.text for part in parts if part.text)
    assert found.tokens == [token for part in parts for token in part.tokens]
    assert found.source_tokens == [token for part in parts for token in part.source_tokens]
    assert torch.equal(found.attention, torch.block_diag(*[part.attention for part in parts]))
    lengths = [len(part.tokens) for part in parts]
    want = sum(part.score * n for part, n in zip(parts, lengths)) / sum(lengths)
    assert found.score == pytest.approx(want, rel=1e-5) and found.n_best == [(found.text, found.score)]


def test_a_text_is_read_as_one_if_asked(model):
    whole = model.translate(TEXT, split_sentences=False)
    assert whole.source_tokens.count("</s>") == 1 and model.translate(TEXT).source_tokens.count("</s>") == 3


def test_one_sentence_is_the_same_to_the_bit(model):
    for text in ("A dog runs.", " A  dog\nruns.  ", "", "dog"):
        one, other = (
            model.translate(text, n_best=2, beam_size=3),
            model.translate(text, n_best=2, beam_size=3, split_sentences=False),
        )
        assert one.n_best == other.n_best and one.source_tokens == other.source_tokens
        assert (one.attention is None and other.attention is None) or torch.equal(one.attention, other.attention)


def test_alternatives_are_the_best_combinations(model):
    parts = model.translate(PARTS[:2], beam_size=4, n_best=4)
    found = model.translate(" ".join(PARTS[:2]), beam_size=4, n_best=4)
    lengths = [len(part.tokens) for part in parts]
    every = sorted(
        (-(a * lengths[0] + b * lengths[1]) / sum(lengths) for _, a in parts[0].n_best for _, b in parts[1].n_best)
    )
    assert [-score for _, score in found.n_best] == pytest.approx(every[:4], rel=1e-4)
    assert found.n_best[0] == (found.text, found.score)


def test_alternatives_that_are_the_same_when_joined_count_once():
    parts = [
        Translation(found[0][0], found[0][1], ["x"], ["y"], None, found)
        for found in ([("a", -0.1), ("a b", -0.2)], [("b c", -0.1), ("c", -0.4)])
    ]
    texts = [text for text, _ in join(parts, 4, True, np.zeros).n_best]
    assert texts == ["a b c", "a b b c", "a c"]
    assert [text for text, _ in join(parts, 4, False, np.zeros).n_best] == ["a b c", "a b c"]  # samples stay


def test_samples_are_joined_in_the_order_drawn(model):
    torch.manual_seed(1)
    found = model.translate(TEXT, temperature=1.0, n_best=3)
    assert len(found.n_best) == 3 and found.n_best[0][0] == found.text


def test_a_model_without_attention():
    assert build(Seq2SeqNMT).translate(TEXT).attention is None


@pytest.mark.parametrize(
    "text, parts",
    [
        ("A dog runs. :)", ["A dog runs. :)"]),
        ("1. A dog runs. 2. Two men play!", ["1. A dog runs.", "2. Two men play!"]),
        ("*** A dog runs. *** 12", ["*** A dog runs. *** 12"]),
        ("1. ... 2.", ["1. ... 2."]),
        ("A dog runs! !!! Two men.", ["A dog runs! !!!", "Two men."]),
    ],
)
def test_marks_and_numbers_are_no_sentences(model, text, parts):
    """Alone, a model makes up a sentence for each of them."""
    found = read_sentences(text, model.src_tokenizer, True, "en", "the text")
    assert [sentence.given for sentence in found] == parts
    assert [word for sentence in found for word in sentence.given.split()] == text.split()


def test_many_marks_are_not_read_with_a_sentence(model):
    """Neither its length nor the time has a bound otherwise."""
    text = "A dog runs.\n\n" + "12.5 3.4\n\n" * 300 + "Two men play."
    found = read_sentences(text, model.src_tokenizer, True, "en", "the text")
    assert max(len(sentence.given) for sentence in found) < 200
    assert "".join(" ".join(sentence.given for sentence in found).split()) == "".join(text.split())
    start = time.perf_counter()
    read_sentences("... " * 100_000, model.src_tokenizer, True, "en", "the text")
    assert time.perf_counter() - start < 20


def test_the_language_is_told_by_the_text_as_given():
    """Without accents Swedish or Czech has other words."""
    model = build(LuongNMT)
    model.calibration = Calibration("it is right", 0.0, {"score": 1.0}, 0.0, 0.0, language="en")
    assert any("Swedish" in warning for warning in model.translate("Mannen är på väg.").warnings)
    assert model.src_tokenizer.plain("på") == "pa"


@pytest.mark.parametrize("text", ["...", "😀", "\u200e\u2066", "*** :)"])
def test_a_text_without_words_is_said_to_have_none(model, text):
    assert "the text has no words" in model.translate(text).warnings
    assert "the text has no words" in model.translate(["A dog runs.", text])[1].warnings
    assert (
        model.translate(" \n").warnings == []
        and model.translate("A dog. 12").warnings == model.translate("A dog.").warnings
    )


def test_invisible_characters_change_nothing(model):
    found, plain = model.translate("\u200eA dog\ufe0f runs\u2060."), model.translate("A dog runs.")
    assert found.text == plain.text and found.source_tokens == plain.source_tokens


def test_a_model_of_characters_reads_a_text_as_one():
    model = build(LuongNMT, "char")
    assert "".join(model.translate("3. May. Dog.").source_tokens[:-1]).replace("▁", " ").count(".") == 3
    assert model.translate("3. May. Dog.").source_tokens.count("</s>") == 1


def test_half_a_surrogate_pair_is_named(model):
    with pytest.raises(ValueError, match=r"^the text is not valid Unicode: character 2 is half a surrogate pair"):
        model.translate("a\ud800. A dog runs.")


@pytest.mark.parametrize(
    "option",
    [
        {"beam_size": 2.0},
        {"n_best": None},
        {"n_best": True},
        {"no_repeat_ngram": 2.5},
        {"top_k": 1.5, "temperature": 1.0},
    ],
)
def test_options_that_are_no_integers(model, option):
    name = next(iter(option))
    with pytest.raises(TypeError, match=f"^{name} must be an integer; got {option[name]}$"):
        model.translate("A dog runs.", **option)


@pytest.mark.parametrize("option", [{"temperature": "1"}, {"length_penalty": "a"}])
def test_options_that_are_no_numbers(model, option):
    name = next(iter(option))
    with pytest.raises(TypeError, match=f"^{name} must be a number; got {option[name]!r}$"):
        model.translate("A dog runs.", **option)


def test_a_long_sentence_is_named(model):
    with pytest.raises(ValueError, match=r"sentence 2 of text 2 has [0-9,]+ tokens; at most [0-9,]+ are allowed"):
        model.translate(["dog", "A dog runs. " + "dog " * 5000 + ". A man."])


def test_capitals_are_read_in_lower_case(model):
    found = model.translate("A DOG RUNS.")
    assert found.source_tokens == model.translate("A dog runs.").source_tokens
    assert found.text == model.translate("A dog runs.").text
    note = "the text is in capitals and was read in lower case"
    assert note in found.warnings
    assert model.translate("A DOG RUNS. TWO MEN PLAY!").warnings.count(note) == 1, "common to all sentences"
    mixed = model.translate("A dog runs. TWO MEN PLAY!").warnings
    assert f"sentence 2: {note}" in mixed and f"sentence 1: {note}" not in mixed
    found = model.translate("A DOG runs in the park.")
    assert found.source_tokens == model.translate("A dog runs in the park.").source_tokens
    assert "some capitals were read in lower case" in found.warnings


def test_an_answer_without_an_end_is_said_to_be_cut():
    model = build(LuongNMT)
    model.embeddings.output.bias.data[EOS] = -100
    assert "the answer was cut at its maximum length" in model.translate("A dog runs.").warnings


def test_confidence_of_several_sentences_is_their_mean(model):
    model.calibration = Calibration("it is right", 0.0, {"score": 1.0}, 0.0, 0.0)
    try:
        found, parts = model.translate(TEXT), model.translate(PARTS)
        lengths = [len(part.tokens) for part in parts]
        want = sum(part.confidence * n for part, n in zip(parts, lengths)) / sum(lengths)
        assert found.confidence == pytest.approx(want, rel=1e-5) and 0 < found.confidence < 1
    finally:
        model.calibration = None
    assert join([model.translate("dog")], 1, True, torch.zeros).confidence is None


def test_an_unknown_word_that_is_allowed_is_in_the_text():
    model = build(LuongNMT, "word")
    model.embeddings.output.bias.data[UNK] = 9
    found = model.translate("A dog runs.", allow_unk=True, beam_size=1, split_sentences=False)
    assert found.tokens[0] == "<unk>" and found.text.split() == [token for token in found.tokens if token != "</s>"]
    assert found.n_best == [(found.text, found.score)] and "<unk>" not in model.translate("A dog runs.").text
