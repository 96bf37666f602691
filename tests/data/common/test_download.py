import hashlib
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from zoo.data.common.download import RemoteFile, fetch

CONTENT = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """A loopback server that can cut connections; `ranges` records the Range header of each request."""

    def __init__(self):
        self.files = {"/data.bin": CONTENT}
        self.cut_after = None  # bytes sent before the next connections are cut
        self.cuts = 0  # how many connections are still to be cut
        self.ignore_range = False
        self.ranges = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.ranges.append(self.headers.get("Range"))
                body = outer.files.get(self.path)
                if body is None:
                    return self.send_error(404)
                start = 0
                if (requested := self.headers.get("Range")) and not outer.ignore_range:
                    start = int(requested.removeprefix("bytes=").removesuffix("-"))
                    if start >= len(body):
                        return self.send_error(416)
                    self.send_response(206)
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(body) - start))
                self.end_headers()
                if outer.cuts:
                    outer.cuts -= 1
                    self.wfile.write(body[start : start + outer.cut_after])
                    self.close_connection = True
                else:
                    self.wfile.write(body[start:])

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    yield server
    server.close()


def test_download(server, tmp_path):
    path = tmp_path / "new" / "data.bin"
    fetch(RemoteFile(f"{server.url}/data.bin", SHA256), path)
    assert path.read_bytes() == CONTENT
    assert {file.name for file in path.parent.iterdir()} == {"data.bin", ".data.bin.lock"}


def test_cut_connection_is_resumed(server, tmp_path):
    server.cuts, server.cut_after = 2, 100_000
    fetch(RemoteFile(f"{server.url}/data.bin", SHA256), tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-", "bytes=200000-"]


def test_partial_file_of_an_earlier_run_is_continued(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:300_000])
    fetch(RemoteFile(f"{server.url}/data.bin", SHA256), tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert server.ranges == ["bytes=300000-"]


def test_complete_partial_file_is_fetched_again(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    fetch(RemoteFile(f"{server.url}/data.bin", SHA256), tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(CONTENT)}-", None]


def test_server_without_range_begins_again(server, tmp_path):
    server.ignore_range = True
    (tmp_path / "data.bin.part").write_bytes(b"x" * 1000)
    fetch(RemoteFile(f"{server.url}/data.bin", SHA256), tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_connection_that_gets_no_further_gives_up(server, tmp_path):
    server.cuts, server.cut_after = 100, 0
    with pytest.raises(ConnectionError, match="cannot download .*/data.bin: "):
        fetch(RemoteFile(f"{server.url}/data.bin", SHA256), tmp_path / "data.bin")
    assert not (tmp_path / "data.bin").exists()


def test_wrong_checksum_leaves_nothing(server, tmp_path):
    with pytest.raises(ValueError, match=f"wrong checksum for .*/data.bin: expected sha256 00, got {SHA256}"):
        fetch(RemoteFile(f"{server.url}/data.bin", "00"), tmp_path / "data.bin")
    assert [file.name for file in tmp_path.iterdir()] == [".data.bin.lock"]


def test_not_found(server, tmp_path):
    with pytest.raises(ConnectionError, match="cannot download .*/none.bin: HTTP 404"):
        fetch(RemoteFile(f"{server.url}/none.bin"), tmp_path / "none.bin")


def test_no_server(tmp_path):
    with pytest.raises(ConnectionError, match="cannot download http://127.0.0.1:9/x: "):
        fetch(RemoteFile("http://127.0.0.1:9/x"), tmp_path / "x")


def test_member_of_an_archive(server, tmp_path):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("inner.txt", "a\tb\n")
    server.files["/pairs.zip"] = archive.getvalue()
    sha256 = hashlib.sha256(b"a\tb\n").hexdigest()
    fetch(RemoteFile(f"{server.url}/pairs.zip", sha256, "inner.txt"), tmp_path / "pairs.txt")
    assert (tmp_path / "pairs.txt").read_text() == "a\tb\n"
    assert {file.name for file in tmp_path.iterdir()} == {"pairs.txt", ".pairs.txt.lock"}
    with pytest.raises(ValueError, match="is not a zip archive with other.txt"):
        fetch(RemoteFile(f"{server.url}/pairs.zip", sha256, "other.txt"), tmp_path / "other")
