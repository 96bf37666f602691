"""`zoo serve`: a model behind HTTP, on LitServe.

    POST /predict   JSON in, JSON out; a captioner also takes the bytes of an image file
    GET  /info      the model, its fields, limits and scores
    GET  /health    200 once a model is loaded

Three kinds of processes. The first one starts and stops the others and never loads torch. API servers take requests and check their
size and form. Workers hold the model: each checks what a request asks for before it joins a batch, so that a wrong one is
answered at once and harms nobody; what fails in a batch all the same is answered one by one.
"""

import argparse
import asyncio
import base64
import json
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from queue import Empty
from types import FrameType
from typing import Any, ClassVar

import PIL.Image

from zoo import extras, registry, strict_json
from zoo.allocator import keep_freed_memory

if not extras.missing("serve"):
    from fastapi import FastAPI, HTTPException, Request, Response
    from fastapi.responses import JSONResponse
    from litserve import LitAPI, LitServer
    from litserve.loops import LitLoop
    from litserve.specs.base import LitSpec
    from litserve.utils import LitAPIStatus, LoopResponseType, ResponseBufferItem
    from starlette.requests import ClientDisconnect
else:  # can still be imported, as by a tool that looks at every module; `zoo serve` says what is missing
    FastAPI = HTTPException = Request = Response = LitAPI = LitServer = LitLoop = LitSpec = object

PREDICT = "/predict"
MAX_BEAM = 16
BACKLOG = 2048  # connections that nobody has taken yet
MAX_WAITING, MAX_WAITING_BYTES = 512, 2**28  # requests of one API server that have no answer yet; the next ones are sent away
MAX_WORD = 1_000  # characters without a space: the tokenizer remembers words
READ_ON = 4  # a body is read up to so many times the limit before it is refused: who still sends does not see the answer
ABOUT_ATTENTION = ("tokens", "source_tokens", "attention", "sentences")  # of the results; sent when asked for

log = logging.getLogger(__name__)


# ---- what a model can be asked -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A request whose content was checked."""

    items: list[Any]  # texts, pairs of texts or images
    options: tuple[tuple[str, Any], ...]  # of the model's method; jobs whose options differ cannot share a batch
    attention: bool  # whether the answer shows it
    one: bool  # "text" was sent, not "texts"


