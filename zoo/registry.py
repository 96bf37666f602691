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
    from zoo.module import ZooModule

BUNDLED = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class Entry:
    """One pretrained weight.

    Attributes:
        name: What `zoo.load` is given.
        sha256: Hash of its config.json (`zoo export` prints it), which names the class and the hashes of all other files.
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
    Entry("attention_classifier_local_p.imdb", "986cdef695431e819581fa8e5d0d42a94250b89548725575529e122dc5dae267"),
    Entry("attention_over_attention.cbtlike_cn", "13c73bdeff83683ab3cdf898938855e90cef53a90dd71ad4c7d88c054a242c2a"),
    Entry("attention_over_attention.cbtlike_ne", "643cefba8e6013d36ab33df5e2131601e60c5331ae5b4fd8f1d9117e208006f7"),
    Entry("bahdanau.multi30k_en_de", "1f19e95ac0222e2ac0d373887321bb6ee8d3dd20f06ee62be3d463ae82a7cf89"),
    Entry("han.imdb", "103535283e72b7d7b60d8fe3a57258cc1d2cac3bb2d0c9e2be5525835c3e77a6"),
    Entry("han.reuters", "9e3b600738da58f528ed12f39e4020c5bbfc688a010f8c0c41b81fae5d1b9e19"),
    Entry("key_value.multi30k_en_de", "900f9b9e2714bb24248616c2dfc7cdb2ddce26bbacd975e8846aee3c2999fbd6"),
    Entry("key_value_predict.ptb", "33002c75fdbb1ab1c163995822247fe73d24ef4b97f9f213e6fdf9e38f91ecc6"),
    Entry("luong_dot.dates", "dcab2210e831c5647c1bd1bb93135bca027953742c8c1d78288794cac488c761"),
    Entry("luong_general.multi30k_de_en", "a7b18d2b2cfe1b612fb80b42a3da52924d30cc6d08bf447c29c30fc9d65dcda2"),
    Entry("luong_general.multi30k_en_de", "ab48cb5197fd7ecc8057ca89b839ee28b82db73fba4d264625043c6ac184e6a7"),
    Entry("luong_general.tatoeba_de_en", "afdae4b1ddfd4f5e0475defb2193ea88f2c9cabddf724beccdcbefbda38a37f9"),
    Entry("luong_textbook.dates", "2d56ef51ad17269a68358e75ee33824fe016e9acec4d04599734b63ffbfd7350"),
    Entry("show_attend_tell_hard.flickr8k", "2711fa455e5e56234fc33dc15765b1686da50456f5ebfc6360d845fd450a21bf"),
    Entry("show_attend_tell_soft.flickr8k", "4fc1129b6096eb064219074f3a0b66cf63a3ed8dd2d41ab6f428b3fc070a12fa"),
    Entry("structured_self_attention.imdb", "97c1879c84572456cd401d0f611f5b335b313006660a8f6ed5cfcec6dd665bbe"),
    Entry("structured_self_attention.sick", "0fa8181e7c2eee469b03c1e2b8de72bcd8c605e5a7976ab86a5189d5f88feae5"),
    Entry("structured_self_attention.sst2", "8279e0e3da92afa0ee676a0c8b72b7afee0aad7a2be45c520c012a393267e528"),
    Entry("structured_self_attention.trec6", "9d9e475671c95ccf72060caeac3db3b56f78ef390c3a3eccf171c29db83376dd"),
    Entry("transformer_tiny.multi30k_en_de", "2bc93b1fda7d3165dec3624e595a76361b7871b5cb2fd580540409e3a5dab69e"),
    Entry("tutorial_location.tatoeba_fra_en", "1774558145bc6c759f017c51d58e5be0ee5a083b105f3caf8a3b4691761bb750"),
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
