"""Windows of plain text with the word that follows."""

import lightning.pytorch as pl
import pytest
import torch
from fakes import schedule

from zoo.data import NextWord
from zoo.models.attention_classifier import AttentionClassifier

LINES = ["The cat sat on the mat .", "A dog sat on the cat .", "", "one", "The mat is on the dog ."]


def _write(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_every_frequent_word_follows_its_window(tmp_path):
    data = NextWord(_write(tmp_path / "a.txt", LINES), val=_write(tmp_path / "v.txt", LINES[:1]), context=3)
    examples = [(e.text, *e.labels) for e in data.examples("train")]
    assert examples[:4] == [("the", "cat"), ("the cat", "sat"), ("the cat sat", "on"), ("cat sat on", "the")]
    assert ("dog sat on", "the") in examples and not any(word == "is" for *_, word in examples)  # once only: too rare
    assert [e.labels[0] for e in data.examples("val")] == ["cat", "sat", "on", "the", "mat", "."]


def test_labels_are_the_most_frequent_words(tmp_path):
    path = _write(tmp_path / "a.txt", ["x b b b c c d"] * 3)
    data = NextWord(path, val=path, num_labels=2)
    data.prepare_data()
    data.setup("fit")
    assert data.labels == ["b", "c"]
    assert len(data.train_dataloader().stream.arrays) == 3 * 5


def test_held_out_lines_are_not_trained_on(tmp_path):
    lines = [f"w{n} a b a b" for n in range(200)]
    data = NextWord(_write(tmp_path / "a.txt", lines), val_fraction=0.2)
    train, val = (
        {e.text.split()[0] for e in data.examples(split) if e.text.startswith("w")} for split in ("train", "val")
    )
    assert not train & val and len(train | val) == 200 and 20 < len(val) < 60


def test_one_line_at_least_is_held_out(tmp_path):
    path = _write(tmp_path / "a.txt", ["a b a b a", "b a b a"])
    for seed in range(8):
        data = NextWord(path, val_fraction=0.001, split_seed=seed, min_frequency=1)
        assert [len({e.text.split()[0] for e in data.examples(split)}) for split in ("train", "val")] == [1, 1]


def test_a_model_learns_what_follows(tmp_path):
    path = _write(tmp_path / "a.txt", ["a b c d e f", "f e d c b a"] * 40)
    data = NextWord(path, val=path, context=3, batch_size=16)
    torch.manual_seed(0)
    model = schedule(
        AttentionClassifier(20, 6, embedding_size=12, hidden_size=16, dropout=0.0), lr=0.02, warmup_steps=1
    )
    options = dict(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    pl.Trainer(max_epochs=6, enable_model_summary=False, **options).fit(model, data)
    assert model.classify("a b c").label == "d" and model.classify("d c b").label == "a"


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match="context must be at least 1; got 0"):
        NextWord("a", context=0)
    with pytest.raises(FileNotFoundError, match="train: there is no file .*nowhere.txt"):
        NextWord("nowhere.txt").prepare_data()
    with pytest.raises(ValueError, match="fewer than two words occur 2 times or more"):
        NextWord(_write(tmp_path / "a.txt", ["a b c", "d e f"]), val_fraction=0.01).prepare_data()
    with pytest.raises(ValueError, match="a.txt has no two different lines, so none can be held out"):
        NextWord(_write(tmp_path / "a.txt", ["a b a b"] * 9)).prepare_data()
    with pytest.raises(ValueError, match=r"there is no test text: give test= \(--data.test\) a file"):
        list(NextWord(_write(tmp_path / "b.txt", LINES)).examples("test"))
