import os

import pytest

from zoo.data.common.cache import appearing_when_complete, is_intact
from zoo.utils import atomic


@pytest.fixture
def refuses(monkeypatch):
    """Makes `os.replace` refuse a number of times, as Windows does while another process has the file open."""
    replace, seen = os.replace, []

    def refused(source, target):
        seen.append((source, target))
        if len(seen) <= refuses.times:
            raise PermissionError(13, "Access is denied", str(source), 5, str(target))
        replace(source, target)

    def refuses(times, windows=True):
        refuses.times = times
        monkeypatch.setattr(os, "replace", refused)
        monkeypatch.setattr(atomic, "WINDOWS", windows)
        monkeypatch.setattr(atomic, "WAITS", (0.0,) * 4)
        return seen

    return refuses


def test_a_file_that_another_process_has_open_for_a_moment(refuses, tmp_path):
    seen = refuses(3)
    atomic.write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new" and len(seen) == 4


@pytest.mark.parametrize(("windows", "tries"), [(True, 5), (False, 1)])
def test_a_file_that_stays_open_is_not_replaced(windows, tries, refuses, tmp_path):
    (tmp_path / "a.txt").write_text("old")
    seen = refuses(9, windows)
    with pytest.raises(PermissionError) as error:
        atomic.write_text(tmp_path / "a.txt", "new")
    assert len(seen) == tries and error.value.filename == str(tmp_path / "a.txt")
    assert os.listdir(tmp_path) == ["a.txt"] and (tmp_path / "a.txt").read_text() == "old"


def test_a_folder_too(refuses, tmp_path):
    for word in ("old", "new"):
        refuses(2)
        with atomic.new_folder(tmp_path / "weights", lambda folder: ["a.txt"]) as new:
            (new / "a.txt").write_text(word)
    assert (tmp_path / "weights/a.txt").read_text() == "new" and os.listdir(tmp_path) == ["weights"]


def test_a_folder_of_the_cache_too(refuses, tmp_path):
    seen = refuses(3)
    with appearing_when_complete(tmp_path / "words") as new:
        (new / "a.txt").write_text("new")
    assert is_intact(tmp_path / "words") and len(seen) == 4
