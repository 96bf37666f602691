"""The page's engine against Python: tokens, sentences, search, pixels and the answers of all tasks."""

import datetime
import random

import numpy as np
import PIL.Image
import pytest
from exported import SENTENCES
from written_dates import written_dates

import zoo.runtime
from zoo.demo.wrapped import wrapped
from zoo.models.key_value_predict_lm import KeyValuePredictLM
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
    tokenizer = Tokenizer.train([*SENTENCES, "ein Hund und ein Mann"] * 5, "bpe", 300)
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
    found = {text: read_capitals(text, tokenizer) for text in texts}
    assert None in found.values() and sum(read is not None for read in found.values()) > 9
    for text, read in found.items():
        assert engine.ask("capitals", tokenizer=json, text=text) == read, text


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
    dates += [datetime.date(year, 12, 25) for year in (1968, 1969, 2000, 2009, 2068, 2069, 1900, 1906, 999)]
    for date in dates:
        own = [f"{date:%d %b} {date.year % 100:02}", f"{date:%Y%m%d}", ordinal_in_words(date.day).upper()]
        own += [f"the {ordinal_in_words(date.day)} of May {way}" for way in year_in_words(date.year)]
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


# ---- answers ----


def _agrees(found, wanted):
    """Confidence and warnings."""
    assert found["warnings"] == wanted.warnings
    assert found["confidence"] == pytest.approx(wanted.confidence, abs=1e-4)


def _searched(found, wanted, tokens):
    """The best output of a search, with its attention, and the alternatives."""
    assert found["text"] == wanted.text and found["score"] == pytest.approx(wanted.score, abs=1e-4)
    steps = [step for sentence in found.get("sentences", [found]) for step in sentence["hypotheses"][0]["steps"]]
    assert [step["piece"] for step in steps] == tokens
    alternatives = [(one["text"], pytest.approx(one["score"], abs=1e-4)) for one in found["hypotheses"]]
    assert alternatives == wanted.n_best[: len(alternatives)]


TEXTS = [
    "A man plays the guitar in the snow.",
    "Two women are here. A black dog JUMPS OVER IT! people",
    "A BLACK DOG EATS ICE CREAM",
    "ein Hund und eine Katze und der Mann in dem Haus",
    "xyz 123 qqq",
]


