import json
import pickle

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.batches.translation import pad_batch
from zoo.text import BOS, EOS, PAD, SPECIAL_NAMES, UNK, Tokenizer

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
    with pytest.raises(ValueError, match="tokenizer must be one of 'bpe', 'word', 'char', 'word_punct'; got 'spm'"):
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


# Kind "word_punct"


@pytest.fixture(scope="module")
def words():
    return Tokenizer.train(["I do n't like it . It 's 3.50 , ca n't you ? Can not ! -"] * 2, "word_punct", 100)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("I don't like it.", "I do n't like it ."),
        ("I DON’T. It’s, CAN'T!", "I DO N’T . It ’s , CA N'T !"),
        ("cannot we'll they're I've she'd I'm", "can not we 'll they 're I 've she 'd I 'm"),
        ("couldn't've", "could n't 've"),
        ("$3.50 or 1,000.00, 2nd", "$ 3.50 or 1,000.00 , 2nd"),
        ("re-made U.S. (sic)...", "re - made U . S . ( sic ) . . ."),
        ("naïve e\u0301t 日本 🙂🙂 x_y", "naïve ét 日本 🙂 🙂 x _ y"),
        ("'tis o'clock dogs' n't 'll", "' tis o ' clock dogs ' n't 'll"),
        ("isn'tx cannots", "isn ' tx cannots"),
    ],
)
def test_pieces_of_plain_text(words, text, pieces):
    assert words.words(text) == pieces.split()
    assert words.encode(text) == words.encode(pieces)  # tokenised text gives the same
    assert words.words(pieces) == pieces.split()


def test_words_and_ids(words):
    assert words.kind == "word_punct"
    text = "I can’t like IT, 7.50!"
    assert words.tokens(words.encode(text)) == ["I", "ca", "n't", "like", "<unk>", ",", "<unk>", "!"]
    assert words.decode(words.encode("I don't, it's!")) == "I do n't , it 's !"
    lower = Tokenizer.train(["Do N’T"], "word_punct", 100, lowercase=True)
    assert lower.encode("DON'T") == lower.encode("don’t") == [4, 5]
    assert lower.words("DON’T don't") == ["DO", "N’T", "do", "n't"]


_ANY_TEXT = st.text(max_size=40) | st.text("aNn'’tTcCoO.,3-\u0301\u0130 \u00a0\u1e9e\ufb01", max_size=40)


@given(_ANY_TEXT)
@settings(max_examples=400, deadline=None)
def test_one_word_for_each_id(text):
    for tokenizer in _word_tokenizers():
        pieces = tokenizer.words(text)
        assert len(pieces) == len(tokenizer.encode(text))
        assert all(pieces)
        if tokenizer.kind == "word_punct":
            assert tokenizer.encode(" ".join(pieces)) == tokenizer.encode(text)


def _word_tokenizers(store=[]):
    if not store:
        options = [("word", False), ("word", True), ("word_punct", False), ("word_punct", True)]
        store += [Tokenizer.train(["a cannot n't 3 ."], kind, 50, lowercase) for kind, lowercase in options]
    return store


def test_words_of_other_kinds_are_their_pieces():
    bpe = _cached_bpe()
    assert bpe.words("Two dogs") == bpe.tokens(bpe.encode("Two dogs"))


def test_word_punct_round_trip(words):
    for copy in (Tokenizer.from_json(words.to_json()), pickle.loads(pickle.dumps(words))):
        assert copy.kind == "word_punct" and copy.to_json() == words.to_json()
        assert copy.words("I don't") == ["I", "do", "n't"] and copy.encode("I don't") == words.encode("I don't")


def test_special_names_are_never_words():
    tokenizer = Tokenizer.train(["<unk> </s> <pad> < pad >"] * 3, "word_punct", 100)
    assert not {PAD, UNK, BOS, EOS} & set(tokenizer.encode("<pad> </s> <unk> < pad >"))


@pytest.mark.parametrize("kind", ["word", "word_punct"])
def test_min_frequency(kind):
    texts = ["a a a b b c", "d b"]
    assert len(Tokenizer.train(texts, kind, 100)) == 8
    tokenizer = Tokenizer.train(texts, kind, 100, min_frequency=2)
    assert tokenizer.encode("a b c d") == [*tokenizer.encode("a b"), UNK, UNK] and len(tokenizer) == 6
    assert tokenizer.tokens([4, 5]) == ["a", "b"]  # by frequency, then by name
    assert len(Tokenizer.train(texts, kind, 6)) == 6
    with pytest.raises(ValueError, match="min_frequency must be at least 1; got 0"):
        Tokenizer.train(texts, kind, 100, min_frequency=0)


