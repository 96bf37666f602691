"""`zoo export --format ctranslate2`: CTranslate2 computes what torch computes, and what it cannot compute is refused."""

import json

import pytest
import torch
from model_cases import build

from zoo.cli import main
from zoo.ctranslate2_export import _names, export_ctranslate2
from zoo.models.luong import LuongNMT
from zoo.models.transformer import TransformerNMT
from zoo.text import EOS, Tokenizer

TEXTS = ["a dog runs in the snow", "two men play music", "the dog plays", "in the snow"]


def transformer(seed=0, **options):
    """A model with a tokenizer, large weights, and two rows that the tokenizer does not use."""
    torch.manual_seed(seed)
    tokenizer = Tokenizer.train(TEXTS, "word")
    sizes = dict.fromkeys(("src_vocab_size", "tgt_vocab_size"), len(tokenizer) + 2)
    model = build(TransformerNMT, **{**sizes, "shared_vocab": True, **options}).eval()
    for p in model.parameters():
        p.data = torch.randn_like(p) * (0.5 if p.dim() > 1 else 0.2)
    model.src_tokenizer = model.tgt_tokenizer = tokenizer
    return model


@pytest.fixture
def engine():
    return pytest.importorskip("ctranslate2", reason='ctranslate2 is missing: pip install "ctranslate2>=4.5"')


# ---- with CTranslate2 ----


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "pre", "tie_output": True},
        {"norm": "post", "encoder_layers": 2},
        {"shared_vocab": False, "decoder_layers": 2, "num_heads": 1, "key_size": 8},
    ],
    ids=str,
)
def test_equal_translations_and_scores(engine, options, tmp_path):
    model = transformer(**options)
    folder = export_ctranslate2(model, tmp_path / "out", "tiny")
    about = json.loads((folder / "ctranslate2.json").read_text(encoding="utf-8"))
    assert about["weights"] == "float32" and about["source"] == "tiny" and about["config"] == model.config
    translator = engine.Translator(str(folder), intra_threads=1)
    rows = model.src_tokenizer.encode_batch(TEXTS)
    names = _names(model.tgt_tokenizer, model.config["tgt_vocab_size"])
    texts = [[names[token] for token in row] for row in rows]
    for text, row in zip(texts, rows, strict=True):
        limit = int((len(row) + 1) * about["search"]["max_length"]["per_source_token"]) + 10
        with torch.no_grad():
            greedy = model.hypotheses([row], 1)
        asked = {**about["translate_batch"], "max_decoding_length": limit}
        one = {**asked, "beam_size": 1, "num_hypotheses": 1}
        (found,) = translator.translate_batch([text], **one)
        tokens = greedy.tokens[0, 0, : greedy.lengths[0, 0]].tolist()
        expected = [names[token] for token in tokens if token != EOS]
        assert found.hypotheses[0] == expected
        if EOS in tokens:
            (score,) = translator.score_batch([text], [expected])
            assert sum(score.log_probs) == pytest.approx(float(greedy.log_probs[0, 0]), abs=1e-4)
        # Its scores are sums over n ** penalty, where n counts the end: so they can be ranked again by our own rule.
        # All tokens are allowed here, because it leaves those that are not out of the softmax.
        (found,) = translator.translate_batch([text], **{**asked, "disable_unk": False, "suppress_sequences": []})
        assert len(found.hypotheses) == asked["beam_size"] == 5
        ended = [pair for pair in zip(found.hypotheses, found.scores, strict=True) if len(pair[0]) < limit]
        for hypothesis, score in ended:
            (alone,) = translator.score_batch([text], [hypothesis])
            total = score * (len(hypothesis) + 1) ** asked["length_penalty"]
            assert total == pytest.approx(sum(alone.log_probs), abs=1e-3)


def test_int8_is_smaller_and_near(engine, tmp_path):
    model = transformer(model_size=64, feedforward_size=256)
    plain, small = (export_ctranslate2(model, tmp_path / name, "tiny", name == "small") for name in ("plain", "small"))
    sizes = [(folder / "model.bin").stat().st_size for folder in (plain, small)]
    table = 4 * 64 * (int(1001 * 1.5) + 10)  # the positions stay as they are
    assert sizes[1] - table < 0.3 * (sizes[0] - table)
    scores = [
        engine.Translator(str(folder), intra_threads=1).score_batch([["dog"]], [["dog", "snow"]])[0].log_probs
        for folder in (plain, small)
    ]
    assert scores[0] != scores[1] and scores[1] == pytest.approx(scores[0], abs=1.0)


def test_the_command_line(engine, tmp_path, capsys):
    transformer().save_pretrained(tmp_path / "bundle")
    command = ["export", f"local-dir:{tmp_path / 'bundle'}", str(tmp_path / "out"), "--format", "ctranslate2"]
    assert main(command) == 0 and main([*command, "--int8"]) == 0  # the second replaces the first
    files = ["config.json", "ctranslate2.json", "model.bin", "shared_vocabulary.json", "tokenizer.json"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == files
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == files * 2
    assert json.loads((tmp_path / "out/ctranslate2.json").read_text())["weights"] == "int8"
    (tmp_path / "out/thesis.docx").touch()
    assert main(command) == 2
    assert "out exists and is not a CTranslate2 export: it also holds 'thesis.docx'" in capsys.readouterr().err


def test_other_numbers_than_torch_are_refused(engine, tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.ctranslate2_export.positions", lambda count, size: torch.zeros(count, size))
    with pytest.raises(ValueError, match=r"model.bin: log-probabilities differ from torch by \d.*; at most 1e-04 is"):
        export_ctranslate2(transformer(), tmp_path / "out", "tiny")
    assert not any(tmp_path.iterdir())


# ---- without ----


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda: build(LuongNMT), "LuongNMT has no CTranslate2 form: TransformerNMT is the only class that has one"),
        (lambda: transformer(key_size=3), "its keys need the size of its values, model_size / num_heads; got 3"),
        (lambda: transformer(output_projection=False), "it needs output_projection true"),
        (lambda: build(TransformerNMT), "it has no tokenizer, which names its tokens"),
    ],
)
def test_what_has_no_form(model, says, tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.ctranslate2_export.require", lambda *given: None)
    with pytest.raises(ValueError, match=says):
        export_ctranslate2(model(), tmp_path / "out", "tiny")
    assert not any(tmp_path.iterdir())


def test_a_missing_package_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("zoo.utils.extras.missing", lambda extra: ["ctranslate2>=4.5"])
    assert main(["export", "luong_dot.dates", str(tmp_path / "out"), "--format", "ctranslate2"]) == 2
    said = 'export to CTranslate2 needs ctranslate2; install with: pip install "ctranslate2>=4.5"'
    assert capsys.readouterr().err == f"zoo: error: {said}\n"


def test_names_are_tokens_of_the_tokenizer():
    """Unused rows have names that no text can give."""
    model = transformer()
    names = _names(model.tgt_tokenizer, model.config["tgt_vocab_size"])
    assert names[:4] == ["<pad >", "<unk >", "<s >", "</s >"] and len(set(names)) == len(names)
    assert names[-2:] == [f"<unused {len(names) - 2}>", f"<unused {len(names) - 1}>"]
