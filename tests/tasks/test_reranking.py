"""Re-ranking: the n-gram model against its definition, the features, the learnt weights, and answers that change."""

import math
import unicodedata
from dataclasses import replace

import pytest
import torch

from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.results import Reading
from zoo.tasks.reranking import FEATURES, NGramModel, Reranker, _clusters, learn_weights
from zoo.text import Tokenizer
from zoo.text.words import BLANK

TEXTS = ["the cat sat on the mat .", "a dog sat on a cat .", "the dog ran to the cat .", "a man sat on the mat ."]
STORY = "the dog saw the cat . the cat sat on the mat . a man ran ."


def reader():
    torch.manual_seed(0)
    model = AttentionOverAttentionReader(**{**AttentionOverAttentionReader.tiny, "vocab_size": 30}).eval()
    model.tokenizer = Tokenizer.train([*TEXTS, STORY], "word", 30)
    return model


@pytest.fixture
def reranker():
    questions = [
        (STORY, f"the cat sat on the {BLANK} .", None, "mat"),
        (STORY, f"a {BLANK} ran .", ["man", "cat", "mat"], "man"),
    ]
    return Reranker.fit(reader(), TEXTS, questions, n_best=12, num_classes=4)


# ---- n-grams ----


def kneser_ney(symbol, history, texts, order, discount, top=True):
    """P(symbol | history) by its definition, from the texts themselves."""
    size = len(history) + 1
    padded = [[None] * (order - 1) + list(text) for text in texts]
    grams = [tuple(text[n - size + 1 : n + 1]) for text in padded for n in range(order - 1, len(text))]
    longer = (
        {tuple(text[n - size : n + 1]) for text in padded for n in range(order - 1, len(text))} if not top else set()
    )
    words = {gram[-1] for gram in grams}

    def count(gram):
        return grams.count(gram) if top else sum(other[1:] == gram for other in longer)

    lower = kneser_ney(symbol, history[1:], texts, order, discount, False) if history else 1 / (len(words) + 1)
    total = sum(count((*history, word)) for word in words)
    if not total:
        return lower
    kinds = sum(count((*history, word)) > 0 for word in words)
    return max(count((*history, symbol)) - discount, 0) / total + discount * kinds / total * lower


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_are_those_of_the_definition_and_sum_to_one(order):
    texts = [text.split() for text in TEXTS]
    model = NGramModel(texts, order)
    words = sorted({word for text in texts for word in text})
    histories = [
        [],
        ["the"],
        ["on", "the"],
        ["sat", "on", "the"],
        ["never", "seen", "dog"],
        [None, None, None],
        [None, None, "a"],
    ]
    for history in histories:
        history = history[len(history) - order + 1 :] if order > 1 else []
        if len(history) == order - 1:
            for word in [*words, "unknown"]:
                want = kneser_ney(word, history, texts, order, 0.75)
                assert model.probability(word, history) == pytest.approx(want, rel=1e-12), (word, history)
        assert sum(model.probability(word, history) for word in [*words, "unknown"]) == pytest.approx(1, rel=1e-12)


def test_the_log_probability_of_a_text_is_the_sum_over_its_words():
    model = NGramModel([text.split() for text in TEXTS], 3)
    want = math.log(model.probability("the", [None, None])) + math.log(model.probability("cat", [None, "the"]))
    want += math.log(model.probability("ran", ["the", "cat"]))
    assert model.log_probability(["the", "cat", "ran"]) == pytest.approx(want)
    assert model.log_probability(["the", "cat", "sat"]) > model.log_probability(["cat", "the", "sat"])
    assert NGramModel([], 2).log_probability(["a"]) == 0  # the only symbol that can be


# ---- features and weights ----


def test_features_are_of_the_filled_query(reranker):
    reading = reranker.reader.answer(STORY, f"the cat sat on the {BLANK} .")
    features = reranker.features(reading, ["mat", "dog"])
    for row, word in zip(features, ["mat", "dog"]):
        filled = f"the cat sat on the {word} .".split()
        assert row[0] == pytest.approx(math.log(reading.probabilities[word]))
        assert row[1] == pytest.approx(NGramModel([text.split() for text in TEXTS]).log_probability(filled))
        assert row[2] == pytest.approx(NGramModel([STORY.split()]).log_probability(filled))
    classes = [[reranker.classes[i] for i in reranker.reader.tokenizer.encode(text)] for text in TEXTS]
    filled = [reranker.classes[i] for i in reranker.reader.tokenizer.encode("the cat sat on the mat .")]
    assert features[0, 3] == pytest.approx(NGramModel(classes).log_probability(filled))
    assert features[0, 1] > features[1, 1] and features[0, 2] > features[1, 2]


def test_the_weights_are_where_the_penalised_likelihood_is_highest():
    generator = torch.Generator().manual_seed(0)
    true = torch.tensor([1.0, -0.5, 2.0, 0.0], dtype=torch.float64)
    found = []
    for _ in range(400):
        features = torch.randn(5, 4, generator=generator, dtype=torch.float64)
        found.append((features, int(torch.multinomial((features @ true).softmax(0), 1, generator=generator))))
    weights = learn_weights(found)
    torch.testing.assert_close(weights, true, rtol=0, atol=0.3)
    slope = sum(features[right] - (features @ weights).softmax(0) @ features for features, right in found) / len(found)
    torch.testing.assert_close(slope, 2e-3 * weights, rtol=1e-4, atol=1e-6)


