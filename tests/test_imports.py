"""Imports go one way, so that each folder can be read and used without those above it."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

import zoo
from zoo.tasks.base import ZooModule

PACKAGE = Path(zoo.__file__).parent
# What a folder (or a file beside them) may import, itself and utils apart; type hints count like everything else.
ALLOWED: dict[str, set[str]] = {
    "utils": set(),
    "layers": set(),
    "text": set(),
    "vision": set(),
    "metrics": set(),
    "plots": set(),
    "results": {"plots"},
    "bundles": set(),
    "batches": {"text"},
    "data": {"batches", "text", "vision"},
    "verbs": {"results", "text", "vision"},
    "runtime": {"text", "verbs"},
    "tasks": {"batches", "bundles", "layers", "metrics", "results", "text", "verbs", "vision"},
    "models": {"batches", "layers", "tasks", "text", "verbs"},
    "registry": {"bundles", "tasks"},
    "extensions": {"layers", "models", "tasks"},
    "explanations": {"batches", "layers", "models", "tasks", "text", "verbs", "vision"},
    "bridges": {"explanations", "results", "tasks", "text"},
    "training": {"bundles", "plots", "registry", "tasks", "text", "verbs"},
    "onnx_export": {"batches", "bundles", "layers", "models", "runtime", "tasks", "text", "verbs"},
    "ctranslate2_export": {"bundles", "layers", "models", "tasks", "text", "verbs"},
    "serving": {"registry", "text", "vision"},
    "demo": set(),
    "lessons": {"layers", "models"},
    "comparison": {"batches", "data", "metrics", "plots", "registry", "results", "tasks", "text", "training"},
    "rebuilding": {"bundles", "data", "registry", "tasks", "text", "training"},
    "commands": {
        "bundles",
        "ctranslate2_export",
        "comparison",
        "data",
        "demo",
        "lessons",
        "explanations",
        "metrics",
        "onnx_export",
        "plots",
        "rebuilding",
        "registry",
        "results",
        "runtime",
        "serving",
        "tasks",
        "training",
        "verbs",
        "vision",
    },
    "cli": {"commands"},
    "__init__": {"bundles", "explanations", "extensions", "registry", "results"},
    "__main__": {"cli"},
}
FILES = sorted(PACKAGE.rglob("*.py"))


def _imports(tree):
    """Dotted names that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_model(name):
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    return isinstance(found, type) and issubclass(found, ZooModule)


def _folder(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.relative_to(PACKAGE).as_posix())
def test_imports_go_one_way(file):
    folder = _folder(file)
    assert folder in ALLOWED, f"say here what {folder} may import"
    imported = set(_imports(ast.parse(file.read_text(encoding="utf-8"))))
    assert not {name for name in imported if name.split(".")[0] in ("tests", "recipes")}
    # `zoo.load` is of the file zoo/__init__.py
    ours = {
        part if (part := name.split(".")[1]) in ALLOWED else "__init__" for name in imported if name.startswith("zoo.")
    }
    assert ours <= ALLOWED[folder] | {folder, "utils"}, f"{folder} must not import {ours - ALLOWED[folder]}"
    if folder == "models":
        inherited = {name for name in imported if name.startswith("zoo.models.") and _is_model(name)}
        assert not inherited, "no model inherits from another; layers of an earlier paper may be used"
    others = {name.split(".")[0] for name in imported} - {"zoo"} - set(sys.stdlib_module_names)
    if folder == "layers":
        assert others <= {"torch"}
    if folder == "runtime":
        assert not others & {"torch", "torchvision", "torchmetrics", "lightning"}
    assert "huggingface_hub" not in others or file.relative_to(PACKAGE).as_posix() in (
        "bundles/cache.py",
        "bundles/hub.py",
        "bundles/waiting.py",
    )


def test_there_are_no_circles():
    above = {folder: allowed - {folder} for folder, allowed in ALLOWED.items()}
    assert above.keys() == {_folder(file) for file in FILES}
    while free := [folder for folder, allowed in above.items() if not allowed]:
        for folder in free:
            del above[folder]
        above = {folder: allowed - {*free} for folder, allowed in above.items()}
    assert not above, f"these import each other: {above}"


def test_common_data_know_no_task():
    for file in (PACKAGE / "data/common").glob("*.py"):
        imported = set(_imports(ast.parse(file.read_text(encoding="utf-8"))))
        assert not {name for name in imported if name.startswith("zoo.data.") and ".common." not in name}, file.name


def test_no_arrow_is_only_on_paper():
    drawn = {
        (_folder(file), name.split(".")[1])
        for file in FILES
        for name in _imports(ast.parse(file.read_text(encoding="utf-8")))
        if name.startswith("zoo.")
    }
    assert not {
        (folder, other) for folder, allowed in ALLOWED.items() for other in allowed if (folder, other) not in drawn
    }