def _softmax(scores):
    shares = np.exp(scores - np.max(scores, -1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def test_scores_stand_beside_the_weights_that_are_made_of_them(engine, translator, transformer, predictive_translator):
    def steps(folder, **options):
        found = engine.ask("translate", model=str(folder), text=TEXTS[0], options={"beamSize": 3, **options})
        return found["hypotheses"][0]["steps"]

    for position, step in enumerate(steps(translator[1])):  # local-m: 2 words on either side
        places = np.arange(len(step["scores"]))
        inside = abs(places - min(position, len(places) - 1)) <= 2
        assert np.allclose(step["attention"], _softmax(np.where(inside, step["scores"], -np.inf)), atol=1e-5)
    for step in steps(transformer[1]):
        assert np.allclose(step["heads"], _softmax(step["headScores"]), atol=1e-5) and "scores" not in step
    for step in steps(predictive_translator[1]):
        places, centre = np.arange(len(step["scores"])), step["alignedPosition"]
        inside = abs(places - np.floor(centre)) <= 3
        shares = _softmax(np.where(inside, step["scores"], -np.inf))
        assert np.allclose(step["attention"], shares * np.exp(-2 * (places - centre) ** 2 / 9), atol=1e-5)
    own = steps(translator[1])[0]
    given = [float(n == 3) for n in range(len(own["scores"]))]
    first = steps(translator[1], given=[[0, given]])[0]
    assert first["attention"] == given and first["scores"] == own["scores"]


def test_classifiers_and_language_models_give_scores_too(engine, document_classifier, pair_classifier, language_model):
    def agree(weights, scores):
        assert np.allclose(weights, _softmax(np.array(scores)), atol=1e-5)

    parts = engine.ask("classify", model=str(document_classifier[1]), text=TEXTS[1])["parts"]
    agree([part["weight"] for part in parts], [part["score"] for part in parts])
    for part in parts:
        agree(part["hops"][0], part["scores"][0])
    parts = engine.ask("classify", model=str(pair_classifier[1]), text=TEXTS[0], second=TEXTS[1])["parts"]
    for weights, scores in [pair for part in parts for pair in zip(part["hops"], part["scores"], strict=True)]:
        agree(weights, scores)
    assert len(parts) == 2 and len(parts[1]["scores"]) > 1 and np.ptp(parts[1]["hops"][0]) > 1e-3
    asked = {"model": str(language_model[1]), "text": TEXTS[0]}
    for options in ({}, {"window": 2}):
        seen = engine.ask("score", **asked, options=options)["words"]
        rows = [(word["attention"], word["scores"]) for word in seen]
        found = engine.ask("complete", **asked, options={"maxWords": 3, **options})
        rows += [(step["attention"], step["scores"]) for step in found["hypotheses"][0]["steps"]]
        window = options.get("window", 3)
        for weights, scores in rows[window:]:
            agree(weights[:window], scores[:window])
        assert len(found["scores"]) == len(found["attention"]) and found["scores"][-1] == seen[-2]["scores"]


@pytest.mark.parametrize("kind", ["translator", "transformer", "plain_translator"])
def test_translations_are_those_of_python(engine, kind, request):
    _, folder = request.getfixturevalue(kind)
    model = zoo.runtime.load(folder)
    for text in TEXTS:
        for options in ({}, {"beam_size": 1}, {"beam_size": 4, "n_best": 3, "length_penalty": 0.2}):
            wanted = model.translate(text, **options)
            asked = {"beam_size": "beamSize", "n_best": "nBest", "length_penalty": "lengthPenalty"}
            found = engine.ask(
                "translate", model=str(folder), text=text, options={asked[key]: x for key, x in options.items()}
            )
            assert found["source"] == wanted.source_tokens
            _agrees(found, wanted)
            _searched(found, wanted, wanted.tokens)
            weights = [step["attention"] for step in found["hypotheses"][0]["steps"]]
            if wanted.attention is None:
                assert weights == [None] * len(weights)
            elif len(weights) == len(wanted.attention):
                assert np.allclose(weights, wanted.attention, atol=1e-4)
    empty = engine.ask("translate", model=str(folder), text=" ")
    assert empty["text"] == "" and empty["confidence"] is None and not empty["warnings"]


def test_a_prefix_stays_and_the_rest_is_searched(engine, translator):
    folder = str(translator[1])
    ids = [4, 9, 7]
    found = engine.ask("translate", model=folder, text=TEXTS[0], options={"prefix": ids})
    steps = found["hypotheses"][0]["steps"]
    assert [step["token"] for step in steps[:3]] == ids and len(steps) > 3
    assert found["tree"][0]["token"] == 4 and found["tree"][0]["parent"] is None
    assert all(node["parent"] is None or node["parent"] < n for n, node in enumerate(found["tree"]))


def test_captions_are_those_of_python(engine, captioner, tmp_path):
    _, folder = captioner
    model = zoo.runtime.load(folder)
    rng = np.random.default_rng(0)
    for n, size in enumerate([(40, 30), (16, 50)]):
        image = PIL.Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), np.uint8))
        (tmp_path / str(n)).write_bytes(image.convert("RGBA").tobytes())
        asked = {"path": str(tmp_path / str(n)), "width": size[0], "height": size[1]}
        found, wanted = engine.ask("caption", model=str(folder), **asked), model.caption(image)
        _agrees(found, wanted)
        _searched(found, wanted, wanted.tokens)
        weights = [step["attention"] for step in found["hypotheses"][0]["steps"]]
        assert np.allclose(weights, wanted.attention.reshape(len(weights), -1), atol=1e-4)


def _classified(found, wanted):
    _agrees(found, wanted)
    assert (found["label"], found["labels"]) == (wanted.label, wanted.labels)
    probabilities = {row["label"]: row["probability"] for row in found["probabilities"]}
    assert probabilities == pytest.approx(wanted.probabilities, abs=1e-5)


def test_documents_are_classified_as_in_python(engine, document_classifier):
    _, folder = document_classifier
    model = zoo.runtime.load(folder)
    for text in [*TEXTS, "", "A dog.<br />\n\nRuns there! <b>Two</b> women"]:
        found, wanted = engine.ask("classify", model=str(folder), text=text), model.classify(text)
        _classified(found, wanted)
        assert [part["words"] for part in found["parts"]] == wanted.words
        sentences = [part["weight"] for part in found["parts"]]
        assert sentences == pytest.approx(wanted.sentence_weights.tolist(), abs=1e-5)
        for part, weights in zip(found["parts"], wanted.word_weights, strict=True):
            assert part["hops"] == [pytest.approx(weights.tolist(), abs=1e-5)]


def test_pairs_are_classified_as_in_python(engine, pair_classifier):
    _, folder = pair_classifier
    model = zoo.runtime.load(folder)
    for pair in [(TEXTS[0], TEXTS[1]), ("", "A dog"), (TEXTS[3], TEXTS[4])]:
        wanted = model.classify(pair)
        found = engine.ask("classify", model=str(folder), text=pair[0], second=pair[1])
        _classified(found, wanted)
        assert found["relatedness"] == pytest.approx(wanted.relatedness, abs=1e-4)
        assert [part["words"] for part in found["parts"]] == wanted.tokens
        for part, weights in zip(found["parts"], wanted.attention, strict=True):
            assert np.allclose(part["hops"], weights, atol=1e-5)
    with pytest.raises(ValueError, match="this model reads pairs of texts"):
        engine.ask("classify", model=str(folder), text="one")


