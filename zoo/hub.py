"""Where weights come from: a name or a prefixed source becomes a local folder whose files were checked.

The only file of the project that touches the network. Free of torch, so that `zoo list` stays quick.
"""

import hashlib
import json
import logging
import os
import re
import reprlib
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from zoo import strict_json

CONFIG, WEIGHTS, GOLDEN = "config.json", "model.safetensors", "golden.safetensors"
MANIFEST, README = "manifest.json", "README.md"  # only on the Hub
SUFFIXES = (".json", ".safetensors", ".txt")  # of all others: no pickle, no code
BUNDLED = Path(__file__).parent / "weights"
MAX_TEXT_BYTES = 16 * 2**20  # of config.json and of each asset
MAX_ARGUMENTS = 4096  # of a model, or files of a bundle
PATIENCE = 3.5  # seconds to wait for a first answer of the Hub
_PASSING = (408, 429, 500, 502, 503, 504)  # troubles of the Hub itself
_COMMIT = re.compile("[0-9a-f]{40}")

T = TypeVar("T")
log = logging.getLogger(__name__)


class BundleError(ValueError):
    """A folder of weights cannot be used: one of the three below."""


class FetchError(BundleError):
    """The weights cannot be fetched (or published): try again later, log in, or load a copy with local-dir:PATH."""


class DamagedError(BundleError):
    """A file is missing, cannot be read, or is not the one that was saved: copy or fetch the weights again."""


class MisfitError(BundleError):
    """The files are whole, but no weights that this version of the package can use, or may: nothing but other files will help."""


def bundled(name: str, sha256: Mapping[str, str]) -> Path:
    """The folder of a weight that ships with the package, every file checked against `sha256`."""
    folder = BUNDLED / name
    verify(folder, sha256)
    if extra := sorted({file.name for file in folder.iterdir()} - sha256.keys()):
        raise MisfitError(f"{folder} holds files that do not belong there: {', '.join(extra)}")
    return folder


def local_dir(path: str) -> Path:
    """The folder of `local-dir:PATH`."""
    try:
        folder = Path(path).expanduser()
        (folder / CONFIG).lstat()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: no such user; ValueError: a zero byte in the name
        raise DamagedError(f"local-dir:{path} is no folder of weights: it has no {CONFIG}") from error
    return folder


def download(repo_id: str, revision: str, files: list[str] | None = None) -> Path:
    """A model repository of the Hugging Face Hub at one revision, from the local cache if it is there.

    A full commit id that is in the cache needs no network. Each file is checked against config.json and, if there is
    one, manifest.json; a damaged one is fetched once more.

    Args:
        repo_id: `ORG/REPO`.
        revision: Commit id, tag or branch.
        files: Names to fetch; by default what config.json lists. Never a pickle, never code.

    Returns:
        The folder of the commit, named after it.

    Raises:
        FetchError: The Hub cannot be reached, or refuses.
        DamagedError: A file is still damaged.
        MisfitError: The repository holds something else.
    """
    folder = _fetch(repo_id, revision, files or [CONFIG, MANIFEST])
    _mend(repo_id, folder, files or [CONFIG])
    if files is None:
        files = list(read_config(folder)["sha256"])
        if others := sorted(name for name in files if not name.endswith(SUFFIXES)):
            raise MisfitError(f"{repo_id} at revision {revision}: a file must end in {', '.join(SUFFIXES)}; got {', '.join(others)}")
        folder = _fetch(repo_id, folder.name, files)
        _mend(repo_id, folder, files)
    return folder


