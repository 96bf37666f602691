"""A text in many files is the same text as in one: pairs, batches, resumed and shared out; and memory stays as it is."""

import gzip
import json
import random
import re
import subprocess
import sys
import tracemalloc
from collections import deque

import pytest

from zoo.data import ParallelText
from zoo.data.common.loaders import BatchStream, TrainLoader

SHARDS, LINES = 4, 50
WORDS = "one two three four five six seven eight nine ten".split()


def _pairs(count, seed=0):
    rng = random.Random(seed)
    rows = [rng.choices(WORDS, k=rng.randint(1, 8)) for _ in range(count)]
    return [(" ".join(row), " ".join(reversed(row)).upper()) for row in rows]


def _write(path, lines):
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _write_parquet(path, pairs, group=16):
    import pyarrow as pa
    from pyarrow import parquet

    rows = [{"de": src, "en": tgt} for src, tgt in pairs]
    parquet.write_table(pa.table({"id": list(range(len(rows))), "translation": rows}), path, row_group_size=group)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same pairs in one file for each side, and in shards."""
    folder = tmp_path_factory.mktemp("shards")
    pairs = _pairs(SHARDS * LINES)
    for side, name in ((0, "en"), (1, "de")):
        _write(folder / f"all.{name}", [pair[side] for pair in pairs])
        for shard in range(SHARDS):
            lines = [pair[side] for pair in pairs[shard * LINES : (shard + 1) * LINES]]
            _write(folder / f"part-{shard}.{name}.gz", lines)
    for shard in range(SHARDS):
        _write(
            folder / f"part-{shard}.tsv.gz", ["\t".join(pair) for pair in pairs[shard * LINES : (shard + 1) * LINES]]
        )
    return folder


def _data(folder, *files, **options):
    options = {"val_fraction": 0.2, "vocab_size": 200, "batch_size": 8, "pool_batches": 3} | options
    return ParallelText(*files, root=folder and str(folder), **{"cache_dir": f"{folder}/cache", **options})


FORMS = {"two files": ("part-*.en.gz", "part-*.de.gz"), "columns": ("part-?.tsv.gz",)}


def _loader(data, workers=0, **ranks):
    data.prepare_data()
    data.setup("fit")
    return TrainLoader(BatchStream(data._train, data.batch_size, pool_batches=data.pool_batches, **ranks), 0, workers)


def _rows(batches):
    return [(batch.src.tolist(), batch.tgt.tolist()) for batch in batches]


@pytest.mark.parametrize("form", FORMS)
def test_shards_are_one_text(folder, form):
    one, several = _data(folder, "all.en", "all.de"), _data(folder, *FORMS[form])
    assert list(several.train_pairs()) == list(one.train_pairs())
    assert several.val_pairs() == one.val_pairs() and len(one.val_pairs()) > 10
    assert _rows(_loader(several)) == _rows(_loader(one))
    assert several.signature() != one.signature()


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow", reason="no pyarrow")
    pairs = _pairs(100)
    for shard in range(2):
        _write_parquet(tmp_path / f"{shard}.parquet", pairs[shard * 50 : (shard + 1) * 50])
    columns = {"src_column": "translation.de", "tgt_column": "translation.en"}
    data = _data(tmp_path, "*.parquet", val_src="0.parquet", **columns)
    assert list(data.train_pairs()) == pairs and data.val_pairs() == pairs[:50]
    swapped = _data(tmp_path, "*.parquet", src_column="translation.en", tgt_column="translation.de", val_src="x")
    assert next(swapped.train_pairs()) == pairs[0][::-1]
    assert data.signature() != swapped.signature()
    assert sum(len(src) for src, _ in _rows(_loader(data))) == 100


def test_what_is_wrong_with_a_parquet_file(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="no pyarrow")
    from pyarrow import parquet

    _write_parquet(tmp_path / "x.parquet", _pairs(300))
    parquet.write_table(pa.table({"src": ["a", "b", None], "tgt": ["a", "b", "c"]}), tmp_path / "null.parquet")

    def message(*files, **columns):
        with pytest.raises(ValueError) as caught:
            list(_data(tmp_path, *files, val_src="null.parquet", **columns).train_pairs())
        return str(caught.value).removeprefix(f"{tmp_path}/")

    assert message("x.parquet") == ("x.parquet has no column 'src'; it has 'id', 'translation.de', 'translation.en'")
    assert message("x.parquet", src_column="translation") == (
        "x.parquet has no column 'translation'; it has 'id', 'translation.de', 'translation.en'"
    )
    assert message("x.parquet", src_column="id", tgt_column="id") == "x.parquet, row 1: 'id' must be text; got 0"
    assert message("null.parquet") == "null.parquet, row 3: 'src' must be text; got None"
    assert message("x.parquet", "null.parquet").startswith("x.parquet: a .parquet file holds both sides; give it as tr")
    content = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(content[: len(content) // 2])
    assert re.match(
        "x.parquet: not a complete .parquet file: .+; the last row that can be read is 0$", message("x.parquet")
    )
    spoilt = bytearray(content)
    spoilt[2000:2200] = bytes(200)
    (tmp_path / "x.parquet").write_bytes(spoilt)
    columns = {"src_column": "translation.de", "tgt_column": "translation.en"}
    assert re.match(
        r"x.parquet: not a complete .parquet file: .+; the last row that can be read is \d+$",
        message("x.parquet", **columns),
    )


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "x.parquet").touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError) as caught:
        _data(tmp_path, "x.parquet").prepare_data()
    needs = f'{tmp_path}/x.parquet: reading it needs pyarrow; install with: pip install "pyarrow>=15"'
    assert str(caught.value) == needs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("given", [5, 19])
def test_resumed_amid_an_epoch(folder, workers, given):
    def loader():
        return _loader(_data(folder, *FORMS["two files"]), workers)

    whole = loader()
    batches = _rows([*whole, *whole])  # two epochs
    assert given < len(whole) == 24
    begun = loader()
    before = _rows(batch for _, batch in zip(range(given), begun))
    resumed = loader()
    resumed.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    assert before + _rows([*resumed, *resumed]) == batches


def test_processes_share_the_pairs_out(folder):
    one = _rows(_loader(_data(folder, *FORMS["columns"], batch_size=16)))
    shares = [
        _rows(_loader(_data(folder, *FORMS["columns"]), rank=rank, world_size=2, workers=rank)) for rank in range(2)
    ]
    assert len(shares[0]) == len(shares[1]) == len(one)

    def sentences(batches):
        return sorted(tuple(row) for src, _ in batches for row in src)

    trimmed = [sorted(tuple(i for i in row if i) for row in sentences(found)) for found in (one, sum(shares, []))]
    assert trimmed[0] == trimmed[1]


def test_unequal_shards(tmp_path):
    for name, count in (("1.en", 5), ("2.en", 5), ("1.de", 5), ("2.de", 4)):
        _write(tmp_path / f"{name}.gz", ["x"] * count)

    def message(src, tgt, kind=ValueError):
        with pytest.raises(kind) as caught:
            _data(tmp_path, src, tgt, val_src="1.en.gz", val_tgt="1.de.gz").prepare_data()
        return str(caught.value).replace(f"{tmp_path}/", "")

    assert message("*.en.gz", "*.de.gz") == (
        "source and target must have the same number of lines: 2.en.gz has 5, 2.de.gz has 4"
    )
    assert message("*.en.gz", "1*.de.gz") == (
        "source and target must have the same number of files: *.en.gz matches 2, 1*.de.gz 1"
    )
    (tmp_path / "2.de.gz").rename(tmp_path / "3.de.gz")
    assert message("*.en.gz", "*.de.gz") == (
        "2.en.gz and 3.de.gz are not partners: what the wildcards stand for must be the same"
    )
    assert message("*.en.xz", "*.de.gz", FileNotFoundError) == "train_src: no file matches *.en.xz"


@pytest.mark.parametrize(
    "root, before", [(".", "../shards/"), ("../x", "../shards/"), ("../shards/", ""), (None, "../")]
)
def test_patterns_with_folders_above(tmp_path, monkeypatch, root, before):
    for folder in ("shards", "x", "shards/x"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / ("x" if root else "shards/x"))
    for name in ("a-1.en", "a-2.en", "b-1.de", "b-2.de"):
        _write(tmp_path / "shards" / name, [name])
    pairs = _data(root, f"{before}a-*.en", f"{before}b-*.de", val_src=f"{before}a-1.en", val_tgt=f"{before}b-1.de")
    assert list(pairs.train_pairs()) == [("a-1.en", "b-1.de"), ("a-2.en", "b-2.de")]
    with pytest.raises(ValueError, match="must have the same number of files"):
        list(_data(root, f"{before}a-*.en", f"{before}b-2*.de", val_src=f"{before}a-1.en").train_pairs())


def test_a_mark_in_a_name_is_no_pattern(tmp_path):
    for name in ("what?.en", "[1].en", "[1].de", "[2].en", "[2].de"):
        _write(tmp_path / name, [f"{name}\tb"])
    assert _data(tmp_path, "what?.en", val_src="what?.en").val_pairs() == [("what?.en", "b")]
    both = list(_data(tmp_path, "[*].en", "[*].de", val_src="what?.en").train_pairs())
    assert [pair[0][:3] for pair in both] == ["[1]", "[2]"]


def test_a_damaged_shard(tmp_path):
    lines = [f"{number} {random.Random(number).random()}\tb" for number in range(4_000)]
    for name in ("1", "2"):
        _write(tmp_path / f"{name}.tsv.gz", lines)
    whole = (tmp_path / "2.tsv.gz").read_bytes()
    (tmp_path / "2.tsv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError) as caught:
        list(_data(tmp_path, "*.tsv.gz").train_pairs())
    found = re.fullmatch(
        r".*/2\.tsv\.gz: not a complete \.gz file: Compressed file ended .*; the last line that can be read is "
        r"([\d,]+)",
        str(caught.value),
    )
    assert found and 1_000 < int(found[1].replace(",", "")) < 3_000


def test_reading_takes_constant_memory(tmp_path):
    def peak(shards):
        data = _data(tmp_path, f"{shards}-*.tsv.gz", val_src="x")
        for shard in range(shards):
            _write(tmp_path / f"{shards}-{shard}.tsv.gz", (f"{pair[0]}\t{pair[1]}" for pair in _pairs(500)))
        tracemalloc.start()
        try:
            deque(data.train_pairs(), maxlen=0)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)
    assert peak(4) < 1.1 * peak(1)


MEMORY = """
import re, sys
from pathlib import Path
from zoo.data import ParallelText

