"""The table of pretrained weights, and `load`, which turns one of its names into a model.

The only file that knows the names. A name is `<architecture>.<dataset>[_<pair or size>]`; scores, licence and data
set of a weight live in its card, model_cards/<name>.md.
"""

import importlib
import re
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from zoo import hub

if TYPE_CHECKING:  # importing torch here would make `zoo list` slow
    from zoo.module import ZooModule


@dataclass(frozen=True)
class Entry:
    """One pretrained weight.

    Attributes:
        name: What `zoo.load` is given.
        class_path: Dotted path of the model class, inside `zoo.models`.
        sha256: File name -> hash of each file (`hub.file_hashes` prints them); nothing unlisted is read.
        repo_id: `ORG/REPO` on the Hugging Face Hub; None: bundled under zoo/weights/<name>/.
        revision: Full commit id in that repository.
    """

    name: str
    class_path: str
    sha256: dict[str, str]
    repo_id: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        for file, digest in self.sha256.items():
            if not re.fullmatch("[0-9a-f]{64}", digest):
                raise ValueError(f"{self.name}: sha256 of {file} must be 64 hex digits; got '{digest}'")
        if self.repo_id is None and self.revision is not None:
            raise ValueError(f"{self.name}: a revision needs a repo_id")
        if self.repo_id is not None and not re.fullmatch("[0-9a-f]{40}", self.revision or ""):
            raise ValueError(f"{self.name}: revision must be a full commit id of 40 hex digits; got '{self.revision}'")


def _table(*entries: Entry) -> dict[str, Entry]:
    table: dict[str, Entry] = {}
    for entry in entries:
        if entry.name in table:
            raise ValueError(f"'{entry.name}' is in the registry twice")
        table[entry.name] = entry
    return table


TABLE: dict[str, Entry] = _table(
    Entry(
        "bahdanau.multi30k_en_de",
        "zoo.models.bahdanau.BahdanauNMT",
        {
            "config.json": "71128c9e00b0f2b2bdf0ecdeb5bb11096966b4ae9399f3b00c0c609e588d749f",
            "golden.safetensors": "699cd8417bfc046f09cd10a7167b9f11462f2e79da0db57f59a457d999488b5b",
            "model.safetensors": "9e688fb0986f1cfc8482fb55a7ca1f4d0421205305d96b8c705eb4aee74effb4",
            "tokenizer.json": "88bdce467cdfb1b6425ba35fc8f6f035a5659d34496ba0bd53f1e8c5b47a1fca",
        },
    ),
    Entry(
        "luong_dot.dates",
        "zoo.models.luong.LuongNMT",
        {
            "config.json": "67a3e36fbc01b8337c372a6afcc7fcb047c68d98859baa22656dc4f8d0436031",
            "golden.safetensors": "8706fcdbc70c96e727c39c2cbbab57fa4ffd460e93c47802e4c4093bfd31ed3d",
            "model.safetensors": "2a1ec2386acbf801ca0a447d6c74d56f981748523e7c540f4f78fea83e686bd1",
            "tokenizer.src.json": "81941175a3b06e95b08fafbbf1ca25ddf1cab409be9c9d7f239ff07681762409",
            "tokenizer.tgt.json": "9182bed047416d5c1ff8a52d357f1ad7247e4059b0fbec52a6f4a2a10cf16ada",
        },
    ),
    Entry(
        "luong_general.multi30k_de_en",
        "zoo.models.luong.LuongNMT",
        {
            "config.json": "64e16ce3d17d48c556c29b84d7d8cab40a9fc5279d0824cd11f888b0a70e3a4b",
            "golden.safetensors": "e405574c99613de52ef69e681d89401ac6157ea568bffd617cdfebff9db87f94",
            "model.safetensors": "1f88a8da25242af96180fe9b1a0e50166f2ed8a37efecaa89b42f0974ac3e78b",
            "tokenizer.json": "88bdce467cdfb1b6425ba35fc8f6f035a5659d34496ba0bd53f1e8c5b47a1fca",
        },
    ),
    Entry(
        "luong_general.multi30k_en_de",
        "zoo.models.luong.LuongNMT",
        {
            "config.json": "f39ede0f5f7d6469c1bd946a48e10428ec62fb74d38dc341380c3f067c685d1f",
            "golden.safetensors": "86aff99552449f52d610d8f6880a5a1631252d6a272c028d79a216ef0323f1c9",
            "model.safetensors": "8e6d64143000df7d74744cb7fd080c6f4d5756e45339a3b53e24f8640ad6c981",
            "tokenizer.json": "88bdce467cdfb1b6425ba35fc8f6f035a5659d34496ba0bd53f1e8c5b47a1fca",
        },
    ),
)


def list_models(pattern: str = "*") -> list[str]:
    """The names that match a shell pattern, e.g. `"luong*"`, in natural order (size 2 before size 10)."""
    names = [name for name in TABLE if fnmatchcase(name, pattern)]
    return sorted(names, key=lambda name: [int(p) if p.isdecimal() else p for p in re.split(r"(\d+)", name)])


def entry(name: str) -> Entry:
    """The entry of a name.

    Raises:
        ValueError: No such name; the message holds the three nearest.
    """
    if name not in TABLE:
        nearest = get_close_matches(name, TABLE, n=3, cutoff=0)
        raise ValueError(f"unknown model '{name}'; nearest: {', '.join(nearest) or 'none, the registry is empty'}")
    return TABLE[name]


def load(name: str, overrides: dict[str, Any] | None = None) -> "ZooModule":
    """Loads a pretrained model, on the CPU and in eval mode, after checking every file.

    Args:
        name: A name of `list_models()`, or `local-dir:PATH`, or `hf-hub:ORG/REPO@REVISION`.
        overrides: Arguments of the model to change, e.g. `{"dropout": 0.3}`. Modules that the class lists in `heads`
            are re-initialised where that changes their shape, with a warning; any other misfit raises.

    Raises:
        BundleError: The files are missing, damaged or do not fit the class.
        ValueError: Unknown name, or an override that the model does not have.
    """
    if name.startswith("local-dir:"):
        folder = hub.local_dir(name.removeprefix("local-dir:"))
        class_path = hub.read_config(folder)["class_path"]
    elif name.startswith("hf-hub:"):
        folder = hub.download(*hub.split_source(name.removeprefix("hf-hub:")))
        class_path = hub.read_config(folder)["class_path"]
    else:
        found = entry(name)
        class_path = found.class_path
        if found.repo_id is None:
            folder = hub.bundled(name, found.sha256)
        else:
            folder = hub.download(found.repo_id, found.revision, list(found.sha256))
            hub.verify(folder, found.sha256)
    return model_class(class_path).from_pretrained(folder, overrides)


def model_class(class_path: str) -> type["ZooModule"]:
    """The class of a dotted path, which must lie in `zoo.models`: a downloaded file never chooses other code."""
    module, _, name = class_path.rpartition(".")
    if not module.startswith("zoo.models."):
        raise hub.BundleError(f"class_path must lie in zoo.models; got '{class_path}'")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise hub.BundleError(f"this version of attention-zoo has no {class_path}") from error
    if not (isinstance(cls, type) and hasattr(cls, "from_pretrained")):
        raise hub.BundleError(f"{class_path} is not a model")
    return cls
