"""`zoo compare` for all tasks but translation: tiny trainings to the page, significance by naive loops, recipes."""

import json
import math
import random
import re
import statistics
import tarfile

import captions_fakes
import cloze_fakes
import numpy as np
import pytest
import torch
import yaml
from comparison_fakes import fails, options
from labeled_fakes import invent
from naive_bootstrap import moves

from zoo.cli import main
from zoo.comparison import pictures
from zoo.comparison.data import data_settings, load_data
from zoo.comparison.files import read_outputs
from zoo.comparison.jobs import Job, Plan
from zoo.comparison.recipes import LONGEST, Recipes, read_yaml, shipped_folders
from zoo.comparison.results import check_names
from zoo.comparison.search import Space
from zoo.comparison.significance import Bootstrap, bootstrap
from zoo.comparison.tasks.base import Score
from zoo.comparison.tasks.captioning import CaptioningTask
from zoo.comparison.tasks.classification import ClassificationTask
from zoo.comparison.tasks.language_modelling import BLOCK, LanguageModellingTask
from zoo.comparison.tasks.reading import ReadingTask
from zoo.data import IMDB, PTB, TREC6, Flickr8k
from zoo.data.captioning.arrays import Record
from zoo.data.reading.arrays import Question
from zoo.metrics import CaptionScores
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.text import Tokenizer
from zoo.text.words import BLANK
from zoo.training.checkpoints import model_of
from zoo.utils.modules import load_class

pytestmark = pytest.mark.integration

SHIPPED = {folder.name.removeprefix("comparison").removeprefix("_"): Recipes(folder) for folder in shipped_folders()}
WORDS = "the a dog cat man red blue runs sits over on in snow street it said".split()


def small(place, task, names, **model):
    """Copies the shipped recipes of a data set to place/recipes, for small models."""
    folder = place / "recipes"
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*"):
        file.unlink()
    for name in ("base", "search", *names):
        recipe = read_yaml(SHIPPED[task].path(name))
        if name == "base":
            recipe["trainer"] |= dict(max_epochs=2, precision="32-true", accelerator="cpu", num_sanity_val_steps=0)
            recipe["lr_scheduler"]["init_args"] |= dict(warmup_steps=4)
            recipe["model"]["init_args"] |= model
            recipe["optimizer"]["init_args"] |= dict(lr=0.02)
            recipe["data"]["init_args"] = recipe["data"].get("init_args", {}) | dict(batch_size=4)
        elif name != "search":
            own = recipe["model"]["init_args"]
            own |= {key: 8 for key in own if key.endswith("_size") and key != "max_source_length"}
        about = SHIPPED[task].about(name) if name != "search" else ""
        (folder / f"{name}.yaml").write_text(f"# {about}\n{yaml.safe_dump(recipe)}", encoding="utf-8")
    return Recipes(folder)


@pytest.fixture
def questions(place):
    """The place with made-up questions of six kinds."""
    invent(TREC6, {}, place / "data")
    small(place, "trec6", ["mean", "last_state", "hops"], vocab_size=200, embedding_size=12, hidden_size=16)
    return place


@pytest.fixture
def text(place):
    """The place with made-up running text, 50 lines to test on."""
    rng = random.Random(0)
    for split, count in (("train", 200), ("valid", 30), ("test", 50)):
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(count)]
        (place / "data" / f"ptb.{split}.txt").write_text("".join(f"{line}\n" for line in lines))
    small(
        place,
        "ptb",
        ["lstm", "key_value"],
        vocab_size=30,
        embedding_size=8,
        hidden_size=8,
        sampled_words=None,
    )
    return place


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


# ---- classifiers ----