def _fetch(repo_id: str, revision: str, names: list[str]) -> Path:
    """The folder of a revision in the cache, with the named files; manifest.json only if the repository has one."""
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    get = partial(snapshot_download, repo_id, revision=revision, allow_patterns=names)
    what = f"{repo_id} at revision {revision}"

    def missing(folder: Path) -> list[str]:
        return [name for name in names if name != MANIFEST and not (folder / name).is_file()]

    def cached() -> Path | None:
        try:
            folder = Path(get(local_files_only=True))
        except LocalEntryNotFoundError:
            return None
        return None if missing(folder) else folder

    folder = cached() if constants.HF_HUB_OFFLINE or _COMMIT.fullmatch(revision) else None
    if folder is None and constants.HF_HUB_OFFLINE:
        raise FetchError(f"{what} is not in the cache and HF_HUB_OFFLINE is set; unset it, or load a folder with local-dir:PATH")
    if folder is None:
        try:
            with _explained(f"cannot fetch {what} from the Hugging Face Hub", repo_id, revision):
                info = _ask(partial(HfApi().model_info, repo_id, revision=revision, files_metadata=True))
                sizes = {file.rfilename: file.size or 0 for file in info.siblings}
                if large := [name for name in names if name != WEIGHTS and sizes.get(name, 0) > MAX_TEXT_BYTES]:
                    raise MisfitError(f"{what}: {', '.join(large)} is larger than {MAX_TEXT_BYTES >> 20} MB, the most that belongs there")
                folder = Path(get())
        except _Unreachable as error:
            folder = cached()
            if folder is None:
                raise
            log.warning("%s; using commit %s of the cache", error, folder.name)
        if absent := missing(folder):
            raise MisfitError(f"{what} is no repository of this package: it has no {', '.join(absent)}")
    blobs = [(parent / "blobs").resolve() for parent in (folder.parents[1], folder.parents[2])]  # of the repository, of all
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink() and not any(path.resolve().is_relative_to(root) for root in blobs):
            raise DamagedError(f"{path} is a link to {path.resolve()}, outside the cache; delete it and load again")
    return folder


def _mend(repo_id: str, folder: Path, names: list[str]) -> None:
    """Fetches the named files of a commit once more if one is not what config.json and manifest.json say."""
    from huggingface_hub import HfApi, hf_hub_download

    problems = _problems(folder, names)
    if not problems:
        return
    first = next(iter(problems.values()))
    log.warning("%s; fetching it again", first)
    try:
        with _explained("it cannot be fetched again", repo_id, folder.name):
            _ask(partial(HfApi().model_info, repo_id, revision=folder.name))
            for name in {*problems, CONFIG, *([MANIFEST] if (folder / MANIFEST).is_file() else [])}:
                (folder / name).unlink(missing_ok=True)  # the client keeps a file that is in the folder
                hf_hub_download(repo_id, name, revision=folder.name, force_download=True)
    except FetchError as error:
        raise DamagedError(f"{first}; {error}; `hf cache rm model/{repo_id}` drops it from the cache") from error
    if problems := _problems(folder, names):
        raise DamagedError(f"{next(iter(problems.values()))}; it was fetched twice, so the repository itself is at fault")


def _problems(folder: Path, names: list[str]) -> dict[str, str]:
    """File name -> how it is damaged."""
    found = {name: _sha256(folder / name) for name in {CONFIG, *names}}
    problems = {}
    for where, read in ((MANIFEST, read_manifest), (CONFIG, lambda folder: read_config(folder)["sha256"])):
        try:
            hashes = read(folder)
        except DamagedError as error:
            return {where: str(error)}
        for name in found:
            if hashes.get(name, found[name]) != found[name]:
                problems[name] = f"{folder / name} is damaged: its sha256 is {found[name]}, not {hashes[name]} as {where} says"
        if CONFIG in problems:  # what it says about the others means nothing
            break
    return problems


