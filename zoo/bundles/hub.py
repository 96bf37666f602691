"""The Hugging Face Hub: bundles are fetched from it and published to it.

The only file of the project that asks the network for something; how long it waits is in zoo/bundles/waiting.py.
Nothing larger than allowed is fetched. It does not import torch, so that `zoo list` stays fast.
"""

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from zoo.bundles.files import (
    CONFIG,
    GOLDEN,
    MANIFEST,
    MAX_ARGUMENTS,
    MAX_TEXT_BYTES,
    README,
    SUFFIXES,
    WEIGHTS,
    Bundle,
    BundleError,
    DamagedError,
    FetchError,
    MisfitError,
    read_text,
)
from zoo.bundles.waiting import TooLargeError, Transfer, UnreachableError, Watched, ask, explained
from zoo.utils import strict_json

_COMMIT = re.compile("[0-9a-f]{40}")

log = logging.getLogger(__name__)


# ---- fetching ----


def download(
    repo_id: str, revision: str, most_weights: Callable[[Bundle], int], sha256: str | None = None, golden: bool = False
) -> Bundle:
    """A bundle of the Hub at one revision, from the local cache if possible; all its files are verified.

    A full commit id in the cache needs no network. Each file is checked against config.json and, if there is one,
    manifest.json; a damaged file is fetched once more.

    Args:
        repo_id: `ORG/REPO`.
        revision: Commit id, tag or branch.
        most_weights: Maximum size of model.safetensors in bytes, from config.json; a larger one is not fetched.
        sha256: Required hash of config.json.
        golden: Also fetch golden.safetensors if it is listed.

    Raises:
        FetchError: The Hub cannot be reached, or refuses.
        DamagedError: A file is still damaged.
        MisfitError: The repository holds other or too large files.
    """
    folder = _fetch(repo_id, revision, {CONFIG: MAX_TEXT_BYTES, MANIFEST: MAX_TEXT_BYTES})
    bundle = _verified(repo_id, folder, {}, sha256)
    names = [name for name in bundle.sha256 if golden or name != GOLDEN]
    if others := sorted(name for name in names if not name.endswith(SUFFIXES)):
        raise MisfitError(
            f"{repo_id} at revision {revision}: file names must end in {', '.join(SUFFIXES)}; got {', '.join(others)}"
        )
    limits = dict.fromkeys(names, MAX_TEXT_BYTES) | {WEIGHTS: most_weights(bundle)}
    folder = _fetch(repo_id, folder.name, limits)
    return _verified(repo_id, folder, limits, sha256, bundle)


def _fetch(repo_id: str, revision: str, limits: Mapping[str, int]) -> Path:
    """The folder of a revision in the cache, with the named files; manifest.json only if the repository has one.

    Args:
        repo_id: `ORG/REPO`.
        revision: Commit id, tag or branch.
        limits: File name -> maximum number of bytes.
    """
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    what = f"{repo_id} at revision {revision}"

    def missing(folder: Path) -> list[str]:
        return [name for name in limits if name != MANIFEST and not (folder / name).is_file()]

    def cached() -> Path | None:
        try:
            folder = Path(
                snapshot_download(repo_id, revision=revision, allow_patterns=[*limits], local_files_only=True)
            )
        except LocalEntryNotFoundError:
            return None
        return None if missing(folder) else folder

    folder = cached() if constants.HF_HUB_OFFLINE or _COMMIT.fullmatch(revision) else None
    if folder is None and constants.HF_HUB_OFFLINE:
        raise UnreachableError(
            f"{what} is not in the cache and HF_HUB_OFFLINE is set; unset it, or load a folder with local-dir:PATH"
        )
    if folder is None:
        try:
            with explained(f"cannot fetch {what} from the Hugging Face Hub", repo_id, revision):
                info = ask(partial(HfApi().model_info, repo_id, revision=revision, files_metadata=True))
                sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
                if absent := sorted(limits.keys() - sizes.keys() - {MANIFEST}):
                    raise MisfitError(f"{what} is not a repository of this package: it has no {', '.join(absent)}")
                for name, most in limits.items():
                    if sizes.get(name, 0) > most:
                        raise _too_large(f"{what}: {name}", most)
                first, *others = sorted(limits.keys() & sizes.keys())  # config.json comes before manifest.json
                folder = _fetched(repo_id, first, revision, limits[first]).parent
                for name in others:
                    _fetched(repo_id, name, folder.name, limits[name])  # of the commit that a branch was at first
        except UnreachableError as error:
            folder = cached()
            if folder is None:
                raise
            log.warning("%s; using commit %s of the cache", error, folder.name)
    # of the repository, of all
    blobs = [(parent / "blobs").resolve() for parent in (folder.parents[1], folder.parents[2])]
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink() and not any(path.resolve().is_relative_to(root) for root in blobs):
            raise DamagedError(f"{path} is a link to {path.resolve()}, outside the cache; delete it and load again")
    return folder


