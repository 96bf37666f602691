"""Makes the notebooks of the lessons, with outputs, from their texts.

    python docs/build_lessons.py                     # runs all and writes docs/lessons/*.ipynb (extra `lessons`)
    python docs/build_lessons.py 03_scores_and_scaling
    python docs/build_lessons.py --text              # only takes over new prose; runs notebooks whose code has changed

Edit only the texts, docs/lessons/*.md; tests/lessons says when a notebook does not have the code of its text.
"""

import base64
import io
import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from PIL import Image

LESSONS = Path(__file__).parent / "lessons"
LONGEST = 600  # seconds for a notebook
WIDEST, HEAVIEST = 1000, 60_000  # pixels and letters (base64) of a picture, beyond which it is stored smaller


def run(text: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook of a text, with outputs.

    Args:
        text: A MyST notebook, .md.
        folder: Where it runs.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raises.
    """
    notebook = jupytext.read(text)
    _clean(notebook)
    client = NotebookClient(notebook, timeout=LONGEST, kernel_name="python3", resources={"metadata": {"path": folder}})
    client.execute()
    for cell in notebook.cells:
        cell["metadata"].pop("execution", None)  # times
        for output in cell.get("outputs", []):
            if len(output.get("data", {}).get("image/png", "")) > HEAVIEST:
                _store_smaller(output)
    _clean(notebook)
    nbformat.validate(notebook)
    return notebook


def _store_smaller(output: nbformat.NotebookNode) -> None:
    """Makes a large picture narrower, with few colours or, if that is smaller, as a JPEG."""
    picture = Image.open(io.BytesIO(base64.b64decode(output.data.pop("image/png")))).convert("RGB")
    picture.thumbnail((WIDEST, 10 * WIDEST))
    drawing, photo = io.BytesIO(), io.BytesIO()
    picture.quantize(32, dither=Image.Dither.NONE).save(drawing, "png", optimize=True)
    picture.save(photo, "jpeg", quality=80)
    kind, content = min((("image/png", drawing), ("image/jpeg", photo)), key=lambda pair: len(pair[1].getvalue()))
    output.data[kind] = base64.b64encode(content.getvalue()).decode()
    output["metadata"] = {}


def with_prose(text: Path) -> nbformat.NotebookNode | None:
    """The notebook with new prose and the outputs that it has; None if its code has changed, or it does not exist."""
    if not text.with_suffix(".ipynb").exists():
        return None
    new, old = jupytext.read(text), nbformat.read(text.with_suffix(".ipynb"), as_version=4)
    pairs = [[cell for cell in notebook.cells if cell.cell_type == "code"] for notebook in (new, old)]
    if [cell.source for cell in pairs[0]] != [cell.source for cell in pairs[1]]:
        return None
    for cell, before in zip(*pairs, strict=True):
        cell.outputs, cell.execution_count = before.outputs, before.execution_count
    _clean(new)
    return new


def _clean(notebook: nbformat.NotebookNode) -> None:
    """Leaves nothing that differs between two runs without need."""
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook["metadata"] = {"kernelspec": kernel, "language_info": {"name": "python"}}


def main(names: list[str]) -> None:
    """Writes the notebooks of these lessons, or of all."""
    only_prose = "--text" in names
    names = [name for name in names if name != "--text"]
    for text in sorted(LESSONS.glob("[0-9]*.md")):
        if not names or text.stem in names:
            start = time.perf_counter()
            notebook = (with_prose(text) if only_prose else None) or run(text, LESSONS)
            nbformat.write(notebook, text.with_suffix(".ipynb"))
            size = text.with_suffix(".ipynb").stat().st_size
            print(f"{text.stem}: {time.perf_counter() - start:.0f} s, {size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
