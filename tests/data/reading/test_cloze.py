"""Cloze data: the official formats, the sets in the manner of CBT, a user's own; what is left out; resuming and
sharing.
"""

import pickle

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from cloze_fakes import NAMES, invent
from fakes import schedule
from labeled_fakes import json_lines, table, write

from zoo.cli import main
from zoo.data import CBT, CBTLike, Cloze, CNNDailyMail
from zoo.data.common.loaders import BatchStream, SortedLoader, TrainLoader
from zoo.data.reading.arrays import ClozeArrays, Question, fresh_text, overlap
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.text import UNK, Tokenizer
from zoo.text.words import BLANK, BLANK_ID


def ready(data, *stages):
    data.prepare_data()
    for stage in stages or ("fit", "test"):
        data.setup(stage)
    return data


def contents(batch):
    """Every example of a batch as numbers of words that do not depend on the batch."""
    found = []
    for n in range(len(batch.word_counts)):
        one = batch.select([n])
        found.append([tuple(part.tolist()) for part in one])
    return found


# ---- formats ----


def test_cbt_like(tmp_path):
    invent(tmp_path)
    data = CBTLike(root=str(tmp_path))
    first = next(data.examples("train"))
    lines = [question.document for question in data.examples("train")][0]
    assert len(lines) == 20 and BLANK in first.query.split() and first.answer in " ".join(lines).split()
    assert first.answer in first.candidates and set(first.candidates) <= set(NAMES)
    ready(data)
    assert len(data._train) == len(list(data.examples("train"))) > 40
    batch = data._test.batch(np.arange(len(data._test)))
    words = {word for question in data.examples("test") for word in " ".join(question.document).split()}
    assert "test" in words and int((batch.words == UNK).sum()) > 0  # "test" is in no training book
    assert (batch.answers >= 0).all() and (batch.words == BLANK_ID).sum() == len(data._test)
    with pytest.raises(
        FileNotFoundError, match="CBTLike: no file cbtlike_CN_train.tsv .*https://arxiv.org/abs/1511.02301"
    ):
        CBTLike("CN", root=str(tmp_path)).prepare_data()
    with pytest.raises(ValueError, match="kind must be one of 'NE', 'CN'; got 'V'"):
        CBTLike("V")


def test_brackets_of_cbt_like(tmp_path):
    invent(tmp_path)
    lines = ["Ann -LRB- Bob -RRB- -LSB- -RSB- a-LRB-b"] * 20 + ["Bob -LRB- ran -RRB- ."]
    write(tmp_path / "text" / "cbt_books_valid.txt.xz", "\n".join(lines) + "\n")
    table(
        tmp_path / "text" / "cbtlike_NE_valid.tsv.xz",
        ("start", "pos", "answer", "candidates"),
        [(0, 0, "Bob", "Bob|Ann")],
    )
    (question,) = CBTLike(root=str(tmp_path)).examples("val")
    assert question.document[0] == lines[0] and question.query == f"{BLANK} -LRB- ran -RRB- ."
    tokenizer = Tokenizer.train([lines[0]], "word", cleaning=CBTLike.cleaning)
    assert tokenizer.decode(tokenizer.encode(question.document[0])) == "Ann ( Bob ) [ ] a(b"


@pytest.mark.parametrize(
    "row", [(0, 1, "Zog", "Zog"), (99, 0, "Alice", "Alice"), (1, 77, "Alice", "Alice"), ("x", "y", "Alice", "Alice")]
)
def test_questions_that_do_not_fit_the_books(tmp_path, row):
    invent(tmp_path)
    table(tmp_path / "text" / "cbtlike_NE_train.tsv.xz", ("start", "pos", "answer", "candidates"), [row])
    message = (
        f"cbtlike_NE_train.tsv.xz, line 2: '{row[2]}' is not word {row[1]} of line {row[0]} . 20 of .*cbt_books_train"
    )
    with pytest.raises(ValueError, match=message):
        CBTLike(root=str(tmp_path)).prepare_data()


def official(name, other):
    lines = [f"{n} {name} met {other} , and line {n} ended ." for n in range(1, 21)]
    return "\n".join([*lines, f"21 Then {BLANK} slept .\t{name}\t\t{name}|{other}|{name}", "", ""])


