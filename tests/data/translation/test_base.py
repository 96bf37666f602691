import datetime
import gzip
import itertools
import json
import lzma
import random

import lightning.pytorch as pl
import pytest
import torch

from zoo.data import Dates, Multi30k, ParallelText, Tatoeba
from zoo.data.common.cache import replace_file
from zoo.data.translation.dates import free_form
from zoo.text import Tokenizer

NUMBERS = {
    "en": "one two three four five six seven eight nine ten".split(),
    "de": "eins zwei drei vier fünf sechs sieben acht neun zehn".split(),
    "fr": "un deux trois quatre cinq six sept huit neuf dix".split(),
    "cs": "jedna dva tři čtyři pět šest sedm osm devět deset".split(),
}


def _lines(language, count, seed=0):
    rng = random.Random(seed)
    rows = [rng.choices(range(10), k=rng.randint(1, 8)) for _ in range(count)]
    return [" ".join(NUMBERS[language][i] for i in row).capitalize() + "." for row in rows]


def _write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    return str(path)


@pytest.fixture
def multi30k(tmp_path):
    root = tmp_path / "root"
    splits = [("train", 300), ("val", 20), ("test_2016_flickr", 21), ("test_2017_flickr", 22)]
    for seed, (split, count) in enumerate(splits, 1):
        for language in NUMBERS:
            if (split, language) != ("test_2017_flickr", "cs"):
                _write(root / "nmt" / "multi30k" / f"{split}.{language}.gz", _lines(language, count, seed))
            if language != "cs":
                lowercased = [line.lower().replace(".", " .") for line in _lines(language, count, seed)]
                _write(root / "nmt" / "multi30k" / "tok" / f"{split}.lc.norm.tok.{language}.gz", lowercased)
    return root


@pytest.fixture
def parallel(tmp_path):
    files = {
        f"{split}_{side}": _write(tmp_path / f"{split}.{language}", _lines(language, count, seed=count))
        for split, count in [("train", 200), ("val", 20), ("test", 10)]
        for side, language in [("src", "en"), ("tgt", "de")]
    }
    return files


def _ready(data, stage="fit"):
    data.prepare_data()
    data.setup(stage)
    return data


def _texts(loader):
    return [pair for batch in loader for pair in zip(batch.src_text, batch.tgt_text, strict=True)]


# ParallelText


def test_parallel_text(parallel):
    data = _ready(ParallelText(**parallel, vocab_size=100, batch_size=16))
    assert data.src_tokenizer is data.tgt_tokenizer
    batches = list(data.train_dataloader())
    assert sum(len(batch.src) for batch in batches) == 200
    rows = [row for batch in batches for row in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True)]
    decoded = [(data.src_tokenizer.decode(src), data.tgt_tokenizer.decode(tgt)) for src, tgt in rows]
    assert sorted(decoded) == sorted(zip(_lines("en", 200, 200), _lines("de", 200, 200)))
    assert sorted(_texts(data.val_dataloader())) == sorted(zip(_lines("en", 20, 20), _lines("de", 20, 20)))
    data.setup("test")
    assert [len(_texts(loader)) for loader in data.test_dataloader()] == [10]
    assert data.test_names == ["test"]


def test_tab_separated_pairs_and_compressed_files(tmp_path):
    pairs = list(zip(_lines("en", 100), _lines("fr", 100)))
    texts = ["", *(f"{src}\t{tgt}\textra" for src, tgt in pairs), "", ""]  # empty lines, as tables of texts may have
    for name in ("pairs.tsv", "pairs.tsv.gz", "pairs.tsv.xz"):
        data = ParallelText(_write(tmp_path / name, texts), val_fraction=0.2, vocab_size=100)
        assert sorted([*data.train_pairs(), *data.val_pairs()]) == sorted(pairs)


PAIRS = [(f"sentence {number}", f"Satz, {number}") for number in range(50)]


