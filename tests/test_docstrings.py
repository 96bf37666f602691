"""What `Args:` lists are parameters, each on a line of its own at the same depth, and so is what the other sections
say: help texts and the API reference are made of it.
"""

import ast
import re
from pathlib import Path

import pytest

import zoo

PACKAGE = Path(zoo.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def parameters(node):
    """Names of the parameters of a function, or of a class's constructor; None if that is inherited or generated."""
    if isinstance(node, ast.ClassDef):
        node = next((part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)
    if node is None:
        return None
    found = node.args
    extra = [part for part in (found.vararg, found.kwarg) if part]
    return {part.arg for part in found.posonlyargs + found.args + found.kwonlyargs + extra}


def faults(source):
    """Names that a docstring lists and the signature does not have, or that stand deeper than they should."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or (names := parameters(node)) is None:
            continue
        section = re.search(r"^Args:\n((?:    .*\n?)+)", ast.get_docstring(node) or "", re.MULTILINE)
        for line in section[1].splitlines() if section else ():
            found = re.match(r"( +)((?:\w+(?:, )?)+): ", line)
            for name in found[2].split(", ") if found else ():
                if len(found[1]) == 4 and name not in names:
                    yield f"{node.name} has no parameter {name}"
                if len(found[1]) > 4 and name in names:
                    yield f"{node.name}: {name} is indented too far"
        for name in re.findall(r"^(Returns|Raises|Yields):\n {5}", ast.get_docstring(node) or "", re.MULTILINE):
            yield f"{node.name}: what it {name.lower()} is indented too far"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_documented_parameters_exist(file):
    assert list(faults(file.read_text(encoding="utf-8"))) == []


def test_a_wrong_docstring_is_found():
    wrong = 'def f(a, b):\n    """F.\n\n    Args:\n        a: one\n            b: two\n        c: three\n    """\n'
    assert list(faults(wrong)) == ["f: b is indented too far", "f has no parameter c"]
    wrong = 'def f():\n    """F.\n\n    Returns:\n            a: one\n    """\n'
    assert list(faults(wrong)) == ["f: what it returns is indented too far"]
