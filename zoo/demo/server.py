"""A web server for the page, for the browser of this machine only."""

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from zoo.demo.page import CARD, INDEX, TYPES, Shown, index, model_files, site_files

HOST = "127.0.0.1"
RETRY_SECONDS = 1


class BeingPrepared(Exception):
    """A model that is being exported; its request should be repeated."""


class Models:
    """The models of the page and their exports, which the first request for a model makes.

    Args:
        shown: in the order in which the page offers them.
        ready: folders of the exports that are there, by name.
        prepare: exports a model and returns the folder.
    """

    def __init__(self, shown: Sequence[Shown], ready: Mapping[str, Path], prepare: Callable[[str], Path]) -> None:
        self._shown, self._prepare = {model.name: model for model in shown}, prepare
        self._ready, self._failed = dict(ready), {}
        self._working: set[str] = set()
        self._state = threading.Lock()  # of the three above
        self._one = threading.Lock()  # an export takes a whole core and up to 1 GB: one at a time

    def index(self) -> bytes:
        """models/index.json as of now."""
        with self._state:
            ready = dict(self._ready)
        files = {
            name: {file: path.stat().st_size for file, path in model_files(folder).items()}
            for name, folder in ready.items()
        }
        return index(self._shown.values(), files, scripts=False)

    def content(self, name: str, file: str) -> bytes | None:
        """A file of a model; None if there is no such model or file.

        Raises:
            BeingPrepared: the model is being exported, since now or before.
            ValueError: the export failed; the next request tries again.
        """
        if name not in self._shown:
            return None
        if file == CARD:
            return self._shown[name].card.encode() or None
        path = model_files(self._folder(name)).get(file)
        return path and path.read_bytes()

    def _folder(self, name: str) -> Path:
        with self._state:
            if name in self._ready:
                return self._ready[name]
            if name in self._failed:
                raise ValueError(self._failed.pop(name))
            if name not in self._working:
                self._working.add(name)
                threading.Thread(target=self._work, args=(name,), daemon=True).start()
        raise BeingPrepared(f"{name} is being prepared")

    def _work(self, name: str) -> None:
        folder, failure = None, ""
        try:
            with self._one:
                folder = self._prepare(name)
        except Exception as error:  # of many classes; the page shows it, and the server stays
            failure = " ".join(str(error).split()) or type(error).__name__
        with self._state:
            self._working.discard(name)
            if folder is None:
                self._failed[name] = failure
            else:
                self._ready[name] = folder


class Server(ThreadingHTTPServer):
    """Serves exactly the page's files and its models."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # elsewhere two servers could share the port

    def __init__(self, port: int, models: Models) -> None:
        self.models, self.files = models, site_files()
        super().__init__((HOST, port), Handler)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD. A path is looked up among those that exist, so none leads elsewhere."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Sends a file."""
        path = unquote(urlsplit(self.path).path).removeprefix("/") or "index.html"
        try:
            content = self._content(path)
        except BeingPrepared as wait:
            self._send(503, str(wait).encode(), TYPES[".txt"], {"Retry-After": str(RETRY_SECONDS)})
        except (ValueError, OSError) as error:
            self._send(500, str(error).encode(), TYPES[".txt"])
        else:
            if content is None:
                self._send(404, b"there is no such file", TYPES[".txt"])
            else:
                self._send_file(path, content)

    def do_HEAD(self) -> None:
        """Sends the headers of a file."""
        self.do_GET()

    def _content(self, path: str) -> bytes | None:
        if path == INDEX:
            return self.server.models.index()
        if path in self.server.files:
            return self.server.files[path].read_bytes()
        match path.split("/"):
            case ["models", name, file]:
                return self.server.models.content(name, file)
        return None

    def _send_file(self, path: str, content: bytes) -> None:
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        kind = TYPES.get(PurePosixPath(path).suffix, "application/octet-stream")
        if self.headers.get("If-None-Match") == tag:
            self._send(304, b"", kind, {"ETag": tag})
        else:
            self._send(200, content, kind, {"ETag": tag})

    def _send(self, status: int, content: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        """Sends an answer at once: in two parts the second one would wait for the first to be acknowledged."""
        self.wfile, connection = BytesIO(), self.wfile
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(content)), "Cache-Control": "no-cache"}
        for name, value in {**headers, "X-Content-Type-Options": "nosniff", **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and status != 304:
            self.wfile.write(content)
        self.wfile, written = connection, self.wfile
        self.wfile.write(written.getvalue())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the user looks at the page."""


def serve(port: int, models: Models, started: Callable[[str], None]) -> None:
    """Serves until Ctrl-C.

    Args:
        port: 0 for any that is free.
        models: what the page offers.
        started: called with the address once it answers.

    Raises:
        ValueError: the port is taken.
    """
    try:
        server = Server(port, models)
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise ValueError(f"port {port} cannot be used ({error.strerror}); give another one with --port") from error
        raise
    with server:
        started(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
