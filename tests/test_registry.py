"""Names, `load`, and a package that imports in no time."""

import subprocess
import sys

import pytest
import torch
from fakes import Toy

import zoo
from zoo import hub, registry


def test_import_is_quick_and_without_torch():
    code = "import sys, time; t = time.perf_counter(); import zoo; zoo.list_models(); dir(zoo); zoo.BundleError\n"
    code += "print(time.perf_counter() - t, 'torch' in sys.modules, 'huggingface_hub' in sys.modules)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(3)]
    seconds, *imported = min(run.stdout.split() for run in runs)
    assert float(seconds) < 0.2 and imported == ["False", "False"]


def test_public_names():
    assert dir(zoo) == ["BundleError", "DamagedError", "FetchError", "MisfitError", "__version__", "list_models", "load"]
    assert zoo.BundleError is hub.BundleError and issubclass(zoo.DamagedError, zoo.BundleError)
    with pytest.raises(AttributeError, match="module 'zoo' has no attribute 'laod'"):
        zoo.laod


def test_list_models_is_in_natural_order(toy_registry):
    assert zoo.list_models() == ["toy.v2", "toy.v10"]
    assert zoo.list_models("*1?") == ["toy.v10"]


def test_load(toy_registry):
    model = zoo.load("toy.v10")
    assert isinstance(model, Toy) and not model.training and model.device == torch.device("cpu")
    assert zoo.load("toy.v10", {"dropout": 0.7}).drop.p == 0.7
    assert zoo.load(f"local-dir:{hub.BUNDLED / 'toy.v2'}").config["hidden"] == 2


def test_load_checks_every_file(toy_registry):
    (hub.BUNDLED / "toy.v2" / "words.json").write_text("other words")
    with pytest.raises(zoo.BundleError, match="words.json is damaged or was changed"):
        zoo.load("toy.v2")


def test_load_from_the_hub(toy_registry, monkeypatch):
    calls = []
    monkeypatch.setattr(hub, "download", lambda *a: calls.append(a) or hub.BUNDLED / "toy.v2")
    assert zoo.load("hf-hub:me/toy@main").config["hidden"] == 2

    hashes = hub.file_hashes(hub.BUNDLED / "toy.v2")
    entry = registry.Entry("toy.hub", "zoo.models.toy.Toy", hashes, repo_id="me/toy", revision="a" * 40)
    monkeypatch.setitem(registry.TABLE, "toy.hub", entry)
    assert zoo.load("toy.hub").config["hidden"] == 2
    assert calls == [("me/toy", "main"), ("me/toy", "a" * 40, list(hashes))]
    (hub.BUNDLED / "toy.v2" / "model.safetensors").write_bytes(b"")
    with pytest.raises(zoo.BundleError, match="model.safetensors is damaged"):
        zoo.load("toy.hub")


def test_unknown_name_gives_the_nearest(toy_registry, monkeypatch):
    with pytest.raises(ValueError, match="unknown model 'toy.v3'; nearest: toy.v2, toy.v10$"):
        zoo.load("toy.v3")
    monkeypatch.setattr(registry, "TABLE", {})
    with pytest.raises(ValueError, match="unknown model 'toy.v3'; nearest: none, the registry is empty"):
        zoo.load("toy.v3")


def test_only_classes_of_the_zoo_are_built(toy_registry):
    with pytest.raises(zoo.BundleError, match="class_path must lie in zoo.models; got 'os.path.join'"):
        registry.model_class("os.path.join")
    for gone in ("zoo.models.no_such_file.X", "zoo.models.toy.NoSuchClass"):
        with pytest.raises(zoo.BundleError, match=f"this version of attention-zoo has no {gone}"):
            registry.model_class(gone)
    with pytest.raises(zoo.BundleError, match="zoo.models.toy.ToyData is not a model"):
        registry.model_class("zoo.models.toy.ToyData")


def test_entries_are_checked():
    with pytest.raises(ValueError, match="'a.b' is in the registry twice"):
        registry._table(registry.Entry("a.b", "x", {}), registry.Entry("a.b", "y", {}))
    with pytest.raises(ValueError, match="sha256 of f must be 64 hex digits; got 'abc'"):
        registry.Entry("a.b", "x", {"f": "abc"})
    with pytest.raises(ValueError, match="revision must be a full commit id of 40 hex digits; got 'main'"):
        registry.Entry("a.b", "x", {}, repo_id="me/x", revision="main")
    with pytest.raises(ValueError, match="a revision needs a repo_id"):
        registry.Entry("a.b", "x", {}, revision="main")
