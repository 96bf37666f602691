"""The built page in zoo/demo/site: what it carries, and that it is built from web/."""

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from page_engine import missing

from zoo.demo import SITE
from zoo.demo.page import packed
from zoo.demo.wrapped import unwrapped, wrapped

WEB = Path(__file__).parents[2] / "web"


def test_all_of_it_is_there():
    assert {path.name for path in SITE.iterdir()} >= {
        *("index.html", "page.js", "style.css", "licences.txt", "engine.wasm.js", "sentences.wasm.js")
    }
    for name in ("engine.wasm.js", "sentences.wasm.js"):
        assert gzip.decompress(unwrapped((SITE / name).read_bytes()))[:4] == b"\0asm"
    assert sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file()) <= 7e6


@pytest.mark.parametrize("content", [b"", b"*/", b"/*/**//*//", b"*", b"/", bytes(range(256)) * 3, b"*/" * 500 + b"*"])
def test_a_file_is_what_its_script_has(content):
    script = wrapped("models/a/ß.onnx", content)
    assert unwrapped(script) == content and script.isascii() == content.isascii()
    assert script.partition(b"/*")[2].count(b"*/") == 1  # the comment ends once


def test_weights_are_packed_well():
    """Better than by gzip's own choice, whose repetitions of three bytes cost more than they save in random weights."""
    weights = np.random.default_rng(0).normal(0, 12, 300_000).round().astype(np.int8).tobytes()
    for content in (weights, b'{"a": [1, 2, 3]}' * 500, b""):
        script = packed("models/a/step.onnx", content)
        assert gzip.decompress(unwrapped(script)) == content and packed("models/a/step.onnx", content) == script
    assert len(packed("a", weights)) < 0.99 * len(gzip.compress(weights, 9))


def test_samples_have_their_licence():
    licence = (SITE / "photos" / "LICENSE").read_text(encoding="utf-8")
    names = {path.name.removesuffix(".js") for path in (SITE / "photos").glob("*.jpg.js")}
    assert len(names) >= 4 and all(f"| {name} |" in licence for name in names)
    for name in names:
        assert (
            unwrapped((SITE / "photos" / f"{name}.js").read_bytes()) == (WEB.parent / "docs/photos" / name).read_bytes()
        )


def test_each_package_in_it_has_its_licence():
    licences = (SITE / "licences.txt").read_text(encoding="utf-8")
    packages = json.loads((WEB / "package.json").read_text(encoding="utf-8"))["dependencies"]
    for name, version in packages.items():
        assert re.fullmatch(r"[\d.]+", version), f"{name} is not pinned"
        assert f"\n{name} {version} (" in licences
    assert "Copyright (c) Microsoft Corporation" in licences and "what onnxruntime contains" in licences
    assert licences.rstrip().endswith("SOFTWARE.")  # that of sentencex-wasm, the last one


def test_it_asks_nobody_else():
    page = (SITE / "index.html").read_text(encoding="utf-8")
    assert "default-src 'self'" in page and not re.search(r"(src|href)=\"(?!data:)[a-z]*:?//", page)


def test_the_lock_file_names_no_host():
    assert "http" not in (WEB / "package-lock.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_it_is_what_web_builds(tmp_path):
    if shutil.which("npm") is None:
        missing("npm is not installed")
    shutil.copytree(WEB, tmp_path / "web", ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(WEB.parent / "docs" / "photos", tmp_path / "docs" / "photos")
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=tmp_path / "web", check=True)
    built = tmp_path / "site"
    subprocess.run(["npm", "run", "build", "--", str(built)], cwd=tmp_path / "web", check=True)
    found, committed = (
        {path.relative_to(top): path for path in top.rglob("*") if path.is_file()} for top in (built, SITE)
    )
    assert found.keys() == committed.keys()
    for name, path in committed.items():
        read = _program if name.match("*.wasm.js") else bytes  # zlib differs between versions of node
        assert read(found[name].read_bytes()) == read(path.read_bytes()), name


def _program(script):
    return gzip.decompress(unwrapped(script))
