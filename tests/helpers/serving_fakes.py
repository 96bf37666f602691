"""Tiny models of every kind that `zoo serve` knows, a server whose processes are threads, and a client."""

import asyncio
import base64
import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from captions_fakes import picture

from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.han import HAN
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.serving import limits, server
from zoo.serving.checks import Refused
from zoo.serving.images import Decoder
from zoo.serving.pool import Pool
from zoo.serving.worker import Worker
from zoo.text import EOS, Tokenizer


class SlowDecoder(Decoder):
    """Takes longer than any test for an image that is called "slow"."""

    def pixels(self, images):
        if any(name == "slow" for _, name in images):
            time.sleep(60)
        return super().pixels(images)


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


def loaded(source, max_items=4, max_work=4_000, **limits):
    """What a worker holds."""
    max_tokens = limits.get("max_tokens", MAX_TOKENS.get(Path(source).name, 12))
    return Worker(source, max_items, max_tokens, max_work)


class Thread:
    """In place of a process (`Child`): calls the methods of an object in a thread."""

    most, lanes = None, 1

    def __init__(self, target):
        self.target, self.ready = target, False

    async def start(self):
        self.ready = True
        return self.target.facts()

    async def call(self, method, *arguments, seconds, lane=0):
        return await asyncio.to_thread(getattr(self.target, method), *arguments)

    def silence(self):
        return 0.0

    def kill(self):
        self.ready = False


class Client:
    """Requests to a server on this machine."""

    def __init__(self, port, api=None, endpoint=None, connections=None):
        self.port, self.api, self.endpoint, self.connections = port, api, endpoint, connections

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
        return SimpleNamespace(
            status=answer.status, headers=answer.headers, body=json.loads(content) if is_json else content.decode()
        )

    def ask(self, **fields):
        """The content of an answer that must be right."""
        answer = self.send(json.dumps(fields))
        assert answer.status == 200, answer.body
        return answer.body

    def get(self, path):
        return self.send(None, "GET", path)


@contextmanager
def serving(source, timeout=30.0, max_batch=8, batch_wait=0.02, max_bytes=20_000, key=None, hosts=(), **limits):
    """A server whose processes are threads of this one."""
    api = loaded(source, **limits)
    options = SimpleNamespace(
        max_batch=max_batch, batch_wait_ms=1000 * batch_wait, max_work=api.max_work, max_bytes=max_bytes, timeout=timeout, workers=1, allow_host=hosts
    )  # fmt: skip
    started, made = threading.Event(), {}

    async def serve(listener):
        pools = [server.worker_pool([Thread(api)], options)]
        facts = await pools[0].start()
        if facts["transform"]:
            pools.append(Pool([Thread(Decoder(facts["transform"])) for _ in range(2)], 1, 1, 10.0))
            await pools[1].start()
        app = server.endpoint(
            pools[0], pools[1] if len(pools) > 1 else None, facts["model"], {"name": "tiny"}, ["cpu"], options, key
        )
        web = made["web"] = server.web_server(app, pools, timeout)
        made["app"] = app
        started.set()
        await web.serve([listener])
        for pool in pools:
            pool.stop()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=asyncio.run, args=(serve(listener),))
        thread.start()
        try:
            assert started.wait(30)
            yield Client(listener.getsockname()[1], api, made["app"], made["web"].server_state.connections)
        finally:
            made["web"].should_exit = True
            thread.join()


def in_one_round(api, *requests, batch=8):
    """What comes of requests that arrive together: (number, status, JSON, batch), in the order in which they are
    answered.
    """
    found = []

    async def ask(pool, number, fields):
        try:
            (job,), _ = await pool.run("read", [fields], [1])
            items = [(item, job.attention) for item in job.items]
            results, together = await pool.run("answer", items, job.works, job.options, wait=0.2)
        except Refused as error:
            found.append((number, error.status, {"detail": error.detail}, 0))
        else:
            results = [json.loads(result) for result in results]
            found.append((number, 200, results[0] if job.one else {"results": results}, together))

    async def round():
        pool = Pool([Thread(api)], batch, api.max_work // limits.BATCH_SHARE, 30.0)
        await pool.start()
        await asyncio.gather(*(ask(pool, n, fields) for n, fields in enumerate(requests)))
        pool.stop()

    asyncio.run(round())
    return found


def recorded(api, monkeypatch, fails=()):
    """Items and options of each call of the model; it raises the error of an item that is in `fails`."""
    calls, run = [], api.form.run

    def record(items, **options):
        items = list(items)
        calls.append((items, options))
        for item in items:
            if item in fails:
                raise fails[item]
        return run(items, **options)

    monkeypatch.setattr(api.form, "run", record)
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
