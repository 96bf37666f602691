"""The notebooks have the code of their texts, are small, and run."""

import importlib.util
import json
import re
import shutil
import time
from pathlib import Path

import pytest

from zoo.lessons import LESSONS

DOCS = Path(__file__).parents[2] / "docs"
NAMES = [lesson.name for lesson in LESSONS.values()]
LARGEST = 200_000  # bytes
LONGEST = 600  # seconds


def _text(name):
    return (DOCS / "lessons" / f"{name}.md").read_text(encoding="utf-8")


def _cells(name, kind="code"):
    cells = json.loads((DOCS / "lessons" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == kind]


def _options(text):
    return dict(re.findall(r"^:(\w+): (.*)$", text, re.MULTILINE))


def test_every_text_is_a_lesson():
    for ending in ("md", "ipynb"):
        assert sorted(path.stem for path in (DOCS / "lessons").glob(f"[0-9]*.{ending}")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_is_that_of_its_text(name):
    """If not: python docs/build_lessons.py NAME."""
    written = re.findall(
        r"^```\{code-cell\} ipython3\n((?::\w+: [^\n]*\n)*)\n*(.*?)^```$", _text(name), re.DOTALL | re.MULTILINE
    )
    cells = _cells(name)
    assert [code.strip() for _, code in written] == ["".join(cell["source"]).strip() for cell in cells]
    for (options, _), cell in zip(written, cells, strict=True):
        tags = ", ".join(cell["metadata"].get("tags", []))
        assert _options(options).get("tags", "[]") == f"[{tags}]"
    body = re.sub(r"\A---\n.*?\n---\n", "", _text(name), flags=re.DOTALL)
    prose = re.sub(r"^```\{code-cell\}.*?^```$", "", body, flags=re.DOTALL | re.MULTILINE)
    assert prose.split() == " ".join("".join(cell["source"]) for cell in _cells(name, "markdown")).split()


@pytest.mark.parametrize("name", NAMES)
def test_it_was_run_without_an_error_and_has_a_picture(name):
    outputs = [output for cell in _cells(name) for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert not [output for output in outputs if output.get("name") == "stderr"]
    counts = [cell["execution_count"] for cell in _cells(name)]
    assert counts == [*range(1, len(counts) + 1)]
    drawn = [
        cell
        for cell in _cells(name)
        if any({"image/png", "image/jpeg"} & {*output.get("data", {})} for output in cell["outputs"])
    ]
    assert drawn and all(cell["metadata"].get("alt") for cell in drawn)
    assert (DOCS / "lessons" / f"{name}.ipynb").stat().st_size <= LARGEST


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_from_top_to_bottom(name, tmp_path, monkeypatch):
    """In a folder of its own, with one thread; what it prints may differ in the last digits, so only errors count."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    spec = importlib.util.spec_from_file_location("build_lessons", DOCS / "build_lessons.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    shutil.copy(DOCS / "lessons" / f"{name}.md", tmp_path)
    start = time.perf_counter()
    notebook = build.run(tmp_path / f"{name}.md", tmp_path)
    print(f"{name}: {time.perf_counter() - start:.0f} s")
    assert time.perf_counter() - start <= LONGEST
    assert [cell["source"] for cell in notebook.cells if cell["cell_type"] == "code"] == [
        "".join(c["source"]) for c in _cells(name)
    ]
