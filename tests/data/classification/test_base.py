import pickle

import labeled_fakes
import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from labeled_examples import NAMES, Invented, contents, expected, ready, words_of

from zoo.batches.classification import collate_documents, collate_texts
from zoo.data import IMDB, TREC6, LabeledText
from zoo.data.classification.arrays import Encoding, Example, LabeledArrays, LabeledStream
from zoo.data.common.loaders import BatchStream, SortedLoader, TrainLoader
from zoo.text import UNK, Tokenizer

FORMS = [{}, {"structure": "text"}, {"structure": "text", "pair": True}, {"multi_label": True}]
BY_SIZE, BY_WORDS = {"batch_size": 8}, {"batch_tokens": 300}


@pytest.mark.parametrize("budget", [BY_SIZE, BY_WORDS])
@pytest.mark.parametrize("form", FORMS)
def test_batches_hold_the_texts(form, budget):
    data = ready(Invented(**form, **budget, min_frequency=1, pool_batches=4), ["fit", "test"])
    assert data.labels == sorted(NAMES) and data.tokenizer.kind == "word_punct"
    loader = data.train_dataloader()
    assert contents(loader) == expected(data, "train") and len(loader) > 10
    if budget is BY_SIZE:  # with a budget of words an epoch of the trainer is not exactly one of the data
        assert contents(loader) == expected(data, "train")
    assert contents(data.val_dataloader()) == expected(data, "val")
    (test,) = data.test_dataloader()
    assert contents(test) == expected(data, "test") and data.test_names == ["test"]


def test_batches_are_of_similar_length_and_within_the_budget():
    data = ready(Invented((1000, 30, 30), **BY_WORDS))
    assert {len(batch.words) <= 300 for batch in data.train_dataloader()} == {True}
    lengths = [len(_flat(words)) for batch in data.val_dataloader() for words in words_of(batch)]
    assert lengths == sorted(lengths, reverse=True)
    rows = [list(map(len, map(_flat, words_of(batch)))) for batch in data.train_dataloader()]
    assert np.mean([max(row) - min(row) for row in rows]) < 4  # a shuffled order has more than 20


def _flat(sentences):
    return [word for sentence in sentences for word in sentence]


def test_epochs_and_seeds_differ():
    loaders = [ready(Invented(seed=seed)).train_dataloader() for seed in (0, 0, 1)]
    first, again, other = ([words_of(batch) for batch in loader] for loader in loaders)
    assert first == again != other
    assert [words_of(batch) for batch in loaders[0]] != first


@pytest.mark.parametrize("form", FORMS)
def test_resume_in_the_middle_is_exact(form):
    def loader():
        return ready(Invented(**form, **BY_WORDS, pool_batches=4)).train_dataloader()

    whole = loader()
    expected = [words_of(batch) for _ in range(2) for batch in whole]
    stopped = iter(start := loader())
    for _ in range(len(whole) + 3):
        if next(stopped, None) is None:
            stopped = iter(start)
            next(stopped)
    state = pickle.loads(pickle.dumps(start.state_dict()))
    resumed = loader()
    resumed.load_state_dict(state)
    assert [words_of(batch) for batch in resumed] == expected[len(whole) + 3 :]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_processes_share_every_epoch(num_workers):
    arrays = ready(Invented())._train
    one = TrainLoader(BatchStream(arrays, 16, pool_batches=4))
    two = [TrainLoader(BatchStream(arrays, 8, None, 4, 0, rank, 2), 0, num_workers) for rank in range(2)]
    for whole, *shares in zip(one, *two, strict=True):
        assert sorted(words_of(whole)) == sorted(words for share in shares for words in words_of(share))


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_gives_every_text_once(world_size):
    data = ready(Invented(), ["test"])
    loaders = [SortedLoader(data._test, 8, None, rank, world_size) for rank in range(world_size)]
    assert len({len(list(loader)) for loader in loaders}) == 1
    assert sorted(sum(map(contents, loaders), [])) == expected(data, "test")
    assert list(SortedLoader(data._test, 8, None, 40, 41)) == [None]  # 40 documents
    with pytest.raises(ValueError, match="cannot shard 203 training texts over 204 processes"):
        BatchStream(ready(Invented(structure="text"))._train, 8, world_size=204)


