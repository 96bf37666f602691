"""What computes: how many cores a process has, and of which processor."""

import functools
import os
import platform
from pathlib import Path


def usable_cores() -> int:
    """Cores that this process may use: under `taskset`, or in a container with a set of cores, not all of the machine.

    More threads than these would wait for each other; those of onnxruntime do so at full load.
    """
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def processor() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