def test_classifiers_from_training_to_the_page(questions, within, capsys):
    place = questions
    arguments = options(place, "--seeds", "1", "2")
    assert main(["compare", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "mean, seed 1: accuracy " in printed and "BLEU" not in printed
    found = {
        (name, seed): read(place / "out" / name / f"seed{seed}" / "result.json")
        for name in ("mean", "last_state", "hops")
        for seed in (1, 2)
    }
    assert found["last_state", 1]["validation"]["attention"] is None, "it has none"
    assert found["mean", 1]["validation"]["attention"]["relative_entropy"] == pytest.approx(1, abs=1e-4), "uniform"
    assert 0 < found["hops", 1]["validation"]["attention"]["relative_entropy"] < 1

    # the accuracy is that of the stored labels, and of `zoo test`
    recipes = Recipes(place / "recipes")
    data = load_data(data_settings(recipes, str(place / "data")), recipes.task)
    labels = [example.labels[0] for example in data.examples("test")]
    for (name, seed), result in found.items():
        given = read_outputs(place / "out" / name / f"seed{seed}" / "test.txt.gz")
        right = sum(label == wanted for label, wanted in zip(given, labels, strict=True))
        assert result["test"]["accuracy"] == pytest.approx(100 * right / 60, abs=0.01)
        best = max(scores["accuracy"] for scores in result["training"]["validation"])
        assert result["validation"]["accuracy"] == pytest.approx(best, abs=0.01), "of the best checkpoint"
        words = [sum(map(len, data_words(data, split))) for split in ("train",)][0]
        assert result["training"]["tokens"] == 2 * words, "words of two epochs"

    page = (place / "out" / "README.md").read_text(encoding="utf-8")
    head = next(line for line in page.splitlines() if line.startswith("| mechanism"))
    assert "| validation accuracy | test accuracy |" in head and "texts/s" in head and "input feeding" not in head
    assert "One classifier of texts, TREC6" in page and "bootstrap over the 60 test texts and the seeds" in page
    assert "highest accuracy" in page and "when validation accuracy stops rising" in page and "BLEU" not in page
    for name in ("accuracy_against_cost.png", "significance.png", "curves.png"):
        assert name in page and (place / "out" / name).read_bytes().startswith(b"\x89PNG")
    means = {name: statistics.fmean(found[name, seed]["test"]["accuracy"] for seed in (1, 2)) for name, _ in found}
    pairs = [line.split(",") for line in (place / "out" / "pairs.csv").read_text().splitlines()[1:]]
    for first, second, difference, *_ in pairs:
        assert float(difference) == pytest.approx(means[first] - means[second], abs=0.02)

    within.clear()
    (place / "out" / "hops" / "seed2" / "result.json").unlink()
    assert main(["compare", *arguments]) == 0
    assert within == [["hops", "zoo.comparison.evaluation"]], "what is done is not repeated"


def data_words(data, split):
    """The words of each text of a split, as a training batch has them."""
    data.prepare_data()
    data.setup("fit")
    return data.tokenizer.encode_batch([example.text for example in data.examples_of(split)])


def test_a_training_of_a_classifier_resumes(questions, within):
    place = questions
    plan = Plan(Recipes(place / "recipes"), place / "out", str(place / "data"), 2, "cpu", 1, 0)
    arguments = Job(plan, "mean", 1).fit_arguments()
    arguments[arguments.index("--trainer.max_epochs") + 1] = "1"
    assert main(arguments) == 0
    folder = place / "out" / "mean" / "seed1"
    first = read(folder / "training.json")
    (folder / "training.json").unlink()  # as if stopped after an epoch
    assert main(["compare", *options(place, "--only", "mean")]) == 0
    training = read(folder / "training.json")
    assert training["validation"][0]["accuracy"] == first["validation"][0]["accuracy"]
    assert training["steps"] == 2 * first["steps"] and training["tokens"] == 2 * first["tokens"]
    other = place / "other"
    assert main(["compare", *options(place, "--only", "mean"), "--out", str(other)]) == 0
    whole = read(other / "mean" / "seed1" / "result.json")
    assert whole["training"]["validation"][1]["loss"] == training["validation"][1]["loss"], "as without the stop"


def test_accuracy_in_a_naive_bootstrap():
    """The same draws, with everything else by loops over texts, mechanisms and seeds."""
    rng = random.Random(1)
    references = [rng.choice("abc") for _ in range(12)]
    spoil = lambda share: [rng.choice("abc") if rng.random() < share else label for label in references]  # noqa: E731
    outputs = {"one": [spoil(0.2), spoil(0.3)], "two": [spoil(0.6), spoil(0.5)]}

    class Data:
        def examples_of(self, split):
            from zoo.data.classification.arrays import Example

            return (Example("text", None, (label,)) for label in references)

    task = ClassificationTask()
    count = task.counter(Data())
    assert count(references[:-1]) is None, "of another test set"
    found = bootstrap({name: [count(run) for run in runs] for name, runs in outputs.items()}, task.total, 6, seed=4)

    draws = np.random.default_rng(4)
    times = draws.multinomial(12, np.full(12, 1 / 12), 6)
    accuracy = lambda run, rows: 100 * sum(run[n] == references[n] for n in rows) / len(rows)  # noqa: E731
    whole = {name: [accuracy(run, range(12)) for run in runs] for name, runs in outputs.items()}
    drawn = [[n for n in range(12) for _ in range(times[b, n])] for b in range(6)]
    samples = {name: [[accuracy(run, rows) for run in runs] for rows in drawn] for name, runs in outputs.items()}
    moved = moves(draws, whole, samples)
    for m, name in enumerate(outputs):
        expected = [sum(row) / 2 + move for row, move in zip(samples[name], moved[name])]
        assert found.samples[:, m].tolist() == pytest.approx(expected, abs=1e-9)
    assert found.means.tolist() == pytest.approx([sum(own) / 2 for own in whole.values()])


def test_documents_next_to_texts(place, within, capsys):
    """HAN reads the sentences of a review, the others its words; labels and order are the same."""
    invent(IMDB, {}, place / "data")
    recipes = small(place, "imdb", ["mean", "han"], vocab_size=500, embedding_size=8, hidden_size=8)
    assert main(["compare", *options(place, "--epochs", "1")]) == 0
    folders = [place / "out" / name / "seed1" for name in ("mean", "han")]
    splits = [read(folder / "job.json")["data"]["init_args"]["split_sentences"] for folder in folders]
    assert splits == [False, True] and all(len(read_outputs(folder / "test.txt.gz")) == 80 for folder in folders)
    assert 0 < read(folders[1] / "result.json")["validation"]["attention"]["relative_entropy"] <= 1
    assert data_settings(recipes, "DATA")["init_args"]["root"] == "DATA"
    other = recipes.path("han").read_text().replace("split_sentences: true", "val_fraction: 0.3")
    (place / "recipes" / "other.yaml").write_text(other)
    line, _ = fails(capsys, *options(place, "--epochs", "1", "--only", "other"))
    assert line.endswith("other.yaml: `data:` must give the validation and test examples of base.yaml")


def test_texts_of_several_labels(place, within):
    """Micro-F1 is that of the stored labels by a naive loop, and that of validation in training."""
    rng, rows = random.Random(0), []
    for split, count in (("train", 90), ("test", 40)):
        for _ in range(count):
            topics = sorted(rng.sample(["corn", "oil", "ship"], rng.randint(1, 3)))
            text = ". ".join(" ".join(rng.choices([*topics, *WORDS[:4]], k=5)) for _ in range(3))
            rows.append({"split": split, "topics": topics, "title": " ".join(topics), "text": text})
    (place / "data" / "reuters").mkdir()
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (place / "data" / "reuters" / "reuters_modapte.jsonl").write_text(lines, encoding="utf-8")
    small(place, "reuters", ["mean", "han"], vocab_size=300, num_classes=3, embedding_size=8, hidden_size=8)
    assert main(["compare", *options(place)]) == 0
    recipes = Recipes(place / "recipes")
    data = load_data(data_settings(recipes, str(place / "data")), recipes.task)
    wanted = {split: [set(example.labels) for example in data.examples_of(split)] for split in ("val", "test")}
    assert max(map(len, wanted["test"])) > 1
    for name in ("mean", "han"):
        folder = place / "out" / name / "seed1"
        result = read(folder / "result.json")
        for part, split in (("validation", "val"), ("test", "test")):
            right = given = there = 0
            for line, labels in zip(read_outputs(folder / f"{part}.txt.gz"), wanted[split], strict=True):
                found = [label for label in line.split("\t") if label]
                right += sum(label in labels for label in found)
                given, there = given + len(found), there + len(labels)
            assert result[part]["micro_f1"] == pytest.approx(200 * right / (given + there), abs=0.01) and right
        best = max(scores["micro_f1"] for scores in result["training"]["validation"])
        assert result["validation"]["micro_f1"] == pytest.approx(best, abs=0.01)
    page = (place / "out" / "README.md").read_text(encoding="utf-8")
    assert "| validation micro-F1 | test micro-F1 |" in page and "accuracy" not in page


def test_what_cannot_be_compared(questions, capsys):
    place = questions
    recipe = place / "recipes" / "base.yaml"
    base = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    recipe.write_text(yaml.safe_dump(base | {"data": {"class_path": "zoo.data.Multi30k", "init_args": {}}}))
    line, _ = fails(capsys, *options(place))
    assert line == "classifiers need data for classification, and zoo.data.Multi30k is none"
    recipe.write_text(yaml.safe_dump(base | {"data": {"class_path": "zoo.data.Reuters", "init_args": {}}}))
    line, _ = fails(capsys, *options(place))
    assert line.startswith("the texts of Reuters have several labels: base.yaml must have multi_label: true")
    several = {**base["model"], "init_args": base["model"]["init_args"] | {"multi_label": True}}
    recipe.write_text(yaml.safe_dump(base | {"model": several}))
    line, _ = fails(capsys, *options(place))
    assert line.startswith("the texts of TREC6 have one label each: base.yaml must not have multi_label: true")
    recipe.write_text(yaml.safe_dump(base))
    odd = {"class_path": base["model"]["class_path"], "init_args": {"multi_label": True}}
    (place / "recipes" / "odd.yaml").write_text(yaml.safe_dump({"model": odd}))
    line, _ = fails(capsys, *options(place))
    assert "odd.yaml: base.yaml compares classifiers, and " in line and line.endswith("is none with multi_label: True")
    (place / "recipes" / "odd.yaml").unlink()
    recipe.write_text(yaml.safe_dump(base))
    (place / "recipes" / "dot.yaml").write_text("model: {class_path: zoo.models.luong.LuongNMT}\n")
    line, _ = fails(capsys, *options(place))
    assert line.endswith("dot.yaml: base.yaml compares classifiers, and zoo.models.luong.LuongNMT is none")
    (place / "recipes" / "dot.yaml").unlink()
    line, _ = fails(capsys, *options(place, "--pairs", "5"))
    assert line == "--pairs: TREC6 has no option train_size"


# ---- language models ----


def test_language_models_from_training_to_the_page(text, within, capsys):
    place = text
    assert main(["compare", *options(place, "--search")]) == 0
    choice = read(place / "out" / "lstm" / "search.json")
    best = min(choice["trials"], key=lambda trial: trial["perplexity"])
    assert best["options"] == choice["options"], "the lowest is the best"
    results = {name: read(place / "out" / name / "seed1" / "result.json") for name in ("lstm", "key_value")}
    assert results["lstm"]["validation"]["attention"] is None
    assert 1 < results["key_value"]["validation"]["attention"]["mean_distance"] < 5

    # the losses of the lines are those of one pass over the whole text
    recipes = Recipes(place / "recipes")
    data = PTB(root=str(place / "data"))
    lines = (place / "data" / "ptb.test.txt").read_text().splitlines()
    for name, result in results.items():
        stored = [line.split() for line in read_outputs(place / "out" / name / "seed1" / "test.txt.gz")]
        assert [int(words) for _, words in stored] == [len(line.split()) + 1 for line in lines]
        model = model_of(place / "out" / name / "seed1" / "base" / "checkpoints" / "best.ckpt")
        losses, words = [], ["</s>", *" </s> ".join([*lines, ""]).split()]
        ids = [3 if word == "</s>" else model.tokenizer.encode(word)[0] for word in words]
        with torch.no_grad():
            logits, _ = model.eval()(torch.tensor([ids[:-1]]))
        for scores, wanted in zip(logits[0], ids[1:], strict=True):
            losses.append(-float(torch.log_softmax(scores.double(), 0)[wanted]))
        assert sum(float(nats) for nats, _ in stored) == pytest.approx(math.fsum(losses), rel=1e-4)
        assert result["test"]["perplexity"] == pytest.approx(math.exp(statistics.fmean(losses)), rel=1e-4)

    rows = recipes.task.counter(data)(read_outputs(place / "out" / "lstm" / "seed1" / "test.txt.gz"))
    assert len(rows) == 25 and rows[:, 1].sum() == len(words) - 1
    page = (place / "out" / "README.md").read_text(encoding="utf-8")
    assert f"over the 25 blocks of at most {BLOCK} consecutive test lines" in page and "lowest perplexity" in page
    assert "when validation perplexity stops falling: 2 validations without a fall" in page and "words back" in page
    table = [line for line in page.split("\n\n") if line.startswith("| mechanism")][0].splitlines()
    order = sorted(results, key=lambda name: results[name]["test"]["perplexity"])
    assert [line.split("`")[1] for line in table[2:]] == order, "the lowest first"


def test_perplexity_in_a_naive_bootstrap():
    rng = random.Random(2)
    count = 20 * BLOCK + 7
    words = [rng.randint(1, 9) for _ in range(count)]
    runs = {name: [[rng.uniform(2, 5) * n for n in words] for _ in range(2)] for name in ("one", "two")}

    class Data:
        def lines(self, split):
            return ["a line"] * count

    task = LanguageModellingTask()
    lines = {name: [[f"{x} {n}" for x, n in zip(nats, words)] for nats in found] for name, found in runs.items()}
    counter = task.counter(Data())
    assert counter(["1.0 1"] * (count - 1)) is None
    counts = {name: [counter(run) for run in found] for name, found in lines.items()}
    found = bootstrap(counts, task.total, 5, seed=3, falls=True)

    draws = np.random.default_rng(3)
    times = draws.multinomial(21, np.full(21, 1 / 21), 5)
    blocks = [range(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK)]
    perplexity = lambda nats, rows: math.exp(sum(nats[n] for n in rows) / sum(words[n] for n in rows))  # noqa: E731
    whole = {name: [perplexity(nats, range(count)) for nats in found] for name, found in runs.items()}
    drawn = [[n for block in range(21) for _ in range(times[b, block]) for n in blocks[block]] for b in range(5)]
    samples = {name: [[perplexity(nats, rows) for nats in found] for rows in drawn] for name, found in runs.items()}
    moved = moves(draws, dict(sorted(whole.items(), key=lambda own: sum(own[1]))), samples)  # the best draws first
    for m, name in enumerate(runs):
        expected = [sum(row) / 2 + move for row, move in zip(samples[name], moved[name])]
        assert found.samples[:, m].tolist() == pytest.approx(expected, abs=1e-9)


# ---- captioners ----


def test_captioners_from_training_to_the_page(place, within, capsys):
    photos = captions_fakes.invent(Flickr8k, {}, place / "data")
    sizes = dict(feature_size=8, embedding_size=8, hidden_size=8, attention_size=8)
    tiny = dict(vocab_size=40, layer="blocks.0", backbone_weights=None)
    small(place, "flickr8k", ["soft", "hard", "none"], **sizes, **tiny)
    base = place / "recipes" / "base.yaml"
    recipe = read_yaml(base)
    recipe["model"]["init_args"] |= dict(image_size=16)
    recipe["data"]["init_args"] |= dict(min_frequency=1, vocab_size=40)
    base.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    assert main(["compare", *options(place)]) == 0
    assert "none, seed 1: BLEU-4 " in capsys.readouterr().out
    folders = {name: place / "out" / name / "seed1" for name in ("soft", "hard", "none")}
    results = {name: read(folder / "result.json") for name, folder in folders.items()}
    assert results["none"]["validation"]["attention"]["relative_entropy"] == pytest.approx(1, abs=1e-4), "uniform"

    # the scores are those of the stored captions, and the photos of the test set are in their order
    references = [texts for _, texts in photos["test"].values()]
    for name, folder in folders.items():
        lines, score = read_outputs(folder / "test.txt.gz"), CaptionScores()
        score.update(lines, references)
        expected = score.compute()
        for key in ("bleu_4", "cider_d"):
            assert results[name]["test"][key] == pytest.approx(expected[key], abs=0.01), key
        model = model_of(folder / "base" / "checkpoints" / "best.ckpt")
        captions = model.caption([content for content, _ in photos["test"].values()])
        assert [out.text for out in captions] == lines
        places = captions[0].attention.flatten(1)
        assert (bool((places == places[:, :1]).all())) == (name == "none")
    page = (place / "out" / "README.md").read_text(encoding="utf-8")
    head = next(line for line in page.splitlines() if line.startswith("| mechanism"))
    assert "| validation BLEU-4 | test BLEU-4 |" in head and "test CIDEr-D" in head and "photos/s" in head
    assert "bootstrap over the 6 test photos" in page and "One captioner, Flickr8k" in page


def test_photos_that_are_not_there_are_named(place, caplog):
    """The test set must not become smaller without a word."""
    photos = captions_fakes.sample()
    captions_fakes.invent(Flickr8k, {}, place / "data", photos)
    lost = next(iter(photos["test"]))
    with tarfile.open(place / "data" / "test.tar") as archive:
        left = [(member.name, archive.extractfile(member).read()) for member in archive if member.name != lost]
    captions_fakes.archive(place / "data" / "test.tar", dict(left))
    load_data({"class_path": "zoo.data.Flickr8k", "init_args": {"root": str(place / "data")}}, CaptioningTask())
    assert f"1 test images have captions but do not exist: {lost}" in caplog.text


def test_captions_are_drawn_with_their_references():
    """Summed counts of some photos give the corpus BLEU-4 of exactly these."""
    rng = random.Random(3)
    captions = [" ".join(rng.choices(WORDS, k=rng.randint(0, 9))) for _ in range(9)]
    references = [[f"A {' '.join(rng.choices(WORDS, k=rng.randint(1, 9)))}." for _ in range(3)] for _ in captions]

    class Data:
        def usable(self, split):
            return [Record(f"{n}.jpg", texts) for n, texts in enumerate(references)]

        def images(self, split):
            return None

    task = CaptioningTask()
    counter = task.counter(Data())
    assert counter(captions[:-1]) is None, "of another test set"
    counts = counter(captions)
    for _ in range(20):
        rows, score = rng.choices(range(9), k=9), CaptionScores()
        score.update([captions[n] for n in rows], [references[n] for n in rows])
        assert task.total(counts[rows].sum(0)) == pytest.approx(score.compute()["bleu_4"], rel=1e-12)


# ---- readers ----


def test_readers_from_training_to_the_page(place, within, capsys):
    cloze_fakes.invent(place / "data", "CN")
    small(place, "cbtlike", ["over_attention", "sum"], vocab_size=60, embedding_size=8, hidden_size=8)
    assert main(["compare", *options(place)]) == 0
    assert "sum, seed 1: accuracy " in capsys.readouterr().out
    recipes = Recipes(place / "recipes")
    questions = list(load_data(data_settings(recipes, str(place / "data")), recipes.task).examples("test"))
    for name in ("over_attention", "sum"):
        result = read(place / "out" / name / "seed1" / "result.json")
        given = read_outputs(place / "out" / name / "seed1" / "test.txt.gz")
        right = sum(word == question.answer for word, question in zip(given, questions, strict=True))
        assert result["test"]["accuracy"] == pytest.approx(100 * right / len(questions), abs=0.01)
        best = max(scores["accuracy"] for scores in result["training"]["validation"])
        assert result["validation"]["accuracy"] == pytest.approx(best, abs=0.01), "of the verb and of the training"
        assert 0 < result["validation"]["attention"]["relative_entropy"] <= 1
    page = (place / "out" / "README.md").read_text(encoding="utf-8")
    assert f"bootstrap over the {len(questions)} test questions" in page and "One reader, CBTLike" in page


def test_questions_that_cannot_be_answered_are_wrong():
    model = AttentionOverAttentionReader(**AttentionOverAttentionReader.tiny).eval()
    model.tokenizer = Tokenizer.train(["a cat sat", "a dog ran"], "word", 12)
    readable = Question(["a cat sat", "a dog ran"], f"a {BLANK} sat", "cat", ["cat", "dog"])
    absent = Question(["a cat sat"], f"a {BLANK} ran", "bird", ["bird", "fish"])
    open_end = Question(["a cat sat"], f"a {BLANK} sat", "cat", [])
    task = ReadingTask()
    answers = task.answer(model, [absent, readable, open_end])
    assert answers[0] is None and task.line(answers[0]) == ""
    assert task.line(answers[1]) in ("cat", "dog") and task.line(answers[2]) in ("a", "cat", "sat")
    with pytest.raises(ValueError, match="none of the candidates is in the document"):  # not 0 % without a word
        task.answer(model, [absent])
    assert task.scores(["", "cat"], ["bird", "cat"], None) == {"accuracy": 50.0}


# ---- what is better ----


def test_lower_is_better():
    falling, rising = Score("perplexity", "perplexity", falls=True), Score("bleu", "BLEU")
    assert falling.best([3.0, 1.0, 2.0]) == 1.0 and rising.best([3.0, 1.0, 2.0]) == 3.0 and falling.best([]) is None
    assert sorted([3.0, 1.0, 2.0], key=falling.order) == [1.0, 2.0, 3.0]
    samples = np.array([[80.0, 90.0], [81.0, 85.0], [99.0, 98.0], [70.0, 80.0]])
    found = Bootstrap(["a", "b"], samples.mean(0), samples, samples.mean(0), falls=True)
    assert found.ranks().tolist() == [[0.75, 0.25], [0.25, 0.75]]
    assert found.difference("a", "b")[0] == pytest.approx(82.5 - 88.25), "by how much it is higher"


def test_equal_scores_share_their_ranks():
    """Accuracies are often equal; the order of the names must not decide."""
    means = np.array([80.0, 80.0, 70.0])
    found = Bootstrap(["a", "b", "c"], means, np.tile(means, (1000, 1)), means)
    ranks = found.ranks()
    assert ranks[:2, :2] == pytest.approx(np.full((2, 2), 0.5), abs=0.05) and ranks[2].tolist() == [0.0, 0.0, 1.0]


def test_colours_of_a_falling_score(tmp_path, monkeypatch):
    """Green is better, whichever direction that is."""
    colours = {}
    monkeypatch.setattr(pictures, "_square", lambda x, y, colour: colours.setdefault((x, y), colour) and _nothing())
    monkeypatch.setattr(pictures, "DPI", 20)
    samples = np.linspace(-0.1, 0.1, 200)[:, None] + np.array([80.0, 90.0])
    samples[:, 1] += np.linspace(0.1, -0.1, 200)
    found = Bootstrap(["low", "high"], np.array([80.0, 90.0]), samples, samples.mean(0), falls=True)
    pictures.plot_pairs(found, Score("perplexity", "perplexity", falls=True), tmp_path / "pairs.png")
    assert colours == {(1, 0): pictures.BETTER, (0, 1): pictures.WORSE}


@pytest.mark.filterwarnings("error")
def test_the_longest_names_have_room(tmp_path):
    means = np.array([80.0, 90.0])
    found = Bootstrap(["my_way_to_" * (LONGEST // 10), "dot"], means, np.tile(means, (50, 1)), means)
    pictures.plot_pairs(found, Score("bleu", "BLEU"), tmp_path / "pairs.png")
    assert (tmp_path / "pairs.png").is_file()


def _nothing():
    from matplotlib.patches import Rectangle

    return Rectangle((0, 0), 0.1, 0.1)


# ---- the real recipes ----

SETS = [name for name in SHIPPED if name]
CLASSIFIERS = {"last_state", "mean", "dot", "scaled_dot", "general", "concat", "location", "local_m", "local_p"}


def test_every_mechanism_has_a_recipe():
    kinds = CLASSIFIERS | {"one_hop", "hops"}
    models = {"lstm", "projected_lstm", "ngram", "attention", "key_value", "key_value_predict", "pointer_sentinel"}
    assert {name: set(SHIPPED[name].names()) for name in SETS} == {
        "imdb": kinds | {"han"}, "reuters": kinds | {"han"}, "sst2": kinds, "trec6": kinds, "ptb": models, "books": models,
        "flickr8k": {"none", "soft", "bilinear", "hard", "hard_soft_context"}, "cbtlike": {"over_attention", "sum"},
    }  # fmt: skip


def test_a_mechanism_is_the_same_on_all_data():
    """Copies must not drift apart; only windows and positions follow the length of the texts."""
    for name in CLASSIFIERS | {"one_hop", "hops"}:
        found = [SHIPPED[kind].path(name).read_text(encoding="utf-8") for kind in ("trec6", "sst2", "imdb", "reuters")]
        assert found[0] == found[1] and found[2] == found[3], name
        if name not in ("location", "local_m", "local_p"):
            assert found[0] == found[2], name
    for name in SHIPPED["ptb"].names():
        assert SHIPPED["ptb"].path(name).read_text() == SHIPPED["books"].path(name).read_text(), name


@pytest.mark.parametrize("kind", SETS)
def test_recipes_build_models_of_equal_size(kind):
    """Language models within half a percent; classifiers of short texts within a tenth of the mean."""
    recipes, counts = SHIPPED[kind], {}
    for name in recipes.names():
        recipes.check_model(name)
        part = recipes.part(name, "model")
        with torch.device("meta"):
            counts[name] = sum(p.numel() for p in load_class(part["class_path"])(**part["init_args"]).parameters())
    median = statistics.median(counts.values())
    most = 0.005 if kind in ("ptb", "books") else 0.1
    assert all(abs(count / median - 1) < most for count in counts.values()), counts


@pytest.mark.parametrize("kind", SETS)
def test_the_search_is_equal_for_all(kind):
    recipes = SHIPPED[kind]
    space = Space.read(recipes)
    assert space.trials == 5
    for name in recipes.names():
        space.start(recipes, name)
    monitor = recipes.base["trainer"]["callbacks"][0]["init_args"]
    assert monitor["monitor"] == f"val/{recipes.task.score.key}"
    assert (monitor["mode"] == "min") == recipes.task.score.falls


def test_published_results_are_found_by_their_data(tmp_path, monkeypatch):
    """A newcomer's copy of base.yaml finds the shipped results of the same data set, no others."""
    for name, data in (("comparison", "Multi30k"), ("comparison_a", "TREC6"), ("comparison_b", "SST")):
        (tmp_path / name / "results").mkdir(parents=True)
        (tmp_path / name / "base.yaml").write_text(f"model: {{}}\ndata: {{class_path: zoo.data.{data}}}\n")
    monkeypatch.setattr("zoo.comparison.recipes.RECIPES", tmp_path / "comparison")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "base.yaml").write_text((tmp_path / "comparison_b" / "base.yaml").read_text())
    assert [folder.parent.name for folder in Recipes(mine).published] == ["comparison_b"]


def test_another_mechanism_of_a_published_name(tmp_path):
    """It would stand in the place of the published one; beside results of another budget it may have the name."""
    shipped = SHIPPED["trec6"]
    base = (shipped.folder / "base.yaml").read_text(encoding="utf-8")
    (tmp_path / "base.yaml").write_text(base, encoding="utf-8")
    own = (shipped.folder / "dot.yaml").read_text(encoding="utf-8")
    epochs = shipped.base["trainer"]["max_epochs"]

    def check(text, epochs, name):
        (tmp_path / "dot.yaml").write_text(text, encoding="utf-8")
        mine = Recipes(tmp_path)
        check_names(mine, epochs, {name: mine.fingerprints("dot")["recipe"]})

    changed = f"{own}optimizer: {{init_args: {{lr: 0.5}}}}\n"
    check(own, epochs, "dot")
    check(changed, epochs, "mine")
    check(changed, epochs + 1, "dot")
    with pytest.raises(ValueError, match=r"dot\.yaml has the name of a published mechanism, and is another recipe"):
        check(changed, epochs, "dot")


@pytest.mark.slow  # thirty models of real size
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in SETS for name in SHIPPED[kind].names()])
def test_one_step(place, kind, name, monkeypatch):
    """The recipe on top of base.yaml, as LightningCLI merges them."""
    monkeypatch.chdir(place)
    data, small = SHIPPED[kind].base["data"], []
    if kind in ("ptb", "books"):
        file = "ptb.{}.txt" if kind == "ptb" else "cbt_books_{}.txt"
        for split in ("train", "valid", "test"):
            (place / "data" / file.format(split)).write_text("the dog runs in the snow\n" * 400)
    elif kind == "cbtlike":
        cloze_fakes.invent(place / "data", "CN")
    elif kind == "flickr8k":
        captions_fakes.invent(Flickr8k, {}, place / "data")
        small = ["--model.backbone_weights", "null"]
    else:
        invent(load_class(data["class_path"]), data["init_args"], place / "data")
    recipes = [part for file in ("base", name) for part in ("--config", str(SHIPPED[kind].path(file)))]
    quiet = ["--trainer.fast_dev_run", "true", "--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]
    assert main(["fit", *recipes, *quiet, *small, "--data.root", str(place / "data"), "--data.batch_size", "2"]) == 0


@pytest.mark.parametrize(
    "name", [name for name, recipes in SHIPPED.items() if (recipes.folder / "README.md").is_file()]
)
def test_a_shipped_page_names_every_mechanism(name):
    recipes = SHIPPED[name]
    page = (recipes.folder / "README.md").read_text(encoding="utf-8")
    trained = {path.parent.parent.name for path in recipes.folder.glob("results/*/*/result.json")}
    assert trained and {mechanism for mechanism in recipes.names() if f"\n| [`{mechanism}`](" in page} == trained
    (missing,) = re.findall(r"^\*\*Not complete:\*\* not trained yet are (.*)\.$", page, re.MULTILINE) or [""]
    assert set(re.findall(r"\[`(\w+)`\]", missing)) == set(recipes.names()) - trained