def read_manifest(folder: Path) -> dict[str, str]:
    """File name -> sha256, as manifest.json says; empty if there is none."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        files = strict_json.loads(read_text(path), MAX_ARGUMENTS)["files"]
        return {name: re.fullmatch("[0-9a-f]{64}", file["sha256"])[0] for name, file in files.items()}
    except BundleError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f'{path} must hold {{"files": {{name: {{"sha256": ..., "size": ...}}}}}}') from error


def open_repository(repo_id: str, private: bool, token: str | None) -> tuple[str, set[str]]:
    """Finds a model repository on the Hub, or creates it.

    Returns:
        The commit id of its main branch, and the names of the files there.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import RepositoryNotFoundError

    if constants.HF_HUB_OFFLINE:
        raise FetchError(f"cannot publish to {repo_id}: HF_HUB_OFFLINE is set; unset it")
    api = HfApi(token=token)
    with _explained(f"cannot publish to {repo_id}", repo_id):
        try:
            info = _ask(partial(api.model_info, repo_id))
        except RepositoryNotFoundError:
            api.create_repo(repo_id, private=private or None, exist_ok=True)
            info = api.model_info(repo_id)
    if private and not info.private:
        raise FetchError(f"{repo_id} exists and is public; make it private in its settings first, or publish without --private")
    return info.sha, {file.rfilename for file in info.siblings}


def read_remote(repo_id: str, revision: str, name: str, token: str | None) -> bytes:
    """The content of one file of a repository."""
    from huggingface_hub import hf_hub_download

    with _explained(f"cannot read {name} of {repo_id}", repo_id):
        return Path(hf_hub_download(repo_id, name, revision=revision, token=token)).read_bytes()


def commit(
    repo_id: str, parent: str, files: Mapping[str, Path | bytes], delete: Iterable[str], message: str, token: str | None
) -> str:
    """Publishes files in one commit on top of `parent`: all of them or none.

    Args:
        repo_id: `ORG/REPO`.
        parent: Commit id; if the main branch has moved on, nothing is published.
        files: Name in the repository -> file or content.
        delete: Names to remove.
        message: One line.
        token: Of the Hub; None: that of `hf auth login` or HF_TOKEN.

    Returns:
        The new commit id; that of the branch if there was nothing to change.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api = HfApi(token=token)
    operations = [CommitOperationAdd(name, content) for name, content in files.items()]
    operations += [CommitOperationDelete(name) for name in delete]
    with _explained(f"cannot publish to {repo_id}", repo_id):
        done = api.create_commit(repo_id, operations, commit_message=message, parent_commit=parent).oid
    with _explained(f"published {repo_id} as commit {done}, but cannot check it", repo_id):
        there = {file.path: file for file in api.list_repo_tree(repo_id, revision=done, recursive=True)}
    wrong = sorted(name for name, content in files.items() if name not in there or not _same(content, there[name]))
    if wrong:
        raise FetchError(f"commit {done} of {repo_id} lacks or alters {', '.join(wrong)}; a .gitignore there may leave files out")
    return done


def _same(content: Path | bytes, remote: Any) -> bool:
    data = content if isinstance(content, bytes) else content.read_bytes()
    if remote.lfs:
        return remote.lfs.sha256 == hashlib.sha256(data).hexdigest()
    return remote.blob_id == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # as git names it


class _Unreachable(FetchError):
    """The Hub gives no answer, or none for now."""


def _ask(call: Callable[[], T]) -> T:
    """A small request to the Hub, within PATIENCE seconds in all; repeated while the Hub has a passing trouble.

    In a thread, because neither a look-up of a host name nor a host of many addresses can be bounded otherwise.
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError

    patience = constants.HF_HUB_ETAG_TIMEOUT if "HF_HUB_ETAG_TIMEOUT" in os.environ else PATIENCE
    end = time.monotonic() + patience
    while True:
        answer: Future[T] = Future()
        Thread(target=_settle, args=(answer, call), daemon=True).start()
        try:
            return answer.result(end - time.monotonic())
        except FutureTimeout:
            raise TimeoutError(f"no answer in {patience:g} s; on a slow line set HF_HUB_ETAG_TIMEOUT to more seconds") from None
        except HfHubHTTPError as error:
            if error.response.status_code not in _PASSING or time.monotonic() + 0.5 >= end:
                raise
        time.sleep(0.5)


