"""Imports go one way, so that each part can be read and used without the ones above it."""

import ast
import sys
from pathlib import Path

import pytest

import zoo

PACKAGE = Path(zoo.__file__).parent
ALLOWED = {
    "utils": {"utils"},
    "extras": set(),
    "bundles": {"bundles", "utils"},
    "text": {"utils"},
    "labeled_text": {"text"},
    "cloze_text": {"labeled_text", "text"},
    "images": {"utils"},
    "backbones": set(),
    "plots": {"extras", "plots"},
    "schedule": set(),
    "vocabulary": {"text"},
    "finetuning": {"schedule"},
    "metrics": {"extras", "metrics"},
    "layers": {"layers"},
    "data": {"cloze_text", "data", "extras", "images", "labeled_text", "text", "utils"},
    "module": {"bundles", "utils"},
    "alignment": {"plots", "text"},
    "scoring": {"metrics", "module"},
    "translation": {"alignment", "extras", "module", "text", "layers", "metrics", "plots", "schedule", "scoring", "vocabulary"},
    "classification": {"module", "text", "labeled_text", "layers", "metrics", "plots", "schedule", "scoring", "utils", "vocabulary"},
    "reading": {"cloze_text", "labeled_text", "layers", "metrics", "module", "plots", "schedule", "scoring", "text"},
    "reranking": {"cloze_text", "reading"},
    "captioning": {"backbones", "images", "layers", "module", "text", "metrics", "plots", "schedule", "scoring", "vocabulary"},
    "language_modelling": {"module", "text", "layers", "metrics", "plots", "schedule", "vocabulary"},
    "models": {"captioning", "classification", "cloze_text", "images", "labeled_text", "language_modelling", "layers", "metrics", "module", "plots", "reading", "text", "translation"},
    "averaging": {"module"},
    "aligning": {"allocator", "data", "extras", "metrics", "plots", "registry"},
    "registry": {"bundles"},
    "checkpoints": {"bundles", "module", "registry", "utils"},
    "precision": set(),
    "signals": set(),
    "training": {"checkpoints", "module", "precision", "registry", "signals", "utils"},
    "allocator": set(),
    "predict": {"allocator", "extras", "images", "plots", "registry"},
    "serving": {"allocator", "cloze_text", "extras", "images", "registry", "serving", "utils"},
    "onnx_export": {"bundles", "captioning", "classification", "cloze_text", "extras", "labeled_text", "layers", "models", "module", "onnx_export", "text", "translation", "utils"},
    "comparison_measures": {"allocator", "checkpoints", "data", "metrics", "registry", "text", "translation"},
    "comparison_report": {"comparison_measures", "data", "extras", "plots"},
    "comparison": {"comparison_measures", "comparison_report", "data", "extras"},
    "cli": {"aligning", "allocator", "averaging", "bundles", "checkpoints", "comparison", "extras", "onnx_export", "predict", "registry", "serving", "training", "utils"},
    "__main__": {"cli"},
    "__init__": {"bundles", "registry"},
}
FILES = sorted(PACKAGE.rglob("*.py"))


def _imports(tree):
    """Dotted names that a file imports, except for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node)


def _part(dotted):
    """`zoo.layers.scores.dot` -> `layers`; `zoo.load` -> `__init__`."""
    name = dotted.split(".")[1]
    return name if name in ALLOWED else "__init__"


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.relative_to(PACKAGE).as_posix())
def test_imports_go_one_way(file):
    part = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert part in ALLOWED, f"say in ARCHITECTURE and here what {part} may import"
    imported = set(_imports(ast.parse(file.read_text(encoding="utf-8"))))
    assert not {name for name in imported if name.split(".")[0] in ("tests", "recipes")}
    ours = {_part(name) for name in imported if name.startswith("zoo.")} - {"__init__"}
    assert ours <= ALLOWED[part], f"{part} must not import {ours - ALLOWED[part]}"
    if part == "models":
        assert not {name for name in imported if name.startswith("zoo.models.")}, "what models share is in layers/"
    others = {name.split(".")[0] for name in imported} - {"zoo"} - set(sys.stdlib_module_names)
    if part == "layers":
        assert others <= {"torch"}
    assert "huggingface_hub" not in others or file.name == "hub.py"


def test_every_part_is_covered():
    parts = {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in FILES}
    assert parts == set(ALLOWED)
