"""What the verbs take as many inputs: any strings in an order, and nothing else."""

from dataclasses import fields

import bundle_corpus
import numpy as np
import pytest
import torch

import zoo
from zoo.verbs.checks import texts_of

TRANSLATOR, CLASSIFIER, LANGUAGE_MODEL = "luong_dot.dates", "structured_self_attention.trec6", "key_value_predict.ptb"
VERBS = {
    "translate": TRANSLATOR,
    "classify": CLASSIFIER,
    "complete": LANGUAGE_MODEL,
    "perplexity": LANGUAGE_MODEL,
    "align": TRANSLATOR,
    "caption": "show_attend_tell_soft.flickr8k",
    "answer": "attention_over_attention.cbtlike_ne",
}


@pytest.fixture(scope="module")
def loaded():
    return {name: zoo.load(name) for name in dict.fromkeys(VERBS.values())}


def ask(loaded, verb, given):
    model = loaded[VERBS[verb]]
    return model.answer("Ann met Bob .", given) if verb == "answer" else getattr(model, verb)(given)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "given, fault",
    [
        ({"b", "a"}, "got set, which has no order: give a list, as results come in the order of the inputs"),
        (frozenset("a"), "got frozenset, which has no order"),
        ({"a": "b"}, "got dict: give its values, or one of its columns"),
        (None, "got NoneType"),
        (3, "got int"),
        (2.5, "got float"),
    ],
)
def test_what_has_no_order_is_refused(loaded, verb, given, fault):
    with pytest.raises(TypeError, match=f" takes an? .*; {fault}") as raised:
        ask(loaded, verb, given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "caption"])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_are_no_list_of_numbers(loaded, verb, kind):
    with pytest.raises(TypeError, match=rf"; got {kind.__name__}: decode the bytes, e.g. str\(text, 'utf-8'\)"):
        ask(loaded, verb, kind(b"May 3, 2019"))


def test_sides_of_a_pair_have_an_order_too(loaded):
    for side in ({"a", "b"}, b"ab", {"a": 1}):
        with pytest.raises(TypeError, match="align takes texts, or lists of words; got "):
            ask(loaded, "align", (side, "a"))


def test_single_wrong_texts_are_named(loaded):
    for verb in ("translate", "classify", "complete", "perplexity"):
        for wrong in (b"a", None, 3, ["a"]):
            with pytest.raises(TypeError, match=f"got {type(wrong).__name__} .*as number 2"):
                ask(loaded, verb, ["a", wrong])


@pytest.mark.parametrize("verb", ["translate", "classify", "complete", "perplexity"])
def test_all_iterables_of_texts_are_lists(loaded, verb):
    texts = ["May 3, 2019", "June 5, 2020"]
    wanted = [str(one) for one in ask(loaded, verb, texts)]
    for same in (iter(texts), (text for text in texts), dict.fromkeys(texts).keys(), np.array(texts), map(str, texts)):
        assert [str(one) for one in ask(loaded, verb, same)] == wanted


def test_lines_of_a_file_are_texts(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("a\nb\n")
    with file.open() as lines:
        assert texts_of(lines, "translate") == (False, ["a\n", "b\n"])


@pytest.mark.parametrize("verb", VERBS)
def test_no_inputs_have_no_results(loaded, verb):
    assert ask(loaded, verb, []) == [] and ask(loaded, verb, iter(())) == []


def _tensors(value):
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in _tensors(part)]
    return [value] if isinstance(value, torch.Tensor) else []


@pytest.mark.parametrize("task", ["translator", "classifier", "document", "captioner", "writer", "reader"])
def test_a_result_does_not_keep_the_numbers_of_its_batch(tmp_path, task):
    """Neither in memory nor in a pickle."""
    model = zoo.load(f"local-dir:{bundle_corpus.write(bundle_corpus.bundles()[task], tmp_path / task)}")
    for result in bundle_corpus.answers(model):
        found = [x for field in fields(result) for x in _tensors(getattr(result, field.name))]
        assert found
        assert all(x.untyped_storage().nbytes() == x.numel() * x.element_size() for x in found)
