"""`zoo serve`: answers equal the direct call, batches, wrong requests, and the life of the processes."""

import base64
import http.client
import json
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import uvicorn
from captions_fakes import picture
from fastapi import HTTPException
from fakes import Toy
from hypothesis import given, settings
from hypothesis import strategies as st
from litserve.transport.process_transport import MPQueueTransport
from litserve.utils import LitAPIStatus, WorkerSetupStatus

from zoo import images, serve
from zoo.cli import main
from zoo.models.han import HAN
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.text import EOS, Tokenizer

WORDS = "a good film . it is bad"
TEXTS = ["a good film .", "it is bad", "bad film", "a", "it is a good film . a bad film is it", "film"]
IMAGES = [picture(n, 20 + n, 16) for n in range(3)]


def ready(model):
    """With a tokenizer, labels and weights that tell texts apart."""
    tokenizer = Tokenizer.train([WORDS], "word_punct", 11, lowercase=True)
    if isinstance(model, LuongNMT):
        model.src_tokenizer = model.tgt_tokenizer = tokenizer
    else:
        model.tokenizer, model.label_names = tokenizer, ["negative", "neutral", "positive"]
    for p in model.parameters():
        p.data.mul_(4)
    if isinstance(model, LuongNMT):
        model.embeddings.output.bias.data[EOS] = -4  # else nothing is written
    return model.eval()


