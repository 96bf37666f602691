"""Names, `load`, and a package that imports in no time."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from fakes import Toy

import zoo
from zoo import registry
from zoo.bundles import hub
from zoo.bundles.files import Bundle, BundleError


def test_import_is_quick_and_without_torch():
    code = "import sys, time; t = time.process_time(); import zoo; zoo.list_models(); dir(zoo); zoo.BundleError\n"
    code += "print(time.process_time() - t, 'torch' in sys.modules, 'huggingface_hub' in sys.modules)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(5)]
    seconds, *imported = min(run.stdout.split() for run in runs)
    assert float(seconds) < 0.2 and imported == ["False", "False"]


def test_public_names():
    assert dir(zoo) == [
        "BundleError",
        "ContinuousCache",
        "DamagedError",
        "FetchError",
        "MisfitError",
        "__version__",
        "faithfulness",
        "list_models",
        "load",
        "page",
        "register",
        "register_attention",
        "register_normalization",
        "register_score",
    ]
    assert zoo.BundleError is BundleError and issubclass(zoo.DamagedError, zoo.BundleError)
    with pytest.raises(AttributeError, match="module 'zoo' has no attribute 'laod'"):
        zoo.laod


def test_list_models_is_in_natural_order(toy_registry):
    assert zoo.list_models() == ["toy.v2", "toy.v10"]
    assert zoo.list_models("*1?") == ["toy.v10"]


def test_load(toy_registry):
    model = zoo.load("toy.v10")
    assert isinstance(model, Toy) and not model.training and model.device == torch.device("cpu")
    assert zoo.load("toy.v10", {"dropout": 0.7}).drop.p == 0.7
    assert zoo.load(f"local-dir:{registry.BUNDLED / 'toy.v2'}").config["hidden"] == 2


def test_load_checks_every_file(toy_registry):
    (registry.BUNDLED / "toy.v2" / "words.json").write_text("other words")
    with pytest.raises(zoo.BundleError, match="words.json is damaged or was changed"):
        zoo.load("toy.v2")


def test_line_ends_that_git_changed(toy_registry):
    model = Toy(hidden=2)
    model.words = "some\nwords\n"
    own = model.save_pretrained(toy_registry / "own")
    for file, source in [(own / "words.json", f"local-dir:{own}"), (registry.BUNDLED / "toy.v2/config.json", "toy.v2")]:
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
        with pytest.raises(zoo.DamagedError, match="is damaged or was changed: .*only its line ends differ, as Git"):
            zoo.load(source)
        file.write_bytes(file.read_bytes() + b"\r\n")
        with pytest.raises(zoo.DamagedError, match=r"is damaged or was changed: (?!.*line ends)"):
            zoo.load(source)


def test_the_hash_of_config_json_stands_for_all_files(toy_registry):
    """Another whole bundle under the name of a registered one."""
    folder = registry.BUNDLED / "toy.v2"
    Toy(hidden=2).save_pretrained(folder, half=True)
    with pytest.raises(zoo.DamagedError, match="config.json is damaged or was changed: its sha256 is"):
        zoo.load("toy.v2")
    (registry.BUNDLED / "toy.v2" / "config.json").unlink()
    with pytest.raises(zoo.DamagedError, match="toy.v2 is incomplete: config.json missing"):
        zoo.load("toy.v2")


def test_a_weight_that_is_nowhere(toy_registry):
    shutil.rmtree(registry.BUNDLED / "toy.v10")
    with pytest.raises(zoo.FetchError) as caught:
        zoo.load("toy.v10")
    assert str(caught.value) == (
        "toy.v10 is neither in this installation nor on the Hub yet; clone the repository of attention-zoo and `pip "
        "install -e .` there, or load local-dir:CLONE/zoo/weights/toy.v10"
    )


def test_files_that_do_not_belong_there(toy_registry):
    (registry.BUNDLED / "toy.v2" / "model.pkl").touch()
    with pytest.raises(zoo.MisfitError, match="toy.v2 holds unexpected files: model.pkl"):
        zoo.load("toy.v2")


def test_load_from_the_hub(toy_registry, monkeypatch):
    calls = []

    def download(repo_id, revision, most_weights, sha256=None, golden=False):
        calls.append((repo_id, revision, most_weights, sha256))
        return Bundle(registry.BUNDLED / "toy.v2", sha256)

    monkeypatch.setattr(hub, "download", download)
    assert zoo.load("hf-hub:me/toy@main").config["hidden"] == 2

    pinned = Bundle(registry.BUNDLED / "toy.v2").config_sha256
    monkeypatch.setitem(registry.TABLE, "toy.hub", registry.Entry("toy.hub", pinned))
    registry.PINS.write_text(json.dumps({"toy.hub": f"me/toy@{'a' * 40}", "toy.v10": f"me/toy@{'b' * 40}"}))
    assert zoo.load("toy.v10").config["hidden"] == 10 and len(calls) == 1  # it is here
    assert zoo.load("toy.hub").config["hidden"] == 2
    assert [call[:2] for call in calls] == [("me/toy", "main"), ("me/toy", "a" * 40)] and calls[1][3] == pinned
    assert 2**20 < calls[0][2](Bundle(registry.BUNDLED / "toy.v2")) < 2**21  # bytes that its weights may have
    (registry.BUNDLED / "toy.v2" / "model.safetensors").write_bytes(b"")
    with pytest.raises(zoo.BundleError, match="model.safetensors is damaged"):
        zoo.load("toy.hub")


def test_unknown_name_gives_the_nearest(toy_registry, monkeypatch):
    with pytest.raises(ValueError, match="unknown model 'toy.v3'; nearest: toy.v2, toy.v10$"):
        zoo.load("toy.v3")
    monkeypatch.setattr(registry, "TABLE", {})
    with pytest.raises(ValueError, match="unknown model 'toy.v3'; nearest: none, the registry is empty"):
        zoo.load("toy.v3")


def test_only_classes_of_the_zoo_are_built(toy_registry):
    with pytest.raises(
        zoo.BundleError, match="class_path must lie in zoo.models, or be your own class, .*; got 'os.path.join'"
    ):
        registry.model_class("os.path.join")
    for gone in ("zoo.models.no_such_file.X", "zoo.models.toy.NoSuchClass"):
        with pytest.raises(zoo.BundleError, match=f"this version of attention-zoo has no {gone}"):
            registry.model_class(gone)
    with pytest.raises(zoo.BundleError, match="zoo.models.toy.ToyData is not a model"):
        registry.model_class("zoo.models.toy.ToyData")


def test_entries_are_checked():
    with pytest.raises(ValueError, match="'a.b' is in the registry twice"):
        registry._table(registry.Entry("a.b", "0" * 64), registry.Entry("a.b", "1" * 64))
    with pytest.raises(ValueError, match="sha256 must be 64 hex digits; got 'abc'"):
        registry.Entry("a.b", "abc")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "damaged: Expecting property name"),
        ("[]", r'damaged: it must be an object \{name: "ORG/REPO@COMMIT"\}'),
        ('{"toy.v10": "me/x@1", "toy.v10": "me/x@2"}', "damaged: a key occurs twice"),
        (json.dumps({"toy.v3": "me/x@" + "a" * 40}), "damaged: there is no weight 'toy.v3'"),
        *(
            (
                json.dumps({"toy.v10": wrong}),
                "damaged: toy.v10 must have ORG/REPO@COMMIT with a full commit id of 40 hex",
            )
            for wrong in ("me/x@main", "me/x", "x@" + "a" * 40, "me/../x@" + "a" * 40, None, ["me/x", "a" * 40])
        ),
        ("\x00", "damaged: "),
    ],
)
def test_pins_are_checked(toy_registry, text, message):
    shutil.rmtree(registry.BUNDLED / "toy.v10")
    registry.PINS.write_text(text)
    with pytest.raises(zoo.DamagedError, match=rf"^.*pins.json is {message}"):
        zoo.load("toy.v10")
    assert zoo.load("toy.v2").config["hidden"] == 2  # needs none


def test_unreadable_pins(toy_registry):
    registry.PINS.write_bytes(b"\xff")
    with pytest.raises(zoo.DamagedError, match="pins.json cannot be read: 'utf-8' codec"):
        registry.all_pins()
    registry.PINS.unlink()
    registry.PINS.mkdir()
    with pytest.raises(zoo.DamagedError, match="pins.json cannot be read: .* is a folder"):
        registry.all_pins()
    registry.PINS.rmdir()
    os.mkfifo(registry.PINS)
    with pytest.raises(zoo.DamagedError, match="pins.json cannot be read: .* is not a regular file"):
        registry.all_pins()
