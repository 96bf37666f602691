"""Folders that begin with the home of a user."""

from pathlib import Path

import pytest

import zoo.runtime
from zoo.cli import main
from zoo.data.common.files import data_root
from zoo.utils.places import at_home

UNKNOWN = "~nobody-of-this-name/x"


def test_the_home_of_the_user(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert at_home("~/a") == Path("/home/me/a") and at_home("a/~") == Path("a/~")


@pytest.mark.parametrize(
    "args",
    [
        ["predict", f"local-dir:{UNKNOWN}", "a"],
        ["test", f"local-dir:{UNKNOWN}"],
        ["demo", f"local-dir:{UNKNOWN}"],
        ["demo", "--export", UNKNOWN],
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_a_user_that_does_not_exist_is_one_line(args, capsys):
    assert main(args) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"zoo: error: {UNKNOWN}: there is no such user; give the folder without ~"


def test_a_user_that_does_not_exist_in_python():
    for use in (data_root, zoo.runtime.load):
        with pytest.raises(ValueError, match="there is no such user"):
            use(UNKNOWN)
