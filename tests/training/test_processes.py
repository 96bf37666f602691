"""Several processes compute what one computes, share everything out, write once, and end together."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import time

import process_worker
import pytest
import torch
import yaml
from filelock import FileLock
from forks import Fork, free_port

from zoo.cli import main

pytestmark = pytest.mark.integration

SCORES = {"translation": "chrf", "classification": "macro_f1", "captioning": "bleu_2", "reading": "accuracy"}
WORLDS = [2, pytest.param(3, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """World size -> what each of its processes found; trained once for all processes of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "processes"

    @functools.cache
    def found(world):
        files = [folder / f"{world}.{rank}.pt" for rank in range(world)]
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                folder.mkdir()
                process_worker.write_files(folder)
            if not all(file.exists() for file in files):
                port = free_port()
                forks = [Fork(process_worker.run, rank, world, port, folder) for rank in range(world)]
                ends = [fork.wait(400) for fork in forks]
                assert [end.code for end in ends] == [0] * world, ends[0].output
        return [torch.load(file, weights_only=True) for file in files]

    return found


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("task", process_worker.TASKS)
def test_processes_learn_what_one_learns(results, task, world):
    (one,), several = ([found[task] for found in results(w)] for w in (1, world))
    assert one["steps"] == process_worker.STEPS < len(one["losses"])
    scale = max(map(abs, one["losses"]))  # that of hard attention is a difference, and can be nearly 0
    for found in several:
        assert found["losses"] == several[0]["losses"] and found["losses"] == pytest.approx(
            one["losses"], rel=1e-6, abs=1e-6 * scale
        )
        assert all(torch.equal(tensor, several[0]["weights"][name]) for name, tensor in found["weights"].items())
        weights, others = (torch.cat([x.double().flatten() for x in f["weights"].values()]) for f in (one, found))
        assert (weights - others).norm() < 1e-6 * weights.norm()
        assert found["fitted"] == several[0]["fitted"] and found["fitted"] == pytest.approx(one["fitted"], rel=1e-6)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("task", process_worker.TASKS)
def test_scores_do_not_depend_on_who_computes_them(results, task, world):
    (one,), several = ([found[task]["scores"] for found in results(w)] for w in (1, world))
    assert one[f"val/{SCORES[task]}"] > 0
    for scores in several:
        assert scores.keys() == one.keys() and {"val/loss", f"test/{SCORES[task]}"} <= scores.keys()
        for name, value in one.items():
            is_mean = name.endswith(
                ("/loss", "/overlap")
            )  # of fp32 numbers, which the padding of a batch changes in the last digit
            assert scores[name] == (pytest.approx(value, rel=1e-6) if is_mean else value), name


@pytest.mark.parametrize("world", WORLDS)
def test_only_the_first_process_writes(results, world):
    (one,), (first, *others) = ([found["written"] for found in results(w)] for w in (1, world))
    assert others == [[]] * (world - 1)
    for paths in (one, first):
        assert {os.path.basename(path) for path in paths} >= {
            "best.ckpt",
            "last.ckpt",
            "metrics.csv",
            "meta.json",
            "lengths.tokens",
            "progress",
        }


def test_a_process_without_labels_in_a_step(tmp_path):
    (tmp_path / "text.txt").write_text(" ".join("abcdefghijklmnop") + "\n")  # with the line end 17: parts of 9 and 8
    port = free_port()
    forks = [Fork(process_worker.train_on_a_few_words, rank, 2, port, tmp_path) for rank in range(2)]
    ends = [fork.wait(120) for fork in forks]
    assert [end.code for end in ends] == [0, 0], ends[0].output
    first, second = (end.output.strip().splitlines()[-1] for end in ends)
    assert first == second and first.startswith("6 "), "the same steps and weights"


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Writes tiny.yaml, a training of some seconds, into a new folder and goes there."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def write(folder, **trainer):
        options = {
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "max_epochs": 1,
            "log_every_n_steps": 1,
        }
        sizes = {"src_vocab_size": 80, "tgt_vocab_size": 20, "embedding_size": 8, "hidden_size": 8, "dropout": 0.0}
        parts = {
            "trainer": {**options, **trainer},
            "model": {"class_path": "zoo.models.luong.LuongNMT", "init_args": sizes},
            "data": {
                "class_path": "zoo.data.Dates",
                "init_args": {"train_size": 100, "val_size": 5, "test_size": 5, "batch_size": 4},
            },
        }
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tiny.yaml").write_text(yaml.safe_dump(parts))
        monkeypatch.chdir(tmp_path / folder)
        return tmp_path / folder

    return write


FIT = ["zoo", "fit", "--config", "tiny.yaml"]
TORCHRUN = ["torch.distributed.run", "--nproc-per-node"]


