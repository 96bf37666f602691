"""A folder of weights, opened and verified once: each file is read once, and the verified bytes are the ones used.

A bundle holds

    config.json         {"class_path": ..., "init_args": {...}} as in a recipe, the sha256 of the others, its own digest
        model.safetensors   the tensors, in 8 bits (tensors.py), fp16 or their own precision; tied weights only once
        <assets>            files for raw input, e.g. tokenizer.json
        golden.safetensors  optional: a fixed input and the output for it

and optionally README.md and pictures. This file does not import torch, so that `zoo list` stays fast.
"""

import hashlib
import json
import os
import re
import reprlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.utils import strict_json
from zoo.utils.atomic import new_folder

LOCAL_DIR, HF_HUB = "local-dir:", "hf-hub:"  # before a folder, and before ORG/REPO@REVISION, where a name is expected
CONFIG, WEIGHTS, GOLDEN = "config.json", "model.safetensors", "golden.safetensors"
MANIFEST, README = "manifest.json", "README.md"  # the first exists only on the Hub
SUFFIXES = (".json", ".safetensors", ".txt")  # of all files in config.json: no pickle, no code
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp")  # of a card
EXPORTS = {  # of `zoo export --format`, by a file in their folders
    "onnx.json": "ONNX graphs, which zoo predict and zoo serve read",
    "ctranslate2.json": "a Transformer for CTranslate2, which opens it itself (docs/guides/ctranslate2.md)",
}
MAX_TEXT_BYTES = 16 * 2**20  # of config.json, each asset and the golden output
MAX_ARGUMENTS = 4096  # of a model
MAX_FILES = 16  # most files in config.json


class BundleError(ValueError):
    """A folder of weights cannot be used, for one of the three reasons below."""


class FetchError(BundleError):
    """The weights cannot be fetched (or published): try again later, log in, or load a copy with local-dir:PATH."""


class DamagedError(BundleError):
    """A file is missing, unreadable or altered: copy or fetch the weights again."""


class MisfitError(BundleError):
    """The files are intact, but not weights that this version can or may use: only other files will help."""


class Bundle:
    """A folder of weights. Opening it reads config.json; other files are read and verified when first needed, and kept.

    Attributes:
        folder: Its path.
        class_path: Dotted path of the model class, as untrusted text.
        init_args: Its arguments, unchecked.
        sha256: File name -> hash of every other file.
        config: Content of config.json.
        config_sha256: Its hash, which thereby covers all files.
    """

    def __init__(self, folder: str | os.PathLike, sha256: str | None = None) -> None:
        """Reads config.json.

        Args:
            folder: The folder.
            sha256: Required hash of config.json.

        Raises:
            BundleError: It is missing, damaged, or has another hash or other content.
        """
        self.folder = Path(folder)
        content = read_file(self.folder, CONFIG, MAX_TEXT_BYTES)
        self.config_sha256 = hashlib.sha256(content).hexdigest()
        if sha256 not in (None, self.config_sha256):
            raise DamagedError(
                f"{self.folder / CONFIG} is damaged or was changed: its sha256 is {self.config_sha256}, not {sha256}"
                f"{_other_line_ends(content, sha256)}"
            )
        config = _config(content, self.folder / CONFIG)
        self.class_path: str = config["class_path"]
        self.init_args: dict[str, Any] = config["init_args"]
        self.sha256: dict[str, str] = config["sha256"]
        self.config = content
        self._contents: dict[str, bytes] = {}

    @property
    def assets(self) -> list[str]:
        """Names of the text files for raw input."""
        return sorted(self.sha256.keys() - {WEIGHTS, GOLDEN})

    def read(self, name: str, most: int = MAX_TEXT_BYTES) -> bytes:
        """The verified content of a file listed in config.json.

        Args:
            name: File name.
            most: Maximum number of bytes.

        Raises:
            BundleError: See `read_file`; or its hash differs.
        """
        if name not in self._contents:
            content = read_file(self.folder, name, most)
            if (found := hashlib.sha256(content).hexdigest()) != self.sha256[name]:
                raise DamagedError(
                    f"{self.folder / name} is damaged or was changed: its sha256 is {found}, not {self.sha256[name]} "
                    f"as {CONFIG} says{_other_line_ends(content, self.sha256[name])}"
                )
            self._contents[name] = content
        return self._contents[name]

    def text(self, name: str) -> str:
        """The content as text.

        Raises:
            DamagedError: It is not UTF-8.
        """
        return decoded(self.read(name), self.folder / name)

    def golden(self) -> bytes | None:
        """The content of golden.safetensors; None if there is none. Earlier versions did not list it."""
        if GOLDEN in self.sha256:
            return self.read(GOLDEN)
        if GOLDEN not in self._contents and os.path.lexists(self.folder / GOLDEN):
            self._contents[GOLDEN] = read_file(self.folder, GOLDEN, MAX_TEXT_BYTES)
        return self._contents.get(GOLDEN)

    def others(self) -> list[str]:
        """Names in the folder except config.json and the files listed there."""
        return sorted(set(os.listdir(self.folder)) - self.sha256.keys() - {CONFIG})


