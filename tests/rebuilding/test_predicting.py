"""Soft targets that several language models give a text, and the text that they draw."""

from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import yaml
from rebuild_cases import in_process, rebuild

import zoo
from zoo import registry
from zoo.data import PlainText
from zoo.data.language_modelling.soft_targets import SoftTargets
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.rebuilding import ensemble, predicting, sampling
from zoo.rebuilding.ensemble import Ensemble
from zoo.rebuilding.predicting import predict_text
from zoo.rebuilding.sampling import sample_text
from zoo.text import BOS, EOS, PAD, Tokenizer

LINES = ["the cat sat on the mat", "a dog sat on a cat", "the dog ran", "a cat ran on and on and on"] * 3


def language_model(seed, tokenizer):
    torch.manual_seed(seed)
    model = KeyValuePredictLM(**{**KeyValuePredictLM.tiny, "vocab_size": len(tokenizer)}).eval()
    model.tokenizer = tokenizer
    return model


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in LINES))
    data = {"class_path": "zoo.data.PlainText", "init_args": {name: str(text) for name in ("train", "val", "test")}}
    data["init_args"]["tokenizer"] = "word"
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({"model": {"class_path": "x"}, "data": data}))
    return str(tmp_path / "recipe.yaml")


@pytest.fixture
def data(recipe, tmp_path):
    text = str(tmp_path / "text.txt")
    found = PlainText(text, text, text, tokenizer="word")
    found.prepare_data()
    found.setup("fit")
    return found


@pytest.fixture
def models(data, monkeypatch):
    found = {f"model{seed}": language_model(seed, data.tokenizer) for seed in (1, 2)}
    monkeypatch.setattr(registry, "load", found.__getitem__)
    return found


def expected(models, ids, vocabulary, bounds):
    """The mean probabilities of all words in each place, where texts begin at some of them."""
    found = []
    for start, end in zip(bounds, [*bounds[1:], len(ids)]):
        inputs = ids.roll(1)[None, start:end]  # the last word is a line end
        with torch.no_grad():
            found.append(sum(model(inputs)[0][0].softmax(-1) for model in models.values()) / len(models))
    return torch.cat(found)


@contextmanager
def interrupted_at_the_second(module, name):
    """The function works once, and the second call is interrupted."""
    with pytest.MonkeyPatch.context() as patch:
        work, calls = getattr(module, name), []

        def called(*args):
            calls.append(args)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return work(*args)

        patch.setattr(module, name, called)
        yield


def table(file, ids, vocabulary):
    """Soft targets of a file as probabilities of all words, (N, V)."""
    found = SoftTargets(file, ids.numpy().astype("uint16")).at(torch.arange(len(ids)).numpy())
    return torch.zeros(len(ids), vocabulary).scatter(-1, found.words, found.probabilities)


