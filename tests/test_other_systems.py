"""`zoo` where the POSIX half of Python is missing, as on Windows: see tests/helpers/other_system.py."""

import ast
from pathlib import Path

import pytest
import yaml
from fakes import settings
from forks import Fork
from other_system import MODULES, NAMES, everything

import zoo

FILES = sorted(Path(zoo.__file__).parent.rglob("*.py"))


COMMANDS = [
    ["list", "luong*"],
    ["predict", "luong_dot.dates", "tuesday july 8 2008", "--html", "page.html"],
    ["fit", "--config", "tiny.yaml"],
    ["export", "runs/tiny/checkpoints/best.ckpt", "weights"],
    ["compare", "--out", "comparison", "--report"],  # there is nothing to report yet
]
LONGER = [
    ["fit", "--config", "tiny.yaml", "--ckpt_path", "last", "--trainer.max_epochs", "2"],
    ["test", "--config", "tiny.yaml", "--ckpt_path", "best"],
]


@pytest.mark.parametrize("more", [[], pytest.param(LONGER, marks=pytest.mark.slow)], ids=["short", "long"])
def test_every_module_and_the_commands_work_without_posix(more, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    sizes = {"src_vocab_size": 80, "tgt_vocab_size": 20, "embedding_size": 4, "hidden_size": 4}
    data = {"train_size": 20, "val_size": 4, "test_size": 4, "batch_size": 10}
    recipe = {
        "trainer": {"max_epochs": 1, "accelerator": "cpu", "enable_model_summary": False},
        "model": {"class_path": "zoo.models.luong.LuongNMT", "init_args": sizes},
        "data": {"class_path": "zoo.data.Dates", "init_args": data},
        **settings(),
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    commands = [*COMMANDS, *more]
    end = Fork(everything, str(tmp_path), *commands).wait()
    assert end.code == 0 and "Traceback" not in end.output, end.output
    ended = [line for line in end.output.splitlines() if " ended with " in line]
    assert ended == [f"{verb} ended with {2 * (verb == 'compare')}" for verb, *_ in commands], end.output
    assert "2008-07-08" in end.output and "zoo: error: comparison has no results" in end.output
    assert (tmp_path / "weights/config.json").is_file() and (tmp_path / "runs/tiny/metrics.csv").is_file()


def _guarded(tree):
    """Nodes under `if`, `try`, or a conditional expression."""
    guards = (ast.If, ast.Try, ast.IfExp)
    return {id(inner) for node in ast.walk(tree) if isinstance(node, guards) for inner in ast.walk(node)}


def test_what_posix_alone_has_is_guarded():
    """Code that did not run above too."""
    found = {}
    for file in FILES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        guarded, bare = _guarded(tree), set()
        for node in ast.walk(tree):
            if id(node) in guarded:
                continue
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                bare |= {node.attr} & set(NAMES.get(node.value.id, []))
            elif isinstance(node, ast.Import):
                bare |= {alias.name for alias in node.names} & set(MODULES)
            elif isinstance(node, ast.ImportFrom):
                absent = set(NAMES.get(node.module or "", []))
                bare |= ({node.module} & set(MODULES)) | ({alias.name for alias in node.names} & absent)
        found |= {file.name: bare} if bare else {}
    assert len(FILES) > 100 and found == {}