# Cutting, empty and strange texts


def _arrays(tmp_path, examples, structure="document", keep_empty=True, tokenizer=None, **options):
    tokenizer = tokenizer or Tokenizer.train(["a a a a a b b b b c c c d d !"], "word_punct", 50)
    encoding = Encoding(tokenizer, {"x": 0, "y": 1}, structure, **options)
    folder = tmp_path / f"arrays{len(list(tmp_path.iterdir()))}"
    LabeledArrays.build(folder, (Example(*example) for example in examples), encoding, "made-up text", keep_empty)
    return LabeledArrays(folder)


def test_cut_documents(tmp_path):
    text = "One two three four. Five six! Seven eight nine."

    def sentences(**options):
        (batch,) = SortedLoader(_arrays(tmp_path, [(text, None, ("x",))], **options))
        return batch.sentence_lengths.tolist()

    assert sentences() == [5, 3, 4]
    assert sentences(max_sentences=2) == [5, 3]
    assert [sentences(max_words=n) for n in (1, 5, 6, 8, 9, 99)] == [[1], [5], [5, 1], [5, 3], [5, 3, 1], [5, 3, 4]]
    assert sentences(max_sentences=2, max_words=9) == [5, 3]


def test_cut_texts():
    data = ready(Invented(structure="text", pair=True, max_words=3), ["fit", "test"])
    for loader in (data.train_dataloader(), *data.test_dataloader()):
        lengths = torch.cat([torch.cat([batch.lengths, batch.lengths2]) for batch in loader])
        assert lengths.max() == 3


def test_training_shows_other_parts_of_long_texts_in_each_epoch(tmp_path):
    long = " ".join(f"a{'b' * n}" for n in range(9))  # nine different words
    words = [f"a{'b' * n}" for n in range(9)]
    tokenizer = Tokenizer.train([long], "word_punct", 50, True, 1)
    ids = tokenizer.encode(long)
    sentences = [ids[:4], ids[4:6], ids[6:]]
    text = ".\n\n".join(" ".join(words[i:j]) for i, j in ((0, 4), (4, 6), (6, 9)))
    for structure in ("document", "text"):
        source = text.replace(".", "") if structure == "document" else long
        arrays = _arrays(tmp_path, [(source, None, ("x",)), ("a ab", None, ("y",))], structure, tokenizer=tokenizer)
        whole = arrays.batch(np.array([0, 1]))
        assert whole.rows() == [ids, ids[:2]]
        rows, lengths = set(), set()
        for epoch in range(40):
            stream = LabeledStream(arrays, 5, 2)
            batch = stream._batch(np.array([0, 1]), epoch)
            again, alone = stream._batch(np.array([0, 1]), epoch), stream._batch(np.array([0]), epoch)
            first, second = batch.rows()
            assert second == ids[:2]  # a short text stays whole
            assert again.rows() == [first, second] and alone.rows() == [first]  # whatever it shares a batch with
            rows.add(tuple(first))
            if structure == "document":
                lengths.add(tuple(batch.sentence_lengths.tolist()[:-1]))
        assert all(len(row) == 5 and list(row) == sorted(row, key=ids.index) for row in rows)
        if structure == "text":
            assert rows == {tuple(ids[i : i + 5]) for i in range(5)}
        else:  # which sentence is cut depends on the order in which they were drawn
            cuts = [(4, 1, 0), (4, 0, 1), (3, 2, 0), (2, 0, 3), (0, 2, 3)]
            assert rows == {tuple(i for s, n in zip(sentences, cut, strict=True) for i in s[:n]) for cut in cuts}
            assert lengths == {tuple(n for n in cut if n) for cut in cuts}


