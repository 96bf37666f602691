import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from zoo.utils import memory
from zoo.utils.memory import peak_memory

MEGABYTE = 1 << 20


def test_memory_that_was_used_counts():
    """In a new process: what a large one has freed already would be used first."""
    lines = f"""
        from zoo.utils.memory import peak_memory
        before = peak_memory()
        content = b"1" * (200 * {MEGABYTE})
        used = peak_memory()
        del content
        print(before, used, peak_memory())
    """
    before, used, after = map(int, _run(lines).split())
    assert min(used, after) > before + 150 * MEGABYTE  # the system counts to about a megabyte


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="what others do is the system's affair")
def test_what_the_starting_process_had_does_not_count():
    content = b"1" * (300 * MEGABYTE)
    found = int(_run("from zoo.utils.memory import peak_memory; print(peak_memory())"))
    assert 0 < found < len(content) / 2


def test_a_system_that_does_not_say(monkeypatch):
    monkeypatch.setattr(memory, "Path", lambda path: Path("nowhere"))
    monkeypatch.setattr(memory, "resource", None)
    assert peak_memory() is None


def _run(lines):
    command = [sys.executable, "-c", textwrap.dedent(lines)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
