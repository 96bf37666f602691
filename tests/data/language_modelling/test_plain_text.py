"""Running text in parallel streams: nothing lost, nothing twice, the same from anywhere; the files of the real data
sets.
"""

import os
import pickle

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from safetensors.numpy import save

from zoo.data import PTB, Brown, ChildrensBooks, PlainText, WikiText2
from zoo.data.common.loaders import TrainLoader
from zoo.data.language_modelling.soft_targets import SoftTargets
from zoo.data.language_modelling.streams import TextArray, TextStream
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.text import EOS, PAD, UNK, Tokenizer

LINES = ["the cat sat", "a <unk> sat on the mat", "", "the dog"]


@pytest.fixture
def text(tmp_path):
    """103 words, each another one but for the ends of lines, of which the last word is one."""
    words = [f"w{n}" for n in range(98)]
    lines = [" ".join(words[n : n + 20]) for n in range(0, 98, 20)]
    TextArray.build(tmp_path / "words", lines, Tokenizer.train(lines, "word", 200), "the text")
    return TextArray(tmp_path / "words")


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def ready(data, stages=("fit", "test")):
    data.prepare_data()
    for stage in stages:
        data.setup(stage)
    return data


def spoken(data, ids):
    return " ".join(data.tokenizer.tokens(ids))


# ---- streams ----


def batches(text, world_size=1, seed=None, epoch=0, streams=6, segment=5):
    """For each process the batches of an epoch."""
    found = []
    for rank in range(world_size):
        stream = TextStream(text, streams, segment, seed, rank, world_size)
        found.append([stream.load(stream.pool(epoch, 0), n) for n in range(stream.batches_per_epoch())])
    return found


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(
    ("world_size", "streams", "segment"), [(1, 6, 5), (2, 6, 5), (4, 6, 7), (1, 1, 103), (1, 1, 500), (3, 103, 1)]
)
def test_every_word_is_asked_for_once_whoever_reads(text, world_size, streams, segment, seed):
    processes = batches(text, world_size, seed, 0, streams, segment)
    labels = torch.cat([batch.labels[batch.labels != PAD] for found in processes for batch in found])
    assert sorted(labels.tolist()) == sorted(text.ids.tolist())
    assert len({len(found) for found in processes}) == 1  # or one process would wait for ever
    assert {batch.inputs.shape[1] for found in processes for batch in found[:-1]} <= {segment}


def test_each_word_follows_the_word_before(text):
    before = dict(zip(text.ids[1:].tolist(), text.ids[:-1].tolist()))
    for seed in (None, 1):
        for batch in batches(text, seed=seed, epoch=2)[0]:
            for label, given in zip(batch.labels.flatten().tolist(), batch.inputs.flatten().tolist()):
                assert given == PAD if label == PAD else label == EOS or given == before.get(label, EOS)


def test_streams_go_on_in_the_next_batch_and_only_the_first_one_begins(text):
    found = batches(text)[0]
    assert [batch.first for batch in found] == [True] + [False] * (len(found) - 1)
    for batch, following in zip(found, found[1:-1]):
        assert torch.equal(batch.labels[:, -1], following.inputs[:, 0])


def test_a_stream_that_is_a_word_shorter_ends_with_a_pad(text):
    last = batches(text)[0][-1]  # 103 words in 6 streams: one has 18 words, the others 17
    assert last.labels.shape == (6, 3) and (last.labels == PAD).sum() == 5 and (last.labels[:, :2] != PAD).all()


def test_epochs_begin_elsewhere_and_are_repeatable(text):
    first = [batches(text, seed=0, epoch=epoch)[0][0].labels for epoch in (0, 1, 0)]
    assert not torch.equal(first[0], first[1]) and torch.equal(first[0], first[2])
    assert not torch.equal(first[0], batches(text, seed=1)[0][0].labels)


def soft_targets(text, file, words=3):
    """Of each place: other words than elsewhere, and in order less and less of them."""
    n = len(text)
    chosen = (np.arange(n)[:, None] + np.arange(words)) % 200
    probabilities = np.full((n, words), 0.25) / (1 + np.arange(words)) + np.arange(n)[:, None] / (8 * n)
    SoftTargets.write(file, text.ids, chosen.astype(np.uint16), probabilities)
    return chosen, probabilities


