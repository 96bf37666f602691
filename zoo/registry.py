"""The table of pretrained weights, and `load`, which turns one of its names into a model.

No other file knows the names. A name is `<architecture>.<dataset>[_<pair or size>]`; scores, licence and data
set of a weight are in its card, model_cards/<name>.md.
"""

import importlib
import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from zoo.bundles import hub, pins
from zoo.bundles.files import Bundle, FetchError, MisfitError, local_dir

if TYPE_CHECKING:  # importing torch here would make `zoo list` slow
    from zoo.tasks.base import ZooModule

BUNDLED = Path(__file__).parent / "weights"  # a clone has all weights here, the wheel those that pyproject.toml lists
PINS = Path(__file__).parent / "pins.json"  # where the others are fetched from; written by `zoo publish --all`
M = TypeVar("M", bound="ZooModule")
_REGISTERED: dict[str, type["ZooModule"]] = {}  # classes of users, by their dotted path


@dataclass(frozen=True)
class Entry:
    """One pretrained weight.

    Attributes:
        name: The name for `zoo.load`.
        sha256: Hash of its config.json (`zoo export` prints it), which names the class and the hashes of all other
            files.
    """

    name: str
    sha256: str

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"{self.name}: sha256 must be 64 hex digits; got '{self.sha256}'")


def _table(*entries: Entry) -> dict[str, Entry]:
    table: dict[str, Entry] = {}
    for entry in entries:
        if entry.name in table:
            raise ValueError(f"'{entry.name}' is in the registry twice")
        table[entry.name] = entry
    return table


TABLE: dict[str, Entry] = _table(
    Entry("attention_classifier_local_p.imdb", "98974d6914b45660a1eb49d90ab31c833af295bf12112c9c757738b32c5971e7"),
    Entry("attention_over_attention.cbtlike_cn", "76f3e18b05c68cb34bb7daca0c011e4809150c4d676cf71651bc7d54570f569b"),
    Entry("attention_over_attention.cbtlike_ne", "1bbe1e96c2cec1b025ddf443c64408cfeecd6399b796075db0e296af9ea571c2"),
    Entry("bahdanau.multi30k_en_de", "f167f17cbab3765f95a44883c6bf253a287c911debe9bb9fcc50a6dee563bc77"),
    Entry("han.imdb", "cf8ed6bc5d55f1869784d8fadb4a84950c8a72026ab6ff63be7704fedde40b69"),
    Entry("han.reuters", "b786506407176a4b33586c43ce3fee68258c63b4a53998ef3d08a20910ce1942"),
    Entry("key_value.multi30k_en_de", "5944e15b9d3378dcbb37cbeccef6a5964e7cb33b0b5f1c3c5b4773f8a6b65afc"),
    Entry("key_value_predict.ptb", "38335c4e5d2e524480d3d496c5b4cdadf4c21687bff283f11040ec30c3eb6a93"),
    Entry("luong_dot.dates", "7527d17f4580deba1d0330255ecf18383e8def0ac857c602192418d0db71db71"),
    Entry("luong_general.multi30k_de_en", "92162357913440fead86ee333d66876cc24290e0ae17ba6278b8a9b6405788ef"),
    Entry("luong_general.multi30k_en_de", "5185e51e94a13378e44efc2dc067278d045a6fec9b477c27ea3e5bc3bdad0d2a"),
    Entry("luong_general.tatoeba_de_en", "705cf5229dbd045a22559c79f0ac05371b9f89601753e88b10aad747abf3ba04"),
    Entry("luong_textbook.dates", "0d400abd65f156639ea1114c642a7e2f7a6e7822d21fff0f45d479afcdff4542"),
    Entry("show_attend_tell_hard.flickr8k", "6b71f1a6fca3f6cb6ec1406d055a14cc7b8d6372e0fd8988d121b3e9af4f4dbe"),
    Entry("show_attend_tell_soft.flickr8k", "6922ed6628fdac55b3a9ea82a839461ab96fecea41f3e182f8f344938799c08d"),
    Entry("structured_self_attention.imdb", "3d0878dae69d749a578d603a83c276b7a6548793c87fd266976dede68df830c9"),
    Entry("structured_self_attention.sick", "1d0e647890652bd9565ba6c8f9b8342b791bc8b59d6ecf85950c283ae718ec4e"),
    Entry("structured_self_attention.sst2", "2563a19f4d941d2284ced59cf1e345b1034b83bd7cc69d3e9c87b18c5781fb11"),
    Entry("structured_self_attention.trec6", "04a265210485c75968839609430761e1aba84f31acd5ae8b7f8603359b12a763"),
    Entry("transformer_tiny.multi30k_en_de", "777bd7c5217b1244391d2dc552a58d5104d576fa656634a3cfdf0a193be8aef5"),
    Entry("tutorial_location.tatoeba_fra_en", "4e6c2dd55241a716aaac6152830597993359cde145cc916644a509f2a309b0f4"),
)


def list_models(pattern: str = "*") -> list[str]:
    """The names that match a shell pattern, e.g. `"luong*"`, in natural order (size 2 before size 10)."""
    names = [name for name in TABLE if fnmatchcase(name, pattern)]
    return sorted(names, key=lambda name: [int(p) if p.isdecimal() else p for p in re.split(r"(\d+)", name)])


