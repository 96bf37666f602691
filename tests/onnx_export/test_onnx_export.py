"""`zoo export --format onnx`: onnxruntime computes from the graphs what torch computes from the model, whatever the
sizes.
"""

import copy
import json
import os
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import captions_fakes
import numpy as np
import onnx
import onnxruntime
import PIL.Image
import pytest
import torch
from exported import LABELS, SENTENCES, exported, loud
from fakes import EXAMPLES, Toy, example
from model_cases import CASES, WITHOUT_GRAPHS, build
from torch.nn.functional import pad

import zoo
import zoo.runtime
from zoo import onnx_export, registry
from zoo.batches.classification import collate_documents, collate_texts
from zoo.batches.reading import collate_questions
from zoo.batches.translation import pad_batch
from zoo.bundles.files import file_hashes
from zoo.cli import main
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.han import HAN
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.seq2seq import Seq2SeqNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.models.transformer import TransformerNMT
from zoo.models.tutorial_attention import TutorialAttentionNMT
from zoo.onnx_export import encoder_decoder, export_onnx, quantized, readers
from zoo.onnx_export.classifiers import padded_documents
from zoo.runtime.graphs import EXACT_PRODUCTS, padded
from zoo.runtime.searching import GIVEN
from zoo.text import UNK, Tokenizer
from zoo.text.words import BLANK_ID
from zoo.vision.images import open_image

pytestmark = pytest.mark.integration

TOLERANCE = dict(rtol=1e-5, atol=1e-5)
ASSETS = ("tokenizer.json", "calibration.json")


def process(name, *arguments):
    """Lines that one of examples/ prints where neither torch nor this package can be imported."""
    code = "import runpy, sys; sys.modules |= dict.fromkeys(['torch', 'zoo', 'onnx']); "
    code += f"runpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def not_traced(monkeypatch, module, folder):
    """Lets a module of the export take the graphs of a folder."""
    written = about(folder)["graphs"]
    monkeypatch.setattr(
        module, "write_graph", lambda path, *_: shutil.copy(folder / path.name, path) and written[path.name]
    )


def about(folder):
    return json.loads((folder / "onnx.json").read_text(encoding="utf-8"))


def session_of(folder, graph):
    options = onnxruntime.SessionOptions()
    for name, value in about(folder)["session"].items():
        options.add_session_config_entry(name, value)
    return onnxruntime.InferenceSession(folder / f"{graph}.onnx", options, providers=["CPUExecutionProvider"])


def run(folder, graph, inputs):
    """Outputs of a graph by name; inputs that it does not have are left out."""
    session = session_of(folder, graph)
    found = session.run(None, {value.name: np.asarray(inputs[value.name]) for value in session.get_inputs()})
    return {value.name: x for value, x in zip(session.get_outputs(), found, strict=True)}


def steps(folder, inputs, tokens, given=None, last="attention"):
    """Log-probabilities (B, K, T, V) and weights (B, K, T, S) or None of tokens (B, K, T), by the graphs alone.

    Args:
        given: weights (B, K, T, S) that replace those of the model.
        last: the output with the weights.
    """
    facts, start = about(folder), run(folder, "encoder", inputs)
    memory = {name: start[name] for name in facts["memory"]}
    state = {name: start[name].repeat(tokens.shape[1], axis=1) for name in facts["state"]}
    session = session_of(folder, "step")
    names, log_probs, weights = [value.name for value in session.get_inputs()], [], []
    if given is None and GIVEN in names:
        cells = session.get_inputs()[names.index(GIVEN)].shape[-1]
        given = np.zeros((*tokens.shape, len(inputs["tokens"][0]) if "tokens" in inputs else cells), np.float32)
    for t in range(tokens.shape[2]):
        now = {"tokens": np.asarray(tokens[:, :, t]), "position": np.array(t), **memory, **state}
        if GIVEN in names:
            now[GIVEN] = np.asarray(given[:, :, t])
        values = session.run(None, {name: now[name] for name in names})
        found = dict(zip([value.name for value in session.get_outputs()], values, strict=True))
        state = {name: found[after] for name, after in facts["state"].items()}
        log_probs.append(found["log_probs"])
        weights.append(found.get(last))
    return np.stack(log_probs, axis=2), None if weights[0] is None else np.stack(weights, axis=2)


