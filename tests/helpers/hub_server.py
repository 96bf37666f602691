"""A Hugging Face Hub on the loopback device, for tests, with faults on request; and a client process of it."""

import base64
import contextlib
import hashlib
import json
import logging
import os
import pickle
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

WRITER, READER = "hf_may_write", "hf_may_read"  # tokens


def git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Repo:
    """Commits are whole trees: path -> content. A branch is moved in one assignment."""

    private: bool = False
    gated: bool = False
    ignored: tuple[str, ...] = ()  # by a .gitignore
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)  # branches and tags

    def __post_init__(self) -> None:
        self.commit({".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"})

    @property
    def main(self) -> str:
        return self.refs["main"]

    @property
    def tree(self) -> dict[str, bytes]:
        return self.commits[self.main]

    def commit(self, tree: dict[str, bytes], branch: str = "main") -> str:
        text = repr((self.refs.get(branch), time.time_ns(), sorted((p, sha256(d)) for p, d in tree.items())))
        oid = hashlib.sha1(text.encode()).hexdigest()
        self.commits[oid] = tree
        self.refs[branch] = oid
        return oid

    def find(self, revision: str) -> str | None:
        return self.refs.get(revision) or (revision if revision in self.commits else None)


@dataclass
class Fault:
    """What happens to the next `times` requests "METHOD /path" that match `pattern`.

    Attributes:
        before, after: Called when half of the request's body was read, and when it was served but not yet answered.
        status: Answer this error instead of serving.
        cut: Close the connection after so many bytes of the answer's body (0: without any answer, not serving; -1:
            without any answer, having served).
        flip: Change one bit of the answer's body.
        delay: Seconds before serving.
        retry_after: Sent with `status`: seconds that the client is asked to wait.
        portal: Answer with a web page to log in, as the network of a hotel does.
        more: Bytes that are sent beyond the content.
        drip: Seconds between any two drops of the answer's body.
        drop: Bytes of a drop.
    """

    pattern: str
    times: int = 1
    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    status: int | None = None
    cut: int | None = None
    flip: bool = False
    delay: float = 0.0
    retry_after: int | None = None
    portal: bool = False
    more: int = 0
    drip: float = 0.0
    drop: int = 1


class Cut(Exception):
    """Ends a connection."""


