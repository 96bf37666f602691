"""`zoo rebuild` on a small recipe with every kind of stage: its result, its log, interruptions and changes."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from fakes import Cut
from filelock import FileLock, Timeout
from rebuild_cases import in_process, rebuild
from safetensors.torch import load_file

import zoo
from zoo.bundles.files import WEIGHTS, Bundle
from zoo.models.luong import LuongNMT
from zoo.rebuilding import consensus
from zoo.rebuilding import lines as lines_of_text
from zoo.rebuilding import work as rebuilding_work
from zoo.rebuilding.processes import Processes
from zoo.training.signals import Stopped

CHECKPOINTS = {
    "class_path": "zoo.training.checkpoints.ExactCheckpoints",
    "init_args": {"filename": "best", "monitor": "val/loss", "save_last": True, "enable_version_counter": False},
}
PAIRS = {"train_src": "pairs.tsv", "val_src": "pairs.tsv", "test_src": "pairs.tsv", "tokenizer": "char"}
SETTINGS = {
    "seed_everything": 1,
    "trainer": {"max_epochs": 2, "callbacks": [CHECKPOINTS], "enable_progress_bar": False, "accelerator": "cpu"},
    "optimizer": {"class_path": "zoo.tasks.optimizer.AdamW", "init_args": {"lr": 0.01}},
    "lr_scheduler": {
        "class_path": "zoo.tasks.optimizer.WarmupCosine",
        "init_args": {"warmup_steps": 1, "total_steps": 8},
    },
    "data": {"class_path": "zoo.data.ParallelText", "init_args": {**PAIRS, "batch_size": 8}},
}
STAGES = [
    {"prepare": 'cut -f1 "$(data pairs.tsv)" > lines; cp lines more', "to": ["lines", "more"]},
    {"fit": "small", "to": "first"},
    {
        "translate": "lines",
        "by": ["luong_dot.dates", "first"],
        "length_penalties": [1.0, 0.5],
        "beam_size": 2,
        "min_agreement": 0.0,
        "to": "translated",
    },
    {
        "from": "first",
        "settings": {"data.train_src": "{translated}", "data.seed": 3, "trainer.max_epochs": 3},
        "checkpoint": "last",
        "export": {"beam_size": 3},
        "to": "second",
    },
    {"average": ["first", "second"], "int8": True, "to": "mean"},
]
NAMES = ["lines", "first", "translated", "second", "mean"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A folder with recipes and data, and one of finished stages made from them in this process."""
    folder = tmp_path_factory.mktemp("rebuild")
    (folder / "data").mkdir()
    text = "".join(f"{n} may {1990 + n}\t{1990 + n}-05-{n:02}\n" for n in range(1, 21))
    (folder / "data" / "pairs.tsv").write_text(text)
    small = {
        **SETTINGS,
        "model": {"class_path": "zoo.models.luong.LuongNMT", "init_args": {**_tiny(), "label_smoothing": 0.0}},
    }
    loaded = {"class_path": "zoo.load", "init_args": {"name": "luong_dot.dates", "overrides": {"dropout": 0.1}}}
    (folder / "small.yaml").write_text(yaml.safe_dump(small))
    (folder / "own.yaml").write_text(yaml.safe_dump({**SETTINGS, "model": loaded, "stages": STAGES}))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("ZOO_CACHE", str(folder / "cache"))
        monkeypatch.chdir(folder)
        in_process(monkeypatch)
        assert rebuild("own.yaml", "--root", "data") == 0
    return folder


def _tiny():
    return {**LuongNMT.tiny, "src_vocab_size": 60, "tgt_vocab_size": 60, "shared_vocab": True}


