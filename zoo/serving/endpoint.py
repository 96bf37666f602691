"""The HTTP interface: accepts requests, checks their sender, size and form, and has them answered."""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from zoo.serving.base import Job
from zoo.serving.checks import Refused, short
from zoo.serving.images import check_total, detach
from zoo.serving.limits import MAX_HEADER_BYTES, MAX_JSON_PARTS, MAX_WAITING, MAX_WAITING_BYTES, READ_ON
from zoo.serving.pool import Pool
from zoo.serving.senders import PREFLIGHT, Senders, shared_with
from zoo.utils import strict_json

PREDICT = "/predict"
BYTES_OF_WORK = 400  # bytes of a request that are read in the time of a unit of work
log = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[dict[str, Any]]]


@dataclass
class Answer:
    """An HTTP answer."""

    status: int
    content: bytes
    headers: dict[str, str]
    kind: str = "application/json"


class Endpoint:
    """The ASGI application.

    Args:
        workers: see worker.py.
        decoders: image decoders, see images.py; None for a model without images.
        facts: what a worker reported.
        info: content of `/info`.
        max_bytes: maximum size of a request.
        timeout: seconds for a body, and again for the answer.
        batch_wait: seconds that the first request of a batch waits for others.
        key: API key that every request must have; None: no key.
        hosts: names of this server, besides IP addresses and localhost; "*": any.
    """

    def __init__(
        self,
        workers: Pool,
        decoders: Pool | None,
        facts: dict[str, Any],
        info: dict[str, Any],
        max_bytes: int,
        timeout: float,
        batch_wait: float,
        key: str | None = None,
        hosts: frozenset[str] = frozenset(),
    ) -> None:
        self.workers, self.decoders, self.info = workers, decoders, json.dumps(info, ensure_ascii=False).encode()
        self.takes_questions = "question" in facts["fields"]
        self.max_bytes, self.timeout, self.batch_wait = max_bytes, timeout, batch_wait
        self.senders = Senders(key, hosts)
        self.held: dict[object, int] = {}  # bytes of the unanswered requests
        self.waiting = 0  # how many of these have arrived completely

    async def __call__(
        self, scope: dict[str, Any], receive: Receive, send: Callable[[dict[str, Any]], Awaitable[None]]
    ) -> None:
        """One request."""
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        shared: dict[str, str] = {}
        try:
            if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
                raise Refused(431, f"the headers are larger than the limit of {MAX_HEADER_BYTES:,} bytes")
            self.senders.check(given)
            shared = shared_with(given.get("origin"))
            answer = await self._answer(scope, given, receive)
        except Refused as error:
            more = {"Retry-After": "1"} if error.status == 503 else {}
            if "expect" in given:  # the client may leave out the body; the next request would be taken for it
                more["Connection"] = "close"
            answer = Answer(error.status, json.dumps({"detail": error.detail}).encode(), more)
        except Exception:
            log.exception("a request failed")
            answer = Answer(500, b'{"detail": "the server failed on this request; its log says why"}', {})
        headers = {"Content-Type": answer.kind, "Content-Length": str(len(answer.content)), **answer.headers, **shared}
        sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": sent})
        await send({"type": "http.response.body", "body": answer.content})

    async def _answer(self, scope: dict[str, Any], headers: dict[str, str], receive: Receive) -> Answer:
        method, path = scope["method"], re.sub("(?i)^https?://[^/]*", "", scope["path"])  # of a whole address, too
        if method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers:
            return Answer(200, b"", PREFLIGHT, "text/plain")  # a browser asks it without the key
        self.senders.check_key(headers)
        if (method, path) == ("POST", PREDICT):
            if scope["query_string"]:
                raise Refused(400, "options belong in the JSON object, not after a ? in the address")
            return await self._predict(headers, receive)
        if method in ("GET", "HEAD") and path == "/info":
            return Answer(200, self.info, {})
        if method in ("GET", "HEAD") and path == "/health":
            if self.workers.is_well() and (self.decoders is None or self.decoders.is_well()):
                return Answer(200, b"ok", {}, "text/plain")
            return Answer(503, b"not ready", {"Retry-After": "1"}, "text/plain")
        is_known = path in (PREDICT, "/info", "/health")
        detail = f"there is no {method} {short(path)}; there are POST {PREDICT}, GET /info and GET /health"
        allowed = {"Allow": "POST" if path == PREDICT else "GET, HEAD"} if is_known else {}
        return Answer(405 if is_known else 404, json.dumps({"detail": detail}).encode(), allowed)

    async def _predict(self, headers: dict[str, str], receive: Receive) -> Answer:
        if (encoding := headers.get("content-encoding", "identity")) != "identity":
            raise Refused(415, f"Content-Encoding {short(encoding)} is not read: send the request uncompressed")
        kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        is_image = self.decoders is not None and kind.startswith("image/")
        if kind != "application/json" and not is_image:
            or_image = (
                ""
                if self.decoders is None
                else ", or the bytes of an image file with the header Content-Type: image/jpeg"
            )
            raise Refused(415, f"send JSON with the header Content-Type: application/json{or_image}; got {short(kind)}")
        if "expect" in headers and int(headers.get("content-length", 0)) > self.max_bytes:  # it asks before it sends
            raise self._too_large()
        request = object()
        self.held[request] = 0
        try:
            try:
                body = await asyncio.wait_for(self._body(request, receive), self.timeout)
            except asyncio.TimeoutError as error:
                raise Refused(408, f"the request did not arrive within {self.timeout:g} s") from error
            if self.waiting >= MAX_WAITING:
                raise Refused(503, f"too many requests are already waiting ({self.waiting:,}); try again later")
            fields = {"image": body} if is_image else parse(body, self.takes_questions)
            self.waiting += 1
            try:
                return await self._unless_gone(self._results(fields, len(body)), receive)
            finally:
                self.waiting -= 1
        finally:
            del self.held[request]

    async def _body(self, request: object, receive: Receive) -> bytes:
        parts, size, more = [], 0, True
        while more and size <= READ_ON * self.max_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "the request was interrupted")
            part, more = message.get("body", b""), message.get("more_body", False)
            size += len(part)
            if size <= self.max_bytes:
                parts.append(part)
                self._hold(request, size)
        if size > self.max_bytes:
            raise self._too_large()
        return b"".join(parts)

    def _too_large(self) -> Refused:
        return Refused(413, f"the request is larger than the limit of {self.max_bytes:,} bytes; send less at once")

    def _hold(self, request: object, size: int) -> None:
        self.held[request] = size
        if (
            len(self.held) > 1
            and sum(self.held.values()) > MAX_WAITING_BYTES
            and size * len(self.held) > MAX_WAITING_BYTES
        ):
            raise Refused(503, f"too many requests are already waiting ({len(self.held):,}); try again later")

    async def _unless_gone(self, results: Awaitable[Answer], receive: Receive) -> Answer:
        """The answer, unless it times out or the client is gone; then everything not yet started is dropped."""
        answer, gone = asyncio.ensure_future(results), asyncio.ensure_future(receive())
        try:
            await asyncio.wait({answer, gone}, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if gone.done():
                raise Refused(400, "the request was interrupted")
            raise Refused(504, f"no answer within {self.timeout:g} s; send less at once, or try again later")
        finally:
            answer.cancel()
            gone.cancel()

    async def _results(self, fields: dict[str, Any], size: int) -> Answer:
        images: list[Any] = []
        if self.decoders is not None:
            fields, images = detach(fields)
            size -= sum(map(len, images))
        jobs, _ = await self.workers.run("read", [fields], [1 + max(0, size) // BYTES_OF_WORK])
        job: Job = jobs[0]
        items = await self._decoded(job, images) if self.decoders is not None else job.items
        options, asked = job.options, [(item, job.attention) for item in items]
        results, together = await self.workers.run("answer", asked, job.works, options, self.batch_wait)
        content = results[0] if job.one else b'{"results": [' + b", ".join(results) + b"]}"
        return Answer(200, content, {"X-Batch-Size": str(together)})

    async def _decoded(self, job: Job, images: list[Any]) -> list[bytes]:
        assert self.decoders is not None
        named = [(images[item.number], item.name) for item in job.items]
        works, _ = await self.decoders.run("measure", named, [1] * len(named))
        check_total(works, [item.name for item in job.items])
        return (await self.decoders.run("pixels", named, works))[0]


def parse(body: bytes, questions: bool = False) -> dict[str, Any]:
    """The JSON object of a request.

    Args:
        body: as received.
        questions: whether a field may hold objects with strings and lists of strings.

    Raises:
        Refused: 400 if it is not such an object.
    """
    if not body:
        raise Refused(400, "the request is empty; send a JSON object")
    if (parts := sum(map(body.count, (b",", b"[", b"{")))) > MAX_JSON_PARTS:
        raise Refused(
            413,
            f"the request has {parts:,} commas and brackets; at most {MAX_JSON_PARTS:,} are allowed; send less at once",
        )
    try:
        found = strict_json.loads(body.decode(), len(body))
    except UnicodeDecodeError as error:
        raise Refused(400, f"the request is not UTF-8 text (byte {error.start:,})") from error
    except ValueError as error:
        raise Refused(400, f"the request is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise Refused(400, f"the request must be a JSON object; got {short(found)}")
    if not all(_is_shallow(value, objects=int(questions)) for value in found.values()):
        if questions:
            raise Refused(
                400, "the request is nested too deeply; a question is an object of strings and a list of strings"
            )
        raise Refused(
            400, "a field of the request holds an object, or lists inside lists inside a list; none takes these"
        )
    return found


def _is_shallow(value: Any, lists: int = 2, objects: int = 0) -> bool:
    """Whether it is a valid field of a request; deeper nesting cannot even be passed to another process."""
    if isinstance(value, list):
        return lists > 0 and all(_is_shallow(part, lists - 1, objects) for part in value)
    if isinstance(value, dict):
        return objects > 0 and all(_is_shallow(part, lists, objects - 1) for part in value.values())
    return True
