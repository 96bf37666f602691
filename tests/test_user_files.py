"""Every place where a user's file enters or leaves the `zoo` command, and what goes wrong with files.

`READ` and `WRITTEN` are the table: a row for each place, a cell for each fault. A cell is what the one line on standard
error matches, with exit code 2 and no traceback; or `answered`, where the fault is none there; or `not_possible`, with the
reason. What stands in a row is run through `zoo.cli.main`, with a limit of time, so that a pipe is never waited for.
"""

import gzip
import json
import lzma
import os
import pickle
import re
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path

import captions_fakes
import pytest
import yaml
from captions_fakes import picture
from forks import Fork, command
from user_files import UNABLE, into, on_a_small_disk, stopped, with_small_files, without_rights

import zoo
import zoo.data
from zoo.bundles.files import local_dir
from zoo.bundles.publish import check_golden
from zoo.cli import main
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.training.checkpoints import read_checkpoint

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes, rights and locks of POSIX")
LIMIT = 40  # seconds for one command
FAULTS = ("foreign", "code", "truncated", "empty", "folder", "pipe", "rights", "missing")
LAST = "runs/tiny/checkpoints/last.ckpt"
CLASSIFIER, READER = "structured_self_attention.trec6", "attention_over_attention.cbtlike_ne"
ALIGNER, CAPTIONER = "luong_general.multi30k_de_en", "show_attend_tell_soft.flickr8k"


class Code:
    """A pickle of it makes a folder when it is loaded."""

    def __reduce__(self):
        return os.mkdir, ("code was run",)


class Waited(BaseException):
    """A command took longer than `LIMIT`."""


def answered(why):
    """A cell: the fault is none here; exit code 0."""
    return 0, why


def not_possible(why):
    """A cell: there is no such fault here."""
    return None, why


# ---- the places that are read ----

NOT_TEXT = r"line 1: byte 0x\w\w \(number 1 of the line\) is not utf-8 text; "
GONE = "no such file or folder"
DENIED = "permission denied; change the permissions, or give another path"
CHECKPOINT = dict.fromkeys(("foreign", "code", "truncated", "empty"), "x.ckpt is not a checkpoint, or is damaged") | {
    "folder": "x.ckpt is not a file; give the path of a checkpoint",
    "pipe": "x.ckpt is not a file; give the path of a checkpoint",
    "rights": f"x.ckpt: {DENIED}",
    "missing": f"x.ckpt: {GONE}",
}
TEXT = {
    "foreign": NOT_TEXT,
    "code": NOT_TEXT,
    "folder": "is a folder; give a file",
    "pipe": "is not a regular file; give a file",
    "rights": DENIED,
}
PACKED = dict.fromkeys(("foreign", "code", "truncated", "empty"), r"not a complete \.[gx]z file: ")
IMAGE = {
    "foreign": "not an image in a known format; give one of ",
    "code": "not an image in a known format; give one of ",
    "truncated": "the image is damaged",
    "empty": "the file is empty",
    "pipe": "x.png: not a regular file; give an image",
    "rights": r"cannot be read \(Permission denied\)",
    "missing": "x.png: no such file",
}
A_TEXT = "a part of a text is a text"
FIT = ("--trainer.fast_dev_run", "1")


@dataclass(frozen=True)
class Place:
    """A file that a command reads.

    Attributes:
        file: its name.
        args: the command.
        cells: fault -> what happens.
        slow: faults that only the slow tests run, as the same code is run for another place.
    """

    file: str
    args: tuple[str, ...]
    cells: dict[str, object]
    slow: tuple[str, ...] = field(default=())


def fit(recipe, *options):
    return ("fit", "--config", f"{recipe}.yaml", *FIT, *options)


