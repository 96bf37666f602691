"""A setting of the C library for training and decoding processes."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h


def keep_freed_memory() -> None:
    """Tells glibc's malloc to keep freed memory for the next tensor instead of returning it to the system.

    Every step allocates and frees large tensors. If their pages go back to the system, they must be mapped and zeroed
    again each time, which costs several percent of a small model's time, and a quarter of that of a reader of long
    documents. Only for processes of our own (command line, benchmarks): memory is returned only at exit, and where
    sizes differ from batch to batch more of it is held (such a reader after 320 steps: 5.2 GB instead of 4.1), because
    freed tensors leave gaps that the next ones do not fill. Does nothing without glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(_M_TOP_PAD, 64 << 20)
