"""Plain text for language models: contractions and amounts as the Penn Treebank has them."""

import pytest

import zoo
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.text import UNK, Tokenizer
from zoo.text.penn import treebank_words

TREEBANK = "they do n't ca wo it 's we 'll 've 'd # $ N million companies ' can not of corp. us$ o'clock"


@pytest.mark.parametrize(
    "plain, split",
    [
        ("don't", "do n't"),
        ("can't", "ca n't"),
        ("won't", "wo n't"),
        ("DON’T", "DO N'T"),
        ("it's", "it 's"),
        ("“It’s”", "It 's"),
        ("we'll,", "we 'll"),
        ("he'd've", "he 'd 've"),
        ("shouldn't've", "should n't 've"),
        ("cannot", "can not"),
        ("companies'", "companies '"),
        ("'don't'", "do n't"),
        ("don't'", "do n't"),
        ("'quoted", "quoted"),
        ("Corp.'s", "Corp. 's"),
        ("$3.50", "$ 3.50"),
        ("US$1,000.", "US$ 1,000"),
        ("£3", "# 3"),
        ("(50%)", "50 %"),
        ("-3.5%", "-3.5 %"),
        ("$5%", "$ 5 %"),
        ("o'clock", "o'clock"),
        ("rock'n'roll", "rock'n'roll"),
        ("$", "$"),
        ("50-year", "50-year"),
        ("well", "well"),
        ("...", ""),
    ],
)
def test_words_of_the_treebank(plain, split):
    assert " ".join(treebank_words(plain)) == split


@pytest.fixture
def model():
    tokenizer = Tokenizer.train([TREEBANK], "word")
    made = KeyValuePredictLM(**{**KeyValuePredictLM.tiny, "vocab_size": len(tokenizer)}).eval()
    made.tokenizer = tokenizer
    return made


@pytest.mark.parametrize(
    "plain, split",
    [
        ("They don't, it's $3.50", "they do n't it 's $ N"),
        ("we can’t of £5 million", "we ca n't of # N million"),
        ("50% of companies' Corp.'s", "N N of companies ' corp. 's"),
        ("5 % of", "N N of"),
        ("companies cannot 12 o'clock", "companies can not N o'clock"),
        ("they wouldn't", "they xyz n't"),
    ],
)
def test_a_model_of_the_treebank_reads_plain_text(model, plain, split):
    assert model._encode(plain) == model._encode(split)
    assert model._encode(plain).count(UNK) == split.count("xyz")
    assert model.perplexity(plain) == pytest.approx(model.perplexity(split), rel=1e-5)
    assert model.complete(plain).tokens[: len(split.split())] == model.vocabulary.tokens(model._encode(split)[:-1])
    assert model.complete(plain).text.startswith(plain)


def test_a_percent_sign_that_is_in_the_vocabulary_stays(model):
    model.tokenizer = Tokenizer.train([f"{TREEBANK} %"], "word")
    assert model._encode("50%") == model._encode("N %")


def test_other_vocabularies_are_not_split(model):
    model.tokenizer = Tokenizer.train(["they do it 's N $"], "word")  # without n't
    assert model._encode("it's $3")[:-1] == [UNK, UNK]


def test_the_shipped_model():
    model = zoo.load("key_value_predict.ptb")
    plain = "They don't know that it's $3.50, up 50% from last year's."
    assert model._encode(plain) == model._encode("they do n't know that it 's $ N up N N from last year 's")
