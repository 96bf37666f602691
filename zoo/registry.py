"""The table of pretrained weights, and `load`, which turns one of its names into a model.

No other file knows the names. A name is `<architecture>.<dataset>[_<pair or size>]`; scores, licence and data
set of a weight are in its card, model_cards/<name>.md.
"""

import importlib
import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from zoo.bundles.files import HF_HUB, LOCAL_DIR, Bundle, FetchError, MisfitError, local_dir
from zoo.utils import strict_json
from zoo.utils.shipped import shipped
from zoo.utils.whole import require_whole

if TYPE_CHECKING:  # importing torch here would make `zoo list` slow
    from zoo.bundles.pins import Pin
    from zoo.tasks.base import ZooModule

MAX_CERTIFICATE = 200  # entries of a stored certificate
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
    Entry("attention_classifier_local_p.imdb", "e2795976b10e63a8c862605ea184a6d1fd8805fd1da44d46316e6c1cb8519f53"),
    Entry("attention_over_attention.cbtlike_cn", "f631a8b33ce4202f8830e3492e556507a597e850f2ddd3f3d5813c9bea82a8e8"),
    Entry("attention_over_attention.cbtlike_ne", "1439e7239203dd17102d300af3e688157d6165d7966528d65c71c73b22069da8"),
    Entry("bahdanau.multi30k_en_de", "b79f5c836a4f143225eef3fa9ee11d14b006cc770895eb01c1dd96fc26ea71f7"),
    Entry("han.imdb", "10eae1458b9f5ecae7d6689dec3b0de911c6460a13a6dc714e7352f868f9c38a"),
    Entry("han.reuters", "1636b06fec11f87024d58d4134b3ce801f90207a158d08730842d6e0287cd1d1"),
    Entry("key_value.multi30k_en_de", "3bb8ff6e3efae3f6c8af27542b0f4615d1aa4deccc23521dbd042e9285dfd137"),
    Entry("key_value_predict.ptb", "c0c4974faa800ad6ffa6f3d09a5a7c2ec7845ee4dac8cbc1e286c2b7bc537f30"),
    Entry("luong_concat_no_feed.multi30k_en_de", "f1d1fa982f8bd95680c0fe2193f3883224dfb1c6701438c884770dbff860eb81"),
    Entry("luong_dot.dates", "53f23d3e10f60820e050bf019cc9eec77e84e99fac97817431562e80cfc32d9d"),
    Entry("luong_dot_no_feed.multi30k_en_de", "b6b51f6f172e709f1786804a1d47d29d0e038e226a1b0aabe66049724301e6a8"),
    Entry("luong_general.multi30k_cs_en", "2b6fd8c962fb634f682664ebbe1e78890c70818435fec1a523d79c9954e13023"),
    Entry("luong_general.multi30k_de_en", "d653c3e1fd9e07474c892328c262bd107db5421f44e12f6a3e7442a08b518ea8"),
    Entry("luong_general.multi30k_de_fr", "26a8232d64de1f3188d8fa9513a542da24b8585377b02e3faafc8d86aa05aa76"),
    Entry("luong_general.multi30k_en_cs", "f8e3dd9084a39d983cdf623a8649b73aef235b2b6f603ec1a2b0e70291fa76fc"),
    Entry("luong_general.multi30k_en_de", "be3999ca5246271960020a1f3a5e1bed4789141b2d2142e10bf1e162cde1253b"),
    Entry("luong_general.multi30k_en_fr", "ecd5b33e4bf1c6b16fb3ab3f20a50dcb6165d51b66fb7b6532ce40fb5c353267"),
    Entry("luong_general.multi30k_fr_de", "64caf9e74566ae4431524e9a7a2cde96e15a25a9ae75c62d645277f49fd7fb62"),
    Entry("luong_general.multi30k_fr_en", "b38dc29568f97c5a36dd016341fef0f3bb3d688023920edbeb8128bb2ebf142b"),
    Entry("luong_general.tatoeba_de_en", "5999f1021dde37d39ee213eda64d1b5165117191ee126b29866ef74e4bef3f06"),
    Entry("luong_local_m_no_feed.multi30k_en_de", "b0a62518f73280a1ddd9ab83f9b77e2756bcab9c1ded0cbb072a4a2d3e382edc"),
    Entry("luong_local_p_no_feed.multi30k_en_de", "eb1c1ea8bad084cbb3f278343cb7a13d7e046ceb26b42d398968e278077a0467"),
    Entry("luong_location_no_feed.multi30k_en_de", "a7925478943088f80d4eefae3b28aea323f8a17506eb30528a5ffaf7f341d08c"),
    Entry(
        "luong_scaled_dot_no_feed.multi30k_en_de", "8ddea7ba07229ff23597f33c8584d876c5b252bf1d845fa5bb495deeaaf00523"
    ),
    Entry("luong_textbook.dates", "78e980dd427292ed928f27001f77ccfccf431866123ce27185b92e9902131a03"),
    Entry("seq2seq.multi30k_en_de", "b5e415ffe42db32d722fafd65c0054b8567cdce8e30412ac041aaa93ff353d64"),
    Entry("show_attend_tell_hard.flickr8k", "5dd9dbb05954850c1e0b4f9db5c439290f28d0562b9031c0561049d7797657cd"),
    Entry("show_attend_tell_hard_paper.flickr8k", "1158e93c7fd9312a9edc4b451452a78d966c80a4fd5fc27af4fa7a0a5fad59b8"),
    Entry("show_attend_tell_soft.flickr8k", "ddf281fddaa449c1b1f68abccea100e99a8f5349bea62531a66bcbffe4c450b9"),
    Entry("structured_self_attention.imdb", "b9e4026fc665c549202a28d03f114543e54afa8e58a8afa7380ec1fa5dafe9cc"),
    Entry("structured_self_attention.sick", "19684dbe7c8cefcc3ff6c31da9efe58738602fc5c38672d898109cdb3bca83c5"),
    Entry("structured_self_attention.sst2", "463a965809e3825a1213c89f6ab7d14274b82b4bef5367f4696fcf94cacd464a"),
    Entry("structured_self_attention.trec6", "d7ccf238c72b33407377a6d211394cce8bc0eb6afd6c6729e21b1d7af844f629"),
    Entry("transformer_128.multi30k_en_de", "3fba429fc186505f0d0586292b190b4d6b8b8f4aed4f34ed0d151f0547071b84"),
    Entry("transformer_tiny.multi30k_en_de", "ca2cbd7d494a14a58955b3a09aa36813dda41eed5186b377ac52543475baefee"),
    Entry("tutorial_location.tatoeba_fra_en", "65686b026adb3ab2d017b1df985c0e346b79dae1fa966a0bae2e863888a0c037"),
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