@pytest.fixture
def work(begun, tmp_path, monkeypatch):
    """A copy of that folder to work in, and the modules that run."""
    shutil.copytree(begun, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("ZOO_CACHE", str(begun / "cache"))
    return Path("runs/rebuild/own")


def _states(capsys):
    capsys.readouterr()
    assert rebuild("own.yaml", "--root", "data", "--list") == 0
    return {line.split()[0]: line.split("  ")[-1].strip() for line in capsys.readouterr().out.splitlines()}


def _hash(folder):
    return Bundle(folder).config_sha256


@pytest.mark.integration
def test_every_stage_leaves_what_it_is_for(work, begun):
    assert (work / "lines/lines").read_text() == (work / "lines/more").read_text()
    assert (work / "translated/translated").read_text().splitlines()[11] == "12 may 2002\t2002-05-12"
    mean, first, second = (zoo.load(f"local-dir:{work / name / 'weights'}") for name in ("mean", "first", "second"))
    assert second.config["beam_size"] == 3 and first.config["beam_size"] != 3
    for name, tensor in mean.state_dict().items():
        expected = (first.state_dict()[name] + second.state_dict()[name]) / 2
        assert (tensor - expected).abs().max() < 1e-3 + expected.abs().max() / 254  # of fp16 and of 8 bits
    stored = {name: load_file(work / name / "weights" / WEIGHTS) for name in ("mean", "first")}
    assert {name: any(key.endswith(".scale") for key in found) for name, found in stored.items()} == {
        "mean": True,
        "first": False,
    }
    config = yaml.safe_load((work / "second/own/version_0/config.yaml").read_text())
    assert config["data"]["init_args"]["train_src"] == str((begun / work / "translated/translated").absolute())
    assert config["model"]["init_args"]["name"] == "local-dir:runs/rebuild/own/first/weights"
    assert _settings_of(work, "second") == (3, 3) and _settings_of(work, "first") == (2, 0)


def _settings_of(work, name):
    config = yaml.safe_load(next(work.glob(f"{name}/*/version_0/config.yaml")).read_text())
    return config["trainer"]["max_epochs"], config["data"]["init_args"]["seed"]


def test_the_log(work, begun):
    text = (work / "rebuild.json").read_text()
    assert str(begun) not in text and "/tmp" not in text, "no path of this machine"
    log = json.loads(text)
    assert [stage["name"] for stage in log["stages"]] == NAMES
    by_name = {stage["name"]: stage for stage in log["stages"]}
    pairs = {"pairs.tsv": _sha256(Path("data/pairs.tsv"))}
    assert [by_name[name]["data"] for name in ("lines", "first", "translated", "mean")] == [pairs, pairs, {}, {}]
    second = by_name["second"]
    translated = _sha256(work / "translated/translated")
    assert second["uses"] == {"first": _hash(work / "first/weights"), "translated": translated}
    assert second["settings"]["data"]["init_args"]["train_src"] == "OUTPUT/translated/translated"
    assert second["made"] == {"weights/config.json": _hash(work / "second/weights")}
    assert second["settings"]["data"]["init_args"]["seed"] == 3 and second["settings"]["seed_everything"] == 1
    assert second["settings"]["data"]["init_args"]["root"] == "DATA"
    assert (second["epochs"], second["checkpoint"]) == (3, "last")
    assert [point["epoch"] for point in second["curve"]] == [0, 1, 2]
    assert all(point["val/loss"] > 0 for point in second["curve"]) and second["seconds"] > 0
    assert second["versions"]["torch"] and second["device"] and second["threads"]
    assert by_name["translated"]["definition"]["length_penalties"] == [1.0, 0.5]
    assert log["test"]["scores"].keys() >= {"test/bleu"} and log["test"]["data"] == pairs


def test_the_processor_time_of_all_attempts_is_kept(work, monkeypatch):
    shutil.rmtree(work / "lines")
    spent = iter([10.0, 13.5, 20.0, 21.5])
    monkeypatch.setattr(rebuilding_work, "_processor_seconds", lambda: next(spent))
    in_process(monkeypatch)
    prepare = rebuilding_work.Rebuild._prepare
    monkeypatch.setattr(rebuilding_work.Rebuild, "_prepare", lambda *given: (_ for _ in ()).throw(Cut))
    with pytest.raises(Cut):
        rebuild("own.yaml", "--root", "data")
    state = work / "lines" / "stage.json"
    assert not json.loads(state.read_text())["done"]
    monkeypatch.setattr(rebuilding_work.Rebuild, "_prepare", prepare)
    assert rebuild("own.yaml", "--root", "data") == 0
    assert json.loads(state.read_text())["processor_seconds"] == 5.0
    lines = json.loads((work / "rebuild.json").read_text())["stages"][0]
    assert lines["name"] == "lines" and lines["processor_seconds"] == 5.0


def _sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_what_is_done_is_not_repeated(work, monkeypatch, capsys):
    ran = in_process(monkeypatch)
    before = (work / "rebuild.json").read_text()
    assert rebuild("own.yaml", "--root", "data") == 0
    assert not ran and (work / "rebuild.json").read_text() == before
    out = capsys.readouterr().out
    assert out.count("already done") == len(NAMES) and "stage 5 of 5, mean: average first, second" in out


def test_the_test_data_are_left_alone(work, monkeypatch, capsys):
    shutil.rmtree(work / "test")
    (work / "rebuild.json").unlink()
    ran = in_process(monkeypatch)
    assert rebuild("own.yaml", "--root", "data", "--no-test") == 0
    assert not ran and not (work / "rebuild.json").exists()
    assert capsys.readouterr().out.splitlines()[len(NAMES) :] == [f"weights {work / 'mean' / 'weights'}"]
    assert rebuild("own.yaml", "--root", "data") == 0
    assert [command[1] for command in ran] == ["test"] and (work / "rebuild.json").exists()


@pytest.mark.slow
def test_a_stage_that_is_gone_is_made_again_with_the_same_bits(work, monkeypatch, capsys):
    before = {name: _hash(work / name / "weights") for name in ("second", "mean")}
    for name in before:
        shutil.rmtree(work / name)
    ran = in_process(monkeypatch)
    assert rebuild("own.yaml", "--root", "data") == 0
    assert [command[1] for command in ran if command[0] == "zoo"] == ["fit", "export", "export"]
    assert {name: _hash(work / name / "weights") for name in before} == before


def _cut_fits(monkeypatch):
    """Each fit ends within its second epoch."""
    cut = [
        "--trainer.callbacks+=fakes.CutAt",
        "--trainer.callbacks.place=on_train_batch_start",
        "--trainer.callbacks.count=5",
    ]
    in_process(monkeypatch, lambda module, args: [*args, *cut * (args[0] == "fit")])


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["first", "second"])
def test_an_interrupted_fit_resumes_with_the_same_bits(stage, work, monkeypatch, capsys):
    before = _hash(work / stage / "weights")
    shutil.rmtree(work / stage)
    _cut_fits(monkeypatch)
    with pytest.raises(Cut):
        rebuild("own.yaml", "--root", "data")
    assert _states(capsys)[stage] == "unfinished"
    ran = in_process(monkeypatch)
    assert rebuild("own.yaml", "--root", "data") == 0
    fits = [command for command in ran if command[1] == "fit"]
    assert len(fits) == 1 and fits[0][-2:] == ["--ckpt_path", "last"]
    assert _hash(work / stage / "weights") == before


