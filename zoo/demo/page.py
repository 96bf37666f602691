"""What the page is made of: its own files, the list of models, and the files of a model."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from zoo.demo.code import excerpts
from zoo.demo.wrapped import wrapped

SITE = Path(__file__).parent / "site"
INDEX = "models/index.json"
CARD = "card.md"  # beside the files of a model
MANIFEST = "onnx.json"  # of an export; `zoo.runtime.graphs` has more of it, and needs onnxruntime
FIRST = "luong_general.multi30k_en_de"  # what the page shows first
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True)
class Shown:
    """A model as the page lists it.

    Attributes:
        name: as in `zoo list`.
        task: as on its card.
        title: first line of its card.
        languages: ISO 639 codes, of a translator source and target.
        facts: what else the card tells: parameters, paper, licence and the main score.
        card: its text, in Markdown; empty for a model without a card.
    """

    name: str
    task: str
    title: str
    languages: list[str]
    facts: dict[str, Any] = field(default_factory=dict)
    card: str = ""

    @property
    def entry(self) -> dict[str, Any]:
        """What the list of models says; the page fetches the card when it is opened."""
        return {name: value for name, value in asdict(self).items() if name != "card"}


def index(models: Iterable[Shown], files: Mapping[str, Mapping[str, int]], scripts: bool) -> bytes:
    """models/index.json.

    Args:
        models: in the order in which the page offers them; it begins with the first one.
        files: bytes of the files of a model, by its name; a model that is not among them is not prepared yet.
        scripts: whether the page has to ask for FILE.js instead of FILE, see `zoo.demo.wrapped`.
    """
    entries = [{**model.entry, **_about(files.get(model.name))} for model in models]
    content = {
        "first": entries[0]["name"] if entries else FIRST,
        "scripts": scripts,
        "models": entries,
        "code": excerpts(),
    }
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def _about(files: Mapping[str, int] | None) -> dict[str, Any]:
    return {"ready": files is not None, "bytes": files and sum(files.values()), "files": list(files or ())}


def site_files() -> dict[str, Path]:
    """The page's own files by their path."""
    files = sorted(path for path in SITE.rglob("*") if path.is_file())
    return {path.relative_to(SITE).as_posix(): path for path in files}


def model_files(folder: Path) -> dict[str, Path]:
    """The files of an export that the page reads, by name."""
    about = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return {name: folder / name for name in (MANIFEST, *about["sha256"])}


def packed(path: str, content: bytes) -> bytes:
    """A file of the page, compressed, as a script; the same content gives the same bytes.

    By zopfli: what zlib leaves of weights in 8 bits is 0.5 % larger, which is more than a tokenizer.
    """
    import zopfli.gzip

    return wrapped(path, zopfli.gzip.compress(content, numiterations=1))  # more of them hardly gain
