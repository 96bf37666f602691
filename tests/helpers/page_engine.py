"""The engine of the page, zoo/demo/site/page.js, in a process of node; and a folder that looks like an export."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from zoo.demo import SITE

RUN = Path(__file__).parents[2] / "web" / "tests" / "run.mjs"


def missing(what):
    """Skips a test; with CI in the environment it fails, so that no test of the page is left out there unnoticed."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{what}; .ci/browser installs it")


class Engine:
    """Answers requests of web/tests/run.mjs, one after the other."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["node", RUN, SITE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, do, **request):
        """The answer; a message of the engine becomes a ValueError."""
        self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline())
        if "error" in found:
            raise ValueError(found["error"])
        return found["answer"]

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)


def make_export(folder):
    """The files of an export, as far as the server reads them."""
    folder.mkdir()
    (folder / "step.onnx").write_bytes(bytes(range(256)) * 40)
    about = {
        "task": "translation",
        "class": "LuongNMT",
        "parameters": 5,
        "sha256": {"step.onnx": hashlib.sha256((folder / "step.onnx").read_bytes()).hexdigest()},
    }
    (folder / "onnx.json").write_text(json.dumps(about))
    (folder / "README.md").write_text("not of the export")
    return folder


@pytest.fixture(scope="session")
def engine():
    if shutil.which("node") is None:
        missing("the page's engine runs in node here, which is not installed")
    found = Engine()
    yield found
    found.close()
