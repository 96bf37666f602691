"""Which files of the data a process has read."""

import hashlib

import pytest

from zoo.rebuilding.inputs import files_read, listen


@pytest.fixture
def data(tmp_path):
    """A folder of data, in which some files, and one folder, are links to elsewhere."""
    store, folder = tmp_path / "store", tmp_path / "data"
    for place in (store / "more", folder / "nmt"):
        place.mkdir(parents=True)
    for file in (store / "linked.txt", store / "more" / "deep.txt", store / "other.txt", folder / "nmt" / "plain.txt"):
        file.write_text(file.name)
    try:
        (folder / "nmt" / "linked.txt").symlink_to(store / "linked.txt")
        (folder / "more").symlink_to(store / "more")
        (tmp_path / "alias").symlink_to(folder)
    except OSError:
        pytest.skip("no links here")
    return tmp_path


@pytest.mark.parametrize("given", ["data", "alias"])
def test_linked_files_are_noted_by_their_names_below_the_data(data, given):
    listen()
    for name in ("nmt/plain.txt", "nmt/linked.txt", "more/deep.txt"):
        (data / given / name).read_text()
    (data / "store" / "other.txt").read_text()  # of no folder of data
    names = {"more/deep.txt": "deep.txt", "nmt/linked.txt": "linked.txt", "nmt/plain.txt": "plain.txt"}
    expected = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in names.items()}
    assert files_read([str((data / "data").resolve())]) == expected
