"""zoo.runtime: from the exported graphs of a model come the results that the model itself gives, without torch."""

import dataclasses
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import captions_fakes
import numpy as np
import pytest
import torch
from exported import LABELS, SENTENCES, loud
from model_cases import build
from PIL import Image

import zoo
import zoo.runtime
from zoo import registry
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.luong import LuongNMT
from zoo.models.seq2seq import Seq2SeqNMT
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.models.tutorial_attention import TutorialAttentionNMT
from zoo.onnx_export import export_onnx
from zoo.runtime import language_modelling
from zoo.runtime.classification import GraphDocumentClassifier
from zoo.text import Tokenizer
from zoo.utils import strict_json

pytestmark = pytest.mark.integration  # of exports

KINDS = [
    *("translator", "transformer", "captioner", "document_classifier", "pair_classifier"),
    *("language_model", "reader", "excluding_reader"),
]
TEXTS = [
    *("", "  ", ".", "zzz ÜÜ 12 qqq", "A MAN PLAYS THE GUITAR ON THE BEACH", "Der Hund ist nicht da, aber die Frau auch nicht."),
    "People run there.  The little girl in a red coat eats ice cream! Is a black dog waiting for a bus, I think?",
    *SENTENCES[::7],
]  # fmt: skip
PAIRS = [(one, other) for one in TEXTS[:8] for other in ("", "A black dog runs.", "people runs in the snow .")]
BEGINNINGS = [
    "", "A man", "People", "Two women runs on the beach .", "A man plays.\n\nThe PEOPLE, (running) 1,000 times", "the zebra", "near me  ",
    "A black dog jumps over it at a party with friends.\n", "a b c\n" * 5,
]  # fmt: skip
STORY = (
    '"Alice," said the Rabbit, "isn\'t at home." Then Zog and Umbra met Alice in the garden; Quux didn\'t see Zog -- or Umbra ... '
    "The Rabbit's well-known watch cost 1,000 coins, so the Duchess ( who knew Zog ) wouldn't buy it ."
)
QUERIES = ["'' I know Umbra and XXXXX , '' said Alice .", "XXXXX", "Then Plugh, Quux and the XXXXX didn't meet Zog!"]
GIVEN = [["Zog", "Alice", "Quux", "Cafe\u0301"], ["the", "Umbra"], ["Rabbit", "garden"]]


def photos(folder=None):
    """Images of all kinds of sources; a path if a folder is given."""
    contents = [captions_fakes.picture(n, 30 + n, 20) for n in range(3)]
    found = [contents[0], Image.fromarray(np.full((9, 5), 77, np.uint8))]
    if folder is not None:
        found.append(str(captions_fakes.write(folder / "photo.png", contents[1])))
    return found


