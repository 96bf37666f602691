"""Additional training texts in files of a user, with labels or with the probabilities of all of them."""

import json

import pytest
import torch
from labeled_examples import NAMES, Invented, contents, expected, ready

from zoo.batches.classification import collate_texts
from zoo.data.classification.arrays import Example
from zoo.data.classification.extra import read_extra
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.han import HAN

SOFT = "text\tblue\tgreen\tred\nn500 sky and sea\t0.7\t0.2\t0.1\nn501 sky\t0\t0.505\t0.505\n"
HARD = "label,text\ngreen,n500 grass\nred,n501 rose\n"


def _data(tmp_path, text, name="extra.tsv", **options):
    (tmp_path / name).write_text(text)
    options = {"structure": "text", "min_frequency": 1, "batch_size": 8, **options}
    return Invented((20, 6, 6), extra_examples=[str(tmp_path / name)], **options)


def _one_hot(contents):
    return [(words, [float(i == label) for i in range(len(NAMES))]) for words, label in contents]


@pytest.mark.parametrize("structure", ["text", "document"])
def test_probabilities(tmp_path, structure):
    """Of the extra texts as in the file, divided by their sum; of the others 0 and 1. Validation has labels."""
    data = ready(_data(tmp_path, SOFT, structure=structure))
    words = [data.tokenizer.encode(text) for text in ("n500 sky and sea", "n501 sky")]
    if structure == "document":
        words = [[row] for row in words]
    wanted = [*_one_hot(expected(data, "train")), (words[0], [0.7, 0.2, 0.1]), (words[1], [0.0, 0.5, 0.5])]
    found = contents(data.train_dataloader())
    assert [row for row, _ in found] == [row for row, _ in sorted(wanted)]
    assert torch.allclose(torch.tensor([p for _, p in found]), torch.tensor([p for _, p in sorted(wanted)]))
    assert contents(data.val_dataloader()) == expected(data, "val")


@pytest.mark.parametrize("name", ["extra.csv", "extra.tsv", "extra.jsonl"])
def test_labels(tmp_path, name):
    text = {
        "extra.csv": HARD.replace("green", " green "),
        "extra.tsv": HARD.replace(",", "\t"),
        "extra.jsonl": '{"label": "green", "text": "n500 grass"}\n{"label": "red", "text": "n501 rose"}\n',
    }[name]
    data = ready(_data(tmp_path, text, name))
    ids = [(data.tokenizer.encode("n500 grass"), 1), (data.tokenizer.encode("n501 rose"), 2)]
    assert contents(data.train_dataloader()) == sorted(_one_hot([*expected(data, "train"), *ids]))


def test_pairs_and_several_labels(tmp_path):
    pairs = ready(_data(tmp_path, "text\ttext2\tblue\tgreen\tred\nsky\tsea\t1\t0\t0\n", pair=True))
    assert ([pairs.tokenizer.encode(text) for text in ("sky", "sea")], [1.0, 0.0, 0.0]) in contents(
        pairs.train_dataloader()
    )
    several = ready(_data(tmp_path, "text\tblue\tgreen\tred\nsky\t1\t0\t1\n", multi_label=True))
    assert (several.tokenizer.encode("sky"), [1.0, 0.0, 1.0]) in contents(several.train_dataloader())
    joined = ready(_data(tmp_path, "text\tlabel\nsky\tblue|red\n", multi_label=True))
    assert (joined.tokenizer.encode("sky"), [1.0, 0.0, 1.0]) in contents(joined.train_dataloader())


def test_scores(tmp_path):
    """Only where the data have some, and with labels as well as with probabilities."""
    (tmp_path / "hard.tsv").write_text("text\tscore\tlabel\nsky\t4.5\tblue\n")
    (tmp_path / "soft.tsv").write_text("text\tblue\tgreen\tred\tscore\nsky\t0.5\t0.5\t0\t1\n")
    read = lambda name, scored: next(read_extra(tmp_path / name, NAMES, False, False, scored))  # noqa: E731
    assert read("hard.tsv", True) == Example("sky", None, ("blue",), 4.5)
    values = tuple({"blue": 0.5, "green": 0.5, "red": 0.0}[name] for name in NAMES)
    assert read("soft.tsv", True) == Example("sky", None, (), 1.0, values)
    assert read("hard.tsv", False).score is None and read("soft.tsv", False).score is None
    (tmp_path / "hard.tsv").write_text("text\tscore\tlabel\nsky\t6\tblue\n")
    with pytest.raises(ValueError, match="6"):
        read("hard.tsv", True)


