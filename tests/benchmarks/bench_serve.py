"""Load test of `zoo serve` on this machine: requests a second, latency, batch sizes, with and without batches, in one run.

    python tests/benchmarks/bench_serve.py [--seconds 4] [--rounds 3] [--clients 1 8 32]

Two servers of each model run side by side, one with the default batches and one that answers each request for itself
(`--max-batch 1 --batch-wait-ms 0`); the load goes to one and then to the other, round by round. Each client sends its next request
when it has the answer to the last one; every tenth is wrong (not JSON, a wrong field, empty, too long) and must be refused with the
status that belongs to it. A right one must get the answer of the direct call.

* requests a second, p50 and p99 (milliseconds): right requests, seen from the clients, which share the machine with the servers.
* batch: texts that the model read together, the mean over batches.
* CPU: milliseconds of processor time a request, all processes of the server together; other work on the machine hardly changes it.
* ratio: requests a second with batches over without, the median over the rounds.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

import zoo

MODELS = ("luong_general.multi30k_en_de", "structured_self_attention.sst2")
SIDES = {"batches": (), "one by one": ("--max-batch", "1", "--batch-wait-ms", "0")}
WRONG = [(b'{"text": "A dog', 400), (b'{"txt": "A dog."}', 400), (b'{"text": " "}', 422), (b'{"text": "' + b"dog " * 6000 + b'"}', 422)]


@dataclass
class Found:
    """What the clients of one round, or of several, saw."""

    latencies: list[float] = field(default_factory=list)  # seconds, of right requests
    sizes: list[int] = field(default_factory=list)  # of the batches that they were part of
    refused: int = 0
    errors: list[str] = field(default_factory=list)
    cpu: float = 0.0
    rates: list[float] = field(default_factory=list)  # a round


def sentences(count: int) -> list[str]:
    """Made-up sentences of 5 to 20 words."""
    rng = random.Random(0)
    who = "a man|two women|a little girl in a red dress|the old dog|a group of people|a young boy with a blue shirt and a hat".split("|")
    does = "plays the guitar|is running|looks at a good film|jumps into the water|sits on a bench and reads a book|is not bad".split("|")
    where = "|in the snow|on a busy street|in front of a large crowd|near a lake with tall green trees behind it".split("|")
    made = (f"{rng.choice(who)} {rng.choice(does)} {rng.choice(where)}".strip().capitalize() + "." for _ in range(count))
    return [*made]


def cpu_seconds(session: int) -> float:
    """Processor time of the processes that a server consists of."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parts = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parts[3]) == session:
            ticks += int(parts[11]) + int(parts[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(model: str, *options: str):
    """A server of its own session; gives its port and the number of the session."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "zoo", "serve", model, "--port", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    line = process.stderr.readline()
    if "stop with" not in line:
        raise SystemExit(line + process.stderr.read())
    try:
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


async def request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> tuple[int, dict[str, str], dict]:
    """Status, headers and JSON of the answer to one POST on an open connection."""
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    content = json.loads(await reader.readexactly(int(headers["content-length"])))
    return int(lines[0].split()[1]), headers, content


async def client(port: int, number: int, until: float, answers: dict[str, str], key: str, found: Found) -> None:
    """Sends one request after the other."""
    rng = random.Random(number)
    texts = [*answers]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (start := time.perf_counter()) < until:
        wrong, expected = rng.choice(WRONG) if rng.random() < 0.1 else (None, 200)
        text = rng.choice(texts)
        status, headers, content = await request(reader, writer, wrong or json.dumps({"text": text}).encode())
        if status != expected or (wrong is None and content[key] != answers[text]):
            found.errors.append(f"{status} {content}")
        elif wrong:
            found.refused += 1
        else:
            found.latencies.append(time.perf_counter() - start)
            found.sizes.append(int(headers["x-batch-size"]))
    writer.close()


async def load(port: int, clients: int, seconds: float, answers: dict[str, str], key: str, found: Found) -> None:
    """One round."""
    before, start = len(found.latencies), time.perf_counter()
    await asyncio.gather(*(client(port, n, start + seconds, answers, key, found) for n in range(clients)))
    found.rates.append((len(found.latencies) - before) / (time.perf_counter() - start))


def direct(model: object, texts: list[str], batch: int) -> float:
    """Texts a second without a server."""
    answer = getattr(model, "translate", None) or model.classify
    start = time.perf_counter()
    for first in range(0, len(texts), batch):
        answer(texts[first : first + batch])
    return len(texts) / (time.perf_counter() - start)


def measure(name: str, seconds: float, rounds: int, numbers: list[int]) -> None:
    """Prints the table of one model."""
    model, texts = zoo.load(name), sentences(96)
    key, results = ("text", model.translate(texts)) if hasattr(model, "translate") else ("label", model.classify(texts))
    answers = {text: getattr(result, key) for text, result in zip(texts, results, strict=True)}
    rates = {batch: statistics.median(direct(model, texts, batch) for _ in range(3)) for batch in (1, 16)}
    print(f"\n{name}\ndirect calls, texts a second: {rates[1]:.0f} one by one, {rates[16]:.0f} in batches of 16")
    with ExitStack() as stack:
        servers = {side: stack.enter_context(server(name, *options)) for side, options in SIDES.items()}
        for port, _ in servers.values():
            asyncio.run(load(port, 4, 1.0, answers, key, Found()))  # warm-up
        print("clients              requests/s      p50      p99  batch    CPU  refused  errors  ratio")
        for clients in numbers:
            found = {side: Found() for side in servers}
            for n in range(rounds):
                for side in [*servers][:: 1 if n % 2 else -1]:
                    port, session = servers[side]
                    before = cpu_seconds(session)
                    asyncio.run(load(port, clients, seconds, answers, key, found[side]))
                    found[side].cpu += cpu_seconds(session) - before
            ratio = statistics.median(a / b for a, b in zip(*(found[side].rates for side in servers), strict=True))
            for side, f in found.items():
                cuts = statistics.quantiles(f.latencies, n=100)
                batch = len(f.sizes) / sum(1 / size for size in f.sizes)
                cpu = 1000 * f.cpu / (len(f.latencies) + f.refused)
                times = f"{cuts[49] * 1000:7.1f}  {cuts[98] * 1000:7.1f}"
                counts = f"{f.refused:7}  {len(f.errors):6}  {f'{ratio:.2f}' if side == 'batches' else ''}".rstrip()
                rate = statistics.median(f.rates)
                print(f"{clients:7}  {side:10}  {rate:10.1f}  {times}  {batch:5.2f}  {cpu:5.2f}  {counts}", flush=True)
                if f.errors:
                    print(f"         first error: {f.errors[0]}")


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.models:
        measure(name, options.seconds, options.rounds, options.clients)


if __name__ == "__main__":
    main()
