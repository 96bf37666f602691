"""What a training in processes that Lightning forks, as in a notebook, brings back: labels and words, not only weights."""

import os
import sys

import pytest
from forks import Fork
from lightning.pytorch import Trainer

from zoo.data import LabeledText
from zoo.models.luong import LuongNMT
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.tasks.forked import add_assets
from zoo.text import Tokenizer

TEXTS = ["a good film", "a bad film", "good music"]


def classifier(*labels):
    """An untrained model that knows the words of TEXTS."""
    tokenizer = Tokenizer.train(TEXTS, "word")
    options = {"vocab_size": len(tokenizer), "num_classes": len(labels)}
    model = StructuredSelfAttention(**{**StructuredSelfAttention.tiny, **options}).eval()
    model.tokenizer, model.label_names = tokenizer, list(labels)
    return model


def train_forked(file):
    """What a user of a notebook does; prints labels, answers and the number of words."""
    model = classifier("no", "yes", "perhaps")
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy="ddp_notebook", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, datamodule=LabeledText(file, batch_size=4, extend_vocabulary=10))
    words = [model.vocabulary.decode(model.vocabulary.encode(word)) for word in ("meow", "woof")]
    print(model.label_names, words, {answer.label for answer in model.classify(words)} <= {"cat", "dog"})


@pytest.mark.integration
def test_a_training_in_a_notebook_with_two_devices(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    file = tmp_path / "animals.csv"
    texts = [
        f"{word} {of} {what}" for of in ("meow", "woof") for word in ("good", "bad", "a") for what in ("film", "x")
    ]
    file.write_text("text,label\n" + "".join(f"{text},{'cat' if 'meow' in text else 'dog'}\n" for text in texts))
    done = Fork(train_forked, str(file), OMP_NUM_THREADS="1").wait()
    assert done.code == 0, done.output
    assert "['cat', 'dog'] ['meow', 'woof'] True" in done.output


def test_other_labels_and_more_words():
    trained, model = classifier("cat", "dog"), classifier("no", "yes", "perhaps")
    trained.extend_vocabulary(["meow"])
    weights = trained.state_dict()
    add_assets(trained, weights, "", {})
    model.load_state_dict(weights, strict=False)
    assert model.label_names == ["cat", "dog"]
    assert model.classify("meow film") == trained.classify("meow film")
    assert list(model.state_dict()) == list(trained.state_dict()), "nothing else travels with the weights from now on"


def test_a_new_model_gets_its_words():
    trained, model = (LuongNMT(**LuongNMT.tiny).eval() for _ in range(2))
    trained.src_tokenizer = trained.tgt_tokenizer = Tokenizer.train(TEXTS, "word")
    weights = trained.state_dict()
    add_assets(trained, weights, "", {})
    model.load_state_dict(weights)
    assert model.translate(TEXTS) == trained.translate(TEXTS)
