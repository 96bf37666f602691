"""The files of the lessons, and the answers in a reader's copy: a notebook is JSON, so Jupyter need not be there."""

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from zoo.lessons import LESSONS, exercises_of, judge
from zoo.utils.shipped import PACKAGE

INSTALLED = PACKAGE / "lessons" / "notebooks"
FOLDER = INSTALLED if INSTALLED.is_dir() else PACKAGE.parent / "docs" / "lessons"
READ = {"setup", "answer"}  # tags of the cells that are run to judge the answers
PHOTO = "beach.jpg"  # of lesson 5


def photo() -> Path:
    """The photo that lesson 5 looks at."""
    inside = INSTALLED / PHOTO
    return inside if inside.is_file() else PACKAGE.parent / "docs" / "photos" / PHOTO


def copy(lesson: int, folder: Path) -> Path:
    """Copies the notebook of a lesson into a folder, which is made if need be.

    Links to pages of the manual, which are not beside the copy, become their places.

    Returns:
        The copy.

    Raises:
        ValueError: There is no such lesson, or the copy exists already.
    """
    exercises_of(lesson)
    name = f"{LESSONS[lesson].name}.ipynb"
    if (folder / name).exists():
        raise ValueError(
            f"{folder / name} exists already, perhaps with your answers; give another folder, or rename it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    text = re.sub(
        r"\[([^][\n]*)\]\(\.\./([\w/]+\.md)\)", r"\1 (docs/\2 in a clone)", (FOLDER / name).read_text("utf-8")
    )
    (folder / name).write_text(text, "utf-8", newline="\n")
    return folder / name


def answers(file: Path) -> tuple[dict[str, Any], str]:
    """Runs the cells of a notebook that have answers or what these need.

    Returns:
        The names that they define, and the first error, which is empty if there is none.

    Raises:
        ValueError: The file is no notebook.
    """
    names: dict[str, Any] = {"__name__": "answers"}
    errors = []
    for source in _cells(file):
        try:
            with redirect_stdout(io.StringIO()):
                exec(compile(source, str(file), "exec"), names)
        except Exception as error:  # an answer that is wrong leaves the others as they are
            errors.append(f"{type(error).__name__}: {error}")
    return names, errors[0] if errors else ""


def _cells(file: Path) -> list[str]:
    """The sources of the cells to run."""
    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        chosen = [cell for cell in cells if READ & {*cell.get("metadata", {}).get("tags", [])}]
        return ["".join(cell["source"]) for cell in chosen]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is no notebook; give the .ipynb file of the lesson") from error


def judged(lesson: int, file: Path) -> dict[str, str | None]:
    """The hint for each exercise of a lesson by the answers in a notebook; None where the answer is right.

    Raises:
        ValueError: There is no such lesson, or the file is no notebook.
    """
    wanted = exercises_of(lesson)
    names, error = answers(file)
    if not any(exercise.function in names for exercise in wanted.values()):
        stopped = f" (the first error in it: {error})" if error else ""
        raise ValueError(f"{file} has no answer to lesson {lesson}{stopped}; give the notebook of that lesson")
    return {
        number: judge(number, names[exercise.function])
        if exercise.function in names
        else f"there is no function {exercise.function}{f'; {error}' if error else ''}"
        for number, exercise in wanted.items()
    }
