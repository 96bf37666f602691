"""The page's engine against Python: tokens, sentences, search and pixels (its answers: test_engine_answers.py)."""

import datetime
import random

import numpy as np
import PIL.Image
import pytest
from exported import SENTENCES
from written_dates import written_dates

from zoo.demo.wrapped import wrapped
from zoo.runtime.search import search
from zoo.text import Tokenizer
from zoo.text.casing import read_capitals
from zoo.text.dates import ordinal_in_words, tells, year_in_words
from zoo.text.familiar import _FREQUENT, languages_of, other_language
from zoo.text.sentences import split_sentences
from zoo.vision.images import ImageTransform

# Runs of these make texts that no one writes: every kind of character that some step of a tokenizer treats in its own way.
CHARACTERS = (
    "aAbBzZ09 .,!?;:'\"’“”„«»()[]{}<>-_/\\&#*+=|~^`$%@\n\t\u00a0\u2009\u3000\u200b\ufeff\u00ad\u0301\x1c\x85"
    "\u0130ßẞéÉαΣς日本語한글🎉ǆŉﬁ½²Ⅷ٣\u2e43▁·ſ\u212a"
)
FRAGMENTS = [
    *("can't", "cannot", "CANNOT", "Don't", "don’t", "I'LL", "n't", "'s", "3.50", "1,000", "U.S.", "e.g.", "..."),
    *("<br />", "</p>", "&amp;amp;", "&quot;", "-LRB-", "``", "''", "</s>", "<unk>", "@entity1", "\\/", "man", "snow"),
]


def odd_texts(count, seed=0):
    generator = random.Random(seed)
    for _ in range(count):
        pieces = generator.choices([*CHARACTERS, *FRAGMENTS], k=generator.randrange(20))
        yield "".join(pieces)


@pytest.mark.parametrize("cleaning", [(), ("invisible", "html", "treebank", "quotes")], ids=["plain", "cleaned"])
@pytest.mark.parametrize("kind", ["bpe", "word", "char", "word_punct"])
def test_its_tokens_are_those_of_python(engine, kind, cleaning):
    training = [*SENTENCES, *odd_texts(40, seed=1)]
    tokenizer = Tokenizer.train(training, kind, 300, lowercase=kind == "word_punct", cleaning=cleaning)
    json = tokenizer.to_json()
    for text in ["", *SENTENCES[:5], *odd_texts(120)]:
        ids = tokenizer.encode(text)
        expected = {"ids": ids, "words": tokenizer.words(text), "tokens": tokenizer.tokens(ids)}
        found = engine.ask("encode", tokenizer=json, text=text)
        assert found == {**expected, "decoded": tokenizer.decode(ids)}, repr(text)


def test_words_added_to_a_tokenizer_are_whole(engine):
    tokenizer = Tokenizer.train(SENTENCES, "bpe", 120).extended(["Nebuchadnezzar"])
    found = engine.ask("encode", tokenizer=tokenizer.to_json(), text="A Nebuchadnezzar runs.")
    assert found["ids"] == tokenizer.encode("A Nebuchadnezzar runs.") and "Nebuchadnezzar" in found["tokens"]


def test_half_a_character_is_refused(engine):
    tokenizer = Tokenizer.train(SENTENCES, "char")
    with pytest.raises(ValueError, match="the text is not valid Unicode"):
        engine.ask("encode", tokenizer=tokenizer.to_json(), text="a\ud800b")


def test_its_sentences_are_those_of_python(engine):
    texts = [
        "It rains. I stay here! Do you? Yes",
        "The U.S. Army came at 3 p.m. on Jan. 5. J. R. R. Tolkien met Dr. Smith.",
        'He said: "Go away. Now!" Then he left...\n\nA new paragraph without end\nwrapped once',
        "kleine Sätze. ohne Großbuchstaben.Und ohne Leerzeichen. Am 3. Oktober ist frei. z. B. heute.",
        "a ( b. c ) d. 1. one 2. two. Who? 'Me.' \u3000 wide. \x1c next.",
        ("A sentence of some words. " * 900) + "x" * 21_000 + " end. " + "word " * 5_000,
        *odd_texts(100, seed=2),
    ]
    for text in texts:
        for language in ("en", "de"):
            assert engine.ask("sentences", text=text, language=language) == split_sentences(text, language), repr(text)