columns = {"src_column": "translation.de", "tgt_column": "translation.en"}
options = {"vocab_size": 200, "cache_dir": sys.argv[3], "batch_tokens": 2000, **columns}
data = ParallelText(sys.argv[1], val_src=sys.argv[2], **options)
data.prepare_data()
data.setup("fit")
for batch in data.train_dataloader():
    pass
print(len(data._train), re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
COLUMNS = "translation.de\ttranslation.en"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["tsv.gz", "parquet"])
def test_an_epoch_takes_constant_memory(tmp_path, form):
    """Ten times the pairs take 4 bytes more for each, for the order, and hardly anything else."""
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="no pyarrow")
    pairs = _pairs(30_000)
    for shard in range(11):
        path = tmp_path / f"{'one' if shard == 10 else 'ten'}-{shard}.{form}"
        if form == "parquet":
            _write_parquet(path, pairs, group=10_000)
        else:
            _write(path, [COLUMNS, *map("\t".join, pairs)])
    _write(tmp_path / "val.tsv", [COLUMNS, "one\ttwo"])
    found = {}
    for name in ("one", "ten"):
        arguments = [str(tmp_path / f"{name}-*.{form}"), str(tmp_path / "val.tsv"), str(tmp_path / name)]
        run = subprocess.run([sys.executable, "-c", MEMORY, *arguments], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        found[name] = list(map(int, run.stdout.split()))
    assert found["one"][0] == 30_000 and found["ten"][0] == 300_000
    assert found["ten"][1] - found["one"][1] < 30 * 1024  # of 400 MB and more, KB