def check_given(model, folder, inputs, tokens, given):
    """Weights given for some of the steps: the log-probabilities and weights of torch's steps, and those of all heads."""
    log_probs, weights, heads = [], [], []
    translates = "tokens" in inputs
    with torch.no_grad():
        memory, state = model.encode(*inputs.values())
        state = tuple(x.unsqueeze(1).repeat_interleave(tokens.shape[1], 1) for x in state)
        for t in range(tokens.shape[2]):
            if hasattr(model, "step_with_heads"):
                heads.append(model.step_with_heads(tokens[:, :, t], state, memory, t, given[:, :, t])[-1])
            logits, state, seen = model.step(tokens[:, :, t], state, memory, t, given=given[:, :, t])
            log_probs.append((model.embeddings.logits(logits) if translates else logits).log_softmax(-1))
            weights.append(seen)
    found, attention = steps(folder, inputs, tokens, given)
    np.testing.assert_allclose(found, torch.stack(log_probs, 2), **TOLERANCE)
    np.testing.assert_allclose(attention, torch.stack(weights, 2), **TOLERANCE)
    chosen = given.sum(-1) > 0
    np.testing.assert_array_equal(attention[chosen], given[chosen])
    before = steps(folder, inputs, tokens)[0]
    assert not np.allclose(found[chosen], before[chosen], **TOLERANCE)  # they matter
    assert np.allclose(found[:, :, -1], before[:, :, -1], **TOLERANCE) != reaches_later_steps(model)
    if heads:
        _, found = steps(folder, inputs, tokens, given, "heads")
        np.testing.assert_allclose(found, torch.stack(heads, 2), **TOLERANCE)


def reaches_later_steps(model):
    """Whether a step's attention changes the steps after it: through the state, or a later layer's self-attention."""
    return model.config.get("input_feeding", model.config.get("decoder_layers", 2) > 1)


def some_given(shape, lengths):
    """Weights (B, K, T, S) for real positions, zeros at every second step."""
    weights = torch.rand(shape, generator=torch.Generator().manual_seed(2)) ** 4
    weights *= torch.arange(shape[-1]) < lengths.view(-1, 1, 1, 1)
    weights /= weights.sum(-1, keepdim=True)
    weights[:, :, 1::2] = 0
    return weights


def check_translator(model, folder, batches=(([0], 1, 0), ([5, 0, 11, 2, 7], 3, 4), ([3, 3], 1, 1))):
    """Batches of other sizes than the traced ones, one row, one word, one hypothesis, columns of pads."""
    generator = torch.Generator().manual_seed(1)
    for lengths, hypotheses, pads in batches:
        rows = [torch.randint(4, model.config["src_vocab_size"], (n,), generator=generator).tolist() for n in lengths]
        batch = pad_batch(rows)
        tokens = torch.randint(2, model.config["tgt_vocab_size"], (len(rows), hypotheses, 4), generator=generator)
        with torch.no_grad():
            src, src_lengths = (x.repeat_interleave(hypotheses, 0) for x in batch[:2])
            logits, weights = model(src, src_lengths, tokens.flatten(0, 1))
        found, attention = steps(folder, {"tokens": pad(batch.src, (0, pads)), "lengths": batch.src_lengths}, tokens)
        np.testing.assert_allclose(found, logits.log_softmax(-1).unflatten(0, tokens.shape[:2]), **TOLERANCE)
        assert (weights is None) == (attention is None)
        if weights is not None:
            size = batch.src.size(1)
            np.testing.assert_allclose(attention[..., :size], weights.unflatten(0, tokens.shape[:2]), **TOLERANCE)
            assert not attention[..., size:].any()
            if len(rows) == 5:
                given = some_given((*tokens.shape, size), batch.src_lengths)
                check_given(model, folder, {"tokens": batch.src, "lengths": batch.src_lengths}, tokens, given)


def check_captioner(model, folder):
    generator = torch.Generator().manual_seed(1)
    for count, hypotheses in [(1, 1), (3, 2)]:
        size = model.config["image_size"]
        images = torch.randint(0, 256, (count, 3, size, size), generator=generator, dtype=torch.uint8)
        tokens = torch.randint(2, model.config["vocab_size"], (count, hypotheses, 4), generator=generator)
        with torch.no_grad():
            logits, weights = model(images, tokens)
        found, attention = steps(folder, {"images": images}, tokens)
        np.testing.assert_allclose(found, logits.log_softmax(-1), **TOLERANCE)
        np.testing.assert_allclose(attention, weights, **TOLERANCE)
        given = some_given(weights.shape, torch.full((count,), weights.size(-1)))
        check_given(model, folder, {"images": images}, tokens, given)


