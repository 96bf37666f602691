"""Every way in which a folder of weights can be wrong gives one clear BundleError."""

import json
import re

import pytest
from fakes import Toy

from zoo import hub


@pytest.fixture
def folder(tmp_path):
    return Toy().save_pretrained(tmp_path / "weights" / "toy")


def test_bundled(folder, monkeypatch):
    monkeypatch.setattr(hub, "BUNDLED", folder.parent)
    hashes = hub.file_hashes(folder)
    assert list(hashes) == ["config.json", "model.safetensors", "words.json"]
    assert hub.bundled("toy", hashes) == folder

    (folder / "model.pkl").touch()
    with pytest.raises(hub.BundleError, match="toy holds files that do not belong there: model.pkl"):
        hub.bundled("toy", hashes)
    (folder / "model.pkl").unlink()

    with pytest.raises(hub.BundleError, match="nope is missing"):
        hub.bundled("nope", hashes)
    (folder / "words.json").unlink()
    with pytest.raises(hub.BundleError, match="toy is incomplete: words.json missing"):
        hub.bundled("toy", hashes)


@pytest.mark.parametrize("where", [10, -1])
def test_one_changed_bit_is_seen(folder, where):
    """Also in the data area, where the safetensors format itself has no check."""
    hashes, file = hub.file_hashes(folder), folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[where] ^= 1
    file.write_bytes(data)
    with pytest.raises(hub.BundleError, match="model.safetensors is damaged or was changed: its sha256 is"):
        hub.verify(folder, hashes)
    with pytest.raises(hub.BundleError, match="model.safetensors is damaged or was changed"):
        Toy.from_pretrained(folder)


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
    ],
)
def test_bad_config(folder, text, message):
    (folder / "config.json").write_text(text)
    with pytest.raises(hub.BundleError, match=message):
        hub.read_config(folder)


def test_unreadable_text(folder, monkeypatch):
    (folder / "config.json").write_bytes(b"\xff")
    with pytest.raises(hub.BundleError, match="config.json is not UTF-8 text"):
        hub.read_config(folder)
    monkeypatch.setattr(hub, "MAX_TEXT_BYTES", 0)
    with pytest.raises(hub.BundleError, match="config.json is larger than 0 MB"):
        hub.read_config(folder)
    (folder / "config.json").unlink()
    with pytest.raises(hub.BundleError, match="toy is incomplete: config.json missing"):
        hub.read_config(folder)


def test_local_dir(folder):
    assert hub.local_dir(str(folder)) == folder
    with pytest.raises(hub.BundleError, match=r"local-dir:/nope is no folder of weights: it has no config.json"):
        hub.local_dir("/nope")


def test_download_that_fails_is_one_line(tmp_path, monkeypatch):
    """More of this, with a Hub, is in test_publish.py."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(hub.FetchError) as error:
        hub.download("me/toy", "v1")
    assert str(error.value) == (
        "me/toy at revision v1 is not in the cache and HF_HUB_OFFLINE is set; unset it, or load a folder with local-dir:PATH"
    )


def test_split_source():
    assert hub.split_source("me/toy@v1.0") == ("me/toy", "v1.0")
    assert hub.split_source("me/toy@refs/pr/1") == ("me/toy", "refs/pr/1")
    for wrong in ("me/toy", "toy@v1", "me/toy@", "me/toy@a b", "me/../toy@v1", "../toy@v1", "me/toy@../../x", "me/toy@/etc"):
        with pytest.raises(ValueError, match=r"expected hf-hub:ORG/REPO@REVISION .*; got 'hf-hub:" + re.escape(wrong)):
            hub.split_source(wrong)


def test_config_is_readable_by_people(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["class_path"] == "fakes.Toy"
    assert config["init_args"] == {"vocab_size": 7, "hidden": 4, "classes": 2, "dropout": 0.1}