SEARCHES = [
    {},
    {"beam_size": 1},
    {"beam_size": 4, "n_best": 3, "length_penalty": 0.0},
    {"beam_size": 3, "no_repeat_ngram": 2, "length_penalty": 2.5, "batch_size": 2},
    {"temperature": 0.7, "top_k": 1, "n_best": 2},  # of one word there is nothing to draw
]
LOOKS = {0: {2: 1}, 3: {0: 0.25, 4: 0.5}}  # target position -> weights of source positions
CALLS = {  # kind of model -> its verbs and what they are given
    "translator": [
        ("translate", TEXTS, {}),
        *(("translate", TEXTS[3:8], options) for options in (*SEARCHES[1:], {"split_sentences": False})),
        ("translate", SENTENCES[22], {"allow_unk": True, "beam_size": 10, "n_best": 10}),  # it makes a difference here
        ("translate", TEXTS[6], {"n_best": 5}),
        *(("translate", SENTENCES[2], {"beam_size": size, "attention": LOOKS}) for size in (1, 4)),
        ("translate", SENTENCES[2], {"attention": {}}),
        ("align", [("A man runs .", "a black dog"), ("", "a"), ("A", ""), (["People", "run"], ["A", "man"])], {}),
        ("align", ("Two women", "eats ice cream"), {"batch_size": 1}),
    ],
    "transformer": [
        *(("translate", TEXTS[4:7], options) for options in SEARCHES[1:3]),
        *(("translate", SENTENCES[2], {"beam_size": size, "attention": LOOKS}) for size in (1, 4)),
        ("align", [("A man runs .", "a black dog"), ("Two", "the beach")], {}),
    ],
    "captioner": [
        *(("caption", "PHOTOS", options) for options in SEARCHES),
        *(("caption", photos()[0], {"beam_size": n, "attention": {0: {3: 1}, 2: np.eye(3) / 3}}) for n in (1, 3)),
    ],
    "document_classifier": [("classify", TEXTS, {}), ("classify", TEXTS[6], {}), ("classify", [], {})],
    "pair_classifier": [("classify", PAIRS, {}), ("classify", PAIRS[7], {})],
    "language_model": [
        ("complete", BEGINNINGS, {}),
        *(("complete", BEGINNINGS[:5], options) for options in SEARCHES[1:]),
        ("complete", BEGINNINGS, {"max_words": 7, "min_words": 4, "allow_unk": True}),
        ("complete", BEGINNINGS[3], {"max_words": 1}),
        ("perplexity", BEGINNINGS, {}),
        ("perplexity", BEGINNINGS[4], {}),
        ("perplexity", ["", "\n"], {"batch_size": 1}),
    ],
    "reader": [
        ("answer", (STORY, QUERIES), {}),
        ("answer", ([STORY, f"{STORY} XXXXX", "Zog"], QUERIES, [*GIVEN[:2], None]), {}),
        ("answer", (STORY, QUERIES[2], GIVEN[2]), {}),
        ("answer", ("Zog XXXXX", "XXXXX Zog"), {}),
    ],
}  # fmt: skip
CALLS["excluding_reader"] = [("answer", (STORY, QUERIES, GIVEN), {}), *CALLS["reader"][::3]]


@pytest.fixture(scope="session")
def runtimes():
    """Folder -> its model, loaded once."""
    return {}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def both(kind, request, runtimes):
    """A model, and the same as graphs."""
    model, folder = request.getfixturevalue(kind)
    return model, runtimes.setdefault(folder, zoo.runtime.load(folder))


def answer(model, verb, given, options, folder=None):
    given = photos(folder) if given == "PHOTOS" else given
    return getattr(model, verb)(*(given if verb == "answer" else [given]), **options)


def check_same(found, wanted, where="result"):
    """A result of the graphs and one of torch, or parts of them."""
    if isinstance(wanted, torch.Tensor):
        assert type(found) is np.ndarray and found.dtype == np.float32 and found.shape == tuple(wanted.shape), where
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5, err_msg=where)
        return
    assert type(found) is type(wanted), f"{where}: {found!r} and {wanted!r}"
    if dataclasses.is_dataclass(wanted):
        for field in dataclasses.fields(wanted):
            check_same(getattr(found, field.name), getattr(wanted, field.name), f"{where}.{field.name}")
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted), where
        for n, pair in enumerate(zip(found, wanted)):
            check_same(*pair, f"{where}[{n}]")
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted), where  # answers are in their order
        check_same(list(found.values()), list(wanted.values()), where)
    elif isinstance(wanted, Image.Image):
        assert found.tobytes() == wanted.tobytes(), where
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-4, abs=1e-4, nan_ok=True), where
    else:
        assert found == wanted, where


def test_the_same_results(kind, both, tmp_path):
    model, other = both
    for verb, given, options in CALLS[kind]:
        found, wanted = (answer(engine, verb, given, options, tmp_path) for engine in (other, model))
        check_same(found, wanted, f"{verb} {options}")
        assert model.__class__ is not other.__class__ and model.task == other.task