def _torchrun(count, *options):
    return [sys.executable, "-m", *TORCHRUN, str(count), "--master-port", str(free_port()), *options, "-m", *FIT]


@pytest.mark.parametrize(
    ("by", "rank", "how", "others_wait", "message"),
    [
        ("zoo", 1, "raise", False, "RuntimeError: the disk is full"),
        pytest.param("zoo", 0, "raise", False, "RuntimeError: the disk is full", marks=pytest.mark.slow),
        pytest.param("zoo", 1, "exit", False, "zoo: error: another process of this run ended", marks=pytest.mark.slow),
        pytest.param("zoo", 1, "exit", True, "terminated with code 1", marks=pytest.mark.slow),
        pytest.param(
            "zoo", 0, "exit", True, "zoo: error: the process that started this one ended", marks=pytest.mark.slow
        ),
        pytest.param("torchrun", 1, "raise", False, "RuntimeError: the disk is full", marks=pytest.mark.slow),
        pytest.param("torchrun", 1, "exit", True, "exitcode  : 1", marks=pytest.mark.slow),
    ],
)
def test_a_process_that_ends_ends_all(recipe, by, rank, how, others_wait, message):
    ends = {"class_path": "process_worker.Ends", "init_args": {"rank": rank, "how": how, "others_wait": others_wait}}
    folder = recipe(
        "run", devices=2, strategy="ddp", callbacks=[ends], enable_checkpointing=False, num_sanity_val_steps=0
    )
    command = _torchrun(2) if by == "torchrun" else [sys.executable, "-m", *FIT]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=280
    )  # returns when the last process has closed its stderr
    assert time.time() - (folder / "ended").stat().st_mtime < 20
    assert run.returncode != 0 and message in run.stderr
    if by == "zoo" and not others_wait:  # on a busy machine Lightning may be faster to end the others
        assert (
            "zoo: error: another process of this run ended" in run.stderr
            or "terminating all other processes" in run.stderr
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("by", ["zoo", "torchrun"])
def test_a_signal_to_one_process_ends_all(recipe, by, rank, name):
    number = signal.Signals[name]
    sends = {"class_path": "process_worker.Signals", "init_args": {"rank": rank, "number": int(number)}}
    folder = recipe("run", devices=2, strategy="ddp", max_epochs=3, callbacks=[sends])
    command = _torchrun(2) if by == "torchrun" else [sys.executable, "-m", *FIT]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert time.time() - (folder / "ended").stat().st_mtime < 30
    assert run.returncode == 128 + number if by == "zoo" else run.returncode
    line = f"zoo: stopped by {name}; resume with: zoo fit --config tiny.yaml --ckpt_path last"
    assert run.stderr.splitlines().count(line) == 1 or by == "torchrun"
    assert "Traceback" not in run.stderr or by == "torchrun"


def _val_loss(folder):
    lines = [line.split(",") for line in (folder / "runs/tiny/version_0/metrics.csv").read_text().splitlines()]
    column = lines[0].index("val/loss")
    return float([line[column] for line in lines[1:] if line[column]][-1])


@pytest.mark.slow
def test_every_launcher_trains_the_same(recipe):
    found = {}
    for name, options in (("devices", {}), ("torchrun", {}), ("nodes", {"num_nodes": 2, "devices": 1}), ("slurm", {})):
        folder = recipe(name, **{"devices": 2, "strategy": "ddp", **options})
        environments = [os.environ.copy(), os.environ.copy()]
        if name == "devices":
            commands = [[sys.executable, "-m", *FIT]]
        elif name == "torchrun":
            commands = [_torchrun(2)]
        elif name == "nodes":
            port = str(free_port())
            nodes = [
                ["--nnodes", "2", "--node-rank", str(rank), "--master-addr", "127.0.0.1", "--master-port", port]
                for rank in (0, 1)
            ]
            commands = [_torchrun(1, *node) for node in nodes]
            environments[1]["ZOO_CACHE"] = str(folder / "cache_of_the_second_node")
        else:
            job = {
                "SLURM_JOB_NAME": "train",
                "SLURM_JOB_ID": "1",
                "SLURM_NTASKS": "2",
                "SLURM_NTASKS_PER_NODE": "2",
                "SLURM_NODEID": "0",
            }
            job |= {"SLURM_NODELIST": "127.0.0.1", "MASTER_PORT": str(free_port())}
            environments = [{**os.environ, **job, "SLURM_PROCID": rank, "SLURM_LOCALID": rank} for rank in ("0", "1")]
            commands = [[sys.executable, "-m", *FIT]] * 2
        running = [
            subprocess.Popen(c, env=env, stderr=subprocess.PIPE, text=True) for c, env in zip(commands, environments)
        ]
        errors = [process.communicate(timeout=280)[1] for process in running]
        assert [process.returncode for process in running] == [0] * len(running), errors
        found[name] = _val_loss(folder)
        assert sorted(path.name for path in (folder / "runs/tiny").rglob("*.ckpt")) == ["best.ckpt", "last.ckpt"]
        assert len(list((folder / "runs/tiny").glob("version_*"))) == 1
    assert len(set(found.values())) == 1
    recipe("one")
    assert main(["fit", "--config", "tiny.yaml", "--data.init_args.batch_size", "8"]) == 0
    assert found["devices"] == pytest.approx(_val_loss(folder.parent / "one"), rel=1e-6)


PARTS = ("state_dict", "optimizer_states", "lr_schedulers", "zoo_random", "global_step")


def _same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "name"), [(0, "SIGKILL"), (1, "SIGTERM")])
def test_two_processes_resume_to_the_bit(recipe, rank, name):
    """A training of two processes, stopped in its second epoch and resumed, ends as one that nothing disturbs."""
    trainer = {"devices": 2, "strategy": "ddp", "max_epochs": 3}
    command, last = [sys.executable, "-m", *FIT], "runs/tiny/checkpoints/last.ckpt"
    options = {"capture_output": True, "text": True, "timeout": 280}

    def found(folder):
        checkpoint = torch.load(folder / last, weights_only=True)
        return {part: checkpoint[part] for part in PARTS}

    dropout = ["--model.dropout", "0.3"]
    folder = recipe("whole", **trainer)
    run = subprocess.run([*command, *dropout], **options)
    assert run.returncode == 0, run.stderr
    whole = found(folder)
    sends = {"class_path": "process_worker.Signals", "init_args": {"rank": rank, "number": int(signal.Signals[name])}}
    folder = recipe("stopped", **trainer, callbacks=[sends])
    run = subprocess.run([*command, *dropout], **options)
    assert run.returncode != 0 and 0 < found(folder)["global_step"] < whole["global_step"]
    (folder / "tiny.yaml").write_text((folder.parent / "whole" / "tiny.yaml").read_text())
    run = subprocess.run([*command, *dropout, "--ckpt_path", "last"], **options)
    assert run.returncode == 0 and "Restored all states" in run.stderr, run.stderr
    resumed = found(folder)
    assert whole["zoo_random"]["cpu"].shape[0] == 2
    assert [part for part in PARTS if not _same(whole[part], resumed[part])] == []


