"""Exported graphs (zoo.runtime) beside torch: the same answers, speed, and time to the first answer from the shell.

    python benchmarks/runtime.py --equal 1000 --root DATA [--graphs FOLDER] [NAME ...]
    python benchmarks/runtime.py --speed --root DATA
    python benchmarks/runtime.py --start --root DATA
    python benchmarks/runtime.py --scores --int8 --root DATA

Without a NAME all weights are measured. FOLDER/NAME has the graphs of a weight, and FOLDER/NAME.int8 those with weights
in 8 bits; what is missing of the first is exported (of the second only with --int8), so a folder can be used again.

* --equal N: the first N test inputs of a weight's data, which DATA (or ZOO_DATA) must have, answered with the default
  settings by both engines. "equal" counts answers with the same text or labels. A different one is a near-tie if both
  engines give both answers scores within 0.001 of each other, as far as the answers have scores. "largest difference"
  is that of the scores or probabilities of equal answers. Language models continue the first half of each line.
* --speed: processor time on one thread, the best of several alternated rounds: milliseconds of one input, and inputs
  per second in batches of 64, greedy and with a beam of 5.
* --start: wall time of `zoo predict` from the shell to the end of its first answer, the best of five, and the largest
  resident memory of the process.
* --scores: the whole test sets of a weight's recipe, answered by the graphs with the settings of its card, and the
  scores of the card. --cards writes them into model_cards/NAME.md too; --validation scores the validation data instead.

Prints one Markdown table, with the differences below it.
"""

import argparse
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import measuring
import scoring
import torch

import zoo
import zoo.runtime
from zoo import registry
from zoo.commands.cards import read_card
from zoo.data.translation.base import PairData
from zoo.onnx_export import export_onnx

NEAR = 1e-3  # scores of answers that rounding may put in either order
INT8 = ".int8"
BATCH = 64
ONES = 8  # inputs that are answered one at a time


# ---- inputs ----