@pytest.mark.parametrize("streams", [1, 3])
def test_the_mean_of_what_the_models_expect(models, recipe, data, tmp_path, monkeypatch, streams):
    monkeypatch.setattr(predicting, "_STREAMS", streams)
    monkeypatch.setattr(predicting, "_SEGMENT", 5)  # what was read is carried from one to the next
    monkeypatch.setattr(ensemble, "in_precision", lambda *_: torch.autocast("cpu", enabled=False))
    vocabulary, ids = len(data.tokenizer), torch.from_numpy(data._train.ids.astype("int64"))
    predict_text(str(tmp_path / "soft"), recipe, None, ["model1", "model2"], share=0.75, words=vocabulary)
    want = expected(models, ids, vocabulary, range(0, len(ids), -(-len(ids) // streams)))
    want = 0.75 * want + 0.25 * torch.nn.functional.one_hot(ids, vocabulary)
    torch.testing.assert_close(table(tmp_path / "soft", ids, vocabulary), want, atol=1e-3, rtol=2e-3)  # in fp16


def test_extra_text_has_the_share_of_the_models_alone_and_parts_are_kept(
    models, recipe, data, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(predicting, "_PART", 40)
    monkeypatch.setattr(predicting, "_STREAMS", 1)
    monkeypatch.setattr(ensemble, "in_precision", lambda *_: torch.autocast("cpu", enabled=False))
    (tmp_path / "more").write_text("the mat ran\na mat\n" * 6)
    target, options = str(tmp_path / "soft"), {"extra_text": str(tmp_path / "more"), "share": 0.5, "words": 99}
    with interrupted_at_the_second(predicting, "_predict"), pytest.raises(KeyboardInterrupt):
        predict_text(target, recipe, None, ["model1", "model2"], **options)
    assert capsys.readouterr().out == "40 of 123 words are predicted\n"
    predict_text(target, recipe, None, ["model1", "model2"], **options)
    assert capsys.readouterr().out.startswith("80 of 123 words are predicted\n")
    assert not list(tmp_path.glob("part*"))
    text = str(tmp_path / "text.txt")
    more = PlainText(text, text, text, tokenizer="word", extra_text=str(tmp_path / "more"), soft_targets=target)
    more.prepare_data()
    more.setup("fit")
    assert more.tokenizer.to_json() == data.tokenizer.to_json()
    vocabulary, ids = len(data.tokenizer), torch.from_numpy(more._train.ids.astype("int64"))
    written = len(data._train.ids)
    assert len(ids) == written + 42 and ids[:written].tolist() == data._train.ids.tolist()
    want = []
    for start in range(0, len(ids), 40):
        part = ids[start : start + 40]
        with torch.no_grad():
            inputs = torch.cat([torch.tensor([EOS]), part[:-1]])[None]
            want.append(sum(model(inputs)[0][0].softmax(-1) for model in models.values()) / 2)
    share = torch.where(torch.arange(len(ids)) < written, 0.5, 1.0)[:, None]
    want = torch.cat(want) * share + torch.nn.functional.one_hot(ids, vocabulary) * (1 - share)
    torch.testing.assert_close(table(target, ids, vocabulary), want, atol=1e-3, rtol=2e-3)
    batch = next(iter(more.train_dataloader()))
    assert batch.soft.words.shape == (*batch.labels.shape, vocabulary)


def test_only_the_most_probable_words_are_kept(models, recipe, data, tmp_path):
    ids = data._train.ids
    for name, words in (("two", 2), ("all", 64)):
        (tmp_path / name).mkdir()
        predict_text(str(tmp_path / name / "soft"), recipe, None, ["model1"], words=words)
    every = torch.arange(len(ids)).numpy()
    two, all_words = (SoftTargets(tmp_path / name / "soft", ids).at(every) for name in ("two", "all"))
    assert all_words.words.shape[1] == len(data.tokenizer)
    torch.testing.assert_close(two.probabilities, all_words.probabilities.topk(2).values)
    assert (two.probabilities.sum(-1) < 1).all()


def test_mistakes(models, recipe, data, tmp_path, capsys):
    target = str(tmp_path / "soft")
    for options, message in (
        ({"share": 0}, "share must be above 0 and at most 1; got 0"),
        ({"words": 0}, "words must be at least 1; got 0"),
        ({"extra_text": "absent.txt"}, "extra_text: there is no file absent.txt"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            predict_text(target, recipe, None, ["model1"], **options)
    models["other"] = language_model(1, Tokenizer.train(LINES[:1], "word", 100))
    with pytest.raises(ValueError, match="other has another vocabulary than model1"):
        predict_text(target, recipe, None, ["model1", "other"])
    with pytest.raises(ValueError, match="other has another vocabulary than the data of .*recipe.yaml"):
        predict_text(target, recipe, None, ["other"])
    models["classifier"] = AttentionClassifier(**AttentionClassifier.tiny)
    with pytest.raises(ValueError, match="classifier is no language model; it is a model for classification"):
        predict_text(target, recipe, None, ["classifier"])
    given = yaml.safe_load(Path(recipe).read_text())
    given["data"] = {"class_path": "zoo.data.IMDB"}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(given))
    with pytest.raises(ValueError, match="language models predict running text; IMDB of .* is none"):
        predict_text(target, recipe, None, ["model1"])
    job = tmp_path / "job.json"
    job.write_text(f'{{"target": "{target}", "recipe": "{recipe}", "root": null, "models": ["model1"]}}')
    assert predicting.main([str(job)]) == 2 and "zoo: error: language models predict" in capsys.readouterr().err
    assert not (tmp_path / "soft").exists()


# ---- drawing text ----


def test_sampled_lines_are_as_probable_as_the_models_say(models, tmp_path, monkeypatch):
    """The first words of many lines; and no line is empty, or has a word that none can have."""
    monkeypatch.setattr(sampling, "_STEPS", 12)
    sample_text(str(tmp_path / "more"), ["model1", "model2"], 12 * 2000, seed=1)
    lines = (tmp_path / "more").read_text().split("\n")
    assert lines.pop() == "" and all(line.split() for line in lines)
    tokenizer = models["model1"].tokenizer
    assert {word for line in lines for word in line.split()} <= set(tokenizer.tokens(range(len(tokenizer)))) - {
        "<pad>",
        "<s>",
        "</s>",
    }
    # a text begins with its first line; of the others it depends on the words before
    monkeypatch.setattr(sampling, "_TEXTS", 4000)
    drawn = sampling._draw(Ensemble(["model1", "model2"]), 4000, torch.Generator().manual_seed(3))[:, 0]
    with torch.no_grad():
        inputs = torch.tensor([[EOS]])
        want = sum(model(inputs)[0][0, 0].softmax(-1) for model in models.values()) / 2
    want[[PAD, BOS, EOS]] = 0
    want = want / want.sum()
    got = torch.bincount(drawn, minlength=len(want)) / len(drawn)
    assert ((got - want).abs() < 5 * (want * (1 - want) / len(drawn)).sqrt() + 1e-9).all()


def test_the_seed_decides_and_an_interrupted_draw_is_continued(models, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sampling, "_STEPS", 20)
    monkeypatch.setattr(sampling, "_TEXTS", 3)
    for name, seed in (("first", 1), ("same", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        sample_text(str(tmp_path / name / "more"), ["model1"], 150, seed)
    first, same, other = ((tmp_path / name / "more").read_text() for name in ("first", "same", "other"))
    assert first == same != other
    assert capsys.readouterr().out.startswith("60 of 150 words are drawn\n120 of 150 words are drawn\n150 of 150")
    (tmp_path / "again").mkdir()
    with interrupted_at_the_second(sampling, "_draw"), pytest.raises(KeyboardInterrupt):
        sample_text(str(tmp_path / "again/more"), ["model1"], 150, 1)
    assert capsys.readouterr().out == "60 of 150 words are drawn\n" and not (tmp_path / "again/more").exists()
    sample_text(str(tmp_path / "again/more"), ["model1"], 150, 1)
    assert capsys.readouterr().out.startswith("120 of 150 words are drawn\n")
    assert [(file.name, file.read_text()) for file in (tmp_path / "again").iterdir()] == [("more", first)]


def test_the_index_of_a_share():
    weights = torch.zeros(1, 250)
    weights[0, [3, 120, 249]] = torch.tensor([1.0, 2.0, 1.0])
    for place, index in ((0.0, 3), (0.2, 3), (0.26, 120), (0.74, 120), (0.76, 249), (1.0, 249)):
        assert sampling.pick(weights, torch.tensor([[place]])).item() == index
    weights[0, 200:] = 0  # a last block without any
    assert sampling.pick(weights, torch.tensor([[1.0]])).item() == 120


def test_how_many_words_to_sample(models, tmp_path, capsys):
    with pytest.raises(ValueError, match="sample must be a number of words, at least 1; got 0"):
        sample_text(str(tmp_path / "more"), ["model1"], 0)
    (tmp_path / "job.json").write_text(f'{{"target": "{tmp_path}/more", "models": ["model1"], "count": 0}}')
    assert sampling.main([str(tmp_path / "job.json")]) == 2 and "at least 1; got 0" in capsys.readouterr().err


# ---- as stages of a recipe ----


@pytest.mark.integration
def test_stages_of_a_recipe(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    in_process(monkeypatch)
    monkeypatch.setattr(sampling, "_STEPS", 30)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/text.txt").write_text("".join(f"{line}\n" for line in LINES))
    text = {"train": "text.txt", "val": "text.txt", "test": "text.txt", "tokenizer": "word"}
    settings = {
        "trainer": {"max_epochs": 1, "enable_progress_bar": False, "accelerator": "cpu"},
        "data": {"class_path": "zoo.data.PlainText", "init_args": {**text, "batch_size": 2, "segment": 5}},
    }
    class_path = "zoo.models.key_value_predict_lm.KeyValuePredictLM"
    new = {"class_path": class_path, "init_args": {**KeyValuePredictLM.tiny, "vocab_size": 30}}
    loaded = {"class_path": "zoo.load", "init_args": {"name": "key_value_predict.ptb"}}
    learnt = {"data.extra_text": "{more}", "data.soft_targets": "{soft}"}
    stages = [
        {"fit": "small", "to": "first"},
        {"sample": 90, "by": "first", "seed": 3, "to": "more"},
        {"predict": "train", "by": "first", "extra_text": "more", "share": 0.5, "words": 4, "to": "soft"},
        {"from": "first", "settings": learnt, "to": "taught"},
    ]
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**settings, "model": new}))
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({**settings, "model": loaded, "stages": stages}))
    assert rebuild("own.yaml", "--root", "data") == 0
    made = tmp_path / "runs/rebuild/own"
    words = (made / "more/more").read_text().split()
    assert 0 < len(words) <= 90 and set(words) <= {word for line in LINES for word in line.split()} | {"<unk>"}
    config = yaml.safe_load((made / "taught/own/version_0/config.yaml").read_text())["data"]["init_args"]
    assert config["soft_targets"].endswith("soft/soft") and config["extra_text"].endswith("more/more")
    assert zoo.load(f"local-dir:{made}/taught/weights").config["vocab_size"] == 30
    assert "stage 3 of 4, soft: predict train by first\n" in capsys.readouterr().out
    assert rebuild("own.yaml", "--root", "data") == 0
    assert capsys.readouterr().out.count("already done") == 4
