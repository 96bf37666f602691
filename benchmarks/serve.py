"""Load tests of `zoo serve` on this machine, with torch and with exported graphs.

    python benchmarks/serve.py [--measure rate batching memory] [--engines torch onnx int8] [--models NAME ...]

The server has the first of the cores that this process may use, its clients the last one; each engine computes in one
thread. A right request must get the answer of the direct call of the same engine, a wrong one its status; anything else
is an error and ends the measurement. "CPU" is milliseconds of processor time a request, of all processes of the server:
other work on the machine hardly changes it.

* rate: the largest number of requests a second of which 99 % take at most --p99-ms. Requests arrive at random (a
  Poisson process), whether earlier ones are answered or not, and the time of each counts from its arrival. The rate is
  doubled until it is too high, and then bisected; a rate is too high if it fails twice. The percentiles are those of
  the largest rate that passed.
* batching: two servers side by side, one with the default batches and one that answers each request for itself
  (`--max-batch 1`); the load goes to one and then to the other, round by round. Each client sends its next request when
  it has the answer to the last one; every tenth is wrong (not JSON, a wrong field, a wrong type, no blank, too long).
  "batch" is how many texts or questions the model read together, the mean over batches; "ratio" is the requests a
  second with batches over those without, the median over the rounds.
* memory: resident memory of the server's processes after each thousand of --requests, sent as for "batching" by 16
  clients. The line through the last three quarters of the figures may rise by --most-growth MB, from end to end.

The models `language_model` and `reader` are small and untrained, made for this, with a vocabulary of made-up text.
"""

import argparse
import asyncio
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import zoo
from zoo.commands.graphs import load_graphs
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.text import Tokenizer

MODELS = ("luong_general.multi30k_en_de", "han.imdb", "structured_self_attention.trec6")
ENGINES = {"torch": (), "onnx": ("--runtime", "onnx"), "int8": ("--runtime", "onnx", "--int8")}
ONE_BY_ONE = ("--max-batch", "1", "--batch-wait-ms", "0")
CORES = sorted(os.sched_getaffinity(0))
ITEMS = 400  # different right requests
CLIENTS = 16  # of the memory test
LEAST, LONGEST = 200, 15  # requests in a trial of a rate, unless that takes more seconds
NEAR = 1.07  # two rates: the bisection ends
PENDING = 300  # unanswered requests: the server cannot keep up
STALE = 5.0  # seconds after which a connection is not used again; the server closes it a little later
LONG = "dog " * 6000
WRONG = {  # by the field of an item
    "text": [('{"text": "A dog', 400), ({"txt": "A dog."}, 400), ({"text": 5}, 400), ({"text": LONG}, 422)],
    "question": [
        ('{"question": {', 400),
        ({"document": "A dog."}, 400),
        ({"question": {"document": "A dog.", "query": "A ?"}}, 422),
        ({"question": {"document": "A dog.", "query": "A XXXXX", "candidates": ["cat"]}}, 422),
        ({"question": {"document": LONG, "query": "A XXXXX"}}, 422),
    ],
}


# ---- what is asked ----


@dataclass
class Work:
    """What a model is asked."""

    source: str  # as the command takes it
    one: str  # the field of an item
    items: list[Any]
    answer: Callable[[list[Any]], list[Any]]  # without a server
    key: str  # what an answer is compared by
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        answers = [getattr(result, self.key) for result in self.answer(self.items)]
        self.right = [
            (json.dumps({self.one: item, **self.options}).encode(), answer)
            for item, answer in zip(self.items, answers, strict=True)
        ]
        self.wrong = [
            ((sent if isinstance(sent, str) else json.dumps(sent)).encode(), status) for sent, status in WRONG[self.one]
        ]

    def rate(self, batch: int) -> float:
        """Items a second without a server."""
        start, items = time.perf_counter(), self.items[:48]
        for first in range(0, len(items), batch):
            self.answer(items[first : first + batch])
        return len(items) / (time.perf_counter() - start)


def sentences(count: int) -> list[str]:
    """Made-up sentences of 5 to 20 words."""
    rng = random.Random(0)
    who = ["a man", "two women", "a girl in a red dress", "the old dog", "a young boy with a blue shirt and a hat"]
    does = ["plays the guitar", "is running", "looks at a good film", "sits on a bench and reads a book", "is not bad"]
    where = "|in the snow|on a busy street|in front of a large crowd|near a lake with tall green trees behind it".split(
        "|"
    )
    return [
        f"{rng.choice(who)} {rng.choice(does)} {rng.choice(where)}".strip().capitalize() + "." for _ in range(count)
    ]


