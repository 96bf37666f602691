"""`zoo serve`: what it tells of itself, and the command."""

import asyncio
import os
import re
import signal
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from fakes import Toy
from serving_fakes import free_port, loaded

from zoo.cli import _parsed, main
from zoo.commands import graphs
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.han import HAN
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.serving import server, worker
from zoo.serving.listening import bound, listen

# ---- what it tells of itself ----


def test_info_and_health(translator, captioner):
    info = translator.get("/info").body
    assert info["model"] == {
        "name": "translator",
        "class": "LuongNMT",
        "task": "translation",
        "parameters": sum(p.numel() for p in translator.api.form.model.parameters()),
        "fields": ["text", "texts", "beam_size", "n_best", "length_penalty", "attention"],
        "limits": {
            "bytes": 20_000,
            "items": 4,
            "work": 4000,
            "work_of_one_text": 500,
            "tokens": 12,
            "characters_of_a_word": 1000,
            "beam_size": 16,
        },
        "batch": {"items": 8, "wait_ms": 20.0, "work": 500},
        "card": {"name": "tiny"},
    }
    assert info["server"]["max_payload_size"] == 20_000 and info["server"]["devices"] == ["cpu"]
    found = captioner.get("/info").body["model"]
    assert found["task"] == "captioning" and found["limits"]["pixels"] == 64_000_000 and "tokens" not in found["limits"]
    assert found["limits"]["pixels_of_other_formats"] == 21_333_333
    assert translator.get("/health").status == 200


def test_info_of_a_language_model(language_model):
    info = language_model.get("/info").body["model"]
    assert info["task"] == "language modelling" and info["class"] == "KeyValuePredictLM" and "question" not in info
    assert info["fields"] == [
        "text", "texts", "max_words", "min_words", "beam_size", "n_best", "length_penalty", "no_repeat_ngram", "allow_unk", "temperature",
        "top_k", "perplexity", "attention",
    ]  # fmt: skip
    assert info["limits"] == {
        "bytes": 20_000, "items": 4, "work": 4000, "work_of_one_text": 500, "tokens": 12, "characters_of_a_word": 1000, "beam_size": 16,
        "max_words": 200, "no_repeat_ngram": 200, "temperature": 100, "top_k": 100_000,
    }  # fmt: skip


def test_info_of_a_reader(reader):
    info = reader.get("/info").body["model"]
    assert info["task"] == "reading" and info["class"] == "AttentionOverAttentionReader"
    assert info["fields"] == ["question", "questions", "attention"] and info["question"] == [
        "document",
        "query",
        "candidates",
    ]
    assert info["limits"] == {
        "bytes": 20_000, "items": 4, "work": 4000, "work_of_one_question": 500, "tokens": 20, "characters_of_a_word": 1000, "query_tokens": 20, "candidates": 20
    }  # fmt: skip


def test_a_model_that_was_not_trained_is_not_served(tmp_path):
    for kind in (LuongNMT, HAN, ShowAttendTell, KeyValuePredictLM, AttentionOverAttentionReader):
        model = kind(**kind.tiny)
        with pytest.raises(ValueError, match="has no tokenizer yet"):
            loaded(f"local-dir:{model.save_pretrained(tmp_path / type(model).__name__)}", max_tokens=None)


@pytest.mark.parametrize("kind", ["translator", "documents", "texts", "pairs", "captioner", "language_model", "reader"])
def test_a_model_that_fails_on_any_input_is_not_served(folders, monkeypatch, kind):
    """Its trial at start computes something, so that this is seen before the first request."""
    monkeypatch.setattr(torch.nn.Embedding, "forward", None)
    with pytest.raises(TypeError, match="NoneType"):
        loaded(folders[kind])


def test_a_model_that_answers_nothing_is_not_served(toy_registry, monkeypatch):
    monkeypatch.setattr(Toy, "task", replace(Toy.task, name="capitals"))
    with pytest.raises(ValueError, match="toy.v2 is for capitals and cannot be served; models for translation, .* can"):
        loaded("toy.v2")


def test_its_files_import_one_way():
    """Each only those before it, so that each can be read without the ones behind it."""
    order = [
        "limits",
        "checks",
        "images",
        "base",
        "forms",
        "worker",
        "child",
        "pool",
        "connections",
        "senders",
        "endpoint",
        "listening",
        "server",
        "__init__",
    ]
    folder = Path(server.__file__).parent
    assert sorted(order) == sorted(file.stem for file in folder.glob("*.py"))
    for n, name in enumerate(order):
        text = (folder / f"{name}.py").read_text()
        used = {
            a or b for a, b in re.findall(r"^ *from zoo\.serving(?:\.(\w+) import| import (\w+))", text, re.MULTILINE)
        }
        assert used <= set(order[:n]), f"{name} must not import {used - set(order[:n])}"
        assert text.count("\n") <= 280


# ---- the command ----


def fails(capsys, *args):
    """The one line of a command that must fail."""
    assert main(["serve", *args]) == 2
    err = capsys.readouterr().err
    assert err.startswith("zoo: error: ") and err.count("\n") == 1
    return err.removeprefix("zoo: error: ").rstrip()