def test_it_tells_languages_as_python_does(engine):
    texts = [*_FREQUENT.values(), "the dog und der Hund", "Hello", "", "le the la a les an"]
    for text in texts:
        for expected in ("en", "de", "ja"):
            assert engine.ask("language", text=text, expected=expected) == other_language(text, expected)


def test_it_reads_capitals_as_python_does(engine):
    tokenizer = Tokenizer.train([*SENTENCES, "ein Hund und ein Mann auf der Straße"] * 5, "bpe", 300)
    json, generator = tokenizer.to_json(), random.Random(0)
    ways = [str, str.upper, str.title, str.lower, str.capitalize]
    texts = [
        "ein HUND",
        "A Man Plays The Guitar",
        "a MAN in the SNOW",
        "a BMX",
        "I",
        "",
        'a sign: "the SNOW" and the SNOW',
        "«a MAN» in the SNOW",
        *odd_texts(60, seed=4),
    ]
    texts += [" ".join(generator.choice(ways)(word) for word in text.split()) for text in SENTENCES for _ in range(4)]
    texts += [way(text) for text in SENTENCES[:5] for way in ways]
    german = ["EIN HUND", "STRASSE UND EIN MANN", "EIN MANN IM SCHNEE", "DIE KATZE ISST EIS AUF DER STRASSE"]
    for text in [*texts, *german]:
        found = engine.ask("capitals", tokenizer=json, text=text, language="de")
        assert found == read_capitals(text, tokenizer, "de"), text
    found = {text: read_capitals(text, tokenizer) for text in texts}
    assert None in found.values() and sum(read is not None for read in found.values()) > 9
    for text, read in found.items():
        assert engine.ask("capitals", tokenizer=json, text=text) == read, text


@pytest.mark.parametrize("kind", ["bpe", "word", "char", "word_punct"])
def test_its_plain_forms_are_those_of_python(engine, kind):
    tokenizer = Tokenizer.train([*SENTENCES, "a 1/2 - “b” 'c'"], kind, 300)
    json = tokenizer.to_json()
    marks = (
        "".join(map(chr, range(0x20, 0x2FF))) + "".join(map(chr, range(0x2000, 0x2190))) + "ﬁﬀ㎞Łŏọ①Ａ日\ufe0f\u2066"
    )
    texts = [*marks, marks, "A dog—brown—runs", "e\u0301 e\u0328", *odd_texts(60, seed=6)]
    assert sum(tokenizer.plain(text) != text for text in texts) > 40
    for text in texts:
        assert engine.ask("plain", tokenizer=json, text=text) == tokenizer.plain(text), repr(text)


def test_a_sigma_at_the_end_of_a_word_is_read_as_in_python(engine):
    tokenizer = Tokenizer.train(["ας Ας ως Ως η γάτα τρέχει"], "word", 100)
    for text in ("ΑΣ ΤΡΈΧΕΙ Η ΓΆΤΑ", "ΩΣ ΓΆΤΑ", "Η ΓΆΤΑ ΤΡΈΧΕΙ ΩΣ"):
        read = read_capitals(text, tokenizer)
        assert read is not None and "ς" in read
        assert engine.ask("capitals", tokenizer=tokenizer.to_json(), text=text) == read


def test_it_tells_the_languages_of_a_vocabulary_as_python_does(engine):
    english, german = _FREQUENT["en"], _FREQUENT["de"]
    for texts, kind in (([english], "word"), ([english, german], "bpe"), ([english], "char"), (SENTENCES, "word")):
        tokenizer = Tokenizer.train(texts * 3, kind, 2000)
        assert engine.ask("languages", tokenizer=tokenizer.to_json()) == languages_of(tokenizer)


