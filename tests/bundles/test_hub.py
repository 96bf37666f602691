"""Every way in which a folder of weights can be wrong gives one clear BundleError."""

import io
import json
import re
import threading
import time

import pytest
import torch
from fakes import Toy

from zoo.bundles import hub
from zoo.bundles.files import Bundle, BundleError, FetchError, local_dir, read_file
from zoo.bundles.waiting import Transfer


@pytest.fixture
def folder(tmp_path):
    return Toy().save_pretrained(tmp_path / "weights" / "toy")


@pytest.mark.parametrize("where", [10, -1])
def test_one_changed_bit_is_seen(folder, where):
    """Also in the data area, where the safetensors format itself has no check."""
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[where] ^= 1
    file.write_bytes(data)
    with pytest.raises(BundleError, match="model.safetensors is damaged or was changed: its sha256 is"):
        Bundle(folder).read("model.safetensors")
    with pytest.raises(BundleError, match="model.safetensors is damaged or was changed"):
        Toy.from_pretrained(folder)


def test_each_file_is_read_once(folder, monkeypatch):
    """What was verified is what is used, whatever becomes of the folder meanwhile."""
    read = []
    monkeypatch.setattr(
        "zoo.bundles.files.read_file", lambda where, name, most: read.append(name) or read_file(where, name, most)
    )
    Toy.from_pretrained(folder)
    assert sorted(read) == ["config.json", "model.safetensors", "words.json"]

    bundle = Bundle(folder)
    for name in bundle.sha256:
        bundle.read(name)
    for file in folder.iterdir():
        file.write_bytes(b"something else")
    assert Toy.from_pretrained(bundle).words == "words"


def test_racing_loads_have_the_weights_of_one_save(folder):
    """Somebody writes two versions of the weights in turn into the folder while others load: only whole ones are seen,
    or errors.
    """
    versions = []
    for n in range(2):
        model = Toy()
        torch.nn.init.constant_(model.embed.weight, n + 1.0)
        model.words = f"words {n}"
        saved = model.save_pretrained(folder.parent / str(n))
        versions.append({file.name: file.read_bytes() for file in saved.iterdir()})
    model.save_pretrained(folder)
    done = threading.Event()

    def write():
        while not done.is_set():
            for files in versions:
                for name, content in files.items():
                    (folder / name).write_bytes(content)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        loaded, refused = 0, 0
        end = time.monotonic() + 3
        while time.monotonic() < end and loaded < 20:
            try:
                model = Toy.from_pretrained(folder)
            except BundleError:
                refused += 1
                continue
            loaded += 1
            assert model.embed.weight.unique().tolist() == [int(model.words[-1]) + 1.0]
    finally:
        done.set()
        writer.join()
    assert loaded + refused > 20


def many_files(count):
    names = ["model.safetensors", *(f"{n}.txt" for n in range(count - 1))]
    return json.dumps({"class_path": "x", "init_args": {}, "sha256": dict.fromkeys(names, "0" * 64)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config.json is not valid JSON: "),
        ('{"class_path": 1, "class_path": 2}', "not valid JSON: a key occurs twice"),
        ('{"class_path": NaN}', "not valid JSON: NaN is not allowed"),
        ("[" * 100_000, "config.json is not valid JSON"),
        ("[]", "must hold exactly class_path"),
        ('{"class_path": "x", "init_args": {}}', "must hold exactly class_path"),
        ('{"class_path": "x", "init_args": {}, "sha256": []}', "must hold exactly class_path"),
        ('{"class_path": "x", "init_args": {}, "sha256": {"../x": ""}}', "'../x' is not a plain file name"),
        ('{"class_path": "x", "init_args": {}, "sha256": {}}', "sha256 does not list model.safetensors"),
        (
            '{"class_path": "x", "init_args": {"a": ' + "[" * 900 + "]" * 900 + '}, "sha256": {}, "digest": "0"}',
            "digest does not match|too deeply",
        ),
        (many_files(17), "sha256 lists 17 files; at most 16 are allowed"),
    ],
)
def test_bad_config(folder, text, message):
    (folder / "config.json").write_text(text)
    with pytest.raises(BundleError, match=message):
        Bundle(folder)


def test_unreadable_text(folder, monkeypatch):
    (folder / "config.json").write_bytes(b"\xff")
    with pytest.raises(BundleError, match="config.json is not UTF-8 text"):
        Bundle(folder)
    monkeypatch.setattr("zoo.bundles.files.MAX_TEXT_BYTES", 0)
    with pytest.raises(BundleError, match="config.json is larger than 0 MB"):
        Bundle(folder)
    (folder / "config.json").unlink()
    with pytest.raises(BundleError, match="toy is incomplete: config.json missing"):
        Bundle(folder)


def test_local_dir(folder):
    assert local_dir(str(folder)).folder == folder
    with pytest.raises(BundleError, match=r"local-dir:/nope is not a folder of weights: it has no config.json"):
        local_dir("/nope")


def test_download_that_fails_is_one_line(tmp_path, monkeypatch):
    """More of this, with a Hub, is in test_publish.py."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(FetchError) as error:
        hub.download("me/toy", "v1", lambda bundle: 0)
    assert str(error.value) == (
        "me/toy at revision v1 is not in the cache and HF_HUB_OFFLINE is set; unset it, or load a folder with "
        "local-dir:PATH"
    )


def test_split_source():
    assert hub.split_source("me/toy@v1.0") == ("me/toy", "v1.0")
    assert hub.split_source("me/toy@refs/pr/1") == ("me/toy", "refs/pr/1")
    for wrong in (
        "me/toy",
        "toy@v1",
        "me/toy@",
        "me/toy@a b",
        "me/../toy@v1",
        "../toy@v1",
        "me/toy@../../x",
        "me/toy@/etc",
    ):
        with pytest.raises(ValueError, match=r"expected hf-hub:ORG/REPO@REVISION .*; got 'hf-hub:" + re.escape(wrong)):
            hub.split_source(wrong)


def test_config_is_readable_by_people(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["class_path"] == "fakes.Toy"
    assert config["init_args"] == {"vocab_size": 7, "hidden": 4, "classes": 2, "dropout": 0.1}


def test_a_transfer_given_up_has_nothing_more_to_say(monkeypatch):
    """The client's own timeout may come a moment after ours, when the error is printed; but while it is waited for, it
    may tell that it tries again.
    """
    from huggingface_hub.utils.logging import get_logger

    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    client, given_up, ended = get_logger("huggingface_hub.of_a_test"), threading.Event(), threading.Event()
    stream = io.StringIO()
    for handler in get_logger().handlers:
        monkeypatch.setattr(handler, "stream", stream)

    def call():
        client.warning("first try")
        given_up.wait()
        client.warning("second try")
        ended.set()

    with pytest.raises(TimeoutError, match="no progress in 0.2 s"):
        Transfer().run(call)
    given_up.set()
    assert ended.wait(10)
    assert stream.getvalue() == "first try\n"
