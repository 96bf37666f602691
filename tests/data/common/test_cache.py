"""The cache: damage is found, named and mended, changed files are noticed, leftovers go, full disks and odd files are
one line.
"""

import errno
import json
import logging
import os
import time

import numpy as np
import process_worker
import pytest
import torch
from forks import Fork

from zoo.data import LabeledText, ParallelText, PlainText
from zoo.data.captioning.image_files import state_of
from zoo.data.common.cache import appearing_when_complete, cached_text, is_intact, write_file
from zoo.data.common.files import fingerprint, read_lines

POSIX = pytest.mark.skipif(os.name != "posix", reason="locks of folders")


def texts(tmp_path):
    (tmp_path / "t.tsv").write_text(
        "label\ttext\n" + "".join(f"{'xy'[n % 2]}\tword{n % 7} good {n}\n" for n in range(40))
    )
    return LabeledText("t.tsv", root=str(tmp_path), cache_dir=str(tmp_path / "cache"), min_frequency=1, batch_size=8)


def pairs(tmp_path):
    (tmp_path / "p.tsv").write_text("".join(f"a{n} b c\tc b a{n}\n" for n in range(200)))
    return ParallelText(
        "p.tsv", root=str(tmp_path), cache_dir=str(tmp_path / "cache"), tokenizer="word", val_fraction=0.2
    )


def running(tmp_path):
    (tmp_path / "r.txt").write_text("".join(f"line {n} of the text .\n" for n in range(60)))
    return PlainText("r.txt", root=str(tmp_path), cache_dir=str(tmp_path / "cache"), batch_size=2)


def batches(data):
    data.prepare_data()
    data.setup("fit")
    loader = data.train_dataloader()
    stream = loader.__iter__()
    return [x for batch in [next(stream) for _ in range(2)] for x in batch if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize(
    "make, damage",
    [(texts, "flip"), (pairs, "flip"), (running, "flip"), (texts, "cut"), (pairs, "empty"), (running, "gone")],
)
def test_every_damaged_file_is_named_and_made_again(make, damage, tmp_path, caplog):
    expected = batches(make(tmp_path))
    files = sorted(path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert len(files) >= 3
    for path in files:
        content = path.read_bytes()
        caplog.clear()
        if damage == "gone":
            path.unlink()
        else:
            middle = len(content) // 2
            flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
            path.write_bytes({"flip": flipped, "cut": content[:-1], "empty": b""}[damage])
        with caplog.at_level(logging.WARNING):
            found = batches(make(tmp_path))
        assert all(map(torch.equal, found, expected))
        said = [record.message for record in caplog.records if "damaged" in record.message]
        assert said == [f"{path} is damaged; it is made again"] or (damage == "gone" and not said)
        assert path.read_bytes() == content
    assert not list((tmp_path / "cache").rglob(".unfinished-*"))


def test_a_changed_file_of_the_same_size_and_time_is_noticed(tmp_path):
    data = running(tmp_path)
    first = batches(data)
    path = tmp_path / "r.txt"
    status = path.stat()
    path.write_text(path.read_text().replace("text", "book"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns and path.stat().st_size == status.st_size
    data = PlainText("r.txt", root=str(tmp_path), cache_dir=str(tmp_path / "cache"), batch_size=2)
    batches(data)
    assert "book" in data.tokenizer.to_json() and first


def test_a_file_in_another_place_is_the_same(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t").write_text("same")
    assert fingerprint(tmp_path / "one" / "t") == fingerprint(tmp_path / "two" / "t")
    assert fingerprint(tmp_path / "one" / "t") != fingerprint("same")


@POSIX
def test_images_behind_links(tmp_path):
    real, images = tmp_path / "real", tmp_path / "images"
    (real / "more").mkdir(parents=True)
    images.mkdir()
    for path in (real / "a.png", real / "more" / "b.png"):
        path.write_bytes(b"one")
    (images / "a.png").symlink_to(real / "a.png")
    (images / "more").symlink_to(real / "more")
    (images / "loop").symlink_to(images)
    (images / "dead").symlink_to(tmp_path / "nothing")
    seen = [state_of(images)]
    for path in (real / "a.png", real / "more" / "b.png"):
        status = path.stat()
        time.sleep(0.02)
        path.write_bytes(b"two")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        seen.append(state_of(images))
    assert len({*seen}) == 3 and state_of(images) == seen[-1]


@POSIX
def test_leftovers_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path):
    running = [Fork(process_worker.half_made, tmp_path, name) for name in ("alive", "killed")]
    try:
        end = time.monotonic() + 60
        while len(list(tmp_path.glob("*/new/x"))) < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        killed = running.pop()
        killed.kill()
        killed.wait()
        cached_text(tmp_path / "other", lambda: "text")
        left = [path for path in tmp_path.iterdir() if path.name != "other"]
        assert len(left) == 1 and (left[0] / "new" / "x").exists()
    finally:
        for process in running:
            process.kill()
            process.wait()
    write_file(tmp_path / "other", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_the_second_of_two_processes_takes_what_the_first_made(tmp_path):
    folder = tmp_path / "folder"
    with appearing_when_complete(folder) as slow:
        (slow / "x").write_text("the same")
        with appearing_when_complete(folder) as quick:
            (quick / "x").write_text("the same")
        inode = folder.stat().st_ino
    assert (
        folder.stat().st_ino == inode and is_intact(folder) and [path.name for path in tmp_path.iterdir()] == ["folder"]
    )
    (folder / "x").write_text("damaged!")
    with appearing_when_complete(folder) as again:
        (again / "x").write_text("the same")
    assert is_intact(folder) and (folder / "x").read_text() == "the same"


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path):
    folder = tmp_path / "texts" / "abc"
    with pytest.raises(OSError) as caught, appearing_when_complete(folder) as new:
        (new / "x").write_text("x")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(folder) and caught.value.strerror == "No space left on device"
    assert not list(folder.parent.iterdir())


@POSIX
def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, what in (("pipe", "not a regular file"), ("folder", "a folder")):
        with pytest.raises(ValueError, match=f"{name} is {what}; give a file"):
            list(read_lines(tmp_path / name))
    with pytest.raises(ValueError, match="pipe is not a regular file; give a file"):
        LabeledText("pipe", root=str(tmp_path)).prepare_data()


def test_a_class_moved_to_another_folder_is_noticed(tmp_path):
    for label, word in (("a", "x"), ("b", "y")):
        (tmp_path / "train" / label).mkdir(parents=True)
        for n in range(10):
            (tmp_path / "train" / label / f"{n}.txt").write_text(f"{word} {n}")
    before = LabeledText("train", root=str(tmp_path)).signature("train")
    (tmp_path / "train" / "a").rename(tmp_path / "train" / "c")
    assert LabeledText("train", root=str(tmp_path)).signature("train") != before


def test_checksums_themselves_are_checked(tmp_path):
    with appearing_when_complete(tmp_path / "f") as new:
        np.arange(9).tofile(new / "x")
    sums = tmp_path / "f" / "checksums.json"
    sums.write_text(json.dumps({}))
    assert not is_intact(tmp_path / "f")