def test_the_official_files_of_cbt(tmp_path):
    for split, size in (("train", ""), ("valid", "_2000ex"), ("test", "_2500ex")):
        write(
            tmp_path / "CBTest" / "data" / f"cbtest_CN_{split}{size}.txt",
            official("dog", "cat") + official("cow", "hen"),
        )
    data = CBT("CN", root=str(tmp_path))
    first, second = data.examples("val")
    assert first.document[0] == "dog met cat , and line 1 ended ." and len(first.document) == 20
    assert first[1:] == (f"Then {BLANK} slept .", "dog", ["dog", "cat", "dog"]) and second.answer == "cow"
    batch = ready(data)._train.batch(np.arange(2))
    assert batch.candidate_counts.tolist() == [3, 3] and batch.candidates[0] == batch.candidates[2] == batch.answers[0]
    with pytest.raises(ValueError, match="kind must be one of 'NE', 'CN', 'V', 'P'; got 'X'"):
        CBT("X")


@pytest.mark.parametrize(
    "text, message",
    [
        ("One sentence .\n", "line 1: expected a line number and a sentence; got 'One sentence .'"),
        (
            "1 A .\n2 B XXXXX\tC\n",
            "line 2: expected a query, its answer, nothing, and candidates between tabs; got 2 fields",
        ),
        ("1 A .\n2 B .\n", "ends in the middle of a question, after its line 2"),
    ],
)
def test_damaged_files_of_cbt(tmp_path, text, message):
    write(tmp_path / "cbtest_NE_train.txt", text)
    with pytest.raises(ValueError, match=message):
        list(CBT(root=str(tmp_path)).examples("train"))


def story(answer, *names):
    text = " ".join(f"( {name} ) said so ." for name in names)
    listed = "\n".join(f"{name}:Somebody {name}" for name in names)
    return f"http://example.org/a\n\n{text}\n\nWho was @placeholder ?\n\n{answer}\n\n{listed}"


def test_cnn_and_daily_mail(tmp_path):
    for part in ("training", "validation", "test"):
        for n in range(3):
            write(
                tmp_path / "cnn" / "questions" / part / f"{n}.question",
                story("@entity2", "@entity1", "@entity2", "@entity0"),
            )
    data = ready(CNNDailyMail(root=str(tmp_path), min_frequency=1))
    first = next(data.examples("test"))
    assert first == (["( @entity1 ) said so . ( @entity2 ) said so . ( @entity0 ) said so ."], f"Who was {BLANK} ?", "@entity2",
                     ["@entity1", "@entity2", "@entity0"])  # fmt: skip
    batch = data._test.batch(np.arange(3))
    assert "@entity2" in data.tokenizer.tokens(batch.words.tolist()) and (batch.answers >= 0).all()
    with pytest.raises(FileNotFoundError, match="CNNDailyMail: there are no files .*dailymail"):
        CNNDailyMail("dailymail", root=str(tmp_path)).prepare_data()
    with pytest.raises(ValueError, match="part must be one of 'cnn', 'dailymail'; got 'bbc'"):
        CNNDailyMail("bbc")
    write(tmp_path / "cnn" / "questions" / "test" / "3.question", "http://example.org\n\na story")
    with pytest.raises(ValueError, match="3.question: expected address, story, query, answer and names .* got 2 parts"):
        list(CNNDailyMail(root=str(tmp_path)).examples("test"))


OWN = [
    {
        "document": f"Ann{n} met Bob. They ran.",
        "query": f"Did ____ meet Ann{n}?",
        "answer": "Bob",
        "candidates": ["Bob", f"Ann{n}"],
    }
    for n in range(40)
]


def test_own_questions_as_json_and_as_table(tmp_path):
    json_lines(tmp_path / "a.jsonl", OWN)
    table(tmp_path / "a.tsv", OWN[0].keys(), [[*list(row.values())[:3], "|".join(row["candidates"])] for row in OWN])
    batches = []
    for name in ("a.jsonl", "a.tsv"):
        data = Cloze(name, test=name, blank="____", root=str(tmp_path), min_frequency=1)
        assert next(data.examples("test")).query.split() == ["Did", BLANK, "meet", "Ann0?"]
        ready(data)
        batches.append(contents(data._test.batch(np.arange(40))))
        assert len(data._train) + len(data._val) == 40 and 0 < len(data._val) < 15
    assert batches[0] == batches[1]
    words = data.tokenizer.tokens(batches[0][0][0])
    assert words[:6] == ["Ann0", "met", "Bob", ".", "They", "ran"]  # plain text is cut at its punctuation marks
    with pytest.raises(
        ValueError, match=r"a query must have XXXXX in .*; another mark is named by blank= \(--data.blank\)"
    ):
        list(Cloze("a.jsonl", test="a.jsonl", root=str(tmp_path)).examples("test"))
    free = Cloze("a.jsonl", test="a.jsonl", blank="____", candidates_column=None, root=str(tmp_path), min_frequency=1)
    assert ready(free)._test.batch(np.arange(2)).candidate_counts.tolist() == [6, 6]  # the words of the document