def test_what_is_compared_differs_from_input_to_input(kind, both, tmp_path):
    """Otherwise the test above could not fail; confidence and warnings occur too."""
    verb, given, options = CALLS[kind][0]
    results = answer(both[1], verb, given, options, tmp_path)
    assert len({result.line() if verb != "classify" else str(result.probabilities) for result in results}) > 1
    if kind in ("translator", "document_classifier", "pair_classifier"):
        warnings = " ".join(warning for result in results for warning in result.warnings)
        assert "low confidence (" in warnings and "the model knows few of the words" in warnings
        assert "the text looks German; the model reads English" in warnings or kind == "pair_classifier"
        assert len({result.confidence for result in results}) > 2
    if kind == "translator":
        assert "the text is in capitals and was read in lower case" in warnings and "sentence 1: " in warnings


def test_pictures_and_pages(kind, both, tmp_path):
    """A page is that of torch, but for the digits of its numbers; a picture is drawn."""
    verb, given, options = CALLS[kind][0]
    found, wanted = (answer(engine, verb, given, options, tmp_path) for engine in reversed(both))
    n = len(found) - 1  # of the classifiers; other pictures take long, so the smallest
    if verb != "classify":
        n = min((n for n, result in enumerate(found) if result.line()), key=lambda n: len(found[n]._repr_html_()))
    html, same = (
        re.sub(r"base64,[^\"')]+|[\d.]+", "", results[n].to_html(title="model")) for results in (found, wanted)
    )
    assert html == same and html.startswith("<!DOCTYPE html>")
    assert found[n].plot(tmp_path / "picture.png").stat().st_size > 3000


WRONG = [  # attention
    5,
    *({position: {0: 1}} for position in (-1, 10**9, "a", True)),
    *({0: weights} for weights in ({}, {0: -1}, {0: 2}, {0: math.nan}, {10**6: 1}, {-1: 1}, [1.0] * 100)),
]
MISTAKES = {
    "translator": [
        *(("translate", given, {}) for given in (5, ["a", None], "." * 1200, ["a", "b", f"A. {'. ' * 1200}"])),
        *(("translate", "A man.", {name: 0}) for name in ("batch_size", "beam_size", "n_best")),
        ("translate", "A man.", {"beam_size": 2, "n_best": 3}),
        ("translate", "A man.", {"length_penalty": math.nan}),
        ("translate", "A man.", {"no_repeat_ngram": -1}),
        ("translate", "A man.", {"temperature": 0.0}),
        ("translate", "A man.", {"temperature": 1.0, "top_k": -1}),
        *(("translate", text, {"attention": {0: {0: 1}}}) for text in (["A man."], "A man plays. It is good.")),
        *(("translate", "A man.", {"attention": given}) for given in WRONG),
        ("translate", "A man.", {"attention": {0: [1.0]}}),
        *(("align", given, {}) for given in (5, ("a",), (("a", "b"), ("c", "d")), ("." * 1200, "a"), ("a", "." * 1200))),
    ],
    "captioner": [
        ("caption", 5, {}),
        ("caption", "nowhere.jpg", {}),
        ("caption", [b"no image"], {}),
        ("caption", [7], {}),
        ("caption", "PHOTOS", {"batch_size": 0}),
        ("caption", "PHOTOS", {"beam_size": 0}),
        ("caption", "PHOTOS", {"attention": {0: {0: 1}}}),
        *(("caption", photos()[0], {"attention": given}) for given in (*WRONG, {40: {0: 1}})),
    ],
    "document_classifier": [("classify", 5, {}), ("classify", ["a", ("a", "b")], {})],
    "pair_classifier": [("classify", "A man.", {}), ("classify", [("a", "b", "c")], {})],
    "language_model": [
        ("complete", 5, {}),
        ("complete", ["a", 5], {}),
        ("complete", "a", {"max_words": 0}),
        ("complete", "a", {"min_words": 30}),
        ("complete", "a", {"batch_size": 0}),
        ("complete", "a", {"beam_size": 2, "n_best": 4}),
        ("perplexity", 5, {}),
        ("perplexity", "a", {"batch_size": -1}),
    ],
    "reader": [
        ("answer", given, {})
        for given in [
            (STORY, "Who met Alice?"), ("", QUERIES[0]), (STORY, ""), (5, QUERIES[0]), (STORY, 5), (STORY, QUERIES[0], "Alice"),
            (STORY, QUERIES[0], []), (STORY, QUERIES[0], ["two words"]), (STORY, QUERIES[0], ["Nobody"]), ([STORY], QUERIES),
            (STORY, QUERIES, [None]), ([STORY] * 3, [*QUERIES[:2], "no mark"]),
        ]
    ],
    "excluding_reader": [("answer", (STORY, "XXXXX met Alice", ["Alice"]), {})],
}  # fmt: skip


