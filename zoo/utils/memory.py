"""How much memory this process has had."""

import sys
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None


def peak_memory() -> int | None:
    """The most resident memory of this process, in bytes; None if the system does not say.

    On Linux `ru_maxrss` would be wrong: a new process begins with the peak of the one that started it.
    """
    try:
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