def test_mistakes(toy_registry, capsys, monkeypatch):
    assert fails(capsys, "toy.v3") == "unknown model 'toy.v3'; nearest: toy.v2, toy.v10"
    assert fails(capsys, "toy.v2", "--port", "0") == "--port must be from 1 to 65,535; got 0"
    assert fails(capsys, "toy.v2", "--max-batch", "0") == "--max-batch must be from 1 to 4,096; got 0"
    assert fails(capsys, "toy.v2", "--batch-wait-ms", "-1") == "--batch-wait-ms must be from 0 to 10,000; got -1.0"
    for wrong in ("", "https://zoo.example", "zoo.example:8080", "zoo.example/page", " zoo.example"):
        message = f"--allow-host takes the name of a host alone, such as zoo.example, or *; got {wrong!r}"
        assert fails(capsys, "toy.v2", "--allow-host", "*", "--allow-host", wrong) == message
    assert fails(capsys, "toy.v2", "--devices", "gpu") == "--devices must be cpu, auto or a number of GPUs; got 'gpu'"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert fails(capsys, "toy.v2", "--devices", "2").startswith(
        "--devices 2: this machine has 1 GPUs that torch can use"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = f"cannot listen on 127.0.0.1 port {port}: Address already in use; choose another --port"
        assert fails(capsys, "toy.v2", "--port", str(port)) == message
    with socket.socket() as taken:  # bound, and not yet listening, as by a server that loads its model
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with bound("127.0.0.1", port) as ours:
            taken.listen()
            with pytest.raises(ValueError, match=f"cannot listen on 127.0.0.1 port {port}: .*; choose another --port"):
                listen(ours, "127.0.0.1", port)
    for key in ("secret\r", " secret", "sec\nret"):
        monkeypatch.setenv("ZOO_API_KEY", key)
        assert "ZOO_API_KEY begins or ends with white space or has a control" in fails(capsys, "toy.v2")
    monkeypatch.delenv("ZOO_API_KEY")
    monkeypatch.setattr("zoo.serving.run", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert fails(capsys, "toy.v2") == '`zoo serve` needs uvicorn; install with: pip install "uvicorn>=0.30"'


STOPPING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def test_a_second_signal_does_not_break_off_the_end(monkeypatch):
    ended = []

    async def interrupted(*arguments):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(10)
        finally:  # here the processes of the model are stopped
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
            ended.append(True)

    before = [signal.getsignal(number) for number in STOPPING]
    monkeypatch.setattr(server, "_serve", interrupted)
    server.run(_parsed(["serve", "toy.v2", "--port", str(free_port())]), {})
    assert ended == [True]
    assert before == [signal.getsignal(number) for number in STOPPING]


def test_nobody_waits_for_others_unless_asked():
    assert _parsed(["serve", "toy.v2"]).batch_wait_ms == 0
    assert _parsed(["serve", "toy.v2", "--batch-wait-ms", "5"]).batch_wait_ms == 5


def test_graphs_get_the_cores_that_the_process_may_use(monkeypatch):
    asked = []
    model = SimpleNamespace(about={"class": "Toy", "parameters": 1, "weights": "fp32"})
    monkeypatch.setattr(graphs, "load_graphs", lambda *arguments: asked.append(arguments) or model)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    for cores, workers in (({3}, 1), ({0, 1, 2, 3}, 1), ({0, 1, 2, 3}, 2), ({0}, 4)):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, cores=cores: cores, raising=False)
        graphs.open_graphs(True, "toy.v2", "cpu", workers)
    monkeypatch.delattr("os.sched_getaffinity")  # other systems
    graphs.open_graphs(True, "toy.v2", "cpu", 2)
    assert asked == [("toy.v2", True, threads) for threads in (1, 4, 2, 1, 32)]


def test_info_says_how_graphs_store_their_weights(monkeypatch):
    about = {"class": "Toy", "parameters": 1, "weights": "int8"}
    monkeypatch.setattr(worker, "FORMS", {"translation": Mock()})
    model = SimpleNamespace(task=SimpleNamespace(name="translation"))
    found = worker.Worker("toy.v2", 1, 1, 100, open_model=lambda *_: (model, about))
    found.form.parts, found.form.limits.return_value = (), {}
    assert about.items() <= found.facts()["model"].items()


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert server._devices("auto") == server._devices("cpu") == ["cpu"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert server._devices("auto") == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"] and server._devices("2") == [
        "cuda:0",
        "cuda:1",
    ]


def test_help_says_why_other_machines_are_kept_out(capsys):
    with pytest.raises(SystemExit) as end:
        main(["serve", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert end.value.code == 0 and "example: zoo serve" in out
    assert "1,000 for completion, 2,000 for the document of a question" in out
    assert "only this machine). There is no encryption; if ZOO_API_KEY is set, requests need that key" in out


def test_a_folder_has_no_8_bit_graphs_but_its_own(monkeypatch):
    monkeypatch.setattr(graphs, "is_exported", lambda name: True)
    for weights in ("float32", "int8"):
        monkeypatch.setattr("zoo.runtime.load", lambda *_: SimpleNamespace(about={"weights": weights}))
        assert graphs.load_graphs("local-dir:mine").about["weights"] == weights
        if weights == "int8":
            assert graphs.load_graphs("local-dir:mine", int8=True)
            continue
        with pytest.raises(ValueError, match="local-dir:mine has no 8-bit graphs: export it with --int8, or leave out"):
            graphs.load_graphs("local-dir:mine", int8=True)


def test_graphs_are_exported_once_before_the_workers(monkeypatch):
    """In another process, whose error is this one's."""
    monkeypatch.setattr(graphs, "is_exported", lambda name: True)
    graphs.export_first("local-dir:of graphs", False)  # nothing to do
    monkeypatch.setattr(graphs, "is_exported", lambda name: False)
    monkeypatch.setattr(graphs, "exported_graphs", lambda name, int8: None)
    with pytest.raises(ValueError, match="local-dir:nowhere"):
        graphs.export_first("local-dir:nowhere", False)


def test_inside_a_notebook(capsys):
    """Its event loop runs already."""

    async def cell():
        return main(["serve", "luong_dot.dates"])

    assert asyncio.run(cell()) == 2
    assert capsys.readouterr().err.endswith("start it in a terminal, or in a cell as !zoo serve\n")