@pytest.mark.parametrize("kind", MISTAKES, indirect=True)
def test_mistakes_have_the_messages_of_torch(kind, both):
    for call in MISTAKES[kind]:
        raised = []
        for engine in both:
            with pytest.raises((ValueError, TypeError)) as error:
                answer(engine, *call)
            raised.append((type(error.value), str(error.value)))
        assert raised[0] == raised[1] and "\n" not in raised[0][1], call


def test_no_attention_no_alignment(translator, monkeypatch):
    """As of a model that has none."""
    model = zoo.runtime.load(translator[1])
    step = model.step
    monkeypatch.setattr(model, "step", lambda *given: (*step(*given)[:2], None))
    assert model.translate("A man plays.").attention is None
    with pytest.raises(ValueError, match="this model has no attention to align with; load one that has, e.g. a bahda"):
        model.align(("a", "b"))


@pytest.mark.parametrize("kind", ["translator", "transformer", "captioner"], indirect=True)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_given_attention_is_what_the_model_then_uses(kind, beam_size, both):
    """Its own weights of a step give its own answer; others are in the result, and give another one."""
    verb = "caption" if kind == "captioner" else "translate"
    given = photos()[0] if verb == "caption" else SENTENCES[2]
    for engine in both:
        own = answer(engine, verb, given, {"beam_size": beam_size})
        places = own.attention[0].reshape(-1).shape[0]
        if kind != "transformer" and beam_size == 1:  # whose result shows one head; a beam has other hypotheses too
            again = answer(engine, verb, given, {"beam_size": beam_size, "attention": dict(enumerate(own.attention))})
            assert again.tokens == own.tokens and again.score == pytest.approx(own.score, abs=1e-5)
        away = {n: {(int(own.attention[n].reshape(-1).argmax()) + 2) % places: 1.0} for n in range(len(own.tokens))}
        other = answer(engine, verb, given, {"beam_size": beam_size, "attention": away})
        for row, weights in zip(other.attention.reshape(len(other.tokens), -1), away.values()):
            assert {n: float(x) for n, x in enumerate(row) if x} == weights
        assert other.score != pytest.approx(own.score, abs=1e-3)


def test_nothing_can_be_given_to_a_model_without_attention(translator, monkeypatch):
    message = "^this model has no attention that could be given; load one that has, e.g. a bahdanau or luong model$"
    tokenizer = translator[0].src_tokenizer
    for cls, options in ((Seq2SeqNMT, {}), (TutorialAttentionNMT, {"attention": "none"})):
        model = build(cls, src_vocab_size=len(tokenizer), tgt_vocab_size=len(tokenizer), **options).eval()
        model.src_tokenizer = model.tgt_tokenizer = tokenizer
        with pytest.raises(ValueError, match=message):
            model.translate("A man plays.", attention={0: {0: 1}})
    model = zoo.runtime.load(translator[1])
    monkeypatch.setattr(model._step, "inputs", [name for name in model._step.inputs if name != "given_attention"])
    with pytest.raises(ValueError, match=message):
        model.translate("A man plays.", attention={0: {0: 1}})