def documents(count: int) -> list[str]:
    """Made-up documents of 5 to 30 sentences."""
    rng, texts = random.Random(2), sentences(400)
    return [" ".join(rng.choices(texts, k=rng.randint(5, 30))) for _ in range(count)]


def questions(count: int) -> list[dict[str, Any]]:
    """Made-up documents of eight sentences, each with a query and five candidates."""
    rng, texts = random.Random(1), sentences(400)
    found = []
    for _ in range(count):
        words = " ".join(rng.choices(texts, k=8)).replace(".", " .").split()
        query = rng.choice(texts).replace(".", " .").split()
        query[rng.randrange(len(query) - 1)] = "XXXXX"
        found.append(
            {"document": " ".join(words), "query": " ".join(query), "candidates": rng.sample(sorted(set(words)), 5)}
        )
    return found


def made(name: str, folder: str) -> str:
    """The source of a model that is in no registry: made, and saved in the folder."""
    torch.manual_seed(0)
    if name == "language_model":
        model = KeyValuePredictLM(vocab_size=100, window=5, embedding_size=64, hidden_size=64)
        model.tokenizer = Tokenizer.train(sentences(400), "word_punct", 100, lowercase=True)
    else:
        model = AttentionOverAttentionReader(vocab_size=120, embedding_size=64, hidden_size=64)
        model.tokenizer = Tokenizer.train((item["document"] for item in questions(96)), "word", 120)
    for p in model.parameters():
        p.data.mul_(3)  # else all words are about as good
    return f"local-dir:{model.eval().save_pretrained(Path(folder) / name)}"


def works(name: str, engine: str, beam_sizes: list[int], folder: str) -> Iterator[tuple[str, Work]]:
    """What a model is asked, each with its title."""
    source = made(name, folder) if name in ("language_model", "reader") else name
    model: Any = zoo.load(source) if engine == "torch" else load_graphs(source, engine == "int8")
    if model.task.verb == "caption":
        sys.exit(f"{name} reads photos, which this benchmark does not send")
    title, verb = f"{name}, {engine}", getattr(model, model.task.verb)
    if name == "reader":
        parts = "document", "query", "candidates"
        answer = lambda asked: verb(*([item[part] for item in asked] for part in parts))  # noqa: E731
        yield title, Work(source, "question", questions(96), answer, "answer")
    elif name == "language_model":
        items = [" ".join(text.split()[:-2]) for text in sentences(96)]
        yield title, Work(source, "text", items, verb, "text")
    elif model.task.verb == "translate":
        for size in beam_sizes:
            beam = {"beam_size": size}
            answer = lambda asked, beam=beam: verb(asked, **beam)  # noqa: E731
            yield f"{title}, beam size {size}", Work(source, "text", sentences(ITEMS), answer, "text", beam)
    else:
        items = documents(ITEMS) if name.startswith("han") else sentences(ITEMS)
        yield title, Work(source, "text", items, verb, "label")


# ---- the server ----


