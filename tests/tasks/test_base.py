"""ZooModule: configuration, bundles, training checkpoints."""

import copy
import json
import os
import shutil
import sys

import pytest
import torch
from fakes import Toy, ToyData
from lightning.pytorch import Trainer
from safetensors.torch import load_file, save_file

from zoo.bundles.files import Bundle, BundleError, config_text, file_hashes
from zoo.tasks.base import ZooModule
from zoo.utils import strict_json
from zoo.utils.atomic import _exchanged


def _change(folder, tensors=None, **config):
    """Rewrites parts of a bundle so that its hashes fit again."""
    if tensors is not None:
        save_file(tensors, folder / "model.safetensors")
    old = json.loads((folder / "config.json").read_text())
    hashes = {k: v for k, v in file_hashes(folder).items() if k in old["sha256"]}
    config = {**old, "sha256": hashes, **config}
    del config["digest"]
    (folder / "config.json").write_text(json.dumps({**config, "digest": strict_json.digest(config)}))


def _trainer(tmp_path, **options):
    return Trainer(
        default_root_dir=tmp_path, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, **options,
    )  # fmt: skip


def test_config_is_the_init_arguments_with_defaults():
    model = Toy(9, classes=3)
    assert model.config == {"vocab_size": 9, "hidden": 4, "classes": 3, "dropout": 0.1}
    assert copy.deepcopy(model).config == model.config
    with pytest.raises(TypeError, match="clases"):
        Toy(clases=3)


def test_a_part_of_another_module_is_where_that_was_moved():
    model = Toy()
    torch.nn.Sequential(model).to("meta", torch.float64)
    assert model.device == torch.device("meta") == next(model.parameters()).device
    assert model.dtype == torch.float64


def test_round_trip_is_exact(tmp_path):
    model = Toy(hidden=6)
    model.words = "Straße\r\n\u2028 Ł"
    folder = model.save_pretrained(tmp_path / "a" / "b")
    assert sorted(f.name for f in folder.iterdir()) == ["config.json", "model.safetensors", "words.json"]
    assert sorted(f.name for f in folder.parent.iterdir()) == ["b"]  # no temporary folder is left
    again = Toy.from_pretrained(folder)
    assert again.config == model.config and again.words == model.words and not again.training
    for name, t in model.state_dict().items():
        assert torch.equal(t, again.state_dict()[name]) and again.state_dict()[name].dtype == t.dtype
    assert (again.save_pretrained(tmp_path / "c") / "model.safetensors").read_bytes() == (
        folder / "model.safetensors"
    ).read_bytes()


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path):
    folder = Toy().save_pretrained(tmp_path / "b")
    assert "out.weight" not in load_file(folder / "model.safetensors")
    again = Toy.from_pretrained(folder)
    assert again.out.weight is again.embed.weight


def test_half_is_stored_as_fp16_and_loads_as_fp32(tmp_path):
    model = Toy()
    folder = model.save_pretrained(tmp_path / "b", half=True)
    stored = load_file(folder / "model.safetensors")
    assert stored["embed.weight"].dtype == torch.float16 and stored["steps"].dtype == torch.int64
    again = Toy.from_pretrained(folder)
    assert again.embed.weight.dtype == torch.float32
    torch.testing.assert_close(again.embed.weight, model.embed.weight, rtol=1e-3, atol=1e-3)