def test_relatedness_is_within_its_limits(pair_classifier):
    """The graph gives what the network computes; the model's scores go from 1 to 5."""
    model = zoo.runtime.load(pair_classifier[1])
    computed = model._graph

    def run(inputs):
        return {**computed(inputs), "relatedness": np.array([9.5, -2, 3.25], np.float32)}

    model._graph = run
    assert [result.relatedness for result in model.classify(PAIRS[:3])] == [5.0, 1.0, 3.25]


# ---- other files of the same graphs ----


def edit(folder, change, digest=True):
    """Changes onnx.json, as if it had been exported so; without `digest` as people do it."""
    facts = json.loads((folder / "onnx.json").read_text(encoding="utf-8"))
    change(facts)
    if digest:
        facts["digest"] = strict_json.digest({key: value for key, value in facts.items() if key != "digest"})
    (folder / "onnx.json").write_text(json.dumps(facts), encoding="utf-8")


def replace(folder, name, content):
    (folder / name).write_bytes(content)
    edit(folder, lambda facts: facts["sha256"].update({name: hashlib.sha256(content).hexdigest()}))


def with_tokenizer(folder, target, tokenizer):
    """A copy of an export with another tokenizer, as if it had been exported."""
    shutil.copytree(folder, target)
    replace(target, "tokenizer.json", tokenizer.to_json().encode())
    return target


@pytest.mark.parametrize("kind", ["word_punct", "bpe", "char"])
def test_completions_by_other_tokenizers(kind, language_model, tmp_path, monkeypatch):
    """And of texts that are read a piece at a time."""
    model, folder = language_model
    tokenizer = Tokenizer.train([*SENTENCES, "N"], kind, model.config["vocab_size"] - 1)
    monkeypatch.setattr(model, "tokenizer", tokenizer)
    monkeypatch.setattr(language_modelling, "STEPS_AT_ONCE", 4)
    other = zoo.runtime.load(with_tokenizer(folder, tmp_path / "graphs", tokenizer))
    for options in ({}, {"beam_size": 1, "max_words": 9}):
        check_same(other.complete(BEGINNINGS, **options), model.complete(BEGINNINGS, **options))
    check_same(other.perplexity(BEGINNINGS), model.perplexity(BEGINNINGS))


def test_a_continuous_cache_needs_torch(language_model):
    _, folder = language_model
    other, cache = zoo.runtime.load(folder), zoo.ContinuousCache()
    for verb in (other.complete, other.perplexity):
        with pytest.raises(
            ValueError, match="exported graphs have no continuous cache; load the weights with zoo.load"
        ):
            verb(BEGINNINGS, cache=cache)


def test_answers_by_another_tokenizer(reader, tmp_path, monkeypatch):
    model, folder = reader
    texts = ["the Rabbit did not say it isn't Alice, Alice or 'the rabbit'"]
    tokenizer = Tokenizer.train(texts, "word_punct", 30, lowercase=True)
    monkeypatch.setattr(model, "tokenizer", tokenizer)
    other = zoo.runtime.load(with_tokenizer(folder, tmp_path / "graphs", tokenizer))
    for candidates in (None, GIVEN):
        check_same(other.answer(STORY, QUERIES, candidates), model.answer(STORY, QUERIES, candidates))


# ---- processes and threads ----

ALONE = """
import json, sys
import zoo.runtime
for folder, verb, given in json.loads(sys.argv[1]):
    print(json.dumps([result.line() for result in getattr(zoo.runtime.load(folder), verb)(*given)]))
print(sorted(sys.modules.keys() & {"torch", "lightning", "torchvision", "torchmetrics", "onnx", "matplotlib", "pandas"}))
"""


