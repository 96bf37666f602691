"""The API server: takes requests over HTTP, checks their size and form, and hands them to a worker."""

import asyncio
import time
import uuid
from typing import Any

from zoo.serving.checks import short
from zoo.serving.libraries import ClientDisconnect, HTTPException, JSONResponse, LitSpec, Request, Response, ResponseBufferItem
from zoo.utils import strict_json

PREDICT = "/predict"
MAX_WAITING, MAX_WAITING_BYTES = 512, 2**28  # requests of one API server that have no answer yet; the next ones are sent away
READ_ON = 4  # a body is read up to so many times the limit before it is refused: who still sends does not see the answer


class Endpoint(LitSpec):
    """POST /predict: what can be said of a request without the model, the way to a worker and back."""

    def __init__(self) -> None:
        super().__init__()
        self.api_path = PREDICT
        self.add_endpoint(PREDICT, self.predict, ["POST"])
        self.max_bytes, self.timeout = 0, 0.0  # these are set when a worker has told what it serves
        self.takes_images = self.takes_questions = False
        self.waiting_bytes = 0

    async def predict(self, request: Request) -> Response:
        """One request, from its body to the answer."""
        try:
            fields, size = await asyncio.wait_for(self._fields(request), self.timeout)
        except asyncio.TimeoutError as error:
            raise HTTPException(408, f"the request did not arrive within {self.timeout:g} s") from error
        except ClientDisconnect as error:
            raise HTTPException(400, "the request broke off") from error
        waiting = len(self.response_buffer)
        if waiting >= MAX_WAITING or waiting and self.waiting_bytes + size > MAX_WAITING_BYTES:
            raise HTTPException(503, f"too many requests wait already ({waiting:,}); try again later", {"Retry-After": "1"})
        uid, item = str(uuid.uuid4()), ResponseBufferItem(asyncio.Event())
        self.response_buffer[uid] = item
        self.waiting_bytes += size
        try:
            self.request_queue.put((self.response_queue_id, uid, time.monotonic(), fields))
            await asyncio.wait_for(item.event.wait(), self.timeout)
        except asyncio.TimeoutError as error:
            raise HTTPException(504, f"no answer within {self.timeout:g} s; send less at once, or try again later") from error
        finally:
            del self.response_buffer[uid]
            self.waiting_bytes -= size
        status, content, together = item.response[0]
        return Response(content, status, {"X-Batch-Size": str(together)} if together else None, "application/json")

    async def _fields(self, request: Request) -> tuple[dict[str, Any], int]:
        """The fields of a request and the bytes of its body."""
        if request.url.query:
            raise HTTPException(400, "options belong into the JSON object, not behind a ? in the address")
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        is_image = self.takes_images and kind.startswith("image/")
        if kind != "application/json" and not is_image:
            or_image = ", or the bytes of an image file with the header Content-Type: image/jpeg" if self.takes_images else ""
            raise HTTPException(415, f"send JSON with the header Content-Type: application/json{or_image}; got {short(kind)}")
        body = await self._body(request)
        return {"image": body} if is_image else parse(body, self.takes_questions), len(body)

    async def _body(self, request: Request) -> bytes:
        too_large = HTTPException(413, f"the request is larger than the limit of {self.max_bytes:,} bytes; send less at once")
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > READ_ON * self.max_bytes:
                break
            if size <= self.max_bytes:
                parts.append(part)
        if size > self.max_bytes:
            raise too_large
        return b"".join(parts)


def parse(body: bytes, questions: bool = False) -> dict[str, Any]:
    """The JSON object of a request.

    Args:
        body: as it was sent.
        questions: whether a field may hold objects, of strings and lists of them.

    Raises:
        HTTPException: 400, it is none.
    """
    if not body:
        raise HTTPException(400, "the request is empty; send a JSON object")
    try:
        found = strict_json.loads(body.decode(), len(body))
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"the request is not UTF-8 text (byte {error.start:,})") from error
    except ValueError as error:
        raise HTTPException(400, f"the request is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise HTTPException(400, f"the request must be a JSON object; got {short(found)}")
    if not all(_is_shallow(value, objects=int(questions)) for value in found.values()):
        if questions:
            raise HTTPException(400, "the request is nested too deeply; a question is an object of strings and a list of strings")
        raise HTTPException(400, "a field of the request holds an object, or lists inside lists inside a list; none takes these")
    return found


def _is_shallow(value: Any, lists: int = 2, objects: int = 0) -> bool:
    """Whether it can be a field of a request; what is nested deeper cannot even be handed to another process."""
    if isinstance(value, list):
        return lists > 0 and all(_is_shallow(part, lists - 1, objects) for part in value)
    if isinstance(value, dict):
        return objects > 0 and all(_is_shallow(part, lists, objects - 1) for part in value.values())
    return True


async def no_route(request: Request, error: HTTPException) -> Response:
    """404 and 405, saying what there is."""
    detail = f"there is no {request.method} {short(request.url.path)}; there are POST {PREDICT}, GET /info and GET /health"
    return JSONResponse({"detail": detail}, error.status_code, error.headers)