@pytest.mark.parametrize("stage", ["first", "mean", "translated"])
def test_an_interruption_after_the_work_of_a_stage(stage, work, monkeypatch, capsys):
    """A fit that is done is only exported again, an average and a translation are made again."""
    wanted = {"first": ("zoo", "export"), "mean": ("zoo", "export"), "translated": ("zoo.rebuilding.consensus",)}[stage]
    made = work / stage / ("translated" if stage == "translated" else "weights")
    before = _content(made)
    file = json.loads((work / stage / "stage.json").read_text())
    (work / stage / "stage.json").write_text(json.dumps({**file, "done": False}))
    shutil.rmtree(made) if made.is_dir() else made.unlink()
    ran = in_process(monkeypatch)
    assert _states(capsys)[stage] == "unfinished"
    assert rebuild("own.yaml", "--root", "data") == 0
    work_of_stages = [tuple(command[: len(wanted)]) for command in ran if command[0] != "zoo.rebuilding.check"]
    assert work_of_stages == [wanted]
    assert _content(made) == before


def _content(path):
    return _hash(path) if path.is_dir() else path.read_text()


def test_an_interrupted_translation_keeps_what_was_translated(work, monkeypatch):
    target = work / "translated/translated"
    before, calls = target.read_text(), []
    shutil.rmtree(work / "translated")
    monkeypatch.setattr(lines_of_text, "LINES", 6)
    translate = consensus.translations

    def until(name, lines, *options):
        calls.append((Path(name).parts[-2:], len(lines)))
        if len(calls) == 6:
            raise Cut
        return translate(name, lines, *options)

    monkeypatch.setattr(consensus, "translations", until)
    in_process(monkeypatch)
    with pytest.raises(Cut):
        rebuild("own.yaml", "--root", "data")
    assert not target.exists()
    assert rebuild("own.yaml", "--root", "data") == 0
    dates, first = ("luong_dot.dates",), ("first", "weights")
    assert calls == [(dates, 6)] * 3 + [(dates, 2)] + [(first, 6)] * 4 + [(first, 2)]
    assert target.read_text() == before