def test_torch_is_not_imported(request, tmp_path):
    (tmp_path / "photo.png").write_bytes(captions_fakes.picture(1, 30, 20))
    given = {"captioner": [[str(tmp_path / "photo.png")]], "pair_classifier": [[["a man", "a dog"]]]}
    given |= dict.fromkeys(("reader", "excluding_reader"), (STORY, QUERIES))
    work, wanted = [], []
    for kind in KINDS:
        model, folder = request.getfixturevalue(kind)
        verb, values = model.task.verb, given.get(kind, [TEXTS[6:8]])
        if kind == "pair_classifier":  # JSON has no tuples
            folder, verb, values = request.getfixturevalue("document_classifier")[1], "classify", [TEXTS[6:8]]
            model = request.getfixturevalue("document_classifier")[0]
        work.append((str(folder), verb, values))
        wanted.append([result.line() for result in getattr(model, verb)(*values)])
    run = subprocess.run([sys.executable, "-c", ALONE, json.dumps(work)], capture_output=True, text=True)
    *found, imported = run.stdout.splitlines() or [""]
    assert run.returncode == 0 and run.stderr == "" and imported == "[]", run.stderr + imported
    assert [json.loads(line) for line in found] == wanted


def test_several_threads_at_once(translator, document_classifier):
    for (_, folder), verb, threads in ((translator, "translate", 1), (document_classifier, "classify", 2)):
        model = zoo.runtime.load(folder, threads=threads)
        texts = [SENTENCES[n : n + 1 + n % 5] for n in range(12)]
        alone = [getattr(model, verb)(some) for some in texts]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(getattr(model, verb), texts))
        for found, wanted in zip(together, alone, strict=True):
            assert [result.to_dict() for result in found] == [result.to_dict() for result in wanted]


# ---- what is no export ----


def share_and_spoil(folder):
    """As if the graphs had 8-bit weights in a file of their own, which was damaged afterwards."""
    (folder / "shared.bin").write_bytes(b"weights")
    edit(folder, lambda facts: facts["sha256"].update({"shared.bin": hashlib.sha256(b"weights").hexdigest()}))
    (folder / "shared.bin").write_bytes(b"Weights")