def test_clusters_are_of_vectors_that_lie_together():
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    vectors = centres.repeat(5, 1) + 0.1 * torch.randn(15, 2, generator=torch.Generator().manual_seed(0))
    found = _clusters(vectors, 15)
    assert found.shape == (15,) and len(set(zip(found.tolist(), [0, 1, 2] * 5))) == len(
        set(found.tolist())
    )  # none mixes two
    assert torch.equal(_clusters(vectors, 1), torch.zeros(15, dtype=torch.long)) and len(_clusters(vectors, 99)) == 15


# ---- answers ----


def test_answers_change_and_the_rest_of_the_reading_stays(reranker):
    query = f"the cat sat on the {BLANK} ."
    plain, found = reranker.reader.answer(STORY, query), reranker.answer(STORY, query)
    assert isinstance(found, Reading) and found.answer == "mat" != plain.answer
    assert max(found.probabilities, key=found.probabilities.__getitem__) == "mat"
    assert sum(found.probabilities.values()) == pytest.approx(sum(plain.probabilities.values()))
    assert found.document == plain.document and torch.equal(found.weights, plain.weights)
    both = reranker.answer(STORY, [query, f"a {BLANK} ran ."], [None, ["man", "cat", "mat"]])
    assert [reading.answer for reading in both] == ["mat", "man"]
    assert [*both[1].probabilities] == ["man", "cat", "mat"]  # in the order given


def test_with_the_weight_of_the_reader_alone_nothing_changes(reranker):
    alone = Reranker(
        reranker.reader,
        3,
        reranker.global_model,
        reranker.class_model,
        reranker.classes,
        {**dict.fromkeys(FEATURES, 0.0), "reader": 1.0},
    )
    query = f"the cat sat on the {BLANK} ."
    plain, found = alone.reader.answer(STORY, query), alone.answer(STORY, query)
    assert found.answer == plain.answer and found.probabilities == pytest.approx(plain.probabilities, rel=1e-6)


def test_no_answer_that_the_reader_rules_out(reranker):
    story, query = "the cat sat on the mat . the cat sat .", f"a {BLANK} ran ."
    found = reranker.answer(story, query, ["cat", "man"])  # "a man ran" is what the n-grams would like best
    assert (found.answer, found.probabilities["man"]) == ("cat", 0) and "never the answer: man" in found.warnings[0]
    shy = reader()
    shy.config["exclude_query_words"] = True
    for asked in (f"a {BLANK} ran to the man .", f"the {BLANK} ran to the cat . man mat"):
        found = replace(reranker, reader=shy).answer(STORY, asked)
        assert found.answer not in asked.split()
        assert all(found.probabilities[word] == 0 for word in asked.split() if word in found.probabilities)


def test_a_reading_after_re_ranking_is_like_one_of_a_reader_without_a_calibration(reranker):
    query = f"the cat sat on the {BLANK} ."
    plain = replace(reranker.reader.answer(STORY, query), confidence=0.1, warnings=["low confidence (0.10)", "short"])
    found = reranker.rerank(plain)
    assert found.answer != plain.answer and found.confidence is None and found.warnings == ["short"]
    assert [*found.probabilities.values()] == sorted(found.probabilities.values(), reverse=True)  # of all words


def test_the_right_answer_is_found_however_its_accents_are_written():
    model, texts, story = reader(), *([text.replace("mat", "café") for text in each] for each in (TEXTS, [STORY]))
    model.tokenizer = Tokenizer.train([*texts, *story], "word", 30)
    weights = [
        Reranker.fit(
            model, texts, [(story[0], f"on the {BLANK} .", None, unicodedata.normalize(form, "café"))], n_best=12
        ).weights
        for form in ("NFC", "NFD")
    ]
    assert weights[0] == weights[1]


def test_only_the_n_best_are_ranked_again(reranker):
    one = Reranker(reranker.reader, 1, reranker.global_model, reranker.class_model, reranker.classes, reranker.weights)
    query = f"the cat sat on the {BLANK} ."
    assert one.answer(STORY, query).answer == one.reader.answer(STORY, query).answer


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_best": 0}, "n_best must be at least 1; got 0"),
        ({"order": 0}, "order must be at least 1; got 0"),
        ({"num_classes": -1}, "num_classes must be at least 1; got -1"),
        ({"texts": []}, "the n-gram models need texts with words; got none"),
        ({"questions": []}, "none of 0 questions has its answer among the 5 best; give more, or a larger n_best"),
        (
            {"questions": [(STORY, f"a {BLANK} .", None, "zebra")]},
            "none of 1 questions has its answer among the 5 best",
        ),
    ],
)
def test_mistakes(options, message):
    given = {"texts": TEXTS, "questions": [(STORY, f"a {BLANK} ran .", None, "man")], **options}
    with pytest.raises(ValueError, match=message):
        Reranker.fit(reader(), **given)
    with pytest.raises(ValueError, match="order must be at least 1; got 0"):
        NGramModel([], 0)
    for discount in (0, 1.5):
        with pytest.raises(ValueError, match=f"discount must be above 0 and at most 1; got {discount}"):
            NGramModel([], discount=discount)
