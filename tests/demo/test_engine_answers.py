"""The answers of the page's engine against Python, for each task."""

import numpy as np
import PIL.Image
import pytest

import zoo.runtime
from zoo.models.key_value_predict_lm import KeyValuePredictLM

pytestmark = pytest.mark.integration  # of exports

TEXTS = [
    "A man plays the guitar in the snow.",
    "Two women are here. A black dog JUMPS OVER IT! people",
    "A BLACK DOG EATS ICE CREAM",
    "ein Hund und eine Katze und der Mann in dem Haus",
    "xyz 123 qqq",
    "1. A man—the ‚ﬁne‘ one—plays\u200e. :) Two dogs",
    "... 😀",
]


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


@pytest.mark.parametrize(
    "text",
    [
        "They don't, it’s $3.50 million",
        "we CAN'T; 'we'll' of £5 (50%) or -3.5% of Corp.'s",
        "companies' cannot “companies” 1,000 5 % they'd've 'they companies'' ... '",
    ],
)
def test_plain_text_is_split_as_in_python(engine, treebank_model, text):
    _, folder = treebank_model
    wanted = zoo.runtime.load(folder).complete(text)
    found = engine.ask("complete", model=str(folder), text=text)
    assert (found["tokens"], found["given"], found["text"]) == (wanted.tokens, wanted.given, wanted.text)


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
        ("The XXXXX didn't buy", ["Rabbit", "rabbit", "Zog"]),
    ]:
        wanted = model.answer(document, query, candidates)
        found = engine.ask("answer", model=str(folder), document=document, query=query, candidates=candidates)
        _agrees(found, wanted)
        assert (found["answer"], found["document"], found["query"]) == (wanted.answer, wanted.document, wanted.query)
        probabilities = {row["word"]: row["probability"] for row in found["probabilities"]}
        assert probabilities == pytest.approx(wanted.probabilities, abs=1e-5)
    with pytest.raises(ValueError, match="the query must have XXXXX in place of the missing word"):
        engine.ask("answer", model=str(folder), document=document, query="no mark", candidates=None)