def test_an_interrupted_preparation_begins_again(work, monkeypatch):
    before = (work / "lines/lines").read_text()
    shutil.rmtree(work / "lines")
    in_process(monkeypatch)
    shell = Processes.shell

    def stopped(self, lines, folder, variables):
        shell(self, "echo half > lines", folder, variables)
        raise Cut

    with monkeypatch.context() as cut:
        cut.setattr(Processes, "shell", stopped)
        with pytest.raises(Cut):
            rebuild("own.yaml", "--root", "data")
    assert (work / "lines/lines").read_text() == "half\n"
    assert rebuild("own.yaml", "--root", "data") == 0
    assert (work / "lines/lines").read_text() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda work: ["--optimizer.lr", "0.02"], "is of other settings (command_line.optimizer.lr was not given, is"),
        (
            lambda work: _recipe(lambda stages: stages[3]["settings"].update({"data.seed": 4})),
            "settings.data.seed was 3, is 4",
        ),
        (
            lambda work: _recipe(lambda stages: stages.pop(2) and stages[2].pop("settings")),
            "is of other settings (settings was",
        ),
        (lambda work: _write("data/pairs.tsv", "a\tb\n" * 9), "was made with another pairs.tsv of the data"),
        (
            lambda work: _write(work / "lines/more", "changed"),
            "more is missing or was changed since the stage was done",
        ),
        (lambda work: _replace(work / "first/stage.json", '"done": true', '"done": tr'), "is damaged: delete"),
        (
            lambda work: _replace(work / "mean/stage.json", _hash(work / "second/weights"), "0" * 64),
            "was made with another second",
        ),
    ],
)
def test_other_settings_or_data_are_refused_before_anything_runs(change, said, work, monkeypatch, capsys):
    options = change(work) or []
    ran = in_process(monkeypatch)
    capsys.readouterr()
    code = rebuild("own.yaml", "--root", "data", *options)
    assert code == 2 and not ran
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line and ("delete" in line)


def _recipe(change):
    recipe = yaml.safe_load(Path("own.yaml").read_text())
    change(recipe["stages"])
    Path("own.yaml").write_text(yaml.safe_dump(recipe))


def _write(path, text):
    Path(path).write_text(text)


