"""Folders of the repository that an installed wheel carries inside the package: model_cards and recipes."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def shipped(name: str) -> Path:
    """The folder of that name: inside the package in an installation, next to it in a clone."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name