def local_dir(path: str) -> Bundle:
    """The bundle of `local-dir:PATH`."""
    try:
        folder = Path(path).expanduser()
        exported = next((what for file, what in EXPORTS.items() if os.path.lexists(folder / file)), None)
        if exported is None:
            (folder / CONFIG).lstat()
    except (
        OSError,
        RuntimeError,
        ValueError,
    ) as error:  # RuntimeError: no such user; ValueError: a zero byte in the name
        raise DamagedError(f"local-dir:{path} is not a folder of weights: it has no {CONFIG}") from error
    if exported is not None:
        raise MisfitError(f"local-dir:{path} is not a folder of weights: it holds {exported}")
    return Bundle(folder)


def replaceable(folder: Path) -> set[str]:
    """Names of the bundle's files that new weights may replace; README.md and pictures are not among them.

    Raises:
        ValueError: The folder is not a complete bundle, or holds other files.
    """
    try:
        if not os.path.lexists(folder / CONFIG):
            raise MisfitError(f"it has no {CONFIG}")
        bundle = Bundle(folder)
        names = {CONFIG, *bundle.sha256} | {GOLDEN} & set(bundle.others())  # earlier versions did not list it
        kept = {name for name in bundle.others() if name == README or name.lower().endswith(PICTURES)}
        if foreign := sorted(set(os.listdir(folder)) - names - kept):
            raise MisfitError(f"it also holds {', '.join(map(_shown, foreign[:5]))}{' and more' * (len(foreign) > 5)}")
        if foreign := sorted(name for name in names if not name.endswith(SUFFIXES)):
            raise MisfitError(f"{_shown(foreign[0])} is not a file of weights")
        if missing := sorted(names - set(os.listdir(folder))):
            raise MisfitError(f"it is incomplete: {', '.join(missing[:3])} missing")
        for name in sorted(names | kept):
            if not stat.S_ISREG((folder / name).lstat().st_mode):
                raise MisfitError(f"{name} is not a regular file")
        for name in bundle.sha256:
            bundle.read(name, (folder / name).lstat().st_size)
    except (BundleError, OSError) as error:
        raise ValueError(
            f"{folder} exists and is not exactly a folder of weights: {error}; give a new or an empty folder"
        ) from error
    return names


def rewrite(bundle: Bundle, texts: Mapping[str, str]) -> Bundle:
    """Replaces or adds text files of a bundle in its folder; the weights stay as they are, to the byte.

    Args:
        bundle: In a folder of one's own, without other files except README.md and pictures.
        texts: New contents by file name.

    Returns:
        The new bundle.

    Raises:
        ValueError: The folder holds other files.
    """
    contents = {name: bundle.read(name, (bundle.folder / name).lstat().st_size) for name in bundle.sha256}
    contents |= {name: text.encode() for name, text in texts.items()}
    with new_folder(bundle.folder, replaceable) as new:
        for name, content in contents.items():
            (new / name).write_bytes(content)
        (new / CONFIG).write_bytes(config_text(bundle.class_path, bundle.init_args, file_hashes(new)).encode())
    return Bundle(bundle.folder)


def read_file(folder: Path, name: str, most: int) -> bytes:
    """The content of a bundle's file, which must be a regular file in the folder itself: a pipe or device would block.

    Links are followed only into the Hub cache, whose layout is as follows; the last link may be missing:
    snapshots/COMMIT/NAME -> ../../blobs/HASH -> ../../blobs/AB/HASH.

    Args:
        folder: The bundle.
        name: File name.
        most: Maximum number of bytes.

    Raises:
        BundleError: It is missing, unreadable, not a regular file, outside the folder or too large.
    """
    path = folder / name
    try:
        home = folder.resolve(strict=True)
        file = (home / name).resolve(strict=True)
        _check_place(path, home, file)
        _check_kind(path, file.stat(), most)  # before opening, which may already affect a device
        with open(os.open(file, os.O_RDONLY | _SAFELY), "rb") as opened:
            found = os.fstat(opened.fileno())
            _check_kind(path, found, most)
            content = opened.read(found.st_size + 1)
    except FileNotFoundError as error:
        where = f"{folder} is incomplete: {name} missing" if os.path.isdir(folder) else f"{folder} is missing"
        raise DamagedError(where) from error
    except BundleError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a circle of links, before Python 3.13
        raise DamagedError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(content) != found.st_size:
        raise DamagedError(f"{path} changes while it is read")
    return content