@pytest.mark.parametrize("seed", [None, 3])
def test_soft_targets_stand_with_the_words_of_their_places(text, tmp_path, seed):
    chosen, probabilities = soft_targets(text, tmp_path / "soft")
    soft = pickle.loads(pickle.dumps(SoftTargets(tmp_path / "soft", text.ids)))  # as for a worker process
    stream = TextStream(text, 6, 5, seed, soft=soft)
    epoch = stream.pool(1, 0)
    places = {int(word): place for place, word in enumerate(text.ids) if word != EOS}
    seen = 0
    for batch in (stream.load(epoch, n) for n in epoch.batches):
        for label, words, wanted in zip(
            batch.labels.flatten().tolist(), batch.soft.words.flatten(0, 1), batch.soft.probabilities.flatten(0, 1)
        ):
            if label in places:
                seen += 1
                assert words.tolist() == chosen[places[label]].tolist()
                assert wanted.tolist() == pytest.approx(probabilities[places[label]].tolist(), rel=1e-3)
    assert seen == len(places)


def test_soft_targets_of_another_text(text, tmp_path):
    soft_targets(text, tmp_path / "soft")
    with pytest.raises(ValueError, match="soft has the soft targets of another text, or of another vocabulary"):
        SoftTargets(tmp_path / "soft", np.asarray(text.ids)[:-1])
    (tmp_path / "no").write_text("words")
    with pytest.raises(ValueError, match="no is no file of safetensors"):
        SoftTargets(tmp_path / "no", text.ids)
    (tmp_path / "other").write_bytes(save({"words": np.zeros(3)}))
    with pytest.raises(
        ValueError, match=r"other has no soft targets; `zoo rebuild` writes them, as its stage `predict`"
    ):
        SoftTargets(tmp_path / "other", text.ids)


def test_more_processes_than_streams(text):
    processes = batches(text, 3, streams=1, segment=40)
    assert [sum(int((batch.labels != PAD).sum()) for batch in found) for found in processes] == [103, 0, 0]
    assert all(batch.inputs.shape == (1, len(batch.inputs[0])) for found in processes for batch in found)


def test_the_loader_goes_on_behind_any_batch(text):
    def loader():
        return TrainLoader(TextStream(text, 6, 5, seed=4))

    def flat(found):
        return [(batch.first, batch.inputs.tolist(), batch.labels.tolist()) for batch in found]

    whole = loader()
    want = flat([batch for _ in range(2) for batch in whole])
    for stop in (1, 3, 4, 6):
        interrupted, found = loader(), []
        while len(found) < stop:
            for batch in interrupted:
                found.append(batch)
                if len(found) == stop:
                    break
        resumed = loader()
        resumed.load_state_dict(interrupted.state_dict())
        found += [batch for _ in range(2) for batch in resumed]
        assert flat(found)[: len(want)] == want, stop
    with pytest.raises(ValueError, match="made with 4 batches per epoch, now there are 3"):
        TrainLoader(TextStream(text, 6, 6, seed=4)).load_state_dict(whole.state_dict())


def test_counts(text, monkeypatch):
    monkeypatch.setattr("zoo.data.language_modelling.streams._COUNTED", 10)
    counts, words = text.counts(200), text.ids.tolist()
    assert counts.tolist() == [words.count(n) for n in range(200)] and counts[EOS] > 1


@pytest.mark.parametrize("kind", ["word", "char"])
def test_words_that_the_text_marks_as_unknown_are_not_counted_as_such(tmp_path, kind):
    tokenizer = Tokenizer.train(["the cat <unk> sat"] if kind == "char" else ["the cat sat"], kind, 200)
    TextArray.build(tmp_path / "words", ["the <unk> #% sat", "<unk>"], tokenizer, "the text")
    assert TextArray(tmp_path / "words").unknown == 1  # "#%"


def test_worker_processes_change_nothing(text):
    plain, workers = (TrainLoader(TextStream(text, 6, 5, seed=4), num_workers=n) for n in (0, 2))
    for a, b in zip(plain, workers, strict=True):
        assert torch.equal(a.labels, b.labels) and torch.equal(a.inputs, b.inputs) and a.first == b.first


# ---- data sets ----


def test_own_text(tmp_path):
    train, val = write(tmp_path / "a.txt", LINES), write(tmp_path / "v.txt", LINES[:1])
    data = ready(PlainText(train, val, tokenizer="word", batch_size=2, segment=4), ["fit"])
    assert spoken(data, data._train.ids) == "the cat sat </s> a <unk> sat on the mat </s> the dog </s>"  # no empty line
    assert (
        data._train.ids[5] == UNK
        and data._train.unknown == 0  # the text itself says so
        and "<unk>" not in data.tokenizer.to_json().replace("<unk >", "")
    )
    (val,) = data.val_dataloader()  # never more streams than words
    assert [spoken(data, row) for row in val.labels.tolist()] == ["the", "cat", "sat", "</s>"]
    assert [spoken(data, row) for row in val.inputs.tolist()] == ["</s>", "the", "cat", "sat"]