def test_an_edited_file_is_read_again(tmp_path):
    before = ready(_data(tmp_path, SOFT))
    after = ready(_data(tmp_path, SOFT.replace("sea", "ocean")))
    assert "ocean" in after.tokenizer.tokens(range(len(after.tokenizer)))
    assert len(contents(before.train_dataloader())) == len(contents(after.train_dataloader())) == 22


def test_held_out_texts_are_of_the_data_alone(tmp_path):
    (tmp_path / "extra.tsv").write_text("text\tlabel\n" + "".join(f"n{n} sky\tblue\n" for n in range(500, 540)))
    data = Invented((20, 0, 6), structure="text", val_fraction=0.4, extra_examples=[str(tmp_path / "extra.tsv")])
    ready(data)
    held_out = sum(len(batch.labels) for batch in data.val_dataloader())
    assert 0 < held_out < 20 and sum(len(batch.labels) for batch in data.train_dataloader()) == 60 - held_out


def test_an_extra_text_that_is_held_out_is_not_trained_on(tmp_path, caplog):
    """As if a user adds paraphrases, or predictions, of all training texts: which are held out nobody can know."""
    options = {"structure": "text", "val_fraction": 0.4}
    own = [example.text for example in Invented((20, 0, 6), **options).examples("train")]
    lines = [json.dumps({"text": text, "label": "blue"}) + "\n" for text in own]
    (tmp_path / "extra.jsonl").write_text("".join(lines))
    data = Invented((20, 0, 6), extra_examples=[str(tmp_path / "extra.jsonl")], **options)
    train, val = ([example.text for example in data.examples_of(split)] for split in ("train", "val"))
    assert val and not {*train} & {*val} and len(train) == 2 * (len(own) - len(val))
    assert f"extra_examples: left out {len(val)} whose texts are held out for validation" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("text\tlabel\nsky\tpink\n", "extra.tsv: label 'pink' is none of the data, which has 'blue', 'green', 'red'"),
        ("text\tblue\tgreen\nsky\t0.5\t0.5\n", "extra.tsv has no column 'red'; its first line names"),
        ("text\tblue\tgreen\tred\nsky\t0.5\t0.5\t0.5\n", "must sum to 1; got 1.5 of 'sky'"),
        ("text\tblue\tgreen\tred\nsky\t2\t-1\t0\n", "'blue' must be a number from 0 to 1; got '2'"),
    ],
)
def test_mistakes(tmp_path, text, said):
    with pytest.raises(ValueError, match=said.replace("'", ".")):
        _data(tmp_path, text).prepare_data()
    with pytest.raises(FileNotFoundError, match=r"extra_examples: there is no file .*absent"):
        Invented(extra_examples=[str(tmp_path / "absent.tsv")]).prepare_data()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_certain_probabilities_have_the_loss_of_labels(smoothing):
    torch.manual_seed(0)
    model = AttentionClassifier(**AttentionClassifier.tiny, label_smoothing=smoothing).double()
    labels, texts = torch.tensor([0, 2, 1]), [[5, 6], [7], [8, 9, 10]]
    hard, _ = model.loss(collate_texts(texts, labels))
    certain, _ = model.loss(collate_texts(texts, torch.eye(3)[labels]))
    assert certain.item() == pytest.approx(hard.item(), abs=1e-12)
    mixed, _ = model.loss(collate_texts([[5, 6]], torch.tensor([[0.25, 0.75, 0.0]])))
    each = [model.loss(collate_texts([[5, 6]], torch.tensor([label])))[0].item() for label in (0, 1)]
    assert mixed.item() == pytest.approx(0.25 * each[0] + 0.75 * each[1], abs=1e-6)


def test_a_document_classifier_learns_probabilities():
    model = HAN(**HAN.tiny)
    batch = model.example_batch(4)
    loss, _ = model.loss(batch._replace(labels=torch.full((4, 3), 1 / 3)))
    loss.backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
