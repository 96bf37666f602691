"""The Hugging Face Hub: bundles are fetched from it and published to it.

The only file of the project that uses the network. It does not import torch, so that `zoo list` stays fast. Every wait
is
bounded: a small request by PATIENCE in all, a transfer by STALL without progress; nothing larger than allowed is
    fetched.
"""

import hashlib
import io
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from zoo.bundles.files import (
    CONFIG,
    GOLDEN,
    MANIFEST,
    MAX_ARGUMENTS,
    MAX_TEXT_BYTES,
    SUFFIXES,
    WEIGHTS,
    Bundle,
    BundleError,
    DamagedError,
    FetchError,
    MisfitError,
    read_text,
)
from zoo.utils import strict_json

PATIENCE = 3.5  # seconds for a small request to the Hub
STALL = 10.0  # seconds within which a transfer must make progress,
LEAST = 10_000  # by so many bytes
_PASSING = (408, 429, 500, 502, 503, 504)  # temporary failures of the Hub itself
_COMMIT = re.compile("[0-9a-f]{40}")

T = TypeVar("T")
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
            with _explained(f"cannot fetch {what} from the Hugging Face Hub", repo_id, revision):
                info = _ask(partial(HfApi().model_info, repo_id, revision=revision, files_metadata=True))
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