def inputs_of(name: str, model: Any) -> Iterator[tuple[Any, ...]]:
    """Test inputs of a weight as its verb takes them: a tuple of arguments each."""
    data = scoring.data_of(name)
    if isinstance(data, PairData):
        texts = chain.from_iterable([source for source, _ in pairs] for pairs in data.test_sets())
        return ((text,) for text in dict.fromkeys(texts))
    kind = model.task.input
    if kind == "image":
        return ((scoring.content(data.images("test"), record.image),) for record in data.records("test"))
    if kind == "question":
        return ((" ".join(q.document), q.query, q.candidates) for q in data.examples("test"))
    if kind == "text":  # a language model
        words = (line.split() for line in data.lines("test"))
        return ((" ".join(line[: len(line) // 2]),) for line in words if len(line) > 3)
    return (((x.text, x.text2),) if kind == "pair" else (x.text,) for x in data.examples("test"))


def answers(model: Any, given: list[tuple[Any, ...]], **options: Any) -> list[Any]:
    """What the verb answers to a list of inputs."""
    if not given:
        return []
    return getattr(model, model.task.verb)(*(list(column) for column in zip(*given)), **options)


def graphs(name: str, model: Any, folder: Path, int8: bool = False) -> Path:
    """The folder of the graphs of a weight, exported if they are not there."""
    target = folder / f"{name}{INT8 * int8}"
    if not (target / "onnx.json").exists():
        export_onnx(model, target, name, **({"int8": True} if int8 else {}))
    return target


# ---- the measurements: a row of the table each, and lines below it ----


def equal(name: str, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    model = zoo.load(name)
    given = list(islice(inputs_of(name, model), options.equal))
    row, notes = [f"{len(given):,}"], []
    for int8 in sides(name, options):
        other = zoo.runtime.load(graphs(name, model, options.graphs, int8))
        same, near, largest = 0, 0, 0.0
        for n, (found, wanted) in enumerate(zip(answers(other, given), answers(model, given), strict=True)):
            difference = max(map(abs, _differences(found, wanted)), default=0.0)
            if _shown(found) == _shown(wanted):
                same, largest = same + 1, max(largest, difference)
                continue
            near += difference < NEAR
            notes.append(f"- {name}{INT8 * int8}, input {n + 1}, scores {difference:.1e} apart: {_shown(found)!r:.200}")
            notes.append(f"  torch: {_shown(wanted)!r:.200}")
        row += [f"{same:,}", f"{near:,}", f"{largest:.1e}"]
    return row, notes


def _shown(result: Any) -> Any:
    return result.answer if hasattr(result, "answer") else result.labels if hasattr(result, "labels") else result.text


def _differences(found: Any, wanted: Any) -> list[float]:
    if hasattr(wanted, "probabilities"):
        return [found.probabilities[word] - p for word, p in wanted.probabilities.items()]
    return [found.score - wanted.score]


def speed(name: str, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    model = zoo.load(name)
    given = list(islice(inputs_of(name, model), BATCH))
    engines = {"torch": model}
    sizes = {"torch": _megabytes(registry.open_bundle(name).folder)}
    for int8 in sides(name, options):
        folder, engine = graphs(name, model, options.graphs, int8), "int8" if int8 else "fp32"
        engines[engine] = zoo.runtime.load(folder)
        sizes[engine] = _megabytes(folder)
    searches = [{"beam_size": 1}, {"beam_size": 5}] if model.task.searches else [{}]
    jobs: dict[Any, measuring.Job] = {}
    for engine, loaded in engines.items():
        for n, search in enumerate(searches):
            jobs[engine, "one", n] = lambda loaded=loaded, search=search: [
                answers(loaded, [value], **search) for value in given[:ONES]
            ]
            jobs[engine, "batch", n] = lambda loaded=loaded, search=search: answers(loaded, given, **search)
    cpu = torch.device("cpu")
    for job in jobs.values():
        job()  # the first call is slower
    taken = measuring.fastest(jobs, options.rounds, cpu, time.process_time)
    row = []
    for part in ("one", "batch"):
        for n in range(2):
            if n < len(searches):
                row.append(" / ".join(_figure(taken[engine, part, n], part, len(given)) for engine in engines))
            else:
                row.append("")
    return [*row, " / ".join(f"{sizes[engine]:.1f}" for engine in engines)], []


def _figure(seconds: float, part: str, count: int) -> str:
    return f"{1000 * seconds / min(ONES, count):.1f}" if part == "one" else f"{count / seconds:,.0f}"


def _files(folder: Path) -> list[Path]:
    return [file for file in Path(folder).iterdir() if file.is_file()]


def start(name: str, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    model = zoo.load(name)
    ((first, *rest),) = islice(inputs_of(name, model), 1)
    with tempfile.TemporaryDirectory() as scratch:
        if isinstance(first, bytes):
            (Path(scratch) / "photo.jpg").write_bytes(first)
            given = [str(Path(scratch) / "photo.jpg")]
        elif rest:
            given = [rest[0], "--document", first, "--candidates", "|".join(rest[1])]
        else:
            given = list(first) if isinstance(first, tuple) else [first]
        sources = {"torch": (name,)}
        for int8 in sides(name, options):
            folder = graphs(name, model, options.graphs, int8)
            sources["int8" if int8 else "fp32"] = ("--runtime", "onnx", f"local-dir:{folder}")
        found = {engine: _process(["predict", *source, *given], options.rounds) for engine, source in sources.items()}
    seconds, memory = zip(*found.values())
    return [" / ".join(f"{x:.2f}" for x in seconds), " / ".join(f"{x:.0f}" for x in memory)], []


WATCHED = """
import re, runpy, sys
try:
    runpy.run_module("zoo", run_name="__main__", alter_sys=True)
finally:
    status = open("/proc/self/status").read()
    print(re.search(r"VmHWM:\\s+(\\d+)", status)[1], file=sys.stderr)
"""


def _process(words: list[str], rounds: int) -> tuple[float, float]:
    """Least wall seconds of a command, and its largest resident memory in MB (Linux; without that of this process)."""
    seconds = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "zoo", *words], stdout=subprocess.DEVNULL, check=True)
        seconds = min(seconds, time.perf_counter() - began)
    run = subprocess.run([sys.executable, "-c", WATCHED, *words], capture_output=True, text=True, check=True)
    return seconds, int(run.stderr.split()[-1]) / 1024


def scores(name: str, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    model, data = zoo.load(name), scoring.data_of(name)
    found = {}
    for int8 in sides(name, options):
        folder = graphs(name, model, options.graphs, int8)
        found["int8" if int8 else "fp32"] = _megabytes(folder), _scored(zoo.runtime.load(folder), data, options)
    on_card = [
        (score["split"], score["metric"], score["value"])
        for score in read_card(name)[0]["scores"]
        if score["metric"] in scoring.MAIN
    ]
    if options.validation:
        on_card = [("validation", metric, float("nan")) for metric in dict.fromkeys(metric for _, metric, _ in on_card)]
    if options.cards:
        scoring.write_on_card(name, on_card, found, machine())
    row = ["<br>".join(f"{split} {metric}" for split, metric, _ in on_card)]
    row.append("<br>".join(scoring.shown(metric, value) for _, metric, value in on_card))
    for engine in ("fp32", "int8"):
        size, values = found.get(engine, (None, {}))
        row.append("<br>".join(scoring.shown(metric, values.get((split, metric))) for split, metric, _ in on_card))
        row.append("" if size is None else f"{size:.1f}")
    return row, []


def _scored(model: Any, data: Any, options: argparse.Namespace) -> dict[tuple[str, str], float]:
    """(test set, metric) -> value."""
    sets = scoring.examples_of(data, model, options.validation)
    return {
        (split, metric): value
        for split, examples in sets.items()
        for metric, value in scoring.scores(model, data, *scoring.answers(model, examples)).items()
    }


def _megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in _files(folder)) / 1e6


def sides(name: str, options: argparse.Namespace) -> list[bool]:
    """Whether the graphs have weights in 8 bits: those without, and those with if there are any or they are wanted."""
    there = (options.graphs / f"{name}{INT8}" / "onnx.json").exists()
    return [False, True] if there or options.int8 else [False]


# ---- the table ----

HEADS = {
    equal: ["inputs", "equal", "near-ties", "largest difference", "int8: equal", "near-ties", "largest difference"],
    speed: ["one, greedy, ms", "one, beam 5, ms", "batch, greedy, /s", "batch, beam 5, /s", "MB"],
    start: ["from the shell, s", "memory, MB"],
    scores: ["score", "card", "fp32", "fp32, MB", "int8", "int8, MB"],
}


def machine() -> str:
    """Processor and versions."""
    found = None
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        found = re.search(r"model name\s*: (.+)", cpuinfo.read_text())
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "onnxruntime", "numpy"))
    return f"{found[1] if found else platform.processor()}, one thread, {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all weights")
    measure = parser.add_mutually_exclusive_group(required=True)
    measure.add_argument("--equal", type=int, metavar="N", help="inputs of each weight")
    measure.add_argument("--speed", action="store_true")
    measure.add_argument("--start", action="store_true")
    measure.add_argument("--scores", action="store_true")
    parser.add_argument("--validation", action="store_true", help="--scores: of the validation data")
    parser.add_argument("--cards", action="store_true", help="--scores: write them on the cards, too")
    parser.add_argument("--root", help="folder of the data (default: ZOO_DATA)")
    parser.add_argument("--graphs", type=Path, help="folder of the exports (default: a new one, which is deleted)")
    parser.add_argument("--int8", action="store_true", help="export and measure weights in 8 bits too")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.root:
        os.environ["ZOO_DATA"] = options.root
    measuring.prepare(threads=1)
    if (options.validation or options.cards) and not options.scores or options.validation and options.cards:
        parser.error("--validation and --cards are options of --scores, one at a time")
    job = equal if options.equal else speed if options.speed else start if options.start else scores
    with tempfile.TemporaryDirectory() as scratch:
        options.graphs = options.graphs or Path(scratch)
        print(f"`{shlex.join(['python', *sys.argv])}` ({machine()})\n")
        print(f"| weight | {' | '.join(HEADS[job])} |\n|---|{'---:|' * len(HEADS[job])}")
        notes = []
        for name in options.names or zoo.list_models():
            row, more = job(name, options)
            row += [""] * (len(HEADS[job]) - len(row))
            print(f"| {name} | {' | '.join(row)} |", flush=True)
            notes += more
        if job in (speed, start):
            print("\nFigures of torch / graphs / graphs with weights in 8 bits, if there are any.")
        print("\n".join(["", *notes]))


if __name__ == "__main__":
    main()