OTHERS = tuple(fault for fault in FAULTS if fault not in ("foreign", "truncated", "pipe"))
READ = {
    "a checkpoint to resume": Place("x.ckpt", fit("tiny", "--ckpt_path", "x.ckpt"), CHECKPOINT, OTHERS),
    "a checkpoint to test": Place(
        "x.ckpt", ("test", "--config", "tiny.yaml", "--ckpt_path", "x.ckpt", *FIT), CHECKPOINT, OTHERS
    ),
    "a checkpoint to export": Place("x.ckpt", ("export", "x.ckpt", "weights"), CHECKPOINT),
    "a recipe": Place(
        "x.yaml",
        fit("x"),
        {
            "foreign": "--config x.yaml: byte 0 is not utf-8 text; give a recipe in YAML",
            "code": "--config x.yaml: byte 0 is not utf-8 text; give a recipe in YAML",
            "truncated": "--config x.yaml: line 1[0-9]: .*; a recipe is YAML, and this is none, or is cut off",
            "empty": "--config x.yaml: expected settings like `model:` and `data:`; got None",
            "folder": "x.yaml is a folder; give a file",
            "pipe": "x.yaml is not a regular file; give a file",
            "rights": f"x.yaml: {DENIED}",
            "missing": "--config x.yaml: there is no such file, and there is no recipe 'x'; `zoo recipes` lists them",
        },
    ),
    "a recipe of a comparison": Place(
        "recipes/dot.yaml",
        ("compare", "--out", "compared", "--recipes", "recipes", "--device", "cpu"),
        {
            "foreign": "dot.yaml is not YAML: ",
            "code": "dot.yaml is not YAML: ",
            "truncated": "dot.yaml is not YAML: ",
            "empty": "dot.yaml is not a recipe: it has no `model:`",
            "folder": "dot.yaml is a folder; give a file",
            "pipe": "dot.yaml is not a regular file; give a file",
            "rights": f"dot.yaml: {DENIED}",
            "missing": not_possible("each file of the folder is one mechanism"),
        },
    ),
    "pairs of sentences": Place(
        "x.tsv",
        fit("pairs"),
        TEXT
        | {
            "truncated": "line [0-9]+: expected source and target separated by a tab; got one column",
            "empty": "the training text is empty: it has no pair with words on both sides",
            "missing": "train_src: there is no file x.tsv",
        },
        OTHERS,
    ),
    "pairs of sentences, .gz": Place(
        "x.tsv.gz",
        fit("pairs", "--data.train_src", "x.tsv.gz"),
        TEXT | PACKED | {"missing": "train_src: there is no file", "empty": "the training text is empty"},
        tuple(fault for fault in FAULTS if fault != "truncated"),
    ),
    "texts with labels": Place(
        "x.tsv",
        fit("labeled"),
        TEXT
        | {
            "truncated": "x.tsv, line [0-9]+: expected 2 tab-separated columns as in the first line; got 1",
            "empty": "x.tsv is empty",
            "folder": "x.tsv has no class folders; put the texts of each label into a folder of its name",
            "missing": r"train \(--data.train\): there is no file or folder x.tsv",
        },
        OTHERS,
    ),
    "texts with labels, .jsonl.xz": Place(
        "x.jsonl.xz",
        fit("labeled", "--data.train", "x.jsonl.xz"),
        TEXT
        | PACKED
        | {
            "folder": "x.jsonl.xz has no class folders",
            "missing": r"train \(--data.train\): there is no file or folder",
        },
        tuple(fault for fault in FAULTS if fault != "truncated"),
    ),
    "word vectors": Place(
        "x.txt",
        fit("labeled", "--data.train", "good.tsv", "--data.word_vectors", "x.txt"),
        TEXT
        | {
            "foreign": "x.txt has no word vectors: expected a word and its numbers per line, or a word2vec file",
            "code": "x.txt has no word vectors: expected a word and its numbers per line, or a word2vec file",
            "truncated": "x.txt, line [0-9]: expected a word and 8 numbers; got [0-9] numbers",
            "empty": "x.txt has no word vectors: ",
            "missing": "word_vectors must be 'word2vec' or a file of word vectors; there is no file 'x.txt'",
        },
        OTHERS,
    ),
    "word vectors, .xz": Place(
        "x.txt.xz",
        fit("labeled", "--data.train", "good.tsv", "--data.word_vectors", "x.txt.xz"),
        TEXT | PACKED | {"missing": "there is no file 'x.txt.xz'"},
        tuple(fault for fault in FAULTS if fault not in ("foreign", "truncated")),
    ),
    "running text": Place(
        "x.txt",
        fit("plain"),
        TEXT
        | {
            "truncated": answered(A_TEXT),
            "empty": "x.txt is empty; give a text with one sentence or paragraph per line",
            "missing": "train: there is no file x.txt",
        },
        (*OTHERS, "truncated"),
    ),
    "questions": Place(
        "x.tsv",
        fit("cloze"),
        TEXT
        | {
            "truncated": "x.tsv, line [0-9]+: expected 4 tab-separated columns as in the first line; got [0-9]",
            "empty": "x.tsv is empty",
            "missing": "train: there is no file x.tsv",
        },
        (*OTHERS, "foreign"),
    ),
    "captions": Place(
        "x.tsv",
        fit("captions"),
        TEXT
        | {
            "truncated": "x.tsv, line [0-9]+: expected 3 tab-separated columns as in the first line; got [0-9]",
            "empty": "x.tsv is empty",
            "missing": "captions: there is no file x.tsv",
        },
        (*OTHERS, "foreign"),
    ),
    "an image of a training": Place(
        "images/0003.png",
        fit("captions", "--data.captions", "captions.tsv"),
        {
            **dict.fromkeys(FAULTS, answered("the image is left out, and named in a warning")),
            "truncated": "0003.png: the image is damaged and cannot be decoded .*; replace the file, or pass check_images",
        },
        tuple(fault for fault in FAULTS if fault not in ("truncated", "pipe")),
    ),
    "an image to caption": Place(
        "x.png",
        ("predict", CAPTIONER, "x.png", "--beam-size", "1"),
        IMAGE | {"folder": r"the folder x.png has no images \(.avif, "},
        ("rights", "missing", "code"),
    ),
    "a folder of images to caption": Place(
        "photos/x.png",
        ("predict", CAPTIONER, "photos", "--beam-size", "1"),
        dict.fromkeys(FAULTS, "1 of 2 images could not be read; see above")
        | {"missing": not_possible("the folder is what it holds")},
        tuple(fault for fault in FAULTS if fault != "pipe"),
    ),
    "a text to classify": Place(
        "./x.txt",
        ("predict", CLASSIFIER, "./x.txt"),
        {
            "foreign": r"x.txt is not UTF-8 text \(byte 0\); convert it first, e.g. with iconv",
            "code": r"x.txt is not UTF-8 text \(byte 0\); convert it first, e.g. with iconv",
            "truncated": answered(A_TEXT),
            "empty": answered("an empty text has an answer too"),
            "folder": "x.txt is a folder; give text files, e.g. ",
            "pipe": "x.txt is not a regular file; give a text file",
            "rights": "x.txt: Permission denied",
            "missing": answered("what names no file is the text itself"),
        },
    ),
    "a document to ask about": Place(
        "x.txt",
        ("predict", READER, "XXXXX met Bo", "--document", "x.txt"),
        {
            "foreign": r"x.txt is not UTF-8 text \(byte 0\); convert it first",
            "code": r"x.txt is not UTF-8 text \(byte 0\); convert it first",
            "truncated": answered(A_TEXT),
            "empty": "the document has no words; give a text",
            "folder": "--document x.txt: it is a folder; give a text file, or the document itself",
            "pipe": "--document x.txt: it is not a regular file; give a text file, or the document itself",
            "rights": "x.txt: Permission denied",
            "missing": "--document x.txt: no such file; give a text file, or the document itself",
        },
    ),
    "sentences to align": Place(
        "x.txt",
        ("align", ALIGNER, "x.txt", "en.txt"),
        TEXT
        | {
            "truncated": answered(A_TEXT),
            "empty": "must have the same number of lines: x.txt has 0, en.txt has 2",
            "missing": f"x.txt: {GONE}",
        },
    ),
    "links that people made": Place(
        "x.txt",
        ("align", ALIGNER, "de.txt", "en.txt", "--gold", "x.txt"),
        TEXT
        | {
            "foreign": r"x.txt is not utf-8 text \(byte 0x89\); save the file as utf-8",
            "code": r"x.txt is not utf-8 text \(byte 0x80\); save the file as utf-8",
            "truncated": r"x.txt, line 2: expected i-j \(sure\) or ipj \(possible\), counted from 1; got '1-'",
            "empty": "x.txt has 0 lines for 2 pairs; give one line per pair",
            "missing": f"x.txt: {GONE}",
        },
    ),
    "config.json of weights": Place(
        "bundle/config.json",
        ("predict", "local-dir:bundle", "3 May"),
        {
            "foreign": "config.json is not UTF-8 text",
            "code": "config.json is not UTF-8 text",
            "truncated": "config.json is not valid JSON",
            "empty": "config.json is not valid JSON",
            "folder": "config.json is not a regular file",
            "pipe": "config.json is not a regular file",
            "rights": "config.json cannot be read: Permission denied",
            "missing": "local-dir:bundle is not a folder of weights: it has no config.json",
        },
    ),
    "tensors of weights": Place(
        "bundle/model.safetensors",
        ("publish", "bundle", "me/model", "--dry-run"),
        {
            **dict.fromkeys(("foreign", "code", "truncated", "empty"), "model.safetensors is damaged or was changed"),
            "folder": "model.safetensors is not a regular file",
            "pipe": "model.safetensors is not a regular file",
            "rights": "model.safetensors cannot be read: Permission denied",
            "missing": "bundle is incomplete: model.safetensors missing",
        },
    ),
    "the list of an ONNX folder": Place(
        "graphs/onnx.json",
        ("export", CLASSIFIER, "graphs", "--format", "onnx"),
        {
            **dict.fromkeys(FAULTS, "graphs exists and is not an ONNX export: .*; give a new or an empty folder"),
            "missing": answered("an empty folder is a new one"),
        },
        ("missing",),
    ),
}


