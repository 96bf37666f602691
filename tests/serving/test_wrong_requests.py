"""`zoo serve`: whatever is wrong with a request, one line says what."""

import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_fakes import DOCUMENT, IMAGES, QUERY, TEXTS, in_base64, loaded, serving

from zoo.serving import endpoint
from zoo.serving.checks import Refused
from zoo.serving.endpoint import parse
from zoo.vision import images

DEEP = "a field of the request holds an object, or lists inside lists inside a list; none takes these"
SURROGATE = "it has half of a surrogate pair, which is no character"
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
        ('\ufeff{"text": "a"}', 400, "the request is not valid JSON: it begins with a byte order mark; leave that out"),
        ("[1, 2]", 400, "the request must be a JSON object; got a list of 2"),
        ("null", 400, "the request must be a JSON object; got null"),
        (f'{{"text": {"[" * 50}{"]" * 50}}}', 400, DEEP),
        ('{"text": {"a": 1}}', 400, DEEP),
        ("{}", 400, 'send either "text" or "texts" (a list); got neither'),
        ('{"text": "a", "texts": ["a"]}', 400, 'send either "text" or "texts" (a list); got both'),
        ('{"txet": "a"}', 400, f'unknown field "txet"; nearest: text; {ALLOWED}'),
        ('{"text": "a", "beamsize": 3}', 400, f'unknown field "beamsize"; nearest: beam_size; {ALLOWED}'),
        ('{"text": null}', 400, "text must be a string; got null"),
        ('{"text": ["a"]}', 400, "text must be a string; got a list of 1"),
        ('{"texts": "a"}', 400, 'texts must be a list; got "a"'),
        ('{"texts": []}', 422, "texts must have 1 to 4 texts; got 0"),
        ('{"texts": ["a", "a", "a", "a", "a"]}', 422, "texts must have 1 to 4 texts; got 5"),
        ('{"texts": ["a", 7]}', 400, "text 2 must be a string; got 7"),
        ('{"texts": ["a", " \\n"]}', 422, "text 2 is empty; send at least one word"),
        (f'{{"text": "{"a " * 13}"}}', 422, "text has 13 words; at most 12 tokens are allowed; split it"),
        ('{"text": "a.b.c.d.e.f.g"}', 422, "text has 13 tokens; at most 12 are allowed; split it"),
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
        (f'{{"text": "a", "beam_size": 1{"0" * 5000}}}', 400, "the request is not valid JSON: a number of 5,001 digits is not allowed"),
        (f'{{"text": "a", "{"long " * 50}": 1}}', 400, f'unknown field "{("long " * 50)[:49]}...; nearest: length_penalty; {ALLOWED}'),
    ],
    ids=lambda value: None if isinstance(value, int) else repr(value)[:40],
)  # fmt: skip
def test_a_wrong_request_is_told_what_is_wrong(translator, body, status, detail):
    answer = translator.send(body)
    assert answer.status == status
    assert answer.body == {"detail": detail}


def test_options_of_a_search_are_not_for_classifiers(documents):
    detail = documents.send('{"text": "a", "beam_size": 3}').body["detail"]
    assert detail == 'unknown field "beam_size"; nearest: texts; allowed: text, texts, attention'