def test_words_and_marks_of_raw_text(tmp_path):
    file = write(tmp_path / "a.txt", ["The cat didn't sit.", "No, it sat!"])
    data = ready(PlainText(file, file, lowercase=True, batch_size=1), ["fit"])
    assert spoken(data, data._train.ids) == "the cat did n't sit . </s> no , it sat ! </s>"


def test_the_last_lines_are_held_out(tmp_path):
    data = ready(
        PlainText(write(tmp_path / "a.txt", [f"line {n}" for n in range(40)]), val_fraction=0.1, batch_size=2), ["fit"]
    )
    assert [*data.lines("val")] == [f"line {n}" for n in range(36, 40)] and len(data._train) == 36 * 3
    assert data.source("val").endswith("a.txt, the last 10.00% of it")
    with pytest.raises(ValueError, match="one line cannot be divided into training and validation; give val= a file"):
        PlainText(write(tmp_path / "b.txt", ["one line"])).prepare_data()
    with pytest.raises(ValueError, match="b.txt is empty; give a text with one sentence or paragraph per line"):
        PlainText(write(tmp_path / "b.txt", [])).prepare_data()


def test_empty_lines_are_no_words(tmp_path):
    lines = [line for n in range(40) for line in (f"line {n}", "", "  ")]
    data = ready(PlainText(write(tmp_path / "a.txt", lines), val_fraction=0.1, batch_size=2), ["fit"])
    assert [*data.lines("val")] == [f"line {n}" for n in range(36, 40)] and len(data._train) == 36 * 3
    with pytest.raises(ValueError, match="b.txt is empty; give a text"):
        PlainText(write(tmp_path / "b.txt", ["", " "])).prepare_data()


def test_validation_does_not_depend_on_batches(tmp_path):
    file = write(tmp_path / "a.txt", [f"a b c{n}" for n in range(30)])
    found = []
    for batch_size, segment in ((2, 3), (7, 11)):
        data = ready(
            PlainText(file, file, file, tokenizer="word", batch_size=batch_size, segment=segment, val_streams=4)
        )
        val, test = ([*loader] for loader in (data.val_dataloader(), data.test_dataloader()))
        found.append([torch.cat([batch.labels for batch in batches], dim=1).tolist() for batches in (val, test)])
    assert found[0] == found[1] and len(found[0][0]) == 4 and len(found[0][1]) == 1


def test_a_text_shorter_than_a_segment(tmp_path):
    file = write(tmp_path / "a.txt", ["a b c"])
    data = ready(PlainText(file, file, file, batch_size=2, segment=100))
    (train,), (val,) = data.train_dataloader(), data.val_dataloader()
    assert train.inputs.shape == (2, 2) and val.inputs.shape == (4, 1)
    data.batch_size = 5
    with pytest.raises(
        ValueError, match=r"a.txt: cannot cut 4 words into 5 streams .* lower batch_size or give more text"
    ):
        data.train_dataloader()


def test_mistakes(tmp_path):
    file = write(tmp_path / "a.txt", LINES)
    with pytest.raises(ValueError, match="segment must be at least 1; got 0"):
        PlainText(file, segment=0)
    with pytest.raises(ValueError, match="tokenizer must be one of 'word', 'word_punct', 'bpe', 'char'; got 'words'"):
        PlainText(file, tokenizer="words")
    with pytest.raises(ValueError, match="val_fraction must be between 0 and 0.5; got 0.7"):
        PlainText(file, val_fraction=0.7)
    with pytest.raises(FileNotFoundError, match="train: there is no file"):
        PlainText(str(tmp_path / "none.txt")).prepare_data()
    with pytest.raises(ValueError, match="blank.txt: it has no words"):
        PlainText(file, write(tmp_path / "blank.txt", ["", " "])).prepare_data()
    assert PlainText(file, file)._splits() == ["train", "val"]
    with pytest.raises(ValueError, match=r"there is no test text: give test= \(--data.test\) a file"):
        PlainText(file, file).lines("test")
    with pytest.raises(FileNotFoundError, match="call prepare_data\\(\\) before setup\\(\\)"):
        data = PlainText(file, file)
        data.prepare_data()
        write(tmp_path / "a.txt", [*LINES, "more"])
        data.setup("fit")
    with pytest.raises(ValueError, match="line 1: byte 0xe9 .* pass its encoding="):
        (tmp_path / "latin.txt").write_bytes("é\n".encode("latin-1"))
        PlainText(str(tmp_path / "latin.txt"), file).prepare_data()


