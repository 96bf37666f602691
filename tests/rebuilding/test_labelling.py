"""Lines that several classifiers label."""

import json
from types import SimpleNamespace

import pytest
from fakes import Cut

import zoo
from zoo import registry
from zoo.models.attention_classifier import AttentionClassifier
from zoo.rebuilding import lines as lines_of_text
from zoo.rebuilding.labelling import label_file
from zoo.rebuilding.lines import run_job

ANSWERS = {
    "first": {"good film": 0.9, "bad film": 0.3, "a film": 0.5},
    "second": {"good film": 0.7, "bad film": 0.1, "a film": 0.6},
}


class Fake:
    """A classifier of which the probabilities are known; it counts what it is asked."""

    def __init__(self, name):
        self.table, self.label_names, self.asked = ANSWERS[name], ["bad", "good"], []
        self.task, self.config = AttentionClassifier.task, {}

    def classify(self, texts):
        self.asked += texts
        return [
            SimpleNamespace(probabilities={"bad": 1 - self.table[text], "good": self.table[text]}) for text in texts
        ]


@pytest.fixture
def models(monkeypatch):
    found = {name: Fake(name) for name in ANSWERS}
    monkeypatch.setattr(registry, "load", found.__getitem__)
    return found


@pytest.fixture
def source(tmp_path):
    (tmp_path / "lines").write_text("good film\nbad\tfilm\n\na film\n")
    return str(tmp_path / "lines")


def test_the_mean_of_the_probabilities(models, source, tmp_path, capsys):
    label_file(source, str(tmp_path / "table"), ["first", "second"])
    assert (tmp_path / "table").read_text().split("\n") == [
        "text\tbad\tgood",
        "good film\t0.2000\t0.8000",
        "bad film\t0.8000\t0.2000",
        "a film\t0.4500\t0.5500",
        "",
    ]
    assert capsys.readouterr().out.endswith("3 of 3 lines were labelled\n")


def test_uncertain_lines_are_left_out(models, source, tmp_path):
    label_file(source, str(tmp_path / "table"), ["first", "second"], min_probability=0.6)
    assert "a film" not in (tmp_path / "table").read_text()
    with pytest.raises(ValueError, match=r"give no label of 3 lines 0\.95 or more"):
        label_file(source, str(tmp_path / "table"), ["first", "second"], min_probability=0.95)


def test_what_was_answered_is_not_asked_again(models, source, tmp_path, monkeypatch):
    monkeypatch.setattr(lines_of_text, "LINES", 2)
    classify = models["second"].classify

    def cut(texts):
        raise Cut

    models["second"].classify = cut
    with pytest.raises(Cut):
        label_file(source, str(tmp_path / "table"), ["first", "second"])
    assert not (tmp_path / "table").exists()
    models["second"].classify = classify
    label_file(source, str(tmp_path / "table"), ["first", "second"])
    assert models["first"].asked == models["second"].asked == ["good film", "bad film", "a film"]


def test_other_labels_and_other_models(models, source, tmp_path, monkeypatch, capsys):
    models["second"].label_names = ["good", "bad"]
    job = {"source": source, "target": str(tmp_path / "table"), "models": ["first", "second"]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert run_job(label_file, [str(tmp_path / "job.json")]) == 2
    assert capsys.readouterr().err == "zoo: error: second has the labels good, bad, first has bad, good\n"
    monkeypatch.undo()
    with pytest.raises(ValueError, match="luong_dot.dates does not classify texts; it is a model for translation"):
        label_file(source, str(tmp_path / "table"), ["luong_dot.dates"])


def test_pairs(source, tmp_path):
    (tmp_path / "pairs").write_text("A man eats\tA person eats\nA dog runs\tA cat sleeps\n")
    name = "structured_self_attention.sick"
    label_file(str(tmp_path / "pairs"), str(tmp_path / "table"), [name])
    header, *rows = (tmp_path / "table").read_text().splitlines()
    assert header.split("\t") == ["text", "text2", *zoo.load(name).label_names, "score"]
    results = zoo.load(name).classify([("A man eats", "A person eats"), ("A dog runs", "A cat sleeps")])
    for row, result in zip(rows, results, strict=True):
        values = [float(value) for value in row.split("\t")[2:]]
        assert values == pytest.approx([*result.probabilities.values(), result.relatedness], abs=1e-4)
    with pytest.raises(ValueError, match="a pair is two texts with a tab between them; got 'bad\\\\tfilm\\\\tat all'"):
        (tmp_path / "pairs").write_text("bad\tfilm\tat all\n")
        label_file(str(tmp_path / "pairs"), str(tmp_path / "other"), [name])


def test_models_of_pairs_and_of_texts_do_not_mix(models, source, tmp_path):
    models["second"].config = {"pair": True}
    with pytest.raises(ValueError, match="second and first: one reads pairs of texts, the other one single texts"):
        label_file(source, str(tmp_path / "table"), ["first", "second"])