def test_8_bits_are_stored_with_a_scale_for_each_row(tmp_path):
    model = Toy(hidden=128)
    model.embed.weight.data[0] = 0.0  # of a row of zeros, whose scale is 0
    folder = model.save_pretrained(tmp_path / "b", int8=True, golden=True)
    stored, again = load_file(folder / "model.safetensors"), Toy.from_pretrained(folder)
    whole, scale = stored["embed.weight"], stored["embed.weight.scale"]
    assert whole.dtype == torch.int8 and whole.abs().amax(1).tolist() == [0] + [127] * (len(whole) - 1)
    assert again.embed.weight.dtype == torch.float32 and again.out.weight is again.embed.weight
    error = (again.embed.weight - model.embed.weight).abs()
    assert (error <= scale.unsqueeze(1) / 2 * (1 + 1e-6)).all() and not again.embed.weight[0].any()
    assert stored["head.bias"].dtype == torch.float16 and stored["steps"].dtype == torch.int64
    half = model.save_pretrained(tmp_path / "half", half=True)
    sizes = [(each / "model.safetensors").stat().st_size for each in (folder, half)]
    assert sizes[0] < sizes[1]
    model.embed.weight.data[1, 1] = float("nan")
    with pytest.raises(ValueError, match="embed.weight.scale|embed.weight holds NaN or infinite values"):
        model.save_pretrained(tmp_path / "c", int8=True)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda scale: scale[1:].clone(), "embed.weight.scale is not in the model"),
        (lambda scale: scale.half(), "embed.weight.scale is not in the model"),
        (lambda scale: None, "embed.weight has dtype torch.int8 in the file, torch.float32 in the model"),
        (lambda scale: scale * float("inf"), "embed.weight holds NaN or infinite values"),
    ],
    ids=["short", "of fp16", "missing", "infinite"],
)
def test_8_bits_with_wrong_scales_are_refused(change, said, tmp_path):
    folder = Toy(hidden=32).save_pretrained(tmp_path / "b", int8=True)
    tensors = load_file(folder / "model.safetensors")
    scale = change(tensors.pop("embed.weight.scale"))
    _change(folder, tensors if scale is None else {**tensors, "embed.weight.scale": scale})
    with pytest.raises(BundleError, match=said):
        Toy.from_pretrained(folder)


def test_what_cannot_be_stored_is_refused_and_leaves_nothing(tmp_path):
    model = Toy()
    model.head.weight.data[0, 0] = 1e6
    with pytest.raises(ValueError, match="head.weight holds NaN or infinite values after rounding to fp16"):
        model.save_pretrained(tmp_path / "b", half=True)
    assert not list(tmp_path.iterdir())
    model.save_pretrained(tmp_path / "b")


@pytest.mark.parametrize("exchanges", [True, False])  # whether the system can change two names in one step
def test_saving_replaces_a_bundle_but_nothing_else(exchanges, tmp_path, monkeypatch):
    if not exchanges:
        monkeypatch.setattr("zoo.utils.atomic._exchanged", lambda a, b: False)
    elif sys.platform == "linux":
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / name).touch()
        assert _exchanged(tmp_path / "a", tmp_path / "b") and (tmp_path / "a" / "b").exists()
        for name in ("a", "b"):
            shutil.rmtree(tmp_path / name)
    Toy(hidden=2).save_pretrained(tmp_path / "b")
    (tmp_path / "b" / "golden.safetensors").touch()  # of the old weights
    folder = Toy(hidden=3).save_pretrained(tmp_path / "b")
    assert Toy.from_pretrained(folder).config["hidden"] == 3 and not (folder / "golden.safetensors").exists()
    assert [f.name for f in tmp_path.iterdir()] == ["b"]

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(
        ValueError,
        match="mine exists and is not exactly a folder of weights: it has no config.json; give a new or an empty folder",
    ):
        Toy().save_pretrained(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").exists()


def _listing(content):
    """A config.json of ours that lists some files with their right hashes."""

    def make(folder):
        for name, text in content.items():
            (folder / name).write_text(text)
        hashes = {name: digest for name, digest in file_hashes(folder).items() if name != "config.json"}
        (folder / "config.json").write_text(config_text("fakes.Toy", {}, hashes))

    return make


def _linked(folder):
    (folder.parent / "words.json").write_text("words")
    (folder / "words.json").unlink()
    (folder / "words.json").symlink_to("../words.json")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda f: (f / "thesis.docx").touch(), "it also holds thesis.docx"),
        (lambda f: (f / ".git").mkdir(), "it also holds .git"),
        (lambda f: (f / "src").mkdir(), "it also holds src"),
        (lambda f: (f / "a\nb").touch(), r"it also holds 'a\\nb'"),
        (lambda f: [(f / f"notes{n}.txt").touch() for n in range(9)], "notes4.txt and more"),
        (lambda f: (f / "words.json").write_text("better words"), "words.json is damaged or was changed"),
        (lambda f: (f / "words.json").unlink(), "words.json missing"),
        (lambda f: (f / "config.json").write_text("{}"), "must hold exactly class_path"),
        (lambda f: (f / "config.json").write_text('{"name": "my-app", "scripts": {}}'), "must hold exactly class_path"),
        (lambda f: (f / "config.json").write_bytes(b"\xff"), "is not UTF-8 text"),
        (lambda f: (f / "config.json").write_text("[" * 50_000), "nested too deeply"),
        (lambda f: (f / "config.json").unlink(), "it has no config.json"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors missing"),
        (lambda f: (f / "README.md").mkdir(), "README.md is not a regular file"),
        (lambda f: (f / "README.md").symlink_to("config.json"), "README.md is not a regular file"),
        (lambda f: (f / "figure.png").symlink_to("/etc/passwd"), "figure.png is not a regular file"),
        (_linked, "words.json is not a regular file|outside the folder"),
        (lambda f: os.mkfifo(f / "golden.safetensors"), "golden.safetensors is not a regular file"),
        (_listing({"model.safetensors": "x", "main.py": "import zoo"}), "main.py is not a file of weights"),
    ],
)
def test_what_is_not_ours_is_never_replaced(spoil, says, tmp_path):
    folder = Toy().save_pretrained(tmp_path / "b")
    spoil(folder)
    before = {path: None if path.is_dir() or path.is_fifo() else path.read_bytes() for path in tmp_path.rglob("*")}
    with pytest.raises(ValueError, match=says) as error:
        Toy(hidden=3).save_pretrained(folder)
    assert "\n" not in str(error.value) and "give a new or an empty folder" in str(error.value)
    assert {
        path: None if path.is_dir() or path.is_fifo() else path.read_bytes() for path in tmp_path.rglob("*")
    } == before


