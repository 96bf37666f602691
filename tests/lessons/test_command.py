"""`zoo lesson`, as a reader uses it."""

import inspect
import json
import re
from pathlib import Path

import pytest
from lessons import solutions

from zoo import registry
from zoo.bundles import pins
from zoo.cli import main
from zoo.lessons import LESSONS, exercises_of

ROOT = Path(__file__).parents[2]


def _fails(capsys, *args):
    assert main(["lesson", *args]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("zoo: error: ")


def _answer(notebook, functions):
    """Writes functions into the cells of their names."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        name = "".join(cell["source"]).removeprefix("def ").partition("(")[0]
        if name in functions and "answer" in cell["metadata"].get("tags", []):
            cell["source"] = functions[name]
    notebook.write_text(json.dumps(content), encoding="utf-8")


def test_list(capsys):
    assert main(["lesson", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[0] == "1  Why is one vector not enough?"


def test_open_then_check(tmp_path, monkeypatch, capsys):
    """A fresh copy has no right answers, a solved one only such; in between each exercise is judged by itself."""
    monkeypatch.chdir(tmp_path)
    assert main(["lesson", "open", "3"]) == 0
    assert capsys.readouterr().out == "03_scores_and_scaling.ipynb\n"
    with pytest.raises(SystemExit) as stopped:
        main(["lesson", "check", "3"])
    nothing = "wrong: it returns nothing yet\n"
    assert stopped.value.code == 1 and capsys.readouterr().out == "".join(f"3.{n} {nothing}" for n in range(1, 6))
    _answer(tmp_path / "03_scores_and_scaling.ipynb", {"scaled_dot": inspect.getsource(solutions.scaled_dot)})
    with pytest.raises(SystemExit):
        main(["lesson", "check", "3"])
    assert capsys.readouterr().out.splitlines()[:2] == ["3.1 right", "3.2 wrong: it returns nothing yet"]
    assert "exists already" in _fails(capsys, "open", "3")


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_solved_notebook(lesson, tmp_path, capsys):
    assert main(["lesson", "open", str(lesson), str(tmp_path / "new")]) == 0
    (notebook,) = (tmp_path / "new").iterdir()
    names = [exercise.function for exercise in exercises_of(lesson).values()]
    _answer(notebook, {name: inspect.getsource(getattr(solutions, name)) for name in names})
    capsys.readouterr()
    assert main(["lesson", "check", str(lesson), str(notebook)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{number} right" for number in exercises_of(lesson)]


def test_a_cell_that_fails_leaves_the_others(tmp_path, capsys):
    main(["lesson", "open", "3", str(tmp_path)])
    (notebook,) = tmp_path.iterdir()
    _answer(notebook, {"general": "def general(:", "scaled_dot": inspect.getsource(solutions.scaled_dot)})
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["lesson", "check", "3", str(notebook)])
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first == "3.1 right" and second.startswith("3.2 wrong: there is no function general; SyntaxError: ")


def test_mistakes_of_users(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert _fails(capsys, "open") == "give the number of a lesson, from 1 to 8; got none"
    assert _fails(capsys, "open", "9") == "give the number of a lesson, from 1 to 8; got 9"
    assert _fails(capsys, "list", "3") == "zoo lesson list takes no number; zoo lesson open copies a notebook"
    assert _fails(capsys, "check", "2").startswith(
        "there is no notebook 02_additive_attention.ipynb; zoo lesson open 2 "
    )
    for content in ("x", "[]", '{"cells": 3}', '{"cells": [{"metadata": {"tags": ["answer"]}}]}'):
        (tmp_path / "a.ipynb").write_text(content)
        assert _fails(capsys, "check", "2", "a.ipynb") == "a.ipynb is no notebook; give the .ipynb file of the lesson"
    main(["lesson", "open", "3"])
    wrong = _fails(capsys, "check", "2", "03_scores_and_scaling.ipynb")
    assert wrong == "03_scores_and_scaling.ipynb has no answer to lesson 2; give the notebook of that lesson"


# ---- weights ----


@pytest.mark.parametrize("lesson", LESSONS.values(), ids=lambda lesson: lesson.name)
def test_the_weights_of_a_lesson_are_those_that_it_loads(lesson):
    text = (ROOT / "docs" / "lessons" / f"{lesson.name}.md").read_text(encoding="utf-8")
    assert sorted({*re.findall(r"""zoo\.load\("([^"]+)"\)""", text)}) == sorted(lesson.weights)


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """An installation with the weights that the wheel carries."""
    for name in re.findall(r'"!/zoo/weights/(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8")):
        (tmp_path / "weights" / name).mkdir(parents=True)
    monkeypatch.setattr(registry, "BUNDLED", tmp_path / "weights")
    monkeypatch.setattr(registry, "PINS", tmp_path / "pins.json")
    pins.write(registry.PINS, {})
    return {n for n, lesson in LESSONS.items() if not all(registry.is_bundled(name) for name in lesson.weights)}


def test_a_lesson_says_how_to_get_a_weight_that_the_wheel_lacks(wheel, tmp_path, capsys, monkeypatch):
    assert not wheel  # as docs/lessons/index.md says
    for n in (2, 4, 7):  # and with a smaller wheel
        (registry.BUNDLED / LESSONS[n].weights[0]).rmdir()
    pins.write(registry.PINS, {LESSONS[n].weights[0]: pins.Pin("me/x", f"{n}" * 40) for n in (2, 4)})
    monkeypatch.setattr("zoo.commands.lesson.is_cached", lambda repo_id, revision: revision == "4" * 40)
    said = {}
    for lesson in LESSONS:
        assert main(["lesson", "open", str(lesson), str(tmp_path)]) == 0
        said[lesson] = capsys.readouterr().err
    assert said.pop(2) == (
        "zoo: lesson 2 needs a weight that is not here; fetch it with: zoo download luong_concat_no_feed.multi30k_en_de\n"
    )
    unpublished = said.pop(7)
    assert unpublished.startswith("zoo: lesson 7 needs a weight: transformer_128.multi30k_en_de is neither in this")
    assert "clone the repository" in unpublished and unpublished.count("\n") == 1
    assert set(said.values()) == {""}
