"""`zoo serve`: the life of its processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from serving_fakes import IMAGES, QUESTIONS, TEXTS, WORDS, Client, build, free_port, in_base64, near

from zoo.cli import main

pytestmark = pytest.mark.integration


class Process(Client):
    """`zoo serve` as users start it."""

    def __init__(self, source, *options, **environment):
        super().__init__(free_port())
        command = [sys.executable, "-m", "zoo", "serve", source, "--port", str(self.port), *options]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}, start_new_session=True
        )

    def wait_until_ready(self):
        line = self.process.stderr.readline()
        assert line.endswith(f" at http://127.0.0.1:{self.port}/predict; stop with ^C\n"), (
            line + self.process.stderr.read()
        )
        return self

    def end(self, number):
        """Sends a signal to the first process; exit code and what it wrote."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err

    def members(self):
        """Command lines of the processes that are there, by their id."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                state, _, _, session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(session) == self.process.pid and state != "Z":
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        return found

    def all_gone(self):
        """Whether every process has ended within half a minute."""
        return any(not self.members() or time.sleep(0.2) for _ in range(150))

    def close(self):
        for pid in self.members():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def process(*args, **environment):
    started = Process(*args, **environment)
    try:
        yield started
    finally:
        started.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_a_served_model_answers_and_stops_in_order(folders, number, heeded):
    source = folders["translator"]
    with process(source, "--batch-wait-ms", "3000") as server:
        server.wait_until_ready()
        assert server.get("/health").body == "ok" and server.get("/info").body["model"]["name"] == "translator"
        assert fastest_answer(server.port) < 0.035
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(server.send, json.dumps({"text": text})) for text in TEXTS[:3]] + [
                pool.submit(server.send, "{")
            ]
            time.sleep(1.5)  # the batch still waits
            code, err = server.end(number)
        assert (code, err) == (0, "")
        assert [answer.result().status for answer in answers] == [200, 200, 200, 400]
        model = build("translator")
        assert [answer.result().body["text"] for answer in answers[:3]] == [
            model.translate(text).text for text in TEXTS[:3]
        ]
        assert {answer.result().headers["X-Batch-Size"] for answer in answers[:3]} == {"3"}
        assert server.all_gone()
        with pytest.raises(ConnectionRefusedError):
            server.get("/health")


def fastest_answer(port):
    """Seconds, on a connection in use. Each is 0.04 if an answer's second part waits until the client confirms the first."""
    connection, seconds = HTTPConnection("127.0.0.1", port), []
    for _ in range(20):
        start = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        seconds.append(time.perf_counter() - start)
    connection.close()
    return min(seconds[5:])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["documents", "texts", "pairs", "captioner", "language_model", "reader"])
def test_every_kind_of_model_is_served(folders, kind):
    with process(folders[kind], "--workers", "2") as server:
        fields = server.wait_until_ready().get("/info").body["model"]["fields"]
        body = {"text": "a good film", "pair": ["a", "film"], "image": in_base64(IMAGES[0]), "question": QUESTIONS[0]}[
            fields[0]
        ]
        first = server.ask(**{fields[0]: body, "attention": True})
        with ThreadPoolExecutor(8) as pool:
            others = list(pool.map(lambda _: server.ask(**{fields[0]: body, "attention": True}), range(40)))
        assert others == [near(first)] * 40
        assert server.end(signal.SIGINT) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "onnx"])
@pytest.mark.parametrize("kind", ["translator", "texts"])
def test_memory_stays_the_same(folders, kind, engine, tmp_path):
    sent = [json.dumps({"text": " ".join(WORDS.split()[:n] * 2), "attention": n > 3}) for n in range(1, 7)]
    requests = [(body, 200) for body in sent] + [("{", 400), ('{"txt": "a"}', 400), (json.dumps({"text": ""}), 422)]
    with process(folders[kind], "--runtime", engine, ZOO_CACHE=str(tmp_path)) as server:
        while (line := server.process.stderr.readline()).startswith("zoo: exporting"):
            pass
        assert "stop with ^C" in line, line + server.process.stderr.read()

        def load(count):
            with ThreadPoolExecutor(8) as pool:
                asked = [requests[n % len(requests)] for n in range(count)]
                found = pool.map(lambda request: server.send(request[0]).status, asked)
                assert list(found) == [status for _, status in asked]
            return sum(map(resident, server.members()))

        before = load(500)
        after = load(2_000)
        assert after - before < 3, f"{after - before:.1f} MB more than the {before:.1f} MB after 500 requests"