def test_texts_are_completed_and_scored_as_in_python(engine, language_model):
    _, folder = language_model
    model = zoo.runtime.load(folder)
    for text in ["", "A man", "two women\na BLACK, dog 12", "people eats ice cream there. " * 30]:
        for options in ({}, {"n_best": 3, "max_words": 6}, {"beam_size": 1, "min_words": 4}):
            wanted = model.complete(text, **options)
            asked = {"n_best": "nBest", "max_words": "maxWords", "beam_size": "beamSize", "min_words": "minWords"}
            found = engine.ask(
                "complete", model=str(folder), text=text, options={asked[key]: x for key, x in options.items()}
            )
            assert (found["text"], found["continuation"]) == (wanted.text, wanted.continuation)
            assert (found["tokens"], found["given"]) == (wanted.tokens, wanted.given)
            assert found["warnings"] == wanted.warnings
            assert [one["text"] for one in found["hypotheses"]] == [other for other, _ in wanted.n_best]
            added = [step["attention"] for step in found["hypotheses"][0]["steps"]]
            assert np.allclose([*found["attention"], *added], wanted.attention, atol=1e-4)
        if text:
            found = engine.ask("score", model=str(folder), text=text)
            assert found["perplexity"] == pytest.approx(model.perplexity(text), rel=1e-4)


@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_window_is_that_of_a_model_that_has_no_larger_one(engine, language_model, window):
    """Its weights have no part that depends on the window, so a model with a smaller one can be made of them."""
    model, folder = language_model
    smaller = KeyValuePredictLM(**{**model.config, "window": window})
    smaller.load_state_dict(model.state_dict())
    smaller.eval().tokenizer = model.tokenizer
    own = model.perplexity("A man plays the guitar there.")
    for text in ["A man plays the guitar there.", "people eats ice cream there. " * 15]:
        wanted = smaller.complete(text, n_best=3, max_words=6)
        asked = {"model": str(folder), "text": text}
        found = engine.ask("complete", **asked, options={"nBest": 3, "maxWords": 6, "window": window})
        assert [one["text"] for one in found["hypotheses"]] == [other for other, _ in wanted.n_best]
        weights = [*found["attention"], *(step["attention"] for step in found["hypotheses"][0]["steps"])]
        assert np.allclose(np.array(weights)[:, :window], wanted.attention, atol=1e-4)
        assert not np.array(weights)[:, window:].any()
        scored = engine.ask("score", **asked, options={"window": window})
        assert scored["perplexity"] == pytest.approx(smaller.perplexity(text), rel=1e-4)
        assert (scored["perplexity"] == pytest.approx(own, rel=1e-4)) == (window == 3 and "man" in text)
    for wrong in (0, 4):
        with pytest.raises(ValueError, match=f"window must be from 1 to 3; got {wrong}"):
            engine.ask("score", model=str(folder), text="A man", options={"window": wrong})


def test_what_is_drawn_depends_on_the_seed_alone(engine, language_model):
    options = {"temperature": 1.0, "nBest": 3, "maxWords": 8}
    first, again, other = (
        [
            one["text"]
            for one in engine.ask(
                "complete", model=str(language_model[1]), text="A man", options={**options, "seed": seed}
            )["hypotheses"]
        ]
        for seed in (1, 1, 2)
    )
    assert first == again != other and len(set(first)) > 1
    greedy = engine.ask("complete", model=str(language_model[1]), text="A man", options={"beamSize": 1, "maxWords": 8})
    coldest = {**options, "temperature": 1e-6, "nBest": 1}
    found = engine.ask("complete", model=str(language_model[1]), text="A man", options=coldest)
    assert found["text"] == greedy["text"]


@pytest.mark.parametrize("kind", ["reader", "excluding_reader"])
def test_questions_are_answered_as_in_python(engine, kind, request):
    _, folder = request.getfixturevalue(kind)
    model = zoo.runtime.load(folder)
    document = '“I know the Rabbit,” said Alice. The Rabbit didn’t buy Ann\'s well-known unicorn, 1,000 zebras or "it".'
    for query, candidates in [
        ("XXXXX said Alice.", None),
        ("The XXXXX didn't buy", ["Rabbit", "unicorn", "zebras"]),
        ("zebras know XXXXX and Ann", ["Alice", "Ann"]),
    ]:
        wanted = model.answer(document, query, candidates)
        found = engine.ask("answer", model=str(folder), document=document, query=query, candidates=candidates)
        _agrees(found, wanted)
        assert (found["answer"], found["document"], found["query"]) == (wanted.answer, wanted.document, wanted.query)
        probabilities = {row["word"]: row["probability"] for row in found["probabilities"]}
        assert probabilities == pytest.approx(wanted.probabilities, abs=1e-5)
    with pytest.raises(ValueError, match="the query must have XXXXX in place of the missing word"):
        engine.ask("answer", model=str(folder), document=document, query="no mark", candidates=None)
