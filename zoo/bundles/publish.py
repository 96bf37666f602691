"""Publishing on the Hugging Face Hub: a verified bundle, its card in the Hub's format, and a list of hashes.

A repository holds, in one commit,

    config.json, model.safetensors, <assets>, golden.safetensors   the bundle, unchanged
    README.md, *.png                                               the card, and the pictures it shows
    .eval_results/<data set>.yaml                                  the scores of the card
    manifest.json                                                  {"files": {name: {"sha256": ..., "size": bytes}}}

Each file is read once, links are not followed, and the verified bytes are the ones uploaded.
The network is in zoo/bundles/hub.py.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zoo.bundles import hub
from zoo.bundles.card import LIBRARY, for_the_hub, generated_card, is_marked, marked, pictures, split_card, yaml_text
from zoo.bundles.files import (
    CONFIG,
    GOLDEN,
    MANIFEST,
    MAX_TEXT_BYTES,
    README,
    SUFFIXES,
    Bundle,
    MisfitError,
    local_dir,
    read_file,
    read_text,
)
from zoo.bundles.model import Model
from zoo.utils.version import __version__

RESULTS = ".eval_results"
GOLDEN_ATOL = 2e-3  # other processors sum in another order
_PICTURE_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")  # of PNG and JPEG files


@dataclass(frozen=True)
class Package:
    """The files to be published.

    Attributes:
        repo_id: `ORG/REPO`.
        name: Display name of the weight.
        files: Name in the repository -> content, without manifest.json, which depends on the final card.
        pictures: Names of the files that only the card uses.
    """

    repo_id: str
    name: str
    files: dict[str, bytes]
    pictures: frozenset[str] = frozenset()

    def table(self) -> str:
        """Name, size in bytes and the first 12 digits of the sha256 of each file, then the front matter of the card."""
        files = {**self.files, MANIFEST: _manifest(self.files)}
        rows = [("FILE", "BYTES", "SHA256")]
        rows += [
            (name, f"{len(data):,}", hashlib.sha256(data).hexdigest()[:12]) for name, data in sorted(files.items())
        ]
        rows.append(("total", f"{sum(map(len, files.values())):,}", ""))
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        lines = [f"{name:<{widths[0]}}  {size:>{widths[1]}}  {digest}".rstrip() for name, size, digest in rows]
        front = files[README].decode().split("\n---\n")[0]
        return "\n".join([*lines, "", f"{README} of {self.repo_id}:", front, "---"])


@dataclass(frozen=True)
class Published:
    """The result of `publish`.

    Attributes:
        repo_id: `ORG/REPO`.
        commit: Full id of the commit.
        kept_card: Whether an existing README.md, written by a person, was kept.
        changed: Whether there was anything to upload.
    """

    repo_id: str
    commit: str
    kept_card: bool
    changed: bool = True

    @property
    def source(self) -> str:
        """The argument with which `zoo.load` gets exactly these files."""
        return f"hf-hub:{self.repo_id}@{self.commit}"

    def __str__(self) -> str:
        kept = (
            f"kept the {README} of {self.repo_id}, which this package did not write; --replace-card replaces it\n"
            * self.kept_card
        )
        what = f"published {self.repo_id} as" if self.changed else f"nothing has changed since {self.repo_id}"
        return f'{what} commit {self.commit}\n{kept}zoo.load("{self.source}")'


# ---- collecting ----


def check_repo_id(repo_id: str) -> None:
    """Raises ValueError unless it is `ORG/REPO`, by the rules of the Hub too."""
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", repo_id):
        raise ValueError(f"the repository must be ORG/REPO, e.g. my-name/my-model; got '{repo_id}'")
    hub.check_name(repo_id)


def prepare(
    bundle: Bundle, cls: type[Model], repo_id: str, name: str | None = None, card: Path | None = None
) -> Package:
    """Collects and checks what is to be published; uses no network.

    Args:
        bundle: The weights.
        cls: Their class.
        repo_id: `ORG/REPO`.
        name: Name of a registered weight.
        card: Its card. If None, the folder's README.md, or a generated card.

    Raises:
        BundleError: The weights are damaged, do not load, or compute another output than when they were saved; or a
            file to be sent is a link out of its folder, or unreadable.
        ValueError: The folder has unexpected files or lacks a picture of its card, or `repo_id` or the card is invalid.
    """
    check_repo_id(repo_id)
    folder = bundle.folder
    own = card is None and os.path.lexists(folder / README)
    card = folder / README if own else card
    text: str | None = None
    shown: dict[str, bytes] = {}
    if card:
        text = read_text(card.parent, card.name)
        named = pictures(text)
        shown = {file: _picture(card.parent, file) for file in named if os.path.lexists(card.parent / file)}
        if own and (absent := sorted({*named} - {*shown})):
            raise ValueError(f"{card} shows {', '.join(absent)}, which {folder} lacks; add it, or remove its line")

    if others := sorted(set(bundle.others()) - {*shown, README, MANIFEST, GOLDEN}):
        raise ValueError(f"{folder} holds files that are not published: {', '.join(others)}; move them elsewhere")
    if others := sorted(file for file in bundle.sha256 if not file.endswith(SUFFIXES)):
        raise ValueError(f"{folder / CONFIG} lists files of a kind that is not published: {', '.join(others)}")

    model = cls.from_pretrained(bundle)
    check_golden(model, bundle)
    golden = bundle.golden()
    title = name or repo_id.split("/")[1]
    if text is None:
        loading = f'model = zoo.load("hf-hub:{repo_id}@main")  # better: a commit id instead of main'
        text = generated_card(model, loading, title)
    front, prose = split_card(text, card or "the card")
    front, results = for_the_hub(front, model, title)
    files = (
        {CONFIG: bundle.config}
        | {file: bundle.read(file) for file in bundle.sha256}
        | ({GOLDEN: golden} if golden else {})
    )
    files |= shown | {f"{RESULTS}/{file}": yaml_text(entries) for file, entries in results.items()}
    readme = f"---\n{yaml_text(front).decode()}---\n{prose}"
    files[README] = (readme if own else marked(readme, repo_id)).encode()
    return Package(repo_id, title, files, frozenset(shown))


def _picture(folder: Path, name: str) -> bytes:
    content = read_file(folder, name, MAX_TEXT_BYTES)
    if not content.startswith(_PICTURE_STARTS):
        raise MisfitError(f"{folder / name}, which the card shows, is not a PNG or JPEG picture")
    return content


def check_golden(model: Model, bundle: Bundle) -> None:
    """Raises `BundleError` unless the weights still compute the output that was saved with them."""
    from torch import allclose, equal

    from zoo.bundles.skeleton import at_fault
    from zoo.bundles.tensors import parse

    content, path = bundle.golden(), bundle.folder / GOLDEN
    if content is None:
        return
    with at_fault(path):
        golden = {key: stored.tensor() for key, stored in parse(content, path).items()}
    found = model.golden()

    def is_same(key: str) -> bool:
        want, got = golden.get(key), found.get(key)
        if want is None or got is None or want.shape != got.shape:
            return False
        return allclose(got, want, rtol=0, atol=GOLDEN_ATOL) if want.is_floating_point() else equal(got, want)

    for key in sorted(golden.keys() | found.keys()):
        if not is_same(key):
            raise MisfitError(
                f"{path}: the weights do not give the '{key}' that was saved with them; export them again"
            )


def _manifest(files: Mapping[str, bytes]) -> bytes:
    listed = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in sorted(files.items())
    }
    return (json.dumps({"files": listed}, indent=2, ensure_ascii=False) + "\n").encode()


# ---- sending ----


def publish(
    package: Package,
    *,
    private: bool = False,
    replace_card: bool = False,
    token: str | None = None,
    message: str | None = None,
) -> Published:
    """Uploads a package in one commit: a reader of the repository gets either all old or all new files.

    Args:
        package: From `prepare`.
        private: Create the repository as private.
        replace_card: Also replace a README.md that a person wrote.
        token: Hub token; by default that of `hf auth login` or HF_TOKEN.
        message: Commit message.

    Raises:
        FetchError: The Hub cannot be reached, refuses, or changed in the meantime; then nothing was published.
    """
    repo_id, files = package.repo_id, dict(package.files)
    parent, there = hub.open_repository(repo_id, private, token)
    card = hub.read_remote(repo_id, parent, README, token) if README in there else None
    kept = None if card is None or card == files[README] or is_marked(card) or replace_card else card
    shown = set() if kept is None else {*pictures(kept.decode(errors="replace"))}  # which stay as they are there
    if kept is not None:
        unused = package.pictures - (shown - there)
        files = {name: content for name, content in files.items() if name not in unused} | {README: kept}
    files[MANIFEST] = _manifest(files)
    stale = _of_manifest(hub.read_remote(repo_id, parent, MANIFEST, token)) if MANIFEST in there else set()
    stale = (stale & there) - files.keys() - shown
    message = message or f"{package.name}, by {LIBRARY} {__version__}"
    done = hub.commit(repo_id, parent, files, sorted(stale), message, token)
    return Published(repo_id, done, kept is not None, done != parent)


def _of_manifest(data: bytes) -> set[str]:
    """The names in a manifest.json; none if another program wrote it."""
    try:
        return set(json.loads(data)["files"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return set()


def push(
    model: Model,
    repo_id: str,
    *,
    private: bool = False,
    message: str | None = None,
    token: str | None = None,
    card: str | None = None,
) -> Published:
    """Saves a model and publishes it; see `ZooModule.push_to_hub`."""
    check_repo_id(repo_id)
    with tempfile.TemporaryDirectory() as parent:
        folder = model.save_pretrained(Path(parent) / "weights", golden=True)
        if card is not None:
            (folder / README).write_bytes(card.encode())
        package = prepare(local_dir(str(folder)), type(model), repo_id)
        return publish(package, private=private, replace_card=card is not None, token=token, message=message)