def check_classifier(model, folder):
    """Texts of no word, one word, and columns of pads."""
    generator = torch.Generator().manual_seed(1)

    def words(n):
        return torch.randint(1, model.config["vocab_size"], (n,), generator=generator).tolist()

    for lengths, pads in [([0], 0), ([1], 2), ([4, 0, 13, 1, 6], 3)]:
        if isinstance(model, HAN):
            batch = collate_documents([[words(1 + (n + s) % 5) for s in range(n)] for n in lengths])
            empty = {"tokens": torch.zeros(1, 1, 1).long(), "lengths": torch.zeros(1, 1).long()}
            inputs = padded_documents(batch) if sum(lengths) else empty
            inputs = {"tokens": pad(inputs["tokens"], (0, pads, 0, pads)), "lengths": pad(inputs["lengths"], (0, pads))}
        else:
            pair = [words(n + 2) for n in lengths] if model.config.get("pair") else None
            batch = collate_texts([words(n) for n in lengths], texts2=pair)
            inputs = {name: x for name, x in batch._asdict().items() if x is not None}
            inputs["tokens"] = pad(inputs["tokens"], (0, pads))
        with torch.no_grad():
            logits, attention, related = model.read_related(batch)
        found = run(folder, "classifier", inputs)
        assert (related is None) == ("relatedness" not in found)
        if related is not None:
            np.testing.assert_allclose(found["relatedness"], related, **TOLERANCE)
        np.testing.assert_allclose(found["logits"], logits, **TOLERANCE)
        if isinstance(model, HAN):
            real = np.arange(inputs["tokens"].shape[2]) < np.asarray(inputs["lengths"])[..., None]
            np.testing.assert_allclose(found["word_attention"][real], attention[0], **TOLERANCE)
            np.testing.assert_allclose(
                found["sentence_attention"][np.asarray(inputs["lengths"]) > 0], attention[1], **TOLERANCE
            )
            assert not found["word_attention"][~real].any()
        else:
            for name, weights in zip(("attention", "attention2"), attention):
                np.testing.assert_allclose(found[name][..., : weights.size(-1)], weights, **TOLERANCE)
                assert not found[name][..., weights.size(-1) :].any()


def check_language_model(model, folder):
    """Texts read on in three pieces of other lengths, some of no word, and columns of pads."""
    facts, generator = about(folder), torch.Generator().manual_seed(1)
    for rows in ([[1], [3], [1]], [[5, 0, 11, 2, 7], [2, 1, 0, 9, 4], [1, 6, 3, 3, 0]]):
        state = model.start(len(rows[0]))
        given = {name: np.zeros([len(rows[0]), *x["zeros"][1:]], x["type"]) for name, x in facts["first_state"].items()}
        for pads, lengths in enumerate(map(torch.tensor, rows)):
            tokens = torch.randint(
                1, model.config["vocab_size"], (len(lengths), int(lengths.max())), generator=generator
            )
            with torch.no_grad():
                readouts, weights, state = model.read(tokens, state, lengths)
                log_probs = model.words.logits(readouts).log_softmax(-1)
            found = run(folder, "step", {"tokens": pad(tokens, (0, pads)), "lengths": lengths, **given})
            given = {name: found[after] for name, after in facts["state"].items()}
            assert (weights is None) == ("attention" not in found)
            real = np.arange(tokens.shape[1] + pads) < np.asarray(lengths)[:, None]
            for name, want in [("log_probs", log_probs), ("attention", weights)][: 1 + (weights is not None)]:
                np.testing.assert_allclose(found[name][real], want[real[:, : tokens.shape[1]]], **TOLERANCE)
                assert not found[name][~real].any()
            if "known" in given:
                assert given["known"].tolist() == state[-1].tolist()


def check_reader(model, folder):
    """Empty documents and queries, words of one text in the other, more unknown words than there are embeddings, queries
    with a blank and without, and columns of pads.
    """
    rng, ids = np.random.default_rng(1), np.arange(model.config["vocab_size"] + 6)
    ids[-6:] = UNK
    for sizes, pads in [([(1, 1)], 0), ([(4, 3), (0, 2), (13, 1), (1, 0), (30, 6)], 2)]:
        documents, queries = (
            [rng.choice(np.append(ids[2:-6], range(len(ids) - 6, len(ids))), n) for n in row] for row in zip(*sizes)
        )
        queries = [np.append(query, BLANK_ID) if n % 3 == 0 else query for n, query in enumerate(queries)]
        batch = collate_questions(documents, queries, [np.empty(0, int)] * len(sizes), None, ids)
        with torch.no_grad():
            weights = dict(zip(["weights", "query_weights"], model(batch)))
        inputs = readers.padded_questions(model, batch)
        inputs = {name: pad(x, (0, pads)) if x.dim() == 2 else x for name, x in inputs.items()}
        found = run(folder, "reader", inputs)
        matrices = {name: found.pop(name) for name in ("over_document", "over_query") if name in found}
        assert found.keys() == {name for name, x in weights.items() if x is not None}
        if "query_weights" in found:
            check_both_directions(model, batch, matrices, found["weights"].shape, found["query_weights"].shape)
        for name, lengths in [("weights", batch.document_lengths), ("query_weights", batch.query_lengths)][
            : len(found)
        ]:
            real = np.arange(found[name].shape[1]) < np.asarray(lengths)[:, None]
            np.testing.assert_allclose(found[name][real], weights[name], **TOLERANCE)
            assert not found[name][~real].any()