class Hub:
    """The server; `with Hub() as hub`.

    Attributes:
        repos: Repository id -> Repo.
        requests: "METHOD /path" of each request so far.
        created: Bodies of the requests that create a repository.
        faults: Those to come.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.lfs: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.created: list[dict[str, Any]] = []
        self.faults: list[Fault] = []
        self.lock = threading.Lock()
        self.port = 0
        self.start()

    def __enter__(self) -> "Hub":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listens, on the same port as before."""
        self.server = _Server(("127.0.0.1", self.port), type("Handler", (_Handler,), {"hub": self}))
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """From here on connections are refused."""
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.server.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, repo_id: str, **settings: Any) -> Repo:
        self.repos[repo_id] = Repo(**settings)
        return self.repos[repo_id]

    def fault(self, pattern: str, **what: Any) -> None:
        self.faults.append(Fault(pattern, **what))

    def reset(self) -> None:
        """Empties everything."""
        for things in (self.repos, self.lfs, self.requests, self.created, self.faults):
            things.clear()

    def next_fault(self, request: str) -> Fault:
        with self.lock:
            self.requests.append(request)
            for fault in self.faults:
                if fault.times and re.search(fault.pattern, request):
                    fault.times -= 1
                    return fault
        return Fault("")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: socket.socket, address: Any) -> None:
        self.open.add(request)
        super().process_request(request, address)

    def shutdown_request(self, request: socket.socket) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (Cut, ConnectionError)):  # the client went away, or was sent away
            super().handle_error(request, address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.current = self.hub.next_fault(f"{self.command} {path}")
        self.body = self._read_body()
        time.sleep(self.current.delay)
        if self.current.cut == 0:
            raise Cut
        if self.current.portal:
            self._answer(b"<html><body>Welcome! Please log in.</body></html>", Content_Type="text/html")
            return
        if self.current.status:
            self._error(self.current.status, "as the test wants it")
            return
        for pattern, serve in self.ROUTES:
            if match := re.fullmatch(pattern, f"{self.command} {path}"):
                serve(self, *match.groups())
                return
        self._error(404, f"no such route: {self.command} {path}")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length // 2)
            if self.current.before:
                self.current.before()
            body += self.rfile.read(length - length // 2)
            if len(body) < length:
                raise Cut
            return body
        body = b""
        if self.current.before:
            self.current.before()
        while size := int(self.rfile.readline() or b"0", 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    # ---- answers ----

    def _answer(self, body: bytes, status: int = 200, length: int | None = None, **headers: str) -> None:
        if self.current.after:
            self.current.after()
        if self.current.cut == -1:
            raise Cut
        if self.current.flip and body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        self.send_response(status)
        if self.current.more and self.command == "GET":
            body, length = body + bytes(self.current.more), None
        if self.current.retry_after is not None:
            headers["Retry_After"] = str(self.current.retry_after)
        for name, value in {"Content-Length": str(len(body) if length is None else length), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.current.drip and self.command != "HEAD":
            for n in range(0, len(body), self.current.drop):
                self.wfile.write(body[n : n + self.current.drop])
                self.wfile.flush()
                time.sleep(self.current.drip)
        elif self.command != "HEAD":
            self.wfile.write(body[: self.current.cut])
            if self.current.cut is not None:
                self.wfile.flush()
                raise Cut

    def _json(self, data: Any, status: int = 200, **headers: str) -> None:
        self._answer(json.dumps(data).encode(), status, Content_Type="application/json", **headers)

    def _error(self, status: int, message: str, code: str = "") -> None:
        self._json({"error": message}, status, X_Error_Message=message, **({"X_Error_Code": code} if code else {}))

    # ---- who may what ----

    @property
    def token(self) -> str | None:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None

    def _repo(self, repo_id: str, write: bool = False, content: bool = False) -> Repo | None:
        """The repository, or None after answering why not."""
        repo = self.hub.repos.get(repo_id)
        if self.token not in (None, WRITER, READER):
            self._error(401, "Invalid credentials in Authorization header")
        elif repo is None or (repo.private and self.token is None):
            self._error(401 if self.token is None else 404, "Repository not found", "RepoNotFound")
        elif repo.gated and content and self.token != WRITER:
            self._error(401 if self.token is None else 403, f"Access to model {repo_id} is restricted.", "GatedRepo")
        elif not write or self._may_write():
            return repo
        return None

    def _may_write(self) -> bool:
        if self.token == WRITER:
            return True
        if self.token == READER:
            self._error(403, "This token has no write permissions")
        else:
            self._error(401, "Invalid username or password.")
        return False

    def _commit_of(self, repo: Repo, revision: str) -> str | None:
        oid = repo.find(revision)
        if oid is None:
            self._error(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return oid

    # ---- reading ----

    def whoami(self) -> None:
        if self._may_write():
            self._json({"name": "me", "type": "user", "orgs": []})

    def info(self, repo_id: str, revision: str | None) -> None:
        if (repo := self._repo(repo_id)) and (oid := self._commit_of(repo, revision or "main")):
            tree = repo.commits[oid]
            files = [
                {"rfilename": path} | ({"size": len(tree[path])} if "blobs=" in self.path else {})
                for path in sorted(tree)
            ]
            self._json(
                {
                    "_id": "1",
                    "id": repo_id,
                    "modelId": repo_id,
                    "sha": oid,
                    "private": repo.private,
                    "siblings": files,
                    "tags": [],
                }
            )

    def refs(self, repo_id: str) -> None:
        if repo := self._repo(repo_id):
            branches = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": oid} for n, oid in repo.refs.items()]
            self._json({"branches": branches, "converts": [], "tags": []})

    def tree(self, repo_id: str, revision: str) -> None:
        if (repo := self._repo(repo_id)) and (oid := self._commit_of(repo, revision)):
            self._json([_entry(path, data) for path, data in sorted(repo.commits[oid].items())])

    def resolve(self, repo_id: str, revision: str, path: str) -> None:
        if not (repo := self._repo(repo_id, content=True)) or not (oid := self._commit_of(repo, revision)):
            return
        data = repo.commits[oid].get(path)
        if data is None:
            self._json({"error": "Entry not found"}, 404, X_Error_Code="EntryNotFound", X_Repo_Commit=oid)
        elif _is_lfs(path):  # to another host, as a storage service is
            linked = {"X_Linked_Etag": f'"{sha256(data)}"', "X_Linked_Size": str(len(data))}
            location = f"http://localhost:{self.hub.port}/storage/{sha256(data)}"
            self._answer(b"", 302, X_Repo_Commit=oid, Location=location, **linked)
        else:
            self._content(data, X_Repo_Commit=oid, ETag=f'"{git_oid(data)}"')

    def storage(self, oid: str) -> None:
        self._content(self.hub.lfs[oid], ETag=f'"{oid}"')

    def _content(self, data: bytes, **headers: str) -> None:
        start = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if start:
            rest = data[int(start[1]) :]
            self._answer(rest, 206, Content_Range=f"bytes {start[1]}-{len(data) - 1}/{len(data)}", **headers)
        else:
            self._answer(data, length=len(data), **headers)

    # ---- writing ----

    def create(self) -> None:
        body = json.loads(self.body)
        self.hub.created.append(body)
        repo_id = f"{body['organization']}/{body['name']}"
        if not self._may_write():
            return
        if body["organization"] == "others":
            self._error(403, 'You don\'t have the rights to create a model under the namespace "others"')
        elif repo_id in self.hub.repos:
            self._json({"error": "You already created this model repo", "url": f"{self.hub.url}/{repo_id}"}, 409)
        else:
            self.hub.add(repo_id, private=body.get("visibility") == "private")
            self._json({"url": f"{self.hub.url}/{repo_id}", "name": repo_id})

    def delete(self) -> None:
        body = json.loads(self.body)
        if self._may_write():
            del self.hub.repos[f"{body['organization']}/{body['name']}"]
            self._json({})

    def validate_yaml(self) -> None:
        import yaml

        front = re.match(r"---\n(.*?\n)---\n", json.loads(self.body)["content"], re.DOTALL)
        data = yaml.safe_load(front[1]) if front else {}
        wrong = [d for d in data.get("datasets", []) if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", d)]
        errors = [{"message": f'"datasets" with value "{d}" is not valid'} for d in wrong]
        self._json({"errors": errors, "warnings": []}, 400 if errors else 200)

    def preupload(self, repo_id: str, revision: str) -> None:
        if not (repo := self._repo(repo_id, write=True)) or not (oid := self._commit_of(repo, revision)):
            return
        files = []
        for file in json.loads(self.body)["files"]:
            path, there = file["path"], repo.commits[oid].get(file["path"])
            mode = "lfs" if _is_lfs(path) else "regular"
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": path in repo.ignored})
            if there is not None:
                files[-1]["oid"] = sha256(there) if mode == "lfs" else git_oid(there)
        self._json({"files": files})

    def batch(self, repo_id: str) -> None:
        if not self._repo(repo_id, write=True):
            return
        objects = json.loads(self.body)["objects"]
        for item in objects:
            if item["oid"] not in self.hub.lfs:
                upload = {"href": f"http://localhost:{self.hub.port}/storage/{item['oid']}"}
                item["actions"] = {"upload": upload, "verify": {"href": f"{self.hub.url}/{repo_id}/verify"}}
        self._json({"transfer": "basic", "objects": objects})

    def put(self, oid: str) -> None:
        if sha256(self.body) != oid:
            self._error(400, "The content does not have the sha256 that it was announced with")
            return
        self.hub.lfs[oid] = self.body
        self._answer(b"")

    def verify(self, repo_id: str) -> None:
        item = json.loads(self.body)
        there = len(self.hub.lfs.get(item["oid"], b"")) == item["size"]
        self._json({}) if there else self._error(404, "not there")

    def commit(self, repo_id: str, branch: str) -> None:
        if not (repo := self._repo(repo_id, write=True)) or not self._commit_of(repo, branch):
            return
        lines = [json.loads(line) for line in self.body.splitlines()]
        header = lines[0]["value"]
        with self.hub.lock:
            if header.get("parentCommit", repo.refs[branch]) != repo.refs[branch]:
                self._error(412, "A commit has happened since. Please refresh and try again.")
                return
            tree = dict(repo.commits[repo.refs[branch]])
            for line in lines[1:]:
                kind, value = line["key"], line["value"]
                if kind == "file":
                    tree[value["path"]] = base64.b64decode(value["content"])
                elif kind == "lfsFile":
                    if value["oid"] not in self.hub.lfs:
                        self._error(400, f"{value['path']} was not uploaded")
                        return
                    tree[value["path"]] = self.hub.lfs[value["oid"]]
                elif kind == "deletedFile":
                    del tree[value["path"]]
            oid = repo.commit(tree, branch)
        self._json({"commitOid": oid, "commitUrl": f"{self.hub.url}/{repo_id}/commit/{oid}", "success": True})

    def tag(self, repo_id: str, revision: str) -> None:
        if (repo := self._repo(repo_id, write=True)) and (oid := self._commit_of(repo, revision)):
            repo.refs[json.loads(self.body)["tag"]] = oid
            self._json({})

    def branch(self, repo_id: str, name: str) -> None:
        if repo := self._repo(repo_id, write=True):
            repo.refs[name] = repo.main
            self._json({})

    _ID = r"([\w.-]+/[\w.-]+)"
    ROUTES = [
        (r"GET /api/whoami-v2", whoami),
        (r"POST /api/repos/create", create),
        (r"(?:POST|DELETE) /api/repos/delete", delete),
        (r"POST /api/validate-yaml", validate_yaml),
        (rf"GET /api/models/{_ID}(?:/revision/(.+))?", info),
        (rf"GET /api/models/{_ID}/refs", refs),
        (rf"GET /api/models/{_ID}/tree/([^/]+)/?", tree),
        (rf"POST /api/models/{_ID}/preupload/(.+)", preupload),
        (rf"POST /api/models/{_ID}/commit/(.+)", commit),
        (rf"POST /api/models/{_ID}/tag/(.+)", tag),
        (rf"POST /api/models/{_ID}/branch/(.+)", branch),
        (rf"POST /{_ID}\.git/info/lfs/objects/batch", batch),
        (rf"POST /{_ID}/verify", verify),
        (rf"(?:GET|HEAD) /{_ID}/resolve/([^/]+)/(.+)", resolve),
        (r"(?:GET|HEAD) /storage/(\w+)", storage),
        (r"PUT /storage/(\w+)", put),
    ]


def _is_lfs(path: str) -> bool:
    return path.endswith((".safetensors", ".png"))


def _entry(path: str, data: bytes) -> dict[str, Any]:
    entry = {"type": "file", "path": path, "size": len(data), "oid": git_oid(data)}
    return entry | ({"lfs": {"oid": sha256(data), "size": len(data), "pointerSize": 130}} if _is_lfs(path) else {})


# ---- the other side ----


@dataclass
class Result:
    """How a client process ended: its exit code (negative: killed by that signal), what it printed, what its function
    returned, and how many seconds it took once everything was imported."""

    code: int
    out: str
    err: str
    value: Any = None
    seconds: float = 0.0


_FORKING = threading.Lock()


class Client:
    """Runs functions in processes of their own, which import huggingface_hub anew with the address of a Hub.

    The library reads its settings once, when it is imported; so they must be in the environment before. A fork is
    quicker than a new interpreter, which would have to import torch.
    """

    def __init__(self, hub: Hub, home: Path) -> None:
        import huggingface_hub.hf_api  # noqa: F401  what it imports itself need not be imported again

        self.hub, self.home = hub, home
        self.process: int | None = None
        self.environment = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(home),
            "ZOO_CACHE": str(home / "attention-zoo"),
            "HF_TOKEN": WRITER,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",  # xet is another protocol, which the server does not speak
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }

    @property
    def cache(self) -> Path:
        return self.home / "hub"

    def kill(self) -> None:
        """Ends the running process as a power cut would."""
        os.kill(self.process, signal.SIGKILL)

    def __call__(self, function: Callable[[], Any], **environment: str) -> Result:
        """Runs a function; an exception of it goes to standard error, with exit code 1."""
        self.home.mkdir(exist_ok=True)
        files = [self.home.parent / f"{self.home.name}.{name}" for name in ("out", "err", "value")]
        for file in files:
            file.write_bytes(b"")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with _FORKING:  # filelock refuses a fork while another thread forks
            self.process = os.fork()
        if self.process == 0:
            code = 1
            try:
                code = self._child(function, environment, *files)
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        value, seconds = pickle.loads(files[2].read_bytes()) if files[2].stat().st_size else (None, 0.0)
        return Result(code, files[0].read_text(), files[1].read_text(), value, seconds)

    def zoo(self, *arguments: str, **environment: str) -> Result:
        """Runs the command line."""
        from zoo.cli import main

        result = self(lambda: main(list(arguments)), **environment)
        result.code = result.value if result.code == 0 else result.code
        return result

    def _child(
        self, function: Callable[[], Any], environment: dict[str, str], out: Path, err: Path, value: Path
    ) -> int:
        import torch

        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
        torch.set_num_threads(1)  # the threads of the parent are not here
        logging.root.handlers.clear()  # nor is pytest: warnings go to standard error
        # of the parent, for the standard error of the test that imported it first, which may be closed
        logging.getLogger("huggingface_hub").handlers.clear()
        os.environ |= self.environment | environment
        for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
            del sys.modules[name]
        import huggingface_hub.hf_api  # noqa: F401

        start = time.monotonic()
        try:
            result = function()
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
        value.write_bytes(pickle.dumps((result, time.monotonic() - start)))
        return 0