def resident(pid):
    """MB of memory of a process."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


@pytest.mark.slow
def test_a_key_can_be_asked_for(folders):
    with process(folders["texts"], ZOO_API_KEY="secret") as server:
        server.wait_until_ready()
        for path in ("/info", "/health"):
            assert server.get(path).status == 401
        assert server.send('{"text": "a"}').status == 401
        assert server.send('{"text": "a"}', X_API_Key="wrong").status == 401
        assert server.send('{"text": "a"}', X_API_Key="secret").status == 200


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(folders):
    with process(folders["texts"]) as server:
        server.wait_until_ready()
        assert server.send('{"text": "a"}').status == 200
        worker = next(pid for pid, command in server.members().items() if "spawn_main" in command)
        os.kill(worker, signal.SIGKILL)
        assert any(server.send('{"text": "a"}').status == 200 for _ in range(5))  # waits for the new one
        assert server.get("/health").status == 200
        assert worker not in server.members()
        assert server.end(signal.SIGTERM)[0] == 0 and server.all_gone()


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_seen_and_replaced(folders):
    with process(folders["texts"], "--timeout", "60") as server:
        server.wait_until_ready()
        worker = next(pid for pid, command in server.members().items() if "spawn_main" in command)
        os.kill(worker, signal.SIGSTOP)
        assert any(server.get("/health").status == 503 or time.sleep(0.5) for _ in range(30))
        assert any(server.send('{"text": "a"}').status == 200 for _ in range(5))
        assert worker not in server.members() and server.get("/health").status == 200


@pytest.mark.slow
def test_a_worker_that_cannot_be_started_again_ends_the_server(tmp_path):
    folder = build("texts").save_pretrained(tmp_path / "gone")
    with process(f"local-dir:{folder}") as server:
        server.wait_until_ready()
        (folder / "model.safetensors").unlink()
        os.kill(next(pid for pid, command in server.members().items() if "spawn_main" in command), signal.SIGKILL)
        _, err = server.process.communicate(timeout=120)
        assert server.process.returncode == 2 and "zoo: error: " in err.splitlines()[-1] and "Traceback" not in err
        assert server.all_gone()


def test_a_key_that_is_empty_lets_nobody_in(folders, capsys, monkeypatch):
    for name, message in (
        ("ZOO_API_KEY", "ZOO_API_KEY is set but empty"),
        ("LIT_SERVER_API_KEY", "is no longer read; set ZOO_API_KEY"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, " ")
            assert main(["serve", folders["texts"], "--port", str(free_port())]) == 2
        err = capsys.readouterr().err
        assert message in err and err.count("\n") == 1


@pytest.mark.slow
def test_nothing_outlives_the_first_process(folders):
    with process(folders["texts"]) as server:
        server.wait_until_ready()
        assert len(server.members()) >= 3
        server.process.kill()
        assert server.all_gone(), server.members()


@pytest.mark.slow
def test_interrupted_while_it_starts(folders):
    with process(folders["texts"]) as server:
        while not any("spawn_main" in command for command in server.members().values()):
            time.sleep(0.1)
        time.sleep(1)
        os.killpg(server.process.pid, signal.SIGINT)  # as a terminal does
        _, err = server.process.communicate(timeout=60)
        assert (server.process.returncode, err) == (0, "") and server.all_gone()


@pytest.mark.slow
def test_a_damaged_model_is_one_line(tmp_path):
    folder = build("texts").save_pretrained(tmp_path / "damaged")
    (folder / "model.safetensors").write_bytes(b"x")
    with process(f"local-dir:{folder}") as server:
        _, err = server.process.communicate(timeout=60)
        assert server.process.returncode == 2 and err.count("\n") == 1
        assert err.startswith("zoo: error: ") and "model.safetensors is damaged or was changed" in err