def check_both_directions(model, batch, matrices, documents, queries):
    """alpha and beta (B, D, L) are the softmax of torch's scores, one example at a time; 0 on padding."""
    with torch.no_grad():
        of_documents, of_queries, _ = model.encode(batch)
    rows = zip(
        of_documents.split(batch.document_lengths.tolist()), of_queries.split(batch.query_lengths.tolist()), strict=True
    )
    want = {name: np.zeros((*documents, queries[1]), np.float32) for name in ("over_document", "over_query")}
    for n, (document, query) in enumerate(rows):
        scores = document @ query.T
        for name, axis in (("over_document", 0), ("over_query", 1)):
            want[name][n, : len(document), : len(query)] = scores.softmax(axis)
    for name, matrix in matrices.items():
        np.testing.assert_allclose(matrix, want[name], **TOLERANCE, err_msg=name)
    assert matrices.keys() == want.keys()


def check(model, folder):
    """That the graphs compute what the model does."""
    by_task = {"captioning": check_captioner, "translation": check_translator, "classification": check_classifier}
    by_task |= {"language modelling": check_language_model, "reading": check_reader}
    by_task[about(folder)["task"]](model, folder)


def test_translator(translator):
    check_translator(*translator)


def test_transformer(transformer):
    model, folder = transformer
    check_translator(model, folder)
    facts = about(folder)
    assert facts["memory"] == ["memory_mask", *(f"memory_{part}_{n}" for part in ("keys", "values") for n in range(2))]
    assert facts["state"] == {f"state_{n}": f"next_state_{n}" for n in range(4)}  # keys and values of both layers
    encoder, step = (facts["graphs"][f"{name}.onnx"] for name in ("encoder", "step"))
    assert (
        encoder["outputs"]["state_3"] == "float32 (batch, 1, 2, 0, 4)"
        and step["inputs"]["state_3"] == "float32 (batch, beam, 2, written, 4)"
    )
    assert step["inputs"]["memory_keys_1"] == "float32 (batch, 2, length, 4)"
    assert step["inputs"][GIVEN] == "float32 (batch, beam, length)"
    assert step["outputs"]["heads"] == "float32 (batch, beam, 4, length)"  # 2 layers with 2 heads
    assert [*facts["meaning"]] == [GIVEN, "attention", "heads", "head_scores"]
    for name in facts["graphs"]:
        onnx.checker.check_model(onnx.load_model(folder / name), full_check=True)


@pytest.mark.parametrize("kind", ["translator", "transformer"])
def test_texts_of_similar_length_are_encoded_together(kind, request, monkeypatch):
    """Each group without the padding of longer texts, which changes nothing but the time."""
    loaded = zoo.runtime.load(request.getfixturevalue(kind)[1])
    tokens, lengths = padded([list(range(4, 4 + n)) for n in (4, 5, 5, 6, 7, 20)])
    calls, encoder = [], loaded._encoder
    monkeypatch.setattr(loaded, "_encoder", lambda given: calls.append(given["tokens"].shape) or encoder(given))
    memory, state = loaded.encode({"tokens": tokens, "lengths": lengths})
    assert calls == [(3, 5), (2, 7), (1, 20)]
    want = encoder({"tokens": tokens, "lengths": lengths})
    for name in want.keys() & {*memory, *state}:
        found = {**memory, **state}[name]
        assert found.shape == want[name].shape
        for row, length in enumerate(lengths):
            inside = tuple(slice(length) if n == lengths.max() else slice(None) for n in found.shape[1:])
            np.testing.assert_allclose(found[row][inside], want[name][row][inside], **TOLERANCE, err_msg=name)
    assert {*memory, *state} - want.keys() <= {GIVEN}


@pytest.mark.parametrize(
    "kind, beam_size, each",
    [("translator", 1, 2), ("translator", 2, 3), ("translator", 5, 4), ("transformer", 1, 4), ("transformer", 4, 6)],
)
def test_the_example_translates_as_the_package_does(kind, beam_size, each, request):
    model, folder = request.getfixturevalue(kind)
    other = example("onnx_translate").Translator(folder)
    texts = ["", *SENTENCES[::each]]
    wanted = model.translate(texts, beam_size=beam_size)
    assert len({want.text for want in wanted}) > len(texts) // 2
    for text, want in zip(texts, wanted, strict=True):
        found, score = other.translate(text, beam_size)
        assert found == want.text and score == pytest.approx(want.score, abs=1e-4)


