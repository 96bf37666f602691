import subprocess
import sys
from pathlib import Path

import pytest

from zoo.utils import memory
from zoo.utils.memory import peak_memory

MEGABYTE = 1 << 20


def test_memory_that_was_used_counts():
    before = peak_memory()
    content = b"1" * (peak_memory() - _now() + 200 * MEGABYTE)
    assert peak_memory() >= before + 150 * MEGABYTE
    del content
    assert peak_memory() >= before + 150 * MEGABYTE


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="what others do is the system's affair")
def test_what_the_starting_process_had_does_not_count():
    content = b"1" * (300 * MEGABYTE)
    lines = "from zoo.utils.memory import peak_memory; print(peak_memory())"
    found = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert 0 < int(found.stdout) < len(content) / 2


def test_a_system_that_does_not_say(monkeypatch):
    monkeypatch.setattr(memory, "Path", lambda path: Path("nowhere"))
    monkeypatch.setattr(memory, "resource", None)
    assert peak_memory() is None


def _now():
    """Resident bytes, or the peak where that is not known."""
    try:
        return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024
    except OSError:
        return peak_memory()
