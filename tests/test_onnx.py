"""`zoo export --format onnx`: onnxruntime computes from the graphs what torch computes from the model, whatever the sizes."""

import copy
import importlib.util
import itertools
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import captions_fakes
import numpy as np
import onnx
import onnxruntime
import PIL.Image
import pytest
import torch
from model_cases import CASES, build
from torch.nn.functional import pad

import zoo
from zoo import hub, onnx_export, registry
from zoo.cli import main
from zoo.images import open_image
from zoo.labeled_text import collate_documents, collate_texts
from zoo.layers import recurrent
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.han import HAN
from zoo.models.luong import LuongNMT
from zoo.models.seq2seq import Seq2SeqNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.models.transformer import TransformerNMT
from zoo.onnx_export import export_onnx, padded_documents
from zoo.text import Tokenizer, pad_batch

EXAMPLE = Path(__file__).parent.parent / "examples" / "onnx_translate.py"
SENTENCES = [
    f"{who} {does} {where}."
    for (who, does), where in zip(
        itertools.product(
            ["A man", "Two women", "The little girl in a red coat", "A black dog", "People"],
            ["plays the guitar", "runs", "is waiting for a bus, I think", "jumps over it", "eats ice cream"],
        ),
        itertools.cycle(["in the snow", "on the beach", "at a party with friends", "in front of a large old building", "near me", "there"]),
    )
]
SENTENCES += [sentence.lower().removesuffix(".") for sentence in SENTENCES]  # 50 in all
TOLERANCE = dict(rtol=1e-5, atol=1e-5)


