"""`Trainer.predict` with raw inputs: each batch is answered by the verb of the task."""

import PIL.Image
import pytest
import torch
from lightning.pytorch import Trainer
from model_cases import build
from torch.utils.data import DataLoader

import zoo
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.text import Tokenizer

TEXTS = ["a good film", "it is bad", "a bad film ."]


def predict(model, loader):
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False)
    return trainer.predict(model, loader)


def same(found, wanted):
    """Batches of two results are those of all inputs."""
    assert [len(batch) for batch in found] == [2] * (len(wanted) // 2) + [1] * (len(wanted) % 2)
    assert [one.line() for batch in found for one in batch] == [one.line() for one in wanted]
    assert all(type(one) is type(wanted[0]) for batch in found for one in batch)


@pytest.fixture
def classifier(request):
    torch.manual_seed(0)
    model = StructuredSelfAttention(**{**StructuredSelfAttention.tiny, "pair": getattr(request, "param", False)}).eval()
    model.tokenizer = Tokenizer.train(["a good film . it is bad"], "word_punct", 12)
    model.label_names = ["negative", "neutral", "positive"]
    return model


@pytest.mark.parametrize(
    "name, verb, texts",
    [
        ("luong_dot.dates", "translate", ["May 3, 2019", "June 4, 2020", "5 July 2011"]),
        ("key_value_predict.ptb", "complete", ["the company", "a dog", ""]),
    ],
)
def test_texts(name, verb, texts):
    model = zoo.load(name)
    wanted = [getattr(model, verb)(texts[n : n + 2]) for n in (0, 2)]
    same(predict(model, DataLoader(texts, batch_size=2)), [one for batch in wanted for one in batch])


def test_a_classifier_is_not_left_in_training_mode(classifier):
    same(predict(classifier.train(), DataLoader(TEXTS, batch_size=2)), classifier.classify(TEXTS))


@pytest.mark.parametrize("classifier", [True], indirect=True)
@pytest.mark.parametrize("collate", [None, list])
def test_pairs_as_rows_and_as_columns(classifier, collate):
    """Of two pairs the rows and the columns look alike."""
    pairs = [("a good film", "it is bad"), ("a", "it is a film ."), ("bad bad", "good")]
    loader = DataLoader(pairs, batch_size=2, collate_fn=collate)
    same(predict(classifier, loader), classifier.classify(pairs))


def test_images():
    torch.manual_seed(0)
    model = ShowAttendTell(**ShowAttendTell.tiny).eval()
    model.tokenizer = Tokenizer.train(["a dog runs"], "word")
    images = [PIL.Image.new("RGB", (40, 30), color) for color in ("red", "blue", "white")]
    same(predict(model, DataLoader(images, batch_size=2, collate_fn=list)), model.caption(images))


@pytest.mark.parametrize("collate", [None, list])
def test_questions(collate):
    torch.manual_seed(0)
    model = build(AttentionOverAttentionReader, vocab_size=30, num_unknown=4).eval()
    model.tokenizer = Tokenizer.train(["Ann met Bob and Eve . XXXXX ran"], "word", 30)
    questions = [("Ann met Bob .", "XXXXX met Bob"), ("Eve ran .", "XXXXX ran"), ("Bob met Eve .", "Bob met XXXXX")]
    documents, queries = zip(*questions, strict=True)
    wanted = model.answer(documents, queries)
    same(predict(model, DataLoader(questions, batch_size=2, collate_fn=collate)), wanted)
    choices = [["Ann", "Bob"], ["Eve", "ran"], ["Bob", "Eve"]]
    chosen = [(*question, given) for question, given in zip(questions, choices, strict=True)]
    found = predict(model, DataLoader(chosen, batch_size=2, collate_fn=collate))
    same(found, model.answer(documents, queries, choices))
    assert [*found[0][1].probabilities] == ["Eve", "ran"]


def test_several_loaders(classifier):
    loaders = [DataLoader(TEXTS, batch_size=2), DataLoader(TEXTS[:1], batch_size=2)]
    first, second = predict(classifier, loaders)
    same(first, classifier.classify(TEXTS))
    same(second, classifier.classify(TEXTS[:1]))


def test_what_is_no_text_is_one_line(classifier):
    with pytest.raises(TypeError, match="classify takes a string or a list of strings; got dict"):
        predict(classifier, DataLoader([{"text": "a"}], batch_size=2))


def test_batches_of_data_modules(classifier):
    (found,) = predict(classifier, DataLoader([classifier.example_batch(4)], None))
    assert found[0].shape == (4, 3)
    torch.manual_seed(0)
    model = LuongNMT(**LuongNMT.tiny).eval()
    model.src_tokenizer = model.tgt_tokenizer = Tokenizer.train(["a b c d e f g h i j k l m n o p"], "word")
    (texts,) = predict(model, DataLoader([model.example_batch(4)], None))
    assert len(texts) == 4 and all(isinstance(text, str) for text in texts)


def test_no_texts(classifier):
    assert classifier.predict_step([]) == []


def test_scores_of_a_list_of_loaders_name_no_number_of_items(classifier, capsys):
    """A list has a method that is called as the number of a loader of ours."""
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False)
    trainer.validate(classifier, [DataLoader([classifier.example_batch(4)], None)], verbose=False)
    assert "\nval, fp32\n" in capsys.readouterr().out