def _fetched(repo_id: str, name: str, revision: str, most: int, **options: Any) -> Path:
    """One file of a repository, in the cache.

    Args:
        repo_id: `ORG/REPO`.
        name: File name.
        revision: Commit id, tag or branch.
        most: Maximum number of bytes, whatever size the Hub states.
        options: Options of `hf_hub_download`.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import tqdm

    transfer = _Transfer(most)

    class Bar(tqdm):
        """Reports to the transfer how many bytes arrived."""

        def update(self, n: float | None = 1) -> bool | None:
            transfer.moved(int(n or 0))
            return super().update(n)

    try:
        return Path(transfer.run(partial(hf_hub_download, repo_id, name, revision=revision, tqdm_class=Bar, **options)))
    except _TooLargeError:
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
        with _explained("it cannot be fetched again", repo_id, folder.name):
            _ask(partial(HfApi().model_info, repo_id, revision=folder.name))
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


# ---- the cache ----


@dataclass(frozen=True)
class Cached:
    """A bundle in the cache of the Hub client, which also holds what other programs fetched.

    Attributes:
        repo_id: `ORG/REPO`.
        revision: Full commit id.
        sizes: File -> bytes on the disk; commits of one repository share files.
    """

    repo_id: str
    revision: str
    sizes: Mapping[Path, int]

    @property
    def size(self) -> int:
        return sum(self.sizes.values())


def cache_folder() -> Path:
    """Where the Hub client keeps what it fetched."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def is_cached(repo_id: str, revision: str) -> bool:
    """Whether the files of a commit that `download` needs are in the cache; they are not verified."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(repo_id, CONFIG, revision=revision)
    if not isinstance(path, str):
        return False
    folder = Path(path).parent
    try:
        return all((folder / name).is_file() for name in Bundle(folder).sha256 if name != GOLDEN)
    except BundleError:
        return False


def cached_bundles(known: Collection[str] = ()) -> list[Cached]:
    """The weights of this package in the cache.

    Args:
        known: Repositories that are of this package even if their config.json is damaged.
    """
    found = [
        Cached(repo.repo_id, revision.commit_hash, {file.blob_path: file.size_on_disk for file in revision.files})
        for repo in _scanned()
        for revision in repo.revisions
        if repo.repo_type == "model" and (repo.repo_id in known or _is_ours(revision.snapshot_path))
    ]
    return sorted(found, key=lambda cached: (cached.repo_id, cached.revision))


def remove_cached(bundles: Collection[Cached]) -> int:
    """Removes bundles from the cache, and nothing else.

    Returns:
        How many bytes that frees: files that other commits share stay.
    """
    from huggingface_hub import scan_cache_dir

    if not bundles:
        return 0
    chosen = {(cached.repo_id, cached.revision) for cached in bundles}
    scanned, freed = scan_cache_dir(), 0
    for repo in scanned.repos:  # one by one: two repositories may have a commit of the same id
        revisions = [r.commit_hash for r in repo.revisions if (repo.repo_id, r.commit_hash) in chosen]
        if repo.repo_type == "model" and revisions:
            strategy = replace(scanned, repos=frozenset([repo])).delete_revisions(*revisions)
            strategy.execute()
            freed += strategy.expected_freed_size
    return freed


def _scanned() -> Collection[Any]:
    """The repositories in the cache; none if there is no cache yet."""
    from huggingface_hub import scan_cache_dir

    return scan_cache_dir().repos if cache_folder().is_dir() else ()


def _is_ours(folder: Path) -> bool:
    try:
        return Bundle(folder).class_path.startswith("zoo.models.")
    except BundleError:
        return False


# ---- publishing ----


def check_login(token: str | None = None) -> None:
    """Raises FetchError if nobody could publish: there is no network, or no valid token."""
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        raise UnreachableError("cannot publish: HF_HUB_OFFLINE is set; unset it")
    with _explained("cannot publish", "the owner"):
        _ask(HfApi(token=token).whoami)


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
    with _explained(f"cannot publish to {repo_id}", repo_id):
        try:
            info = _ask(partial(api.model_info, repo_id))
        except RepositoryNotFoundError:
            _ask(partial(api.create_repo, repo_id, private=private or None, exist_ok=True))
            info = _ask(partial(api.model_info, repo_id))
    if private and not info.private:
        raise FetchError(
            f"{repo_id} exists and is public; make it private in its settings first, or publish without --private"
        )
    if info.sha is None:
        raise FetchError(f"cannot publish to {repo_id}: the Hub does not say which commit it is at; try again later")
    return info.sha, {file.rfilename for file in info.siblings or ()}


def read_remote(repo_id: str, revision: str, name: str, token: str | None) -> bytes:
    """The content of one file of a repository."""
    with _explained(f"cannot read {name} of {repo_id}", repo_id):
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

    api, transfer = HfApi(token=token), _Transfer()
    with _explained(f"cannot publish to {repo_id}", repo_id):
        there = _tree(api, repo_id, parent)
        changed = {name: content for name, content in files.items() if not _same(content, there.get(name))}
        operations = [CommitOperationAdd(name, _Watched(content, transfer)) for name, content in changed.items()]
        operations += [CommitOperationDelete(name) for name in delete]
        if not operations:
            return parent
        call = partial(api.create_commit, repo_id, operations, commit_message=message, parent_commit=parent)
        done = transfer.run(call).oid
    with _explained(f"published {repo_id} as commit {done}, but cannot check it", repo_id):
        there = _tree(api, repo_id, done)
    wrong = sorted(name for name, content in files.items() if not _same(content, there.get(name)))
    if wrong:
        raise FetchError(
            f"commit {done} of {repo_id} lacks or alters {', '.join(wrong)}; a .gitignore there may leave files out"
        )
    return done


def _tree(api: Any, repo_id: str, revision: str) -> dict[str, Any]:
    """Name -> what the Hub says of each file of a revision."""
    return {file.path: file for file in _ask(lambda: [*api.list_repo_tree(repo_id, revision=revision, recursive=True)])}


def _same(data: bytes, remote: Any) -> bool:
    if remote is None or not hasattr(remote, "blob_id"):  # a folder
        return False
    if remote.lfs:
        return remote.lfs.sha256 == hashlib.sha256(data).hexdigest()
    return remote.blob_id == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # as git names it


# ---- timeouts ----


class UnreachableError(FetchError):
    """The Hub gives no answer, or only a temporary failure."""


class _TooLargeError(Exception):
    """More bytes arrived than allowed."""


class _Transfer:
    """A transfer that must make progress every STALL seconds.

    It runs in a thread, because the client of the Hub waits as long as a server asks for, and retries for minutes. Once
    given up, the thread ends at the next byte.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most, self.bytes, self.given_up = most, 0, False

    def moved(self, n: int) -> None:
        """Counts bytes; ends the transfer if there are too many, or nobody waits for it."""
        self.bytes += n
        if self.given_up:
            raise TimeoutError("given up")
        if self.most is not None and self.bytes > self.most:
            raise _TooLargeError

    def run(self, call: Callable[[], T]) -> T:
        """The result of the call.

        Raises:
            TimeoutError: It made no progress.
        """
        answer, stall = _started(call), _seconds("HF_HUB_DOWNLOAD_TIMEOUT", STALL)
        while True:
            before = self.bytes
            try:
                return answer.result(stall)
            except FutureTimeout:
                if answer.done():  # a timeout of the call itself
                    return answer.result()
                if self.bytes < before + LEAST:
                    self.given_up = True
                    raise TimeoutError(
                        f"no progress in {stall:g} s; on a slow connection set HF_HUB_DOWNLOAD_TIMEOUT to more seconds"
                    ) from None


class _Watched(io.BytesIO):
    """Content whose reading counts as progress of a transfer."""

    def __init__(self, content: bytes, transfer: _Transfer) -> None:
        super().__init__(content)
        self._transfer = transfer

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self._transfer.moved(len(content))
        return content