class Task:
    """How requests to one kind of model are read and answered.

    Args:
        model: in eval mode.
        max_tokens: of one text, by the model's tokenizer.
    """

    name: ClassVar[str]
    option_names: ClassVar[tuple[str, ...]] = ()
    default_tokens: ClassVar[int] = 0
    default_bytes: ClassVar[int] = 2**20
    one: str = "text"  # the field of one item; "texts" is that of several
    nothing: Any = ""  # an item that costs no time

    def __init__(self, model: Any, max_tokens: int) -> None:
        self.model, self.max_tokens = model, max_tokens

    @property
    def fields(self) -> list[str]:
        """Names that a request may have."""
        return [self.one, f"{self.one}s", *self.option_names, "attention"]

    def item(self, value: Any, name: str) -> Any:
        """One item of a request, checked; `name` is what messages call it."""
        return _text(value, name, self.model.tokenizer.encode, self.max_tokens)

    def options(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the model's method."""
        return {}

    def run(self, items: list[Any], **options: Any) -> list[Any]:
        """A result object for each item."""
        raise NotImplementedError

    def limits(self) -> dict[str, int]:
        """What `/info` says of them."""
        return {"tokens": self.max_tokens, "characters_of_a_word": MAX_WORD}


class _Searching(Task):
    option_names = ("beam_size", "n_best", "length_penalty")

    def options(self, fields: dict[str, Any]) -> dict[str, Any]:
        config = self.model.config
        beam_size = _number(fields, "beam_size", config["beam_size"], 1, max(MAX_BEAM, config["beam_size"]), whole=True)
        return {
            "beam_size": beam_size,
            "n_best": _number(fields, "n_best", 1, 1, beam_size, whole=True, why=", the beam_size"),
            "length_penalty": _number(fields, "length_penalty", config["length_penalty"], -10, 10),
        }

    def limits(self) -> dict[str, int]:
        return {**super().limits(), "beam_size": max(MAX_BEAM, self.model.config["beam_size"])}


class Translating(_Searching):
    """Sentences."""

    name, default_tokens = "translation", 256

    def item(self, value: Any, name: str) -> str:
        return _text(value, name, self.model.src_tokenizer.encode, self.max_tokens)

    def run(self, items: list[str], **options: Any) -> list[Any]:
        return self.model.translate(items, **options)


class Classifying(Task):
    """Texts, or pairs of them."""

    name, default_tokens = "classification", 5_000

    def __init__(self, model: Any, max_tokens: int) -> None:
        super().__init__(model, max_tokens)
        if model.config.get("pair"):
            self.one, self.nothing = "pair", ("", "")

    def item(self, value: Any, name: str) -> str | tuple[str, str]:
        if self.one == "text":
            return super().item(value, name)
        if not isinstance(value, list) or len(value) != 2:
            raise HTTPException(400, f"{name} must be a list of two strings; got {_short(value)}")
        first, second = (super(Classifying, self).item(part, f"text {n} of {name}") for n, part in enumerate(value, 1))
        return first, second

    def run(self, items: list[Any], **options: Any) -> list[Any]:
        return self.model.classify(items)


class Captioning(_Searching):
    """Images: base64 of the bytes of a file, never a path or an address."""

    name, default_bytes = "captioning", 16 * 2**20

    def __init__(self, model: Any, max_tokens: int) -> None:
        super().__init__(model, max_tokens)
        self.one, self.nothing = "image", PIL.Image.new("RGB", (1, 1))

    def item(self, value: Any, name: str) -> Any:
        """The image at the size of the model: what waits in a batch is small, and comes out the same."""
        from zoo.images import ImageError, open_image

        if not isinstance(value, (str, bytes)):
            raise HTTPException(400, f"{name} must be a string, the base64 of an image file; got {_short(value)}")
        try:
            data = value if isinstance(value, bytes) else base64.b64decode("".join(value.split()), validate=True)
        except ValueError as error:
            raise HTTPException(400, f"{name} is not base64 ({error}); send the bytes of an image file in base64, no path") from error
        try:
            image = open_image(data, name)
        except ImageError as error:
            raise HTTPException(422, str(error)) from error
        return PIL.Image.fromarray(self.model.transform.pixels(image).permute(1, 2, 0).numpy())

    def run(self, items: list[Any], **options: Any) -> list[Any]:
        return self.model.caption(items, **options)

    def limits(self) -> dict[str, int]:
        from zoo.images import MAX_PIXELS

        return {"pixels": MAX_PIXELS, "beam_size": super().limits()["beam_size"]}


TASKS = {"translate": Translating, "caption": Captioning, "classify": Classifying}  # by the model's method


def _text(value: Any, name: str, encode: Callable[[str], list[int]], max_tokens: int) -> str:
    if not isinstance(value, str):
        raise HTTPException(400, f"{name} must be a string; got {_short(value)}")
    if (longest := max(map(len, value.split()), default=0)) > MAX_WORD:
        raise HTTPException(422, f"{name} has a word of {longest:,} characters; at most {MAX_WORD:,} are allowed")
    tokens = len(encode(value))
    if not tokens:
        raise HTTPException(422, f"{name} is empty; send at least one word")
    if tokens > max_tokens:
        raise HTTPException(422, f"{name} has {tokens:,} tokens; at most {max_tokens:,} are allowed; split it")
    return value


def _number(fields: dict[str, Any], name: str, default: Any, low: int, high: int, whole: bool = False, why: str = "") -> Any:
    value = fields.get(name, default)
    if type(value) not in ((int,) if whole else (int, float)) or not low <= value <= high:  # a bool is no number
        kind = "whole number" if whole else "number"
        raise HTTPException(400, f"{name} must be a {kind} from {low} to {high}{why}; got {_short(value)}")
    return value


def _short(value: Any) -> str:
    """What was got, in few words."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else f"a list of {len(value):,}"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:50]}..."


# ---- the worker --------------------------------------------------------------------------------------------------

Answer = tuple[int, bytes, int]  # status, JSON, items that were answered together


class ZooAPI(LitAPI):
    """Loads the model in a worker, reads requests and answers batches.

    Args:
        source: a name of the registry, `local-dir:PATH` or `hf-hub:ORG/REPO@REVISION`.
        max_items: texts or images in one request.
        max_tokens: of one text; by default the task's own.
        workers: on this machine, which share its cores.
        max_batch: items that are answered together.
        batch_wait: seconds that the first request of a batch waits for others.
    """

    def __init__(self, source: str, max_items: int, max_tokens: int | None, workers: int, max_batch: int, batch_wait: float) -> None:
        super().__init__(max_batch_size=max_batch, batch_timeout=batch_wait, loop=BatchLoop(), spec=Endpoint())
        self.source, self.max_items, self.max_tokens, self.workers = source, max_items, max_tokens, workers
        self.reports: Any = None  # a connection: the facts that /info shows, or a line that says what is wrong

    def setup(self, device: str) -> None:
        """Loads the model and tells the first process, or ends this one."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C reaches every process; the first one sees to an end in order
        try:
            self.load(device)
        except (ValueError, FileNotFoundError) as error:
            line = " ".join(str(error).split())
            if self.reports is None:
                log.error("%s", line)
            else:
                self.reports.send(line)
            sys.exit(1)
        if self.reports is not None:
            self.reports.send(self.facts())

    def load(self, device: str) -> None:
        """The model, on a device, and its task."""
        import torch

        if self.workers > 1 and device == "cpu":
            torch.set_num_threads(max(1, torch.get_num_threads() // self.workers))
        keep_freed_memory()
        model = registry.load(self.source).to(device)
        kind = next((kind for method, kind in TASKS.items() if hasattr(model, method)), None)
        if kind is None:
            raise ValueError(f"{self.source} is a {type(model).__name__}, which does not {', '.join(TASKS)}: it cannot be served")
        if self.max_tokens and not kind.default_tokens:
            raise ValueError(f"--max-tokens is for texts; {self.source} is for {kind.name}")
        most = getattr(model, "max_source_tokens", math.inf)
        self.task = kind(model, min(self.max_tokens or kind.default_tokens, most))
        self.task.run([self.task.nothing])  # a model without a tokenizer says so now

    def facts(self) -> dict[str, Any]:
        """What `/info` says of the model."""
        model = self.task.model
        is_folder = self.source.startswith("local-dir:")  # where it is, is nobody's business
        return {
            "name": Path(self.source).name if is_folder else self.source,
            "class": type(model).__name__,
            "task": self.task.name,
            "parameters": sum(p.numel() for p in model.parameters()),
            "fields": self.task.fields,
            "limits": {"bytes": self.task.default_bytes, "items": self.max_items, **self.task.limits()},
            "batch": {"items": self.max_batch_size, "wait_ms": round(self.batch_timeout * 1000, 3)},
        }

    def read(self, fields: dict[str, Any]) -> Job:
        """A request, checked.

        Raises:
            HTTPException: 400 for wrong fields or options, 422 for items that cannot be used.
        """
        task, one, many = self.task, self.task.one, f"{self.task.one}s"
        for name in fields:
            if name not in task.fields:
                nearest = get_close_matches(name, task.fields, n=1, cutoff=0)[0]
                raise HTTPException(400, f"unknown field {_short(name)}; nearest: {nearest}; allowed: {', '.join(task.fields)}")
        if (one in fields) == (many in fields):
            got = "both" if one in fields else "neither"
            raise HTTPException(400, f'send either "{one}" or "{many}" (a list); got {got}')
        attention = fields.get("attention", False)
        if not isinstance(attention, bool):
            raise HTTPException(400, f"attention must be true or false; got {_short(attention)}")
        options = tuple(task.options(fields).items())
        if one in fields:
            return Job([task.item(fields[one], one)], options, attention, one=True)
        values = fields[many]
        if not isinstance(values, list):
            raise HTTPException(400, f"{many} must be a list; got {_short(values)}")
        if not 1 <= len(values) <= self.max_items:
            raise HTTPException(422, f"{many} must hold 1 to {self.max_items:,} {many}; got {len(values):,}")
        return Job([task.item(value, f"{one} {n}") for n, value in enumerate(values, 1)], options, attention, one=False)

    def answer(self, jobs: list[Job]) -> list[Answer]:
        """Answers in the order of the jobs; those with the same options are one batch of the model."""
        groups: dict[tuple, list[int]] = {}
        for n, job in enumerate(jobs):
            groups.setdefault(job.options, []).append(n)
        answers: dict[int, Answer] = {}
        for numbers in groups.values():
            answers.update(zip(numbers, self._together([jobs[n] for n in numbers]), strict=True))
        return [answers[n] for n in range(len(jobs))]

    def _together(self, jobs: list[Job]) -> list[Answer]:
        items = [item for job in jobs for item in job.items]
        try:
            results = iter(self.task.run(items, **dict(jobs[0].options)))
            return [_answer(job, list(islice(results, len(job.items))), len(items)) for job in jobs]
        except Exception as error:  # whatever it is: the other requests of the batch, and later ones, are still to be answered
            if len(jobs) > 1:
                return [answer for job in jobs for answer in self._together([job])]
            if isinstance(error, ValueError):
                return [_refusal(422, " ".join(str(error).split()))]
            log.exception("a request failed")
            return [_refusal(500, "the model failed on this request; the log of the server says why")]


def _answer(job: Job, results: list[Any], together: int) -> Answer:
    shown = [_shown(result, job.attention) for result in results]
    content = shown[0] if job.one else {"results": shown}
    return 200, json.dumps(content, ensure_ascii=False, allow_nan=False).encode(), together


def _refusal(status: int, detail: str) -> Answer:
    return status, json.dumps({"detail": detail}).encode(), 0


def _shown(result: Any, attention: bool) -> dict[str, Any]:
    found = result.to_dict()
    if "n_best" in found:  # where fewer outputs are possible than were asked for, the rest has no score
        found["n_best"] = [entry for entry, (_, score) in zip(found["n_best"], result.n_best, strict=True) if math.isfinite(score)]
    return found if attention else {name: value for name, value in found.items() if name not in ABOUT_ATTENTION}


class BatchLoop(LitLoop):
    """Takes requests from the queue and answers them in batches.

    LitServe's own loop asks for new requests without a pause, and an error in one request is the answer to its whole batch.
    """

    def run(self, lit_api: ZooAPI, device: str, worker_id: int, request_queue: Any, transport: Any, *_: Any) -> None:
        """One batch."""

        def send(answer: Answer) -> None:
            self.put_response(transport, queue, uid, answer, LitAPIStatus.OK, LoopResponseType.REGULAR)

        jobs: dict[tuple[int, str], Job] = {}
        items, until = 0, None
        while items < lit_api.max_batch_size:
            try:
                queue, uid, sent, fields = request_queue.get(timeout=1.0 if until is None else max(0.0, until - time.monotonic()))
            except Empty:
                break
            except (EOFError, OSError):  # the process of the queue is gone
                sys.exit()
            if time.monotonic() - sent > lit_api.request_timeout:
                continue  # nobody waits for it
            try:
                job = lit_api.read(fields)
            except HTTPException as error:
                send(_refusal(error.status_code, error.detail))
                continue
            except Exception:  # a mistake of ours, and no reason to leave the others without an answer
                log.exception("a request could not be read")
                send(_refusal(500, "the server could not read this request; its log says why"))
                continue
            jobs[queue, uid] = job
            items += len(job.items)
            until = until or time.monotonic() + lit_api.batch_timeout
        for (queue, uid), answer in zip(jobs, lit_api.answer(list(jobs.values())), strict=True):
            send(answer)
        if not jobs and _is_orphan():
            sys.exit()


def _is_orphan() -> bool:
    """Whether the process that started this one was killed."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()


# ---- the API server ----------------------------------------------------------------------------------------------


class Endpoint(LitSpec):
    """POST /predict: what can be said of a request without the model, the way to a worker and back."""

    def __init__(self) -> None:
        super().__init__()
        self.api_path = PREDICT
        self.add_endpoint(PREDICT, self.predict, ["POST"])
        self.max_bytes, self.takes_images, self.timeout = 0, False, 0.0  # set when a worker has told what it serves
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
            raise HTTPException(415, f"send JSON with the header Content-Type: application/json{or_image}; got {_short(kind)}")
        body = await self._body(request)
        return {"image": body} if is_image else parse(body), len(body)

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


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object of a request.

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
        raise HTTPException(400, f"the request must be a JSON object; got {_short(found)}")
    if not all(map(_is_shallow, found.values())):
        raise HTTPException(400, "a field of the request holds an object, or lists inside lists inside a list; none takes these")
    return found


def _is_shallow(value: Any, lists: int = 2) -> bool:
    """Whether it can be a field of a request; what is nested deeper cannot even be handed to another process."""
    if isinstance(value, list):
        return lists > 0 and all(_is_shallow(part, lists - 1) for part in value)
    return not isinstance(value, dict)


async def _no_route(request: Request, error: HTTPException) -> Response:
    """404 and 405, saying what there is."""
    detail = f"there is no {request.method} {_short(request.url.path)}; there are POST {PREDICT}, GET /info and GET /health"
    return JSONResponse({"detail": detail}, error.status_code, error.headers)


# ---- the first process -------------------------------------------------------------------------------------------


class Server(LitServer):
    """A LitServer that says when it is ready, and what keeps it from that.

    Args:
        api: what it serves.
        card: what `/info` shows of the model's card.
        max_bytes: of one request; by default the task's own.
        options: of LitServer.
    """

    def __init__(self, api: ZooAPI, card: dict[str, Any], max_bytes: int | None, **options: Any) -> None:
        super().__init__(api, info_path="/info", healthcheck_path="/health", disable_openapi_url=True, restart_workers=True, **options)
        self.card, self.max_bytes = json.loads(json.dumps(card, default=str)), max_bytes  # YAML knows dates, JSON does not
        self.facts, api.reports = multiprocessing.get_context("spawn").Pipe(duplex=False)
        self.managers: list[int] = []
        for status in (404, 405):
            self.app.add_exception_handler(status, _no_route)

    def launch_inference_worker(self, lit_api: ZooAPI) -> list[Any]:
        """As LitServer does; ^C is not for the workers, see `ZooAPI.setup`."""
        self.managers = [process.pid for process in multiprocessing.active_children()]
        with _handling(signal.SIG_IGN, signal.SIGINT):
            return super().launch_inference_worker(lit_api)

    def verify_worker_status(self) -> None:
        """Waits until a worker has the model.

        Raises:
            ValueError: the worker's own line, or it ended without one.
        """
        while not self.facts.poll(0.1):
            if not any(worker.is_alive() for worker in self.inference_workers) and not self.facts.poll():
                raise ValueError(f"the process that loads {self.lit_api.source} has died; is there enough memory?")
        found = self.facts.recv()
        if isinstance(found, str):
            raise ValueError(found)
        self.lit_api.reports = None  # a worker that takes the place of another one has nothing new to tell
        self.publish(found)

    def publish(self, facts: dict[str, Any]) -> None:
        """Takes over what a worker told: limits, and what `/info` shows."""
        limits, endpoint = facts["limits"], self.lit_api.spec
        limits["bytes"] = self.max_payload_size = self.max_bytes or limits["bytes"]
        endpoint.max_bytes, endpoint.takes_images, endpoint.timeout = limits["bytes"], "image" in facts["fields"], self.timeout
        self.model_metadata = {**facts, "card": self.card}

    def _start_server(self, port: int, number: int, log_level: str, sockets: list[socket.socket], *rest: Any, **options: Any) -> Any:
        """As LitServer does, but whoever reads that it is ready can connect at once."""
        for listener in sockets:
            try:
                listener.listen(BACKLOG)
            except OSError as error:  # another server that was started meanwhile
                raise _no_port(*listener.getsockname()[:2], error) from error
        started = super()._start_server(port, number, log_level, sockets, *rest, **options)
        host, port = sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"zoo: {self.lit_api.source} at http://{shown}:{port}{PREDICT}; stop with ^C", file=sys.stderr, flush=True)
        return started

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """As LitServer does, with somebody who watches the first process."""
        async with super().lifespan(app):
            task = asyncio.create_task(self._attend())
            try:
                yield
            finally:
                task.cancel()

    async def _attend(self) -> None:
        """Ends the API server when the first process was killed, and with it the process of the queues, which would not notice."""
        while not _is_orphan():
            await asyncio.sleep(1)
        for manager in self.managers:
            with suppress(ProcessLookupError):  # another API server was faster
                os.kill(manager, signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)


def run(options: argparse.Namespace, card: dict[str, Any]) -> None:
    """Serves a model until SIGINT or SIGTERM; requests that were taken by then are still answered.

    Args:
        options: name, host, port, max_batch, batch_wait_ms, max_items, max_tokens, max_bytes, workers, devices, timeout.
        card: what `/info` shows of the model's card; {} if it has none.

    Raises:
        ValueError: an option outside its range, the port is in use, or the model cannot be loaded.
    """
    _check(options)
    accelerator, devices = _devices(options.devices)
    _check_port(options.host, options.port)
    api = ZooAPI(options.name, options.max_items, options.max_tokens, options.workers, options.max_batch, options.batch_wait_ms / 1000)
    server = Server(
        api,
        card,
        options.max_bytes,
        accelerator=accelerator,
        devices=devices,
        workers_per_device=options.workers,
        timeout=options.timeout,
    )
    first = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != first:  # a process forked from this one, which has done what it does on a signal
            os._exit(0)
        logging.getLogger("litserve").setLevel(logging.CRITICAL)  # it warns of processes that have ended as they should
        raise KeyboardInterrupt

    try:
        with _handling(stop, signal.SIGINT, signal.SIGTERM):
            server.run(options.host, options.port, log_level="warning", generate_client_file=False)
    except KeyboardInterrupt:  # while it started, or a second time
        pass
    finally:
        children = multiprocessing.active_children()
        for child in children:
            child.terminate()
        for child in children:
            child.join(5)


@contextmanager
def _handling(handler: Any, *signals: int) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _check(options: argparse.Namespace) -> None:
    for name, low, high in (
        ("port", 1024, 65535),  # what LitServe takes
        ("max_batch", 1, 4096),
        ("batch_wait_ms", 0, 10_000),
        ("max_items", 1, 4096),
        ("max_tokens", 1, 100_000),
        ("max_bytes", 1024, 2**30),
        ("workers", 1, 256),
        ("timeout", 2, 3600),
    ):
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            raise ValueError(f"--{name.replace('_', '-')} must be from {low:,} to {high:,}; got {value:,}")


def _devices(wanted: str) -> tuple[str, int]:
    """Accelerator and number of devices, as LitServer takes them."""
    if wanted == "cpu":
        return "cpu", 1
    if wanted != "auto" and not (wanted.isdecimal() and int(wanted)):
        raise ValueError(f"--devices must be cpu, auto or a number of GPUs; got '{wanted}'")
    import torch

    found = torch.cuda.device_count()
    if wanted == "auto":
        return ("cuda", found) if found else ("cpu", 1)
    if int(wanted) > found:
        raise ValueError(f"--devices {wanted}: this machine has {found} GPUs that torch can use; --devices cpu needs none")
    return "cuda", int(wanted)


def _check_port(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise _no_port(host, port, error) from error


def _no_port(host: str, port: int, error: OSError) -> ValueError:
    return ValueError(f"cannot listen on {host} port {port}: {error.strerror}; choose another --port")