def test_a_translator_of_short_sources(tmp_path):
    """Its examples all have a source of the longest length; those of any other length are read too."""
    model = loud(build(TutorialAttentionNMT, max_length=4))
    folder = export_onnx(model, tmp_path / "graphs", "tiny")
    assert about(folder)["graphs"]["step.onnx"]["inputs"][GIVEN] == "float32 (batch, beam, length)"
    check_translator(model, folder, (([0], 1, 0), ([2, 0, 3, 1, 3], 3, 0), ([1, 2], 1, 1)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_in_another_precision(dtype, tmp_path):
    """It is exported in float32, and stays as it is."""
    model = loud(build(Seq2SeqNMT)).to(dtype)
    folder = export_onnx(model, tmp_path / "graphs", "tiny")
    assert {p.dtype for p in model.parameters()} == {dtype}
    check_translator(model.float(), folder)


def test_the_example_needs_neither_torch_nor_this_package(translator):
    model, folder = translator
    found = process("onnx_translate.py", folder, *SENTENCES[:2], "--beam-size", 1)
    assert [text for text, _ in found] == [want.text for want in model.translate(SENTENCES[:2], beam_size=1)]


def test_pictures_of_graphs_say_whether_the_attention_explains(translator, tmp_path):
    model, _ = translator
    model.explains = "May be read as an explanation: partly."
    try:
        onnx_export.export_onnx(model, tmp_path / "plain", "here")
        onnx_export.export_onnx(model, tmp_path / "small", "here", int8=True)
    finally:
        model.explains = None
    assert (
        zoo.runtime.load(tmp_path / "plain").translate(SENTENCES[0]).explains
        == "May be read as an explanation: partly."
    )
    assert zoo.runtime.load(tmp_path / "small").translate(SENTENCES[0]).explains is None, "other weights"


def test_files_beside_the_graphs(translator):
    model, folder = translator
    facts = about(folder)
    assert {file.name for file in folder.iterdir()} == {"encoder.onnx", "step.onnx", "onnx.json", *ASSETS}
    assert facts["sha256"] == {name: digest for name, digest in file_hashes(folder).items() if name != "onnx.json"}
    assert (folder / "tokenizer.json").read_text(encoding="utf-8") == model.assets()["tokenizer.json"]
    assert (folder / "calibration.json").read_text(encoding="utf-8") == model.calibration.to_json()
    assert facts["config"] == model.config and "explains" not in facts
    assert facts["source"].startswith("local-dir:") and facts["task"] == "translation" and facts["class"] == "LuongNMT"
    assert facts["special_tokens"] == {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    size = model.config["tgt_vocab_size"]
    assert facts["search"] == {
        "beam_size": 5, "length_penalty": 1.0, "never": [0, 1, 2, size - 3, size - 2, size - 1],
        "max_length": {"per_source_token": 1.5, "more": 10}, "max_source_tokens": 1000,
    }  # fmt: skip
    step = facts["graphs"]["step.onnx"]
    assert step["inputs"]["tokens"] == "int64 (batch, beam)" and step["inputs"]["memory_mask"] == "bool (batch, length)"
    assert "position" in step["inputs"] and step["outputs"]["log_probs"] == f"float32 (batch, beam, {size})"
    for name in facts["graphs"]:
        data = (folder / name).read_bytes()
        onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)
        assert str(Path(zoo.__file__).parent).encode() not in data  # nothing about the machine it was made on


def test_weights_in_8_bits(translator, tmp_path, monkeypatch):
    """Nearly the same numbers from the same files; one kind of export replaces the other."""
    monkeypatch.setattr(quantized, "SMALLEST", 1)
    model, plain = translator
    not_traced(monkeypatch, encoder_decoder, plain)
    small = shutil.copytree(plain, tmp_path / "graphs")
    export_onnx(model, small, about(plain)["source"], int8=True)
    facts, others = about(small), about(plain)
    assert (facts.pop("weights"), others.pop("weights")) == ("int8", "float32")
    assert (facts.pop("session"), others.pop("session")) == (dict([EXACT_PRODUCTS]), {})
    assert facts.pop("sha256") == {name: digest for name, digest in file_hashes(small).items() if name != "onnx.json"}
    assert facts.pop("digest") != others.pop("digest")
    del others["sha256"]
    assert facts.pop("one_at_a_time") == ["encoder.onnx"]
    assert facts == others
    pair, single = padded([[5, 9, 20, 7], [8]]), padded([[8]])
    together, alone = (
        zoo.runtime.load(small).encode(dict(zip(("tokens", "lengths"), given)))[0] for given in (pair, single)
    )
    for name, values in alone.items():  # the longer text changes nothing
        places = tuple(slice(n) for n in values.shape)[1:]
        np.testing.assert_array_equal(together[name][(slice(1, 2), *places)], values)
    batch = pad_batch([[5, 9, 20, 7], [8]])
    inputs, tokens = {"tokens": batch.src, "lengths": batch.src_lengths}, np.arange(4, 12).reshape(2, 1, 4)
    found, wanted = (steps(folder, inputs, tokens)[0] for folder in (small, plain))
    assert 0 < np.abs(found - wanted).mean() < 0.03 * wanted.std()
    export_onnx(model, small, others["source"])
    assert file_hashes(small) == file_hashes(plain)


def test_captioner(captioner):
    model, folder = captioner
    check(model, folder)
    facts = about(folder)
    assert facts["task"] == "captioning" and facts["search"]["max_length"] == {"per_source_token": 0, "more": 40}
    assert facts["graphs"]["encoder.onnx"]["inputs"] == {"images": "uint8 (batch, 3, 6, 6)"}
    assert set(facts["graphs"]["step.onnx"]["inputs"]) == {
        "tokens",
        "memory_keys",
        "memory_values",
        "state_0",
        "state_1",
        GIVEN,
    }  # not the position


@pytest.mark.parametrize("kind", ["document_classifier", "pair_classifier"])
def test_classifier(kind, request):
    model, folder = request.getfixturevalue(kind)
    check(model, folder)
    facts = about(folder)
    assert facts["labels"] == LABELS and facts["multi_label"] == model.config["multi_label"]
    assert {file.name for file in folder.iterdir()} == {"classifier.onnx", "onnx.json", *ASSETS, "labels.json"}


@pytest.mark.slow
def test_classifier_of_texts(tmp_path):
    model = loud(build(AttentionClassifier, attention="local_p_star", cell="gru", multi_label=True))
    model.tokenizer, model.label_names = Tokenizer.train(SENTENCES, "word_punct", vocab_size=12), LABELS
    folder = export_onnx(model, tmp_path / "graphs", "tiny")
    check(model, folder)
    assert about(folder)["labels"] == LABELS and about(folder)["multi_label"]


# ---- language models ----


def test_language_model(language_model):
    model, folder = language_model
    check(model, folder)
    facts, size = about(folder), model.config["vocab_size"]
    assert {file.name for file in folder.iterdir()} == {"step.onnx", "tokenizer.json", "onnx.json"}
    assert facts["class"] == "KeyValuePredictLM" and facts["tokenizer"] == "word"
    assert facts["special_tokens"] == {"pad": 0, "unk": 1, "eos": 3}
    names = ["hidden_0", "cell_0", "hidden_1", "cell_1", "past", "known"]
    assert facts["state"] == {name: f"next_{name}" for name in names} and [*facts["first_state"]] == names
    assert facts["first_state"]["past"] == {"type": "float32", "zeros": ["batch", 3, 24]}
    assert facts["first_state"]["known"] == {"type": "int64", "zeros": ["batch"]}
    assert facts["search"]["never"] == [0, 1, 2, size - 3, size - 2, size - 1]
    step = facts["graphs"]["step.onnx"]
    assert step["inputs"] == {
        "tokens": "int64 (batch, words)", "lengths": "int64 (batch)", "hidden_0": "float32 (batch, 7)", "cell_0": "float32 (batch, 7)",
        "hidden_1": "float32 (batch, 24)", "cell_1": "float32 (batch, 24)", "past": "float32 (batch, 3, 24)", "known": "int64 (batch)",
    }  # fmt: skip
    assert step["outputs"]["log_probs"] == f"float32 (batch, words, {size})"
    assert step["outputs"]["attention"] == "float32 (batch, words, 3)"
    data = (folder / "step.onnx").read_bytes()
    onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)
    assert str(Path(zoo.__file__).parent).encode() not in data


def test_another_export_takes_the_place(language_model, tmp_path):
    """By the command line; a model without attention has neither its weights nor the number of known outputs."""
    shutil.copytree(language_model[1], tmp_path / "graphs")
    model = loud(build(KeyValuePredictLM, attention="ngram"))
    check(model, exported(model, tmp_path))
    assert {file.name for file in (tmp_path / "graphs").iterdir()} == {"step.onnx", "onnx.json"}  # it has no tokenizer
    facts = about(tmp_path / "graphs")
    assert [*facts["state"]] == ["hidden_0", "cell_0", "past"] and [*facts["meaning"]] == [
        "tokens",
        "lengths",
        "log_probs",
    ]


# ---- readers ----


def test_reader(reader):
    model, folder = reader
    check(model, folder)
    facts = about(folder)
    assert {file.name for file in folder.iterdir()} == {"reader.onnx", "onnx.json", *ASSETS}
    assert facts["class"] == "AttentionOverAttentionReader" and facts["tokenizer"] == "word"
    assert facts["special_tokens"] == {"pad": 0, "unk": 1, "blank": 2} and facts["blank"] == "XXXXX"
    assert facts["unknown_words"] == {"first_id": 30, "count": 3}
    assert [*facts["meaning"]] == ["document", "query", "weights", "query_weights", "over_document", "over_query"]
    assert facts["meaning"]["document"].startswith("XXXXX is special_tokens.blank, ")
    graph = facts["graphs"]["reader.onnx"]
    assert graph["inputs"]["document"] == "int64 (batch, words)" and graph["inputs"]["query_lengths"] == "int64 (batch)"
    matrix = "float32 (batch, words, query_words)"
    assert graph["outputs"] == {
        "weights": "float32 (batch, words)", "query_weights": "float32 (batch, query_words)",
        "over_document": matrix, "over_query": matrix,
    }  # fmt: skip
    onnx.checker.check_model(onnx.load_model(folder / "reader.onnx"), full_check=True)


def test_reader_that_excludes_query_words(excluding_reader):
    check(*excluding_reader)
    assert "not_in_query" in about(excluding_reader[1])["meaning"]


@pytest.mark.slow
@pytest.mark.parametrize("exclude", [False, True])
def test_attention_sum_reader(exclude, tmp_path):
    options = dict(shared_encoder=False, num_unknown=4, exclude_query_words=exclude)
    model = loud(build(AttentionOverAttentionReader, attention="sum", **options))
    folder = export_onnx(model, tmp_path / "graphs", "tiny")
    check(model, folder)
    assert ("not_in_query" in about(folder)["meaning"]) == exclude


# ---- mistakes ----


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["nowhere", "a"],
            "nowhere holds no onnx.json: give the folder that `zoo export NAME FOLDER --format onnx` wrote",
        ),
        (["GRAPHS", "a", "--beam-size", "0"], "--beam-size must be at least 1; got 0"),
        (["GRAPHS", "." * 1200], "the text has 1,201 tokens; at most 1,000 are allowed. Split it into sentences"),
    ],
)
def test_mistakes_with_the_example(arguments, message, translator, monkeypatch, capsys):
    path = str(EXAMPLES / "onnx_translate.py")
    monkeypatch.setattr(sys, "argv", [path, *(str(translator[1]) if word == "GRAPHS" else word for word in arguments)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(path, run_name="__main__")
    assert end.value.code == 2 and message in capsys.readouterr().err.splitlines()[-1]


def test_what_has_no_onnx_form(tmp_path):
    with pytest.raises(ValueError, match="ShowAttendTell has no ONNX form: decoding 'sample' is random; load it with"):
        export_onnx(build(ShowAttendTell, decoding="sample"), tmp_path / "graphs", "tiny")
    assert not any(tmp_path.iterdir())


def test_what_torch_cannot_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_export, "traceable", copy.deepcopy)
    with pytest.raises(ValueError, match="AttentionClassifier has no ONNX form: torch cannot trace it .Could not"):
        export_onnx(build(AttentionClassifier), tmp_path / "graphs", "tiny")
    assert not any(tmp_path.iterdir())


def test_mistakes_at_the_command_line(toy_registry, capsys, monkeypatch):
    def fails(*args):
        assert main(["export", *args, "--format", "onnx"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line.removeprefix("zoo: error: ")

    monkeypatch.setattr(Toy, "task", replace(Toy.task, name="capitals"))
    out = str(toy_registry / "out")
    assert fails("toy.v3", out) == "unknown model 'toy.v3'; nearest: toy.v2, toy.v10"
    assert fails("none.ckpt", out) == "none.ckpt: no such file or folder"
    assert fails("toy.v2", out).startswith("Toy has no ONNX form: translators, captioners, AttentionClassifier, HAN, ")
    (toy_registry / "mine").mkdir()
    for file in ("letter.txt", "onnx.json"):
        (toy_registry / "mine" / file).write_text("keep me")
        said = fails("toy.v2", str(toy_registry / "mine"))
        assert "mine exists and is not an ONNX export: " in said and said.endswith("; give a new or an empty folder")
    assert "onnx.json exists and is not a folder" in fails("toy.v2", str(toy_registry / "mine" / "onnx.json"))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert fails("toy.v2", out) == 'export to ONNX needs onnxscript; install with: pip install "onnxscript>=0.5.4"'
    assert (toy_registry / "mine" / "letter.txt").read_text() == "keep me"


def test_a_checkpoint_is_exported_as_it_is(tmp_path, monkeypatch, capsys):
    model = loud(build(Seq2SeqNMT))
    parameters = {"_class_path": "zoo.models.seq2seq.Seq2SeqNMT", **model.config}
    checkpoint = {
        "state_dict": model.state_dict(),
        "hyper_parameters": parameters,
        "zoo_assets": {},
        "pytorch-lightning_version": "2.6.6",
    }
    torch.save(checkpoint, tmp_path / "best.ckpt")
    seen = []
    monkeypatch.setattr(onnx_export, "export_onnx", lambda model, *rest: seen.append((model, *rest)) or tmp_path)
    assert main(["export", str(tmp_path / "best.ckpt"), "out", "--format", "onnx"]) == 0
    (loaded, *rest), = seen  # fmt: skip
    assert rest == ["out", str(tmp_path / "best.ckpt"), False] and "best.ckpt" in capsys.readouterr().out
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), model.state_dict().values(), strict=True)
    )


