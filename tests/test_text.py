import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.text import BOS, EOS, PAD, SPECIAL_NAMES, UNK, Tokenizer, pad_batch

SENTENCES = [
    "Two dogs play in the snow, don't they?",
    "Zwei Hunde spielen im Schnee; schön!",
    "L'été, deux chiens jouent\u202f: c'est ça.",
    "Dva psi si hrají na sněhu. ěščřžýáíé 0123456789",
]


@pytest.fixture(scope="module", params=["bpe", "word", "char"])
def tokenizer(request):
    return Tokenizer.train(SENTENCES, request.param, vocab_size=200)


def test_decode_inverts_encode(tokenizer):
    for sentence in SENTENCES:
        assert tokenizer.decode(tokenizer.encode(sentence)) == " ".join(sentence.split())


@given(st.text("abcdeghiklmnoprstuvyz ,.!?'é\u00a0\u202f\n", max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_text_of_known_characters_round_trips(text):
    bpe = _cached_bpe()
    ids = bpe.encode(text)
    if UNK not in ids:
        assert bpe.decode(ids) == " ".join(text.split())


def _cached_bpe(store=[]):
    if not store:
        store.append(Tokenizer.train([*SENTENCES, "a b c d e g h i k l m n o p r s t u v y z"], "bpe", 200))
    return store[0]


def test_composed_and_decomposed_characters_are_the_same(tokenizer):
    assert tokenizer.encode("scho\u0308n!") == tokenizer.encode("schön!")


def test_empty_text(tokenizer):
    assert tokenizer.encode("") == tokenizer.encode(" \n ") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode_batch([]) == []


def test_unknown_characters_become_unk_and_never_fail(tokenizer):
    ids = tokenizer.encode("🙂 日本 \x00")
    assert UNK in ids
    assert tokenizer.decode(ids) == ""


def test_user_text_never_makes_special_tokens(tokenizer):
    for name in [*SPECIAL_NAMES, "< pad >", "<pad >", "</s >", "<s>Two</s>"]:
        assert not {PAD, BOS, EOS} & set(tokenizer.encode(name))
        assert not {PAD, BOS, EOS} & set(tokenizer.encode_batch([name])[0])


def test_special_names_in_the_training_text_stay_text():
    tokenizer = Tokenizer.train(["<unk> </s> <pad>"] * 50, "bpe", vocab_size=100)
    ids = tokenizer.encode("<unk> </s> <pad>")
    assert min(ids) > EOS
    assert tokenizer.decode(ids) == "<unk> </s> <pad>"


def test_decode_skips_special_tokens(tokenizer):
    ids = tokenizer.encode(SENTENCES[0])
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == tokenizer.decode(ids)


def test_batch_equals_single(tokenizer):
    assert tokenizer.encode_batch(SENTENCES) == [tokenizer.encode(sentence) for sentence in SENTENCES]


def test_json_round_trip(tokenizer):
    for copy in (Tokenizer.from_json(tokenizer.to_json()), pickle.loads(pickle.dumps(tokenizer))):
        assert copy.to_json() == tokenizer.to_json()
        assert copy.kind == tokenizer.kind
        assert copy.encode_batch(SENTENCES) == tokenizer.encode_batch(SENTENCES)
        assert copy.decode(copy.encode(SENTENCES[0])) == SENTENCES[0]


def test_training_is_deterministic():
    assert Tokenizer.train(SENTENCES, "bpe", 200).to_json() == Tokenizer.train(SENTENCES, "bpe", 200).to_json()


def test_vocab_size_is_a_limit():
    for kind in ("bpe", "word", "char"):
        assert len(Tokenizer.train(SENTENCES, kind, vocab_size=20)) == 20


def test_lowercase():
    tokenizer = Tokenizer.train(SENTENCES, "bpe", 200, lowercase=True)
    assert tokenizer.decode(tokenizer.encode("TWO Dogs")) == "two dogs"


def test_tokens_are_readable():
    bpe = Tokenizer.train(["snow snow y."] * 5, "bpe", vocab_size=50)
    ids = [BOS, *bpe.encode("snow snowy."), UNK, EOS]
    assert bpe.tokens(ids) == ["<s>", "snow", "snow", "·y", ".", "<unk>", "</s>"]
    char = Tokenizer.train(["a b"], "char", vocab_size=10)
    assert char.tokens(char.encode("b a")) == ["b", "▁", "a"]


def test_bad_arguments():
    with pytest.raises(ValueError, match="tokenizer must be one of 'bpe', 'word', 'char'; got 'spm'"):
        Tokenizer.train(SENTENCES, "spm")
    with pytest.raises(ValueError, match="vocab_size must be greater than 4 .* got 4"):
        Tokenizer.train(SENTENCES, "bpe", 4)
    with pytest.raises(ValueError, match="not a tokenizer in JSON form"):
        Tokenizer.from_json("{}")
    foreign = json.loads(Tokenizer.train(SENTENCES, "word", 20).to_json())
    foreign["model"]["vocab"] = {"hello": 0, "< unk >": 1}
    with pytest.raises(ValueError, match="not a tokenizer of this package"):
        Tokenizer.from_json(json.dumps(foreign))


def test_pad_batch():
    batch = pad_batch([[5, 6], []], [[7], [8, 9]], ["a", ""], ["b", "c"])
    assert batch.src.tolist() == [[5, 6, EOS], [EOS, PAD, PAD]]
    assert batch.src_lengths.tolist() == [3, 1]
    assert batch.tgt.tolist() == [[BOS, 7, EOS, PAD], [BOS, 8, 9, EOS]]
    assert batch.tgt_lengths.tolist() == [2, 3]
    assert batch.src_text == ["a", ""] and batch.tgt_text == ["b", "c"]


def test_pad_batch_without_targets():
    batch = pad_batch([[5]])
    assert batch.tgt is None and batch.tgt_lengths is None and batch.src_text is None
