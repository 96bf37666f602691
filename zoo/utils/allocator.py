"""One setting of the C library that a training or decoding process wants."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h


def keep_freed_memory() -> None:
    """Tells glibc's malloc to keep freed memory for the next tensor instead of returning it to the system.

    Every step allocates and frees the same large tensors. Handed back each time, their pages have to be mapped and
    zeroed anew, which costs several percent of a small model's time. Only for processes of our own (the command line,
    benchmarks): the peak stays the same, but memory is given back only at exit. Does nothing where there is no glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(_M_TOP_PAD, 64 << 20)