def read_card(repo_id: str, revision: str) -> str | None:
    """README.md of a repository at one revision; None if it has none, or the Hub cannot be asked.

    Args:
        repo_id: `ORG/REPO`.
        revision: Commit id, tag or branch.

    Raises:
        BundleError: It is too large, or not text.
    """
    try:
        with explained(f"cannot read {README} of {repo_id}", repo_id, revision):
            file = _fetched(repo_id, README, revision, MAX_TEXT_BYTES)
    except FetchError:
        return None
    return read_text(file.parent, README)


def _fetched(repo_id: str, name: str, revision: str, most: int, **options: Any) -> Path:
    """One file of a repository, in the cache.

    Args:
        repo_id: `ORG/REPO`.
        name: File name.
        revision: Commit id, tag or branch.
        most: Maximum number of bytes, whatever size the Hub states.
        options: Options of `hf_hub_download`.
    """
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.utils import tqdm

    cache = Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=repo_id, repo_type="model"))
    transfer = Transfer(most, cache / "blobs")

    class Bar(tqdm):
        """Reports to the transfer how many bytes arrived."""

        def update(self, n: float | None = 1) -> bool | None:
            transfer.moved(int(n or 0))
            return super().update(n)

    try:
        return Path(transfer.run(partial(hf_hub_download, repo_id, name, revision=revision, tqdm_class=Bar, **options)))
    except TooLargeError:
        raise _too_large(f"{repo_id} at revision {revision}: {name}", most) from None


def _too_large(what: str, most: int) -> MisfitError:
    return MisfitError(f"{what} is larger than {most / 2**20:,.3g} MB, the limit")


def _verified(
    repo_id: str, folder: Path, limits: Mapping[str, int], sha256: str | None, bundle: Bundle | None = None
) -> Bundle:
    """The bundle of a commit in the cache, with the named files read; damaged files are fetched once more.

    Args:
        repo_id: `ORG/REPO`.
        folder: Folder of the commit.
        limits: File name -> maximum number of bytes.
        sha256: Required hash of config.json.
        bundle: The same bundle, if already opened.
    """
    from huggingface_hub import HfApi

    bundle, problems = _read(folder, limits, sha256, bundle)
    if bundle is not None and not problems:
        return bundle
    first = next(iter(problems.values()))
    log.warning("%s; fetching it again", first)
    try:
        with explained("it cannot be fetched again", repo_id, folder.name):
            ask(partial(HfApi().model_info, repo_id, revision=folder.name))
            for name in {*problems, CONFIG, *([MANIFEST] if os.path.lexists(folder / MANIFEST) else [])}:
                (folder / name).unlink(missing_ok=True)  # the client does not replace an existing file
                _fetched(repo_id, name, folder.name, limits.get(name, MAX_TEXT_BYTES), force_download=True)
    except FetchError as error:
        raise DamagedError(f"{first}; {error}; `hf cache rm model/{repo_id}` removes it from the cache") from error
    bundle, problems = _read(folder, limits, sha256)
    if bundle is None or problems:
        raise DamagedError(
            f"{next(iter(problems.values()))}; it was fetched twice, so the repository itself is damaged"
        )
    return bundle


def _read(
    folder: Path, limits: Mapping[str, int], sha256: str | None, bundle: Bundle | None = None
) -> tuple[Bundle | None, dict[str, DamagedError]]:
    """Opens a bundle and reads files of it; returns file name -> how it is damaged."""
    problems: dict[str, DamagedError] = {}
    name = MANIFEST
    try:
        hashes = read_manifest(folder)
        name = CONFIG
        bundle = bundle or Bundle(folder, sha256)
        want = hashes.get(CONFIG, bundle.config_sha256)
        if want != bundle.config_sha256:
            found = f"its sha256 is {bundle.config_sha256}, not {want} as {MANIFEST} says"
            raise DamagedError(f"{folder / CONFIG} is damaged or was changed: {found}")
    except DamagedError as error:
        return None, {name: error}
    for name, most in limits.items():
        try:
            bundle.read(name, most)
        except DamagedError as error:
            problems[name] = error
    return bundle, problems