def test_other_numbers_than_torch_are_refused(translator, tmp_path, monkeypatch):
    """An export that was there is then left alone; by a good one it is replaced."""
    model, folder = translator
    shutil.copytree(folder, tmp_path / "graphs")
    before = file_hashes(tmp_path / "graphs")
    not_traced(monkeypatch, encoder_decoder, folder)
    other = loud(copy.deepcopy(model), seed=1)
    with pytest.raises(ValueError, match=r"step.onnx: log_probs differs from torch by \d.*; at most 1e-04 is allowed"):
        export_onnx(other, tmp_path / "graphs", "other")
    assert file_hashes(tmp_path / "graphs") == before and len(list(tmp_path.iterdir())) == 1
    (tmp_path / "graphs" / "README.md").write_text("# Mine")
    export_onnx(model, tmp_path / "graphs", "again")
    assert (tmp_path / "graphs" / "README.md").read_text() == "# Mine"
    (tmp_path / "graphs" / "README.md").unlink()
    facts = about(tmp_path / "graphs")
    assert (
        facts == {**about(folder), "source": "again", "digest": facts["digest"]} and len(list(tmp_path.iterdir())) == 1
    )
    assert file_hashes(tmp_path / "graphs")["step.onnx"] == file_hashes(folder)["step.onnx"]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: (folder / "step.onnx").write_bytes(b""), "its files are not those that onnx.json lists"),
        (lambda folder: (folder / "step.onnx").unlink(), "its files are not those that onnx.json lists"),
        (lambda folder: (folder / "thesis.docx").touch(), "it also holds 'thesis.docx'"),
        (lambda folder: (folder / "onnx.json").write_text("{}"), "is not an ONNX export"),
        (
            lambda folder: (folder / "onnx.json").write_text('{"sha256": {"../secret.json": "0"}}'),
            "is not an ONNX export",
        ),
        (lambda folder: (folder / "onnx.json").unlink(), "it has no onnx.json"),
        (lambda folder: (folder / "figure.png").symlink_to("/etc/passwd"), "its files are not those"),
    ],
)
def test_what_is_no_export_is_not_replaced(translator, spoil, says, tmp_path):
    folder = shutil.copytree(translator[1], tmp_path / "graphs")
    (tmp_path / "secret.json").write_text("{}")
    spoil(folder)
    before = sorted(os.listdir(folder))
    with pytest.raises(ValueError, match=says):
        onnx_export.replaceable_graphs(folder)
    assert sorted(os.listdir(folder)) == before


