"""Commands that messages show, to be copied into a terminal."""

import os
import re
import shlex


def command_line(words: list[str], windows: bool = os.name == "nt") -> str:
    """The words as one line, with quotes where this system's shells need them.

    Windows' command line knows double quotes alone, and a backslash, which is in each of its paths, only before one
    (https://learn.microsoft.com/cpp/c-language/parsing-c-command-line-arguments).
    """
    if not windows:
        return shlex.join(words)
    return " ".join(word if re.fullmatch(r"[\w@+=:,./\\~-]+", word) else _in_double_quotes(word) for word in words)


def _in_double_quotes(word: str) -> str:
    doubled = re.sub(r'(\\+)(?="|$)', r"\1\1", word)
    return '"' + doubled.replace('"', r"\"") + '"'