def test_held_out_documents_are_on_one_side_only(tmp_path):
    rows = [{**row, "query": f"{BLANK} {n}"} for row in OWN for n in range(3)]
    json_lines(tmp_path / "a.jsonl", rows)
    data = Cloze("a.jsonl", val_fraction=0.3, root=str(tmp_path))
    train, val = ({question.document[0] for question in data.examples(split)} for split in ("train", "val"))
    assert not train & val and len(train | val) == 40 and len(list(data.examples("val"))) == 3 * len(val)


@pytest.mark.parametrize("documents", [2, 3, 12])
@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.49])
def test_of_few_documents_one_is_held_out_at_least(tmp_path, documents, fraction):
    rows = [(f"Ann saw {'Bob' * n} .", "Ann saw XXXXX", "Bob" * n, "Ann") for n in range(1, documents + 1)] * 5
    table(tmp_path / "few.tsv", ("document", "query", "answer", "candidates"), rows)
    data = Cloze("few.tsv", val_fraction=fraction, root=str(tmp_path))
    train, val = ({question.answer for question in data.examples(split)} for split in ("train", "val"))
    assert train and val and len(train | val) == len(train) + len(val) == documents
    if fraction < 0.1 and documents < 12:
        assert len(val) == 1


def test_questions_about_one_document_cannot_be_held_out(tmp_path):
    table(
        tmp_path / "one.tsv", ("document", "query", "answer", "candidates"), [("Ann left .", "XXXXX left", "Ann", "")]
    )
    with pytest.raises(
        ValueError, match=r"one.tsv: all questions are about one document, .* give others as val= \(--d"
    ):
        Cloze("one.tsv", root=str(tmp_path)).prepare_data()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"tokenizer": "bpe"}, "tokenizer must be one of 'word', 'word_punct'; got 'bpe'"),
        ({"batch_size": None}, r"give batch_size \(questions\) or batch_tokens"),
        ({"vocab_size": 3}, "vocab_size must be at least 5; got 3"),
        ({"blank": " "}, "blank must be the mark of the missing word, e.g. '____'; got ' '"),
        ({"val_fraction": 0.7}, "val_fraction must be between 0 and 0.5; got 0.7"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        Cloze("a.jsonl", **options)


def test_mistakes_in_own_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="train: there is no file .*nowhere.jsonl"):
        Cloze("nowhere.jsonl").prepare_data()
    json_lines(tmp_path / "a.jsonl", [{**OWN[0], "query": "no blank here"}])
    with pytest.raises(
        ValueError, match="a.jsonl: a query must have XXXXX in place of the missing word; got 'no blank here'"
    ):
        Cloze("a.jsonl", val="a.jsonl", root=str(tmp_path)).prepare_data()
    json_lines(tmp_path / "b.jsonl", [{**OWN[0], "query": BLANK, "answer": "Zog"}])
    message = r"b.jsonl: it has no question to learn from \(1 have an answer that is not in the document\)"
    with pytest.raises(ValueError, match=message):
        Cloze("b.jsonl", val="b.jsonl", root=str(tmp_path)).prepare_data()
    with pytest.raises(ValueError, match=r"there is no test set: give test= \(--data.test\) a file"):
        list(Cloze("a.jsonl", root=str(tmp_path)).examples("test"))
    with pytest.raises(ValueError, match="a.jsonl.* has no field 'answers'"):
        list(Cloze("a.jsonl", "a.jsonl", answer_column="answers", root=str(tmp_path)).examples("train"))


# ---- arrays ----


def arrays(folder, questions, kind="word", keep_all=True, **options):
    tokenizer = Tokenizer.train(fresh_text(questions), kind, 100, **options)
    ClozeArrays.build(folder, questions, tokenizer, "invented", keep_all)
    return ClozeArrays(folder), tokenizer


def ask(document, answer="a", candidates=(), query=BLANK):
    return Question(document, query, answer, [*candidates])


def test_own_files_are_looked_for_before_anything_is_built(tmp_path, capsys):
    fit = ["fit", "--config", "attention_over_attention.cbtlike_cn", "--data", "zoo.data.Cloze"]
    for args, message in (
        ([], "zoo: error: the recipe needs your data: --data.train FILE, a table with the columns document, query "),
        (["--data.train", str(tmp_path / "none.csv")], "zoo: error: train: there is no file "),
    ):
        assert main([*fit, *args]) == 2
        assert capsys.readouterr().err.splitlines()[-1].startswith(message)