def build(kind):
    torch.manual_seed(0)
    pair = {**StructuredSelfAttention.tiny, "pair": True}
    made = {
        "translator": lambda: LuongNMT(**LuongNMT.tiny),
        "documents": lambda: HAN(**HAN.tiny),
        "texts": lambda: StructuredSelfAttention(**StructuredSelfAttention.tiny),
        "pairs": lambda: StructuredSelfAttention(**pair),
        "captioner": lambda: ShowAttendTell(**ShowAttendTell.tiny),
    }
    return ready(made[kind]())


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Kind -> `local-dir:` of a tiny model."""
    root = tmp_path_factory.mktemp("weights")
    kinds = ("translator", "documents", "texts", "pairs", "captioner")
    return {kind: f"local-dir:{build(kind).save_pretrained(root / kind)}" for kind in kinds}


def loaded(source, max_items=4, max_tokens=12, max_batch=8, batch_wait=0.02):
    api = serve.ZooAPI(source, max_items, None if source.endswith("captioner") else max_tokens, 1, max_batch, batch_wait)
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
    server = serve.Server(api, {"name": "tiny"}, 20_000, accelerator="cpu", devices=1, timeout=timeout)
    server.publish(api.facts())
    server.app.response_queue_id = api.spec.response_queue_id = 0
    server.workers_setup_status = {"predict_0": WorkerSetupStatus.READY}
    server.litapi_request_queues = {serve.PREDICT: queue.Queue()}
    server._transport = MPQueueTransport(None, [queue.Queue()])
    api.spec.setup(server)
    running = threading.Event()
    running.set()

    def work():
        while running.is_set():
            api.loop.run(api, "cpu", 0, server.litapi_request_queues[serve.PREDICT], server._transport)

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


@pytest.fixture(scope="module")
def translator(folders):
    with serving(folders["translator"]) as client:
        yield client


@pytest.fixture(scope="module")
def documents(folders):
    with serving(folders["documents"]) as client:
        yield client


@pytest.fixture(scope="module")
def captioner(folders):
    with serving(folders["captioner"]) as client:
        yield client


def in_base64(data):
    return base64.b64encode(data).decode()


def near(value):
    """The same, numbers up to what a batch of another size changes."""
    if isinstance(value, dict):
        return {key: near(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [near(part) for part in value]
    return pytest.approx(value, abs=2e-4) if isinstance(value, float) else value


# ---- answers ----


def test_translations_are_those_of_the_model(translator):
    model = translator.api.task.model
    want = [found.to_dict() for found in model.translate(TEXTS[:4])]
    assert translator.ask(text=TEXTS[0]) == near({"text": want[0]["text"], "score": want[0]["score"]})
    assert translator.ask(texts=TEXTS[:4], attention=True) == {"results": near(want)}
    one = model.translate(TEXTS[4], beam_size=3, n_best=2, length_penalty=0.0).to_dict()
    got = translator.ask(text=TEXTS[4], beam_size=3, n_best=2, length_penalty=0, attention=True)
    assert got == near(one) and len(got["n_best"]) == 2 and got["text"] != model.translate(TEXTS[4]).text


def test_documents_are_classified_as_by_the_model(documents):
    want = documents.api.task.model.classify("A good film. It is bad.").to_dict()
    got = documents.ask(text="A good film. It is bad.", attention=True)
    assert got == near(want) and len(got["sentences"]) == 2
    assert documents.ask(text="A good film. It is bad.") == near({k: want[k] for k in ("label", "labels", "probabilities")})


def test_pairs_are_compared_as_by_the_model(folders):
    with serving(folders["pairs"]) as client:
        pairs = [["a film", "it is bad"], ["good", "bad"]]
        want = [found.to_dict() for found in client.api.task.model.classify([tuple(pair) for pair in pairs])]
        assert client.ask(pairs=pairs, attention=True) == {"results": near(want)}
        assert client.ask(pair=pairs[1], attention=True) == near(want[1])
        assert client.get("/info").body["model"]["fields"] == ["pair", "pairs", "attention"]
        for pair, message in [
            ("a film", 'pair must be a list of two strings; got "a film"'),
            (["a"], "pair must be a list of two strings; got a list of 1"),
            (["a", 1], "text 2 of pair must be a string; got 1"),
        ]:
            answer = client.send(json.dumps({"pair": pair}))
            assert (answer.status, answer.body) == (400, {"detail": message})
        assert client.send(json.dumps({"pairs": [["a", "a"], ["a", " "]]})).body["detail"].startswith("text 2 of pair 2 is empty")
        assert client.send(json.dumps({"text": "a"})).status == 400


def test_images_are_captioned_as_by_the_model(captioner):
    model = captioner.api.task.model
    want = [found.to_dict() for found in model.caption(IMAGES)]
    assert captioner.ask(images=[in_base64(image) for image in IMAGES], attention=True) == {"results": near(want)}
    wrapped = base64.encodebytes(IMAGES[1]).decode()  # lines of 76 characters
    assert captioner.ask(image=wrapped) == near({"text": want[1]["text"], "score": want[1]["score"]})
    assert captioner.send(IMAGES[2], Content_Type="image/png").body == near({"text": want[2]["text"], "score": want[2]["score"]})
    best = model.caption(IMAGES[0], beam_size=4, n_best=3).to_dict()
    assert captioner.ask(image=in_base64(IMAGES[0]), beam_size=4, n_best=3)["n_best"] == near(best["n_best"])


def test_a_large_photo_waits_as_the_small_image_that_the_model_sees(captioner):
    item = captioner.api.task.item(picture(5, 300, 200), "image")
    assert item.size == (6, 6) and item.mode == "RGB"
    model = captioner.api.task.model
    assert model.caption(item).to_dict() == model.caption(picture(5, 300, 200)).to_dict()


def test_hypotheses_that_do_not_exist_are_left_out():
    result = SimpleNamespace(n_best=[("a", -1.0), ("", -float("inf"))])
    result.to_dict = lambda: {"text": "a", "n_best": [{"text": text, "score": score} for text, score in result.n_best]}
    _, content, _ = serve._answer(serve.Job(["x"], (), attention=False, one=True), [result], 1)
    assert json.loads(content) == {"text": "a", "n_best": [{"text": "a", "score": -1.0}]}


# ---- batches ----


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


@pytest.fixture
def api(folders):
    return loaded(folders["translator"])


def test_what_waits_is_answered_together(api, monkeypatch):
    calls = recorded(api, monkeypatch)
    sent, left = one_round(api, *({"text": text} for text in TEXTS))
    assert [items for items, _ in calls] == [TEXTS] and left == 0
    assert [(uid, status, together) for uid, status, _, together in sent] == [(n, 200, 6) for n in range(6)]
    for (_, _, content, _), text in zip(sent, TEXTS):
        assert content["text"] == api.task.model.translate(text).text


def test_a_batch_has_a_size(api, monkeypatch):
    calls = recorded(api, monkeypatch)
    sent, left = one_round(api, *({"texts": TEXTS[:3]} for _ in range(5)))
    assert [len(items) for items, _ in calls] == [9] and len(sent) == 3 and left == 2  # full at 8


def test_only_the_same_options_share_a_batch(api, monkeypatch):
    calls = recorded(api, monkeypatch)
    requests = [
        {"text": "a"}, {"text": "bad", "beam_size": 2}, {"text": "film", "beam_size": 5, "attention": True}, {"text": "it", "beam_size": 2}
    ]  # fmt: skip
    sent, _ = one_round(api, *requests)
    assert [(items, options["beam_size"]) for items, options in calls] == [(["a", "film"], 5), (["bad", "it"], 2)]
    assert [uid for uid, *_ in sent] == [0, 1, 2, 3]
    for (_, _, content, _), fields in zip(sent, requests):
        assert content["text"] == api.task.model.translate(fields["text"], beam_size=fields.get("beam_size")).text
        assert ("attention" in content) == ("attention" in fields)


def test_a_wrong_request_is_answered_before_the_batch_and_not_part_of_it(api, monkeypatch):
    calls = recorded(api, monkeypatch)
    sent, _ = one_round(api, {"text": "a"}, {"text": ""}, {"txt": "a"}, {"text": "film"})
    assert [items for items, _ in calls] == [["a", "film"]]
    assert [(uid, status) for uid, status, *_ in sent] == [(1, 422), (2, 400), (0, 200), (3, 200)]


def test_what_fails_in_a_batch_is_answered_one_by_one(api, monkeypatch, caplog):
    errors = {"bad": RuntimeError("of the model\nits secrets"), "it": ValueError("not this\nword")}
    calls = recorded(api, monkeypatch, errors)
    with caplog.at_level(logging.ERROR):
        sent, _ = one_round(api, *({"text": text} for text in ("a", "bad", "film", "it")))
    assert [items for items, _ in calls] == [["a", "bad", "film", "it"], ["a"], ["bad"], ["film"], ["it"]]
    assert [(uid, status) for uid, status, *_ in sent] == [(0, 200), (1, 500), (2, 200), (3, 422)]
    assert sent[0][2]["text"] == api.task.model.translate("a").text
    assert sent[1][2] == {"detail": "the model failed on this request; the log of the server says why"}
    assert sent[3][2] == {"detail": "not this word"}
    assert "its secrets" in caplog.text  # in the log, not in the answer


def test_a_mistake_of_ours_stops_nobody(api, monkeypatch, caplog):
    item = api.task.item
    monkeypatch.setattr(api.task, "item", lambda value, name: item(value, name) if value != "bad" else 1 / 0)
    sent, _ = one_round(api, {"text": "bad"}, {"text": "a"})
    assert [(uid, status) for uid, status, *_ in sent] == [(0, 500), (1, 200)]
    assert "ZeroDivisionError" in caplog.text and "Zero" not in sent[0][2]["detail"]


def test_nothing_is_computed_for_who_has_gone(api, monkeypatch):
    calls = recorded(api, monkeypatch)
    sent, left = one_round(api, {"text": "a"}, age=31.0)
    assert (calls, sent, left) == ([], [], 0)


def test_good_and_wrong_requests_at_the_same_time(translator):
    wrong = [
        (b'{"text": "a', 400), (b'{"text": ""}', 422), (b'{"txt": "a"}', 400), (b'{"text": "a", "beam_size": 0}', 400),
        (b"\xff", 400), (b'{"text": "' + b"a " * 20_000 + b'"}', 413), (b'{"text": "' + b"a " * 13 + b'"}', 422),
    ]  # fmt: skip
    good = [{"text": text, "beam_size": beam, "attention": beam == 3} for text in TEXTS for beam in (1, 3, 5)] * 2
    requests = [(json.dumps(fields).encode(), 200) for fields in good]
    for n, request in enumerate(wrong * 3):
        requests.insert(n * 2, request)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(translator.send, [body for body, _ in requests]))
    assert [answer.status for answer in answers] == [status for _, status in requests]
    model, sizes = translator.api.task.model, []
    for (body, status), answer in zip(requests, answers):
        if status != 200:
            assert list(answer.body) == ["detail"] and "\n" not in answer.body["detail"] and "X-Batch-Size" not in answer.headers
            continue
        fields = json.loads(body)
        want = model.translate(fields["text"], beam_size=fields["beam_size"]).to_dict()
        assert answer.body == near(want if fields["attention"] else {"text": want["text"], "score": want["score"]})
        sizes.append(int(answer.headers["X-Batch-Size"]))
    assert max(sizes) > 1 and max(sizes) <= 8


# ---- wrong requests ----

DEEP = "a field of the request holds an object, or lists inside lists inside a list; none takes these"
SURROGATE = "'utf-8' codec can't encode character '\\ud800' in position 12: surrogates not allowed"
ALLOWED = "allowed: text, texts, beam_size, n_best, length_penalty, attention"


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ("", 400, "the request is empty; send a JSON object"),
        ("{", 400, "the request is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[" * 100_000, 413, "the request is larger than the limit of 20,000 bytes; send less at once"),
        ("[" * 10_000, 400, "the request is not valid JSON: it is nested too deeply"),
        ('{"text": "a", "text": "b"}', 400, "the request is not valid JSON: a key occurs twice"),
        (b'{"text": "\xff"}', 400, "the request is not UTF-8 text (byte 10)"),
        ('{"text": "a"}'.encode("utf-16"), 400, "the request is not UTF-8 text (byte 0)"),
        ("[1, 2]", 400, "the request must be a JSON object; got a list of 2"),
        ("null", 400, "the request must be a JSON object; got null"),
        (f'{{"text": {"[" * 500}{"]" * 500}}}', 400, DEEP),
        ('{"text": {"a": 1}}', 400, DEEP),
        ("{}", 400, 'send either "text" or "texts" (a list); got neither'),
        ('{"text": "a", "texts": ["a"]}', 400, 'send either "text" or "texts" (a list); got both'),
        ('{"txet": "a"}', 400, f'unknown field "txet"; nearest: text; {ALLOWED}'),
        ('{"text": "a", "beamsize": 3}', 400, f'unknown field "beamsize"; nearest: beam_size; {ALLOWED}'),
        ('{"text": null}', 400, "text must be a string; got null"),
        ('{"text": ["a"]}', 400, "text must be a string; got a list of 1"),
        ('{"texts": "a"}', 400, 'texts must be a list; got "a"'),
        ('{"texts": []}', 422, "texts must hold 1 to 4 texts; got 0"),
        ('{"texts": ["a", "a", "a", "a", "a"]}', 422, "texts must hold 1 to 4 texts; got 5"),
        ('{"texts": ["a", 7]}', 400, "text 2 must be a string; got 7"),
        ('{"texts": ["a", " \\n"]}', 422, "text 2 is empty; send at least one word"),
        (f'{{"text": "{"a " * 13}"}}', 422, "text has 13 tokens; at most 12 are allowed; split it"),
        (f'{{"text": "a {"é" * 1001}"}}', 422, "text has a word of 1,001 characters; at most 1,000 are allowed"),
        ('{"text": "a \\ud800"}', 400, f"the request is not valid JSON: {SURROGATE}"),
        ('{"text": "a", "beam_size": 17}', 400, "beam_size must be a whole number from 1 to 16; got 17"),
        ('{"text": "a", "beam_size": 2.0}', 400, "beam_size must be a whole number from 1 to 16; got 2.0"),
        ('{"text": "a", "beam_size": true}', 400, "beam_size must be a whole number from 1 to 16; got true"),
        ('{"text": "a", "n_best": 6}', 400, "n_best must be a whole number from 1 to 5, the beam_size; got 6"),
        ('{"text": "a", "length_penalty": NaN}', 400, "the request is not valid JSON: NaN is not allowed"),
        ('{"text": "a", "length_penalty": 1e999}', 400, "the request is not valid JSON: 1e999 is not allowed: it is infinite"),
        ('{"text": "a", "length_penalty": "1"}', 400, 'length_penalty must be a number from -10 to 10; got "1"'),
        ('{"text": "a", "attention": 1}', 400, "attention must be true or false; got 1"),
        (f'{{"text": "a", "beam_size": 1{"0" * 5000}}}', 400, "the request is not valid JSON: Exceeds the limit (4300 digits) for integer"),
        (f'{{"text": "a", "{"long " * 50}": 1}}', 400, f'unknown field "{("long " * 50)[:49]}...; nearest: length_penalty; {ALLOWED}'),
    ],
    ids=lambda value: None if isinstance(value, int) else repr(value)[:40],
)  # fmt: skip
def test_a_wrong_request_is_told_what_is_wrong(translator, body, status, detail):
    answer = translator.send(body)
    assert answer.status == status
    assert answer.body["detail"].startswith(detail) if "4300" in detail else answer.body == {"detail": detail}


def test_options_of_a_search_are_not_for_classifiers(documents):
    detail = documents.send('{"text": "a", "beam_size": 3}').body["detail"]
    assert detail == 'unknown field "beam_size"; nearest: texts; allowed: text, texts, attention'


def test_wrong_images(captioner, monkeypatch):
    whole = IMAGES[0]
    for image, status, detail in [
        (5, 400, "image must be a string, the base64 of an image file; got 5"),
        ("no base64!", 400, "image is not base64 (Only base64 data is allowed); send the bytes of an image file in base64, no path"),
        ("/etc/passwd", 400, "image is not base64 (Incorrect padding)"),
        ("http://127.0.0.1/a.png", 400, "image is not base64"),
        ("ünicode=", 400, "image is not base64"),
        ("", 422, "image: the file is empty"),
        (in_base64(b"/etc/passwd"), 422, "image: not an image in a known format; give one of JPEG, PNG"),
        (in_base64(whole[: len(whole) // 2]), 422, "image: the image is damaged and cannot be decoded ("),
    ]:
        answer = captioner.send(json.dumps({"image": image}))
        assert answer.status == status and answer.body["detail"].startswith(detail)
    answer = captioner.send(json.dumps({"images": [in_base64(whole), in_base64(whole[:50])]}))
    assert answer.status == 422 and answer.body["detail"].startswith("image 2: ")
    assert captioner.send(b"GIF89a", Content_Type="image/gif").status == 422
    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    assert captioner.send(whole, Content_Type="image/png").body["detail"].startswith("image: more pixels than the limit of 100, 20 x 16")


def test_an_image_is_opened_from_bytes_only(captioner, tmp_path):
    """A name of an existing file, even one that is valid base64, is never opened."""
    os.symlink("/", tmp_path / "root")
    file = tmp_path / "aaaa"
    file.write_bytes(IMAGES[0])
    old = os.getcwd()
    os.chdir(tmp_path)
    try:
        answer = captioner.send('{"image": "aaaa"}')
    finally:
        os.chdir(old)
    assert answer.status == 422 and "not an image in a known format" in answer.body["detail"]


def test_other_kinds_of_content(translator, captioner):
    answer = translator.send("text=a", Content_Type="application/x-www-form-urlencoded")
    assert answer.status == 415
    assert answer.body["detail"] == 'send JSON with the header Content-Type: application/json; got "application/x-www-form-urlencoded"'
    assert translator.send(IMAGES[0], Content_Type="image/png").status == 415
    answer = captioner.send("a", Content_Type="text/plain")
    assert answer.status == 415 and "Content-Type: image/jpeg" in answer.body["detail"]
    assert translator.send('{"text": "a"}', Content_Type="application/json; charset=utf-8").status == 200


def test_other_paths_and_methods(translator):
    there = "there are POST /predict, GET /info and GET /health"
    for method, path, status in [("GET", "/nope", 404), ("GET", "/predict", 405), ("POST", "/info", 405), ("GET", "/docs", 404)]:
        answer = translator.send(None, method, path)
        assert (answer.status, answer.body) == (status, {"detail": f'there is no {method} "{path}"; {there}'})
    answer = translator.send('{"text": "a"}', path="/predict?beam_size=3")
    assert (answer.status, answer.body["detail"]) == (400, "options belong into the JSON object, not behind a ? in the address")


def test_a_body_without_a_stated_length_has_the_same_limit(translator):
    parts = (b'{"text": "', *[b"a " * 1000] * 15, b'"}')
    answer = translator.send(iter(parts))
    assert answer.status == 413 and answer.body["detail"].startswith("the request is larger than the limit of 20,000 bytes")
    assert translator.send(iter((b'{"text"', b': "a"}'))).status == 200


def test_too_late_or_too_many(folders, monkeypatch):
    with serving(folders["translator"], timeout=0.5) as client:
        with socket.create_connection(("127.0.0.1", client.port)) as slow:
            slow.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
            answer = b""
            while b"\r\n\r\n" not in answer or answer.endswith(b"\r\n\r\n"):  # the body may come for itself
                answer += slow.recv(10_000)
        assert b" 408 " in answer and b"the request did not arrive within 0.5 s" in answer

        run, gate = client.api.task.run, threading.Event()
        monkeypatch.setattr(client.api.task, "run", lambda items, **options: (gate.wait(20), run(items, **options))[1])
        answer = client.send('{"text": "a"}')
        assert answer.status == 504 and answer.body["detail"].startswith("no answer within 0.5 s")
        assert client.server.response_buffer == {}  # nothing is kept for who has gone

        gate.set()
        client.api.spec.timeout = 30
        monkeypatch.setattr(serve, "MAX_WAITING", 0)
        answer = client.send('{"text": "a"}')
        assert answer.status == 503 and answer.headers["Retry-After"] == "1" and "try again later" in answer.body["detail"]
        monkeypatch.setattr(serve, "MAX_WAITING", 99)
        monkeypatch.setattr(serve, "MAX_WAITING_BYTES", 20)
        gate.clear()
        with ThreadPoolExecutor() as pool:
            first = pool.submit(client.ask, text="a")
            while not client.server.response_buffer:
                time.sleep(0.01)
            assert client.send('{"text": "film"}').status == 503  # 13 bytes wait, 16 more are too many
            gate.set()
            assert first.result()
        assert client.ask(text="film " * 10) and client.api.spec.waiting_bytes == 0  # a large one is taken if it is the only one


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from([*TEXTS, "texts"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=6,
)
NAMES = st.sampled_from(["text", "texts", "beam_size", "n_best", "length_penalty", "attention", "image"]) | st.text(max_size=9)


@pytest.fixture(scope="module")
def shared_api(folders):
    return loaded(folders["translator"])


@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=40) | st.dictionaries(NAMES, VALUES, max_size=3).map(lambda fields: json.dumps(fields).encode()))
def test_no_request_is_beyond_reading(shared_api, body):
    """Whatever is sent is a job, or refused in one line."""
    try:
        job = shared_api.read(serve.parse(body))
    except HTTPException as error:
        assert error.status_code in (400, 422) and error.detail.isprintable() and len(error.detail) < 250
    else:
        assert job.items and all(isinstance(item, str) for item in job.items)


# ---- what it tells of itself ----


def test_info_and_health(translator, captioner):
    info = translator.get("/info").body
    assert info["model"] == {
        "name": "translator",
        "class": "LuongNMT",
        "task": "translation",
        "parameters": sum(p.numel() for p in translator.api.task.model.parameters()),
        "fields": ["text", "texts", "beam_size", "n_best", "length_penalty", "attention"],
        "limits": {"bytes": 20_000, "items": 4, "tokens": 12, "characters_of_a_word": 1000, "beam_size": 16},
        "batch": {"items": 8, "wait_ms": 20.0},
        "card": {"name": "tiny"},
    }
    assert info["server"]["max_payload_size"] == 20_000 and info["server"]["devices"] == ["cpu"]
    found = captioner.get("/info").body["model"]
    assert found["task"] == "captioning" and found["limits"]["pixels"] == 100_000_000 and "tokens" not in found["limits"]
    assert translator.get("/health").status == 200


def test_a_model_that_was_not_trained_is_not_served(tmp_path):
    for model in (LuongNMT(**LuongNMT.tiny), HAN(**HAN.tiny), ShowAttendTell(**ShowAttendTell.tiny)):
        with pytest.raises(ValueError, match="has no tokenizer yet"):
            loaded(f"local-dir:{model.save_pretrained(tmp_path / type(model).__name__)}", max_tokens=None)


def test_a_model_that_answers_nothing_is_not_served(toy_registry, monkeypatch):
    monkeypatch.delattr(Toy, "translate")
    with pytest.raises(ValueError, match="toy.v2 is a Toy, which does not translate, caption, classify: it cannot be served"):
        loaded("toy.v2")


# ---- the command ----


def fails(capsys, *args):
    """The one line of a command that must fail."""
    assert main(["serve", *args]) == 2
    err = capsys.readouterr().err
    assert err.startswith("zoo: error: ") and err.count("\n") == 1
    return err.removeprefix("zoo: error: ").rstrip()


def test_mistakes(toy_registry, capsys, monkeypatch):
    assert fails(capsys, "toy.v3") == "unknown model 'toy.v3'; nearest: toy.v2, toy.v10"
    assert fails(capsys, "toy.v2", "--port", "80") == "--port must be from 1,024 to 65,535; got 80"
    assert fails(capsys, "toy.v2", "--max-batch", "0") == "--max-batch must be from 1 to 4,096; got 0"
    assert fails(capsys, "toy.v2", "--batch-wait-ms", "-1") == "--batch-wait-ms must be from 0 to 10,000; got -1.0"
    assert fails(capsys, "toy.v2", "--devices", "gpu") == "--devices must be cpu, auto or a number of GPUs; got 'gpu'"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert fails(capsys, "toy.v2", "--devices", "2").startswith("--devices 2: this machine has 1 GPUs that torch can use")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = f"cannot listen on 127.0.0.1 port {port}: Address already in use; choose another --port"
        assert fails(capsys, "toy.v2", "--port", str(port)) == message
    monkeypatch.setattr(serve, "run", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert fails(capsys, "toy.v2") == '`zoo serve` needs litserve; install with: pip install "attention-zoo[serve]"'


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert serve._devices("auto") == serve._devices("cpu") == ("cpu", 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert serve._devices("auto") == ("cuda", 4) and serve._devices("2") == ("cuda", 2)


def test_help_says_why_other_machines_are_kept_out(capsys):
    with pytest.raises(SystemExit) as end:
        main(["serve", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert end.value.code == 0 and "example: zoo serve" in out
    assert "only this one: there is no encryption, and a key is asked for only if LIT_SERVER_API_KEY is set" in out


# ---- the processes ----


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


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
        assert line.endswith(f" at http://127.0.0.1:{self.port}/predict; stop with ^C\n"), line + self.process.stderr.read()
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


def test_a_served_model_answers_and_stops_in_order(folders):
    source = folders["translator"]
    with process(source, "--batch-wait-ms", "3000", LIT_SERVER_API_KEY="") as server:
        server.wait_until_ready()
        assert server.get("/health").body == "ok" and server.get("/info").body["model"]["name"] == "translator"
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(server.send, json.dumps({"text": text})) for text in TEXTS[:3]] + [pool.submit(server.send, "{")]
            time.sleep(1.5)  # the batch still waits
            code, err = server.end(signal.SIGTERM)
        assert (code, err) == (0, "")
        assert [answer.result().status for answer in answers] == [200, 200, 200, 400]
        model = build("translator")
        assert [answer.result().body["text"] for answer in answers[:3]] == [model.translate(text).text for text in TEXTS[:3]]
        assert {answer.result().headers["X-Batch-Size"] for answer in answers[:3]} == {"3"}
        assert server.all_gone()
        with pytest.raises(ConnectionRefusedError):
            server.get("/health")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["documents", "texts", "pairs", "captioner"])
def test_every_kind_of_model_is_served(folders, kind):
    with process(folders[kind], "--workers", "2") as server:
        fields = server.wait_until_ready().get("/info").body["model"]["fields"]
        body = {"text": "a good film", "pair": ["a", "film"], "image": in_base64(IMAGES[0])}[fields[0]]
        first = server.ask(**{fields[0]: body, "attention": True})
        with ThreadPoolExecutor(8) as pool:
            others = list(pool.map(lambda _: server.ask(**{fields[0]: body, "attention": True}), range(40)))
        assert others == [near(first)] * 40
        assert server.end(signal.SIGINT) == (0, "")


@pytest.mark.slow
def test_a_key_can_be_asked_for(folders):
    with process(folders["texts"], LIT_SERVER_API_KEY="secret") as server:
        server.wait_until_ready()
        for path in ("/info", "/health"):
            assert server.get(path).status == 401
        assert server.send('{"text": "a"}').status == 401
        assert server.send('{"text": "a"}', X_API_Key="wrong").status == 401
        assert server.send('{"text": "a"}', X_API_Key="secret").status == 200


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(folders):
    with process(folders["texts"], "--timeout", "5") as server:
        server.wait_until_ready()
        assert server.send('{"text": "a"}').status == 200
        worker = next(pid for pid, command in server.members().items() if "spawn_main" in command)
        os.kill(worker, signal.SIGKILL)
        assert server.send('{"text": "a"}').status in (200, 504)  # it may wait for the new one in vain
        for _ in range(120):
            if server.get("/health").status == 200 and server.send('{"text": "a"}').status == 200:
                break
            time.sleep(0.5)
        else:
            pytest.fail("no new worker")
        assert worker not in server.members()
        assert server.end(signal.SIGTERM)[0] == 0 and server.all_gone()


@pytest.mark.slow
def test_nothing_outlives_the_first_process(folders):
    with process(folders["texts"]) as server:
        server.wait_until_ready()
        assert len(server.members()) >= 4
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
