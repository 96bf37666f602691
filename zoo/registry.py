"""The table of pretrained weights, and `load`, which turns one of its names into a model.

The only file that knows the names. A name is `<architecture>.<dataset>[_<pair or size>]`; scores, licence and data
set of a weight live in its card, model_cards/<name>.md.
"""

import importlib
import re
import reprlib
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.bundles import hub
from zoo.bundles.files import Bundle, MisfitError, local_dir

if TYPE_CHECKING:  # importing torch here would make `zoo list` slow
    from zoo.tasks.base import ZooModule

BUNDLED = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class Entry:
    """One pretrained weight.

    Attributes:
        name: What `zoo.load` is given.
        sha256: Hash of its config.json (`zoo export` prints it), which names the class and the hashes of all other
            files.
        repo_id: `ORG/REPO` on the Hugging Face Hub; None: bundled under zoo/weights/<name>/.
        revision: Full commit id in that repository.
    """

    name: str
    sha256: str
    repo_id: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"{self.name}: sha256 must be 64 hex digits; got '{self.sha256}'")
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
    Entry("attention_classifier_local_p.imdb", "653703e6ea194264b4040accfc1f2aada48decd6cf028098eecaef7c0b063b9d"),
    Entry("attention_over_attention.cbtlike_cn", "b618f4fe238a420036b6a8f480ce6164da4a8bb87c003613fd751cfd69168222"),
    Entry("attention_over_attention.cbtlike_ne", "e082ae54444448e4ee367ef7f432fa8323479b66aabd609128cd2d1bd41b8d23"),
    Entry("bahdanau.multi30k_en_de", "85f38c2980261c16d735a282869f81e974416c2362bd69f32ff8992e7998c026"),
    Entry("han.imdb", "aadbd5cb71608446a07599841823129449818369bef7f4fbdaaf57652e229678"),
    Entry("han.reuters", "f6c247730627bfaefe7a793cec60b86e239c48ef60848bcaaef97bf1f7aa8901"),
    Entry("key_value.multi30k_en_de", "a011eb917345fcd1385295998810ee7b88ab1e688fc65b9709243605ed497a20"),
    Entry("key_value_predict.ptb", "33002c75fdbb1ab1c163995822247fe73d24ef4b97f9f213e6fdf9e38f91ecc6"),
    Entry("luong_dot.dates", "dcab2210e831c5647c1bd1bb93135bca027953742c8c1d78288794cac488c761"),
    Entry("luong_general.multi30k_de_en", "a478219a192cc63e29770486fb2a147e5f2d77962e69818a02f9d4054dbf4f91"),
    Entry("luong_general.multi30k_en_de", "377fa17ba5a63d071e98335dd3801a70306929bd7c40b186d740882522aeea3c"),
    Entry("luong_general.tatoeba_de_en", "84f5f2fed1c9f3df8e3064b7924026d0a83b6eaeb02eb6918c2c732b9cba0fcd"),
    Entry("luong_textbook.dates", "2d56ef51ad17269a68358e75ee33824fe016e9acec4d04599734b63ffbfd7350"),
    Entry("show_attend_tell_hard.flickr8k", "2711fa455e5e56234fc33dc15765b1686da50456f5ebfc6360d845fd450a21bf"),
    Entry("show_attend_tell_soft.flickr8k", "4fc1129b6096eb064219074f3a0b66cf63a3ed8dd2d41ab6f428b3fc070a12fa"),
    Entry("structured_self_attention.imdb", "825e92dc023393d2d160bf67db32c30784a345ea1b21d1cba6267a6e69989d30"),
    Entry("structured_self_attention.sick", "a3d68b316ac0fc354b2b8cf781d60adc8f7a4c6a46a0857769120855a7db1677"),
    Entry("structured_self_attention.sst2", "609f0f7eedbf7cc6ef6d0021569460a3ec934481866cdeae5a946c875a44ad92"),
    Entry("structured_self_attention.trec6", "173ef6269175f34731377106b5b200eebb56ca1531f8e2077075aa993d1e3061"),
    Entry("transformer_tiny.multi30k_en_de", "0b8a2ccebe4733179332b98448763c42a1511eb6cae7d3efde75ba42286e6596"),
    Entry("tutorial_location.tatoeba_fra_en", "0451834ee176cc673e5466b857e62a504e55d555cc9638b2823b8a8a338eb760"),
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
        raise unknown(name)
    return TABLE[name]


def unknown(name: str) -> ValueError:
    """The error for a name that the table does not have; it says the three nearest."""
    nearest = get_close_matches(name, TABLE, n=3, cutoff=0)
    folder = f"; for the folder of that name: local-dir:{name}" if Path(name).is_dir() else ""
    return ValueError(f"unknown model '{name}'; nearest: {', '.join(nearest) or 'none, the registry is empty'}{folder}")


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
    bundle = open_bundle(name)
    return model_class(bundle.class_path).from_pretrained(bundle, overrides)


def open_bundle(name: str, golden: bool = False) -> Bundle:
    """The verified files of a weight.

    Args:
        name: As for `load`.
        golden: The golden output is wanted too, where it has to be fetched.

    Raises:
        BundleError: config.json is missing or damaged; of the Hub, any file.
        ValueError: Unknown name.
    """
    if name.startswith("local-dir:"):
        return local_dir(name.removeprefix("local-dir:"))
    if name.startswith("hf-hub:"):
        return hub.download(*hub.split_source(name.removeprefix("hf-hub:")), _most_weights, golden=golden)
    found = entry(name)
    if found.repo_id is not None:
        return hub.download(found.repo_id, found.revision, _most_weights, found.sha256, golden)
    bundle = Bundle(BUNDLED / name, found.sha256)
    if others := bundle.others():
        raise MisfitError(f"{bundle.folder} holds files that do not belong there: {', '.join(others)}")
    return bundle


def _most_weights(bundle: Bundle) -> int:
    """The size that model.safetensors may have, by the arguments that config.json gives its class."""
    from zoo.bundles.skeleton import most_bytes

    return most_bytes(model_class(bundle.class_path).without_memory(bundle))


def model_class(class_path: str) -> type["ZooModule"]:
    """The class of a dotted path, which must lie in `zoo.models`: a downloaded file never chooses other code."""
    if not (class_path.startswith("zoo.models.") and re.fullmatch(r"[a-zA-Z0-9_.]{1,200}", class_path)):
        raise MisfitError(f"class_path must lie in zoo.models; got {reprlib.repr(class_path)}")
    module, _, name = class_path.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise MisfitError(f"this version of attention-zoo has no {class_path}") from error
    if not (isinstance(cls, type) and hasattr(cls, "from_pretrained") and cls.__module__ == module and name[0] != "_"):
        raise MisfitError(f"{class_path} is not a model")
    return cls