@dataclass
class Server:
    """A server of its own session."""

    port: int
    session: int

    def processes(self) -> list[tuple[Path, list[str]]]:
        """The folder in /proc of each of its processes, and the fields of `stat` from the state on."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parts = stat.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(parts[3]) == self.session:
                found.append((stat.parent, parts))
        return sorted(found)

    def cpu_seconds(self) -> float:
        """Processor time so far."""
        ticks = sum(int(parts[11]) + int(parts[12]) for _, parts in self.processes())
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory(self) -> list[float]:
        """Resident MB of each process."""
        status = [(folder / "status").read_text() for folder, _ in self.processes()]
        found = [re.search(r"VmRSS:\s+(\d+)", text) for text in status]
        return [int(match[1]) / 1024 for match in found if match]


@contextmanager
def server(work: Work, engine: str, *options: str) -> Iterator[Server]:
    """A started server on the first core."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "zoo", "serve", work.source, "--port", str(port), *ENGINES[engine], *options]
    process = subprocess.Popen(
        ["taskset", "-c", str(CORES[0]), *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    while line.startswith("zoo: exporting"):
        line = process.stderr.readline()
    if "stop with" not in line:
        raise SystemExit(line + process.stderr.read())
    try:
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait()


# ---- clients ----


@dataclass
class Found:
    """What the clients saw."""

    latencies: list[float] = field(default_factory=list)  # seconds, of right requests
    sizes: list[int] = field(default_factory=list)  # of the batches that they were part of
    refused: int = 0
    cpu: float = 0.0
    rates: list[float] = field(default_factory=list)  # a round

    def percentile(self, percent: int) -> float:
        """Milliseconds."""
        return 1000 * statistics.quantiles(self.latencies, n=100)[percent - 1]


class Connections:
    """Connections of clients; one that waits for no answer is used again."""

    def __init__(self, port: int) -> None:
        self.port, self.free = port, []

    async def ask(self, body: bytes) -> tuple[int, dict[str, str], dict]:
        """Status, headers and JSON of the answer to one POST."""
        reader, writer = await self._free()
        about = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(f"POST /predict HTTP/1.1\r\n{about}\r\n\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        content = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.free.append((time.monotonic(), reader, writer))
        return int(lines[0].split()[1]), headers, content

    async def _free(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self.free:
            since, reader, writer = self.free.pop()
            if time.monotonic() - since < STALE:
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def close(self) -> None:
        """Closes those that are free."""
        for _, _, writer in self.free:
            writer.close()
            await writer.wait_closed()


async def one(connections: Connections, work: Work, is_wrong: bool, rng: random.Random, start: float, found: Found):
    """One request, whose answer must be as expected."""
    body, expected = rng.choice(work.wrong if is_wrong else work.right)
    status, headers, content = await connections.ask(body)
    if (status if is_wrong else content.get(work.key)) != expected:
        raise SystemExit(f"error: {body[:200]!r} was answered {status} {content}; expected: {expected}")
    if is_wrong:
        found.refused += 1
    else:
        found.latencies.append(time.perf_counter() - start)
        found.sizes.append(int(headers["x-batch-size"]))


async def poisson(at: Server, work: Work, rate: float, seconds: float, found: Found) -> bool:
    """Requests that arrive at random; whether the server keeps up."""
    rng, connections = random.Random(rate), Connections(at.port)
    tasks: set[asyncio.Task] = set()
    due = start = time.perf_counter()
    while due < start + seconds and len(tasks) < PENDING:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(one(connections, work, False, rng, due, found))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        due += rng.expovariate(rate)
    keeps_up = len(tasks) < PENDING
    await asyncio.gather(*tasks)
    await connections.close()
    return keeps_up


async def clients(
    at: Server, work: Work, count: int, found: Found, seconds: float = 1e9, requests: int = 10**9, seed: int = 0
) -> None:
    """Clients that each send one request after the other, for some seconds or so many requests in all."""
    start, left = time.perf_counter(), iter(range(requests))
    before = len(found.latencies)

    async def client(number: int) -> None:
        rng, connections = random.Random(1000 * seed + number), Connections(at.port)
        while (now := time.perf_counter()) < start + seconds and next(left, None) is not None:
            await one(connections, work, rng.random() < 0.1, rng, now, found)
        await connections.close()

    await asyncio.gather(*map(client, range(count)))
    found.rates.append((len(found.latencies) - before) / (time.perf_counter() - start))


# ---- the measurements ----


def measure_rate(work: Work, engine: str, options: argparse.Namespace) -> None:
    """Prints the largest rate, and the percentiles at it."""
    with server(work, engine) as at:
        asyncio.run(clients(at, work, 4, Found(), 1.0))  # warm-up

        def tried(rate: float) -> Found | None:
            for _ in range(2):
                found, before = Found(), at.cpu_seconds()
                seconds = min(LONGEST, max(options.seconds, LEAST / rate))
                keeps_up = asyncio.run(poisson(at, work, rate, seconds, found))
                found.cpu = at.cpu_seconds() - before
                p99 = found.percentile(99)
                print(f"{rate:.1f} requests/s: p99 {p99:.1f} ms", file=sys.stderr, flush=True)
                if keeps_up and p99 <= options.p99_ms:
                    return found
            return None

        rate = work.rate(1) / 2
        best: tuple[float, Found] | None = None
        low, high = 1.0, float("inf")  # passed, and too high
        while high / low > NEAR:
            if found := tried(rate):
                low, best = rate, (rate, found)
            else:
                high = rate
            rate = 2 * low if high == float("inf") else (low * high) ** 0.5
    print(f"rate: p99 of at most {options.p99_ms:g} ms")
    print("requests/s   p50   p95   p99  batch    CPU")
    if best is None:
        print("none: one request a second takes longer")
        return
    rate, found = best
    times = "  ".join(f"{found.percentile(n):4.1f}" for n in (50, 95, 99))
    print(
        f"{rate:10.1f}  {times}  {mean_batch(found):5.2f}  {1000 * found.cpu / len(found.latencies):5.2f}", flush=True
    )


def mean_batch(found: Found) -> float:
    """The mean over batches, not over requests."""
    return len(found.sizes) / sum(1 / size for size in found.sizes)


def measure_batching(work: Work, engine: str, options: argparse.Namespace) -> None:
    """Prints a table: numbers of clients, with and without batches."""
    rates = {batch: statistics.median(work.rate(batch) for _ in range(3)) for batch in (1, 16)}
    print(f"batching: direct calls, {work.one}s/s: {rates[1]:.0f} one by one, {rates[16]:.0f} in batches of 16")
    sides: dict[str, tuple[str, ...]] = {"batches": (), "one by one": ONE_BY_ONE}
    with ExitStack() as stack:
        servers = {side: stack.enter_context(server(work, engine, *more)) for side, more in sides.items()}
        for at in servers.values():
            asyncio.run(clients(at, work, 4, Found(), 1.0))  # warm-up
        print("clients              requests/s      p50      p99  batch    CPU  refused  ratio")
        for count in options.clients:
            found = {side: Found() for side in servers}
            for n in range(options.rounds):
                for side in [*servers][:: 1 if n % 2 else -1]:
                    at, before = servers[side], servers[side].cpu_seconds()
                    asyncio.run(clients(at, work, count, found[side], options.seconds, seed=n))
                    found[side].cpu += at.cpu_seconds() - before
            ratio = statistics.median(a / b for a, b in zip(*(found[side].rates for side in servers), strict=True))
            for side, f in found.items():
                cpu = 1000 * f.cpu / (len(f.latencies) + f.refused)
                times = f"{f.percentile(50):7.1f}  {f.percentile(99):7.1f}  {mean_batch(f):5.2f}  {cpu:5.2f}"
                ending = f"{f.refused:7}  {f'{ratio:.2f}' if side == 'batches' else ''}".rstrip()
                print(f"{count:7}  {side:10}  {statistics.median(f.rates):10.1f}  {times}  {ending}", flush=True)


def measure_memory(work: Work, engine: str, options: argparse.Namespace) -> None:
    """Prints the memory after each thousand requests, and how much it grows."""
    with server(work, engine) as at:
        print(f"memory: resident MB of {len(at.memory())} processes together: {sum(at.memory()):.1f} at the start")
        totals, start = [], time.perf_counter()
        for n in range(options.requests // 1000):
            asyncio.run(clients(at, work, CLIENTS, Found(), requests=1000, seed=n))
            each = at.memory()
            totals.append(sum(each))
            print(f"{1000 * (n + 1):7,}  {totals[-1]:7.1f}  ({' + '.join(f'{mb:.1f}' for mb in each)})", flush=True)
    seconds, last = time.perf_counter() - start, totals[len(totals) // 4 :]
    growth = statistics.linear_regression(range(len(last)), last).slope * (len(last) - 1)
    print(f"growth: {growth:+.1f} MB over the last {1000 * (len(last) - 1):,} requests ({seconds:.0f} s, no errors)")
    if growth > options.most_growth:
        raise SystemExit(f"error: memory grows by {growth:.1f} MB; at most {options.most_growth:g} MB are allowed")


MEASURES = {"rate": measure_rate, "batching": measure_batching, "memory": measure_memory}


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="+", choices=MEASURES, default=[*MEASURES])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=[*ENGINES])
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--beam-sizes", nargs="+", type=int, default=[1, 5], help="of translators")
    parser.add_argument("--p99-ms", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a trial or round (default: 4)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=20_000, help="of the memory test")
    parser.add_argument("--most-growth", type=float, default=5.0, help="MB")
    options = parser.parse_args()
    os.sched_setaffinity(0, {CORES[-1]})
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            for engine in options.engines:
                for title, work in works(name, engine, options.beam_sizes, folder):
                    print(f"\n{title}", flush=True)
                    for measure in options.measure:
                        MEASURES[measure](work, engine, options)


if __name__ == "__main__":
    main()
