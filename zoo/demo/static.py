"""The page as a folder of static files, for any web server, or for a browser that opens index.html from a disk."""

import os
from collections.abc import Sequence
from pathlib import Path

from zoo.demo.page import CARD, INDEX, Shown, index, model_files, packed, site_files
from zoo.demo.space import README, space_readme
from zoo.demo.wrapped import wrapped
from zoo.utils.atomic import write_bytes
from zoo.utils.places import at_home


def check_target(folder: str | os.PathLike) -> Path:
    """The folder to write into.

    Raises:
        ValueError: it holds something else than an earlier page.
    """
    target = at_home(folder)
    if target.exists() and not target.is_dir():
        raise ValueError(f"{folder} exists and is not a folder; give a new or an empty folder")
    if target.is_dir() and any(target.iterdir()) and not (target / INDEX).is_file():
        raise ValueError(f"{folder} holds other files than a page of `zoo demo`; give a new or an empty folder")
    return target


def write_folder(target: str | os.PathLike, models: Sequence[tuple[Shown, Path]]) -> dict[str, int]:
    """Writes the page and models; those of an earlier page with other names stay, but are no longer listed.

    Args:
        target: folder; new, empty, or written by an earlier call.
        models: each with the folder of its export.

    Returns:
        Bytes of the page's own files as "page", and of each model by its name.

    Raises:
        ValueError: see `check_target`.
        OSError: a file cannot be written.
    """
    target, files = check_target(target), {}
    for shown, graphs in models:
        folder = f"models/{shown.name}"
        contents = {
            name: packed(f"{folder}/{name}", source.read_bytes()) for name, source in model_files(graphs).items()
        }
        for name, content in contents.items():
            write_bytes(target / folder / f"{name}.js", content)
        if shown.card:
            write_bytes(target / folder / f"{CARD}.js", packed(f"{folder}/{CARD}", shown.card.encode()))
        files[shown.name] = {name: len(content) for name, content in contents.items()}
    own = site_files()
    for path, source in own.items():
        write_bytes(target / path, source.read_bytes())
    write_bytes(target / README, space_readme([shown for shown, _ in models]).encode())
    listed = index([shown for shown, _ in models], files, scripts=True)
    write_bytes(target / f"{INDEX}.js", wrapped(INDEX, listed))
    write_bytes(target / INDEX, listed)  # last: a page is whole if it is there
    return {
        "page": sum(source.stat().st_size for source in own.values()),
        **{name: sum(sizes.values()) for name, sizes in files.items()},
    }