def _replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_wrong_settings_of_a_late_stage_are_found_first(work, monkeypatch, capsys):
    _recipe(lambda stages: stages[3]["settings"].update({"trainer.epochs": 4}))
    ran = in_process(monkeypatch)
    assert rebuild("own.yaml", "--root", "data", "--output", "fresh") == 2
    assert [command[0] for command in ran] == ["zoo.rebuilding.check"]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("zoo: error: stage second: ") and "trainer.epochs" in line


def test_a_stage_that_reads_the_data_asks_for_the_folder(work, monkeypatch, capsys):
    monkeypatch.setenv("ZOO_DATA", "")
    assert rebuild("own.yaml", "--output", "fresh") == 2
    assert "stage lines reads files of the data: give --root DATA, or set ZOO_DATA" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["data", "recipe", "settings"])
def test_the_test_is_repeated_with_other_data_or_settings(change, work, monkeypatch, capsys):
    """Also where no stage has read them: here the test file alone."""
    recipe = yaml.safe_load(Path("own.yaml").read_text())
    recipe["data"]["init_args"]["test_src"] = "other.tsv"
    Path("own.yaml").write_text(yaml.safe_dump({**recipe, "stages": [{"average": ["luong_dot.dates"] * 2}]}))
    _write("data/other.tsv", "1 may 1991\t1991-05-01\n" * 4)
    in_process(monkeypatch)
    given = ["own.yaml", "--root", "data", "--output", "fresh"]
    assert rebuild(*given) == 0
    scores = json.loads(Path("fresh/test/record.json").read_text())["scores"]
    assert scores["test/exact_match"] == 100
    ran, more = in_process(monkeypatch), []
    assert rebuild(*given) == 0 and not ran
    if change == "data":
        _write("data/other.tsv", "1 may 1991\t1991-05-02\n" * 4)
    elif change == "recipe":
        recipe["data"]["init_args"]["batch_size"] = 2
        Path("own.yaml").write_text(yaml.safe_dump({**recipe, "stages": [{"average": ["luong_dot.dates"] * 2}]}))
    else:
        more = ["--data.batch_size", "2"]
    assert rebuild(*given, *more) == 0
    assert [command[1] for command in ran] == ["test"]
    if change == "data":
        assert json.loads(Path("fresh/test/record.json").read_text())["scores"]["test/exact_match"] == 0


def test_an_interrupted_fit_does_not_go_on_with_other_data(work, monkeypatch, capsys):
    shutil.rmtree(work / "first")
    _cut_fits(monkeypatch)
    _recipe(lambda stages: stages.__delitem__(slice(2, None)))
    _recipe(lambda stages: stages[0].update(prepare="echo a > lines; cp lines more"))
    shutil.rmtree(work / "lines")
    with pytest.raises(Cut):
        rebuild("own.yaml", "--root", "data")
    text = Path("data/pairs.tsv").read_text()
    _write("data/pairs.tsv", text.upper())
    ran = in_process(monkeypatch)
    capsys.readouterr()
    assert rebuild("own.yaml", "--root", "data") == 2 and not ran
    assert "first was made with another pairs.tsv of the data: choose another --output, or" in capsys.readouterr().err
    _write("data/pairs.tsv", text)
    assert rebuild("own.yaml", "--root", "data") == 0
    assert [command[-2:] for command in ran if command[1] == "fit"] == [["--ckpt_path", "last"]]


def test_a_missing_file_of_the_data_stops_a_preparation_that_does_not_quote_it(work, monkeypatch, capsys):
    _recipe(lambda stages: stages[0].update(prepare="cat $(data absent.tsv) < /dev/null > lines; cp lines more"))
    in_process(monkeypatch)
    assert rebuild("own.yaml", "--root", "data", "--output", "fresh") == 2
    assert "stage lines did not find a file of the data that the line above names" in capsys.readouterr().err
    assert not json.loads(Path("fresh/lines/stage.json").read_text())["done"]