def test_it_finds_dates_in_texts_as_python_does(engine):
    generator = random.Random(0)
    texts = [text for text, _ in written_dates()]
    dates = [datetime.date.fromisoformat(answer) for _, answer in written_dates() if answer]
    dates += [datetime.date(generator.randrange(1, 3100), 1 + day % 12, 1 + day % 28) for day in range(60)]
    dates += [datetime.date(year, 12, 25) for year in (1968, 1969, 2000, 2009, 2068, 2069, 1900, 1906, 1960, 999)]
    for date in dates:
        own = [f"{date:%d %b} {date.year % 100:02}", f"{date:%Y%m%d}", ordinal_in_words(date.day).upper()]
        own += [f"the {ordinal_in_words(date.day)} of May {way}" for way in year_in_words(date.year)]
        own += [
            f"twenty {ordinal_in_words(date.day)} {way}{more}"
            for way in year_in_words(date.year)
            for more in (" six", ", six")
        ]
        name = f"{date:%B}"
        slips = [name[:-2] + name[-1], name[0] + name[1] + name[1:], name[:2] + name[3:1:-1] + name[4:], "Mai", "Mpy"]
        own += [f"{date.day}th{slip} {date.year}" for slip in slips]
        own += [f"{date.day} {name} {date.year} {more}" for more in ("BC", "b.c.", "bcd")]
        own += [f"2nd Sunday of {name} {date.year}", f"second Sunday, {name} {date.year}"]
        for text in [*own, *generator.sample(texts, 6), *odd_texts(1, seed=date.day)]:
            found = engine.ask("tells", text=text, date=[date.year, date.month, date.day])
            assert found == tells(text, date), (text, date)


@pytest.mark.parametrize("content", [b"", b"*/", b"/*/**//*//", bytes(range(256)) * 3, b"*/" * 40_000 + b"*"])
def test_it_takes_files_out_of_scripts(engine, content):
    script = wrapped("a", content)
    for size in (1, 7, 65536) if len(script) < 2000 else (65536,):
        found = engine.ask("unwrap", script=list(script), size=size)
        assert bytes(found) == content


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("settings", [(1, 1, 0.0, 0), (3, 1, 1.0, 0), (5, 5, 0.6, 3), (4, 2, 2.0, 0)])
def test_its_search_is_that_of_python(engine, settings, ties):
    beam_size, n_best, length_penalty, min_length = settings
    for seed in range(4):
        rng = np.random.default_rng(seed)
        logits = rng.normal(size=(9, 8, 8))
        logits = np.sign(logits) if ties else logits * 2
        logits[:, :, 3] -= seed  # the larger, the longer the outputs
        table = (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)

        def step(tokens, state, memory, t, table=table):
            return table[t, tokens], state, None

        wanted = search(
            step,
            {"none": np.zeros((1, 1, 1), np.float32)},
            {},
            beam_size=beam_size,
            n_best=n_best,
            length_penalty=length_penalty,
            min_length=min_length,
            max_length=9,
            forbid=[1],
        )
        options = {"beamSize": beam_size, "nBest": n_best, "lengthPenalty": length_penalty, "minLength": min_length}
        asked = {**options, "maxLength": 9, "forbid": [1]}
        found = engine.ask("search", table=table.tolist(), settings=asked)["hypotheses"]
        lengths = wanted.lengths[0].tolist()
        tokens = [wanted.tokens[0, n, :length].tolist() for n, length in enumerate(lengths) if length]
        assert [[step["token"] for step in one["steps"]] for one in found] == tokens
        assert [np.float32(one["score"]) for one in found] == wanted.scores[0, : len(tokens)].tolist()


@pytest.mark.parametrize("resize", ["squash", "crop"])
@pytest.mark.parametrize("size", [(61, 40), (9, 30), (30, 70), (24, 24), (200, 24), (24, 7)])
def test_its_pixels_are_those_of_pillow(engine, tmp_path, size, resize):
    if PIL.__version__ < "13" and resize == "squash" and size in [(9, 30), (30, 70)]:
        pytest.skip("this Pillow rounds between the directions in the other order")
    rng = np.random.default_rng(0)
    image = PIL.Image.fromarray(rng.integers(0, 256, (size[1], size[0], 4), np.uint8))
    expected = ImageTransform(24, resize).array(image)
    (tmp_path / "pixels").write_bytes(image.tobytes())
    asked = {"path": str(tmp_path / "pixels"), "width": size[0], "height": size[1]}
    found = engine.ask("pixels", transform={"size": 24, "resize": resize}, **asked)
    assert np.array_equal(np.reshape(found, (3, 24, 24)), expected)
