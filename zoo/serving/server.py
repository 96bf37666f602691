"""The first process of `zoo serve`: starts and stops the others, and says when they are ready. It never loads torch."""

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import Any

from zoo.serving.endpoint import PREDICT, no_route
from zoo.serving.libraries import FastAPI, LitServer
from zoo.serving.worker import ZooAPI, is_orphan

BACKLOG = 2048  # connections that nobody has taken yet


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
            self.app.add_exception_handler(status, no_route)

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
        endpoint.max_bytes, endpoint.timeout = limits["bytes"], self.timeout
        endpoint.takes_images, endpoint.takes_questions = "image" in facts["fields"], "question" in facts["fields"]
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
        while not is_orphan():
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
