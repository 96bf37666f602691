"""Bundles of tiny models and every way to spoil them: a list made by hand, and a generator of random mutants.

A bundle is handled as its files, name -> bytes; `seal` makes hashes and digest fit again, as an author with bad
intentions would.

    python tests/helpers/bundle_corpus.py FOLDER [--mutants N --seed S]

loads the corpus, and N mutants, in this process, which may then neither run nor reach anything, nor take more memory
than `MEMORY` beyond what it had; prints one JSON object for each, and before them one about the limits themselves.
"""

import argparse
import hashlib
import inspect
import json
import math
import os
import pickle
import random
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torchvision.models.feature_extraction  # noqa: F401  (here, so that it does not count as time of a load)
from captions_fakes import picture
from model_cases import model_classes
from safetensors.torch import load, save

import zoo
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.han import HAN
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.text import Tokenizer
from zoo.utils import strict_json
from zoo.utils.memory import peak_memory

CONFIG, WEIGHTS, TOKENIZER, LABELS, PIXELS = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "labels.json",
    "preprocessing.json",
)
SRC, TGT = "tokenizer.src.json", "tokenizer.tgt.json"
SECONDS, MEMORY = 2.0, 256 * 2**20  # that loading a bundle may take, CPU time and bytes
TEXTS = ["Two dogs run in the snow.", "A man reads."]
MARK = "/tmp/zoo-was-here"  # a file that would be there if code of a bundle had run
Files = dict[str, bytes]


# ---- the bundles ----


def bundles() -> dict[str, Files]:
    """Name -> files of a model of each task, with tokenizers of every kind."""
    torch.manual_seed(0)
    translator = LuongNMT(**LuongNMT.tiny | {"src_vocab_size": 40, "tgt_vocab_size": 50})
    translator.src_tokenizer = Tokenizer.train(TEXTS, "char", 40)
    translator.tgt_tokenizer = Tokenizer.train(TEXTS, "bpe", 50)
    classifier = StructuredSelfAttention(**StructuredSelfAttention.tiny | {"vocab_size": 20})
    document = HAN(**HAN.tiny | {"vocab_size": 20})
    captioner = ShowAttendTell(**ShowAttendTell.tiny | {"vocab_size": 20})
    writer = KeyValuePredictLM(**KeyValuePredictLM.tiny | {"vocab_size": 20})
    reader = AttentionOverAttentionReader(**AttentionOverAttentionReader.tiny | {"vocab_size": 20})
    for model, kind in (
        (classifier, "word"),
        (document, "word_punct"),
        (captioner, "word_punct"),
        (writer, "word"),
        (reader, "word"),
    ):
        model.tokenizer = Tokenizer.train(TEXTS, kind, 20)
    classifier.label_names = document.label_names = ["bad", "good", "neither"]
    models = {"translator": translator, "classifier": classifier, "document": document}
    models |= {"captioner": captioner, "writer": writer, "reader": reader}
    return {name: saved(model) for name, model in models.items()}


def saved(model: Any) -> Files:
    """The files of a model."""
    with tempfile.TemporaryDirectory() as folder:
        return {file.name: file.read_bytes() for file in model.save_pretrained(folder).iterdir()}


def seal(files: Files) -> Files:
    """The files with hashes and digest that fit, so far as config.json can be read."""
    files = dict(files)
    try:
        config = json.loads(files[CONFIG])
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        config["sha256"] = {name: hashes.get(name, said) for name, said in config["sha256"].items()}
        config.pop("digest", None)
        files[CONFIG] = json.dumps({**config, "digest": strict_json.digest(config)}).encode()
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        pass
    return files


def write(files: Files, folder: Path) -> Path:
    """Writes the files of a bundle, and nothing else, into a folder, which is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.name not in files:
            file.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def same(files: Files, others: Files) -> bool:
    """Whether config.json says the same, with or without a digest, and all else is equal."""
    if files.keys() != others.keys() or any(
        files[name] != content for name, content in others.items() if name != CONFIG
    ):
        return False
    config = json.loads(others[CONFIG])
    return {"digest": config["digest"]} | json.loads(files[CONFIG]) == config


def answers(model: Any) -> list[Any]:
    """Answers of a model to raw input."""
    if hasattr(model, "translate"):
        return model.translate(TEXTS)
    if hasattr(model, "caption"):
        return model.caption([picture(n) for n in range(2)])
    if hasattr(model, "complete"):
        return model.complete(TEXTS, max_words=5)
    if hasattr(model, "answer"):
        return model.answer(TEXTS, [f"XXXXX {text}" for text in TEXTS])
    return model.classify(TEXTS)


def use(model: Any) -> list[str]:
    """The answers as text."""
    return [str(result.to_dict()) for result in answers(model)]


# ---- made by hand ----


@dataclass(frozen=True)
class Case:
    """A bundle that must be refused.

    Attributes:
        name: of the case.
        base: which of `bundles`.
        spoil: changes the files; hashes and digest are made to fit afterwards, unless `raw`.
        says: words of the message.
        kind: class of the error.
        place: what is done in the folder after the files were written.
        raw: leave hashes and digest as they are.
    """

    name: str
    base: str
    spoil: Callable[[Files], None]
    says: str
    kind: type[zoo.BundleError] = zoo.MisfitError
    place: Callable[[Path], None] | None = None
    raw: bool = False

    def write(self, good: dict[str, Files], folder: Path) -> Path:
        files = dict(good[self.base])
        self.spoil(files)
        write(files if self.raw else seal(files), folder)
        if self.place:
            self.place(folder)
        return folder


def _nothing(files: Files) -> None:
    """For what is not in the content of the files."""


def _set(name: str, content: bytes | str) -> Callable[[Files], None]:
    return lambda files: files.update({name: content if isinstance(content, bytes) else content.encode()})


def _drop(name: str) -> Callable[[Files], None]:
    return lambda files: files.pop(name)


def _json(name: str, change: Callable[[Any], Any]) -> Callable[[Files], None]:
    """Changes the parsed content of a file, in place or by the value returned."""

    def spoil(files: Files) -> None:
        value = json.loads(files[name])
        result = change(value)
        files[name] = json.dumps(value if result is None else result).encode()

    return spoil


def _config(**entries: Any) -> Callable[[Files], None]:
    return _json(CONFIG, lambda config: config.update(entries))


def _args(**values: Any) -> Callable[[Files], None]:
    return _json(CONFIG, lambda config: config["init_args"].update(values))


def _listed(name: str, value: Any = "0" * 64) -> Callable[[Files], None]:
    return _json(CONFIG, lambda config: config["sha256"].update({name: value}))


def _also(name: str, content: bytes) -> Callable[[Files], None]:
    """A further file, listed in config.json."""

    def spoil(files: Files) -> None:
        files[name] = content
        _listed(name)(files)

    return spoil


def _unlist(name: str) -> Callable[[Files], None]:
    return _json(CONFIG, lambda config: config["sha256"].pop(name) and None)


def _tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Files], None]:
    def spoil(files: Files) -> None:
        tensors = load(files[WEIGHTS])
        change(tensors)
        files[WEIGHTS] = save(tensors)

    return spoil


def _header(change: Callable[[dict[str, Any]], Any], tail: Callable[[bytes], bytes] = bytes) -> Callable[[Files], None]:
    """Changes the header of the tensors, and the data behind it."""

    def spoil(files: Files) -> None:
        data = files[WEIGHTS]
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        change(header)
        text = json.dumps(header).encode()
        files[WEIGHTS] = struct.pack("<Q", len(text)) + text + tail(data[8 + size :])

    return spoil


def _length(n: int) -> Callable[[Files], None]:
    return lambda files: files.update({WEIGHTS: struct.pack("<Q", n) + files[WEIGHTS][8:]})


def _tokenizer(**parts: Any) -> Callable[[Files], None]:
    return _json(TOKENIZER, lambda spec: spec.update(parts))


def _vocab(change: Callable[[dict[str, int]], Any], name: str = TOKENIZER) -> Callable[[Files], None]:
    """Changes the words of a tokenizer, in place or by the value returned."""

    def spoil(spec: dict[str, Any]) -> None:
        result = change(spec["model"]["vocab"])
        spec["model"]["vocab"] = spec["model"]["vocab"] if result is None else result

    return _json(name, spoil)


def _link(name: str, target: str | Path) -> Callable[[Path], None]:
    def place(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return place


def _moved(name: str) -> Callable[[Path], None]:
    """The right content, but outside."""

    def place(folder: Path) -> None:
        elsewhere = (folder / name).replace(folder.with_name(f"{folder.name}-{name}"))
        (folder / name).symlink_to(elsewhere)

    return place


def _instead(name: str, make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def place(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return place


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket may have 100 characters only
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def _sparse(name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, size)


def _many(count: int) -> Callable[[dict[str, Any]], None]:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return lambda header: header.update({f"x{n}": empty for n in range(count)})


def _tied_twice(files: Files) -> None:
    model = LuongNMT(**json.loads(files[CONFIG])["init_args"] | {"tie_output": True})
    files[WEIGHTS] = save({name: t.clone() for name, t in model.state_dict().items()})
    _args(tie_output=True)(files)


class _Malice:
    """A pickle of this runs a command when it is read."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple:
        return os.system, (self.command,)