def _ask(call: Callable[[], T]) -> T:
    """A small request to the Hub, within PATIENCE seconds in all; repeated after temporary failures.

    In a thread, because otherwise neither a DNS lookup nor a host with many addresses can be bounded.
    """
    from huggingface_hub.errors import HfHubHTTPError

    patience = _seconds("HF_HUB_ETAG_TIMEOUT", PATIENCE)
    end = time.monotonic() + patience
    while True:
        answer = _started(call)
        try:
            return answer.result(end - time.monotonic())
        except FutureTimeout:
            if answer.done():
                return answer.result()
            raise TimeoutError(
                f"no answer in {patience:g} s; on a slow connection set HF_HUB_ETAG_TIMEOUT to more seconds"
            ) from None
        except HfHubHTTPError as error:
            if error.response.status_code not in _PASSING or time.monotonic() + 0.5 >= end:
                raise
        time.sleep(0.5)


def _seconds(name: str, default: float) -> float:
    """The Hub client's setting from the environment, or our own default."""
    from huggingface_hub import constants

    return getattr(constants, name) if name in os.environ else default


def _started(call: Callable[[], T]) -> Future[T]:
    answer: Future[T] = Future()
    Thread(target=_settle, args=(answer, call), daemon=True).start()
    return answer


def _settle(answer: Future, call: Callable[[], Any]) -> None:
    from huggingface_hub.errors import HFValidationError

    try:
        answer.set_result(call())
    except (ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
        if isinstance(error, (OSError, HFValidationError)):  # some are ValueErrors too
            answer.set_exception(error)
        else:  # the answer was not JSON, or malformed
            answer.set_exception(
                ConnectionError("the answer is not the Hub's; does this network require a login on a web page first?")
            )
    except BaseException as error:  # raised again in the waiting thread
        answer.set_exception(error)


@contextmanager
def _explained(doing: str, repo_id: str, revision: str | None = None) -> Iterator[None]:
    """Context: turns errors of the Hub client into one line: what was tried, why it failed, what to do.

    Args:
        doing: "cannot ...".
        repo_id: `ORG/REPO`.
        revision: The fetched revision; None while publishing.
    """
    from huggingface_hub import constants, errors

    # RuntimeError: from an upload; the base classes: from its HTTP library (httpx or httpx2, by version)
    bases = [base for base in errors.HfHubHTTPError.__bases__ if issubclass(base, Exception)]
    kinds = (OSError, RuntimeError, errors.HFValidationError, *bases)
    try:
        yield
    except kinds as raised:
        error = raised.__cause__ if isinstance(raised, RuntimeError) and raised.__cause__ else raised
        status = getattr(getattr(error, "response", None), "status_code", None)
        login = "log in with `hf auth login` or set HF_TOKEN"
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        message = getattr(error, "server_message", None)
        said = f" ({message})" if message else ""
        lasting = isinstance(error, (errors.HFValidationError, errors.LocalTokenNotFoundError))
        if isinstance(error, OSError) and error.errno and not isinstance(error, (ConnectionError, TimeoutError)):
            lasting = True  # a local problem, e.g. a full disk
        passing = status in _PASSING if status else not lasting
        if isinstance(error, errors.GatedRepoError):
            why = f"it is gated; ask for access at {constants.ENDPOINT}/{repo_id}, then {login}"
        elif isinstance(error, errors.RevisionNotFoundError):
            why = f"it has no revision {revision}; give a commit id, tag or branch that it has"
        elif isinstance(error, errors.RepositoryNotFoundError):
            unseen = "there is no such repository, or it is private and the token may not see it"
            why = f"{unseen}; check the name, and {login}"
        elif isinstance(error, errors.LocalTokenNotFoundError) or status == 401:
            why = f"the token is missing or not valid; {login}"
        elif status == 403:
            why = f"the token does not allow it{said}; use one that may write to {repo_id.split('/')[0]}"
        elif status == 412:
            why = "somebody changed it in the meantime, nothing was published; look at the change, then publish again"
        elif status:
            why = f"the Hub answered {status}{said or ' ' + first}; try again later"
        elif passing:
            hint = (
                "a copy on this machine can be loaded with local-dir:PATH" if revision else "publishing again is safe"
            )
            why = f"{constants.ENDPOINT} cannot be reached: {first}; check the network and HF_ENDPOINT ({hint})"
        else:
            why = first
        raise (UnreachableError if passing else FetchError)(f"{doing}: {' '.join(why.split())}") from raised


def split_source(source: str) -> tuple[str, str]:
    """Splits `ORG/REPO@REVISION`."""
    match = re.fullmatch(r"(\w[\w.-]*/\w[\w.-]*)@(\w[\w./+-]*)", source)
    if not match or ".." in source:  # both become parts of a path in the cache
        raise ValueError(f"expected hf-hub:ORG/REPO@REVISION (a commit id, tag or branch); got 'hf-hub:{source}'")
    return match[1], match[2]
