"""`zoo explain`: the stored certificate of a weight, and one that is measured now."""

import json
import random

import pytest

import zoo
from zoo import registry
from zoo.cli import main
from zoo.commands import explain
from zoo.explanations import Certificate

TREC = "structured_self_attention.trec6"
QUESTIONS = [
    "How far is it from Denver to Aspen ?",
    "Who was Galileo ?",
    "What is an atom ?",
    "When did Hawaii become a state ?",
]


def _fails(capsys, *args):
    assert main(["explain", *map(str, args)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("zoo: error: ")


@pytest.fixture
def questions(tmp_path):
    (tmp_path / "questions").write_text("\n".join([*QUESTIONS, ""]), encoding="utf-8")
    return tmp_path / "questions"


def test_a_file_of_inputs(questions, capsys):
    assert main(["explain", TREC, "--certificate", "--inputs", str(questions), "--limit", "2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"{TREC}: 2 inputs of {questions}, 2 answers, seed 0")
    drawn = random.Random(0).sample(QUESTIONS, 2)
    found = zoo.faithfulness(zoo.load(TREC), drawn)
    assert printed[-3:] == [
        found.line(),
        found.doubt(),
        "rough: 2 inputs are few; give some hundred",
    ]


def test_the_test_data_of_the_recipe(tmp_path, capsys):
    rows = [f"test\t{n % 6}\t{text}" for n, text in enumerate(QUESTIONS)]
    (tmp_path / "trec6.tsv").write_text(
        "\n".join(["split\tlabel\ttext", "train\t0\tWhat ?", *rows, ""]), encoding="utf-8"
    )
    assert explain.test_inputs(TREC, str(tmp_path)) == QUESTIONS


def test_the_stored_certificate(tmp_path, monkeypatch, capsys, questions):
    monkeypatch.setattr(registry, "certificate_file", lambda name: tmp_path / name)
    assert _fails(capsys, TREC) == (
        f"nothing was measured for {TREC} yet: zoo explain {TREC} --certificate measures it"
    )
    assert main(["explain", TREC, "--certificate", "--inputs", str(questions), "--limit", "1", "--json"]) == 0
    stored = capsys.readouterr().out
    (tmp_path / TREC).write_text(stored, encoding="utf-8")
    assert main(["explain", TREC, "--json"]) == 0
    assert capsys.readouterr().out == stored
    assert main(["explain", TREC]) == 0
    assert capsys.readouterr().out.rstrip() == Certificate.from_dict(json.loads(stored)).table()


def test_mistakes(capsys, tmp_path):
    assert _fails(capsys, "han.imdbb").startswith("unknown model 'han.imdbb'; nearest: han.imdb")
    assert _fails(capsys, TREC, "--certificate", "--limit", 0) == "--limit must be at least 1; got 0"
    for seed in (-1, 2**32, 10**30):
        assert _fails(capsys, TREC, "--certificate", "--seed", seed) == (
            f"--seed must be from 0 to 4294967295; got {seed}"
        )
    for option, value in (("--inputs", "x"), ("--limit", 5), ("--seed", 0), ("--data.root", tmp_path)):
        assert _fails(capsys, TREC, option, value) == f"{option}: for measuring only, add --certificate"
    both = _fails(capsys, TREC, "--certificate", "--inputs", "x", "--data.root", tmp_path)
    assert both == "--data.root has the test data of the recipe, and --inputs other texts: give one of them"
    assert _fails(capsys, TREC, "--certificate", "--inputs", "") == "--inputs is empty; give the name of a file"
    for more in ([], ["--certificate"]):
        assert _fails(capsys, "local-dir:/none", *more).startswith("local-dir:/none is not a folder of weights")
    folder = f"local-dir:{registry.BUNDLED / TREC}"
    advice = f"nothing was measured for {folder} yet: zoo explain {folder} --certificate --inputs FILE measures it"
    assert _fails(capsys, folder) == advice
    wanted = f"{folder} has no recipe with test data: give texts, one a line, as --inputs FILE"
    assert _fails(capsys, folder, "--certificate") == wanted
    (tmp_path / "pairs").write_text("only one text\n", encoding="utf-8")
    pairs = "structured_self_attention.sick", "--certificate", "--inputs", tmp_path / "pairs"
    said = f"{tmp_path / 'pairs'}, line 1: each line must have two texts separated by a tab; got 'only one text'"
    assert _fails(capsys, *pairs) == said
    (tmp_path / "latin").write_bytes("caf\xe9\n".encode("latin-1"))
    said = _fails(capsys, TREC, "--certificate", "--inputs", tmp_path / "latin")
    assert said.startswith(f"{tmp_path / 'latin'}, line 1: byte 0xe9 (number 4 of the line) is not utf-8 text")
    lines = ["Who was Galileo ?", "", "who " * 3000]
    (tmp_path / "long").write_text("\n".join(lines), encoding="utf-8")
    for seed in (0, 1):  # the lines are drawn in another order
        said = _fails(capsys, "luong_dot.dates", "--certificate", "--inputs", tmp_path / "long", "--seed", seed)
        assert said.startswith(f"{tmp_path / 'long'}, line 3: the text has ")
    for name, why in (
        ("key_value_predict.ptb", "its attention reaches only the last 5 outputs"),
        ("attention_over_attention.cbtlike_ne", "the attention is the answer"),
        ("seq2seq.multi30k_en_de", "it has no attention: "),
    ):
        said = _fails(capsys, name)
        assert said.startswith(f"{name} has no certificate, because {why}") and not said.endswith((",", "with"))
        assert _fails(capsys, name, "--certificate", "--data.root", tmp_path) == said
    with pytest.raises(ValueError, match=r"^there is no certificate for reading; there is one for classification, "):
        explain.test_inputs("attention_over_attention.cbtlike_ne", str(tmp_path))


def test_pictures_mention_it(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "certificate_file", lambda name: tmp_path / name)
    assert zoo.load(TREC).classify(QUESTIONS[0]).explains is None
    (tmp_path / TREC).write_text('{"verdict": "partly"}', encoding="utf-8")
    model = zoo.load(TREC)
    line = f"may be read as an explanation: partly (zoo explain {TREC})"
    for result in (model.classify(QUESTIONS[0]), *model.classify(QUESTIONS[:2])):
        assert result.explains == line
        assert line in [text.get_text() for text in result.plot().texts]
        assert (
            result.to_html().count(line)
            == result._repr_html_().count(line)
            == zoo.page([result, result]).count(line) / 2
            == 1
        )
    assert zoo.load(TREC, {"dropout": 0.1}).explains is None  # it may be trained to something else
    assert zoo.load(TREC, {"dropout": model.config["dropout"]}).explains == line  # changes nothing