def test_failures_name_the_stage(work, monkeypatch, capsys):
    monkeypatch.setattr(Processes, "module", lambda *arguments: None)
    _recipe(lambda stages: stages[0].update(prepare='cat "$(data absent.tsv)" | wc > lines'))
    assert rebuild("own.yaml", "--root", "data", "--output", "fresh") == 2
    assert "stage lines failed with exit code 1; resume with: zoo rebuild own.yaml --root data --output fresh" in (
        capsys.readouterr().err
    )
    _recipe(lambda stages: stages[0].update(prepare="echo > lines"))
    shutil.rmtree("fresh")
    assert rebuild("own.yaml", "--root", "data", "--output", "fresh") == 2
    assert "stage lines did not make fresh/lines/more" in capsys.readouterr().err


def test_two_at_once(work, capsys):
    with FileLock(work / ".lock"):
        assert rebuild("own.yaml", "--root", "data") == 2
    assert "another `zoo rebuild` is at work in runs/rebuild/own" in capsys.readouterr().err


WAITS = """
import signal
from pathlib import Path
for number in (signal.SIGTERM, signal.SIGHUP):  # a program that starts the tests may ignore them
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from zoo.rebuilding.processes import Processes
from zoo.training.signals import ending_by_signal
lines = "trap 'echo bye > said; exit 3' TERM INT HUP; touch ready; while true; do sleep 0.02; done"
with ending_by_signal(lambda number: print("stopped", number, flush=True), list):
    Processes("again").shell(lines, Path(), {})
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_process_of_the_stage_too(number, tmp_path):
    run = subprocess.Popen([sys.executable, "-c", WAITS], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        _until((tmp_path / "ready").exists)
        run.send_signal(number)
        out, _ = run.communicate(timeout=30)
    finally:
        run.kill()
    assert (run.returncode, out) == (128 + number, f"stopped {number}\n")
    assert (tmp_path / "said").read_text() == "bye\n"


def _until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def test_a_signal_within_a_stage_stops_all(monkeypatch, tmp_path):
    """Of a process that does not end by itself too."""
    monkeypatch.setattr("zoo.rebuilding.processes.WAIT", 0.2)

    def wait(self, timeout=None):
        if timeout is None and not self.poll() and not killed:
            killed.append(self)
            _until((tmp_path / "ready").exists)
            raise Stopped(signal.SIGTERM)
        return plain(self, timeout)

    killed, plain = [], subprocess.Popen.wait
    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    with pytest.raises(Stopped):
        Processes("again").shell("trap '' TERM; touch ready; while true; do sleep 0.05; done", tmp_path, {})
    assert killed[0].returncode == -signal.SIGKILL


@pytest.mark.slow
def test_in_processes_of_their_own(begun, work, capfd):
    """As a user runs it: stopped within a training, by a signal and by force, then resumed with the same bits."""
    output = Path("again")
    command = [sys.executable, "-m", "zoo", "rebuild", "own.yaml", "--root", "data", "--output", str(output)]
    for number, stage in ((signal.SIGTERM, "first"), (signal.SIGKILL, "second")):
        run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        _until(lambda stage=stage: list(output.glob(f"{stage}/*/checkpoints/last.ckpt")), 600)
        os.kill(run.pid, number)
        error = run.communicate(timeout=60)[1]
        if number == signal.SIGTERM:
            assert run.returncode == 143
            said = error.splitlines()[-1]
            assert said == "zoo: stopped by SIGTERM; resume with: zoo rebuild own.yaml --root data --output again"
        _until(lambda: not _is_running(output), 60)
    assert subprocess.run(command, timeout=600).returncode == 0
    for name in ("first", "second", "mean"):
        assert _hash(output / name / "weights") == _hash(work / name / "weights")


def _is_running(output):
    """Whether a training still has the lock of its folder."""
    for lock in output.glob("*/*/.lock"):
        try:
            with FileLock(lock).acquire(blocking=False):
                pass
        except Timeout:
            return True
    return False
