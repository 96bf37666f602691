"""The server of `zoo demo`: it has the page and its models, and nothing else."""

import http.client
import json
import threading
import time

import pytest
from page_engine import make_export

from zoo.demo.page import Shown, site_files
from zoo.demo.server import Models, Server

SHOWN = [
    Shown("one", "translation", "One", ["en", "de"], {"parameters": 5}),
    Shown("two", "translation", "Two", ["de", "en"]),
    Shown("three", "reading", "Three", []),
]


@pytest.fixture
def site(tmp_path):
    """A server that has one model ready; it prepares the second when the test says so, and fails at the third."""
    go, calls = threading.Event(), []

    def prepare(name):
        calls.append(name)
        if name == "three":
            raise ValueError("no\nroom")
        assert go.wait(30)
        return make_export(tmp_path / name)

    server = Server(0, Models(SHOWN, {"one": make_export(tmp_path / "one")}, prepare))
    server.go, server.calls = go, calls
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ask(site, path, method="GET", **headers):
    connection = http.client.HTTPConnection(*site.server_address, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_it_has_the_page(site):
    kinds = {
        "/": "text/html",
        "/page.js": "text/javascript",
        "/style.css": "text/css",
        "/engine.wasm.js": "text/javascript",
    }
    for path, kind in kinds.items():
        status, headers, content = ask(site, path)
        assert status == 200 and headers["Content-Type"].split(";")[0] == kind
        assert content == site_files()[path[1:] or "index.html"].read_bytes()
        assert headers["Content-Length"] == str(len(content)) and headers["X-Content-Type-Options"] == "nosniff"


def test_a_head_has_no_content(site):
    status, headers, content = ask(site, "/page.js", "HEAD")
    assert (status, content) == (200, b"") and int(headers["Content-Length"]) > 10_000


def test_what_the_browser_has_is_not_sent_again(site):
    _, headers, _ = ask(site, "/page.js")
    assert headers["Cache-Control"] == "no-cache"
    status, again, content = ask(site, "/page.js", **{"If-None-Match": headers["ETag"]})
    assert (status, content) == (304, b"") and again["ETag"] == headers["ETag"]
    assert ask(site, "/page.js", **{"If-None-Match": '"another"'})[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/../page.py", "/%2e%2e/page.py", "/..%2fpage.py", "//etc/passwd", "/nothing", "/models/", "/models/one/"),
        *("/models/one/README.md", "/models/one/../two/onnx.json", "/models/four/onnx.json", "/models/one/onnx.json/x"),
    ],
)
def test_it_has_nothing_else(site, path):
    assert ask(site, path)[0] == 404


def test_other_methods_are_refused(site):
    assert ask(site, "/", "POST")[0] == 501


def test_the_list_of_models_says_which_are_ready(site):
    found = json.loads(ask(site, "/models/index.json")[2])
    assert not found["scripts"] and [model["name"] for model in found["models"]] == ["one", "two", "three"]
    first, second, _ = found["models"]
    assert first["ready"] and first["bytes"] > 10_000 and first["facts"] == {"parameters": 5}
    assert not second["ready"] and second["bytes"] is None and second["languages"] == ["de", "en"]


def test_a_model_is_prepared_when_it_is_first_asked_for(site, tmp_path):
    assert ask(site, "/models/one/step.onnx")[2] == (tmp_path / "one/step.onnx").read_bytes()
    for _ in range(2):
        status, headers, content = ask(site, "/models/two/onnx.json")
        assert (status, content) == (503, b"two is being prepared") and headers["Retry-After"] == "1"
    site.go.set()
    deadline = time.monotonic() + 30
    while (status := ask(site, "/models/two/onnx.json")[0]) == 503 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert status == 200 and site.calls == ["two"]
    assert json.loads(ask(site, "/models/index.json")[2])["models"][1]["ready"]


def test_a_failure_is_reported_once_and_then_tried_again(site):
    site.go.set()
    found = []
    deadline = time.monotonic() + 30
    while len(site.calls) < 2 and time.monotonic() < deadline:
        found.append(ask(site, "/models/three/onnx.json")[::2])
        time.sleep(0.01)
    assert (500, b"no room") in found and site.calls == ["three", "three"]