def _settle(answer: Future, call: Callable[[], Any]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # raised again by the thread that waits
        answer.set_exception(error)


@contextmanager
def _explained(doing: str, repo_id: str, revision: str | None = None) -> Iterator[None]:
    """Turns what the client of the Hub raises into one line: what was tried, why it failed, what to do.

    Args:
        doing: "cannot ...".
        repo_id: `ORG/REPO`.
        revision: What is fetched; None while publishing.
    """
    from huggingface_hub import constants, errors

    # RuntimeError: of an upload; the bases: what its HTTP library (httpx or httpx2, by version) raises
    kinds = (OSError, RuntimeError, errors.HFValidationError, *errors.HfHubHTTPError.__bases__)
    try:
        yield
    except kinds as raised:
        error = raised.__cause__ if isinstance(raised, RuntimeError) and raised.__cause__ else raised
        status = getattr(getattr(error, "response", None), "status_code", None)
        login = "log in with `hf auth login` or set HF_TOKEN"
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        said = f" ({error.server_message})" if getattr(error, "server_message", None) else ""
        lasting = isinstance(error, (errors.HFValidationError, errors.LocalTokenNotFoundError))
        if isinstance(error, OSError) and error.errno and not isinstance(error, (ConnectionError, TimeoutError)):
            lasting = True  # trouble on this side, e.g. a full disk
        passing = status in _PASSING if status else not lasting
        if isinstance(error, errors.GatedRepoError):
            why = f"it is gated; ask for access at {constants.ENDPOINT}/{repo_id}, then {login}"
        elif isinstance(error, errors.RevisionNotFoundError):
            why = f"it has no revision {revision}; give a commit id, tag or branch that it has"
        elif isinstance(error, errors.RepositoryNotFoundError):
            why = f"there is no such repository, or it is private and the token may not see it; check the name, and {login}"
        elif isinstance(error, errors.LocalTokenNotFoundError) or status == 401:
            why = f"the token is missing or not valid; {login}"
        elif status == 403:
            why = f"the token does not allow it{said}; take one that may write to {repo_id.split('/')[0]}"
        elif status == 412:
            why = "somebody changed it in the meantime, nothing was published; look at the change, then publish again"
        elif status:
            why = f"the Hub answered {status}{said or ' ' + first}; try again later"
        elif passing:
            hint = "a copy on this machine can be loaded with local-dir:PATH" if revision else "publishing again does nothing twice"
            why = f"{constants.ENDPOINT} cannot be reached: {first}; check the network and HF_ENDPOINT ({hint})"
        else:
            why = first
        raise (_Unreachable if passing else FetchError)(f"{doing}: {' '.join(why.split())}") from raised


def split_source(source: str) -> tuple[str, str]:
    """Splits `ORG/REPO@REVISION`."""
    match = re.fullmatch(r"(\w[\w.-]*/\w[\w.-]*)@(\w[\w./+-]*)", source)
    if not match or ".." in source:  # both become parts of a path in the cache
        raise ValueError(f"expected hf-hub:ORG/REPO@REVISION (a commit id, tag or branch); got 'hf-hub:{source}'")
    return match[1], match[2]


def file_hashes(folder: Path) -> dict[str, str]:
    """sha256 of every file in a folder, by name: what an `Entry` of the registry lists."""
    return {file.name: _sha256(file) for file in sorted(Path(folder).iterdir())}


def verify(folder: Path, sha256: Mapping[str, str]) -> None:
    """Raises `BundleError` unless every listed file is in the folder with the listed content."""
    if not folder.is_dir():
        raise DamagedError(f"{folder} is missing")
    if missing := sorted(name for name in sha256 if not os.path.lexists(folder / name)):
        raise DamagedError(f"{folder} is incomplete: {', '.join(missing[:3])} missing")
    for name, want in sha256.items():
        if (got := _sha256(file_of(folder, name))) != want:
            raise DamagedError(f"{folder / name} is damaged or was changed: its sha256 is {got}, not {want}")


def file_of(folder: Path, name: str, most: int | None = None) -> Path:
    """A file of a bundle: a regular one (reading a pipe or a device would not end) that lies in the folder itself.

    Links are followed only into the folders where the cache of the Hub keeps files. It is laid out like this, and the last
    link may be missing: snapshots/COMMIT/NAME -> ../../blobs/HASH -> ../../blobs/AB/HASH.

    Args:
        folder: the bundle.
        name: file name.
        most: bytes that it may have.

    Raises:
        BundleError: it is missing, cannot be read, is something else, lies elsewhere or is too large.
    """
    path = folder / name
    try:
        home = folder.resolve(strict=True)
        file = (home / name).resolve(strict=True)
        found = file.stat()
    except FileNotFoundError as error:
        raise DamagedError(f"{folder} is incomplete: {name} missing") from error
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle, before Python 3.13
        raise DamagedError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    homes = [home]
    if home.parent.name == "snapshots":
        repository = home.parent.parent
        homes += [repository / "blobs", repository.parent / "blobs" / file.parent.name]
    if file.parent not in homes:
        raise MisfitError(f"{path} is a link to {file}, outside the folder; put the file itself there")
    if not stat.S_ISREG(found.st_mode):
        raise MisfitError(f"{path} is no regular file")
    if most is not None and found.st_size > most:
        raise MisfitError(f"{path} is larger than {most / 2**20:,.3g} MB, the most that belongs there")
    return file


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as f:
        while block := f.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def read_config(folder: Path) -> dict[str, Any]:
    """The checked content of a bundle's config.json.

    The file holds `digest` as well, see `digest`; one without it is taken as it is.

    Returns:
        `class_path` (text), `init_args` (name -> value) and `sha256` (file name -> hash of every other file but
        README.md and golden.safetensors).

    Raises:
        BundleError: the file is missing or damaged, or holds something else.
    """
    path = folder / CONFIG
    text = read_text(path)
    try:
        config = strict_json.loads(text, MAX_ARGUMENTS)
    except ValueError as error:
        raise DamagedError(f"{path} is not valid JSON: {error}") from error
    said = config.pop("digest", None) if isinstance(config, dict) else None
    kinds = {"class_path": str, "init_args": dict, "sha256": dict}
    if not isinstance(config, dict) or {key: type(value) for key, value in config.items()} != kinds:
        raise MisfitError(f"{path} must hold exactly class_path (text), init_args and sha256 (objects), and digest (text) if it was saved")
    if said is not None and said != digest(config):
        raise DamagedError(f"{path} is damaged or was changed: its digest does not fit. If the change is yours, delete the line \"digest\"")
    for name, want in config["sha256"].items():
        if not re.fullmatch(r"\w[\w.-]{0,99}", name):  # no path: nothing outside the folder is ever read
            raise MisfitError(f"{path}: {reprlib.repr(name)} is not a plain file name")
        if not (isinstance(want, str) and re.fullmatch("[0-9a-f]{64}", want)):
            raise DamagedError(f"{path}: sha256 of {name} must be 64 hex digits; got {reprlib.repr(want)}")
    if WEIGHTS not in config["sha256"]:
        raise MisfitError(f"{path}: sha256 does not list {WEIGHTS}")
    return config


def digest(config: Mapping[str, Any]) -> str:
    """sha256 of what config.json says, however it is laid out: without it damage to a setting such as a beam size would pass."""
    return hashlib.sha256(json.dumps({**config}, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_text(path: Path) -> str:
    """The text of one file of a bundle."""
    try:
        return file_of(path.parent, path.name, MAX_TEXT_BYTES).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise DamagedError(f"{path} is not UTF-8 text") from error