def entry(name: str) -> Entry:
    """The entry of a name.

    Raises:
        ValueError: Unknown name; the message lists the three nearest.
    """
    if name not in TABLE:
        raise unknown(name)
    return TABLE[name]


def is_bundled(name: str) -> bool:
    """Whether the weights of a name are in this installation, so that nothing need be fetched."""
    return (BUNDLED / name).is_dir()


def all_pins() -> dict[str, pins.Pin]:
    """Name -> where it is on the Hub, for the weights that were published.

    Raises:
        DamagedError: zoo/pins.json is not as `zoo publish --all` wrote it.
    """
    return pins.read(PINS, TABLE)


def pin(name: str) -> pins.Pin:
    """Where on the Hub a weight is that this installation lacks.

    Raises:
        DamagedError: zoo/pins.json is not as `zoo publish --all` wrote it.
        FetchError: The weight was not published.
    """
    found = all_pins().get(name)
    if found is None:
        raise nowhere([name])
    return found


def nowhere(names: Sequence[str]) -> FetchError:
    """The error for weights that are neither here nor on the Hub."""
    what = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} neither in this installation nor on the Hub yet"
    folder = names[0] if len(names) == 1 else "NAME"
    return FetchError(
        f"{what}; clone the repository of attention-zoo and `pip install -e .` there, or load "
        f"local-dir:CLONE/zoo/weights/{folder}"
    )


def unknown(name: str) -> ValueError:
    """The error for an unknown name, with the three nearest names."""
    nearest = get_close_matches(name, TABLE, n=3, cutoff=0)
    folder = f"; for the folder of that name: local-dir:{name}" if Path(name).is_dir() else ""
    return ValueError(f"unknown model '{name}'; nearest: {', '.join(nearest) or 'none, the registry is empty'}{folder}")


def load(name: str, overrides: dict[str, Any] | None = None) -> "ZooModule":
    """Loads a pretrained model, on the CPU and in eval mode, after checking every file.

    A weight that this installation lacks is fetched from the Hub at its pinned commit, once.

    Args:
        name: A name of `list_models()`, or `local-dir:PATH`, or `hf-hub:ORG/REPO@REVISION`.
        overrides: Arguments of the model to change, e.g. `{"dropout": 0.3}`. Modules that the class lists in `heads`
            are re-initialised where that changes their shape, with a warning; any other mismatch raises.

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
        golden: Also fetch the golden output, if the weight is on the Hub.

    Raises:
        BundleError: config.json is missing or damaged; for the Hub, any file; or the weight is nowhere to be had.
        ValueError: Unknown name.
    """
    if name.startswith("local-dir:"):
        return local_dir(name.removeprefix("local-dir:"))
    if name.startswith("hf-hub:"):
        return hub.download(*hub.split_source(name.removeprefix("hf-hub:")), _most_weights, golden=golden)
    found = entry(name)
    if not is_bundled(name):
        return hub.download(*pin(name), _most_weights, found.sha256, golden)
    bundle = Bundle(BUNDLED / name, found.sha256)
    if others := bundle.others():
        raise MisfitError(f"{bundle.folder} holds unexpected files: {', '.join(others)}")
    return bundle


def _most_weights(bundle: Bundle) -> int:
    """The size that model.safetensors may have, given the arguments in config.json."""
    from zoo.bundles.skeleton import most_bytes

    return most_bytes(model_class(bundle.class_path).without_memory(bundle))


def register(cls: type[M]) -> type[M]:
    """Makes a model class of your own known, so that its checkpoints and folders can be exported and loaded.

    Usable as a decorator. Without it only classes of `zoo.models` are ever built from a file.

    Args:
        cls: A subclass of a task's base class, e.g. `zoo.tasks.translation.TranslationModule`, at the top level of
            its module.

    Raises:
        ValueError: not such a class.
    """
    from zoo.tasks.base import ZooModule

    if not (isinstance(cls, type) and issubclass(cls, ZooModule)):
        raise ValueError(f"zoo.register takes a subclass of zoo.tasks.base.ZooModule; got {cls!r}")
    if "." in cls.__qualname__:
        raise ValueError(f"{cls.__qualname__} must be at the top level of its module, so that it can be found again")
    _REGISTERED[f"{cls.__module__}.{cls.__qualname__}"] = cls
    return cls


def model_class(class_path: str) -> type["ZooModule"]:
    """The class of a dotted path, which must lie in `zoo.models` or be registered: a downloaded file never chooses
    other code.
    """
    if class_path in _REGISTERED:
        return _REGISTERED[class_path]
    if not (class_path.startswith("zoo.models.") and re.fullmatch(r"[a-zA-Z0-9_.]{1,200}", class_path)):
        raise MisfitError(
            "class_path must lie in zoo.models, or be your own class, made known by zoo.register (command line: "
            f"--import MODULE); got {reprlib.repr(class_path)}"
        )
    module, _, name = class_path.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise MisfitError(f"this version of attention-zoo has no {class_path}") from error
    if not (isinstance(cls, type) and hasattr(cls, "from_pretrained") and cls.__module__ == module and name[0] != "_"):
        raise MisfitError(f"{class_path} is not a model")
    return cls
