"""Load test of `zoo serve` on this machine: requests a second, latency, batch sizes, with and without batches, in one
run.

    python benchmarks/serve.py [--seconds 4] [--rounds 3] [--clients 1 8 32] [--models NAME ...]

Two servers of each model run side by side, one with the default batches and one that answers each request for itself
(`--max-batch 1 --batch-wait-ms 0`); the load goes to one and then to the other, round by round. Each client sends its
next request when it has the answer to the last one; every tenth is wrong (not JSON, a wrong field, a wrong type, no
blank, too long) and must be refused with the status that belongs to it. A right one must get the answer of the direct
call. The models `language_model` and `reader` are small and untrained, made for this, with a vocabulary of made-up
text.

* requests a second, p50 and p99 (milliseconds): right requests, seen from the clients, which share the machine with the
  servers.
* batch: texts or questions that the model read together, the mean over batches.
* CPU: milliseconds of processor time a request, all processes of the server together; other work on the machine hardly
  changes it.
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
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import zoo
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.text import Tokenizer

MODELS = ("luong_general.multi30k_en_de", "structured_self_attention.sst2", "language_model", "reader")
SIDES = {"batches": (), "one by one": ("--max-batch", "1", "--batch-wait-ms", "0")}
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


@dataclass
class Work:
    """What a model is asked."""

    source: str  # as the command takes it
    one: str  # the field of an item
    items: list[Any]
    answer: Callable[[list[Any]], list[Any]]  # without a server
    key: str  # what an answer is compared by

    def requests(self) -> list[tuple[bytes, str]]:
        """Right ones, with their answers."""
        answers = [getattr(result, self.key) for result in self.answer(self.items)]
        return [
            (json.dumps({self.one: item}).encode(), answer) for item, answer in zip(self.items, answers, strict=True)
        ]

    def wrong(self) -> list[tuple[bytes, int]]:
        """Wrong ones, with their status."""
        return [
            ((sent if isinstance(sent, str) else json.dumps(sent)).encode(), status) for sent, status in WRONG[self.one]
        ]


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
    who = ["a man", "two women", "a girl in a red dress", "the old dog", "a young boy with a blue shirt and a hat"]
    does = ["plays the guitar", "is running", "looks at a good film", "sits on a bench and reads a book", "is not bad"]
    where = "|in the snow|on a busy street|in front of a large crowd|near a lake with tall green trees behind it".split(
        "|"
    )
    return [
        f"{rng.choice(who)} {rng.choice(does)} {rng.choice(where)}".strip().capitalize() + "." for _ in range(count)
    ]


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


def work(name: str, folder: str) -> Work:
    """The work of a model; one of no registry is made and saved in the folder."""
    torch.manual_seed(0)
    if name == "language_model":
        model = KeyValuePredictLM(vocab_size=100, window=5, embedding_size=64, hidden_size=64)
        model.tokenizer = Tokenizer.train(sentences(400), "word_punct", 100, lowercase=True)
        items = [" ".join(text.split()[:-2]) for text in sentences(96)]
        made, one, key = model.complete, "text", "text"
    elif name == "reader":
        model, items = AttentionOverAttentionReader(vocab_size=120, embedding_size=64, hidden_size=64), questions(96)
        model.tokenizer = Tokenizer.train((item["document"] for item in items), "word", 120)
        made, one, key = (
            lambda asked: model.answer(*([item[part] for item in asked] for part in items[0])),
            "question",
            "answer",
        )
    else:
        model, items = zoo.load(name), sentences(96)
        translates = hasattr(model, "translate")
        return Work(
            name, "text", items, model.translate if translates else model.classify, "text" if translates else "label"
        )
    for p in model.parameters():
        p.data.mul_(3)  # else all words are about as good
    return Work(f"local-dir:{model.eval().save_pretrained(Path(folder) / name)}", one, items, made, key)


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


async def request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes
) -> tuple[int, dict[str, str], dict]:
    """Status, headers and JSON of the answer to one POST on an open connection."""
    about = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    head = f"POST /predict HTTP/1.1\r\n{about}\r\n\r\n"
    writer.write(head.encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    content = json.loads(await reader.readexactly(int(headers["content-length"])))
    return int(lines[0].split()[1]), headers, content


async def client(port: int, number: int, until: float, right: list, wrong: list, key: str, found: Found) -> None:
    """Sends one request after the other."""
    rng = random.Random(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (start := time.perf_counter()) < until:
        is_wrong = rng.random() < 0.1
        body, expected = rng.choice(wrong if is_wrong else right)
        status, headers, content = await request(reader, writer, body)
        if (status if is_wrong else content.get(key)) != expected:
            found.errors.append(f"{status} {content}")
        elif is_wrong:
            found.refused += 1
        else:
            found.latencies.append(time.perf_counter() - start)
            found.sizes.append(int(headers["x-batch-size"]))
    writer.close()


async def load(port: int, clients: int, seconds: float, right: list, wrong: list, key: str, found: Found) -> None:
    """One round."""
    before, start = len(found.latencies), time.perf_counter()
    await asyncio.gather(*(client(port, n, start + seconds, right, wrong, key, found) for n in range(clients)))
    found.rates.append((len(found.latencies) - before) / (time.perf_counter() - start))


def direct(task: Work, batch: int) -> float:
    """Items a second without a server."""
    start = time.perf_counter()
    for first in range(0, len(task.items), batch):
        task.answer(task.items[first : first + batch])
    return len(task.items) / (time.perf_counter() - start)


def measure(name: str, seconds: float, rounds: int, numbers: list[int], folder: str) -> None:
    """Prints the table of one model."""
    task = work(name, folder)
    asked = task.requests(), task.wrong(), task.key
    rates = {batch: statistics.median(direct(task, batch) for _ in range(3)) for batch in (1, 16)}
    print(f"\n{name}\ndirect calls, {task.one}s a second: {rates[1]:.0f} one by one, {rates[16]:.0f} in batches of 16")
    with ExitStack() as stack:
        servers = {side: stack.enter_context(server(task.source, *options)) for side, options in SIDES.items()}
        for port, _ in servers.values():
            asyncio.run(load(port, 4, 1.0, *asked, Found()))  # warm-up
        print("clients              requests/s      p50      p99  batch    CPU  refused  errors  ratio")
        for clients in numbers:
            found = {side: Found() for side in servers}
            for n in range(rounds):
                for side in [*servers][:: 1 if n % 2 else -1]:
                    port, session = servers[side]
                    before = cpu_seconds(session)
                    asyncio.run(load(port, clients, seconds, *asked, found[side]))
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
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            measure(name, options.seconds, options.rounds, options.clients, folder)


if __name__ == "__main__":
    main()
