"""`zoo compare --publish FOLDER`: what of a study belongs into a repository, as small files."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from zoo.comparison.files import CHOICE, LOG, OUTPUTS, RESULT, SEEDS, SIZES, TRAINING
from zoo.comparison.jobs import Plan
from zoo.comparison.seeds import config_file
from zoo.data.common.files import data_root
from zoo.utils.atomic import write_bytes, write_text
from zoo.utils.shipped import PACKAGE

AS_IS = (RESULT, TRAINING, *OUTPUTS.values())
TRIALS = "*/search/*"


def publish(plan: Plan, folder: Path) -> int:
    """Copies results, translations, curves, configurations and logs; no checkpoints.

    Paths of this machine become words, see `_places`. What is in the folder already is replaced.

    Args:
        plan: the study.
        folder: the target, which `zoo compare` can read like OUT.

    Returns:
        The number of finished trainings that were copied.
    """
    places = _places(plan)
    count = 0
    for source, target in _finished(plan.out, folder):
        count += 1
        for name in AS_IS:
            if (source / name).is_file():
                write_bytes(target / name, (source / name).read_bytes())
        for file in (source / LOG, config_file(source)):
            if file and file.is_file():
                written = file.read_text(encoding="utf-8", errors="replace")
                write_text(target / file.name, _without(written, places))
    for choice in sorted(plan.out.glob(f"*/{CHOICE}")):
        write_bytes(folder / choice.relative_to(plan.out), choice.read_bytes())
    return count


def _places(plan: Plan) -> dict[str, str]:
    """Paths of this machine, and the words for them; the longest first, because one may hold another."""
    data = data_root(plan.root)
    places = [
        (plan.out, "OUT"),
        (plan.recipes.folder, "RECIPES"),
        *([(data, "DATA")] if data else []),
        (Path.cwd(), "FOLDER"),
        (PACKAGE.parent, "PACKAGE"),
        (Path(sys.prefix), "PYTHON"),
        (Path.home(), "HOME"),
    ]
    words = {str(form): word for place, word in reversed(places) for form in (place.resolve(), place.absolute())}
    return {path: words[path] for path in sorted(words, key=len, reverse=True) if path != "/"}


def _finished(out: Path, folder: Path) -> Iterator[tuple[Path, Path]]:
    """Folders of finished jobs, each with its target."""
    for pattern, end in ((SEEDS, RESULT), (SIZES, RESULT), (TRIALS, TRAINING)):
        for file in sorted(out.glob(f"{pattern}/{end}")):
            yield file.parent, folder / file.parent.relative_to(out)


def _without(text: str, places: Mapping[str, str]) -> str:
    """A text without the paths of this machine."""
    for path, word in places.items():
        text = text.replace(path, word)
    return text