@pytest.mark.parametrize(
    ("name", "lines", "columns"),
    {
        "header of the usual names": ("a.tsv", ["tgt\tn\tsrc", *(f"{t}\t0\t{s}" for s, t in PAIRS)], ()),
        "header of other names": ("a.tsv.gz", ["de\ten", *(f"{t}\t{s}" for s, t in PAIRS)], ("en", "de")),
        "numbers of columns": ("a.txt", [f"{n}\t{t}\t{n}\t{s}" for n, (s, t) in enumerate(PAIRS)], ("4", "2")),
        "csv": ("a.csv", ["de,en", *(f'"{t}",{s}' for s, t in PAIRS)], ("en", "de")),
        "JSON lines": ("a.jsonl", [json.dumps({"src": s, "tgt": t}) for s, t in PAIRS], ()),
    }.values(),
)
def test_columns_are_found_by_name_or_number(tmp_path, name, lines, columns):
    options = dict(zip(("src_column", "tgt_column"), columns))
    data = ParallelText(_write(tmp_path / name, lines), **options)
    assert sorted([*data.train_pairs(), *data.val_pairs()]) == sorted(PAIRS)
    swapped = ParallelText(data.paths["train"][0], src_column=data.columns[1], tgt_column=data.columns[0])
    assert sorted([*swapped.train_pairs(), *swapped.val_pairs()]) == sorted(pair[::-1] for pair in PAIRS)
    assert swapped.signature() != data.signature()


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        (
            "a.csv",
            ("src", "tgt"),
            "has no column 'src'; its first line names 'en', 'de'; name its two columns with src_",
        ),
        ("a.tsv", ("en", "fr"), "has no column 'fr'; its first line names 'en', 'de'; name its two columns with src_c"),
        ("a.tsv", ("1", "3"), "line 1: expected 3 columns; got 2 columns"),
        ("a.tsv", ("0", "1"), "has no column '0'; its first line names"),
    ],
)
def test_columns_that_are_not_there(tmp_path, name, columns, expected):
    mark = "," if name == "a.csv" else "\t"
    path = _write(tmp_path / name, [f"en{mark}de", f"a{mark}b"])
    with pytest.raises(ValueError) as caught:
        list(ParallelText(path, src_column=columns[0], tgt_column=columns[1]).train_pairs())
    assert f"{caught.value}".removeprefix(path).lstrip(" ,").startswith(expected)


def test_texts_that_are_numbers_are_told(tmp_path, caplog):
    path = _write(tmp_path / "links.tsv", [f"{n}\t{s}\t{n + 50}\t{t}" for n, (s, t) in enumerate(PAIRS)])
    _ready(ParallelText(path, vocab_size=100))
    assert f"{path}: its first column has only numbers; if they are no texts, choose two others" in caplog.text
    caplog.clear()
    _ready(ParallelText(path, src_column="2", tgt_column="4", vocab_size=100))
    _ready(ParallelText(_write(tmp_path / "n.tsv", [f"{n}\tnumber {n}" for n in range(50)]), vocab_size=100))
    assert not caplog.text


def test_pairs_with_an_empty_side_are_judged_by_nobody(tmp_path, caplog):
    lines = [f"data {n}\tnumber {n}" for n in range(50)]
    held_out = _write(tmp_path / "val.tsv", ["one\tone", "two\t ", "\tthree", "  ", "", "four\tfour"])
    paths = {"train_src": _write(tmp_path / "a.tsv", lines), "val_src": held_out, "test_src": held_out}
    data = _ready(ParallelText(**paths, vocab_size=100))
    assert data.val_pairs() == data.test_sets()[0] == [("one", "one"), ("four", "four")]
    assert "2 validation pairs; left out 2 with an empty side" in caplog.text
    assert "2 test pairs; left out 2 with an empty side" in caplog.text


def test_own_files_are_found_below_the_data_and_in_the_working_directory(tmp_path, monkeypatch):
    data, here = tmp_path / "data", tmp_path / "here"
    for folder, name in ((data, "both"), (here, "both"), (here, "only-here")):
        _write(folder / f"{name}.tsv", [f"{folder.name} {n}\t{name} {n}" for n in range(50)])
    monkeypatch.chdir(here)
    monkeypatch.setenv("ZOO_DATA", str(data))
    assert next(ParallelText("both.tsv").train_pairs())[0].startswith("data ")
    assert next(ParallelText("only-here.tsv").train_pairs())[0].startswith("here ")
    assert next(ParallelText("only-*.tsv").train_pairs())[0].startswith("here ")
    assert next(ParallelText("b*.tsv").train_pairs())[0].startswith("data ")
    with pytest.raises(FileNotFoundError) as caught:
        ParallelText("nowhere.tsv").prepare_data()
    assert str(caught.value) == f"train_src: there is no file {data}/nowhere.tsv, nor is it in the working directory"