# If the file has become a link or a pipe since the check, it is not followed, nor waited for, on systems with these
# flags.
_SAFELY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


def _check_place(path: Path, home: Path, file: Path) -> None:
    homes = [home]
    if home.parent.name == "snapshots":
        repository = home.parent.parent
        homes += [repository / "blobs", repository.parent / "blobs" / file.parent.name]
    if file.parent not in homes:
        raise MisfitError(f"{path} is a link to {file}, outside the folder; put the file itself there")


def _check_kind(path: Path, found: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise MisfitError(f"{path} is not a regular file")
    if found.st_size > most:
        raise _too_large(path, most)


def _too_large(path: Path, most: int) -> MisfitError:
    return MisfitError(f"{path} is larger than {most / 2**20:,.3g} MB, the limit")


def read_text(folder: Path, name: str) -> str:
    """The text of a file that config.json does not list, such as README.md.

    Raises:
        BundleError: See `read_file`; or it is not UTF-8.
    """
    return decoded(read_file(folder, name, MAX_TEXT_BYTES), folder / name)


def decoded(content: bytes, path: Path) -> str:
    """Content as text; `DamagedError` if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DamagedError(f"{path} is not UTF-8 text") from error


def _other_line_ends(content: bytes, sha256: str | None) -> str:
    """What to do if a file has another hash because Git changed its line ends, as it is set to do on Windows."""
    if hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest() != sha256:
        return ""
    return "; only its line ends differ, as Git changes them: git config core.autocrlf false, then check it out again"


def _config(content: bytes, path: Path) -> dict[str, Any]:
    """The checked content of a config.json: `class_path`, `init_args` and `sha256`. A missing digest is accepted."""
    try:
        config = strict_json.loads(decoded(content, path), MAX_ARGUMENTS)
    except DamagedError:
        raise
    except ValueError as error:
        raise DamagedError(f"{path} is not valid JSON: {error}") from error
    said = config.pop("digest", None) if isinstance(config, dict) else None
    kinds = {"class_path": str, "init_args": dict, "sha256": dict}
    if not isinstance(config, dict) or {key: type(value) for key, value in config.items()} != kinds:
        raise MisfitError(
            f"{path} must hold exactly class_path (text), init_args and sha256 (objects), and digest (text) if it "
            "was saved"
        )
    # an empty one is that of a file changed by hand
    if said not in (None, "") and said != strict_json.digest(config):
        raise DamagedError(
            f"{path} is damaged or was changed: its digest does not match. If the change is yours, make the digest "
            'empty: "digest": ""'
        )
    for name, want in config["sha256"].items():
        if not re.fullmatch(r"\w[\w.-]{0,99}", name):  # not a path: nothing outside the folder is ever read
            raise MisfitError(f"{path}: {reprlib.repr(name)} is not a plain file name")
        if not (isinstance(want, str) and re.fullmatch("[0-9a-f]{64}", want)):
            raise DamagedError(f"{path}: sha256 of {name} must be 64 hex digits; got {reprlib.repr(want)}")
    if WEIGHTS not in config["sha256"]:
        raise MisfitError(f"{path}: sha256 does not list {WEIGHTS}")
    if len(config["sha256"]) > MAX_FILES:
        raise MisfitError(f"{path}: sha256 lists {len(config['sha256']):,} files; at most {MAX_FILES} are allowed")
    return config


def config_text(class_path: str, init_args: Mapping[str, Any], sha256: Mapping[str, str]) -> str:
    """The text of a config.json."""
    config = {"class_path": class_path, "init_args": init_args, "sha256": sha256}
    return json.dumps({**config, "digest": strict_json.digest(config)}, indent=2, allow_nan=False) + "\n"


def file_hashes(folder: Path) -> dict[str, str]:
    """sha256 of every file in a folder of our own, by name."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(Path(folder).iterdir())}


def _shown(name: str) -> str:
    """A name quoted for a message, on one line."""
    return name if re.fullmatch(r"[\w. -]{1,100}", name) else reprlib.repr(name)
