"""Tiny models of every kind that `zoo serve` knows, a server whose processes are threads, and a client."""

import base64
import http.client
import json
import queue
import socket
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
import uvicorn
from captions_fakes import picture
from litserve.transport.process_transport import MPQueueTransport
from litserve.utils import LitAPIStatus, WorkerSetupStatus

from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.han import HAN
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.serving.endpoint import PREDICT
from zoo.serving.server import Server
from zoo.serving.worker import ZooAPI
from zoo.text import EOS, Tokenizer

WORDS = "a good film . it is bad"
TEXTS = ["a good film .", "it is bad", "bad film", "a", "it is a good film . a bad film is it", "film"]
IMAGES = [picture(n, 20 + n, 16) for n in range(3)]
DOCUMENT = "Ann met the dog . The dog ran , and Ann ran after it ."
QUERY = "XXXXX ran after the dog ."
QUESTIONS = [
    {"document": DOCUMENT, "query": QUERY},
    {"document": DOCUMENT, "query": "Bob met XXXXX .", "candidates": ["dog", "Ann", "Bob"]},
    {"document": "Bob met Zog .", "query": "XXXXX", "candidates": ["Zog", "Bob"]},
]
MAX_TOKENS = {"captioner": None, "reader": 20}  # 12 for the others


def build(kind):
    """With a tokenizer, labels and weights that tell texts apart."""
    torch.manual_seed(0)
    pair = {**StructuredSelfAttention.tiny, "pair": True}
    asked = {**AttentionOverAttentionReader.tiny, "vocab_size": 20, "num_unknown": 4}
    made = {
        "translator": lambda: LuongNMT(**LuongNMT.tiny),
        "documents": lambda: HAN(**HAN.tiny),
        "texts": lambda: StructuredSelfAttention(**StructuredSelfAttention.tiny),
        "pairs": lambda: StructuredSelfAttention(**pair),
        "captioner": lambda: ShowAttendTell(**ShowAttendTell.tiny),
        "language_model": lambda: KeyValuePredictLM(**KeyValuePredictLM.tiny, window=3),
        "reader": lambda: AttentionOverAttentionReader(**asked),
    }
    model = made[kind]()
    tokenizer = Tokenizer.train([WORDS], "word_punct", 11, lowercase=True)
    if kind == "translator":
        model.src_tokenizer = model.tgt_tokenizer = tokenizer
    else:
        model.tokenizer, model.label_names = tokenizer, ["negative", "neutral", "positive"]
    if kind == "reader":
        model.tokenizer = Tokenizer.train([DOCUMENT, QUERY], "word", 20)
        model.embedding.weight.data.mul_(10)
    for p in model.parameters():
        p.data.mul_(4)
    if kind in ("translator", "language_model"):
        output = model.embeddings.output if kind == "translator" else model.words.output
        output.bias.data[EOS] = -4  # else nothing is written
    return model.eval()


KINDS = ("translator", "documents", "texts", "pairs", "captioner", "language_model", "reader")


def loaded(source, max_items=4, max_batch=8, batch_wait=0.02, **limits):
    """What a worker holds."""
    max_tokens = limits.get("max_tokens", MAX_TOKENS.get(source.rpartition("/")[2], 12))
    api = ZooAPI(source, max_items, max_tokens, 1, max_batch, batch_wait)
    api.load("cpu")
    return api


class Client:
    """Requests to a server on this machine."""

    def __init__(self, port, api=None, server=None):
        self.port, self.api, self.server = port, api, server

    def send(self, body, method="POST", path="/predict", **headers):
        """Status, headers and JSON (or text) of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        body = body.encode() if isinstance(body, str) else body
        connection.request(method, path, body, {"Content-Type": "application/json", **names})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        is_json = answer.headers["Content-Type"] == "application/json"
        return SimpleNamespace(status=answer.status, headers=answer.headers, body=json.loads(content) if is_json else content.decode())

    def ask(self, **fields):
        """The content of an answer that must be right."""
        answer = self.send(json.dumps(fields))
        assert answer.status == 200, answer.body
        return answer.body

    def get(self, path):
        return self.send(None, "GET", path)


@contextmanager
def serving(source, timeout=30.0, **limits):
    """A server whose three kinds of processes are threads of this one: HTTP, the way to the worker and back, the worker."""
    api = loaded(source, **limits)
    server = Server(api, {"name": "tiny"}, 20_000, accelerator="cpu", devices=1, timeout=timeout)
    server.publish(api.facts())
    server.app.response_queue_id = api.spec.response_queue_id = 0
    server.workers_setup_status = {"predict_0": WorkerSetupStatus.READY}
    server.litapi_request_queues = {PREDICT: queue.Queue()}
    server._transport = MPQueueTransport(None, [queue.Queue()])
    api.spec.setup(server)
    running = threading.Event()
    running.set()

    def work():
        while running.is_set():
            api.loop.run(api, "cpu", 0, server.litapi_request_queues[PREDICT], server._transport)

    worker = threading.Thread(target=work)
    worker.start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        web = uvicorn.Server(uvicorn.Config(server.app, log_level="warning"))
        thread = threading.Thread(target=web.run, args=([listener],))
        thread.start()
        try:
            yield Client(listener.getsockname()[1], api, server)
        finally:
            web.should_exit = True
            running.clear()
            thread.join()
            worker.join()


class Sent(list):
    """A transport that keeps what is sent: (uid, status, JSON, batch)."""

    def send(self, item, consumer_id):
        uid, ((status, content, together), state, _, _) = item
        assert state == LitAPIStatus.OK
        self.append((uid, status, json.loads(content), together))


def one_round(api, *requests, age=0.0):
    """What the worker answers to requests that wait when it looks."""
    waiting, sent = queue.Queue(), Sent()
    for n, fields in enumerate(requests):
        waiting.put((0, n, time.monotonic() - age, fields))
    api.request_timeout = 30
    api.loop.run(api, "cpu", 0, waiting, sent)
    return sent, waiting.qsize()


def recorded(api, monkeypatch, fails=()):
    """Items and options of each call of the model; it raises the error of an item that is in `fails`."""
    calls, run = [], api.task.run

    def record(items, **options):
        calls.append((list(items), options))
        for item in items:
            if item in fails:
                raise fails[item]
        return run(items, **options)

    monkeypatch.setattr(api.task, "run", record)
    return calls


def in_base64(data):
    return base64.b64encode(data).decode()


def near(value):
    """The same, numbers up to what a batch of another size changes."""
    if isinstance(value, dict):
        return {key: near(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [near(part) for part in value]
    return pytest.approx(value, abs=2e-4) if isinstance(value, float) else value


def without(found, *names):
    """A dictionary but for some names."""
    return {name: value for name, value in found.items() if name not in names}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]
