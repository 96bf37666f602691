"""The page's engine (web/) beside zoo.runtime: the same graphs in 8 bits, run by WebAssembly in node and natively.

    python benchmarks/demo.py --equal 1000 --root DATA [--graphs FOLDER] [NAME ...]

Without a NAME all weights are compared. FOLDER/NAME has the 8-bit export of a weight; what is missing is taken from the
cache of `zoo demo`, exported if necessary. Needs node; nothing of npm, because it runs the page in zoo/demo/site.

The first N test inputs of a weight's data are answered one by one with the default settings. "equal" counts answers
with the same text or labels, "warnings" those with the same warnings; "largest difference" is that of the scores or
probabilities of equal answers. Language models continue the first half of each line. Images are decoded by Pillow for
both; a browser has its own decoder. Prints a Markdown table, with different answers below it.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import measuring
from runtime import _differences, _shown, inputs_of, machine

import zoo
import zoo.runtime
from zoo.commands.graphs import graphs_of
from zoo.demo import SITE
from zoo.vision.images import open_image

ENGINE = Path(__file__).parents[1] / "web" / "tests" / "run.mjs"
AT_ONCE = 100  # inputs of one process of node
WANTED = ["text", "answer", "labels", "score", "probabilities", "confidence", "warnings"]


class Answer:
    """An answer of the engine, with the names of `zoo.results`."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.warnings, self.confidence = found["warnings"], found["confidence"]
        for name in ("text", "answer", "labels", "score"):
            if name in found:
                setattr(self, name, found[name])
        if "probabilities" in found:
            self.probabilities = {
                row.get("label", row.get("word")): float(row["probability"]) for row in found["probabilities"]
            }


def requests(model: Any, folder: Path, given: list[tuple[Any, ...]], scratch: Path) -> Iterator[dict[str, Any]]:
    """What web/tests/run.mjs is asked for."""
    verb = model.task.verb
    common = {"do": verb, "model": str(folder), "only": WANTED}
    for n, (first, *rest) in enumerate(given):
        if verb == "caption":
            path = scratch / str(n)
            path.write_bytes(first.convert("RGBA").tobytes())
            yield {**common, "path": str(path), "width": first.width, "height": first.height}
        elif verb == "answer":
            yield {**common, "document": first, "query": rest[0], "candidates": rest[1]}
        elif isinstance(first, tuple):
            yield {**common, "text": first[0], "second": first[1]}
        else:
            yield {**common, "text": first}


def engine(model: Any, folder: Path, given: list[tuple[Any, ...]]) -> tuple[list[Answer], float]:
    """Answers of the page's engine, and milliseconds of one, the median."""
    found: list[dict[str, Any]] = []
    for first in range(0, len(given), AT_ONCE):
        with tempfile.TemporaryDirectory() as scratch:
            asked = requests(model, folder.absolute(), given[first : first + AT_ONCE], Path(scratch))
            lines = "".join(f"{json.dumps(request)}\n" for request in asked)
            run = subprocess.run(["node", ENGINE, SITE], input=lines, capture_output=True, text=True, check=True)
        found += map(json.loads, run.stdout.splitlines())
    if wrong := next((one["error"] for one in found if "error" in one), None):
        raise ValueError(f"the engine says: {wrong}")
    times = sorted(one["milliseconds"] for one in found)
    return [Answer(one["answer"]) for one in found], times[len(times) // 2]


def native(model: Any, values: tuple[Any, ...]) -> Any:
    return getattr(model, model.task.verb)(*values)


def compare(name: str, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """A row of the table, and lines below it."""
    folder = options.graphs / name if options.graphs else Path()
    folder = folder if (folder / "onnx.json").is_file() else graphs_of(name, int8=True)
    model = zoo.runtime.load(folder)
    given = list(islice(inputs_of(name, model), options.equal))
    if model.task.verb == "caption":
        given = [(open_image(content, side=model.transform.size),) for (content,) in given]
    answers, milliseconds = engine(model, folder, given)
    same, warned, largest, notes = 0, 0, 0.0, []
    for n, (found, values) in enumerate(zip(answers, given, strict=True), 1):
        wanted = native(model, values)
        difference = max(map(abs, _differences(found, wanted)), default=0.0)
        warned += found.warnings == wanted.warnings
        if _shown(found) == _shown(wanted):
            same, largest = same + 1, max(largest, difference)
            continue
        notes.append(f"- {name}, input {n}, scores {difference:.1e} apart: {_shown(found)!r:.200}")
        notes.append(f"  native: {_shown(wanted)!r:.200}")
    figures = [f"{len(given):,}", f"{same:,}", f"{warned:,}", f"{largest:.1e}", f"{milliseconds:.0f}"]
    return figures, notes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all weights")
    parser.add_argument("--equal", type=int, metavar="N", required=True, help="inputs of each weight")
    parser.add_argument("--root", help="folder of the data (default: ZOO_DATA)")
    parser.add_argument("--graphs", type=Path, help="folder of the exports (default: the cache)")
    options = parser.parse_args()
    if options.root:
        os.environ["ZOO_DATA"] = options.root
    measuring.prepare(threads=1)
    print(f"{machine()}\n\n| weight | inputs | equal | warnings | largest difference | one, ms |")
    print(f"|---|{'---:|' * 5}")
    notes = []
    for name in options.names or zoo.list_models():
        row, more = compare(name, options)
        print(f"| {name} | {' | '.join(row)} |", flush=True)
        notes += more
    print("\n".join(["", *notes]))


if __name__ == "__main__":
    main()
