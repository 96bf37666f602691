"""`--search.KEY VALUE` of `zoo validate` and `zoo test`: scores of another search than the model's own."""

import pytest
import yaml

import zoo
from zoo.cli import main
from zoo.metrics import CorpusScore

WEIGHT = "seq2seq.multi30k_en_de"
PAIRS = {
    "A dog runs through the deep snow behind a red ball.": "Ein Hund rennt hinter einem roten Ball durch den Schnee.",
    "Two men in orange vests repair the roof of an old house.": "Zwei Männer reparieren das Dach eines Hauses.",
    "A girl with a yellow hat sits at the sea and reads.": "Ein Mädchen mit gelbem Hut sitzt am Meer und liest.",
    "Several people are waiting for the bus in the rain.": "Einige Leute warten im Regen auf den Bus.",
    "The band plays in front of a crowd at night.": "Die Band spielt nachts vor vielen Menschen.",
}


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The arguments that score the weight on the pairs, after the verb."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS.items()), encoding="utf-8")
    recipe = {
        "trainer": {"accelerator": "cpu", "logger": False},
        "model": {"class_path": "zoo.load", "init_args": {"name": WEIGHT}},
        "data": {
            "class_path": "zoo.data.ParallelText",
            "init_args": {**dict.fromkeys(("train_src", "val_src", "test_src"), "pairs.tsv"), "tgt_lang": "de"},
        },
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    return ["--config", "tiny.yaml", "--weights", WEIGHT]


def _bleu(**options):
    scores = CorpusScore("de", tokenized=False)
    model = zoo.load(WEIGHT)
    scores.update([out.text for out in model.translate([*PAIRS], split_sentences=False, **options)], [*PAIRS.values()])
    return scores.compute()["bleu"]


def test_scores_are_those_of_the_translations_by_that_search(command, capsys):
    expected = [
        (["validate"], "val, beam 1, length penalty 1.0, fp32, 5 sentence pairs", _bleu(beam_size=1)),
        (
            ["validate", "--search.beam_size", "4"],
            "val, beam 4, length penalty 1.0, fp32, 5 sentence pairs",
            _bleu(beam_size=4),
        ),
        (
            ["test", "--search.beam_size", "1"],
            "test, beam 1, length penalty 1.0, fp32, 5 sentence pairs",
            _bleu(beam_size=1),
        ),
        (
            ["test", "--search.length_penalty", "4"],
            "test, beam 5, length penalty 4.0, fp32, 5 sentence pairs",
            _bleu(beam_size=5, length_penalty=4.0),
        ),
    ]
    for (verb, *settings), title, bleu in expected:
        assert main([verb, *command, *settings]) == 0
        out = capsys.readouterr().out.splitlines()
        assert title in out
        (line,) = (line for line in out if line.strip().startswith(f"{title.partition(',')[0]}/bleu"))
        assert float(line.split()[1]) == pytest.approx(bleu, abs=0.006)
    assert len({round(bleu, 2) for _, _, bleu in expected}) == 3  # so another search was made


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["--search.beam_size", "0"], "beam_size must be from 1 to 100; got 0"),
        (["--search.length_penalty", "11"], "length_penalty must be from -10 to 10; got 11.0"),
        (["--search.beam_size", "two"], "beam_size: Expected a <class 'int'>. Got value: two"),
    ],
)
def test_wrong_settings(command, capsys, settings, message):
    assert main(["validate", *command, *settings]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and errors[0].startswith("zoo: error: ") and message in errors[0]


def test_a_calibration_is_of_the_search_of_the_weight(command, capsys):
    settings = [*command[:2], "--weights", "local-dir:mine", "--search.beam_size=2"]
    assert main(["calibrate", *settings]) == 2
    line = "zoo: error: zoo calibrate measures the weight's own search: leave out --search.beam_size\n"
    assert capsys.readouterr().err == line


def test_a_model_that_does_not_search(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.tsv").write_text("label\ttext\npos\tgood\nneg\tbad\n")
    files = [f"--data.{split}=texts.tsv" for split in ("train", "val", "test")]
    settings = ["--weights", "structured_self_attention.sst2", "--search.beam_size", "5"]
    assert main(["test", "--config", "finetune_classification", *files, *settings]) == 2
    line = "--search is for scores of translations and captions; StructuredSelfAttention has none: leave it out"
    assert line in capsys.readouterr().err


def test_part_of_the_test_set_is_said_to_be_one(command, capsys):
    assert main(["test", *command, "--data.batch_size", "2", "--trainer.limit_test_batches", "1"]) == 0
    assert ", fp32, 1 of " in (out := capsys.readouterr().out) and " batches\n" in out