def _put(files: Files, path: str, value: Any) -> None:
    files[path] = value


DAMAGED = zoo.DamagedError
_NESTED = "[" * 50_000 + "]" * 50_000
_PADDING = {
    "strategy": {"Fixed": 10**9},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "x",
}
_ADDED = {
    "id": 0,
    "content": "the",
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": True,
}
_BOMB = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}
CASES = [
    # config.json
    Case("config empty", "document", _set(CONFIG, ""), "config.json is not valid JSON", DAMAGED),
    Case("config no JSON", "document", _set(CONFIG, "class_path: zoo"), "config.json is not valid JSON", DAMAGED),
    Case("config cut off", "document", lambda f: _put(f, CONFIG, f[CONFIG][:-9]), "config.json is not valid JSON", DAMAGED, raw=True),
    Case("config a list", "document", _set(CONFIG, "[]"), "must hold exactly class_path"),
    Case("config null", "document", _set(CONFIG, "null"), "must hold exactly class_path"),
    Case("config not UTF-8", "document", _set(CONFIG, b'{"\xff": 1}'), "config.json is not UTF-8 text", DAMAGED),
    Case("config UTF-16", "document", lambda f: _put(f, CONFIG, f[CONFIG].decode().encode("utf-16")), "is not UTF-8", DAMAGED, raw=True),
    Case("config byte order mark", "document", lambda f: _put(f, CONFIG, b"\xef\xbb\xbf" + f[CONFIG]), "byte order mark", DAMAGED, raw=True),
    Case("config missing", "document", _drop(CONFIG), "not a folder of weights: it has no config.json", DAMAGED),
    Case("config without class", "document", _json(CONFIG, lambda c: c.pop("class_path") and None), "must hold exactly class_path"),
    Case("config without hashes", "document", _json(CONFIG, lambda c: c.pop("sha256") and None), "must hold exactly class_path"),
    Case("config with more", "document", _config(auto_map={"AutoModel": "evil.Model"}), "must hold exactly class_path"),
    Case("config class a number", "document", _config(class_path=3), "must hold exactly class_path"),
    Case("config arguments a list", "document", _config(init_args=[1]), "must hold exactly class_path"),
    Case("config hashes a list", "document", _config(sha256=[]), "must hold exactly class_path", raw=True),
    Case(
        "config key twice", "document", lambda f: _put(f, CONFIG, b'{"class_path": "os.system", ' + f[CONFIG][1:]), "twice", DAMAGED,
        raw=True,
    ),
    Case("config NaN", "document", _args(dropout=math.nan), "NaN is not allowed", DAMAGED),
    Case("config -Infinity", "document", _args(dropout=-math.inf), "-Infinity is not allowed", DAMAGED),
    Case("config 1e999", "document", lambda f: _put(f, CONFIG, f[CONFIG].replace(b'"word_dropout": 0.0', b'"word_dropout": 1e999')), "infinite", DAMAGED, raw=True),
    Case("config 5000 digits", "document", lambda f: _put(f, CONFIG, f[CONFIG].replace(b'"word_dropout": 0.0', b'"word_dropout": ' + b"1" * 5000)), "a number of 5,000 digits", DAMAGED, raw=True),
    Case("config nested", "document", _set(CONFIG, _NESTED), "nested too deeply", DAMAGED),
    Case(
        "config argument nested", "document", lambda f: _put(f, CONFIG, f[CONFIG].replace(b'"word_dropout": 0.0', b'"word_dropout": ' + b"[" * 50 + b"]" * 50)), "digest",
        DAMAGED, raw=True,
    ),
    Case("config half a character", "document", _config(class_path="\ud800"), "half of a surrogate pair", DAMAGED),
    Case("config 2 MB", "document", _config(class_path="x" * 2**21), "characters are too many", DAMAGED),
    Case("config 40 MB", "document", _set(CONFIG, b" " * 40 * 2**20), "config.json is larger than 16 MB"),
    Case(
        "config changed", "translator", lambda f: _put(f, CONFIG, f[CONFIG].replace(b'"beam_size": 5', b'"beam_size": 4')), "digest",
        DAMAGED, raw=True,
    ),
    Case("config digest a number", "document", _config(digest=3), "its digest does not match", DAMAGED, raw=True),
    # the class
    Case("class os.system", "document", _config(class_path="os.system"), "MODULE); got 'os.system'"),
    Case("class builtins.eval", "document", _config(class_path="builtins.eval"), "must lie in zoo.models"),
    Case("class a function of zoo", "document", _config(class_path="zoo.bundles.files.read_file"), "must lie in zoo.models"),
    Case("class by a lookalike", "document", _config(class_path="zoo.models_.evil.Model"), "must lie in zoo.models"),
    Case("class by a path", "document", _config(class_path="zoo.models.../../evil.Model"), "must lie in zoo.models"),
    Case("class of two lines", "document", _config(class_path="zoo.models.han\nHAN"), r"got 'zoo.models.han\nHAN'"),
    Case("class endless", "document", _config(class_path="zoo.models." + "x" * 60_000), "must lie in zoo.models"),
    Case("class empty", "document", _config(class_path=""), "MODULE); got ''"),
    Case("class without a name", "document", _config(class_path="zoo.models."), "has no zoo.models."),
    Case(
        "class unknown", "document", _config(class_path="zoo.models.han.HAN2"),
        "this version of attention-zoo has no zoo.models.han.HAN2",
    ),
    Case("class of an unknown file", "document", _config(class_path="zoo.models.evil.HAN"), "this version of attention-zoo has no"),
    Case(
        "class of a deeper file", "document", _config(class_path="zoo.models.han.torch.nn.Linear"),
        "this version of attention-zoo has no",
    ),
    Case("class of torch", "document", _config(class_path="zoo.models.han.Tensor"), "zoo.models.han.Tensor is not a model"),
    Case("class a module", "document", _config(class_path="zoo.models.han.nn"), "is not a model"),
    Case("class a part", "document", _config(class_path="zoo.models.han.ContextAttention"), "is not a model"),
    Case("class a base", "document", _config(class_path="zoo.models.han.DocumentClassifier"), "is not a model"),
    Case("class a private function", "document", _config(class_path="zoo.models.show_attend_tell.for_each"), "is not a model"),
    Case("class another model", "document", _config(class_path="zoo.models.luong.LuongNMT"), "LuongNMT has no argument"),
    Case(
        "class another classifier", "document", _config(class_path="zoo.models.attention_classifier.AttentionClassifier"),
        "AttentionClassifier has no argument",
    ),
    # arguments
    Case("argument unknown", "translator", _args(hiden_size=8), "LuongNMT has no argument hiden_size"),
    Case("argument of two lines", "translator", _args(**{"a\nb": 8}), r"has no argument 'a\nb'"),
    Case("argument self", "translator", _args(self=8), "has no argument self"),
    Case(
        "argument missing", "translator", _json(CONFIG, lambda c: c["init_args"].pop("src_vocab_size") and None),
        "init_args lacks src_vocab_size",
    ),
    Case(
        "int as text", "translator", _args(hidden_size="8"),
        "hidden_size must be a whole number up to 2,147,483,647; got '8'",
    ),
    Case("int as float", "translator", _args(hidden_size=8.0), "hidden_size must be a whole number"),
    Case("int as 1e12", "translator", _args(hidden_size=1e12), "hidden_size must be a whole number"),
    Case("int as bool", "translator", _args(encoder_layers=True), "encoder_layers must be a whole number"),
    Case("int as null", "translator", _args(hidden_size=None), "hidden_size must be a whole number"),
    Case("int as list", "translator", _args(hidden_size=[8]), "hidden_size must be a whole number"),
    Case("int as object", "translator", _args(hidden_size={"_target_": "os.system"}), "hidden_size must be a whole number"),
    Case("int of 64 bits", "translator", _args(hidden_size=2**63), "hidden_size must be a whole number"),
    Case("float as text", "translator", _args(dropout="0.1"), "dropout must be a number"),
    Case("float as bool", "translator", _args(dropout=False), "dropout must be a number"),
    Case("float too large", "translator", _args(length_penalty=1e300), "length_penalty must be a number"),
    Case("bool as int", "translator", _args(bidirectional=1), "bidirectional must be true or false; got 1"),
    Case("bool as text", "translator", _args(bidirectional="false"), "bidirectional must be true or false"),
    Case("choice unknown", "translator", _args(cell="rnn"), "cell must be one of 'lstm', 'gru'; got 'rnn'"),
    Case("choice a list", "translator", _args(score=["dot"]), "score must be one of"),
    Case("choice endless", "translator", _args(score="x" * 90_000), "score must be one of"),
    Case("text as number", "captioner", _args(backbone=3), "backbone must be text"),
    Case(
        "optional as text", "captioner", _args(encoder_epoch="0"),
        "encoder_epoch must be a whole number up to 2,147,483,647 or null",
    ),
    Case("size negative", "translator", _args(hidden_size=-4), "cannot be built with these arguments"),
    Case("size 0", "translator", _args(embedding_size=0), "embedding_size must be at least 1; got 0"),
    Case("size 0 of one part", "document", _args(attention_size=0), "attention_size must be at least 1; got 0"),
    Case("size odd", "translator", _args(hidden_size=7), "hidden_size must be even"),
    Case("size of another model", "translator", _args(hidden_size=10), "has shape"),
    Case("size a million", "translator", _args(hidden_size=10**6), "does not match LuongNMT"),
    Case("size two billion", "translator", _args(hidden_size=2**31 - 2), "cannot be built with these arguments"),
    Case("vocabulary a billion", "translator", _args(tgt_vocab_size=10**9), "does not match LuongNMT"),
    Case("vocabulary a billion, empty rows", "classifier", _args(vocab_size=10**9, embedding_size=0), "embedding_size must be at least 1; got 0"),
    Case("vocabulary 0", "translator", _args(src_vocab_size=0), "cannot be built with these arguments"),
    Case("vocabularies unlike", "translator", _args(shared_vocab=True), "shared_vocab needs equal vocabulary sizes"),
    Case("hops a billion", "classifier", _args(hops=10**9, attention_size=0), "attention_size must be at least 1; got 0"),
    Case("units a billion", "classifier", _args(row_units=10**9, column_units=10**9), "does not match StructuredSelfAttention"),
    Case("classes a hundred million", "classifier", _args(num_classes=10**8), "classifier.weight has shape"),
    Case("layers a billion", "translator", _args(encoder_layers=10**9), "more than 2,000 tensors"),
    Case("layers of documents a billion", "document", _args(word_layers=10**9), "more than 2,000 tensors"),
    Case("layers 0", "translator", _args(encoder_layers=0), "encoder_layers must be at least 1; got 0"),
    Case("layers negative", "translator", _args(decoder_layers=-1), "decoder_layers must be at least 1; got -1"),
    Case("window 0", "translator", _args(window=0), "window must be at least 1; got 0"),
    Case("dropout 1", "translator", _args(dropout=1.0), "dropout must be in [0, 1); got 1.0"),
    Case("dropout negative", "document", _args(word_dropout=-0.5), "word_dropout must be in [0, 1)"),
    Case("label smoothing 2", "captioner", _args(label_smoothing=2.0), "label_smoothing must be in [0, 1)"),
    Case("beam a million", "translator", _args(beam_size=10**6), "beam_size must be from 1 to 100; got 1,000,000"),
    Case("beam 0", "captioner", _args(beam_size=0), "beam_size must be at least 1; got 0"),
    Case("length penalty 400", "translator", _args(length_penalty=400.0), "length_penalty must be from -10 to 10"),
    Case("score without its attention", "translator", _args(score="location", attention="local_p"), "works only with attention 'global'"),
    Case("classes 1", "document", _args(num_classes=1), "num_classes must be at least 2"),
    Case("image a billion", "captioner", _args(image_size=10**9), "image_size must be at most 1,024 pixels"),
    Case("image 0", "captioner", _args(image_size=0), "image_size must be at least 1; got 0"),
    Case("image of too many positions", "captioner", _args(image_size=1024), "give 512 x 512 positions"),
    Case("image size of another model", "captioner", _args(image_size=8), "preprocessing.json has image_size 6, init_args 8"),
    Case("network unknown", "captioner", _args(backbone="resnet9000"), "backbone must be one of"),
    Case("network not a classifier", "captioner", _args(backbone="raft_large", layer="x"), "backbone must be one of"),
    Case("network another", "captioner", _args(backbone="resnet18", layer="layer4"), "does not match ShowAttendTell"),
    Case("layer unknown", "captioner", _args(layer="blocks.9"), "layer must be one of"),
    Case("layer another", "captioner", _args(layer="blocks.1", image_size=6), "does not match ShowAttendTell"),
    Case("samples 0", "captioner", _args(samples=0), "samples must be at least 1"),
    # the list of files
    Case("list without weights", "document", _unlist(WEIGHTS), "sha256 does not list model.safetensors"),
    Case("list without words", "document", _unlist(TOKENIZER), "next to the weights there must be tokenizer.json, labels.json"),
    Case("list without labels", "document", _unlist(LABELS), "next to the weights there must be"),
    Case("list without preprocessing", "captioner", _unlist(PIXELS), "next to the weights there must be"),
    Case(
        "list without the target words", "translator", _unlist(TGT),
        "next to the weights there must be tokenizer.src.json, tokenizer.tgt.json",
    ),
    Case("list with more", "document", _also("notes.txt", b"hello"), "the bundle lists labels.json, notes.txt, tokenizer.json"),
    Case("list with three tokenizers", "translator", _also(TOKENIZER, b"{}"), "next to the weights there must be tokenizer.json"),
    Case("list with code", "document", _also("modeling.py", b"import os"), "next to the weights there must be"),
    Case(
        "list with a pickle", "document", _also("model.pkl", pickle.dumps(_Malice(f"touch {MARK}"))), "model.pkl is not UTF-8 text",
        DAMAGED,
    ),
    Case("list with config.json", "document", _listed(CONFIG), "config.json is damaged or was changed", DAMAGED),
    Case("list with a missing file", "document", _listed("gone.json"), "is incomplete: gone.json missing", DAMAGED),
    Case("name upwards", "document", _listed("../../etc/passwd"), "'../../etc/passwd' is not a plain file name"),
    Case("name absolute", "document", _listed("/etc/passwd"), "'/etc/passwd' is not a plain file name"),
    Case("name of Windows", "document", _listed("C:\\boot.ini"), "is not a plain file name"),
    Case("name with a folder", "document", _listed("a/b.json"), "is not a plain file name"),
    Case("name ..", "document", _listed(".."), "'..' is not a plain file name"),
    Case("name empty", "document", _listed(""), "'' is not a plain file name"),
    Case("name of two lines", "document", _listed("a\nb"), r"'a\nb' is not a plain file name"),
    Case("name with a zero byte", "document", _listed("a\0"), r"'a\x00' is not a plain file name"),
    Case("name endless", "document", _listed("a" * 300), "is not a plain file name"),
    Case("hash short", "document", _listed("gone.json", "abc"), "sha256 of gone.json must be 64 hex digits; got 'abc'", DAMAGED),
    Case("hash a number", "document", _listed("gone.json", 3), "must be 64 hex digits; got 3", DAMAGED),
    Case(
        "hash another", "document", lambda f: _put(f, LABELS, b'["a", "b", "c"]'), "labels.json is damaged or was changed", DAMAGED,
        raw=True,
    ),
    # what is no file, or not there
    Case("weights missing", "document", _drop(WEIGHTS), "is incomplete: model.safetensors missing", DAMAGED),
    Case("words missing", "document", _drop(TOKENIZER), "is incomplete: tokenizer.json missing", DAMAGED),
    Case("config a folder", "document", _nothing, "config.json is not a regular file", place=_instead(CONFIG, Path.mkdir)),
    Case("weights a folder", "document", _nothing, "model.safetensors is not a regular file", place=_instead(WEIGHTS, Path.mkdir)),
    Case("words a folder", "document", _nothing, "tokenizer.json is not a regular file", place=_instead(TOKENIZER, Path.mkdir)),
    Case("config a pipe", "document", _nothing, "config.json is not a regular file", place=_instead(CONFIG, os.mkfifo)),
    Case("weights a pipe", "document", _nothing, "model.safetensors is not a regular file", place=_instead(WEIGHTS, os.mkfifo)),
    Case("labels a pipe", "document", _nothing, "labels.json is not a regular file", place=_instead(LABELS, os.mkfifo)),
    Case("words a socket", "document", _nothing, "tokenizer.json is not a regular file", place=_instead(TOKENIZER, _socket)),
    Case("config a link to /etc/passwd", "document", _nothing, "outside the folder", place=_link(CONFIG, "/etc/passwd")),
    Case("labels a link to /etc/passwd", "document", _nothing, "outside the folder", place=_link(LABELS, "/etc/passwd")),
    Case("weights a link to /dev/zero", "document", _nothing, "outside the folder", place=_link(WEIGHTS, "/dev/zero")),
    Case("words a link to a terminal", "document", _nothing, "outside the folder", place=_link(TOKENIZER, "/dev/ptmx")),
    Case("labels a link upwards", "document", _nothing, "outside the folder", place=_moved(LABELS)),
    Case("weights a link upwards", "document", _nothing, "outside the folder", place=_moved(WEIGHTS)),
    Case("weights a link to nothing", "document", _nothing, "incomplete: model.safetensors missing", DAMAGED, _link(WEIGHTS, "gone")),
    Case("weights a link to itself", "document", _nothing, "model.safetensors cannot be read", DAMAGED, _link(WEIGHTS, WEIGHTS)),
    Case("weights 8 GB of nothing", "document", _nothing, "model.safetensors is larger than", place=_sparse(WEIGHTS, 2**33)),
    Case("words 8 GB of nothing", "document", _nothing, "tokenizer.json is larger than 16 MB", place=_sparse(TOKENIZER, 2**33)),
    Case("config 8 GB of nothing", "document", _nothing, "config.json is larger than 16 MB", place=_sparse(CONFIG, 2**33)),
    # tensors
    Case("tensors changed", "document", lambda f: _put(f, WEIGHTS, f[WEIGHTS][:-1] + b"\1"), "damaged or was changed", DAMAGED, raw=True),
    Case("tensors empty", "document", _set(WEIGHTS, b""), "model.safetensors is damaged", DAMAGED),
    Case("tensors cut off", "document", lambda f: _put(f, WEIGHTS, f[WEIGHTS][:-4]), "model.safetensors is damaged", DAMAGED),
    Case("tensors with a tail", "document", lambda f: _put(f, WEIGHTS, f[WEIGHTS] + b"1234"), "model.safetensors is damaged", DAMAGED),
    Case("tensors a pickle", "document", _set(WEIGHTS, pickle.dumps(_Malice(f"touch {MARK}"))), "model.safetensors is damaged", DAMAGED),
    Case("tensors text", "document", _set(WEIGHTS, b"<html>404</html>" * 9), "model.safetensors is damaged", DAMAGED),
    Case("header of 2^62 bytes", "document", _length(2**62), "its header would be larger than 1 MB", DAMAGED),
    Case("header of 0 bytes", "document", _length(0), "model.safetensors is damaged", DAMAGED),
    Case("header not JSON", "document", lambda f: _put(f, WEIGHTS, f[WEIGHTS][:8] + b"!" + f[WEIGHTS][9:]), "is damaged", DAMAGED),
    Case("header with a hole", "document", _header(lambda h: h.pop("classifier.bias")), "model.safetensors is damaged", DAMAGED),
    Case("header with an overlap", "document", _header(lambda h: h["classifier.bias"].update(data_offsets=[4, 16])), "is damaged", DAMAGED),
    Case(
        "header beyond the end", "document", _header(lambda h: h["classifier.bias"].update(data_offsets=[2**40, 2**40 + 12])),
        "is damaged", DAMAGED,
    ),
    Case("header shape unlike its data", "document", _header(lambda h: h["classifier.bias"].update(shape=[10**9])), "is damaged", DAMAGED),
    Case("header shape negative", "document", _header(lambda h: h["classifier.bias"].update(shape=[-3])), "is damaged", DAMAGED),
    Case("header shape overflows", "document", _header(lambda h: h["classifier.bias"].update(shape=[2**63, 2])), "is damaged", DAMAGED),
    Case(
        "header type that clears the screen", "document", _header(lambda h: h["classifier.bias"].update(dtype="\x1b[2J")), "is damaged",
        DAMAGED,
    ),
    Case("header type unknown", "document", _header(lambda h: h["classifier.bias"].update(dtype="P32")), "is damaged", DAMAGED),
    Case(
        "header of 10,000 tensors", "document", _header(_many(10_000)),
        "does not match HAN: x0 is not in the model; x1 is not in the model; x10 is not in the model (and 9997 more)",
    ),
    Case("header of 2 MB", "document", _header(_many(20_000)), "model.safetensors is larger than 1.01 MB"),
    Case(
        "header of 2 MB, large model", "document", lambda f: (_args(vocab_size=10**6)(f), _header(_many(20_000))(f)),
        "its header would be larger than 1 MB", DAMAGED,
    ),
    Case("tensor missing", "document", _tensors(lambda t: t.pop("classifier.bias")), "classifier.bias is not in the file"),
    Case("tensor too many", "document", _tensors(lambda t: t.update(more=torch.zeros(2))), "more is not in the model"),
    Case(
        "tensor with an odd name", "document", _tensors(lambda t: t.update({"a\n\x1b[2J": torch.zeros(2)})),
        r"'a\n\x1b[2J' is not in the model",
    ),
    Case(
        "tensor renamed", "document", _tensors(lambda t: t.update({"classifier.Bias": t.pop("classifier.bias")})),
        "classifier.Bias is not in the model",
    ),
    Case(
        "tensor of another shape", "document", _tensors(lambda t: t.update({"classifier.bias": torch.zeros(4)})),
        "has shape (4,) in the file, (3,) in the model",
    ),
    Case(
        "tensor of more dimensions", "document", _tensors(lambda t: t.update({"classifier.bias": torch.zeros(1, 3)})),
        "has shape (1, 3) in the file",
    ),
    Case(
        "tensor transposed", "document", _tensors(lambda t: t.update({"classifier.weight": t["classifier.weight"].T.contiguous()})),
        "has shape (8, 3)",
    ),
    Case(
        "tensor of whole numbers", "document", _tensors(lambda t: t.update({"classifier.bias": torch.zeros(3, dtype=torch.int32)})),
        "has dtype torch.int32 in the file",
    ),
    Case(
        "tensor of bools", "document", _tensors(lambda t: t.update({"classifier.bias": torch.zeros(3, dtype=torch.bool)})),
        "has dtype torch.bool in the file",
    ),
    Case(
        "tensor of 8-bit floats", "document", _tensors(lambda t: t.update({"classifier.bias": torch.zeros(3).to(torch.float8_e4m3fn)})),
        "has dtype F8_E4M3 in the file",
    ),
    Case(
        "tensor of complex numbers", "document", _tensors(lambda t: t.update({"classifier.bias": torch.zeros(3, dtype=torch.complex64)})),
        "has dtype C64 in the file",
    ),
    Case(
        "tensor with NaN", "document", _tensors(lambda t: t["classifier.bias"].__setitem__(1, math.nan)),
        "classifier.bias holds NaN or infinite values",
    ),
    Case(
        "tensor with infinity", "document", _tensors(lambda t: t["embedding.weight"].__setitem__((3, 2), -math.inf)),
        "embedding.weight holds NaN",
    ),
    Case(
        "tensor infinite in fp32", "document",
        _tensors(lambda t: t.update({"classifier.bias": torch.full((3,), 1e300, dtype=torch.float64)})), "classifier.bias holds NaN",
    ),
    Case(
        "tensor tied and stored twice", "translator", _tied_twice,
        "embeddings.output.weight is the same tensor as embeddings.tgt_table.weight",
    ),
    # tokenizers
    Case("words not JSON", "document", _set(TOKENIZER, "words"), "tokenizer.json is not a tokenizer in JSON form"),
    Case("words empty", "document", _set(TOKENIZER, ""), "tokenizer.json is not a tokenizer in JSON form"),
    Case("words an object", "document", _set(TOKENIZER, "{}"), "tokenizer.json is not a tokenizer in JSON form"),
    Case("words a list", "document", _set(TOKENIZER, "[1, 2]"), "tokenizer.json is not a tokenizer in JSON form"),
    Case("words nested", "document", _set(TOKENIZER, '{"model": ' + "[" * 20_000 + "]" * 20_000 + "}"), "nested too deeply"),
    Case("words nested a little", "document", _tokenizer(post_processor=json.loads("[" * 600 + "]" * 600)), "is not a tokenizer"),
    Case("words of 90,000 characters", "document", _tokenizer(version="x" * 90_000), "characters are too many for 20 entries"),
    Case(
        "words WordPiece", "document", _json(TOKENIZER, lambda t: t["model"].update(type="WordPiece", max_input_chars_per_word=9)),
        "no kind of it has this model",
    ),
    Case(
        "words Unigram", "document", _json(TOKENIZER, lambda t: t.update(model={"type": "Unigram", "unk_id": 1, "vocab": [["a", 0]]})),
        "is not a tokenizer of this package",
    ),
    Case(
        "words with a slow pattern", "document", _tokenizer(normalizer={"type": "Sequence", "normalizers": [_BOMB]}),
        "no kind of it has this normalizer",
    ),
    Case(
        "words cut by a slow pattern", "document", _json(TOKENIZER, lambda t: t["pre_tokenizer"]["pattern"].update(Regex="(a+)+$")),
        "no kind of it has this pre_tokenizer",
    ),
    Case(
        "words padded to a billion", "document",
        _tokenizer(padding=_PADDING),
        "no kind of it has this padding",
    ),
    Case(
        "words cut to nothing", "document",
        _tokenizer(truncation={"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}),
        "no kind of it has this truncation",
    ),
    Case(
        "words with added tokens", "document",
        _tokenizer(added_tokens=[_ADDED]),
        "no kind of it has this added_tokens",
    ),
    Case(
        "words with a template", "document",
        _tokenizer(post_processor={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}),
        "no kind of it has this post_processor",
    ),
    Case(
        "words with dropout", "translator", _json(TGT, lambda t: t["model"].update(dropout=0.9)),
        "tokenizer.tgt.json is not a tokenizer of this package",
    ),
    Case("words decoded by a pattern", "translator", _json(TGT, lambda t: t.update(decoder=_BOMB)), "no kind of it has this decoder"),
    Case(
        "words of mixed kinds", "document", _json(TOKENIZER, lambda t: t.update(pre_tokenizer={"type": "WhitespaceSplit"})),
        "is not a tokenizer of this package",
    ),
    Case(
        "words more than the model's", "document", _vocab(lambda v: v.update({chr(9000 + n): len(v) + n for n in range(40)})),
        "at most 20 are allowed, the vocabulary of the model",
    ),
    Case(
        "source words more than the model's", "translator",
        _vocab(lambda v: v.update({chr(9000 + n): len(v) + n for n in range(40)}), SRC), "tokenizer.src.json has",
    ),
    Case(
        "words without the special ones", "document", _vocab(lambda v: {word: i for i, word in enumerate("a b c d e".split())}),
        "its first entries must be",
    ),
    Case("words none", "document", _vocab(lambda v: {}), "must be numbered 0, 1, 2"),
    Case("words with a gap", "document", _vocab(lambda v: v.update(snowman=10**6)), "must be numbered 0, 1, 2"),
    Case("words with one number twice", "document", _vocab(lambda v: v.update(snowman=5)), "must be numbered 0, 1, 2"),
    Case("words with a negative number", "document", _vocab(lambda v: v.update(snowman=-1)), "must be numbered 0, 1, 2"),
    Case("words numbered by text", "document", _vocab(lambda v: v.update(snowman="9")), "must be numbered 0, 1, 2"),
    Case("words numbered by floats", "document", _vocab(lambda v: {word: float(i) for word, i in v.items()}), "must be numbered 0, 1, 2"),
    Case("words a list of pairs", "document", _vocab(lambda v: [[word, [i]] for word, i in v.items()]), "must be numbered 0, 1, 2"),
    Case("words half a character", "document", _vocab(lambda v: v.update({"\udc00": len(v)})), "half of a surrogate pair"),
    Case(
        "words key twice", "document", lambda f: _put(f, TOKENIZER, f[TOKENIZER].replace(b'"vocab":{', b'"vocab":{"<pad >":0,')),
        "a key occurs twice",
    ),
    Case(
        "merges of unknown words", "translator", _json(TGT, lambda t: t["model"]["merges"].append(["snow", "man"])),
        "it merges ['snow', 'man'], but both parts and the whole must be entries",
    ),
    Case(
        "merges to an unknown word", "translator",
        _vocab(lambda v: {"snow" if word == "▁reads" else word: i for word, i in v.items()}, TGT), "it merges ['▁read', 's'], but",
    ),
    Case("merges of numbers", "translator", _json(TGT, lambda t: t["model"]["merges"].append([1, 2])), "it merges [1, 2], but"),
    Case("merges of one", "translator", _json(TGT, lambda t: t["model"]["merges"].append(["a"])), "it merges ['a'], but"),
    Case("merges a number", "translator", _json(TGT, lambda t: t["model"].update(merges=7)), "is not a tokenizer in JSON form"),
    *(
        Case(f"words of a {base}: {name}", base, spoil, says)
        for base in ("writer", "reader")
        for name, spoil, says in (
            ("not JSON", _set(TOKENIZER, "words"), "tokenizer.json is not a tokenizer in JSON form"),
            ("with labels", _also(LABELS, b'["a"]'), "there must be tokenizer.json; the bundle lists labels.json, tokenizer.json"),
            (
                "under another name", lambda f: (_unlist(TOKENIZER)(f), _also("words.json", f.pop(TOKENIZER))(f)),
                "there must be tokenizer.json; the bundle lists words.json",
            ),
            ("more than the model's", _vocab(lambda v: v.update({chr(9000 + n): len(v) + n for n in range(40)})), "at most 20 are allowed"),
            ("with a gap", _vocab(lambda v: v.update(snowman=10**6)), "must be numbered 0, 1, 2"),
            ("with a slow pattern", _tokenizer(normalizer={"type": "Sequence", "normalizers": [_BOMB]}), "no kind of it has this normalizer"),
        )
    ),
    # labels
    Case("labels not JSON", "classifier", _set(LABELS, "bad\ngood"), "labels.json is not JSON"),
    Case("labels an object", "classifier", _set(LABELS, '{"bad": 0}'), "labels.json must be a list of texts"),
    Case("labels a text", "classifier", _set(LABELS, '"bad"'), "labels.json must be a list of texts"),
    Case("labels of numbers", "classifier", _set(LABELS, "[1, 2, 3]"), "labels.json must be a list of texts"),
    Case("labels nested", "classifier", _set(LABELS, '[["bad"], "good", "neither"]'), "labels.json must be a list of texts"),
    Case("labels deeply nested", "classifier", _set(LABELS, _NESTED), "labels.json is not JSON: it is nested too deeply"),
    Case("labels too few", "classifier", _set(LABELS, '["bad", "good"]'), "labels.json has 2 labels, the model 3 classes"),
    Case("labels none", "classifier", _set(LABELS, "[]"), "labels.json has 0 labels"),
    Case("labels too many", "document", _set(LABELS, '["a", "b", "c", "d"]'), "labels.json has 4 labels, the model 3 classes"),
    Case("labels twice", "document", _set(LABELS, '["a", "b", "a"]'), "labels.json has a label twice"),
    Case("labels that clear the screen", "document", _set(LABELS, r'["a", "b", "\u001b[2J"]'), "without control characters"),
    Case("labels NaN", "document", _set(LABELS, "[NaN]"), "NaN is not allowed"),
    Case("labels of 10 MB", "document", _set(LABELS, json.dumps(["x" * 10**7, "b", "c"])), "characters are too many"),
    # preprocessing
    Case("pixels not JSON", "captioner", _set(PIXELS, "size=6"), "not an image transform in JSON form"),
    Case("pixels a list", "captioner", _set(PIXELS, "[]"), "an image transform is a JSON object with size, resize, mean, std"),
    Case("pixels nested", "captioner", _set(PIXELS, _NESTED), "not an image transform in JSON form"),
    Case("pixels without a key", "captioner", _json(PIXELS, lambda p: p.pop("std") and None), "an image transform is a JSON object with"),
    Case("pixels with another key", "captioner", _json(PIXELS, lambda p: p.update(pad=3)), "got size, resize, mean, std, pad"),
    Case(
        "pixels of another size", "captioner", _json(PIXELS, lambda p: p.update(size=224)),
        "preprocessing.json has image_size 224, init_args 6",
    ),
    Case("pixels a million", "captioner", _json(PIXELS, lambda p: p.update(size=10**6)), "preprocessing.json has image_size 1000000"),
    Case("pixels a size of text", "captioner", _json(PIXELS, lambda p: p.update(size="6")), "size must be a whole number of pixels"),
    Case(
        "pixels resized otherwise", "captioner", _json(PIXELS, lambda p: p.update(resize="crop")),
        "preprocessing.json has resize 'crop', init_args 'squash'",
    ),
    Case("pixels resized unknown", "captioner", _json(PIXELS, lambda p: p.update(resize="pad")), "resize must be one of"),
    Case("pixels mean of two", "captioner", _json(PIXELS, lambda p: p.update(mean=[0.5, 0.5])), "mean must be three numbers"),
    Case("pixels mean of texts", "captioner", _json(PIXELS, lambda p: p.update(mean=["0", "0", "0"])), "mean must be three numbers"),
    Case("pixels mean huge", "captioner", _json(PIXELS, lambda p: p.update(mean=[1e30, 0, 0])), "mean must be three numbers"),
    Case("pixels std 0", "captioner", _json(PIXELS, lambda p: p.update(std=[1, 0, 1])), "std must be three positive numbers"),
    Case("pixels std negative", "captioner", _json(PIXELS, lambda p: p.update(std=[1, -1, 1])), "std must be three positive numbers"),
    Case("pixels std tiny", "captioner", _json(PIXELS, lambda p: p.update(std=[1, 1, 1e-300])), "std must be three positive numbers"),
    Case("pixels std bool", "captioner", _json(PIXELS, lambda p: p.update(std=[1, 1, True])), "std must be three positive numbers"),
    Case("pixels std NaN", "captioner", _json(PIXELS, lambda p: p.update(std=[1, 1, math.nan])), "NaN is not allowed"),
]  # fmt: skip


def enlarged() -> Iterator[tuple[str, Files]]:
    """Each class of the zoo with each of its whole numbers a billion, one after the other; hashes and digest fit."""
    for cls in model_classes():
        files, parameters = saved(cls(**cls.tiny)), inspect.signature(cls.__init__).parameters
        for name, parameter in parameters.items():
            if parameter.annotation in (int, int | None):
                spoilt = dict(files)
                _args(**{name: 10**9})(spoilt)
                yield f"{cls.__name__}: {name} a billion", seal(spoilt)


# ---- mutants ----

_INTERESTING = [
    None, True, False, 0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, 2**63, 10**6, 10**9, 10**30,
    0.0, -0.5, 0.5, 1.0, 1e-30, 1e9, 1e308, "", "8", "os.system", "zoo.models.luong.LuongNMT", "../x", "x" * 3000, "\ud83d\ude00",
    "dot", "gru", "local_p", "hard", "crop", "blocks.1", "conv_head", [], [1], [[]], {}, {"a": 1},
]  # fmt: skip


def mutants(good: dict[str, Files], seed: int) -> Iterator[tuple[str, bool, str, Files]]:
    """Endless random mutants: name of the bundle, whether hashes and digest fit, what was done, files."""
    rng = random.Random(seed)
    while True:
        base = rng.choice(list(good))
        files, done = dict(good[base]), []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            name = rng.choice(list(files))
            of_weights = (_bytes, _bytes_of_header, _values_of_header, _numbers)
            mutate = rng.choice(
                of_weights if name == WEIGHTS else (_bytes, _values, _arguments if name == CONFIG else _words)
            )
            files[name] = mutate(rng, files[name])
            done.append(f"{mutate.__name__[1:]} of {name}")
        sealed = rng.random() < 0.8
        yield base, sealed, ", ".join(done), seal(files) if sealed else files


def bit_flips(good: dict[str, Files], seed: int) -> Iterator[tuple[str, str, Files]]:
    """Endless bundles with one bit changed, in proportion to the size of the files: name of the bundle, where,
    files.
    """
    rng = random.Random(seed)
    while True:
        base = rng.choice(list(good))
        name = rng.choices(list(good[base]), map(len, good[base].values()))[0]
        data = bytearray(good[base][name])
        where, bit = rng.randrange(len(data)), rng.randrange(8)
        data[where] ^= 1 << bit
        yield base, f"bit {bit} of byte {where} of {name}", good[base] | {name: bytes(data)}


def _bytes(rng: random.Random, data: bytes) -> bytes:
    """Flips, cuts off, inserts, removes or repeats bytes."""
    at = rng.randrange(len(data) + 1)
    size = rng.choice((1, 1, 2, 8, 100))
    some = rng.randbytes(size)
    kind = rng.randrange(6)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + some + data[at:]
    if kind == 2:
        return data[:at] + data[at + size :]
    if kind == 3:
        return data[:at] + data[max(0, at - size) :]
    if kind == 4:
        return data[:at] + some + data[at + size :]
    flipped = bytearray(data)
    for _ in range(size):
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _bytes_of_header(rng: random.Random, data: bytes) -> bytes:
    size = 8 + int.from_bytes(data[:8], "little")
    return _bytes(rng, data[:size]) + data[size:]


def _values_of_header(rng: random.Random, data: bytes) -> bytes:
    size = 8 + int.from_bytes(data[:8], "little")
    if not 8 < size < len(data):  # of a mutant
        return _bytes(rng, data)
    text = _values(rng, data[8:size])
    return struct.pack("<Q", len(text)) + text + data[size:]


def _numbers(rng: random.Random, data: bytes) -> bytes:
    """Changes numbers of the tensors, and nothing else."""
    size = 8 + int.from_bytes(data[:8], "little")
    if size > len(data) - 4:  # of a mutant
        return _bytes(rng, data)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 5, 200))):
        at = size + 4 * rng.randrange((len(data) - size) // 4)
        changed[at : at + 4] = struct.pack(
            "<f", rng.choice((0.0, -1.0, 30.0, 1e4, 1e-42, 3e38, -3e38, rng.gauss(0, 1)))
        )
    return bytes(changed)


def _arguments(rng: random.Random, data: bytes) -> bytes:
    """Changes one argument of the model to another value of its type."""
    try:
        config = json.loads(data)
        name, value = rng.choice(list(config["init_args"].items()))
    except (ValueError, LookupError, TypeError, AttributeError):  # of a mutant
        return _bytes(rng, data)
    if isinstance(value, bool):
        value = not value
    elif isinstance(value, int):
        value = rng.choice((0, 1, 2, 3, value + 1, value - 1, 2 * value, 64, 10**5, 2**31 - 1, -1))
    elif isinstance(value, float):
        value = rng.choice((0.0, 0.5, 1.0, -1.0, 2 * value, 1e-9, 1e9, 9.9))
    else:
        choices = ("gru", "lstm", "global", "local_m", "location", "concat", "hard", "sample", "crop", "blocks.2")
        value = rng.choice((None, 0, 3, 0.5, *choices))
    config["init_args"][name] = value
    return json.dumps(config).encode()


def _words(rng: random.Random, data: bytes) -> bytes:
    """Changes words of a tokenizer, or labels, so that the file stays of its form."""
    try:
        value = json.loads(data)
        words = value if isinstance(value, list) else dict(value["model"]["vocab"].items())
        old = rng.choice(list(words))
    except (ValueError, LookupError, TypeError, AttributeError):  # of a mutant, or no list of words
        return _values(rng, data)
    new = rng.choice(
        ("", " ", "the", "\u202e", "\0", "a" * 300, "</s >", "\u2581", "é", old, old + old, "▁Two", "\U0001f600")
    )
    if isinstance(value, list):
        value[value.index(old)] = new
    elif rng.random() < 0.3:
        value["model"]["vocab"] = words | {new: len(words)}
    else:
        value["model"]["vocab"] = {new if word == old else word: number for word, number in words.items()}
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode(errors="replace")


def _values(rng: random.Random, data: bytes) -> bytes:
    """Replaces, drops, adds, doubles or exchanges values of a JSON text."""
    try:
        root = [json.loads(data)]
    except ValueError:  # of a mutant
        return _bytes(rng, data)
    places = [(root, 0)]
    for parent, key in places:
        value = parent[key]
        places += [
            (value, k)
            for k in (value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ())
        ]
    (parent, key), (other, place) = rng.choice(places), rng.choice(places)
    kind = rng.randrange(6)
    if kind == 0 and parent is not root:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[rng.choice(["x", "", "sha256", "vocab", "a" * 300, "hidden_size", "dtype"])] = rng.choice(_INTERESTING)
    elif kind == 2:
        parent[key] = json.loads(json.dumps(other[place]))
    elif kind == 3 and isinstance(parent[key], (int, float)):
        parent[key] = parent[key] * rng.choice((-1, 2, 10, 1000, 0.5)) + rng.choice((-1, 0, 1))
    elif kind == 4 and isinstance(parent[key], str):
        parent[key] = "".join(rng.choice((c, c, c, c, c.upper(), "", "\0", "é", c + c)) for c in parent[key])
    else:
        parent[key] = rng.choice(_INTERESTING)
    return json.dumps(root[0]).encode(errors="replace")


def harm(model: Any, files: Files) -> str | None:
    """What is wrong with a model that came from a mutant with fitting hashes; None if it is what its files say, and
    nothing worse.

    Accepted are: weights of other finite values, other words, labels or settings inside their limits. What the model
    holds must be
    what the files say, and using it must give answers, or a ValueError, in `SECONDS` for each text or image.
    """
    config = json.loads(files[CONFIG])
    if {**model.config, **config["init_args"]} != model.config:
        return "the configuration is not that of config.json"
    state, tensors = model.state_dict(keep_vars=True), load(files[WEIGHTS])
    for name, stored in tensors.items():
        if not (state[name].isfinite().all() and torch.equal(state[name], stored.to(state[name].dtype))):
            return f"{name} is not what model.safetensors holds"
    if {id(t) for t in state.values()} != {id(state[name]) for name in tensors}:  # of tied tensors one is stored
        return "there are tensors that do not come from model.safetensors"
    for name, text in model.assets().items():
        if name == LABELS and json.loads(text) != json.loads(files[name]):
            return "the labels are not those of labels.json"
        if (
            name.startswith("tokenizer")
            and json.loads(text)["model"]["vocab"] != json.loads(files[name])["model"]["vocab"]
        ):
            return f"the words are not those of {name}"
    start = time.process_time()
    try:
        answers = use(model)
    except ValueError as error:
        answers = [str(error)] * 2
    if len(answers) != 2:
        return "there are not as many answers as questions"
    seconds = time.process_time() - start
    return f"two answers took {seconds:.1f} s" if seconds > 2 * SECONDS else None


def unusable(model: Any) -> str | None:
    """What keeps a model of any task from computing something in `SECONDS`, but for a ValueError."""
    start = time.process_time()
    try:
        model.golden()
    except (RuntimeError, MemoryError, ArithmeticError, LookupError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    except ValueError:
        pass
    seconds = time.process_time() - start
    return f"golden() took {seconds:.1f} s" if seconds > SECONDS else None


# ---- under limits ----

_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.putenv",
    "subprocess.Popen", "socket.connect", "socket.bind", "socket.getaddrinfo", "pickle.find_class", "shutil.rmtree", "urllib.Request",
)  # fmt: skip


class Guard:
    """Notes what a load must not do: start or reach anything, unpickle, or open a file outside its folder or for
    writing.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.seen: list[str] = []
        self._thread = threading.get_ident()
        sys.addaudithook(self._hook)  # cannot be removed

    def _hook(self, event: str, arguments: tuple) -> None:
        if self.folder is None or threading.get_ident() != self._thread:
            return
        if event in _FORBIDDEN:
            self.seen.append(f"{event}{arguments[:1]}")
        elif event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            writes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            ours = path.startswith(
                (str(self.folder.resolve()), "/proc", sys.prefix, sys.base_prefix, str(Path(zoo.__file__).parent))
            )
            if writes or not ours:
                self.seen.append(f"open {path}")


def high_water() -> int:
    """The most memory that this process has had, in bytes; since `reset_high_water`, where the system can forget it
    (Linux).
    """
    return peak_memory()


def reset_high_water() -> int:
    """Forgets the most memory of the process; returns what it has now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return high_water()


def limit_memory(more: int) -> None:
    """Makes every allocation fail that would let the address space grow by more than this many bytes."""
    import resource  # not on Windows

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(
        resource.RLIMIT_AS, (pages * resource.getpagesize() + more, resource.getrlimit(resource.RLIMIT_AS)[1])
    )


def attempt(folder: Path, guard: Guard | None = None) -> dict[str, Any]:
    """Loads a folder as `local-dir:`.

    Returns:
        `error` and `message` (None if it loads), `model`, `seconds` of CPU time, `bytes` of memory at most, `did` what
        is forbidden.
    """
    before, start, model, error = reset_high_water(), time.process_time(), None, None
    if guard:
        guard.folder, guard.seen = folder, []
    try:
        model = zoo.load(f"local-dir:{folder}")
    except zoo.BundleError as raised:
        error = raised
    finally:
        if guard:
            guard.folder = None
    found = {"error": type(error).__name__ if error else None, "message": str(error) if error else None, "model": model}
    return found | {
        "seconds": time.process_time() - start,
        "bytes": high_water() - before,
        "did": guard.seen if guard else [],
    }


def check_limits(guard: Guard, folder: Path) -> dict[str, Any]:
    """Does what must be noticed, and asks for too much memory, or the limits would prove nothing; says what was
    noticed.
    """
    guard.folder, refused = folder, False
    with open("/etc/passwd"), open(folder / "new", "w"):
        pickle.loads(pickle.dumps(_Malice("true")))
    guard.folder = None
    try:
        torch.zeros(MEMORY // 2)  # floats: twice the limit, as the heap may have some room left
    except RuntimeError:
        refused = True
    return {"did": guard.seen, "refused": refused}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mutants", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    good = bundles()
    for name, files in good.items():
        use(zoo.load(f"local-dir:{write(files, options.folder / name)}"))
    guard = Guard()
    limit_memory(MEMORY)
    print(json.dumps(check_limits(guard, options.folder)))
    for n, case in enumerate(CASES):
        result = attempt(case.write(good, options.folder / f"case{n}"), guard)
        print(json.dumps({"name": case.name, **result, "model": result["model"] is not None}))
    for name, files in enlarged():
        result = attempt(write(files, options.folder / "enlarged"), guard)
        wrong = unusable(result["model"]) if result["model"] is not None else None
        print(json.dumps({"name": name, **result, "model": result["model"] is not None, "harm": wrong}))
    for n, (base, sealed, done, files) in zip(range(options.mutants), mutants(good, options.seed)):
        result = attempt(write(files, options.folder / "mutant"), guard)
        model = result.pop("model")
        wrong = harm(model, files) if model is not None else None
        name = f"{n} {base} {'sealed' if sealed else 'raw'}: {done}"
        print(json.dumps({"name": name, **result, "model": model is not None, "harm": wrong}))


if __name__ == "__main__":
    main()
