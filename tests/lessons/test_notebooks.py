"""The notebooks have the code of their texts, are small, and run."""

import importlib.util
import json
import re
import shutil
import sys
import types
from pathlib import Path

import pytest
from forks import Fork
from IPython.core.inputtransformer2 import TransformerManager
from lesson_cells import run_cells

from zoo.lessons import LESSONS

pytestmark = pytest.mark.integration

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


def _install_cells():
    cells = [cell for name in NAMES for cell in _cells(name) if "install" in cell["metadata"].get("tags", [])]
    assert len(cells) == len(NAMES)
    return {"".join(cell["source"]) for cell in cells}


@pytest.fixture
def install(monkeypatch):
    """Runs the cell that installs the package, in a folder; a function that gets what pip is called with."""
    (cell,) = _install_cells()  # the same one in all lessons
    code = TransformerManager().transform_cell(cell)
    is_there, find = [False], importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: find(name) if is_there[0] or name != "zoo" else None)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(folder, works):
        called, names = [], {}

        def pip(magic, line):
            assert magic == "pip"
            called.append(line.format(**names))
            is_there[0] = works

        names["get_ipython"] = lambda: types.SimpleNamespace(run_line_magic=pip)
        monkeypatch.chdir(folder)
        try:
            exec(code, names)
        finally:
            is_there[0] = False
        return called

    return run


def test_the_package_is_installed_from_what_is_there(install, tmp_path):
    """A clone around the notebook or beside it, a wheel beside it, or else the package index."""
    clone, alone = tmp_path / "my clone", tmp_path / "alone"
    (clone / "zoo" / "lessons").mkdir(parents=True)
    (clone / "docs" / "lessons").mkdir(parents=True)
    assert install(clone / "docs" / "lessons", works=True) == [f'install -q -e "{clone}[plots]"']
    assert sys.path[0] == str(clone)
    assert install(tmp_path, works=True) == [f'install -q -e "{clone}[plots]"']  # unpacked beside it
    alone.mkdir()
    wheel = alone / "attention_zoo-0.1.0-py3-none-any.whl"
    (clone / "zoo" / "lessons").rmdir()
    assert install(alone, works=True) == ['install -q "attention-zoo[plots]"']
    with pytest.raises(ModuleNotFoundError, match="put the wheel of attention-zoo, or a clone, beside this notebook"):
        install(alone, works=False)
    wheel.touch()
    assert install(alone, works=True) == [f'install -q "{wheel}[plots]"']


def test_an_installed_package_stays():
    (cell,) = _install_cells()
    called = []
    shell = types.SimpleNamespace(run_line_magic=lambda *line: called.append(line))
    exec(TransformerManager().transform_cell(cell), {"get_ipython": lambda: shell})
    assert not called  # pip


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


def test_a_notebook_is_built_from_its_text(tmp_path, monkeypatch):
    """In a folder of its own; what it prints may differ in the last digits, so only errors count."""
    name = NAMES[1]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    spec = importlib.util.spec_from_file_location("build_lessons", DOCS / "build_lessons.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    shutil.copy(DOCS / "lessons" / f"{name}.md", tmp_path)
    notebook = build.run(tmp_path / f"{name}.md", tmp_path)
    cells = [cell for cell in notebook.cells if cell["cell_type"] == "code"]
    assert [cell["source"] for cell in cells] == ["".join(cell["source"]) for cell in _cells(name)]
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"])


FEWER_STEPS = {"steps=700": "steps=20"}  # of the networks that the first lesson trains, which takes a minute of a core


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (NAMES[0], FEWER_STEPS),
        pytest.param(NAMES[0], {}, marks=pytest.mark.slow, id=f"{NAMES[0]}-whole"),
        *((name, {}) for name in NAMES[2:]),
    ],
)
def test_it_runs_from_top_to_bottom(name, changes, tmp_path, monkeypatch):
    """As `test_a_notebook_is_built_from_its_text`, without the start of a kernel."""
    sources = ["".join(cell["source"]) for cell in _cells(name)]
    for before, after in changes.items():
        assert any(before in source for source in sources), f"{name} has no {before} any more"
        sources = [source.replace(before, after) for source in sources]
    monkeypatch.chdir(tmp_path)
    end = Fork(run_cells, sources).wait(LONGEST)
    assert end.code == 0, end.output