def test_held_out_sentences_are_not_trained_on(tmp_path):
    lines = _lines("en", 300) * 2
    train = _write(tmp_path / "pairs.tsv", [f"{line}\t{number}" for number, line in enumerate(lines)])
    data = ParallelText(train, val_fraction=0.2, split_seed=1)
    held_out = data.val_pairs()
    assert 40 < len(held_out) < 240
    assert not {src for src, _ in held_out} & {src for src, _ in data.train_pairs()}
    assert ParallelText(train, val_fraction=0.2, split_seed=2).val_pairs() != held_out


@pytest.mark.parametrize(("pairs", "least", "most"), [(60, 1, 15), (600, 40, 80), (4000, 75, 125), (20000, 150, 250)])
def test_a_tenth_of_few_pairs_is_held_out_and_a_hundredth_of_many(tmp_path, pairs, least, most):
    train = _write(tmp_path / "pairs.tsv", [f"sentence {number}\tSatz {number}" for number in range(pairs)])
    data = ParallelText(train)
    assert least <= len(data.val_pairs()) <= most
    assert len(data.val_pairs()) + sum(1 for _ in data.train_pairs()) == pairs
    given = ParallelText(train, val_fraction=0.01)
    assert (data.val_pairs() == given.val_pairs()) == (data.signature() == given.signature()) == (pairs == 20000)


@pytest.mark.parametrize("count", [2, 3, 10])
@pytest.mark.parametrize("fraction", [None, 0.001, 0.499])
def test_of_few_pairs_one_is_held_out_at_least(tmp_path, count, fraction):
    pairs = [(f"sentence {number}", f"Satz {number}") for number in range(count)]
    data = ParallelText(_write(tmp_path / "few.tsv", ["\t".join(pair) for pair in pairs]), val_fraction=fraction)
    assert data.val_pairs() and sorted([*data.val_pairs(), *data.train_pairs()]) == pairs
    assert len(data.val_pairs()) < count


def test_equal_sentences_cannot_be_held_out(tmp_path):
    train = _write(tmp_path / "same.tsv", ["a\tb", "a\tc"])
    with pytest.raises(ValueError, match=r"no two different sentences, .*; give others as val_src= \(--data.val_src"):
        ParallelText(train).prepare_data()


@pytest.mark.parametrize(("src", "tgt"), [(5, 7), (7, 5)])
def test_files_of_different_length(tmp_path, src, tgt):
    files = [_write(tmp_path / "a.en", _lines("en", src)), _write(tmp_path / "a.de", _lines("de", tgt))]
    expected = f"source and target must have the same number of lines: {files[0]} has {src}, {files[1]} has {tgt}"
    with pytest.raises(ValueError) as caught:
        ParallelText(*files, val_src=files[0], val_tgt=files[0]).prepare_data()
    assert str(caught.value) == expected


def test_line_without_tab(tmp_path):
    train = _write(tmp_path / "pairs.tsv", ["a\tb", "c"])
    with pytest.raises(ValueError, match="pairs.tsv, line 2: expected source and target separated by a tab"):
        ParallelText(train).prepare_data()


def test_missing_and_empty_files(tmp_path, parallel):
    with pytest.raises(FileNotFoundError, match="train_src: there is no file .*nowhere.en"):
        ParallelText("nowhere.en", "nowhere.de").prepare_data()
    empty = _write(tmp_path / "empty", [])
    with pytest.raises(ValueError, match="the training text is empty"):
        ParallelText(empty, empty).prepare_data()
    parallel.update(val_src=empty, val_tgt=empty)
    with pytest.raises(ValueError, match="the validation text is empty"):
        _ready(ParallelText(**parallel))
    with pytest.raises(ValueError, match="there is no test text: give test_src"):
        _ready(ParallelText(parallel["train_src"], parallel["train_tgt"]), "test")
    with pytest.raises(ValueError, match="val_tgt is given without val_src"):
        ParallelText("a", "b", val_tgt="c")