DAMAGES = {
    "no folder": (lambda folder: shutil.rmtree(folder), "it has no onnx.json; write one with: zoo export NAME FOLDER --format onnx"),
    "no list": (lambda folder: (folder / "onnx.json").unlink(), "is not a folder of exported graphs: it has no onnx.json"),
    "list is a folder": (lambda folder: ((folder / "onnx.json").unlink(), (folder / "onnx.json").mkdir()), "it has no onnx.json"),
    "list cut": (lambda folder: os.truncate(folder / "onnx.json", 500), r"onnx.json is damaged \(.*\); export the model again"),
    "list of another kind": (lambda folder: (folder / "onnx.json").write_text("[]"), "onnx.json is damaged"),
    "no hashes": (lambda folder: (folder / "onnx.json").write_text('{"sha256": 1}'), "onnx.json is damaged"),
    "setting changed": (lambda folder: edit(folder, lambda facts: facts["search"].update(beam_size=4), digest=False), "onnx.json was changed or is damaged: its digest does not match; export the model again"),
    "number cut": (lambda folder: (folder / "onnx.json").write_text((folder / "onnx.json").read_text().replace('"parameters": ', '"parameters": 1')), "onnx.json was changed or is damaged: its digest does not match; export the model again"),
    "no digest": (lambda folder: edit(folder, lambda facts: facts.pop("digest"), digest=False), "onnx.json was changed, or exported by an earlier version of attention-zoo: it has no digest; export the model again"),
    "no state": (lambda folder: edit(folder, lambda facts: facts.pop("state")), "onnx.json is damaged .*state.*; export the model again"),
    "no search": (lambda folder: edit(folder, lambda facts: facts.update(search=[])), "onnx.json is damaged .*; export the model again"),
    "no size": (lambda folder: edit(folder, lambda facts: facts["config"].pop("src_vocab_size")), "onnx.json is damaged .*src_vocab_size"),
    "early": (lambda folder: edit(folder, lambda facts: [facts.pop(key, None) for key in ("config", "format")]), "was exported by an.* version of attention-zoo; export it again"),
    "late": (lambda folder: edit(folder, lambda facts: facts.update(task="walking")), "is for 'walking', which this version of attention-zoo does not know"),
    "graph missing": (lambda folder: (folder / "step.onnx").unlink(), "step.onnx: No such file or directory; export the model again"),
    "graph cut": (lambda folder: os.truncate(folder / "step.onnx", 999), "step.onnx is damaged: it is not what was exported; export the model again"),
    "weights of several graphs changed": (share_and_spoil, "shared.bin is damaged: it is not what was exported; export the model again"),
    "weights of several graphs missing": (lambda folder: (share_and_spoil(folder), (folder / "shared.bin").unlink()), "shared.bin: No such file"),
    "graph not listed": (lambda folder: edit(folder, lambda facts: facts["sha256"].pop("step.onnx")), "step.onnx is damaged: it is not"),
    "graph is a pipe": (lambda folder: ((folder / "step.onnx").unlink(), os.mkfifo(folder / "step.onnx")), "step.onnx"),
    "no graph": (lambda folder: replace(folder, "step.onnx", b"no graph"), r"step.onnx: onnxruntime cannot read it \(.*\)"),
    "tokenizer changed": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json is damaged: it is not what was exported"),
    "no tokenizer": (lambda folder: replace(folder, "tokenizer.json", b"[]"), "tokenizer.json"),
    "calibration of others": (lambda folder: replace(folder, "calibration.json", b"[]"), "calibration.json must have exactly the fields"),
    "one file more": (lambda folder: replace(folder, "labels.json", b"[]"), "next to the weights there must be tokenizer.json; the bundle lists"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_no_export(name, translator, tmp_path):
    """One line, which names the file."""
    spoil, says = DAMAGES[name]
    folder = shutil.copytree(translator[1], tmp_path / "graphs")
    spoil(folder)
    with pytest.raises(ValueError, match=says) as error:
        zoo.runtime.load(folder)
    assert "\n" not in str(error.value)


def test_a_verb_of_another_task(translator):
    model = zoo.runtime.load(translator[1])
    for name in ("classify", "generate"):
        with pytest.raises(
            AttributeError, match=f"GraphTranslator has no {name}: it is a model for translation, use tr"
        ):
            getattr(model, name)
    with pytest.raises(AttributeError, match="GraphTranslator has no attribute 'translte'"):
        model.translte("a")
    assert not hasattr(model, "sentence_attention")


def test_bad_arguments(translator, monkeypatch):
    with pytest.raises(ValueError, match="threads must be at least 1; got 0"):
        zoo.runtime.load(translator[1], threads=0)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    message = 'zoo.runtime needs onnxruntime; install with: pip install "onnxruntime>=1.22"'
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        zoo.runtime.load(translator[1])


# ---- documents ----


def test_a_text_without_full_stops_does_not_lengthen_the_sentences_of_others():
    """They are padded apart, and each answer is that of its document."""
    documents = [[[n, 1, 2]] * 200 for n in range(3, 12)]
    documents.insert(4, [[9] * 600])
    documents.insert(2, [])
    read = []

    def graph(inputs):
        read.append(inputs["tokens"].size)
        return {
            "logits": inputs["tokens"].sum((1, 2))[:, None],
            "word_attention": inputs["tokens"],
            "sentence_attention": inputs["lengths"],
        }

    model = object.__new__(GraphDocumentClassifier)
    model._graph = graph
    logits, attention, _ = model.weigh(documents)
    assert sum(read) <= 10 * 600 + 600
    assert logits[:, 0].tolist() == [sum(map(sum, document)) for document in documents]
    for document, (words, sentences) in zip(documents, attention, strict=True):
        assert [row.tolist() for row in words] == document
        assert sentences.tolist() == [len(sentence) for sentence in document]


# ---- other models ----


def _classifier(cls, **options):
    model = loud(build(cls, vocab_size=40, **options))
    model.tokenizer, model.label_names = Tokenizer.train(SENTENCES, "word_punct", vocab_size=40), LABELS
    return model


def _translator(cls, **options):
    tokenizers = [Tokenizer.train(SENTENCES, kind) for kind in ("char", "word")]
    model = loud(build(cls, **dict(zip(("src_vocab_size", "tgt_vocab_size"), map(len, tokenizers))), **options))
    for p in model.parameters():  # with louder ones an answer of 60 words carries a rounding error to another word
        p.data *= 0.5
    model.src_tokenizer, model.tgt_tokenizer = tokenizers
    return model


def _reader(**options):
    model = loud(build(AttentionOverAttentionReader, vocab_size=30, **options))
    model.tokenizer = Tokenizer.train(["`` I know the Rabbit , '' said Alice ."], "word")
    return model


OTHERS = {
    "one text": (_classifier, dict(cls=AttentionClassifier, attention="local_p_star", cell="gru", multi_label=True)),
    "hops": (_classifier, dict(cls=StructuredSelfAttention)),
    "two vocabularies": (_translator, dict(cls=LuongNMT, attention="local_p")),
    "no attention": (_translator, dict(cls=Seq2SeqNMT)),
    "attention sum": (_reader, dict(attention="sum", shared_encoder=False, exclude_query_words=True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_models(name, tmp_path):
    make, options = OTHERS[name]
    model = make(**options)
    other = zoo.runtime.load(export_onnx(model, tmp_path / "graphs", "tiny"))
    calls = {"translate": [*CALLS["translator"][:5]], "classify": [("classify", TEXTS, {})], "answer": CALLS["reader"]}
    for verb, given, arguments in calls[model.task.verb]:
        check_same(*(answer(engine, verb, given, arguments) for engine in (other, model)), f"{verb} {arguments}")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in registry.list_models() if registry.is_bundled(name)])
def test_bundled_weights(name, tmp_path):
    """The same translations, captions, labels, texts and answers as by torch."""
    model = zoo.load(name)
    other = zoo.runtime.load(export_onnx(model, tmp_path / "graphs", name))
    kinds = {"translation": "translator", "captioning": "captioner", "language modelling": "language_model"}
    kinds |= {"reading": "reader", "classification": "document_classifier"}
    kind = "pair_classifier" if model.config.get("pair") else kinds[model.task.name]
    refused = 0
    for verb, given, options in CALLS[kind]:
        if kind == "captioner" and "attention" in options:
            options = {**options, "attention": {0: {3: 1}}}  # whatever the size of its grid
        if not (name.endswith(".dates") and verb == "align"):
            found, wanted = (_answer_or_refusal(engine, verb, given, options, tmp_path) for engine in (other, model))
            if isinstance(wanted, str) and isinstance(given, list):  # one of its texts is beyond the limit
                assert found == wanted
                given = [
                    each for each in given if not isinstance(_answer_or_refusal(model, verb, each, {}, tmp_path), str)
                ]
                found, wanted = (
                    _answer_or_refusal(engine, verb, given, options, tmp_path) for engine in (other, model)
                )
            assert type(found) is type(wanted)
            if isinstance(wanted, str):  # weights for a model without attention
                assert found == wanted
                refused += 1
                continue
            for one, want in zip(found, wanted) if isinstance(found, list) else [(found, wanted)]:
                if isinstance(want, float):
                    assert one == pytest.approx(want, rel=1e-3, nan_ok=True)
                else:
                    assert one.line() == want.line() and one.warnings == want.warnings
    assert refused < len(CALLS[kind]) / 2


def _answer_or_refusal(engine, verb, given, options, folder):
    try:
        return answer(engine, verb, given, options, folder)
    except ValueError as error:
        return str(error)
