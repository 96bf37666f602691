"""Models on an accelerator: on a device of their own, which a C++ compiler makes (tests/helpers/emulated_device.cpp).

It has what all of them have, another memory than the CPU's, and what Apple's lack, float64. In a process of its own,
because torch counts the devices of a process once.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import emulated_device
import pytest

CASES = Path(__file__).with_name("cases.py")


@pytest.mark.integration
@pytest.mark.skipif(not shutil.which("g++") and "CI" not in os.environ, reason="needs g++")
def test_on_an_emulated_accelerator(tmp_path):
    library = tmp_path / "emulated_device.so"
    emulated_device.compile_device(library)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", str(CASES)]
    done = subprocess.run(
        command,
        env=os.environ | {emulated_device.LIBRARY: str(library)},
        capture_output=True,
        text=True,
        cwd=CASES.parents[2],
    )
    assert done.returncode == 0, done.stdout + done.stderr