@pytest.mark.parametrize("structure", ["document", "text"])
def test_only_training_shows_parts(structure):
    data = ready(Invented(structure=structure, sample_words=3), ["fit", "test"])
    whole = ready(Invented(structure=structure), ["fit", "test"])

    def longest(loader):
        return max(len(row) for batch in loader for row in batch.rows())

    assert longest(data.train_dataloader()) == 3 < longest(whole.train_dataloader())
    for loaders in zip(
        (data.val_dataloader(), *data.test_dataloader()),
        (whole.val_dataloader(), *whole.test_dataloader()),
        strict=True,
    ):
        mine, wanted = ([batch.rows() for batch in loader] for loader in loaders)
        assert mine == wanted


@pytest.mark.parametrize("structure", ["document", "text"])
def test_empty_texts(tmp_path, structure):
    examples = [("a b", None, ("y",)), (" \n", None, ("x",)), ("", None, ("y",)), ("zzz", None, ("x",))]
    kept = _arrays(tmp_path, examples, structure)
    assert (len(kept), kept.empty) == (4, 0)
    batches = list(SortedLoader(kept, 2))
    assert [words_of(batch) for batch in batches] == (
        [[[[4, 5]], [[UNK]]], [[], []]] if structure == "document" else [[[4, 5], [UNK]], [[], []]]
    )
    assert [batch.labels.tolist() for batch in batches] == [[1, 0], [0, 1]]
    dropped = _arrays(tmp_path, examples, structure, keep_empty=False)
    assert (len(dropped), dropped.empty) == (2, 2)
    with pytest.raises(ValueError, match="made-up text: it has no text with words"):
        _arrays(tmp_path, examples[1:3], structure, keep_empty=False)


def test_pairs_with_an_empty_side(tmp_path):
    examples = [("a", "b", ("x",)), ("", "b", ("x",)), ("a", "", ("y",))]
    assert _arrays(tmp_path, examples, "text", keep_empty=False, pair=True).empty == 2
    (batch,) = SortedLoader(_arrays(tmp_path, examples, "text", pair=True))
    assert words_of(batch) == [[[4], [5]], [[4], []], [[], [5]]]


def test_empty_training_texts_are_counted(tmp_path, caplog):
    rows = [("a text", "x"), (" ", "x")] * 20
    labeled_fakes.table(tmp_path / "a.tsv", ("text", "label"), rows)
    with caplog.at_level("INFO", "zoo.data.classification.base"):
        data = ready(LabeledText(*[str(tmp_path / "a.tsv")] * 3), ["fit", "test"])
    assert "20 training texts; left out 20 without words" in caplog.text
    assert len(data._val) == len(data._test) == 40


@pytest.mark.parametrize("split_sentences", [False, True])
def test_very_long_and_unknown_texts(tmp_path, split_sentences):
    texts = ["word " * 3_000, "It is good. " * 25_000, "xyzzy plugh", "fine"]
    labeled_fakes.table(tmp_path / "a.tsv", ("text", "label"), [(text, "x") for text in texts])
    options = {"split_sentences": split_sentences, "batch_size": 1, "vocab_size": 10, "min_frequency": 2}
    data = ready(LabeledText(*[str(tmp_path / "a.tsv")] * 3, **options), ["fit", "test"])
    (loader,) = data.test_dataloader()
    words = [_flat(words[0]) if split_sentences else words[0] for words in map(words_of, loader)]
    assert list(map(len, words)) == [100_000, 3_000, 2, 1]
    assert set(words[1]) == set(data.tokenizer.encode("word")) and words[2:] == [[UNK, UNK], [UNK]]
    assert sum(len(batch.labels) for batch in data.train_dataloader()) == 4
    if split_sentences:
        sentences = [batch.sentence_lengths.tolist() for batch in loader]
        assert sentences[:2] == [[4] * 25_000, [3_000]]


# Files


