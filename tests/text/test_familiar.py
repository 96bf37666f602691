"""Words that a model knows, the language of a text, and texts in capitals."""

import pytest

from zoo.text import UNK, Tokenizer
from zoo.text.casing import in_capitals, read_capitals
from zoo.text.familiar import _FREQUENT, known_share, language, languages_of, other_language

TEXT = ["a dog runs in the snow", "the man sits on a bench", "Ein Hund und ein Mann"] * 5


@pytest.mark.parametrize(
    "text, loud",
    [
        ("A DOG RUNS", True),
        ("A DOG RUNS IN the snow", False),
        ("THE MAN FROM NASA sits.", True),
        ("The man from NASA sits.", False),
        ("USA", False),  # an abbreviation
        ("I", False),
        ("", False),
        ("1999!", False),
        ("EIN HUND LÄUFT", True),
        ("狗在跑", False),
    ],
)
def test_a_text_in_capitals(text, loud):
    assert in_capitals(text) == loud


def test_capitals_are_read_as_the_vocabulary_has_them():
    tokenizer = Tokenizer.train(TEXT, "bpe", 200)
    assert read_capitals("A DOG RUNS IN THE SNOW", tokenizer) == "A dog runs in the snow"
    assert read_capitals("THE HUND RUNS", tokenizer) == "The Hund runs", "a noun keeps its capital"
    assert read_capitals("A DOG AND I IN THE SNOW", tokenizer) == "A dog and I in the snow", (
        "in English it is never small"
    )
    assert read_capitals('A DOG RUNS IN "THE SNOW"', tokenizer) == 'A dog runs in "the snow"', "nothing is a sign here"
    assert read_capitals("a dog runs", tokenizer) is None
    german = Tokenizer.train(
        ["Der Junge auf der Straße", "der junge Mann", "Eine Katze"] * 9 + ["Junge"] * 9, "bpe", 200
    )
    assert read_capitals("DER JUNGE", german, "de") == "Der Junge", "of two forms as long the more frequent"
    assert read_capitals("AUF DER STRASSE", german, "de") == "Auf der Straße"
    assert read_capitals("DER JUNGE UND EINE KATZE", german, "de") == "Der Junge und eine Katze", "frequent words"
    for word in ("KLASSE", "MESSER", "MUSS", "LASSEN"):
        assert "ß" not in read_capitals(f"DER JUNGE {word}", german, "de"), "no word of the vocabulary"
    loud = Tokenizer.train([text.upper() for text in TEXT], "bpe", 200)
    assert read_capitals("A DOG RUNS", loud) is None, "this model knows capitals"
    assert read_capitals("A DOG RUNS", Tokenizer.train(TEXT, "bpe", 200, lowercase=True)) is None


@pytest.mark.parametrize(
    "text, read",
    [
        ("the DOG runs in the SNOW", "the dog runs in the snow"),
        ("EIN Hund runs", "Ein Hund runs"),
        ("the HUND runs", "the Hund runs"),  # a German noun keeps its capital
        ('a bench, on it "the DOG"', None),  # a sign
        ('"a bench" and the DOG', '"a bench" and the dog'),
        ("a dog from NASA runs", None),  # no better in lower case
        ("A MA runs", None),  # too short
        ("The Dog Runs In The Snow", "The dog runs in the snow"),
        ("The Dog runs in the snow", None),  # no title: it may be a name
        ("A Dog Runs in", None),  # nor this: the first word of a sentence says nothing
        ("Ein Hund und ein Mann", None),
        ("Dog", None),
    ],
)
def test_single_words_in_capitals_and_titles(text, read):
    assert read_capitals(text, Tokenizer.train(TEXT, "bpe", 200)) == read


def test_a_short_abbreviation_does_not_become_a_noun():
    tokenizer = Tokenizer.train(["ein Lkw und ein hut"] * 5, "bpe", 200)
    assert read_capitals("ein LKW und ein mann", tokenizer) is None
    assert read_capitals("ein HUT und ein mann", tokenizer) == "ein hut und ein mann"


def test_words_that_the_vocabulary_has_whole():
    tokenizer = Tokenizer.train(TEXT, "bpe", 200)
    assert known_share(tokenizer.encode("a dog runs"), tokenizer) == 1
    assert known_share([], tokenizer) == 1
    foreign = tokenizer.encode("zzz yxy cyx")
    assert UNK in foreign and known_share(foreign, tokenizer) == pytest.approx(2 / 5), "two known words are added"
    parts = tokenizer.encode("dogs runs")
    assert tokenizer.tokens(parts) == ["dog", "·s", "runs"]
    assert known_share(parts, tokenizer) == pytest.approx(3 / 4), "a word in known parts is not known"
    words = Tokenizer.train(TEXT, "word_punct", 50)
    assert known_share(words.encode("the zebra sits"), words) == pytest.approx((2 + 2) / (3 + 2))
    characters = Tokenizer.train(["abc"], "char", 10)
    assert known_share(characters.encode("abcx"), characters) == pytest.approx(1 - 1 / 6)


@pytest.mark.parametrize(
    "text, code",
    [
        ("Un chien court dans la neige.", "fr"),
        ("The man is in the street.", "en"),
        ("Der Hund läuft auf der Straße.", "de"),
        ("El perro corre por la nieve y no se cansa.", "es"),
        ("De man zit op het strand en eet een appel.", "nl"),
        ("Paris", None),
        ("Que se no.", None),  # as Spanish as Portuguese
        ("Zog Bim the Lop Nuk Ref Gim Sol Vap of Dek Ruk", None),  # two of twelve
        ("", None),
    ],
)
def test_the_language_of_a_text(text, code):
    assert language(text) == code


def test_another_language_is_named_only_if_it_is_clear():
    assert other_language("Un chien court dans la neige.", "en") == "French"
    assert other_language("The dog runs in the snow.", "en") is None
    assert other_language("A man in an old hat was there.", "en") is None, "German has some of these words too"
    assert other_language("Un chien dans the.", "en") is None, "only twice as many words are French"
    assert other_language("Un chien court dans la neige.", "xx") is None


def test_languages_of_a_vocabulary():
    english, german = _FREQUENT["en"], _FREQUENT["de"]
    assert languages_of(Tokenizer.train([english] * 3, "word", 400)) == ["en"]
    assert languages_of(Tokenizer.train([english, german] * 3, "bpe", 2000)) == ["en", "de"]
    assert languages_of(Tokenizer.train(TEXT, "word", 100)) == []
    assert languages_of(Tokenizer.train([english], "char", 100)) == [], "letters tell no language"
