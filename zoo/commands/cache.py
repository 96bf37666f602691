"""`zoo cache`: fetched weights, graphs that `--runtime onnx` exported, where they are, and their removal."""

import argparse
import re
import reprlib
import shutil

from zoo import registry
from zoo.bundles.cache import Cached, cache_folder, cached_bundles, remove_cached
from zoo.bundles.files import HF_HUB
from zoo.commands import graphs


def run(options: argparse.Namespace) -> None:
    """Prints the folder, each weight with its size, and the total; or removes weights and prints which.

    The folder is that of the Hub client, which other programs share: what is not a weight of this package is neither
    shown nor removed.

    Args:
        options: action: None or `clear`; name (list): which weights to remove; empty for all.

    Raises:
        ValueError: an unknown name; then nothing is removed.
    """
    pins = registry.all_pins()
    names = {(pin.repo_id, pin.revision): name for name, pin in pins.items()}
    cached = {
        names.get((bundle.repo_id, bundle.revision), f"{HF_HUB}{bundle.repo_id}@{bundle.revision}"): bundle
        for bundle in cached_bundles({pin.repo_id for pin in pins.values()})
    }
    if options.action == "clear":
        _clear(cached, options.name)
        return
    print(cache_folder())
    if cached:
        files = {file: size for bundle in cached.values() for file, size in bundle.sizes.items()}
        rows = [*((name, bundle.size) for name, bundle in cached.items()), ("total", sum(files.values()))]
        print(_table(rows))
        for name, bundle in cached.items():
            if bundle.own_class:
                print(f"{name} is of a class of its author, {_shown(bundle.own_class)}: load it with --import MODULE")
    else:
        print("holds no weights of attention-zoo")
    if found := graphs.cached_graphs():
        print(next(iter(found.values())).parent)
        print(_table([(name, graphs.size(path)) for name, path in found.items()]))


def _clear(cached: dict[str, Cached], names: list[str]) -> None:
    of_graphs = {name: path for name, path in graphs.cached_graphs().items() if not names or name in names}
    of_weights = [name for name in names if name not in of_graphs]
    for name in of_weights:
        if name not in cached and not name.startswith(HF_HUB):
            registry.entry(name)
    if of_graphs:
        print(_table([(f"removed {name}", graphs.size(path)) for name, path in of_graphs.items()]))
    for path in of_graphs.values():
        shutil.rmtree(path)
    if names and not of_weights:
        return
    names = of_weights
    chosen = {name: cached[name] for name in names or cached if name in cached}
    for name in names:
        if name not in cached:
            print(f"{name} is not in the cache")
    freed = remove_cached(chosen.values())
    if chosen:
        print(_table([*((f"removed {name}", bundle.size) for name, bundle in chosen.items()), ("freed", freed)]))
    elif not names and not of_graphs:
        print(f"{cache_folder()} holds no weights of attention-zoo; nothing was removed")


def _shown(class_path: str) -> str:
    """A class path of a stranger's file, quoted if it is none."""
    return class_path if re.fullmatch(r"[\w.]{1,200}", class_path) else reprlib.repr(class_path)


def _table(rows: list[tuple[str, int]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {size / 1e6:7.1f} MB" for name, size in rows)
