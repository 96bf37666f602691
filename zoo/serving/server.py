"""The first process of `zoo serve`, without the model: accepts requests, starts the others and keeps them alive."""

import argparse
import asyncio
import json
import math
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from zoo.serving.child import Child, Died
from zoo.serving.connections import close_late, protocol
from zoo.serving.endpoint import PREDICT, Endpoint
from zoo.serving.images import Decoder
from zoo.serving.limits import (
    BATCH_SHARE,
    DECODING_MEMORY,
    DECODING_SECONDS,
    IDLE_SECONDS,
    LOW_PRIORITY,
    MAX_CARD_BYTES,
    MAX_CONNECTIONS,
    MAX_HEADER_BYTES,
    MAX_WAITING,
    SMALL_IMAGES,
    SMALL_SHARE,
)
from zoo.serving.listening import BACKLOG, bound, listen
from zoo.serving.pool import Pool
from zoo.serving.senders import host_of
from zoo.serving.worker import Opener, Worker, of_torch
from zoo.utils.ending import heeded

KEY = "ZOO_API_KEY"
OLD_KEY = "LIT_SERVER_API_KEY"
_STOPPING = signal.SIGINT, signal.SIGTERM


def run(options: argparse.Namespace, card: dict[str, Any], open_model: Opener = of_torch) -> None:
    """Serves a model until SIGINT, SIGTERM or SIGHUP; requests accepted by then are still answered.

    Args:
        options: name, host, port, allow_host, max_batch, batch_wait_ms, max_items, max_tokens, max_work, max_bytes,
            workers, devices, timeout.
        card: the model's card for `/info`; {} if it has none.
        open_model: gives a worker its model.

    Raises:
        ValueError: an option outside its range, the port is in use, the model cannot be loaded, or an event loop is
            running already, as in a notebook.
    """
    _check_outside_notebook()
    _check(options)
    key = _key()
    devices = _devices(options.devices)
    handling = _handling(_interrupt, *_STOPPING, *_hang_up())
    with bound(options.host, options.port) as listener, handling, suppress(KeyboardInterrupt):
        asyncio.run(_serve(options, card, key, devices, listener, open_model))


def _check_outside_notebook() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ValueError("zoo serve cannot run inside a notebook; start it in a terminal, or in a cell as !zoo serve")


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in (*_STOPPING, *_hang_up()):
        signal.signal(each, signal.SIG_IGN)  # a second one would break off how this one ends the other processes
    raise KeyboardInterrupt


async def _serve(
    options: argparse.Namespace,
    card: dict[str, Any],
    key: str | None,
    devices: list[str],
    listener: socket.socket,
    open_model: Opener,
) -> None:
    arguments = options.name, options.max_items, options.max_tokens, options.max_work
    places = [device for device in devices for _ in range(options.workers)]
    children = [Child(Worker, *arguments, device, len(places), open_model, lanes=2) for device in places]
    pools = [worker_pool(children, options)]
    try:
        facts = await _until_ready(options.name, pools[0])
        if facts["transform"] is not None:
            pools.append(decoder_pool(facts["transform"]))
            await pools[1].start()
        app = endpoint(pools[0], pools[1] if len(pools) > 1 else None, facts["model"], card, devices, options, key)
        server = web_server(app, pools, options.timeout)
        _allow_files(MAX_CONNECTIONS + 256)
        listen(listener, options.host, options.port)
        host, port = listener.getsockname()[:2]
        print(
            f"zoo: {options.name} at http://{f'[{host}]' if ':' in host else host}:{port}{PREDICT}; stop with ^C",
            file=sys.stderr,
            flush=True,
        )
        # uvicorn has its own for two, and raises the signals again at the end
        with _handling(signal.SIG_IGN, *_STOPPING), _handling(server.handle_exit, *_hang_up()):
            await server.serve([listener])
        if failed := next((pool.failed for pool in pools if pool.failed.done()), None):
            raise failed.result()
    finally:
        for pool in pools:
            pool.stop()


def web_server(app: Endpoint, pools: list[Pool], timeout: float) -> Any:
    """A uvicorn server that ends when a pool has failed."""
    import uvicorn

    config = uvicorn.Config(
        app,
        http=protocol(),
        ws="none",
        lifespan="off",
        log_level="error",
        backlog=BACKLOG,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=math.ceil(IDLE_SECONDS),
        timeout_notify=1,
        timeout_graceful_shutdown=math.ceil(2 * timeout),
    )
    server = uvicorn.Server(config)

    async def every_second() -> None:
        await close_late(server.server_state.connections)
        server.should_exit |= any(pool.failed.done() for pool in pools)

    config.callback_notify = every_second
    return server