def test_relative_names_are_in_the_root(parallel, tmp_path, monkeypatch):
    assert list(ParallelText("train.en", "train.de", root=str(tmp_path)).train_pairs())
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    assert list(ParallelText("train.en", "train.de").train_pairs())


def test_max_length_leaves_out_long_pairs(parallel):
    data = _ready(ParallelText(**parallel, tokenizer="word", vocab_size=100, max_length=4))
    longer = sum(len(line.split()) > 4 for line in _lines("en", 200, 200))
    assert longer > 0
    loader = data.train_dataloader()
    assert sum(len(batch.src) for batch in loader) == 200 - longer
    with pytest.raises(ValueError, match="no training pair is within max_length=1 tokens"):
        ParallelText(*[_write(tmp_file, ["a b", "c d"]) for tmp_file in _two(data)], max_length=1).prepare_data()


def _two(data):
    return [data.cache.parent / "long.a", data.cache.parent / "long.b"]


# What all data sets share


def test_cache_is_reused_and_follows_the_files(parallel, monkeypatch):
    first = _ready(ParallelText(**parallel, vocab_size=100))
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "train", None)
        patch.setattr(Tokenizer, "encode_batch", lambda self, texts: [self.encode(text) for text in texts])
        again = ParallelText(**parallel, vocab_size=100)
        patch.setattr(again, "train_pairs", lambda: pytest.fail("the text was tokenised again"), raising=True)
        again.prepare_data = lambda: None
        again.setup("fit")
    assert again.src_tokenizer.to_json() == first.src_tokenizer.to_json()
    with open(parallel["train_src"], "a") as src, open(parallel["train_tgt"], "a") as tgt:
        src.write("Eleven.\n"), tgt.write("Elf.\n")
    assert len(_ready(ParallelText(**parallel, vocab_size=100)).train_dataloader().stream.arrays) == 201


