"""A new model takes the vocabulary of the data if it has a row for each word."""

from types import SimpleNamespace

import pytest

from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.text import Tokenizer

TOKENIZER = Tokenizer.train(["a b c d e f g h"], "word")  # of 12 words
DATA = SimpleNamespace(
    tokenizer=TOKENIZER, src_tokenizer=TOKENIZER, tgt_tokenizer=TOKENIZER, labels=["x", "y"], multi_label=False,
    vectors=lambda size: None,
)  # fmt: skip


@pytest.mark.parametrize(
    "cls, options",
    [
        (AttentionClassifier, {"vocab_size": 11, "num_classes": 2}),
        (ShowAttendTell, {"vocab_size": 11}),
        (LuongNMT, {"src_vocab_size": 11, "tgt_vocab_size": 12}),
        (LuongNMT, {"src_vocab_size": 12, "tgt_vocab_size": 11}),
    ],
)
def test_one_word_too_many(cls, options):
    size = next(name for name, value in options.items() if value == 11)
    side = size.removesuffix("vocab_size").rstrip("_")
    found = f"a {side} vocabulary of 12 tokens" if side else "a vocabulary of 12 words"
    advice = f"set {size} to at least 12" if side else "set the model's vocab_size to at least 12"
    with pytest.raises(ValueError, match=f"^the data has {found}, the model one of 11; {advice}$"):
        cls(**{**cls.tiny, **options}).adapt(DATA, "test")
    model = cls(**{**cls.tiny, **options, size: 12})
    model.adapt(DATA, "test")
    assert TOKENIZER in (getattr(model, "tokenizer", None), getattr(model, "tgt_tokenizer", None))