def test_wrong_images(captioner, monkeypatch):
    whole = IMAGES[0]
    for image, status, detail in [
        (5, 400, "image must be a string, base64 of an image file; got 5"),
        (
            "no base64!",
            400,
            "image is not base64 (Only base64 data is allowed); send the bytes of an image file in base64, not a path",
        ),
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
    assert (
        captioner.send(whole, Content_Type="image/png")
        .body["detail"]
        .startswith("image: more pixels than the limit of 100, 20 x 16")
    )


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
    assert (
        answer.body["detail"]
        == 'send JSON with the header Content-Type: application/json; got "application/x-www-form-urlencoded"'
    )
    assert translator.send(IMAGES[0], Content_Type="image/png").status == 415
    answer = captioner.send("a", Content_Type="text/plain")
    assert answer.status == 415 and "Content-Type: image/jpeg" in answer.body["detail"]
    assert translator.send('{"text": "a"}', Content_Type="application/json; charset=utf-8").status == 200


def test_compressed_requests_are_refused(translator):
    answer = translator.send('{"text": "a"}', Content_Encoding="gzip")
    assert (answer.status, answer.body["detail"]) == (
        415,
        'Content-Encoding "gzip" is not read: send the request uncompressed',
    )


def test_other_paths_and_methods(translator):
    there = "there are POST /predict, GET /info and GET /health"
    for method, path, status in [
        ("GET", "/nope", 404),
        ("GET", "/predict", 405),
        ("POST", "/info", 405),
        ("GET", "/docs", 404),
    ]:
        answer = translator.send(None, method, path)
        assert (answer.status, answer.body) == (status, {"detail": f'there is no {method} "{path}"; {there}'})
    answer = translator.send('{"text": "a"}', path="/predict?beam_size=3")
    assert (answer.status, answer.body["detail"]) == (
        400,
        "options belong in the JSON object, not after a ? in the address",
    )


def test_a_body_without_a_stated_length_has_the_same_limit(translator):
    parts = (b'{"text": "', *[b"a " * 1000] * 15, b'"}')
    answer = translator.send(iter(parts))
    assert answer.status == 413 and answer.body["detail"].startswith(
        "the request is larger than the limit of 20,000 bytes"
    )
    assert translator.send(iter((b'{"text"', b': "a"}'))).status == 200


def test_a_client_that_asks_before_it_sends_is_told_at_once(translator):
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    for size, status in ((20_001, b"413"), (13, b"100")):
        with socket.create_connection(("127.0.0.1", translator.port), timeout=20) as connection:
            connection.sendall(head % size)
            answer = connection.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 %s " % status)
            if status == b"413":
                assert b"connection: close" in answer.lower()
                while connection.recv(10_000):  # until the server closes it
                    pass
            else:
                connection.sendall(b'{"text": "a"}')
                assert connection.recv(10_000).startswith(b"HTTP/1.1 200 ")


def test_a_path_may_be_a_whole_address(translator):
    for path, status in (
        ("http://localhost/health", 200),
        ("HTTP://localhost:80/info", 200),
        ("http://localhost/x", 404),
    ):
        assert translator.send(None, "GET", path).status == status


def test_too_late_or_too_many(folders, monkeypatch):
    with serving(folders["translator"], timeout=0.5) as client:
        with socket.create_connection(("127.0.0.1", client.port)) as slow:
            slow.sendall(
                b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
            )
            answer = b""
            while b"\r\n\r\n" not in answer or answer.endswith(b"\r\n\r\n"):  # the body may come for itself
                answer += slow.recv(10_000)
        assert b" 408 " in answer and b"the request did not arrive within 0.5 s" in answer

        run, gate = client.api.form.run, threading.Event()
        monkeypatch.setattr(client.api.form, "run", lambda items, **options: (gate.wait(20), run(items, **options))[1])
        answer = client.send('{"text": "a"}')
        assert answer.status == 504 and answer.body["detail"].startswith("no answer within 0.5 s")
        assert client.endpoint.held == {} and client.endpoint.workers.orders == []  # nothing is kept for who has gone

        gate.set()
        client.endpoint.timeout = 30
        monkeypatch.setattr(endpoint, "MAX_WAITING", 0)
        answer = client.send('{"text": "a"}')
        assert (
            answer.status == 503 and answer.headers["Retry-After"] == "1" and "try again later" in answer.body["detail"]
        )
        monkeypatch.setattr(endpoint, "MAX_WAITING", 99)
        monkeypatch.setattr(endpoint, "MAX_WAITING_BYTES", 20)
        gate.clear()
        with ThreadPoolExecutor() as pool:
            first = pool.submit(client.ask, text="a")
            while not client.endpoint.waiting:
                time.sleep(0.01)
            assert client.send('{"text": "film"}').status == 503  # 13 bytes wait, 16 more are too many
            gate.set()
            assert first.result()
        assert (
            client.ask(text="film " * 10) and client.endpoint.held == {}
        )  # a large one is taken if it is the only one


# ---- language models ----

FIELDS = "max_words, min_words, beam_size, n_best, length_penalty, no_repeat_ngram, allow_unk, temperature, top_k, perplexity, attention"
DRAWN = "temperature must be a number from 0.01 to 100; without it the most probable words are chosen; got"


@pytest.mark.parametrize(
    ("fields", "status", "detail"),
    [
        ({}, 400, 'send either "text" or "texts" (a list); got neither'),
        ({"text": "a", "topk": 3}, 400, f'unknown field "topk"; nearest: top_k; allowed: text, texts, {FIELDS}'),
        ({"text": 3}, 400, "text must be a string; got 3"),
        ({"texts": []}, 422, "texts must have 1 to 4 texts; got 0"),
        ({"texts": ["", None]}, 400, "text 2 must be a string; got null"),
        ({"text": "a " * 13}, 422, "text has 13 words; at most 12 tokens are allowed; split it"),
        ({"text": "a" + 12 * "\n"}, 422, "text has 13 tokens; at most 12 are allowed; split it"),
        ({"text": "b" * 1001}, 422, "text has a word of 1,001 characters; at most 1,000 are allowed"),
        ({"text": {"a": "b"}}, 400, DEEP),
        ({"text": "a", "max_words": 0}, 400, "max_words must be a whole number from 1 to 200; got 0"),
        ({"text": "a", "max_words": 201}, 400, "max_words must be a whole number from 1 to 200; got 201"),
        ({"text": "a", "max_words": 2.5}, 400, "max_words must be a whole number from 1 to 200; got 2.5"),
        ({"text": "a", "min_words": -1}, 400, "min_words must be a whole number from 0 to 20, the max_words; got -1"),
        (
            {"text": "a", "min_words": 4, "max_words": 3},
            400,
            "min_words must be a whole number from 0 to 3, the max_words; got 4",
        ),
        ({"text": "a", "beam_size": 17}, 400, "beam_size must be a whole number from 1 to 16; got 17"),
        ({"text": "a", "n_best": 6}, 400, "n_best must be a whole number from 1 to 5, the beam_size; got 6"),
        ({"text": "a", "n_best": 17, "temperature": 1}, 400, "n_best must be a whole number from 1 to 16; got 17"),
        ({"text": "a", "length_penalty": 11}, 400, "length_penalty must be a number from -10 to 10; got 11"),
        ({"text": "a", "no_repeat_ngram": -1}, 400, "no_repeat_ngram must be a whole number from 0 to 200; got -1"),
        ({"text": "a", "no_repeat_ngram": True}, 400, "no_repeat_ngram must be a whole number from 0 to 200; got true"),
        ({"text": "a", "allow_unk": 1}, 400, "allow_unk must be true or false; got 1"),
        ({"text": "a", "temperature": 0}, 400, f"{DRAWN} 0"),
        ({"text": "a", "temperature": 1e-300}, 400, f"{DRAWN} 1e-300"),
        ({"text": "a", "temperature": None}, 400, f"{DRAWN} null"),
        ({"text": "a", "temperature": "1"}, 400, f'{DRAWN} "1"'),
        ({"text": "a", "top_k": -1}, 400, "top_k must be a whole number from 0 to 100000; got -1"),
        ({"text": "a", "perplexity": "yes"}, 400, 'perplexity must be true or false; got "yes"'),
        ({"text": "a", "attention": None}, 400, "attention must be true or false; got null"),
    ],
    ids=lambda value: None if isinstance(value, int) else repr(value)[:40],
)
def test_a_wrong_completion_is_told_what_is_wrong(language_model, fields, status, detail):
    answer = language_model.send(json.dumps(fields))
    assert (answer.status, answer.body) == (status, {"detail": detail})


# ---- readers ----

NEEDED = "send a document and a query with XXXXX in place of the missing word"
OBJECT = 'question must be an object with "document", "query" and, optionally, "candidates"; got'
NESTED = "the request is nested too deeply; a question is an object of strings and a list of strings"
LEAVE = "leave the field out to choose from all words of the document"


def question(**fields):
    return {"question": {"document": DOCUMENT, "query": QUERY, **fields}}


@pytest.mark.parametrize(
    ("fields", "status", "detail"),
    [
        ({}, 400, 'send either "question" or "questions" (a list); got neither'),
        ({"text": "a"}, 400, 'unknown field "text"; nearest: attention; allowed: question, questions, attention'),
        (
            {"document": DOCUMENT, "query": QUERY},
            400,
            'unknown field "document"; nearest: question; allowed: question, questions, attention',
        ),
        (
            {**question(), "beam_size": 2},
            400,
            'unknown field "beam_size"; nearest: question; allowed: question, questions, attention',
        ),
        ({**question(), "attention": {"a": 1}}, 400, "attention must be true or false; got an object"),
        ({"question": QUERY}, 400, f'{OBJECT} "{QUERY}"'),
        ({"question": [question()["question"]]}, 400, f"{OBJECT} a list of 1"),
        ({"questions": question()["question"]}, 400, "questions must be a list; got an object"),
        ({"questions": []}, 422, "questions must have 1 to 4 questions; got 0"),
        ({"questions": [question()["question"]] * 5}, 422, "questions must have 1 to 4 questions; got 5"),
        ({"questions": [question()["question"], 7]}, 400, OBJECT.replace("question ", "question 2 ", 1) + " 7"),
        ({"question": {"query": QUERY}}, 400, f'question has no "document"; {NEEDED}'),
        ({"question": {"document": DOCUMENT}}, 400, f'question has no "query"; {NEEDED}'),
        (
            question(candidate=["a"]),
            400,
            'unknown field "candidate" of question; nearest: candidates; allowed: document, query, candidates',
        ),
        (question(document=None), 400, "document of question must be a string; got null"),
        (question(query=["XXXXX"]), 400, "query of question must be a string; got a list of 1"),
        (question(document=" \n"), 422, "document of question is empty; send at least one word"),
        (question(query=""), 422, "query of question is empty; send at least one word"),
        (
            question(document="a " * 21),
            422,
            "document of question has 21 words; at most 20 tokens are allowed; shorten it",
        ),
        (question(document=".,;!?" * 5), 422, "document of question has 25 tokens; at most 20 are allowed; shorten it"),
        (
            question(query="XXXXX " * 21),
            422,
            "query of question has 21 words; at most 20 tokens are allowed; shorten it",
        ),
        (
            question(document="b" * 1001),
            422,
            "document of question has a word of 1,001 characters; at most 1,000 are allowed",
        ),
        (
            question(query="Who ran ?"),
            422,
            "question: the query must have XXXXX in place of the missing word; got 'Who ran ?'",
        ),
        (question(candidates=None), 400, "candidates of question must be a list of strings; got null"),
        (question(candidates="Ann"), 400, 'candidates of question must be a list of strings; got "Ann"'),
        (question(candidates=["Ann", 5]), 400, "candidates of question must be a list of strings; got 5"),
        (question(candidates=[["Ann"]]), 400, "candidates of question must be a list of strings; got a list of 1"),
        (question(candidates=[]), 422, f"candidates of question must have 1 to 20 words; got 0; {LEAVE}"),
        (question(candidates=["a"] * 21), 422, f"candidates of question must have 1 to 20 words; got 21; {LEAVE}"),
        (
            question(candidates=["a" * 1001]),
            422,
            "candidates of question has a word of 1,001 characters; at most 1,000 are allowed",
        ),
        (
            question(candidates=["the dog"]),
            422,
            "question: a candidate must be one word of the document; got 'the dog'",
        ),
        (question(candidates=[""]), 422, "question: a candidate must be one word of the document; got ''"),
        (
            question(candidates=["Eve", "ann"]),
            422,
            "question: none of the candidates is in the document (upper and lower case differ): 'Eve', 'ann'",
        ),
        (
            question(candidates=["b" * 999]),
            422,
            "question: none of the candidates is in the document (upper and lower case differ): ...",
        ),
        (question(document={"a": "b"}), 400, NESTED),
        (question(candidates=[{"a": "b"}]), 400, NESTED),
        (question(candidates=[[["a"]]]), 400, NESTED),
        ({"questions": [[[question()["question"]]]]}, 400, NESTED),
    ],
    ids=lambda value: None if isinstance(value, int) else repr(value)[:60],
)
def test_a_wrong_question_is_told_what_is_wrong(reader, fields, status, detail):
    answer = reader.send(json.dumps(fields))
    assert (answer.status, answer.body) == (status, {"detail": detail})


def test_a_question_is_known_by_its_number(reader):
    asked = [question()["question"], question(query="Who ?")["question"], question(document="")["question"]]
    for n, detail in ((1, "question 2: the query must have XXXXX"), (2, "document of question 2 is empty")):
        answer = reader.send(json.dumps({"questions": [asked[0], asked[n]]}))
        assert answer.status == 422 and answer.body["detail"].startswith(detail)


def test_a_query_is_shorter_than_a_document(folders):
    """Each of its words is compared with each of the document."""
    task = loaded(folders["reader"], max_tokens=None).form
    assert task.limits() == {"tokens": 2000, "characters_of_a_word": 1000, "query_tokens": 200, "candidates": 2000}
    assert task.item(question(document="dog " * 2000, query="XXXXX " * 200)["question"], "question")
    with pytest.raises(Refused, match="query of question has 201 words; at most 200 tokens are allowed; shorten it"):
        task.item(question(query="XXXXX " * 201)["question"], "question")


# ---- anything ----

KIND = {"translator": ("text", "texts"), "language_model": ("text", "texts"), "reader": ("question", "questions")}
OPTIONS = ["beam_size", "n_best", "length_penalty", "attention", "image", "max_words", "temperature", "perplexity"]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from([*TEXTS, "texts", QUERY]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=6,
)
ASKED = st.fixed_dictionaries(
    {"document": VALUES | st.just(DOCUMENT), "query": VALUES | st.just(QUERY)}, optional={"candidates": VALUES}
)
NAMES = st.sampled_from([*KIND["reader"], *KIND["translator"], *OPTIONS]) | st.text(max_size=9)
REQUESTS = st.dictionaries(NAMES, VALUES | ASKED, max_size=3) | st.fixed_dictionaries({"question": ASKED})


@pytest.fixture(scope="module")
def apis(folders):
    return {kind: loaded(folders[kind]) for kind in KIND}


@pytest.mark.integration
@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=40) | REQUESTS.map(lambda fields: json.dumps(fields).encode()))
def test_no_request_is_beyond_reading(apis, body):
    """Whatever is sent is a job, or refused in one line."""
    for kind, api in apis.items():
        try:
            job = api._read(parse(body, questions=kind == "reader"))
        except Refused as error:
            assert error.status in (400, 422) and error.detail.isprintable() and len(error.detail) < 260
        else:
            assert job.items and all(isinstance(item, tuple if kind == "reader" else str) for item in job.items)