def all_pins() -> dict[str, "Pin"]:
    """Name -> where it is on the Hub, for the weights that were published.

    Raises:
        DamagedError: zoo/pins.json is not as `zoo publish --all` wrote it.
    """
    from zoo.bundles import pins  # late: a weight that is here needs no network

    return pins.read(PINS, TABLE)


def pin(name: str) -> "Pin":
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
    from difflib import get_close_matches  # late: only mistakes need it

    from zoo.utils.shell import command_line

    nearest = get_close_matches(name, TABLE, n=3, cutoff=0)
    folder = f"; for the folder of that name: {command_line([LOCAL_DIR + name])}" if Path(name).is_dir() else ""
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
        TypeError: The name is no string.
    """
    require_whole("zoo.load")
    bundle = open_bundle(name)
    model = model_class(bundle.class_path).from_pretrained(bundle, overrides)
    if name in TABLE and not model.overridden:
        model.explains = measured(name)
    return model


def measured(name: str) -> str | None:
    """What the stored certificate of a shipped weight says, for pictures; None if there is none."""
    file = certificate_file(name)
    if not file.is_file():
        return None
    verdict = strict_json.loads(file.read_text(encoding="utf-8"), MAX_CERTIFICATE)["verdict"]
    return f"may be read as an explanation: {verdict} (zoo explain {name})"


def certificate_file(name: str) -> Path:
    """Where the certificate of a shipped weight is stored, next to its card."""
    return shipped("model_cards") / f"{name}.certificate.json"


def open_bundle(name: str, golden: bool = False) -> Bundle:
    """The verified files of a weight.

    Args:
        name: As for `load`.
        golden: Also fetch the golden output, if the weight is on the Hub.

    Raises:
        BundleError: config.json is missing or damaged; for the Hub, any file; or the weight is nowhere to be had.
        ValueError: Unknown name.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"a model is loaded by a name of zoo.list_models(), 'local-dir:FOLDER' or 'hf-hub:ORG/REPO@REVISION'; "
            f"got {name!r}"
        )
    if name.startswith(LOCAL_DIR):
        return local_dir(name.removeprefix(LOCAL_DIR))
    from zoo.bundles import hub  # late: see `all_pins`

    if name.startswith(HF_HUB):
        return hub.download(*hub.split_source(name.removeprefix(HF_HUB)), _most_weights, golden=golden)
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
    if class_path.startswith("__main__."):
        raise MisfitError(
            f"class_path {reprlib.repr(class_path)} is a class of a notebook or script: run the cell that defines and "
            "registers it first; for the command line put the class into a module of its own, and save the model again"
        )
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
