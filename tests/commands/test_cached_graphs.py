"""`zoo cache` and the graphs that `--runtime onnx` exported."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

import zoo
from zoo.cli import main
from zoo.commands import graphs

NAME = "luong_dot.dates-1.0123456789ab"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache with one export; what its files hold does not matter."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path))
    folder = tmp_path / "graphs" / NAME
    folder.mkdir(parents=True)
    (folder / "onnx.json").write_text("{}")
    return folder


def test_they_are_shown_and_removed(folder, capsys):
    assert main(["cache"]) == 0 and NAME in capsys.readouterr().out
    assert main(["cache", "clear", NAME]) == 0
    assert f"removed {NAME}" in capsys.readouterr().out and not folder.exists()


def test_an_unknown_name_removes_nothing(folder, capsys):
    assert main(["cache", "clear", NAME, "luong_dot.date"]) == 2
    assert "unknown model 'luong_dot.date'" in capsys.readouterr().err and folder.is_dir()


@pytest.mark.integration
@pytest.mark.parametrize("file", ["onnx.json", "step.onnx"])
def test_damaged_ones_are_exported_again(file, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path))
    command = ["predict", "luong_dot.dates", "3 May 1999", "--runtime", "onnx"]
    assert main(command) == 0
    first = capsys.readouterr()
    (folder,) = (tmp_path / "graphs").iterdir()
    assert first.err == f"zoo: exporting luong_dot.dates to {folder}, once\n"
    os.truncate(folder / file, 0)
    assert main(command) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert again.err == f"zoo: {folder} is damaged; exporting luong_dot.dates again\n"
    assert main(command) == 0 and capsys.readouterr().err == ""


def test_whether_attention_explains_is_said_of_the_same_weights(monkeypatch):
    monkeypatch.setattr(graphs, "graphs_of", lambda name, int8: Path(name))
    monkeypatch.setattr("zoo.runtime.load", lambda *_: SimpleNamespace(explains=None))
    for name in ("han.imdb", "luong_dot.dates"):
        assert graphs.load_graphs(name).explains == zoo.load(name).explains is not None
    assert graphs.load_graphs("han.imdb", int8=True).explains is None  # nobody has measured that
    assert graphs.load_graphs("local-dir:mine").explains is None


def test_torch_cannot_run_graphs(folder, monkeypatch, capsys):
    command = ["predict", f"local-dir:{folder}", "x", "--runtime", "torch"]
    assert main(command) == 2
    assert f"local-dir:{folder} holds exported graphs: leave out --runtime torch" in capsys.readouterr().err
    monkeypatch.setattr("zoo.commands.graphs.is_whole", lambda: False)
    assert main(command) == 2
    assert "this is attention-zoo-runtime, without torch: leave out --runtime torch" in capsys.readouterr().err


def test_the_runtime_alone_needs_a_folder_of_graphs(monkeypatch, capsys):
    monkeypatch.setattr("zoo.commands.graphs.is_whole", lambda: False)
    assert main(["predict", "local-dir:nothere", "x"]) == 2
    assert "local-dir:nothere is not a folder of exported graphs: it has no onnx.json; on" in capsys.readouterr().err
