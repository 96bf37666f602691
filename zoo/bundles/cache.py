"""The weights of this package in the cache of the Hub client; no torch, and no network."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zoo.bundles.files import CONFIG, GOLDEN, Bundle, BundleError


@dataclass(frozen=True)
class Cached:
    """A bundle in the cache of the Hub client, which also holds what other programs fetched.

    Attributes:
        repo_id: `ORG/REPO`.
        revision: Full commit id.
        sizes: File -> bytes on the disk; commits of one repository share files.
        own_class: Dotted path of its class, if that is a user's; None for one of this package.
    """

    repo_id: str
    revision: str
    sizes: Mapping[Path, int]
    own_class: str | None = None

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
    found = []
    for repo in _scanned():
        for revision in repo.revisions if repo.repo_type == "model" else ():
            path = _class_path(revision.snapshot_path)
            if path is not None or repo.repo_id in known:
                sizes = {file.blob_path: file.size_on_disk for file in revision.files}
                own = path if path and not path.startswith("zoo.models.") else None
                found.append(Cached(repo.repo_id, revision.commit_hash, sizes, own))
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


def _class_path(folder: Path) -> str | None:
    """The class of the weights in a folder, by a config.json as only this package writes it; None if it has none."""
    try:
        return Bundle(folder).class_path
    except BundleError:
        return None