def test_penn_treebank(tmp_path):
    for name in ("train", "valid", "test"):
        write(tmp_path / f"ptb/ptb.{name}.txt", [" the N <unk> said ", " it rose N % "] * 10)
    data = ready(PTB(root=str(tmp_path)))
    assert (
        spoken(data, data._test.ids[:10]) == "the N <unk> said </s> it rose N % </s>" and len(data.tokenizer) == 4 + 6
    )
    assert [batch.inputs.shape for batch in data.test_dataloader()] == [(1, 35), (1, 35), (1, 30)]
    (tmp_path / "ptb/ptb.test.txt").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"PTB: no file ptb.test.txt \(or .gz, .xz\) in .* It comes from the Linguistic"
    ):
        PTB(root=str(tmp_path)).prepare_data()


@pytest.mark.parametrize("form", ["wiki.{}.tokens", "wikitext2.{}.txt"])
def test_wikitext_by_either_name(tmp_path, form):
    for part in ("train", "valid", "test"):
        write(tmp_path / "wikitext-2" / form.format(part), [" ", " = Title = ", " ", " A <unk> , B . ", " "])
    data = ready(WikiText2(root=str(tmp_path), batch_size=2))
    assert spoken(data, data._test.ids) == "</s> = Title = </s> </s> A <unk> , B . </s> </s>"


def test_childrens_books(tmp_path):
    for name in ("train", "valid", "test"):
        write(tmp_path / f"cbt/cbt_{name}.txt", ["_BOOK_TITLE_ : A", "Once upon a time ."])
    data = ready(ChildrensBooks(root=str(tmp_path), batch_size=2), ["fit"])
    assert spoken(data, data._val.ids[:4]) == "_BOOK_TITLE_ : A </s>"


def test_brown_is_split_by_the_number_of_the_text(tmp_path):
    rows = [f"c{letter}{n:02}\tnews\tText {letter} {n} ." for letter in "ab" for n in range(1, 21)]
    write(tmp_path / "brown/brown.tsv", ["file\tcategory\tsentence", *rows])
    data = Brown(root=str(tmp_path))
    assert [*data.lines("test")] == [f"Text {letter} {n} ." for letter in "ab" for n in (10, 20)]
    assert [*data.lines("val")] == [f"Text {letter} {n} ." for letter in "ab" for n in (5, 15)]
    assert len([*data.lines("train")]) == 32


@pytest.mark.slow
def test_the_real_penn_treebank():
    if "ZOO_TEST_DATA" not in os.environ:
        pytest.skip("needs the Penn Treebank: set ZOO_TEST_DATA to the folder that holds it")
    data = ready(PTB(root=os.environ["ZOO_TEST_DATA"]))
    assert [len(text) for text in (data._train, data._val, data._test)] == [929_589, 73_760, 82_430] and len(
        data.tokenizer
    ) == 10_002
    labels = np.concatenate([batch.labels.numpy().ravel() for batch in data.test_dataloader()])
    assert np.array_equal(labels, data._test.ids)


@pytest.mark.parametrize(("kind", "advice"), [("word", True), ("word_punct", False)])
def test_unknown_words_that_lower_the_perplexity_are_told(tmp_path, caplog, kind, advice):
    own = write(tmp_path / "own.txt", ["The cat sat", "a dog"])
    model = KeyValuePredictLM(**KeyValuePredictLM.tiny | {"vocab_size": 100})
    model.tokenizer = Tokenizer.train(LINES, kind, 100)
    data = PlainText(own, own, own, tokenizer=kind)
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    for run in (trainer.test, trainer.validate):
        caplog.clear()
        run(model, data, verbose=False)
        (told,) = [record.message for record in caplog.records if "UNK" in record.message]
        assert told.startswith(f"{own}: 1 of its 7 tokens (14.3%) are words that the model does not know; each counts")
        assert ("plain text needs the form of the weight first" in told) == advice
    caplog.clear()
    known = write(tmp_path / "known.txt", ["the cat sat"])
    trainer.test(model, PlainText(known, known, known, tokenizer=kind), verbose=False)
    assert "UNK" not in caplog.text


def test_marks_of_unknown_words_are_not_added_to_the_vocabulary(tmp_path):
    """Not to that of a pretrained model of single words either, whatever tokenizer the data would choose themselves."""
    own = write(tmp_path / "own.txt", ["the <unk> sat on the <unk> today", "a <unk> dog today"])
    model = KeyValuePredictLM(**KeyValuePredictLM.tiny | {"vocab_size": 100})
    model.tokenizer = Tokenizer.train(["the cat sat on a dog"], "word", 100)
    options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_steps=0, enable_checkpointing=False, **options)
    trainer.fit(model, PlainText(own, own, extend_vocabulary=1, batch_size=1))
    (new,) = model.tokenizer.tokens([len(model.tokenizer) - 1])
    assert new == "today" and model.tokenizer.encode("<unk> today") == [UNK, len(model.tokenizer) - 1]
