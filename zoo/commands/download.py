"""`zoo download`: fetches and verifies weights ahead of time, so that `zoo.load` needs no network."""

import argparse
import sys
from itertools import chain

from zoo import registry
from zoo.bundles import hub
from zoo.bundles.cache import is_cached
from zoo.bundles.files import GOLDEN, HF_HUB, Bundle, BundleError


def run(options: argparse.Namespace) -> None:
    """Prints a line for each weight: its size, whether it had to be fetched, and its folder.

    A weight that cannot be had is reported on standard error, and all others are still fetched.

    Args:
        options: name (list): names of `zoo list`, `all`, or hf-hub:ORG/REPO@REVISION.

    Raises:
        BundleError: the only weight cannot be had, or the Hub cannot be reached.
        ValueError: an unknown name; then nothing is fetched. Or, after all others, several weights cannot be had.
    """
    given = (registry.list_models() if name == "all" else [name] for name in options.name)
    names = list(dict.fromkeys(chain.from_iterable(given)))
    for name in names:
        if name.startswith(HF_HUB):
            hub.split_source(name.removeprefix(HF_HUB))
        else:
            registry.entry(name)
    width, pins = max(map(len, names)), registry.all_pins()
    missing = [n for n in names if not (n.startswith(HF_HUB) or n in pins or registry.is_bundled(n))]
    if missing:
        if len(missing) == len(names):
            raise registry.nowhere(missing)
        print(f"zoo: {registry.nowhere(missing)}", file=sys.stderr)
    failed = len(missing)
    for name in names:
        if name in missing:
            continue
        try:
            print(f"{name:{width}}  {_fetched(name)}", flush=True)
        except BundleError as error:
            if len(names) == 1 or isinstance(error, hub.UnreachableError):  # the others would fail for the same reason
                raise
            failed += 1
            print(f"zoo: {' '.join(str(error).split())}", file=sys.stderr)
    if failed:
        raise ValueError(f"{failed:,} of {len(names):,} weights could not be fetched; see above")


def _fetched(name: str) -> str:
    """Fetches a weight; returns its size, where it was, and its folder."""
    if name.startswith(HF_HUB):
        was_here = is_cached(*hub.split_source(name.removeprefix(HF_HUB)))
    else:
        was_here = registry.is_bundled(name) or is_cached(*registry.pin(name))
    bundle = registry.open_bundle(name)
    return f"{_size(bundle) / 1e6:5.1f} MB  {'already here' if was_here else 'fetched':12}  {bundle.folder}"


def _size(bundle: Bundle) -> int:
    """Bytes of what `zoo.load` reads, all of which is verified here."""
    names = bundle.sha256.keys() - {GOLDEN}
    return len(bundle.config) + sum(len(bundle.read(name, sys.maxsize)) for name in names)