def test_arrays_are_memory_mapped(tmp_path):
    arrays = _arrays(tmp_path, [("a b! c", None, ("y",)), ("d", None, ("x",))])
    assert (len(arrays), arrays.tokens, arrays.texts, arrays.noun) == (2, 5, 2, "documents")
    (words,) = arrays.rows(np.array([1, 0]))
    assert [row.tolist() for row in words] == [[7], [4, 5, 8, 6]]
    assert not any(row.flags.owndata or row.flags.writeable for row in words)  # views into the file
    copy = pickle.loads(pickle.dumps(arrays))
    expected = collate_documents([[[4, 5, 8], [6]], [[7]]], torch.tensor([1, 0]))
    for loaded in (arrays, copy):
        arrays.release()
        assert all(map(torch.equal, loaded.batch(np.array([0, 1])), expected))
    assert [[s.tolist() for s in document] for document in arrays.sentences(np.array([0, 1]))] == [
        [[4, 5, 8], [6]],
        [[7]],
    ]
    sizes = {file.name: file.stat().st_size for file in arrays.folder.iterdir()}
    assert sizes["words.tokens"] == 2 * 5 and sizes["words.offsets"] == 8 * 3 and sizes["sentences.tokens"] == 4 * 3
    text = _arrays(tmp_path, [("a b", None, ("y",))], "text")
    assert [part[0].tolist() for part in text.batch(np.array([0]))[:2]] == collate_texts([[4, 5]]).tokens.tolist() + [2]
    assert [[s.tolist() for s in document] for document in text.sentences(np.array([0]))] == [[[4, 5]]]


def test_a_failed_build_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="made-up text: label 'z' is not in the training text, which has 'x', 'y'"):
        _arrays(tmp_path, [("a", None, ("x",)), ("a", None, ("z",))])
    with pytest.raises(ValueError, match=r"made-up text: expected exactly one label for each text; got \['x', 'y'\]"):
        _arrays(tmp_path, [("a", None, ("x", "y"))])
    assert list(tmp_path.iterdir()) == []
    assert _arrays(tmp_path, [("a", None, ("y", "x"))], multi_label=True).batch(np.array([0])).labels.tolist() == [
        [1, 1]
    ]


def test_the_cache_is_used_and_follows_the_options(monkeypatch):
    def read_again(self, split):
        yield pytest.fail("the text was read again")

    ready(Invented())
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "train", None)
        patch.setattr(Invented, "examples", read_again)
        again = ready(Invented(batch_size=3, seed=4, val_fraction=0.3))
        assert len(again._train) == 203
    shorter = ready(Invented(max_words=2, vocab_size=7))
    assert shorter._train.tokens == 2 * 203 and len(shorter.tokenizer) == 7


