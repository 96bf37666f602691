"""The `zoo` command in a process to which something is denied: rights, room on the disk, a reader, or its own end."""

import ctypes
import importlib
import os
import signal
import sys
from pathlib import Path

from forks import command

UNABLE = 77  # exit code where the system does not let this process be limited so
_VERSION_3 = 0x20080522  # of the capabilities of Linux
_NEW_MOUNTS, _PRIVATE, _READ_ONLY = 0x20000, 0x4000 | 0x40000, 1


def without_rights(*args: str) -> None:
    """As a user who may not open everything: root gives up its capabilities."""
    if os.geteuid() == 0:
        header, none = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
        capset = getattr(ctypes.CDLL(None), "capset", None)
        if capset is None or capset(header, none):
            sys.exit(UNABLE)
    command(*args)


def on_a_small_disk(folder: str, size: str, *args: str) -> None:
    """With a disk of some bytes at a folder, which only this process sees; "0": one that is read-only."""
    system, flags = ctypes.CDLL(None), _READ_ONLY if size == "0" else 0
    if not hasattr(system, "unshare") or system.unshare(_NEW_MOUNTS):
        sys.exit(UNABLE)
    kept = {} if size == "0" else {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    option = b"" if size == "0" else f"size={size}".encode()
    if system.mount(b"none", b"/", None, _PRIVATE, None) or system.mount(
        b"tmpfs", os.fsencode(os.path.abspath(folder)), b"tmpfs", flags, option
    ):
        sys.exit(UNABLE)
    for name, content in kept.items():
        Path(folder, name).write_bytes(content)
    try:
        command(*args)
    finally:
        print("left:", {path.name: path.stat().st_size for path in Path(folder).iterdir()}, file=sys.stderr)


def with_small_files(size: int, *args: str) -> None:
    """With a limit to the size of each file, which everywhere does what a full disk does."""
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    command(*args)


def into(target: str, *args: str) -> None:
    """With a standard output that is a pipe nobody reads ("closed"), or a file such as /dev/full."""
    if target == "closed":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(target, os.O_WRONLY)
    os.dup2(writer, 1)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    try:
        command(*args)
    finally:
        sys.stdout.flush()


def stopped(name: str, place: str, *args: str) -> None:
    """With a signal to itself when the function `module:name` is called."""
    module, _, attribute = place.partition(":")
    owner = importlib.import_module(module)
    function = getattr(owner, attribute)

    def call(*arguments, **options):
        os.kill(os.getpid(), signal.Signals[name])
        return function(*arguments, **options)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    setattr(owner, attribute, call)
    command(*args)