async def _until_ready(name: str, pool: Pool) -> dict[str, Any]:
    try:
        return await pool.start()
    except Died as error:
        raise ValueError(f"the process that loads {name} has died; is there enough memory?") from error


def worker_pool(children: list[Child], options: argparse.Namespace) -> Pool:
    """The processes that hold the model."""
    most, small = options.max_work // BATCH_SHARE, options.max_work // SMALL_SHARE
    return Pool(children, options.max_batch, most, options.timeout, small)


def decoder_pool(transform: str) -> Pool:
    """The processes that decode images, one at a time."""
    large = Child(Decoder, transform, DECODING_MEMORY, LOW_PRIORITY)
    small = Child(Decoder, transform, DECODING_MEMORY, most=SMALL_IMAGES)
    return Pool([large, small], 1, 1, DECODING_SECONDS)


def endpoint(
    workers: Pool,
    decoders: Pool | None,
    model: dict[str, Any],
    card: dict[str, Any],
    devices: list[str],
    options: argparse.Namespace,
    key: str | None,
) -> Endpoint:
    """The HTTP interface to started pools; `model` is what a worker reported about it."""
    max_bytes = options.max_bytes or model["limits"]["bytes"]
    text = json.dumps(card, default=str)  # YAML has dates, JSON does not
    info = {
        "model": {
            **model,
            "limits": {**model["limits"], "bytes": max_bytes},
            "batch": {
                "items": options.max_batch,
                "wait_ms": options.batch_wait_ms,
                "work": options.max_work // BATCH_SHARE,
            },
            "card": json.loads(text) if len(text) <= MAX_CARD_BYTES else {},
        },
        "server": {
            "devices": devices,
            "workers_per_device": options.workers,
            "timeout": options.timeout,
            "max_payload_size": max_bytes,
            "max_header_size": MAX_HEADER_BYTES,
            "max_waiting": MAX_WAITING,
            "max_connections": MAX_CONNECTIONS,
            "idle_timeout": IDLE_SECONDS,
        },
    }
    wait = options.batch_wait_ms / 1000
    hosts = frozenset(host.lower() for host in options.allow_host)
    return Endpoint(workers, decoders, model, info, max_bytes, options.timeout, wait, key, hosts)


def _hang_up() -> list[int]:
    """SIGHUP, which a closed terminal sends, unless it is ignored, or does not exist (Windows)."""
    return [number for number in heeded() if number not in _STOPPING]


@contextmanager
def _handling(handler: Any, *signals: int) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _key() -> str | None:
    """The API key from the environment."""
    if OLD_KEY in os.environ:
        raise ValueError(f"{OLD_KEY} is no longer read; set {KEY} instead")
    key = os.environ.get(KEY)
    if key is not None and not key.strip():
        raise ValueError(f"{KEY} is set but empty; give a key, or unset it to allow everybody")
    if key is not None and (key != key.strip() or not key.isprintable()):
        raise ValueError(f"{KEY} begins or ends with white space or has a control character, which no header can have")
    return key


def _allow_files(count: int) -> None:
    """Raises this process's limit of open files and connections if it is too low and can be raised."""
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _check(options: argparse.Namespace) -> None:
    for name, low, high in (
        ("port", 1, 65535),
        ("max_batch", 1, 4096),
        ("batch_wait_ms", 0, 10_000),
        ("max_items", 1, 4096),
        ("max_tokens", 1, 100_000),
        ("max_work", 100, 10**9),
        ("max_bytes", 1024, 2**30),
        ("workers", 1, 256),
        ("timeout", 2, 3600),
    ):
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            raise ValueError(f"--{name.replace('_', '-')} must be from {low:,} to {high:,}; got {value:,}")
    for host in options.allow_host:
        if host != "*" and (host.split() != [host] or host_of(f"//{host}") != host.lower()):
            raise ValueError(f"--allow-host takes the name of a host alone, such as zoo.example, or *; got {host!r}")


def _devices(wanted: str) -> list[str]:
    """Devices of torch."""
    if wanted == "cpu":
        return ["cpu"]
    if wanted != "auto" and not (wanted.isdecimal() and int(wanted)):
        raise ValueError(f"--devices must be cpu, auto or a number of GPUs; got '{wanted}'")
    import torch

    found = torch.cuda.device_count()
    count = found if wanted == "auto" else int(wanted)
    if count > found:
        raise ValueError(f"--devices {wanted}: this machine has {found} GPUs that torch can use; use --devices cpu")
    return [f"cuda:{n}" for n in range(count)] or ["cpu"]