def test_a_word_without_end(words):
    for unit in ("a", "3.3", "n't", "'", "can"):
        text = unit * (200_000 // len(unit))
        assert len(words.words(text)) == len(words.encode(text))


RAW = [
    (
        "html",
        "One&nbsp;film.<br /><BR>&amp;lt;i&gt;Two&lt;/i&gt; <p class='x'>&quot;it&#39;s&quot;</p> 3 < 4 & <UNK>",
        'One film.\n\nTwo \n\n"it\'s"\n\n 3 < 4 & <UNK>',
    ),
    ("invisible", "\ufeffsoft\u00adly\u200b", "softly"),
    ("treebank", r"-LRB- a\/b -rrb- 5\* -lsb- -RSB-", "( a/b ) 5* [ ]"),
    ("quotes", '"A" and “b” ("c")', "``A'' and ``b'' (``c'')"),
]


@pytest.mark.parametrize("name, raw, clean", RAW)
@pytest.mark.parametrize("kind", ["bpe", "word", "word_punct"])
def test_cleaning_is_saved_and_is_what_the_library_does(kind, name, raw, clean):
    tokenizer = Tokenizer.train([raw, clean], kind, 200, cleaning=[name])
    assert tokenizer.clean(raw) == clean and tokenizer.clean(clean) == clean
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.cleaning == (name,) and again.to_json() == tokenizer.to_json()
    plain = Tokenizer.train([clean], kind, 200)
    assert tokenizer.encode(raw) == again.encode(raw) == tokenizer.encode(clean) and len(tokenizer.words(raw)) == len(
        tokenizer.encode(raw)
    )
    assert plain.encode(raw) != plain.encode(clean) or kind == "word"
    assert tokenizers.Tokenizer.from_str(tokenizer.to_json()).encode(
        raw, add_special_tokens=False
    ).ids == tokenizer.encode(raw)
    assert plain.cleaning_also([name]).encode(raw) == plain.encode(clean)


def test_cleaning_that_does_not_exist():
    with pytest.raises(
        ValueError, match="cleaning must be some of 'invisible', 'html', 'treebank', 'quotes'; got 'xml'"
    ):
        Tokenizer.train([], cleaning=["xml"])


def test_text_that_is_not_unicode():
    tokenizer = Tokenizer.train(["a"])
    for text, message in (
        ("ab\ud800", r"character 3 is half a surrogate pair, \\ud800"),
        ("\udcff", "character 1 is byte 0xff, so it is not UTF-8"),
    ):
        for verb in (tokenizer.encode, tokenizer.words, tokenizer.clean):
            with pytest.raises(ValueError, match=f"the text is not valid Unicode: {message}"):
                verb(text)


@pytest.mark.parametrize(
    "text, plain",
    [
        ("A dog—brown—runs", "A dog - brown - runs"),
        ("1–2 ‘dogs’", "1-2 'dogs'"),
        ("a ﬁne naïve „Škoda“", 'a fine naive "Skoda"'),
        ("\u200eIt\u200c rains\ufe0f\u2066", "It rains"),
        ("schön", "schön"),  # it has this letter
        ("e\u0301", "é"),  # and this one, which may be written in two parts
        ("№ Ａ… ½ x² ①", "No A... ½ x² ①"),  # 1½ is not 11/2
        ("😀 日本", "😀 日本"),
        ("a\u00a0b\tc", "a\u00a0b\tc"),
    ],
)
@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_characters_that_a_vocabulary_lacks_have_plain_forms(kind, text, plain):
    tokenizer = Tokenizer.train(['A fine dog\'s "Skoda" - runs. It is naive, 1/2? No x', "schöne é"], kind, 200)
    assert tokenizer.plain(text) == plain
    assert tokenizer.plain(plain) == plain


def test_characters_that_a_tokenizer_reads_stay():
    """Some are in no entry, as it cleans them or makes others of them."""
    tokenizer = Tokenizer.train(["it's a `` dog ''"], "word_punct", 50, cleaning=["quotes"])
    assert tokenizer.plain("“it’s”") == "“it’s”" and UNK not in tokenizer.encode("“it’s”")
    assert Tokenizer.train(["abc"], "bpe", 50).plain("”—") == "”—", "no form of them is known"
    assert Tokenizer.train(["a x-ray"], "word", 50).plain("a—b") == "a—b", "a hyphen alone is no word"
    assert Tokenizer.train(["old ab"], "bpe", 50, lowercase=True).plain("Ŏld ＡＢ") == "Old AB"