def write_all(folder):
    """What the commands read, all of it good; gives the content of each place."""
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1}

    def recipe(name, model, sizes, data, **options):
        parts = {
            "trainer": {**quiet, "max_epochs": 1},
            "model": {"class_path": f"zoo.models.{model}", "init_args": sizes},
        }
        parts["data"] = {"class_path": f"zoo.data.{data}", "init_args": options}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(parts))

    small = {"embedding_size": 8, "hidden_size": 8}
    pairs = {**small, "src_vocab_size": 300, "tgt_vocab_size": 300}
    dates = {"train_size": 48, "val_size": 9, "test_size": 9, "batch_size": 16}
    recipe("tiny", "luong.LuongNMT", {**small, "src_vocab_size": 80, "tgt_vocab_size": 20}, "Dates", **dates)
    recipe("pairs", "luong.LuongNMT", pairs, "ParallelText", train_src="x.tsv", tokenizer="word", val_fraction=0.2)
    sizes = {**small, "vocab_size": 500, "num_classes": 2, "attention_size": 6, "hops": 2, "mlp_size": 8}
    classifier = "structured_self_attention.StructuredSelfAttention"
    recipe("labeled", classifier, sizes, "LabeledText", train="x.tsv", min_frequency=1, batch_size=8)
    sizes = {**KeyValuePredictLM.tiny, "vocab_size": 99}
    recipe("plain", "key_value_predict_lm.KeyValuePredictLM", sizes, "PlainText", train="x.txt", batch_size=2)
    sizes = {**small, "vocab_size": 40, "num_unknown": 0}
    recipe(
        "cloze", "attention_over_attention.AttentionOverAttentionReader", sizes, "Cloze", train="x.tsv", batch_size=8
    )
    sizes = {**small, "vocab_size": 40, "attention": "soft", "layer": "blocks.2", "image_size": 32, "feature_size": 8}
    captions = {"folder": "images", "captions": "x.tsv", "min_frequency": 1, "batch_size": 64, "cache_features": False}
    recipe("captions", "show_attend_tell.ShowAttendTell", {**sizes, "attention_size": 4}, "ImageCaptions", **captions)
    options = {"folder": "images", "captions": "captions.tsv"}
    captions_fakes.invent(zoo.data.ImageCaptions, options, folder, captions_fakes.sample((12, 4, 4)))
    (folder / "de.txt").write_text("ein Hund\nein Mann\n")
    (folder / "en.txt").write_text("a dog\na man\n")
    for name in ("recipes", "photos", "graphs", "bundle"):
        (folder / name).mkdir()
    (folder / "photos" / "a.png").write_bytes(picture(1))
    trainer = {"max_epochs": 1, "callbacks": [{"class_path": "zoo.comparison.measures.TrainingMeter"}]}
    base = {"trainer": trainer, "model": {}, "data": {"class_path": "zoo.data.Dates"}}
    (folder / "recipes" / "base.yaml").write_text(yaml.safe_dump(base))
    labels = "label\ttext\n" + "".join(f"{'xy'[n % 2]}\tword{n % 7} good {n}\n" for n in range(400))
    (folder / "good.tsv").write_text(labels)
    rows = [{"label": "xy"[n % 2], "text": f"word{n % 7} good {n}"} for n in range(40)]
    sentences = "".join(f"a{n} b c\tc b a{n}\n" for n in range(200))
    questions = "".join(f"Al met Bo and Bo saw n{n} .\tXXXXX met Bo\tAl\tAl|Bo\n" for n in range(60))
    vectors = "".join(f"word{n} {' '.join(['0.1'] * 8)}\n" for n in range(7))
    return {
        "a recipe": (folder / "tiny.yaml").read_bytes(),
        "a recipe of a comparison": b"model: {class_path: zoo.models.luong.LuongNMT, init_args: {score: dot}}\n",
        "pairs of sentences": sentences.encode(),
        "pairs of sentences, .gz": gzip.compress(sentences.encode()),
        "texts with labels": labels.encode(),
        "texts with labels, .jsonl.xz": lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()),
        "word vectors": vectors.encode(),
        "word vectors, .xz": lzma.compress(vectors.encode() * 9),
        "running text": "".join(f"line {n} of the text .\n" for n in range(60)).encode(),
        "questions": f"document\tquery\tanswer\tcandidates\n{questions}".encode(),
        "captions": (folder / "captions.tsv").read_bytes(),
        "an image of a training": (folder / "images" / "0003.png").read_bytes(),
        "an image to caption": picture(3),
        "a folder of images to caption": picture(3),
        "a text to classify": b"Who was it ?",
        "a document to ask about": b"Al met Bo and Bo saw Cy .",
        "sentences to align": b"ein Hund\nein Mann\n",
        "links that people made": b"1-1 2-2\n1-1 2p2\n",
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with all that the commands read, and the content of each place."""
    folder = tmp_path_factory.mktemp("files")
    contents = write_all(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ZOO_CACHE", str(folder / "cache"))
        assert main(["fit", "--config", "tiny.yaml"]) == 0
        assert main(["export", LAST, "bundle"]) == 0
    checkpoint = (folder / LAST).read_bytes()
    contents |= {name: checkpoint for name, place in READ.items() if place.file == "x.ckpt"}
    contents |= {
        name: (folder / READ[name].file).read_bytes() for name in ("config.json of weights", "tensors of weights")
    }
    listed = json.dumps({"sha256": {}})
    return folder, {**contents, "the list of an ONNX folder": listed.encode()}


@pytest.fixture
def here(prepared, tmp_path, monkeypatch):
    """A copy of the folder, with the content of each place."""
    folder, contents = prepared
    shutil.copytree(folder, tmp_path / "here", ignore=shutil.ignore_patterns("cache"))
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("ZOO_CACHE", str(folder / "cache"))
    return contents


def put(fault, path, content):
    """Makes a path what the fault says."""
    path.unlink(missing_ok=True)
    if fault == "folder":
        path.mkdir()
    elif fault == "pipe":
        os.mkfifo(path)
    elif fault != "missing":
        foreign = b"not an image" if path.suffix == ".png" else picture(1)
        cut = content[: content.rindex(b"\t")] if content.count(b"\t") > 9 else content[: len(content) * 2 // 3]
        wrong = {"foreign": foreign, "code": pickle.dumps(Code()), "truncated": cut, "empty": b""}
        path.write_bytes(wrong.get(fault, content))
        path.chmod(0 if fault == "rights" else 0o644)


def run(args, capfd):
    """The exit code of a command, within the limit of time, and what it says on standard error."""

    def end(number, frame):
        raise Waited

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(LIMIT)
    capfd.readouterr()
    try:
        code = main(list(args))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return code, capfd.readouterr().err


def check(cell, code, said):
    """Compares the end of a command with a cell."""
    errors = [line for line in said.splitlines() if line.startswith("zoo: error: ")]
    assert "Traceback" not in said
    if isinstance(cell, tuple):
        assert code == 0 and not errors, said
    else:
        assert code == 2 and len(errors) == 1 and re.search(cell, errors[0]), (cell, code, said)


def cells(table):
    for name, place in table.items():
        for fault, cell in place.cells.items():
            slow = [pytest.mark.slow] if fault in place.slow else []
            if not (isinstance(cell, tuple) and cell[0] is None):
                yield pytest.param(name, fault, id=f"{name}-{fault}", marks=slow)


def test_the_table_is_complete():
    assert all(set(place.cells) == set(FAULTS) for place in READ.values())
    assert all(set(cells) == set(WRITING) for _, _, cells in WRITTEN.values())


@pytest.mark.integration
@pytest.mark.parametrize(("name", "fault"), [*cells(READ)])
def test_what_is_read(name, fault, here, capfd):
    place = READ[name]
    put(fault, Path(place.file), here[name])
    if fault == "rights":
        end = Fork(without_rights, *place.args).wait(LIMIT)
        if end.code == UNABLE:
            pytest.skip("this system does not let root give up its rights")
        code, said = end.code, end.output
    else:
        code, said = run(place.args, capfd)
    check(place.cells[fault], code, said)
    assert not os.path.exists("code was run")


OFTEN = ("a recipe", "pairs of sentences", "an image to caption", "a document to ask about", "links that people made")


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in READ]
)
def test_what_is_read_and_good(name, here, capfd):
    """Else a row could be of a command that never works."""
    if name == "a recipe of a comparison":
        pytest.skip("trains for minutes; tests/comparison has it")
    put("good", Path(READ[name].file), here[name])
    code, said = run(READ[name].args, capfd)
    assert code == 0, said


def test_data_that_changed_since_the_cache_was_made(here, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    file = Path("x.tsv")
    file.write_bytes(here["texts with labels"])
    assert run(fit("labeled"), capfd)[0] == 0
    before, status = file.read_bytes(), file.stat()
    file.write_bytes(before.replace(b"y\t", b"z\t", 1))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # and of the same size
    check("the data has num_classes 3, the model 2", *run(fit("labeled"), capfd))


# ---- the places that are written ----

WRITING = ("taken", "pipe", "rights", "full", "read-only", "limit", "SIGINT", "SIGTERM")
FULL_DISK = r"could not be written \(No space left on device\); "
LIMITED = r"could not be written \(File too large\); "
READ_ONLY = r"could not be written \(Read-only file system\); "
ROOM = "make room, or choose another place"
FIRST = "no checkpoint was written yet, so the same command begins again"
FILE = {
    "taken": "is a folder; give a file",
    "pipe": "is not a regular file; give a file",
    "rights": DENIED,
    "full": FULL_DISK + ROOM,
    "read-only": READ_ONLY + ROOM,
    "limit": LIMITED + ROOM,
    "SIGINT": "zoo: stopped by SIGINT$",
    "SIGTERM": "zoo: stopped by SIGTERM$",
}
FOLDER = FILE | dict.fromkeys(("taken", "pipe"), "exists and is not a folder; give a new or an empty folder")
RUN = {
    "taken": "a part of this path is a file, not a folder; give another path",
    "pipe": "a part of this path is a file, not a folder; give another path",
    "rights": DENIED,
    "full": FULL_DISK,
    "read-only": READ_ONLY + FIRST,
    "limit": LIMITED + FIRST,
    "SIGINT": f"zoo: stopped by SIGINT; {FIRST}",
    "SIGTERM": f"zoo: stopped by SIGTERM; {FIRST}",
}
CACHING = ("--config", "labeled.yaml", "--data.train", "good.tsv", *FIT, "--data.cache_dir")
WRITTEN = {  # name of what is written, arguments before it, cells
    "disk/weights": (("export", LAST), (), FOLDER),
    "disk/graphs": (("export", CLASSIFIER), ("--format", "onnx"), FOLDER),
    "disk/p.svg": (("predict", CLASSIFIER, "Who ?"), ("--plot",), FILE),
    "disk/p.pdf": (("align", ALIGNER, "de.txt", "en.txt"), ("--plot",), FILE),
    "disk/p.png": (("predict", CAPTIONER, "photos/a.png", "--beam-size", "1"), ("--plot",), FILE),
    "disk/p.html": (("predict", READER, "XXXXX is", "--document", "it is so"), ("--html",), FILE),
    "disk/runs": (("fit", "--config", "tiny.yaml"), ("--trainer.default_root_dir",), RUN),
    "disk/cache": (("fit",), CACHING, RUN),
}
SLOW = {"disk/graphs": set(WRITING) - {"taken", "pipe"}, "disk/p.pdf": set(WRITING), "disk/p.png": set(WRITING)}
SLOW["disk/cache"] = set(WRITING) - {"taken", "rights"}
RARE = {"full", "read-only", "SIGTERM"}


def writings():
    for name, (_, _, faults) in WRITTEN.items():
        for fault in faults:
            often = fault not in SLOW.get(name, set()) and (fault not in RARE or name == "disk/p.svg")
            yield pytest.param(name, fault, marks=[] if often else [pytest.mark.slow])


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize(("name", "fault"), [*writings()])
def test_what_is_written(name, fault, here, capfd):
    """One line, nothing half-written, and the old file is still there."""
    first, option, faults = WRITTEN[name]
    args = (*first, name, *option) if "onnx" in option else (*first, *option, name)
    target, is_file = Path(name), bool(Path(name).suffix)
    target.parent.mkdir()
    if is_file:
        target.write_bytes(b"old")
    if fault in ("taken", "pipe"):
        target.unlink(missing_ok=True)
        os.mkfifo(target) if fault == "pipe" else target.mkdir() if is_file else target.write_bytes(b"mine")
    before = files("disk")
    if fault in ("taken", "pipe"):
        code, said = run(args, capfd)
    else:
        os.chmod("disk", 0o500 if fault == "rights" else 0o755)
        run_so = {
            "rights": (without_rights,),
            "full": (on_a_small_disk, "disk", "4k"),
            "read-only": (on_a_small_disk, "disk", "0"),
            "limit": (with_small_files, 1200),
        }.get(fault, (stopped, fault, "os:fsync"))
        end = Fork(*run_so, *args).wait(LIMIT)
        if end.code == UNABLE:
            pytest.skip("this system does not let a process limit itself so")
        code, said = end.code, end.output
        if fault == "full" and is_file:
            assert f"left: {{'{target.name}': 3}}" in said
    if fault.startswith("SIG"):
        lines = [line for line in said.splitlines() if line.startswith("zoo: ")]
        assert code == 128 + signal.Signals[fault] and len(lines) == 1 and re.search(faults[fault], lines[0]), said
    else:
        check(faults[fault], code, said)
    after = files("disk")
    assert before.items() <= after.items() and not [path for path in after if Path(path).name.startswith((".p", ".w"))]
    if name not in ("disk/runs", "disk/cache"):
        assert after == before


def test_the_earlier_checkpoint_stays(here, capfd):
    """Where a new one cannot be written the old one is whole, is named, and is resumed from when there is room."""
    before = Path(LAST).read_bytes()
    more = ("fit", "--config", "tiny.yaml", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    end = Fork(with_small_files, 9000, *more).wait(LIMIT)
    assert len(before) > 9000
    check(r"(best|last).ckpt could not be written \(File too large\); the earlier .*\1.ckpt is intact; make room, then "
          "resume with: zoo fit --config tiny.yaml --trainer.max_epochs 2 --ckpt_path last$", end.code, end.output)  # fmt: skip
    assert Path(LAST).read_bytes() == before
    assert run(more, capfd)[0] == 0 and read_checkpoint(LAST)["global_step"] == 6


def test_leftovers_of_killed_trainings_go(here, capfd):
    checkpoints = Path(LAST).parent
    for name in (".last.ckpt-01234abc", ".best.ckpt-0123456", ".notes-01234abc"):
        (checkpoints / name).write_bytes(b"half")
    args = ("fit", "--config", "tiny.yaml", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    assert run(args, capfd)[0] == 0
    names = {path.name for path in checkpoints.iterdir()} - {".lock"}
    assert names == {"last.ckpt", "best.ckpt", ".best.ckpt-0123456", ".notes-01234abc"}


# ---- standard output ----


@pytest.mark.parametrize(
    "args",
    [
        ("predict", CLASSIFIER, "Who ?"),
        ("align", ALIGNER, "de.txt", "en.txt"),
        ("export", LAST, "weights"),
        ("publish", "bundle", "me/model", "--dry-run"),
        ("test", "--config", "tiny.yaml", "--ckpt_path", "last"),
    ],
    ids=lambda args: args[0],
)
def test_standard_output(args, here):
    end = Fork(into, "closed", *args).wait(LIMIT)
    assert end.code == 0 and "Traceback" not in end.output and "zoo: " not in end.output, end.output
    if os.path.exists("/dev/full"):
        shutil.rmtree("weights", ignore_errors=True)
        end = Fork(into, "/dev/full", *args).wait(LIMIT)
        check(FULL_DISK, end.code, end.output)


# ---- two at once ----


def test_two_exports_at_once(here):
    forks = [Fork(command, "export", LAST, "weights") for _ in range(3)]
    ends = [fork.wait(LIMIT) for fork in forks]
    assert any(end.code == 0 for end in ends)
    for end in ends:
        assert "Traceback" not in end.output and end.code in (0, 2), end.output
    assert files("weights").keys() == files("bundle").keys() and not list(Path().glob(".weights*"))
    assert Path("weights/model.safetensors").read_bytes() == Path("bundle/model.safetensors").read_bytes()
    bundle = local_dir("weights")  # read and verified: every file is of the same writer
    check_golden(zoo.load("local-dir:weights"), bundle)


def test_two_trainings_at_once(here):
    """Of one folder: one of them trains, the other one says so."""
    args = ("fit", "--config", "tiny.yaml", "--trainer.default_root_dir", "new", "--trainer.max_epochs", "2")
    forks = [Fork(command, *args) for _ in range(2)]
    ends = sorted((fork.wait(LIMIT) for fork in forks), key=lambda end: end.code)
    assert [end.code for end in ends] == [0, 2], [end.output for end in ends]
    check("another training is writing to new/tiny: wait for its end, or choose|holds the checkpoints of an earlier run",
          ends[1].code, ends[1].output)  # fmt: skip


def test_two_trainings_that_make_one_cache(here, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    forks = [Fork(command, *fit("labeled", "--data.train", "good.tsv")) for _ in range(2)]
    ends = [fork.wait(LIMIT) for fork in forks]
    assert [end.code for end in ends] == [0, 0], [end.output for end in ends]
    assert not list((tmp_path / "cache").rglob(".unfinished-*"))
