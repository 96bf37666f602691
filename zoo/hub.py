"""Where weights come from: a name or a prefixed source becomes a local folder whose files were checked.

The only file of the project that touches the network. Free of torch, so that `zoo list` stays quick.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG, WEIGHTS, GOLDEN = "config.json", "model.safetensors", "golden.safetensors"
BUNDLED = Path(__file__).parent / "weights"
MAX_TEXT_BYTES = 64 * 2**20  # of config.json and of each asset


class BundleError(ValueError):
    """A folder of weights is missing, incomplete, damaged or not what it claims to be."""


def bundled(name: str, sha256: Mapping[str, str]) -> Path:
    """The folder of a weight that ships with the package, every file checked against `sha256`."""
    folder = BUNDLED / name
    verify(folder, sha256)
    if extra := sorted({file.name for file in folder.iterdir()} - sha256.keys()):
        raise BundleError(f"{folder} holds files that do not belong there: {', '.join(extra)}")
    return folder


def local_dir(path: str) -> Path:
    """The folder of `local-dir:PATH`."""
    folder = Path(path).expanduser()
    if not (folder / CONFIG).is_file():
        raise BundleError(f"local-dir:{path} is no folder of weights: it has no {CONFIG}")
    return folder


def download(repo_id: str, revision: str, files: list[str] | None = None) -> Path:
    """A model repository of the Hugging Face Hub at one revision, from the local cache if it is there.

    Args:
        repo_id: `ORG/REPO`.
        revision: Commit id, tag or branch.
        files: Names to fetch; by default whatever a bundle may hold. Never a pickle, never code.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        folder = snapshot_download(
            repo_id, revision=revision, allow_patterns=files or [CONFIG, WEIGHTS, "*.json", "*.txt"]
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:  # OSError: nothing cached and no network
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise BundleError(
            f"cannot fetch {repo_id} at revision {revision} from the Hugging Face Hub: {reason[0]} "
            "(a copy on this machine can be loaded with local-dir:PATH)"
        ) from error
    return Path(folder)


def split_source(source: str) -> tuple[str, str]:
    """Splits `ORG/REPO@REVISION`."""
    match = re.fullmatch(r"([^/@\s]+/[^/@\s]+)@([^@\s]+)", source)
    if not match:
        raise ValueError(f"expected hf-hub:ORG/REPO@REVISION (a commit id, tag or branch); got 'hf-hub:{source}'")
    return match[1], match[2]


def file_hashes(folder: Path) -> dict[str, str]:
    """sha256 of every file in a folder, by name: what an `Entry` of the registry lists."""
    return {file.name: _sha256(file) for file in sorted(Path(folder).iterdir())}


def verify(folder: Path, sha256: Mapping[str, str]) -> None:
    """Raises `BundleError` unless every listed file is in the folder with the listed content."""
    if not folder.is_dir():
        raise BundleError(f"{folder} is missing")
    if missing := sorted(name for name in sha256 if not (folder / name).is_file()):
        raise BundleError(f"{folder} is incomplete: {', '.join(missing)} missing")
    for name, want in sha256.items():
        if (got := _sha256(folder / name)) != want:
            raise BundleError(f"{folder / name} is damaged or was changed: its sha256 is {got}, not {want}")


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as f:
        while block := f.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def read_config(folder: Path) -> dict[str, Any]:
    """The checked content of a bundle's config.json.

    Returns:
        `class_path` (text), `init_args` (name -> value) and `sha256` (file name -> hash of every other file but
        README.md and golden.safetensors).
    """
    path = folder / CONFIG
    try:
        config = json.loads(read_text(path), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except BundleError:
        raise
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is not valid JSON: {error}") from error
    kinds = {"class_path": str, "init_args": dict, "sha256": dict}
    if not isinstance(config, dict) or {key: type(value) for key, value in config.items()} != kinds:
        raise BundleError(f"{path} must hold exactly class_path (text), init_args and sha256 (objects)")
    for name in config["sha256"]:
        if not re.fullmatch(r"\w[\w.-]*", name):  # no path: nothing outside the folder is ever read
            raise BundleError(f"{path}: {name!r} is not a plain file name")
    if WEIGHTS not in config["sha256"]:
        raise BundleError(f"{path}: sha256 does not list {WEIGHTS}")
    return config


def read_text(path: Path) -> str:
    """The text of one file of a bundle."""
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            raise BundleError(f"{path} is larger than {MAX_TEXT_BYTES >> 20} MB")
        return path.read_bytes().decode()
    except FileNotFoundError as error:
        raise BundleError(f"{path.parent} is incomplete: {path.name} missing") from error
    except UnicodeDecodeError as error:
        raise BundleError(f"{path} is not UTF-8 text") from error


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(result := dict(pairs)) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not allowed")