def example():
    """examples/onnx_translate.py as a module."""
    spec = importlib.util.spec_from_file_location("onnx_translate", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def loud(model, seed=0):
    """Weights large enough for a difference to show."""
    torch.manual_seed(seed)
    for p in model.parameters():
        p.data = torch.randn_like(p) * (0.7 if p.dim() > 1 else 0.2)
    return model.eval()


def about(folder):
    return json.loads((folder / "onnx.json").read_text(encoding="utf-8"))


def run(folder, graph, inputs):
    """Outputs of a graph by name; inputs that it does not have are left out."""
    session = onnxruntime.InferenceSession(folder / f"{graph}.onnx", providers=["CPUExecutionProvider"])
    found = session.run(None, {value.name: np.asarray(inputs[value.name]) for value in session.get_inputs()})
    return {value.name: x for value, x in zip(session.get_outputs(), found, strict=True)}


def steps(folder, inputs, tokens):
    """Log-probabilities (B, K, T, V) and weights (B, K, T, S) or None of tokens (B, K, T), by the graphs alone."""
    facts, start = about(folder), run(folder, "encoder", inputs)
    memory = {name: start[name] for name in facts["memory"]}
    state = {name: start[name].repeat(tokens.shape[1], axis=1) for name in facts["state"]}
    session = onnxruntime.InferenceSession(folder / "step.onnx", providers=["CPUExecutionProvider"])
    names, log_probs, weights = [value.name for value in session.get_inputs()], [], []
    for t in range(tokens.shape[2]):
        given = {"tokens": np.asarray(tokens[:, :, t]), "position": np.array(t), **memory, **state}
        values = session.run(None, {name: given[name] for name in names})
        found = dict(zip([value.name for value in session.get_outputs()], values, strict=True))
        state = {name: found[after] for name, after in facts["state"].items()}
        log_probs.append(found["log_probs"])
        weights.append(found.get("attention"))
    return np.stack(log_probs, axis=2), None if weights[0] is None else np.stack(weights, axis=2)


def check_translator(model, folder):
    """Batches of other sizes than the traced ones, one row, one word, one hypothesis, columns of pads."""
    generator = torch.Generator().manual_seed(1)
    for lengths, hypotheses, pads in [([0], 1, 0), ([5, 0, 11, 2, 7], 3, 4), ([3, 3], 1, 1)]:
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
            logits, attention = model.read(batch)
        found = run(folder, "classifier", inputs)
        np.testing.assert_allclose(found["logits"], logits, **TOLERANCE)
        if isinstance(model, HAN):
            real = np.arange(inputs["tokens"].shape[2]) < np.asarray(inputs["lengths"])[..., None]
            np.testing.assert_allclose(found["word_attention"][real], attention[0], **TOLERANCE)
            np.testing.assert_allclose(found["sentence_attention"][np.asarray(inputs["lengths"]) > 0], attention[1], **TOLERANCE)
            assert not found["word_attention"][~real].any()
        else:
            for name, weights in zip(("attention", "attention2"), attention):
                np.testing.assert_allclose(found[name][..., : weights.size(-1)], weights, **TOLERANCE)
                assert not found[name][..., weights.size(-1) :].any()


def check(model, folder):
    """That the graphs compute what the model does."""
    by_task = {"captioning": check_captioner, "translation": check_translator, "classification": check_classifier}
    by_task[about(folder)["task"]](model, folder)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A tiny translator as a user exports it; it has rows that no word uses."""
    tokenizer = Tokenizer.train(SENTENCES, "bpe", vocab_size=120)
    size = len(tokenizer) + 3
    options = dict(src_vocab_size=size, tgt_vocab_size=size, shared_vocab=True, attention="local_m", encoder_layers=2, window=2)
    model = loud(LuongNMT(**{**LuongNMT.tiny, **options}))
    model.src_tokenizer = model.tgt_tokenizer = tokenizer
    folder = tmp_path_factory.mktemp("onnx")
    model.save_pretrained(folder / "bundle")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["export", f"local-dir:{folder / 'bundle'}", str(folder / "graphs"), "--format", "onnx"]) == 0
    return model, folder / "graphs"


def test_translator(translator):
    check_translator(*translator)
    assert "apply" not in vars(recurrent._LSTMCell)  # what the trace borrowed is back


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_the_example_translates_as_the_package_does(translator, beam_size):
    model, folder = translator
    other = example().Translator(folder)
    wanted = model.translate(["", *SENTENCES], beam_size=beam_size)
    assert len({want.text for want in wanted}) > 10
    for text, want in zip(["", *SENTENCES], wanted, strict=True):
        found, score = other.translate(text, beam_size)
        assert found == want.text and score == pytest.approx(want.score, abs=1e-4)


def test_the_example_needs_neither_torch_nor_this_package(translator):
    with pytest.raises(ValueError, match="the text has 1,201 tokens; at most 1,000 are allowed. Split it into sentences"):
        example().Translator(translator[1]).translate("." * 1200)
    model, folder = translator
    code = "import runpy, sys; sys.modules |= dict.fromkeys(['torch', 'zoo', 'onnx']); "
    code += f"runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    arguments = [str(folder), *SENTENCES[:2], "--beam-size", "1"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    found = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert found == [want.text for want in model.translate(SENTENCES[:2], beam_size=1)], done.stderr


def test_files_beside_the_graphs(translator):
    model, folder = translator
    facts = about(folder)
    assert {file.name for file in folder.iterdir()} == {"encoder.onnx", "step.onnx", "tokenizer.json", "onnx.json"}
    assert facts["sha256"] == {name: digest for name, digest in hub.file_hashes(folder).items() if name != "onnx.json"}
    assert (folder / "tokenizer.json").read_text(encoding="utf-8") == model.assets()["tokenizer.json"]
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


def test_captioner(tmp_path):
    model = loud(ShowAttendTell(**ShowAttendTell.tiny))
    check(model, export_onnx(model, tmp_path / "graphs", "tiny"))
    facts = about(tmp_path / "graphs")
    assert facts["task"] == "captioning" and facts["search"]["max_length"] == {"per_source_token": 0, "more": 40}
    assert facts["graphs"]["encoder.onnx"]["inputs"] == {"images": "uint8 (batch, 3, 6, 6)"}
    assert set(facts["graphs"]["step.onnx"]["inputs"]) == {"tokens", "memory_keys", "memory_values", "state_0", "state_1"}  # not the position


CLASSIFIERS = [
    (HAN, {}),
    (StructuredSelfAttention, {"pair": True}),
    (AttentionClassifier, {"attention": "local_p_star", "cell": "gru", "multi_label": True}),
]


@pytest.mark.parametrize("cls, options", CLASSIFIERS, ids=lambda x: getattr(x, "__name__", None))
def test_classifier(cls, options, tmp_path):
    model = loud(build(cls, **options))
    model.tokenizer, model.label_names = Tokenizer.train(SENTENCES, "word_punct", vocab_size=12), ["a", "b", "ß"]
    folder = export_onnx(model, tmp_path / "graphs", "tiny")
    check(model, folder)
    facts = about(folder)
    assert facts["labels"] == ["a", "b", "ß"] and facts["multi_label"] == model.config["multi_label"]
    assert {file.name for file in folder.iterdir()} == {"classifier.onnx", "tokenizer.json", "labels.json", "onnx.json"}


# ---- mistakes ----


def test_what_has_no_onnx_form(tmp_path):
    with pytest.raises(ValueError, match="TransformerNMT has no ONNX form: its memory or its state is no plain list of tensors"):
        export_onnx(build(TransformerNMT), tmp_path / "graphs", "tiny")
    with pytest.raises(ValueError, match="ShowAttendTell has no ONNX form: decoding 'sample' draws where it looks; load it with"):
        export_onnx(build(ShowAttendTell, decoding="sample"), tmp_path / "graphs", "tiny")
    assert not any(tmp_path.iterdir())


def test_what_torch_cannot_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_export, "_traceable", copy.deepcopy)
    with pytest.raises(ValueError, match="AttentionClassifier has no ONNX form: torch cannot trace it .Could not"):
        export_onnx(build(AttentionClassifier), tmp_path / "graphs", "tiny")
    assert not any(tmp_path.iterdir())


def test_mistakes_at_the_command_line(toy_registry, capsys, monkeypatch):
    def fails(*args):
        assert main(["export", *args, "--format", "onnx"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line.removeprefix("zoo: error: ")

    out = str(toy_registry / "out")
    assert fails("toy.v3", out) == "unknown model 'toy.v3'; nearest: toy.v2, toy.v10"
    assert fails("none.ckpt", out) == "none.ckpt: no such file or folder"
    assert fails("toy.v2", out).startswith("Toy has no ONNX form: translators, captioners, AttentionClassifier, ")
    (toy_registry / "mine").mkdir()
    for file in ("letter.txt", "onnx.json"):
        (toy_registry / "mine" / file).write_text("keep me")
        assert fails("toy.v2", str(toy_registry / "mine")).endswith("mine exists and is no ONNX export; give a new or an empty folder")
    assert "onnx.json exists and is no ONNX export" in fails("toy.v2", str(toy_registry / "mine" / "onnx.json"))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert fails("toy.v2", out) == 'export to ONNX needs onnxscript; install with: pip install "attention-zoo[onnx]"'
    assert (toy_registry / "mine" / "letter.txt").read_text() == "keep me"


def test_a_checkpoint_is_exported_as_it_is(tmp_path, monkeypatch, capsys):
    model = loud(build(Seq2SeqNMT))
    parameters = {"_class_path": "zoo.models.seq2seq.Seq2SeqNMT", **model.config}
    checkpoint = {"state_dict": model.state_dict(), "hyper_parameters": parameters, "pytorch-lightning_version": "2.6.6"}
    torch.save(checkpoint, tmp_path / "best.ckpt")
    seen = []
    monkeypatch.setattr(onnx_export, "export_onnx", lambda model, *rest: seen.append((model, *rest)) or tmp_path)
    assert main(["export", str(tmp_path / "best.ckpt"), "out", "--format", "onnx"]) == 0
    (loaded, *rest), = seen  # fmt: skip
    assert rest == ["out", str(tmp_path / "best.ckpt")] and "best.ckpt" in capsys.readouterr().out
    assert all(torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), model.state_dict().values(), strict=True))


def test_other_numbers_than_torch_are_refused(translator, tmp_path, monkeypatch):
    """An export that was there is then left alone; by a good one it is replaced."""
    model, folder = translator
    shutil.copytree(folder, tmp_path / "graphs")
    (tmp_path / "graphs" / "step.onnx").write_bytes(b"")
    written = about(folder)["graphs"]
    monkeypatch.setattr(onnx_export, "_write_graph", lambda path, *_: shutil.copy(folder / path.name, path) and written[path.name])
    other = loud(copy.deepcopy(model), seed=1)
    with pytest.raises(ValueError, match=r"step.onnx: log_probs differs from torch by \d.*; at most 1e-04 is allowed"):
        export_onnx(other, tmp_path / "graphs", "other")
    assert (tmp_path / "graphs" / "step.onnx").read_bytes() == b"" and len(list(tmp_path.iterdir())) == 1
    export_onnx(model, tmp_path / "graphs", "again")
    assert about(tmp_path / "graphs") == {**about(folder), "source": "again"} and len(list(tmp_path.iterdir())) == 1
    assert hub.file_hashes(tmp_path / "graphs")["step.onnx"] == hub.file_hashes(folder)["step.onnx"]


# ---- every variant, and the bundled weights ----

NO_FORM = {"AttentionOverAttentionReader", "KeyValuePredictLM", "TransformerNMT"}


@pytest.mark.slow
@pytest.mark.parametrize("cls, options", CASES)
def test_every_variant(cls, options, tmp_path):
    model = loud(build(cls, **options))
    if cls.__name__ in NO_FORM or options.get("decoding") == "sample":
        with pytest.raises(ValueError, match=f"{cls.__name__} has no ONNX form: "):
            export_onnx(model, tmp_path / "graphs", "tiny")
    else:
        check(model, export_onnx(model, tmp_path / "graphs", "tiny"))


@pytest.mark.slow
@pytest.mark.parametrize("cls, options", CLASSIFIERS)
def test_the_same_weights_give_the_same_files(cls, options, tmp_path):
    model = loud(build(cls, **options))
    first, second = (export_onnx(model, tmp_path / name, "tiny") for name in "ab")
    assert hub.file_hashes(first) == hub.file_hashes(second)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in registry.list_models() if registry.entry(name).repo_id is None])
def test_bundled_weights(name, tmp_path):
    """The same translations, captions and labels as by torch."""
    model = zoo.load(name)
    folder = export_onnx(model, tmp_path / "graphs", name)
    check(model, folder)
    if hasattr(model, "translate"):
        other = example().Translator(folder)
        texts = [text for text in SENTENCES if len(model.src_tokenizer.encode(text)) <= model.max_source_tokens]
        assert len(texts) > (40 if name.startswith(("luong", "bahdanau")) else 5)
        for beam_size in (1, model.config["beam_size"]):
            found = [other.translate(text, beam_size) for text in texts]
            wanted = model.translate(texts, beam_size=beam_size)
            assert [text for text, _ in found] == [want.text for want in wanted]
            np.testing.assert_allclose([score for _, score in found], [want.score for want in wanted], atol=1e-4)
    elif hasattr(model, "caption"):
        other, size = example().Translator(folder), model.config["image_size"]
        for n in range(8):
            image = open_image(captions_fakes.picture(n, 300, 200))
            pixels = np.asarray(image.resize((size, size), PIL.Image.Resampling.BICUBIC)).transpose(2, 0, 1)[None]
            start = run(folder, "encoder", {"images": pixels})
            other.encode = lambda _, start=start: tuple({name: start[name] for name in names} for names in (other.memory, other.state))
            assert other.target.decode(other.greedy([], 40)[0]) == model.caption(image, beam_size=1).text
            assert other.target.decode(other.beam([], 40, model.config["beam_size"])[0]) == model.caption(image).text
    else:
        texts = [" ".join(SENTENCES[n : n + 1 + n % 9]) for n in range(40)]
        encoded = [model.encode(text)[0] for text in texts]
        if isinstance(model, HAN):
            inputs = padded_documents(model.collate(encoded))
        else:
            inputs = {name: x for name, x in model.collate(encoded)._asdict().items() if x is not None}
        logits = run(folder, "classifier", inputs)["logits"]
        facts = about(folder)
        for row, want in zip(logits, model.classify(texts), strict=True):
            chosen = np.flatnonzero(row >= 0) if facts["multi_label"] else [row.argmax()]
            assert {facts["labels"][n] for n in chosen} == set(want.labels)