def test_readme_and_pictures_stay(tmp_path):
    folder = Toy().save_pretrained(tmp_path / "b")
    (folder / "README.md").write_text("# Mine")
    (folder / "figure.PNG").write_bytes(b"png")
    Toy(hidden=3).save_pretrained(folder)
    assert sorted(os.listdir(folder)) == ["README.md", "config.json", "figure.PNG", "model.safetensors", "words.json"]
    assert (folder / "README.md").read_text() == "# Mine" and Toy.from_pretrained(folder).config["hidden"] == 3


def test_a_link_as_target_is_followed(tmp_path):
    real = Toy().save_pretrained(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "new").symlink_to("elsewhere")
    for name in ("link", "new"):
        Toy(hidden=3).save_pretrained(tmp_path / name)
        assert (tmp_path / name).is_symlink() and Toy.from_pretrained(tmp_path / name).config["hidden"] == 3
    assert real.is_dir() and not real.is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    for name in ("loop", "file"):
        with pytest.raises((ValueError, OSError), match=name):
            Toy().save_pretrained(tmp_path / name)
    assert (tmp_path / "loop").is_symlink() and (tmp_path / "file").is_file()


def test_what_appears_while_it_is_replaced_stays(tmp_path, monkeypatch):
    folder = Toy().save_pretrained(tmp_path / "b")

    def late(a, b):
        (b / "notes.txt").write_text("mine")
        return _exchanged(a, b)

    monkeypatch.setattr("zoo.utils.atomic._exchanged", late)
    Toy(hidden=3).save_pretrained(folder)
    assert (folder / "notes.txt").read_text() == "mine" and Toy.from_pretrained(folder).config["hidden"] == 3
    assert os.listdir(tmp_path) == ["b"]


def test_golden_output_is_listed(tmp_path):
    bundle = Bundle(Toy().save_pretrained(tmp_path / "b", golden=True))
    assert "golden.safetensors" in bundle.sha256 and bundle.assets == ["words.json"]
    (bundle.folder / "golden.safetensors").write_bytes(b"")
    Toy.from_pretrained(bundle.folder)  # nobody asks for it
    with pytest.raises(BundleError, match="golden.safetensors is damaged or was changed"):
        Bundle(bundle.folder).golden()


@pytest.mark.parametrize("hidden", [1, 4, 60])
def test_an_override_that_does_not_fit_is_named(tmp_path, hidden):
    """A part of the stored tensors would be left out; of the smallest the file is larger than such a model may be."""
    Toy(vocab_size=30_000, hidden=48).save_pretrained(tmp_path)
    with pytest.raises(BundleError) as raised:
        Toy.from_pretrained(tmp_path, {"hidden": hidden, "dropout": 0.1})
    start = (
        f"overrides hidden {hidden} do not fit weights of hidden 48 (parts that may change shape: head); leave them out"
    )
    assert str(raised.value).startswith(start) and "\n" not in str(raised.value)


def test_a_damaged_file_is_no_fault_of_overrides(tmp_path):
    Toy().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    for overrides in (None, {"dropout": 0.1}):  # what the weights have anyway
        with pytest.raises(BundleError) as raised:
            Toy.from_pretrained(tmp_path, overrides)
        assert "overrides" not in str(raised.value)


