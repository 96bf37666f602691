"""Scores, attentions, normalisations and models of users: by name everywhere, checked early, and gone for nobody else."""

import inspect
import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch
import yaml
from fakes import settings
from PIL import Image
from test_documentation import captioned
from torch.nn.functional import cosine_similarity

import zoo
from zoo import registry
from zoo.bundles.files import MisfitError
from zoo.cli import main
from zoo.commands import graphs
from zoo.comparison.runner import Runner
from zoo.layers.masking import masked_sparsemax
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.serving.worker import Worker
from zoo.utils import modules

PAGE = (Path(__file__).parents[1] / "docs/guides/own_mechanism.md").read_text(encoding="utf-8")
FILES = captioned(PAGE)


@pytest.fixture
def place(tmp_path, monkeypatch, nothing_registered):
    """A folder with the files of the guide, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    for name, content in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content, encoding="utf-8")
    return tmp_path


def fails(capsys, *args):
    assert main([str(arg) for arg in args]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("zoo: error: ")]
    return line.removeprefix("zoo: error: ")


def test_the_mechanisms_of_the_guide(place):
    with modules.imported(["mechanisms"]):
        model = LuongNMT(**{**LuongNMT.tiny, "score": "cosine", "normalize": "my_sparsemax"}).eval()
    src, lengths = torch.randint(4, 12, (2, 7)), torch.tensor([7, 2])
    memory, state = model.encode(src, lengths)
    query = torch.randn(2, 5, 8)
    context, weights = model.attention(query, memory)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5))
    score = model.attention.score
    mask = torch.arange(7) < lengths[:, None, None]
    torch.testing.assert_close(weights, masked_sparsemax(score(query, memory.keys), mask))
    expected = score.g * cosine_similarity(score.w(query)[:, :, None], memory.values[:, None], dim=-1)
    torch.testing.assert_close(score(query, memory.keys), expected)
    assert model.config["score"] == "cosine"


def test_the_sparsemax_of_the_guide_is_that_of_the_package(place, float64):
    with modules.imported(["mechanisms"]):
        own = zoo.extensions.NORMALIZATIONS["my_sparsemax"]
        scores = (3 * torch.randn(4, 3, 6)).requires_grad_()
        mask = torch.arange(6) < torch.tensor([6, 3, 1, 0])[:, None, None]
        torch.testing.assert_close(own(scores, mask), masked_sparsemax(scores, mask))
        weight = torch.randn(4, 3, 6)
        gradients = [torch.autograd.grad((f(scores, mask) * weight).sum(), scores)[0] for f in (own, masked_sparsemax)]
    torch.testing.assert_close(*gradients)
    assert (own(scores, mask)[0] == 0).any() and (own(scores, mask)[3] == 0).all()


def test_only_models_with_the_choice_get_the_name(nothing_registered):
    zoo.register_score("cosine")(zoo.extensions.SCORES["general"])
    choices = inspect.signature(LuongNMT.__init__).parameters["score"].annotation.__args__
    assert choices[-1] == "cosine" and choices[0] == "dot"
    assert "cosine" not in inspect.signature(ShowAttendTell.__init__).parameters["score"].annotation.__args__


def test_a_bundle_needs_what_it_was_made_with(place, capsys):
    with modules.imported(["mechanisms"]):
        LuongNMT(**{**LuongNMT.tiny, "score": "cosine"}).save_pretrained("saved")
    assert registry.load("local-dir:saved").config["score"] == "cosine"
    zoo.extensions.SCORES.pop("cosine")
    with pytest.raises(ValueError, match="score must be one of 'dot', .*; got 'cosine'"):
        registry.load("local-dir:saved")


@pytest.mark.parametrize("name", ["dot", "no name", ""])
def test_names_that_are_taken_or_none(name, nothing_registered):
    with pytest.raises(ValueError, match="there is already a score 'dot'|must be a Python identifier; got"):
        zoo.register_score(name)(torch.nn.Identity)


def test_a_class_that_was_renamed(nothing_registered):
    """As in a cell of a notebook that is changed and run again."""
    zoo.register_score("cosine")(Score)
    renamed = type("Renamed", (Score,), {"__module__": __name__})
    with pytest.raises(
        ValueError, match=r"score 'cosine', .*\.Score; choose another name, or start Python again if you"
    ):
        zoo.register_score("cosine")(renamed)


def test_a_class_of_a_notebook_in_another_one():
    with pytest.raises(
        MisfitError, match="'__main__.Mine' is a class of a notebook or script: run the cell that defines"
    ):
        registry.model_class("__main__.Mine")


class Score(torch.nn.Module):
    """Right but for what a test changes."""

    def __init__(self, query_size, memory_size, attention_size=None, max_length=None):
        super().__init__()

    def project(self, memory):
        return memory

    def forward(self, query, keys):
        return query @ keys.transpose(1, 2)


class OfOneSize(Score):
    def __init__(self, size):
        super().__init__(size, size)


class Flat(Score):
    def forward(self, query, keys):
        return super().forward(query, keys).sum(-1)


class Broken(Score):
    def forward(self, query, keys):
        return query @ keys


WHOLE = "2 examples of 3 queries and 5 positions"


@pytest.mark.parametrize(
    ("register", "part", "said"),
    [
        (zoo.register_score, torch.nn.Identity, "must be a class of torch.nn.Module with project(memory) and forward"),
        (zoo.register_score, lambda query, keys: query, "must be a class of torch.nn.Module with project(memory) and"),
        (zoo.register_score, OfOneSize, "must take (query_size, memory_size, attention_size, max_length): too many"),
        (zoo.register_score, Flat, f"must return scores (B, T, S), (2, 3, 5) for {WHOLE}; got (2, 3)"),
        (zoo.register_score, Broken, f"fails for {WHOLE}: "),
        (zoo.register_attention, Score, "must be a subclass of zoo.layers.attention.GlobalAttention; got <class"),
        (zoo.register_normalization, lambda scores: scores, "must take (scores, mask): too many positional arguments"),
        (zoo.register_normalization, lambda scores, mask: scores[0], f"for {WHOLE}; got (3, 5)"),
        (zoo.register_normalization, lambda scores, mask: None, f"for {WHOLE}; got NoneType"),
    ],
)
def test_what_cannot_be_used_is_refused_when_it_is_registered(register, part, said, nothing_registered):
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match=f"'mine' .*{re.escape(said)}"):
        register("mine")(part)
    assert torch.equal(torch.get_rng_state(), before), "later draws stay the same"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ndef f(:\n", "line 2: SyntaxError: "),
        ("x = 1\ny = undefined\n", "line 2: NameError: name 'undefined' is not defined"),
        ("raise RuntimeError('no')\n", "line 1: RuntimeError: no"),
    ],
)
def test_a_module_that_fails_is_one_line(place, capsys, text, said):
    Path("broken_module.py").write_text(text)
    assert main(["list", "--import", "broken_module"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("zoo: error: --import broken_module: ") and f"broken_module.py, {said}" in line


def test_a_name_is_needed(nothing_registered):
    with pytest.raises(ValueError, match="the name of a normalize must be a Python identifier; got <function"):
        zoo.register_normalization(lambda scores, mask: scores)


def test_a_module_may_be_imported_again(place):
    with modules.imported(["mechanisms"]):
        first = zoo.extensions.SCORES["cosine"]
    del sys.modules["mechanisms"]
    with modules.imported(["mechanisms"]):
        assert zoo.extensions.SCORES["cosine"] is not first


def test_a_model_of_ones_own_is_trained_exported_and_used(place, capsys):
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
    recipe = yaml.safe_load(Path("mean.yaml").read_text())
    recipe["trainer"] |= quiet
    recipe |= settings(warmup_steps=3, total_steps=30)
    recipe["data"]["init_args"] |= {"train_size": 64, "val_size": 9, "test_size": 9}
    Path("mean.yaml").write_text(yaml.safe_dump(recipe))
    assert main(["fit", "--config", "mean.yaml"]) == 0
    registry._REGISTERED.clear()
    ckpt = "runs/mean/checkpoints/best.ckpt"
    assert "be your own class, made known by zoo.register (command line: --import MODULE); got 'mean_transla" in fails(
        capsys, "export", ckpt, "mean"
    )
    del sys.modules["mean_translator"]
    assert main(["export", "--import", "mean_translator", ckpt, "mean"]) == 0
    capsys.readouterr()
    assert main(["predict", "--import=mean_translator", "local-dir:mean", "3 May 2020"]) == 0
    found = zoo.load("local-dir:mean").translate("3 May 2020")
    assert capsys.readouterr().out == found.text + "\n" and found.attention is None


@pytest.mark.integration
def test_a_captioner_of_ones_own_is_trained_exported_and_used(place, capsys):
    Path("photos").mkdir()
    colours = {"red": (200, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 200)}
    for n, (name, colour) in enumerate(10 * list(colours.items())):
        Image.new("RGB", (40, 30), colour).save(f"photos/{n}.png")
        with open("captions.tsv", "a") as table:
            table.write(f"{n}.png\ta {name} wall\n" if n else f"image\tcaption\n{n}.png\ta {name} wall\n")
    recipe = yaml.safe_load(Path("photos.yaml").read_text())
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 2}
    recipe["trainer"] |= quiet
    recipe |= settings(warmup_steps=3, total_steps=40)
    small = {"backbone": "mobilenet_v3_small", "layer": "features", "backbone_weights": None, "image_size": 32}
    recipe["model"]["init_args"] |= {"vocab_size": 20, **small}
    Path("photos.yaml").write_text(yaml.safe_dump(recipe))
    assert main(["fit", "--config", "photos.yaml"]) == 0
    ckpt = "runs/photos/checkpoints/best.ckpt"
    assert main(["export", "--import", "mean_captioner", ckpt, "mean_photos"]) == 0
    capsys.readouterr()
    assert main(["predict", "--import", "mean_captioner", "local-dir:mean_photos", "photos/0.png"]) == 0
    found = zoo.load("local-dir:mean_photos").caption("photos/0.png")
    assert capsys.readouterr().out == found.text + "\n"
    assert found.attention.shape[1:] == (1, 1) and (found.attention == 1).all()


def test_strangers_classes_stay_out(place):
    with modules.imported(["mean_translator"]):
        cls = sys.modules["mean_translator"].MeanTranslator
    cls(20, 20).save_pretrained("mean")
    registry._REGISTERED.clear()
    with pytest.raises(zoo.BundleError, match="class_path must lie in zoo.models"):
        zoo.load("local-dir:mean")


@pytest.mark.parametrize("what", [3, dict, torch.nn.Linear])
def test_what_is_no_model(what):
    with pytest.raises(ValueError, match="zoo.register takes a subclass of zoo.tasks.base.ZooModule; got"):
        zoo.register(what)


def test_a_class_within_a_function():
    class Hidden(LuongNMT):
        pass

    with pytest.raises(ValueError, match="must be at the top level of its module"):
        zoo.register(Hidden)


def test_an_argument_that_all_models_of_the_task_take(place):
    text = FILES["mean_translator.py"].replace("        label_smoothing: float = 0.1,\n", "")
    Path("lacking.py").write_text(text)
    with modules.imported(["lacking"]):
        cls = sys.modules["lacking"].MeanTranslator
    with pytest.raises(
        ValueError, match="MeanTranslator.__init__ must take label_smoothing, as all models of its task"
    ):
        cls(20, 20)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{class_path: nowhere.Mean}", "there is no class nowhere.Mean: No module named 'nowhere'"),
        ("{class_path: zoo.models.han.HAN}", "base.yaml compares translators, and zoo.models.han.HAN is none"),
        ("{init_args: {scores: dot}}", "LuongNMT has no argument scores; it has src_vocab_size"),
        ("{init_args: {score: genral}}", "score must be one of 'dot', "),
        ("{init_args: {score: cosine}}", "score must be one of 'dot', "),
    ],
)
def test_the_comparison_checks_before_it_trains(text, message, place, capsys, monkeypatch):
    monkeypatch.setattr(Runner, "run", lambda *_: pytest.fail("something was trained"))
    for language in ("en", "de"):
        for part in ("train", "val"):
            Path(f"{part}.{language}").write_text("a b\nc d\n")
    Path("mine/cosine.yaml").write_text(f"model: {text}\n")
    assert message in fails(capsys, "compare", "--recipes", "mine", "--out", "out")
    Path("mine/cosine.yaml").write_text(FILES["mine/cosine.yaml"])
    Path("val.de").unlink()
    assert "val" in fails(capsys, "compare", "--import", "mechanisms", "--recipes", "mine", "--out", "out")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--import"], "--import needs the name of a module, e.g. --import mechanisms"),
        (["--import="], "--import needs the name of a module"),
        (["--import", "no_such_module"], "--import no_such_module: No module named 'no_such_module'"),
    ],
)
def test_modules_that_are_not_there(args, message, capsys, nothing_registered):
    assert fails(capsys, "list", *args).startswith(message)


@pytest.mark.parametrize("before", [None, "", "json"])
def test_started_processes_import_them_too(place, monkeypatch, before):
    if before is None:
        monkeypatch.delenv(modules.VARIABLE, raising=False)
    else:
        monkeypatch.setenv(modules.VARIABLE, before)
    with modules.imported(["mechanisms"]):
        assert os.environ[modules.VARIABLE] == ("json,mechanisms" if before else "mechanisms")
    assert os.environ.get(modules.VARIABLE) == before


def test_a_worker_of_the_server_and_an_export_import_them_too(place, monkeypatch):
    """They are processes of their own, started by the command that was given --import."""
    original = zoo.load("luong_dot.dates")
    Path("of_mine.py").write_text(
        "import zoo\nfrom zoo.models.luong import LuongNMT\n\n\n@zoo.register\nclass Mine(LuongNMT):\n    pass\n"
    )
    with modules.imported(["of_mine"]):
        mine = sys.modules["of_mine"].Mine(**original.config)
    mine.load_assets(original.assets())
    mine.load_state_dict(original.state_dict())
    mine.save_pretrained("own_weights")

    registry._REGISTERED.clear()
    del sys.modules["of_mine"]
    monkeypatch.setenv(modules.VARIABLE, "of_mine")
    facts = Worker("local-dir:own_weights", 1, None, 1000).facts()["model"]
    assert facts["class"] == "Mine" and facts["parameters"] == sum(p.numel() for p in original.parameters())
    del sys.modules["of_mine"]
    monkeypatch.setattr(graphs, "graphs_of", lambda name, int8: name if "of_mine" in sys.modules else None)
    assert graphs._exported("local-dir:own_weights", False) == "local-dir:own_weights"


def test_cached_graphs_are_those_of_the_modules_as_they_are(place, monkeypatch):
    model = LuongNMT(**LuongNMT.tiny)
    model.save_pretrained("own_weights")
    before = graphs._place("local-dir:own_weights", False)
    Path("package").mkdir()
    for name in ("one.py", "package/__init__.py", "package/part.py"):
        Path(name).write_text("")
    with modules.imported(["one", "package"]):
        found = [graphs._place("local-dir:own_weights", False)]
        for name in ("one.py", "package/part.py"):
            Path(name).write_text("changed = True\n")
            found.append(graphs._place("local-dir:own_weights", False))
        assert graphs._place("luong_dot.dates", False).name.endswith(registry.TABLE["luong_dot.dates"].sha256[:12])
    assert len({before, *found}) == 4
    assert graphs._place("local-dir:own_weights", False) == before


def test_what_follows_two_hyphens_is_text():
    assert modules.split_imports(["predict", "han", "--import", "a", "--", "--import", "b", "--import=c"]) == (
        ["predict", "han", "--", "--import", "b", "--import=c"],
        ["a"],
    )


def test_a_missing_import_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    error = fails(capsys, "fit", "--config", "luong_dot.dates", "--model.score", "cosine")
    hint = "got 'cosine'; if a module of yours registers it, import that first: --import MODULE at the command line"
    assert "score must be one of 'dot', " in error and error.endswith(hint)
    LuongNMT(**{**LuongNMT.tiny, "score": "general"}).save_pretrained("weights")
    config = Path("weights/config.json")
    content = json.loads(config.read_text().replace('"general"', '"cosine"'))
    del content["digest"]
    config.write_text(json.dumps(content))
    assert fails(capsys, "predict", "local-dir:weights", "a").endswith(hint)