@pytest.fixture
def machines():
    """Two network namespaces with a line between them: name, address and device of each."""

    def ip(*args):
        return subprocess.run(["ip", *args], capture_output=True, text=True)

    tag = f"zoo{os.getpid()}"
    both = [(f"{tag}{side}", f"10.231.7.{n}", f"v{side}{os.getpid()}") for n, side in ((1, "a"), (2, "b"))]
    if shutil.which("ip") is None or ip("netns", "add", both[0][0]).returncode:
        pytest.skip("network namespaces need `ip` and the rights of root")
    try:
        (one, _, device), (other, _, peer) = both
        assert ip("netns", "add", other).returncode == 0
        made = ip("link", "add", device, "netns", one, "type", "veth", "peer", "name", peer, "netns", other)
        assert made.returncode == 0, made.stderr
        for name, address, end in both:
            for args in (
                ("addr", "add", f"{address}/24", "dev", end),
                ("link", "set", end, "up"),
                ("link", "set", "lo", "up"),
            ):
                assert ip("-n", name, *args).returncode == 0
        yield both
    finally:
        for name, _, _ in both:
            ip("netns", "del", name)


@pytest.mark.slow
def test_two_machines(recipe, machines):
    folder = recipe("two", devices=1, num_nodes=2, strategy="ddp")
    running, place = [], ["--master-addr", machines[0][1], "--master-port", "29500"]
    try:
        for rank, (name, _, device) in enumerate(machines):
            command = ["ip", "netns", "exec", name, *_torchrun(1, "--nnodes", "2", "--node-rank", str(rank), *place)]
            environment = os.environ | {"GLOO_SOCKET_IFNAME": device, "ZOO_CACHE": str(folder / f"cache{rank}")}
            running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        errors = [process.communicate(timeout=400)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], errors
    recipe("one")
    assert main(["fit", "--config", "tiny.yaml", "--data.init_args.batch_size", "8"]) == 0
    assert _val_loss(folder) == pytest.approx(_val_loss(folder.parent / "one"), rel=1e-6)


def test_fp16_needs_a_gpu(recipe, capsys):
    recipe("run")
    assert main(["fit", "--config", "tiny.yaml", "--trainer.precision", "16-mixed"]) == 2
    assert (
        "trainer.precision 16-mixed (fp16) needs a GPU; on the CPU use bf16-mixed or 32-true" in capsys.readouterr().err
    )