# ---- every variant, and the bundled weights ----


@pytest.mark.slow
@pytest.mark.parametrize("cls, options", CASES)
def test_every_variant(cls, options, tmp_path):
    model = loud(build(cls, **options))
    if options.get("decoding") == "sample" or cls.__name__ in WITHOUT_GRAPHS:
        with pytest.raises(ValueError, match=f"{cls.__name__} has no ONNX form: "):
            export_onnx(model, tmp_path / "graphs", "tiny")
    else:
        check(model, export_onnx(model, tmp_path / "graphs", "tiny"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls, options",
    [
        (HAN, {}),
        (StructuredSelfAttention, {"pair": True}),
        (AttentionClassifier, {"attention": "local_p_star", "cell": "gru", "multi_label": True}),
        (TransformerNMT, {}),
        (KeyValuePredictLM, {}),
        (AttentionOverAttentionReader, {}),
    ],
)
def test_the_same_weights_give_the_same_files(cls, options, tmp_path):
    model = loud(build(cls, **options))
    first, second = (export_onnx(model, tmp_path / name, "tiny") for name in "ab")
    assert file_hashes(first) == file_hashes(second)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in registry.list_models() if registry.is_bundled(name)])
def test_bundled_weights(name, tmp_path):
    """The same numbers as by torch; and, by the example, the same translations and captions."""
    model = zoo.load(name)
    folder = export_onnx(model, tmp_path / "graphs", name)
    check(model, folder)
    if hasattr(model, "translate"):
        other = example("onnx_translate").Translator(folder)
        texts = [text for text in SENTENCES if len(model.src_tokenizer.encode(text)) <= model.max_source_tokens]
        assert len(texts) > (40 if name.startswith(("luong", "bahdanau")) else 5)
        for beam_size in (1, model.config["beam_size"]):
            found = [other.translate(text, beam_size) for text in texts]
            wanted = model.translate(texts, beam_size=beam_size)
            assert [text for text, _ in found] == [want.text for want in wanted]
            np.testing.assert_allclose([score for _, score in found], [want.score for want in wanted], atol=1e-4)
    elif hasattr(model, "caption"):
        other, size = example("onnx_translate").Translator(folder), model.config["image_size"]
        for n in range(8):
            image = open_image(captions_fakes.picture(n, 300, 200))
            pixels = np.asarray(image.resize((size, size), PIL.Image.Resampling.BICUBIC)).transpose(2, 0, 1)[None]
            start = run(folder, "encoder", {"images": pixels})
            memory, state = ({name: start[name] for name in names} for names in (other.memory, other.state))
            memory[GIVEN] = np.zeros((1, 1, model.cells), np.float32)
            other.encode = lambda _, found=(memory, state): found
            assert other.target.decode(other.greedy([], 40)[0]) == model.caption(image, beam_size=1).text
            assert other.target.decode(other.beam([], 40, model.config["beam_size"])[0]) == model.caption(image).text
