"""The encoding of standard input, output and errors."""

import os
import sys


def prepare_streams() -> None:
    """Makes the standard streams UTF-8 unless they are a terminal or PYTHONIOENCODING names another encoding.

    Files and pipes are UTF-8 almost everywhere; Python would take the encoding of the locale. Whatever an encoding
    cannot write appears as a backslash and its code, so that no answer is lost. Where standard error is closed, Python
    would print warnings among the answers.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # as long as the process
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is None or is_utf8(stream):
            continue
        if not (stream.isatty() or os.environ.get("PYTHONIOENCODING", "").partition(":")[0]):
            reconfigure(encoding="utf-8")
        elif stream is sys.stdout:
            reconfigure(errors="backslashreplace")


def is_utf8(stream: object) -> bool:
    """Whether a stream of text is in UTF-8."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").replace("_", "") == "utf8"
