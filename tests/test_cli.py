"""The `zoo` command, as a user sees it: output, one line for a mistake, exit code."""

import errno
import hashlib
import io
import json
import os
import subprocess
import sys
import warnings

import pytest
import torch
import yaml
from fakes import Toy
from safetensors.torch import load_file

from zoo import cli, registry
from zoo.cli import main
from zoo.commands import cards
from zoo.training.lightning_cli import AtomicCheckpointIO


def fails(capsys, *args):
    """Runs a command that must fail; returns its one line."""
    assert main(list(args)) == 2
    err = capsys.readouterr().err.splitlines()
    errors = [line for line in err if line.startswith("zoo: error: ")]
    assert len(errors) == 1 and err[-1] == errors[0] and "Traceback" not in err
    return errors[0].removeprefix("zoo: error: ")


def test_warnings_of_the_package_are_lines(monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    cli._shorten_warnings()
    said = [warnings.formatwarning(text, UserWarning, cli.__file__, 3) for text in ("a\n b", "a b", "c")]
    assert said == ["zoo: warning: a b\n", "", "zoo: warning: c\n"]
    assert "mine.py:3: UserWarning: a" in warnings.formatwarning("a", UserWarning, "mine.py", 3)
    assert f"{cli.__file__}:3: FutureWarning: a" in warnings.formatwarning("a", FutureWarning, cli.__file__, 3)


# ---- list, info ----


def test_list(toy_registry, capsys):
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "NAME     TASK      PARAMETERS    SIZE  SCORE",
        "toy.v2   capitals       2.5 M  0.0 MB  accuracy 99.5 (test)",
        "toy.v10  capitals      12.3 M  0.0 MB  accuracy 99.5 (test)",
    ]
    assert main(["list", "*v2", "--markdown"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| name | task | parameters | size | score |",
        "| --- | --- | ---: | ---: | --- |",
        "| [`toy.v2`](model_cards/toy.v2.md) | capitals | 2.5 M | 0.0 MB | accuracy 99.5 (test) |",
    ]
    assert main(["list", "*10"]) == 0
    assert "toy.v2" not in capsys.readouterr().out
    assert fails(capsys, "list", "x*") == "no model matches 'x*'; `zoo list` shows all"


def test_list_filters(toy_registry, capsys):
    for name, more in [("v2", "language: [de, en]\nlicense: mit"), ("v10", "language: [en]\nlicense: other")]:
        file = cards.CARDS / f"toy.{name}.md"
        file.write_text(file.read_text(encoding="utf-8").replace("task: ", f"{more}\ntask: "), encoding="utf-8")

    def listed(*args):
        assert main(["list", *args]) == 0
        return [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]

    assert listed("--task", "capitals", "--language", "en") == ["toy.v2", "toy.v10"]
    assert listed("--language", "de") == listed("--license", "mit") == listed("*2", "--language", "en") == ["toy.v2"]
    assert fails(capsys, "list", "--task", "x") == "--task must be one of capitals; got 'x'"
    assert fails(capsys, "list", "--language", "fr") == "--language must be one of de, en; got 'fr'"
    wrong = fails(capsys, "list", "--language", "de", "--license", "other")
    assert wrong == "--license must be one of mit for the models selected so far; got 'other'"
    wrong = fails(capsys, "list", "*v2", "--license", "other")  # which another name has
    assert wrong == "--license must be one of mit for the models selected so far; got 'other'"


def test_list_does_not_import_torch():
    code = "import sys; from zoo.cli import main; main(['list']); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.splitlines()[-1] == "False", run.stderr


def test_info(toy_registry, capsys):
    assert main(["info", "toy.v2"]) == 0
    assert "# Toy ß" in capsys.readouterr().out
    assert fails(capsys, "info", "toy") == "unknown model 'toy'; nearest: toy.v2, toy.v10"


def test_info_of_a_folder(capsys, tmp_path):
    source = f"local-dir:{tmp_path / 'my_weights'}"
    assert main(["export", "luong_textbook.dates", str(tmp_path / "my_weights")]) == 0
    capsys.readouterr()
    assert main(["info", source]) == 0
    out = capsys.readouterr().out
    assert "# my_weights\n\nA `LuongNMT` of attention-zoo with 176,404 parameters" in out
    assert f'model = zoo.load("{source}")\n' in out and "hf-hub" not in out
    (tmp_path / "my_weights" / "README.md").write_text("# Mein Modell ß\n", encoding="utf-8")
    assert main(["info", source]) == 0
    assert capsys.readouterr().out == "# Mein Modell ß\n"
    wrong = f"local-dir:{tmp_path} is not a folder of weights: it has no config.json"
    assert fails(capsys, "info", f"local-dir:{tmp_path}") == wrong


def test_broken_card(toy_registry, capsys):
    (cards.CARDS / "toy.v2.md").write_text("# no front matter")
    assert "must start with YAML front matter" in fails(capsys, "list")
    (cards.CARDS / "toy.v2.md").write_text("---\na: [\n---\n")
    assert "toy.v2.md: while parsing" in fails(capsys, "list")
    (cards.CARDS / "toy.v2.md").unlink()
    assert fails(capsys, "list").endswith("toy.v2.md: no such file or folder")


# ---- predict ----


def test_predict_arguments(toy_registry, capsys):
    assert main(["predict", "toy.v2", "grün", "", "b"]) == 0
    assert capsys.readouterr().out == "GRÜN\n\nB\n"
    assert main(["predict", f"local-dir:{registry.BUNDLED / 'toy.v2'}", "a", "--beam-size", "2"]) == 0
    assert capsys.readouterr().out == "A\n"


def test_texts_that_begin_with_a_dash(toy_registry, capsys):
    for args in (["--json", "--", "-a", "b"], ["x", "--json", "--", "-a", "b"], ["--json", "x", "--", "-a", "b"]):
        assert main(["predict", "toy.v2", *args]) == 0
        found = [json.loads(line)["source"] for line in capsys.readouterr().out.splitlines()]
        assert found == ["x"] * ("x" in args) + ["-a", "b"]
    assert main(["predict", "--json", "toy.v2", "--", "-a"]) == 0
    for args in (["--json", "-a"], ["--json", "-a", "--", "a"]):
        with pytest.raises(SystemExit, match="2"):
            main(["predict", "toy.v2", *args])
        assert "unrecognized arguments: -a; a text that begins with - comes after --" in capsys.readouterr().err


def test_predict_standard_input(toy_registry, capsys, monkeypatch):
    lines = [f"line {i}" for i in range(150)]
    lines[3] = ""
    monkeypatch.setattr(sys, "stdin", io.StringIO("\r\n".join(lines)))
    assert main(["predict", "toy.v2"]) == 0
    assert capsys.readouterr().out.splitlines() == [line.upper() for line in lines]
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main(["predict", "toy.v2"]) == 0
    assert capsys.readouterr().out == ""


def test_predict_json(toy_registry, capsys):
    assert main(["predict", "toy.v2", "ß", "", "--json", "--n-best", "2"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "source": "ß",
        "text": "SS",
        "score": -0.5,
        "source_tokens": ["ß"],
        "tokens": ["S", "S"],
        "attention": [[1.0]],
        "confidence": None,
        "warnings": [],
        "n_best": [{"text": "SS", "score": -0.5}, {"text": "SS!", "score": -1.5}],
    }
    assert second["text"] == "" and second["tokens"] == []


def test_predict_n_best(toy_registry, capsys):
    assert main(["predict", "toy.v2", "a", "--n-best", "2"]) == 0
    assert capsys.readouterr().out == "-0.5000\tA\n-1.5000\tA!\n"


def test_predict_plot(toy_registry, capsys, tmp_path):
    assert main(["predict", "toy.v2", "a", "", "b", "--plot", str(tmp_path / "x.png")]) == 0
    assert sorted(f.name for f in tmp_path.glob("*.png")) == ["x-3.png", "x.png"]  # an empty text has no picture


def test_predict_mistakes(toy_registry, capsys):
    assert fails(capsys, "predict", "toy.v3", "a") == "unknown model 'toy.v3'; nearest: toy.v2, toy.v10"
    assert fails(capsys, "predict", "toy.v2", "a", "--beam-size", "0") == "beam_size must be at least 1; got 0"
    assert "has no config.json" in fails(capsys, "predict", "local-dir:/nope", "a")
    assert "expected hf-hub:ORG/REPO@REVISION" in fails(capsys, "predict", "hf-hub:me/toy", "a")
    (registry.BUNDLED / "toy.v2" / "model.safetensors").write_bytes(b"x")
    assert "model.safetensors is damaged or was changed" in fails(capsys, "predict", "toy.v2", "a")


def test_debug_shows_the_traceback(toy_registry, monkeypatch):
    monkeypatch.setenv("ZOO_DEBUG", "1")
    with pytest.raises(ValueError, match="unknown model"):
        main(["predict", "toy.v3", "a"])


def test_a_closed_pipe_is_no_error():
    code = "import sys; from zoo.cli import main; from zoo.commands.arguments import list as verb; "
    code += "verb.run = lambda o: [print('x' * 99) for _ in range(9999)]; sys.exit(main(['list']))"
    run = subprocess.run(f'{sys.executable} -c "{code}" | head -1', shell=True, capture_output=True, text=True)
    assert run.stdout == "x" * 99 + "\n" and run.stderr == ""


VERBS = "list info predict align export recipes rebuild download cache fit validate test".split()


@pytest.mark.parametrize("command", ["", *VERBS])
def test_help_has_an_example(command, capsys):
    try:
        assert main([*command.split(), "--help"]) == 0
    except SystemExit as end:  # argparse's way
        assert end.code == 0
    assert f"example:\n  zoo {command}" in capsys.readouterr().out


def test_unknown_command(capsys):
    with pytest.raises(SystemExit) as end:
        main(["predcit"])
    assert end.value.code == 2 and "invalid choice: 'predcit'" in capsys.readouterr().err


# ---- fit, validate, test, export ----


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Writes recipes in an empty folder, which is also where runs go."""
    monkeypatch.chdir(tmp_path)

    def write(**changes):
        parts = {
            "trainer": {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False, "log_every_n_steps": 1},
            "model": {"class_path": "fakes.Toy", "init_args": {"hidden": 6}},
            "data": {"class_path": "fakes.ToyData"},
        }
        (tmp_path / "toy.yaml").write_text(yaml.safe_dump({**parts, **changes}))
        return "toy.yaml"

    return write


def _epoch(path):
    return torch.load(path, weights_only=True)["epoch"]


@pytest.mark.integration
def test_fit_resume_test_export(recipe, capsys, tmp_path, toy_in_zoo):
    file = recipe(model={"class_path": "zoo.models.toy.Toy", "init_args": {"hidden": 6}})
    run = tmp_path / "runs" / "toy"
    assert main(["fit", "--config", file]) == 0
    assert sorted(f.name for f in (run / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
    assert {f.name for f in (run / "version_0").iterdir()} == {"config.yaml", "metrics.csv"}
    assert _epoch(run / "checkpoints" / "last.ckpt") == 1

    earlier = "runs/toy holds the checkpoints of an earlier run: resume it with --ckpt_path last"
    assert earlier in fails(capsys, "fit", "--config", file)

    assert main(["fit", "--config", file, "--ckpt_path", "last", "--trainer.max_epochs", "3"]) == 0
    assert sorted(f.name for f in (run / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
    last = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["epoch"] == 2 and last["global_step"] == last["state_dict"]["steps"] == 6  # none twice, none lost

    capsys.readouterr()
    assert main(["test", "--config", file, "--ckpt_path", "best"]) == 0
    by_name = capsys.readouterr().out
    assert main(["test", "--config", file, "--ckpt_path", str(run / "checkpoints" / "best.ckpt")]) == 0
    assert "test/loss" in by_name and capsys.readouterr().out == by_name
    assert main(["validate", "--config", file, "--ckpt_path", "last"]) == 0

    capsys.readouterr()
    assert main(["export", str(run / "checkpoints" / "best.ckpt"), "weights"]) == 0
    names = ["config.json", "golden.safetensors", "model.safetensors", "words.json"]
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert last.split()[-1] == hashlib.sha256((tmp_path / "weights" / "config.json").read_bytes()).hexdigest()
    model = registry.load("local-dir:weights")
    assert model.config["hidden"] == 6
    golden = load_file(tmp_path / "weights" / "golden.safetensors")
    assert torch.equal(model(golden["ids"]), golden["logits"])


@pytest.mark.parametrize("option", [["--config", "https://example.org/x.yaml"], ["--config=s3://bucket/x.yaml"]])
def test_recipes_are_code_and_are_not_fetched(option, capsys):
    assert "a recipe is code and is read from this machine only" in fails(capsys, "fit", *option)
    assert main(["fit", "--help"]) == 0
    assert "A recipe is code" in capsys.readouterr().out


def test_fine_tuning_recipe(recipe, toy_registry):
    init = {"name": "toy.v10", "overrides": {"classes": 3, "dropout": 0.0}}
    file = recipe(model={"class_path": "zoo.load", "init_args": init})
    assert main(["fit", "--config", file]) == 0
    again = Toy.load_from_checkpoint("runs/toy/checkpoints/last.ckpt", weights_only=True)
    assert again.config == {"vocab_size": 7, "hidden": 10, "classes": 3, "dropout": 0.0}
    assert main(["test", "--config", file, "--ckpt_path", "best"]) == 0


def test_weights_take_the_place_of_the_model(recipe, toy_registry, monkeypatch):
    seen = []
    monkeypatch.setattr(Toy, "on_test_start", lambda self: seen.append(self.config["hidden"]))
    assert main(["test", "--config", recipe(), "--weights", "toy.v10"]) == 0
    assert seen == [10]


@pytest.mark.parametrize("verb", ["fit", "validate", "test"])
def test_without_a_recipe(verb, capsys):
    example = {
        "fit": "zoo fit --config luong_dot.dates",
        "validate": "zoo validate luong_dot.dates",
        "test": "zoo test luong_general.multi30k_de_en --data.root DATA",
    }[verb]
    wanted = "--config RECIPE" if verb == "fit" else "the name of a weight, or --config RECIPE"
    for options in ([], ["--trainer.max_epochs", "1"], ["--model", "zoo.models.luong.LuongNMT"]):
        assert fails(capsys, verb, *options) == f"zoo {verb} needs {wanted}, e.g. {example}"


def test_recipe_mistakes(recipe, capsys):
    """Every message names the key; the wording is that of jsonargparse and changes with its versions."""

    def fit(**changes):
        return fails(capsys, "fit", "--config", recipe(**changes))

    message = fit(model={"class_path": "fakes.Toy", "init_args": {"hiden": 6}})
    assert "model: " in message and "class_path 'fakes.Toy'" in message and "'hiden' is not" in message
    message = fit(model={"class_path": "fakes.Toy", "init_args": {"hidden": "six"}})
    assert "hidden" in message and "Expected a <class 'int'>. Got value: six" in message
    assert "'Toi'" in fit(model={"class_path": "fakes.Toi"})
    assert "'m' is not" in fit(data={"class_path": "fakes.ToyData", "init_args": {"m": 6}})
    assert "traner" in fit(traner={"max_epochs": 1})
    assert "trainer.max_epoch" in fit(trainer={"max_epoch": 1})
    with open("half.yaml", "w") as file:
        file.write("model: {class_path: fakes.Toy}")
    assert "data" in fails(capsys, "fit", "--config", "half.yaml")
    assert "there is no such file" in fails(capsys, "fit", "--config", "nope.yaml")
    unknown = {"class_path": "zoo.load", "init_args": {"name": "no.name"}}
    assert fit(model=unknown).startswith("unknown model 'no.name'; nearest: ")


def test_checkpoint_mistakes(recipe, capsys, tmp_path):
    file = recipe()
    for verb in ("validate", "test"):
        message = fails(capsys, verb, "--config", file, "--ckpt_path", "best")
        assert message.startswith("runs/toy/checkpoints/best.ckpt does not exist: train first")
        message = fails(capsys, verb, "--config", file)
        assert message == f"{verb} of what? give --weights NAME, or --ckpt_path best (or last, or a file)"
    assert "no.ckpt: no such file or folder" in fails(capsys, "fit", "--config", file, "--ckpt_path", "no.ckpt")
    (tmp_path / "half.ckpt").write_bytes(b"PK\x03\x04 and then the disk was full")
    for verb in ("fit", "test"):
        message = fails(capsys, verb, "--config", file, "--ckpt_path", "half.ckpt")
        assert message == "half.ckpt is not a checkpoint, or is damaged"
    assert fails(capsys, "export", "half.ckpt", "weights") == "half.ckpt is not a checkpoint, or is damaged"
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    assert "other.ckpt is not a checkpoint of `zoo fit`: it has no hyper_parameters" in fails(
        capsys, "export", "other.ckpt", "weights"
    )
    assert "none.ckpt: no such file or folder" in fails(capsys, "export", "none.ckpt", "weights")


def test_last_without_a_checkpoint_starts_from_the_beginning(recipe):
    assert main(["fit", "--config", recipe(), "--ckpt_path", "last"]) == 0  # so that a job may always say `last`
    assert _epoch("runs/toy/checkpoints/last.ckpt") == 1


def test_fast_dev_run_leaves_no_checkpoint(recipe, tmp_path):
    assert main(["fit", "--config", recipe(), "--trainer.fast_dev_run", "true"]) == 0
    assert not list(tmp_path.rglob("*.ckpt"))


def test_recipe_may_choose_its_own_logger_and_checkpoints(recipe, tmp_path):
    saving = {"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": {"filename": "mine"}}
    options = ["--trainer.logger", "false", f"--trainer.callbacks={json.dumps([saving])}"]
    assert main(["fit", "--config", recipe(), *options]) == 0
    assert [f.name for f in tmp_path.rglob("*.ckpt")] == ["mine.ckpt"]
    assert (tmp_path / "runs" / "toy" / "checkpoints" / "mine.ckpt").is_file()


def test_checkpoints_are_written_atomically(tmp_path, monkeypatch):
    writer, path = AtomicCheckpointIO(), tmp_path / "a" / "x.ckpt"
    writer.save_checkpoint({"step": 1}, path)

    def full_disk(handle):
        os.ftruncate(handle, 100)
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(
        ValueError, match=r"x.ckpt could not be written \(no space left on device\); the earlier .*x.ckpt is intact"
    ):
        writer.save_checkpoint({"step": 2}, path)
    assert torch.load(path, weights_only=True) == {"step": 1}
    assert [f.name for f in path.parent.iterdir()] == ["x.ckpt"]


def test_training_writes_checkpoints_atomically(recipe, monkeypatch):
    written = []
    save = AtomicCheckpointIO.save_checkpoint
    monkeypatch.setattr(AtomicCheckpointIO, "save_checkpoint", lambda *a, **k: written.append(a[2]) or save(*a, **k))
    assert main(["fit", "--config", recipe()]) == 0
    assert {str(p).rsplit("/", 1)[-1] for p in written} == {"best.ckpt", "last.ckpt"}


def test_an_export_says_what_it_replaced(tmp_path, capsys):
    folder = str(tmp_path / "mine")
    assert main(["export", "luong_dot.dates", folder]) == 0 and not capsys.readouterr().err
    assert main(["export", "luong_dot.dates", folder]) == 0 and not capsys.readouterr().err, "the same again"
    for name in ("luong_textbook.dates", "structured_self_attention.sst2"):
        assert main(["export", name, folder]) == 0
        assert capsys.readouterr().err == f"zoo: {folder} held another zoo.models.luong.LuongNMT, which was replaced\n"


@pytest.mark.parametrize(
    ("option", "nearest"), [("--bemsize", "--beam-size"), ("--beam_size=3", "--beam-size"), ("--zzz", None)]
)
def test_a_mistyped_option_gives_the_nearest(option, nearest, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["predict", "luong_dot.dates", option, "3", "x"])
    said = capsys.readouterr().err
    assert f"unrecognized arguments: {option}" in said
    assert said.rstrip().endswith(f"; did you mean {nearest}?") if nearest else "did you mean" not in said


# ---- other encodings ----


@pytest.mark.integration
@pytest.mark.parametrize(
    ("environment", "given", "printed"),
    [
        ({"LC_ALL": "C"}, "Pes běží".encode(), "Pes běží . Pes běží".encode()),  # the encoding of this locale is ASCII
        ({"PYTHONIOENCODING": "cp1252"}, b"caf\xe9", b"Pes b\\u011b\x9e\xed . caf\xe9"),
    ],
)
def test_streams_in_another_encoding(environment, given, printed):
    code = r"""import sys
from zoo.utils.streams import prepare_streams
prepare_streams()
print("Pes b\u011b\u017e\xed .", sys.stdin.read())"""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHONIO"))}
    settings = {**clean, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", **environment}
    run = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, env=settings)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, printed, b"")