def test_shared_lines_are_stored_once(tmp_path):
    lines = [f"line {n} of a book" for n in range(9)]
    windows = [lines[n : n + 4] for n in (0, 1, 2, 5, 5)] + [["line 5 of a book"], lines[:3], [], lines[2:3]]
    assert [overlap(a, b) for a, b in zip(windows, windows[1:])] == [3, 3, 1, 4, 0, 0, 0, 0]
    questions = [ask(window) for window in windows]
    text = [line for line in fresh_text(questions) if line != BLANK]
    assert text == [*lines[:6], *lines[6:9], "line 5 of a book", *lines[:3], lines[2]]
    found, tokenizer = arrays(tmp_path / "a", questions)
    stored = (tmp_path / "a" / "documents.tokens").stat().st_size / 4
    assert stored == 5 * len(text) and found.tokens == 5 * sum(map(len, windows))
    index = np.arange(len(windows))
    assert found.lengths(index)[0].tolist() == [5 * len(window) for window in windows]
    for number, window in enumerate(windows):
        batch = found.batch(np.array([number]))
        assert tokenizer.decode(batch.words[batch.document].tolist()) == " ".join(window)


def test_what_teaches_nothing_is_left_out_of_training(tmp_path, caplog):
    questions = [ask(["a b"]), ask(["b c"]), ask([" "]), ask(["a"], query=""), ask(["x", "a"])]
    found, _ = arrays(tmp_path / "train", questions, keep_all=False)
    assert (len(found), found.absent, found.empty) == (2, 1, 2)
    kept, _ = arrays(tmp_path / "test", questions)
    assert (len(kept), kept.absent, kept.empty) == (5, 2, 0)
    batch = kept.batch(np.arange(5))
    assert batch.answers.tolist() == [0, -1, -1, 0, 1] and batch.document_lengths.tolist() == [2, 2, 0, 1, 2]
    rows = [{"document": q.document[-1], "query": q.query, "answer": q.answer, "candidates": []} for q in questions]
    json_lines(tmp_path / "a.jsonl", rows)
    ready(Cloze("a.jsonl", val="a.jsonl", root=str(tmp_path)), "fit")
    assert "2 training questions; left out 1 whose answer is not in the document and 2 without words" in caplog.text
    assert "validation" not in caplog.text


def test_validation_without_a_right_answer_is_told(tmp_path, caplog):
    rows = [{"document": "a c", "query": f"a {BLANK}", "answer": answer, "candidates": []} for answer in "cb"]
    json_lines(tmp_path / "train.jsonl", rows[:1])
    json_lines(tmp_path / "val.jsonl", rows[1:])
    ready(Cloze("train.jsonl", val="val.jsonl", root=str(tmp_path)), "fit")
    message = (
        "none of the 1 validation questions has its answer in its document, so the accuracy is 0 and the loss is NaN"
    )
    assert message in caplog.text


def test_words_are_compared_as_they_are_written(tmp_path):
    questions = [ask(["Rose rose Zog ROSE Zug"], "rose", ["Rose", "rose", "Zug"])]
    found, _ = arrays(tmp_path / "a", questions, lowercase=True)
    batch = found.batch(np.array([0]))
    assert (
        batch.document.tolist() == [0, 1, 2, 3, 4]
        and batch.answers.tolist() == [1]
        and batch.candidates.tolist() == [0, 1, 4]
    )
    assert len(set(batch.words[[0, 1, 3]].tolist())) == 1  # one embedding for the three
    composed, decomposed = "Zo\u00e9", "Zoe\u0301"
    found, _ = arrays(tmp_path / "b", [ask([composed], decomposed)])
    assert found.batch(np.array([0])).answers.tolist() == [0]


def test_answers_of_several_words_are_in_no_document(tmp_path):
    found, _ = arrays(tmp_path / "a", [ask(["New York"], "New York", ["New York", "New"])])
    batch = found.batch(np.array([0]))
    assert batch.answers.tolist() == [-1] and batch.candidates.tolist() == [-1, 0]


# ---- training ----


def loader(data, **options):
    return TrainLoader(BatchStream(data._train, 8, pool_batches=2, **options))