def test_setup_before_prepare_data(parallel):
    with pytest.raises(FileNotFoundError, match=r"call prepare_data\(\) before setup\(\)"):
        ParallelText(**parallel).setup("fit")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokenizer": "spm"}, "tokenizer must be one of 'bpe', 'word', 'char'; got 'spm'"),
        ({"batch_size": None}, "give batch_size .* or batch_tokens .*; got neither"),
        ({"batch_size": -1}, "batch_size must be at least 1; got -1"),
        ({"vocab_size": 4}, "vocab_size must be at least 5; got 4"),
        ({"max_length": 0}, "max_length must be at least 1; got 0"),
        ({"num_workers": -1}, "num_workers must be at least 0; got -1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Dates(**arguments)


def test_missing_root(monkeypatch):
    with pytest.raises(FileNotFoundError, match="root is the folder /nowhere, which does not exist; correct it"):
        Multi30k(root="/nowhere").prepare_data()
    monkeypatch.setenv("ZOO_DATA", "/nowhere/else")
    with pytest.raises(FileNotFoundError, match="ZOO_DATA is the folder /nowhere/else, which does not exist"):
        Tatoeba().prepare_data()


class _Toy(pl.LightningModule):
    """Sums the tokens it saw; uses dropout-like randomness nowhere, so a resumed run must see the same batches."""

    def __init__(self, stop_at=None, src_tokenizer=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen, self.validated, self.stop_at = [], [], stop_at
        self.src_tokenizer = self.tgt_tokenizer = src_tokenizer

    def training_step(self, batch, batch_idx):
        if self.stop_at == len(self.seen):
            raise KeyboardInterrupt
        self.seen.append(batch.src.tolist())
        return self.weight * batch.src.sum()

    def validation_step(self, batch, batch_idx):
        self.validated.append(len(batch.src_text))

    def test_step(self, batch, batch_idx, dataloader_idx=0):
        self.validated.append(len(batch.src_text))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def _trainer(folder, **options):
    return pl.Trainer(
        default_root_dir=folder, accelerator="cpu", max_epochs=3, num_sanity_val_steps=0, logger=False,
        enable_progress_bar=False, enable_model_summary=False, **options,
        callbacks=[pl.callbacks.ModelCheckpoint(folder, every_n_train_steps=5, save_top_k=-1)],
    )  # fmt: skip


@pytest.mark.parametrize("budget", [{"batch_size": 16}, {"batch_tokens": 120}])
def test_lightning_resumes_in_mid_epoch(parallel, tmp_path, budget):
    def data():
        return ParallelText(**parallel, vocab_size=100, **budget)

    whole = _Toy()
    _trainer(tmp_path / "whole").fit(whole, data())
    per_epoch = len(whole.seen) // 3
    assert len(whole.seen) == 3 * per_epoch and per_epoch % 5
    step = 5 * (per_epoch // 5 + 1)  # in the second epoch
    resumed = _Toy()
    checkpoint = next((tmp_path / "whole").glob(f"*step={step}.ckpt"))
    _trainer(tmp_path / "resumed").fit(resumed, data(), ckpt_path=checkpoint)
    assert resumed.seen == whole.seen[step:]
    assert sum(whole.validated) == 3 * 20


def test_training_resumed_with_other_data_is_told(parallel, tmp_path, caplog):
    def resume():
        caplog.clear()
        checkpoint = next((tmp_path / "whole").glob("*step=5.ckpt"))
        _trainer(tmp_path / "resumed", max_steps=7).fit(
            _Toy(), ParallelText(**parallel, vocab_size=100), ckpt_path=checkpoint
        )
        return [line for line in caplog.messages if "the training data are not those with which" in line]

    _trainer(tmp_path / "whole").fit(_Toy(), ParallelText(**parallel, vocab_size=100))
    assert resume() == []
    with open(parallel["train_src"], encoding="utf-8") as file:
        lines = [" ".join(reversed(line.split())) for line in file]
    _write(tmp_path / "train.en", lines)
    assert len(resume()) == 1


def test_lightning_limits_batches(parallel, tmp_path):
    toy = _Toy()
    _trainer(tmp_path / "run", limit_train_batches=3).fit(toy, ParallelText(**parallel, vocab_size=100, batch_size=16))
    assert len(toy.seen) == 9
    assert len({str(batch) for batch in toy.seen}) == 9  # each epoch goes on where the last one stopped


def test_tokenizers_of_a_pretrained_model_are_used(parallel, tmp_path, monkeypatch):
    tokenizer = Tokenizer.train(_lines("en", 50), "char", 60)
    monkeypatch.setattr(Tokenizer, "train", None)
    data = ParallelText(**parallel, max_length=None)
    _trainer(tmp_path / "run").fit(_Toy(src_tokenizer=tokenizer), data)
    assert data.src_tokenizer is tokenizer
    model = _Toy(src_tokenizer=tokenizer)
    _trainer(tmp_path / "run").test(model, ParallelText(**parallel))
    assert sum(model.validated) == 10


# Multi30k


@pytest.mark.parametrize("root", ["", "nmt", "nmt/multi30k"])
def test_multi30k_roots(multi30k, root):
    data = _ready(Multi30k(root=str(multi30k / root), vocab_size=100))
    assert sum(len(batch.src) for batch in data.train_dataloader()) == 300
    data.setup("test")
    assert data.test_names == ["test_2016_flickr", "test_2017_flickr"]
    assert [len(_texts(loader)) for loader in data.test_dataloader()] == [21, 22]


@pytest.mark.parametrize("pair", list(itertools.permutations(["en", "de", "fr", "cs"], 2)))
def test_multi30k_pairs(multi30k, pair):
    data = Multi30k(*pair, root=str(multi30k))
    assert data.val_pairs() == list(zip(_lines(pair[0], 20, 2), _lines(pair[1], 20, 2)))
    assert len(data.test_sets()) == len(data.test_names) == (1 if "cs" in pair else 2)


def test_multi30k_tokenised_form(multi30k):
    data = _ready(Multi30k("de", "en", "tok", tokenizer="word", shared_vocab=False, vocab_size=50, root=str(multi30k)))
    text = data.val_pairs()[0][0]
    assert text == text.lower() and text.endswith(" .")
    assert data.src_tokenizer is not data.tgt_tokenizer
    assert data.src_tokenizer.decode(data.src_tokenizer.encode(text)) == text


def test_what_scores_must_know_of_the_text():
    known = [
        (Dates(), "en", False),
        (Multi30k(), "de", False),
        (Multi30k("de", "fr", tokenizer="word"), "fr", False),  # of raw text "word" makes no tokenised text
        (Multi30k("de", "en", "tok"), "en", True),
        (Tatoeba("eng", "deu"), "deu", False),
        (ParallelText("a.tsv"), "en", False),
        (ParallelText("a.tsv", tgt_lang="vi", tokenizer="word"), "vi", True),
    ]
    assert [(data.tgt_lang, data.tokenized) for data, *_ in known] == [(lang, tok) for _, lang, tok in known]


def test_multi30k_and_pairs_of_ones_own(multi30k, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.tsv").write_text("a zebra\tein Zebra\na fox\tein Fuchs\n", encoding="utf-8")
    alone = _ready(Multi30k(root=str(multi30k), vocab_size=100))
    data = _ready(Multi30k(root=str(multi30k), vocab_size=100, extra_pairs=["more.tsv"]))
    assert list(data.train_pairs()) == [*alone.train_pairs(), ("a zebra", "ein Zebra"), ("a fox", "ein Fuchs")]
    assert sum(len(batch.src) for batch in data.train_dataloader()) == 302
    assert data.src_tokenizer.to_json() != alone.src_tokenizer.to_json() and data.val_pairs() == alone.val_pairs()
    with pytest.raises(FileNotFoundError, match="extra_pairs: there is no file none.tsv"):
        Multi30k(root=str(multi30k), extra_pairs=["none.tsv"]).prepare_data()


def test_a_part_of_the_training_pairs(multi30k, tmp_path, monkeypatch):
    """A smaller sample is part of a larger one, in the order of the text; the vocabulary is learnt from it alone."""
    every = list(Multi30k(root=str(multi30k)).train_pairs())
    ten, fifty = (list(Multi30k(root=str(multi30k), train_size=size).train_pairs()) for size in (10, 50))
    assert len(ten) == 10 and len(fifty) == 50 and every[:10] != ten and every[-10:] != ten
    places = iter(every)
    assert all(pair in places for pair in fifty), "in the order of the text"
    assert [pair for pair in fifty if pair in ten] == ten
    assert list(Multi30k(root=str(multi30k), train_size=300).train_pairs()) == every
    whole, part = (_ready(Multi30k(root=str(multi30k), vocab_size=100, train_size=size)) for size in (None, 10))
    assert sum(len(batch.src) for batch in part.train_dataloader()) == 10
    assert part.src_tokenizer.to_json() != whole.src_tokenizer.to_json() and part.val_pairs() == whole.val_pairs()
    with pytest.raises(ValueError, match="train_size must be at most 300, the number of training pairs; got 301"):
        list(Multi30k(root=str(multi30k), train_size=301).train_pairs())
    with pytest.raises(ValueError, match="train_size must be at least 1; got 0"):
        Multi30k(train_size=0)

    pairs = _write(tmp_path / "pairs.tsv", [f"{n}\t{n}{n}" for n in range(200)])
    own = ParallelText(pairs, val_fraction=0.2, train_size=20)
    assert len(sampled := list(own.train_pairs())) == 20 and not {*sampled} & {*own.val_pairs()}
    assert own.val_pairs() == ParallelText(pairs, val_fraction=0.2).val_pairs()
    assert own.signature() != ParallelText(pairs, val_fraction=0.2).signature()


def test_multi30k_bad_arguments():
    with pytest.raises(ValueError, match="src_lang and tgt_lang must be two of .*; got 'en' and 'ja'"):
        Multi30k("en", "ja")
    with pytest.raises(ValueError, match="must be two of .*; got 'en' and 'en'"):
        Multi30k("en", "en")
    with pytest.raises(ValueError, match="form must be 'raw' or 'tok'; got 'lower'"):
        Multi30k(form="lower")


def test_multi30k_without_data_or_network(multi30k, monkeypatch):
    def no_network(remote, path):
        raise ConnectionError(f"cannot download {remote.url}: no network")

    monkeypatch.setattr("zoo.data.translation.base.fetch", no_network)
    with pytest.raises(FileNotFoundError) as caught:
        Multi30k("en", "cs", "tok", root=str(multi30k)).prepare_data()
    message = str(caught.value)
    assert "no file tok/train.lc.norm.tok.cs" in message and str(multi30k / "multi30k") in message
    assert "data/task1/tok/train.lc.norm.tok.cs: no network" in message
    assert "Pass root= or set ZOO_DATA to the folder with multi30k/, or run once on a machine with a" in message


def test_multi30k_is_downloaded_once(multi30k, tmp_path, monkeypatch):
    asked = []

    def fake_fetch(remote, path):
        asked.append(remote.url.rpartition("task1/")[2])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((multi30k / "nmt" / "multi30k" / path.name).read_bytes())

    monkeypatch.setattr("zoo.data.translation.base.fetch", fake_fetch)
    for _ in range(2):
        _ready(Multi30k("en", "cs", vocab_size=100))
    splits = ("train", "val", "test_2016_flickr")
    assert asked == [f"raw/{split}.{language}.gz" for split in splits for language in ("en", "cs")]


def test_multi30k_files_have_checksums():
    unknown = [name for name, remote in Multi30k.remote.items() if remote.sha256 is None]
    assert len(Multi30k.remote) == 30 and all(name.endswith("tok.cs") for name in unknown)
    assert all(len(remote.sha256) == 64 for name, remote in Multi30k.remote.items() if name not in unknown)


# Tatoeba


@pytest.fixture
def tatoeba(tmp_path):
    english = [f"Sentence {number}." for number in range(1000)]
    rows = [f"{line}\tPhrase {number}." for number, line in enumerate(english)]
    rows += [f"{line}\tAutre {number}." for number, line in enumerate(english) if number % 3 == 0]
    rows += [f"{line}\tCommune {number // 20}." for number, line in enumerate(english)]  # each of 20 sentences
    _write(tmp_path / "nmt" / "tatoeba-eng-fra" / "eng-fra.txt.xz", rows)
    return str(tmp_path)


@pytest.mark.parametrize("direction", [("eng", "fra"), ("fra", "eng")])
def test_tatoeba_split_does_not_leak(tatoeba, direction):
    data = Tatoeba(*direction, val_fraction=0.03, test_fraction=0.03, root=tatoeba)
    sides = [
        {sentence for pair in pairs for sentence in pair}
        for pairs in (
            data.train_pairs(),
            [(src, tgt) for src, targets in data.references("val").items() for tgt in targets],
            [(src, tgt) for src, targets in data.references("test").items() for tgt in targets],
        )
    ]
    assert all(len(side) > 20 for side in sides)
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]


def test_tatoeba_references(tatoeba):
    data = _ready(Tatoeba(root=tatoeba, vocab_size=200), "test")
    references = data.references()
    (loader,) = data.test_dataloader()
    texts = _texts(loader)
    assert sorted(src for src, _ in texts) == sorted(references)  # each source sentence once
    assert all(tgt == references[src][0] for src, tgt in texts)
    assert max(len(targets) for targets in references.values()) == 3


def test_tatoeba_as_filtered_in_the_tutorial(tmp_path):
    kept = [
        "I'm 19.\tJ'ai 19 ans.",
        "We are very old!\tNous sommes vieux.",
        "he’s here\til est là",
        "I am a b c d e f.\tJe.",
    ]
    left = [
        "Go.\tVa.",
        "It's me.\tC'est moi.",
        "I am a b c d e f g.\tJe.",
        "She is.\tun deux trois quatre cinq six sept huit neuf !",
    ]
    _write(tmp_path / "eng-fra.txt.xz", [*kept, *left])
    data = Tatoeba(root=str(tmp_path), val_fraction=1e-9, test_fraction=1e-9, tutorial_filter=True)
    assert [english for english, _ in data.train_pairs()] == [row.split("\t")[0] for row in kept]
    assert data.signature() != Tatoeba(root=str(tmp_path), val_fraction=1e-9, test_fraction=1e-9).signature()


def test_tatoeba_in_swiss_spelling_and_with_more_names(tmp_path):
    def split(english):
        return Tatoeba(root=str(tmp_path), val_fraction=0.3, test_fraction=0.1)._split(english)

    sentences = [f"Tom eats {n} cakes." for n in range(60)]
    assert split(sentences[1]) == "train"
    held_out = next(english for english in sentences if split(english) == "val")
    lines = [f"{english}\tTom ißt {english.split()[2]} Kuchen." for english in sentences if english != held_out]
    lines += [f"{held_out}\tTom isst 1 Kuchen."]  # as a training sentence in Swiss spelling
    _write(tmp_path / "eng-deu.txt.xz", lines)
    options = {"src_lang": "deu", "tgt_lang": "eng", "root": str(tmp_path), "val_fraction": 0.3, "test_fraction": 0.1}
    plain, both = Tatoeba(**options), Tatoeba(**options, swiss_spelling=True)
    named = Tatoeba(**options, more_names=0.5)
    of_plain, of_both = list(plain.train_pairs()), list(both.train_pairs())
    assert [pair for pair in of_both if "ß" in pair[0]] == of_plain
    variants = [pair for pair in of_both if "ß" not in pair[0]]
    held = {german for german, _ in both.val_pairs() + both.test_sets()[0]}
    assert len(variants) == len(of_plain) - 1 and not held & {german for german, _ in of_both}
    renamed = list(named.train_pairs())
    assert renamed == list(named.train_pairs()) and len(renamed) == len(of_plain)
    assert 0.2 * len(renamed) < sum("Tom" not in german for german, _ in renamed) < 0.8 * len(renamed)
    for (german, english), (german_before, _) in zip(renamed, of_plain, strict=True):
        name = german.split()[0]
        assert english.split()[0] == name and german.replace(name, "Tom") == german_before
    assert named.val_pairs() == plain.val_pairs() and named.test_sets() == plain.test_sets()
    assert len({str(data.signature()) for data in (plain, both, named)}) == 3


def test_tatoeba_bad_arguments():
    with pytest.raises(ValueError, match="more_names and swiss_spelling are for German; got 'eng' and 'fra'"):
        Tatoeba("eng", "fra", swiss_spelling=True)
    with pytest.raises(ValueError, match="more_names must be between 0 and 1; got 1.5"):
        Tatoeba("eng", "deu", more_names=1.5)
    with pytest.raises(ValueError, match="must be 'eng' and one of 'fra', 'deu', in either order; got 'fra' and 'deu'"):
        Tatoeba("fra", "deu")
    with pytest.raises(ValueError, match="test_fraction must be between 0 and 0.5; got 0"):
        Tatoeba(test_fraction=0)


# Dates


def test_dates():
    data = _ready(Dates(train_size=500, val_size=30, test_size=40))
    data.setup("test")
    assert data.src_tokenizer is not data.tgt_tokenizer
    assert len(data.tgt_tokenizer) == 4 + 11  # ten digits and the hyphen
    sets = [list(data.train_pairs()), data.val_pairs(), data.test_sets()[0]]
    assert [len(pairs) for pairs in sets] == [500, 30, 40]
    train, val, test = ({iso for _, iso in pairs} for pairs in sets)
    assert not train & val and not train & test and not val & test
    assert list(Dates(train_size=500, val_size=30, test_size=40).train_pairs()) == sets[0]
    assert list(Dates(train_size=500, val_size=30, test_size=40, split_seed=1).train_pairs()) != sets[0]


def test_dates_forms():
    rng = random.Random(0)
    forms = {free_form(datetime.date(2008, 7, 8), rng) for _ in range(2000)}
    assert {"8 July 2008", "tuesday july 8 2008", "TUE JUL 8 2008", "2008.07.08", "20080708"} <= forms
    assert not {"8/7/2008", "7/8/2008", "08.07.2008"} & forms  # could be the 7th of August
    assert "25/12/2008" in {free_form(datetime.date(2008, 12, 25), rng) for _ in range(2000)}
    assert len(forms) > 60


def test_dates_bad_sizes():
    with pytest.raises(ValueError, match="train_size, val_size and test_size must be at least 1"):
        Dates(val_size=0)


def test_files_of_the_cache_are_for_all(tmp_path):
    replace_file(tmp_path / "folder" / "a.txt", b"text")
    assert (tmp_path / "folder" / "a.txt").stat().st_mode & 0o777 == 0o644 and [
        f.name for f in (tmp_path / "folder").iterdir()
    ] == ["a.txt"]