def test_setup_before_prepare_data():
    data = Invented()
    with pytest.raises(FileNotFoundError, match=r"call prepare_data\(\) before setup\(\)"):
        data.setup("fit")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": None}, "give batch_size .* or batch_tokens .*; got neither"),
        ({"batch_size": -1}, "batch_size must be at least 1; got -1"),
        ({"vocab_size": 4}, "vocab_size must be at least 5; got 4"),
        ({"min_frequency": 0}, "min_frequency must be at least 1; got 0"),
        ({"max_words": 0}, "max_words must be at least 1; got 0"),
        ({"sample_words": 0}, "sample_words must be at least 1; got 0"),
        ({"max_sentences": 0}, "max_sentences must be at least 1; got 0"),
        ({"word2vec_epochs": 0}, "word2vec_epochs must be at least 1; got 0"),
        ({"val_fraction": 0.5}, "val_fraction must be between 0 and 0.5; got 0.5"),
        ({"num_workers": -1}, "num_workers must be at least 0; got -1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Invented(**arguments)


# Hold-out


def test_held_out_texts_are_not_trained_on(tmp_path):
    rows = [(f"text number{number % 100}", f"{number % 2}") for number in range(300)]
    labeled_fakes.table(tmp_path / "a.tsv", ("text", "label"), rows)
    held_out = {}
    for seed in (0, 1):
        data = ready(LabeledText(str(tmp_path / "a.tsv"), val_fraction=0.2, split_seed=seed, min_frequency=1))
        train, val = ({example.text for example in data.examples_of(split)} for split in ("train", "val"))
        assert not train & val and len(train | val) == 100 and 5 < len(val) < 40
        assert len(data._train) == 3 * len(train) and len(data._val) == 3 * len(val)  # repeated texts stay together
        assert len(data.tokenizer) == 4 + 1 + len(train)  # the vocabulary is that of the training texts
        held_out[seed] = val
    assert held_out[0] != held_out[1]


# With a trainer


class _Toy(pl.LightningModule):
    """Notes the batches it sees."""

    def __init__(self, tokenizer=None, label_names=None, stop_at=None, **config):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.tokenizer, self.label_names, self.config, self.stop_at = tokenizer, label_names, config, stop_at
        self.seen, self.validated, self.vectors = [], [], None

    def setup(self, stage):
        if stage == "fit" and self.config:
            self.vectors = self.trainer.datamodule.vectors(self.config["embedding_size"])

    def training_step(self, batch, batch_idx):
        self.seen.append(words_of(batch))
        return self.weight * batch.labels.sum()

    def validation_step(self, batch, batch_idx):
        self.validated += zip(words_of(batch), batch.labels.tolist(), strict=True)

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def _trainer(folder, **options):
    return pl.Trainer(
        default_root_dir=folder, accelerator="cpu", max_epochs=3, num_sanity_val_steps=0, logger=False,
        enable_progress_bar=False, enable_model_summary=False, **options,
        callbacks=[pl.callbacks.ModelCheckpoint(folder, every_n_train_steps=5, save_top_k=-1)],
    )  # fmt: skip


@pytest.mark.parametrize("form", [{}, {"structure": "text", "pair": True}])
def test_lightning_resumes_in_mid_epoch(tmp_path, form):
    def data():
        return Invented((100, 20, 20), **form, **BY_SIZE)

    whole, resumed = _Toy(), _Toy()
    _trainer(tmp_path / "whole").fit(whole, data())
    per_epoch = len(whole.seen) // 3
    step = 5 * (per_epoch // 5 + 1)  # in the second epoch
    assert len(whole.seen) == 3 * per_epoch and per_epoch % 5 and len(whole.validated) == 60
    checkpoint = next((tmp_path / "whole").glob(f"*step={step}.ckpt"))
    _trainer(tmp_path / "resumed").fit(resumed, data(), ckpt_path=checkpoint)
    assert resumed.seen == whole.seen[step:]


def test_only_what_a_stage_needs_is_read(tmp_path):
    labeled_fakes.table(tmp_path / "a.tsv", ("text", "label"), [(f"text {n}", f"{n % 2}") for n in range(40)])
    test = str(tmp_path / "a.tsv")
    model = _Toy(Tokenizer.train(["text 1"], "word_punct", 50), ["1", "0"])
    _trainer(tmp_path / "run").test(
        model, LabeledText("nowhere.tsv", test=test)
    )  # a pretrained model needs no other text
    assert sorted(label for _, label in model.validated) == [0] * 20 + [1] * 20
    fitted = _Toy()
    _trainer(tmp_path / "run").fit(fitted, LabeledText(test, test="nowhere.tsv"))
    with pytest.raises(FileNotFoundError, match=r"test \(--data.test\): there is no file or folder nowhere.tsv"):
        _trainer(tmp_path / "run").test(fitted, LabeledText(test, test="nowhere.tsv"))


def test_tokenizer_and_label_order_of_a_pretrained_model(tmp_path, monkeypatch):
    tokenizer = Tokenizer.train(["the film was good"], "word_punct", 50)
    monkeypatch.setattr(Tokenizer, "train", None)
    data = Invented()
    _trainer(tmp_path / "run").fit(_Toy(tokenizer, ["green", "red", "blue"]), data)
    assert data.tokenizer is tokenizer and data.labels == ["green", "red", "blue"]
    assert contents(data.val_dataloader()) == expected(data, "val")


def test_labels_that_do_not_fit_the_model(tmp_path):
    tokenizer = Tokenizer.train(["a"], "word_punct", 50)

    def fails(message, stage, names, data):
        with pytest.raises(ValueError, match=message):
            getattr(_trainer(tmp_path / "run"), stage)(_Toy(tokenizer, names), data)

    message = "label 'green' of the data is unknown to the model _Toy; allowed: 'red', 'blue'"
    fails(message, "fit", ["red", "blue"], Invented())
    message = "label 'pink' of the model _Toy is not in the data, which has: 'blue', 'green', 'red'"
    fails(message, "fit", [*NAMES, "pink"], Invented())
    fails("the test text: label 'green' is unknown to the model _Toy, which has", "test", ["red", "blue"], Invented())
    labeled_fakes.invent(TREC6, {}, tmp_path)
    message = "label 'DESC' of the data is unknown to the model _Toy; allowed: 'red', 'green', 'blue'"
    fails(message, "test", list(NAMES), TREC6(root=str(tmp_path)))


def test_vectors_are_ready_before_the_model_asks(tmp_path, monkeypatch):
    (tmp_path / "vectors.txt").write_text("the 1 2\nfilm 3 4\n")
    data = Invented(word_vectors=str(tmp_path / "vectors.txt"))
    model = _Toy(embedding_size=2)
    _trainer(tmp_path / "run").fit(model, data)
    vectors, found = model.vectors
    assert found.sum() == 2 and vectors[data.tokenizer.encode("film")[0]].tolist() == [3, 4]
    with pytest.raises(ValueError, match="vectors.txt have 2 numbers each, the model's embedding has 5"):
        _trainer(tmp_path / "run").fit(_Toy(embedding_size=5), Invented(word_vectors=str(tmp_path / "vectors.txt")))
    with pytest.raises(FileNotFoundError, match="there is no file 'nowhere.txt'"):
        _trainer(tmp_path / "run").fit(_Toy(embedding_size=2), Invented((99, 9, 9), word_vectors="nowhere.txt"))
    # A pretrained model has its own: nothing is looked for.
    tokenizer = Tokenizer.train(["a"], "word_punct", 50)
    _trainer(tmp_path / "run").fit(_Toy(tokenizer), Invented(word_vectors="nowhere.txt"))


def test_published_data_with_a_trainer(tmp_path):
    labeled_fakes.invent(IMDB, {}, tmp_path)
    (tmp_path / "imdb_test.tsv.xz").unlink()
    model = _Toy()
    data = IMDB(root=str(tmp_path), batch_size=16)
    _trainer(tmp_path / "run").fit(model, data)  # needs no test text
    assert len(model.validated) == 3 * len(data._val) and data.labels == ["negative", "positive"]


def test_what_is_set_later():
    pytest.importorskip("gensim")
    data = Invented(word_vectors="word2vec")
    with pytest.raises(ValueError, match=r"^Invented has no tokenizer yet; call prepare_data\(\) and setup\(\) first$"):
        data.vectors(3)
    data.tokenizer = Tokenizer.train(["red"], "word_punct", 10)
    with pytest.raises(ValueError, match="^Invented has no labels yet; call prepare_data"):
        data.vectors(3)
    with pytest.raises(ValueError, match="^Invented has no trainer, so no model; pass it to a method of a Trainer$"):
        data._model


def test_half_a_pair(tmp_path):
    encoding = Encoding(Tokenizer.train(["red"], "word_punct", 10), {"red": 0}, pair=True)
    with pytest.raises(ValueError, match="^here: expected pairs of texts; got a text without a second one$"):
        LabeledArrays.build(tmp_path / "arrays", [Example("red", None, ("red",))], encoding, "here", keep_empty=False)