def test_resume_in_the_middle_is_exact(tmp_path):
    invent(tmp_path)
    data = ready(CBTLike(root=str(tmp_path)))
    whole = loader(data)
    expected = [contents(batch) for _ in range(2) for batch in whole]
    start = loader(data)
    for _ in zip(range(len(whole)), start):
        pass
    for _ in zip(range(3), start):
        state = start.state_dict()
    resumed = loader(data)
    resumed.load_state_dict(pickle.loads(pickle.dumps(state)))
    assert [contents(batch) for batch in resumed] == expected[len(whole) + 3 :]


def test_processes_share_every_question(tmp_path):
    invent(tmp_path)
    data = ready(CBTLike(root=str(tmp_path)))
    shares = [TrainLoader(BatchStream(data._train, 4, None, 2, 0, rank, 2), num_workers=rank) for rank in range(2)]
    for one, *parts in zip(loader(data), *shares, strict=True):
        assert sorted(contents(one)) == sorted(sum(map(contents, parts), []))
    parts = [batch for rank in range(3) for batch in SortedLoader(data._test, 8, None, rank, 3)]
    everything = data._test.batch(np.arange(len(data._test)))
    assert sorted(sum(map(contents, parts), [])) == sorted(contents(everything))


def test_batches_are_of_similar_length(tmp_path):
    invent(tmp_path, questions=300)
    data = ready(CBTLike(root=str(tmp_path), batch_tokens=1500))
    assert all(int(b.document_lengths.max()) * len(b.document_lengths) <= 1500 for b in data.train_dataloader())
    spread = [int(b.document_lengths.max() - b.document_lengths.min()) for b in loader(data)]
    every = data._train.lengths(np.arange(len(data._train)))[0]
    assert np.mean(spread) < 0.35 * (every.max() - every.min())


class Noting(pl.Callback):
    """Remembers the weights after every step."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, model, *_):
        self.seen.append(float(model.embedding.weight.detach().double().sum()))


def test_lightning_resumes_in_mid_epoch_with_all_random_numbers(tmp_path):
    invent(tmp_path)

    def fit(**options):
        torch.manual_seed(0)
        model = schedule(
            AttentionOverAttentionReader(60, embedding_size=6, hidden_size=4, num_unknown=4, candidate_dropout=0.5),
            warmup_steps=1,
        )
        noting = Noting()
        callbacks = [noting, pl.callbacks.ModelCheckpoint(tmp_path / "run", every_n_train_steps=5, save_top_k=-1)]
        quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False)
        trainer = pl.Trainer(max_epochs=2, accelerator="cpu", num_sanity_val_steps=0, callbacks=callbacks, **quiet)
        trainer.fit(model, CBTLike(root=str(tmp_path), batch_size=8, pool_batches=2), **options)
        return noting.seen

    whole = fit()
    checkpoint = next((tmp_path / "run").glob("*step=10.ckpt"))
    assert len(whole) > 12 and len(whole) // 2 not in (5, 10)
    assert fit(ckpt_path=checkpoint) == whole[10:]


def test_scores_of_zoo_test_and_word_vectors(tmp_path):
    pytest.importorskip("gensim")
    invent(tmp_path)
    data = CBTLike(root=str(tmp_path), batch_size=8, word_vectors="word2vec", word2vec_epochs=1)
    torch.manual_seed(0)
    model = schedule(AttentionOverAttentionReader(60, embedding_size=6, hidden_size=4, num_unknown=4), lr=0.0)
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", **quiet)
    trainer.fit(model, data)
    vectors, known = data.vectors(6)
    assert known.sum() > 10 and torch.equal(model.embedding.weight[: len(known)][known].detach(), vectors[known])
    found = trainer.test(model, data, verbose=False)[0]["test/accuracy"]
    questions = list(data.examples("test"))
    answers = model.answer(
        [" ".join(q.document) for q in questions], [q.query for q in questions], [q.candidates for q in questions]
    )
    assert found == pytest.approx(100 * np.mean([a.answer == q.answer for a, q in zip(answers, questions)]), abs=1e-3)
    with pytest.raises(FileNotFoundError, match="word_vectors must be 'word2vec' or a file"):
        CBTLike(root=str(tmp_path), word_vectors="nowhere.txt").vectors(6)


def test_a_vocabulary_too_large_for_the_model(tmp_path):
    invent(tmp_path)
    data = CBTLike(root=str(tmp_path), min_frequency=1)
    model = AttentionOverAttentionReader(6, embedding_size=6, hidden_size=4)
    with pytest.raises(
        ValueError, match="the data has a vocabulary of .* words, the model one of 6; set the model's vocab_size"
    ):
        pl.Trainer(fast_dev_run=True, accelerator="cpu", logger=False, enable_model_summary=False).fit(model, data)
