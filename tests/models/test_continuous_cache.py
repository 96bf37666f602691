"""Language models with a continuous cache: perplexity, testing, completing, the command line, mistakes."""

import math

import lightning.pytorch as pl
import pytest
import torch
import yaml

import zoo
from zoo.batches.language_modelling import LMBatch
from zoo.cli import main
from zoo.data import PlainText
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.lstmn import LSTMNLM
from zoo.models.pointer_sentinel_lm import PointerSentinelLM
from zoo.text import BOS, EOS, PAD, UNK, Tokenizer

exactly = pytest.mark.usefixtures("float64")

LINES = ["the cat sat on the mat", "a dog sat on a cat", "the dog ran", "a cat ran on and on and on"] * 3
TEXT = "\n".join(LINES)
CACHE = zoo.ContinuousCache(size=9, theta=0.7, share=0.3, half_life=None)
FADING = zoo.ContinuousCache(size=9, theta=0.7, share=0.3, half_life=2.5)
QUIET = dict(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
MODELS = {
    "key_value_predict": (KeyValuePredictLM, {"window": 3}),
    "none": (KeyValuePredictLM, {"attention": "none"}),
    "lstmn": (LSTMNLM, {"window": 3}),
    "pointer_sentinel": (PointerSentinelLM, {"window": 3}),
}


@pytest.fixture(params=MODELS)
def model(request):
    return build(request.param)


def build(name="key_value_predict"):
    cls, options = MODELS[name]
    torch.manual_seed(0)
    model = cls(**{**cls.tiny, "vocab_size": 14, **options}).eval()
    for p in model.parameters():  # large weights, so that a difference shows
        p.data.mul_(2)
    model.tokenizer = Tokenizer.train(LINES, "word", 14)
    return model


def read(model, ids):
    """Readouts (T, D) and probabilities (T, V) of the words after each of ids."""
    readouts, _, _ = model.read(torch.tensor([ids]), model.start(1))
    return readouts[0], model(torch.tensor([ids]))[0][0].softmax(-1)


def by_loop(model, ids, cache):
    """Probabilities of the word after the last of ids (V,), from the paper."""
    readouts, probabilities = read(model, ids)
    now, weights = len(ids) - 1, {}
    for i in range(max(0, now - cache.size), now):
        age = 0.5 ** ((now - i) / cache.half_life) if cache.half_life else 1
        weights[i] = math.exp(cache.theta * float(readouts[now] @ readouts[i])) * age
    found = probabilities[now]
    if weights:
        found = (1 - cache.share) * found
        for i, weight in weights.items():
            found[ids[i + 1]] += cache.share * weight / sum(weights.values())
    return found


def ids_of(model, text):
    return [EOS, *(i for line in text.split("\n") for i in [*model.tokenizer.encode(line), EOS])]


@torch.no_grad()
def perplexity_by_loop(model, text, cache):
    ids = ids_of(model, text)
    losses = [-by_loop(model, ids[:n], cache)[ids[n]].log().item() for n in range(1, len(ids))]
    return math.exp(sum(losses) / len(losses))


@exactly
@pytest.mark.parametrize("cache", [CACHE, FADING])
def test_perplexity_is_that_of_the_paper(model, cache, monkeypatch):
    monkeypatch.setattr("zoo.tasks.language_modelling.STEPS_AT_ONCE", 4)
    model = model.double()
    texts = ["\n".join(LINES[:4]), "the cat", "", "a dog sat\na dog ran"]
    found = model.perplexity(texts, batch_size=3, cache=cache)
    for text, value in zip(texts, found, strict=True):
        if text:
            assert value == pytest.approx(perplexity_by_loop(model, text, cache), rel=1e-9)
            assert value == pytest.approx(model.perplexity(text, cache=cache), rel=1e-9)
            assert value != pytest.approx(model.perplexity(text), rel=1e-3)
        else:
            assert math.isnan(value)


def test_without_a_share_it_is_the_model(model):
    assert model.perplexity(TEXT, cache=zoo.ContinuousCache(share=0.0)) == pytest.approx(
        model.perplexity(TEXT), rel=1e-6
    )


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "text.txt"
    file.write_text("".join(f"{line}\n" for line in LINES))
    return lambda **options: PlainText(str(file), str(file), str(file), **{"tokenizer": "word", **options})


def test_testing_gives_both_perplexities_of_the_text(corpus, model):
    """Whatever the batches are: the cache goes from one to the next, and each stream has its own."""
    model.cache, found = CACHE, []
    for segment in (3, 500):
        trainer = pl.Trainer(**QUIET)
        data = corpus(segment=segment, val_streams=2)
        (test,) = trainer.test(model, datamodule=data, verbose=False)
        (val,) = trainer.validate(model, datamodule=data, verbose=False)
        found.append(val["val/perplexity_with_cache"])
        assert test["test/perplexity_with_cache"] == pytest.approx(model.perplexity(TEXT, cache=CACHE), rel=1e-5)
        assert test["test/perplexity"] == pytest.approx(model.perplexity(TEXT), rel=1e-5)
        assert math.log(test["test/perplexity"]) == pytest.approx(test["test/loss"], rel=1e-5)
    assert found[0] == pytest.approx(found[1], rel=1e-5) != pytest.approx(test["test/perplexity_with_cache"], rel=1e-5)
    model.cache = None
    assert "test/perplexity_with_cache" not in pl.Trainer(**QUIET).test(model, datamodule=data, verbose=False)[0]


def test_the_cache_begins_again_with_a_text():
    model, batch = build(), LMBatch(torch.tensor([[EOS, 4, 5, 6, 4, 5]]), torch.tensor([[4, 5, 6, 4, 5, 6]]), True)
    model.cache, totals = CACHE, []
    model.on_validation_epoch_start()
    for first in (True, False, True):
        model._measure(batch._replace(first=first))
        totals.append(model._sums()[2])
    assert totals[2] - totals[1] == pytest.approx(totals[0], rel=1e-6) != pytest.approx(totals[1] - totals[0], rel=1e-3)


@torch.no_grad()
def test_it_learns_nothing_from_words_that_come_later():
    """Changing the end of a text changes nothing before: the loss of a beginning is that of the beginning alone."""
    model, ids = build(), ids_of(build(), TEXT)
    whole = model.total_losses([ids[:20]], CACHE)[0]
    for end in ([], [4], [9, 9, 9, 9, 9]):
        losses = [model.total_losses([row], CACHE)[0] for row in (ids[:20] + end, ids[:20])]
        alone = [
            -math.log(by_loop(model, (ids[:20] + end)[:n], CACHE)[(ids[:20] + end)[n]])
            for n in range(20, 20 + len(end))
        ]
        assert losses[0] - losses[1] == pytest.approx(sum(alone), abs=1e-4) and losses[1] == pytest.approx(whole)


@torch.no_grad()
@pytest.mark.parametrize("cache", [CACHE, FADING])
def test_a_completion_is_the_most_probable_word_again_and_again(model, cache):
    model = model.double()
    text = "the cat sat on the mat\nthe cat"
    found = model.complete(text, max_words=8, beam_size=1, allow_unk=True, cache=cache)
    row, log_prob = ids_of(model, text)[:-1], 0.0
    given = len(row)
    for n in range(8):
        of_all = by_loop(model, row, cache)
        allowed = of_all.clone()
        allowed[[PAD, BOS, *([EOS] if n == 0 else []), *range(len(model.tokenizer), 14)]] = 0  # min_words is 1
        row.append(int(allowed.argmax()))
        log_prob += of_all[row[-1]].log().item()
        if row[-1] == EOS:
            break
    assert found.tokens == model.tokenizer.tokens(row[1:]) and len(row) > given + 1
    assert found.score == pytest.approx(log_prob / ((5 + len(row) - given) / 6), rel=1e-5)


def test_completions_with_a_cache_do_not_depend_on_their_neighbours(model, monkeypatch):
    monkeypatch.setattr("zoo.tasks.language_modelling.STEPS_AT_ONCE", 3)
    texts = ["the cat sat on the mat and", "", "the dog ran\na", "cat"]
    options = dict(n_best=2, beam_size=3, max_words=5, cache=CACHE)
    for text, found in zip(texts, model.complete(texts, batch_size=4, **options), strict=True):
        alone = model.complete(text, **options)
        assert alone.tokens == found.tokens and UNK not in model.tokenizer.encode(found.continuation)
        assert [s for _, s in alone.n_best] == pytest.approx([s for _, s in found.n_best], rel=1e-4)


def test_a_text_that_repeats_itself_is_more_probable_with_a_cache():
    model, odd = build("none"), "mat mat mat mat mat mat mat mat"
    assert model.perplexity(odd, cache=CACHE) < model.perplexity(odd)
    most = zoo.ContinuousCache(theta=0.0, share=0.99)
    assert model.complete(odd, max_words=3, min_words=3, beam_size=1, cache=most).continuation == "mat mat mat"


def test_with_a_very_long_half_life_it_is_the_cache_of_the_paper(model):
    long = zoo.ContinuousCache(size=9, theta=0.7, share=0.3, half_life=1e9)
    assert model.perplexity(TEXT, cache=long) == pytest.approx(model.perplexity(TEXT, cache=CACHE), rel=1e-6)
    assert model.perplexity(TEXT, cache=FADING) != pytest.approx(model.perplexity(TEXT, cache=CACHE), rel=1e-4)


def test_bf16_is_near():
    model = build()
    exact = model.perplexity(TEXT, cache=CACHE)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.perplexity(TEXT, cache=CACHE) == pytest.approx(exact, rel=0.03)


def test_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    model = build()
    model.save_pretrained("weights")
    (tmp_path / "text.txt").write_text(TEXT)
    recipe = {
        "trainer": {"accelerator": "cpu"},
        "model": {"class_path": "zoo.models.key_value_predict_lm.KeyValuePredictLM", "init_args": {"vocab_size": 14}},
        "data": {"class_path": "zoo.data.PlainText", "init_args": dict.fromkeys(("train", "test"), "text.txt")},
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    command = ["test", "--config", "tiny.yaml", "--weights", "local-dir:weights"]
    chosen = [*command, "--cache.size", "9", "--cache.theta", "0.7", "--cache.share", "0.3"]
    for half_life, cache in (("null", CACHE), ("2.5", FADING)):
        assert main([*chosen, "--cache.half_life", half_life]) == 0
        lines = capsys.readouterr().out.splitlines()
        found = dict(line.split() for line in lines if line.startswith("  test/perplexity"))
        assert float(found["test/perplexity"]) == pytest.approx(model.perplexity(TEXT), abs=1e-4)
        assert float(found["test/perplexity_with_cache"]) == pytest.approx(
            model.perplexity(TEXT, cache=cache), abs=1e-4
        )
    assert main([*command, "--cache.share", "1"]) == 2
    assert "the share of a cache must be at least 0 and below 1; got 1" in capsys.readouterr().err


def test_a_cache_for_another_task(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert main(["test", "--config", "luong_dot.dates", "--weights", "luong_dot.dates", "--cache.size", "9"]) == 2
    line = "zoo: error: --cache is for language models; LuongNMT is not one: leave it out"
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "the size of a cache must be from 1 to 1,000,000; got 0"),
        ({"theta": -0.1}, "theta of a cache must be at least 0 and finite; got -0.1"),
        ({"theta": math.inf}, "theta of a cache must be at least 0 and finite; got inf"),
        ({"theta": math.nan}, "theta of a cache must be at least 0 and finite; got nan"),
        ({"share": 1.0}, "the share of a cache must be at least 0 and below 1; got 1.0"),
        ({"half_life": 0}, "the half-life of a cache must be at least 1 word and finite; got 0"),
        ({"half_life": math.inf}, "the half-life of a cache must be at least 1 word and finite; got inf"),
        ({"half_life": math.nan}, "the half-life of a cache must be at least 1 word and finite; got nan"),
        ({"share": math.nan}, "the share of a cache must be at least 0 and below 1; got nan"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        zoo.ContinuousCache(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 2.5}, "^the size of a cache must be an integer; got 2.5$"),
        ({"theta": "1"}, "^theta of a cache must be a number; got '1'$"),
        ({"half_life": "7"}, "^the half-life of a cache must be a number; got '7'$"),
        ({"share": None}, "^the share of a cache must be a number; got None$"),
    ],
)
def test_options_that_are_no_numbers(options, message):
    with pytest.raises(TypeError, match=message):
        zoo.ContinuousCache(**options)