def test_overrides(tmp_path, caplog):
    folder = Toy().save_pretrained(tmp_path / "b")
    assert Toy.from_pretrained(folder, {"dropout": 0.5}).drop.p == 0.5
    assert not caplog.records

    again = Toy.from_pretrained(folder, {"classes": 5})
    assert again.head.weight.shape == (5, 4) and again.config["classes"] == 5
    assert "re-initialised head" in caplog.text
    assert torch.equal(again.embed.weight, load_file(folder / "model.safetensors")["embed.weight"])

    with pytest.raises(ValueError, match="overrides: Toy has no argument 'clases'; nearest: classes"):
        Toy.from_pretrained(folder, {"clases": 5})
    with pytest.raises(BundleError, match=r"embed.weight has shape \(7, 4\) in the file, \(7, 8\) in the model"):
        Toy.from_pretrained(folder, {"hidden": 8})


def test_what_does_not_fit_is_refused(tmp_path):
    folder = Toy().save_pretrained(tmp_path / "b")
    whole = load_file(folder / "model.safetensors")
    for tensors, message in [
        ({k: v for k, v in whole.items() if k != "head.bias"}, "head.bias is not in the file"),
        ({k: v for k, v in whole.items() if k != "embed.weight"}, "embed.weight is not in the file"),
        ({**whole, "more": torch.zeros(1)}, "more is not in the model"),
        ({**whole, "steps": torch.zeros(())}, "steps has dtype torch.float32 in the file, torch.int64 in the model"),
        ({**whole, "head.bias": torch.tensor([0.0, torch.nan])}, "head.bias holds NaN or infinite values"),
        ({"x": torch.zeros(1)}, r"\(and 2 more\)"),
    ]:
        _change(folder, tensors)
        with pytest.raises(BundleError, match=message):
            Toy.from_pretrained(folder)


def test_config_is_checked(tmp_path):
    folder = Toy().save_pretrained(tmp_path / "b")

    class Other(ZooModule):
        def __init__(self, vocab_size: int, size: int) -> None:
            super().__init__()

    with pytest.raises(BundleError, match="holds a fakes.Toy, not a .*Other"):
        Other.from_pretrained(folder)
    _change(folder, class_path=f"{__name__}.{Other.__qualname__}")
    with pytest.raises(BundleError, match="Other has no argument classes, dropout, hidden"):
        Other.from_pretrained(folder)
    _change(folder, init_args={"size": 3})
    with pytest.raises(BundleError, match="init_args lacks vocab_size of Other"):
        Other.from_pretrained(folder)


def test_fine_tuning_has_dropout_on(tmp_path):
    model = Toy.from_pretrained(Toy().save_pretrained(tmp_path / "b"))
    seen = []
    model.training_step = lambda batch: seen.append(model.training) or Toy.training_step(model, batch)
    _trainer(tmp_path, max_steps=1).fit(model, ToyData())
    assert seen == [True]


def test_training_checkpoint_is_a_usable_model(tmp_path):
    model, trainer = Toy(classes=2, hidden=5), _trainer(tmp_path, max_steps=3)
    model.words = "dictionary"
    trainer.fit(model, ToyData())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    again = Toy.load_from_checkpoint(tmp_path / "x.ckpt", weights_only=True)
    assert again.config == model.config and again.words == "dictionary" and again.steps == 3
    assert torch.equal(again.head.weight, model.head.weight)


def test_training_anew_from_a_checkpoint_has_its_own_random_numbers(tmp_path):
    trainer = _trainer(tmp_path, max_steps=1)
    trainer.fit(Toy(), ToyData())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    seen = []
    for seed in (1, 2):
        model = Toy.load_from_checkpoint(tmp_path / "x.ckpt", weights_only=True)
        model.training_step = lambda batch: seen.append(torch.get_rng_state()) or Toy.training_step(model, batch)
        torch.manual_seed(seed)
        _trainer(tmp_path, max_steps=1).fit(model, ToyData())
    assert not torch.equal(*seen)


def test_a_verb_of_another_task_names_the_right_one():
    from zoo.models.han import HAN

    model = HAN(**HAN.tiny)
    assert hasattr(model, "classify") and not hasattr(model, "translate")
    with pytest.raises(AttributeError, match="HAN has no translate: it is a model for classification, use classify"):
        model.translate("a")
    with pytest.raises(AttributeError, match="'HAN' object has no attribute 'embeding'"):
        model.embeding
    model.add_module("caption", torch.nn.Linear(1, 1))
    assert isinstance(model.caption, torch.nn.Linear)
