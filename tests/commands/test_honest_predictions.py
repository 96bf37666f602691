"""`zoo predict` says what it doubts and keeps a place for each input; `zoo calibrate`."""

import io
import json
import sys

import pytest
from forks import command, torchrun
from written_dates import halves

import zoo
from zoo import registry
from zoo.cli import main
from zoo.data import Dates
from zoo.verbs.confidence import Evidence, is_withheld, warnings_of

DATES = "luong_dot.dates"


@pytest.mark.parametrize(
    "text", ["hello world", "banana", "32nd of Foo", "31 February 2020", "May", "", "next tuesday", "3/4/2009"]
)
def test_a_text_that_is_no_date_gets_no_date(text, capsys):
    assert main(["predict", DATES, text]) == 0
    out, err = capsys.readouterr()
    assert out == "\n"
    assert bool(err) == bool(text) and all(line.startswith("zoo: text 1: warning: ") for line in err.splitlines())


def test_dates_are_printed_and_other_lines_have_a_place(capsys, monkeypatch):
    lines = ["tuesday july 8 2008", "banana", "3. May 1995", "3 May 1995 " * 1000, "MARCH 5, 1931"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
    assert main(["predict", DATES]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == ["2008-07-08", "", "1995-05-03", "", "1931-03-05"]
    first, second = err.splitlines()
    assert first.startswith("zoo: line 2: warning: ")
    assert second.startswith("zoo: error: line 4: the text has 10,999 tokens; ")


def test_as_json_the_model_says_what_it_thinks(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("banana\n" + "1 " * 2000 + "\n3 May 1995\n"))
    assert main(["predict", DATES, "--json"]) == 2
    banana, bad, date = map(json.loads, capsys.readouterr().out.splitlines())
    assert banana["text"] and banana["confidence"] < 0.5 and len(banana["warnings"]) == 1
    assert bad is None
    assert date["text"] == "1995-05-03" and date["confidence"] > 0.9 and date["warnings"] == []


def test_other_texts_are_no_dates():
    data = Dates(val_size=100, test_size=1)
    texts = data.unanswerable()
    assert len(texts) == 100 and texts == data.unanswerable()
    assert not set(texts) & {text for text, _ in data.val_pairs()}
    found = zoo.load(DATES).translate(texts)
    assert sum(result.confidence >= 0.5 for result in found) <= 0.06 * len(texts)
    right = zoo.load(DATES).translate([text for text, _ in data.val_pairs()])
    assert sum(bool(result.warnings) for result in right) <= 0.02 * len(right)


def test_dates_that_people_write(capsys):
    texts = [
        "Dec 25, '09",
        "FRI, 25-dec-2009 10:30",
        "the twenty-fifth of december 2009",
        "25.12.09",
        "Decmber 25th 2009",
    ]
    assert main(["predict", DATES, *texts]) == 0
    assert capsys.readouterr() == ("2009-12-25\n" * len(texts), "")
    result = zoo.load(DATES).translate("next tuesday")
    assert (result.text, result.confidence) == ("no date", 0) and result.warnings == [
        "the model sees no clear date in the text"
    ]


@pytest.mark.parametrize("half, texts", halves().items())
def test_the_card_says_what_is_printed_of_the_dates_written_by_hand(half, texts):
    model = zoo.load(DATES)
    found = model.translate([text for text, _ in texts])
    printed = ["" if is_withheld(model.calibration, result.confidence) else result.text for result in found]
    pairs = list(zip(printed, (answer for _, answer in texts), strict=True))
    right = sum(answer == shown != "" for shown, answer in pairs)
    wrong = sum(shown not in ("", answer) for shown, answer in pairs if answer)
    nothing = [shown == "" for shown, answer in pairs if not answer]
    dates = len(pairs) - len(nothing)
    card = (registry.BUNDLED.parent.parent / f"model_cards/{DATES}.md").read_text(encoding="utf-8").replace("*", "")
    assert f"| {half} half | {dates} | {right} | {wrong} | {len(nothing)} | {sum(nothing)} |" in card


def test_sentences_are_split_only_for_translation(capsys):
    assert main(["predict", DATES, "3 May 1995", "--no-split-sentences"]) == 0
    assert capsys.readouterr().out == "1995-05-03\n"
    assert main(["predict", "structured_self_attention.sick", "a", "b", "--no-split-sentences"]) == 2
    message = "structured_self_attention.sick is for classification: --no-split-sentences is for translation"
    assert capsys.readouterr().err == f"zoo: error: {message}\n"


# ---- zoo calibrate ----

SMALL = ["--data.val_size", "30", "--data.test_size", "1", "--data.train_size", "64"]
QUIET = ["--trainer.enable_progress_bar", "false", "--trainer.logger", "false", "--trainer.accelerator", "cpu"]


def test_calibrate_writes_into_the_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "weights"
    weights = (registry.BUNDLED / DATES / "model.safetensors").read_bytes()
    recipe = registry.BUNDLED.parent.parent / "recipes" / f"{DATES}.yaml"
    fresh = zoo.load(DATES)
    fresh.calibration = None
    fresh.save_pretrained(folder, half=True)
    args = ["calibrate", "--config", str(recipe), "--weights", f"local-dir:{folder}", *SMALL, *QUIET]
    assert main(args) == 0
    out = capsys.readouterr().out
    assert "confidence: the probability that the answer is exactly right" in out
    assert "fitted on 30 answers, measured on 30 others: expected calibration error 0." in out
    assert "of 30 inputs without a right answer" in out
    model = zoo.load(f"local-dir:{folder}")
    assert model.calibration is not None and model.calibration.exact and model.calibration.examples == 30
    assert (folder / "model.safetensors").read_bytes() == weights


@pytest.mark.integration
def test_two_processes_calibrate_on_the_answers_of_both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    zoo.load(DATES).save_pretrained(tmp_path / "weights", half=True)
    recipe = registry.BUNDLED.parent.parent / "recipes" / f"{DATES}.yaml"
    processes = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
    args = ["--config", str(recipe), "--weights", "local-dir:weights", *SMALL, *QUIET, *processes]
    torchrun(2, command, "calibrate", *args)
    assert zoo.load("local-dir:weights").calibration.examples == 30  # half of 30 dates and 30 other texts


@pytest.mark.parametrize("weights", [[], ["--weights", DATES]])
def test_calibrate_changes_only_a_folder_of_the_user(weights, capsys):
    assert main(["calibrate", "--config", "recipes/luong_dot.dates.yaml", *weights]) == 2
    assert "zoo calibrate needs --weights local-dir:FOLDER" in capsys.readouterr().err


# ---- the guide ----

GUIDE = (registry.BUNDLED.parent.parent / "docs/guides/honest_predictions.md").read_text(encoding="utf-8")


def test_the_example_of_the_guide_prints_what_it_says(capsys):
    block = GUIDE.split("```python\n")[1].split("```")[0]
    exec(block, {})
    assert capsys.readouterr().out.splitlines() == [line[2:] for line in block.splitlines() if line.startswith("# ")]


@pytest.mark.parametrize("name", registry.list_models())
def test_guide_and_card_say_what_was_measured(name):
    """The expected calibration error, and which weights have none."""
    calibration = zoo.load(name).calibration
    rows = [row.split("|") for row in GUIDE.splitlines() if row.startswith(f"| `{name}`")]
    card = " ".join((registry.BUNDLED.parent.parent / f"model_cards/{name}.md").read_text(encoding="utf-8").split())
    if calibration is None:
        assert not rows and "`confidence`" not in card
        return
    (row,) = rows
    assert row[2].strip() == f"{calibration.error:.3f}"
    assert f"`confidence` is the probability that {calibration.event}." in card
    assert f"Its expected calibration error is {calibration.error:.3f} on " in card


def test_the_name_of_a_file_that_is_read_as_a_text(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["predict", "structured_self_attention.sst2", "nowhere.txt", "a fine film"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "name of a file" in line]
    assert line.startswith("zoo: text 1: warning: the name of a file was read as a text: there is no such file")


def test_bytes_that_are_no_text(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("3 May 1995\n\udcff\udcfe\n"))
    assert main(["predict", DATES]) == 2
    out, err = capsys.readouterr()
    assert out == "1995-05-03\n\n" and err.startswith("zoo: error: line 2: ") and "UTF-8" in err


def test_answers_that_are_empty_or_go_round():
    empty, turning = Evidence({}, text="a b", answer=""), Evidence({}, text="a", answer="und so geht es weiter " * 4)
    assert warnings_of(None, empty) == ["the answer is empty"]
    assert warnings_of(None, turning) == ["the answer repeats itself"]
    assert warnings_of(None, Evidence({}, text="a", answer="und so geht es weiter " * 3)) == []


def test_a_page_shows_what_is_not_printed_and_does_not_say_otherwise(capsys, tmp_path):
    page = tmp_path / "dates.html"
    assert main(["predict", DATES, "hello world", "--html", str(page)]) == 0
    out, err = capsys.readouterr()
    assert out == "\n" and err.rstrip().endswith("; the answer is not printed")
    shown = page.read_text(encoding="utf-8")
    assert "the model sees no clear date in the text" in shown and "not printed" not in shown