def read_manifest(folder: Path) -> dict[str, str]:
    """File name -> sha256, from manifest.json; empty if there is none."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        files = strict_json.loads(read_text(folder, MANIFEST), MAX_ARGUMENTS)["files"]
        hashes: dict[str, str] = {name: file["sha256"] for name, file in files.items()}
        if not all(re.fullmatch("[0-9a-f]{64}", found) for found in hashes.values()):
            raise ValueError("no sha256")
        return hashes
    except BundleError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f'{path} must hold {{"files": {{name: {{"sha256": ..., "size": ...}}}}}}') from error


# ---- publishing ----


def check_name(repo_id: str) -> None:
    """Raises ValueError for the name of a repository that the Hub refuses; asks nobody."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(str(error)) from error


def check_login() -> None:
    """Raises FetchError if nobody could publish: there is no network, or no valid token."""
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        raise UnreachableError("cannot publish: HF_HUB_OFFLINE is set; unset it")
    with explained("cannot publish", "the owner"):
        ask(HfApi().whoami)


def open_repository(repo_id: str, private: bool, token: str | None) -> tuple[str, set[str]]:
    """Finds a model repository on the Hub, or creates it.

    Returns:
        The commit id of its main branch, and the names of the files there.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import RepositoryNotFoundError

    if constants.HF_HUB_OFFLINE:
        raise UnreachableError(f"cannot publish to {repo_id}: HF_HUB_OFFLINE is set; unset it")
    api = HfApi(token=token)
    with explained(f"cannot publish to {repo_id}", repo_id):
        try:
            info = ask(partial(api.model_info, repo_id))
        except RepositoryNotFoundError:
            ask(partial(api.create_repo, repo_id, private=private or None, exist_ok=True))
            info = ask(partial(api.model_info, repo_id))
    if private and not info.private:
        raise FetchError(
            f"{repo_id} exists and is public; make it private in its settings first, or publish without --private"
        )
    if info.sha is None:
        raise FetchError(f"cannot publish to {repo_id}: the Hub does not say which commit it is at; try again later")
    return info.sha, {file.rfilename for file in info.siblings or ()}


def read_remote(repo_id: str, revision: str, name: str, token: str | None) -> bytes:
    """The content of one file of a repository."""
    with explained(f"cannot read {name} of {repo_id}", repo_id):
        return _fetched(repo_id, name, revision, MAX_TEXT_BYTES, token=token).read_bytes()


def commit(
    repo_id: str, parent: str, files: Mapping[str, bytes], delete: Iterable[str], message: str, token: str | None
) -> str:
    """Publishes files in one commit on top of `parent`: all of them or none.

    Args:
        repo_id: `ORG/REPO`.
        parent: Commit id; if the main branch has changed, nothing is published.
        files: Name in the repository -> content.
        delete: Names to remove.
        message: One line.
        token: Hub token; None: that of `hf auth login` or HF_TOKEN.

    Returns:
        The new commit id; the current one if nothing changed.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api, transfer = HfApi(token=token), Transfer()
    with explained(f"cannot publish to {repo_id}", repo_id):
        there = _tree(api, repo_id, parent)
        changed = {name: content for name, content in files.items() if not _same(content, there.get(name))}
        operations = [CommitOperationAdd(name, Watched(content, transfer)) for name, content in changed.items()]
        operations += [CommitOperationDelete(name) for name in delete]
        if not operations:
            return parent
        call = partial(api.create_commit, repo_id, operations, commit_message=message, parent_commit=parent)
        done = transfer.run(call).oid
    with explained(f"published {repo_id} as commit {done}, but cannot check it", repo_id):
        there = _tree(api, repo_id, done)
    wrong = sorted(name for name, content in files.items() if not _same(content, there.get(name)))
    if wrong:
        raise FetchError(
            f"commit {done} of {repo_id} lacks or alters {', '.join(wrong)}; a .gitignore there may leave files out"
        )
    return done


def _tree(api: Any, repo_id: str, revision: str) -> dict[str, Any]:
    """Name -> what the Hub says of each file of a revision."""
    return {file.path: file for file in ask(lambda: [*api.list_repo_tree(repo_id, revision=revision, recursive=True)])}


def _same(data: bytes, remote: Any) -> bool:
    if remote is None or not hasattr(remote, "blob_id"):  # a folder
        return False
    if remote.lfs:
        return remote.lfs.sha256 == hashlib.sha256(data).hexdigest()
    return remote.blob_id == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # as git names it


def split_source(source: str) -> tuple[str, str]:
    """Splits `ORG/REPO@REVISION`."""
    match = re.fullmatch(r"(\w[\w.-]*/\w[\w.-]*)@(\w[\w./+-]*)", source)
    if not match or ".." in source:  # both become parts of a path in the cache
        raise ValueError(f"expected hf-hub:ORG/REPO@REVISION (a commit id, tag or branch); got 'hf-hub:{source}'")
    return match[1], match[2]
