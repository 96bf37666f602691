"""The page's engine (web/) beside zoo.runtime: the same graphs in 8 bits, run by WebAssembly in node and natively.

    python benchmarks/demo.py --equal 1000 --root DATA [--graphs FOLDER] [NAME ...]
    python benchmarks/demo.py --browser 20

Without a NAME all weights are compared. FOLDER/NAME has the 8-bit export of a weight; what is missing is taken from the
cache of `zoo demo`, exported if necessary. Needs node; nothing of npm, because it runs the page in zoo/demo/site.

The first N test inputs of a weight's data are answered one by one with the default settings. "equal" counts answers
with the same text or labels, "warnings" those with the same warnings; "largest difference" is that of the scores or
probabilities of equal answers. Language models continue the first half of each line. Images are decoded by Pillow for
both; a browser has its own decoder. Prints a Markdown table, with different answers below it.

`--browser N` measures in headless Chromium, with playwright: N loads of the page until the first translation is there,
each with an empty cache, and N interventions in each view, from the event until the browser has drawn what it changed.
"""

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import measuring
from runtime import _differences, _shown, inputs_of, machine

import zoo
import zoo.runtime
from zoo.commands.demo import _shown as listed
from zoo.commands.graphs import graphs_of
from zoo.demo import SITE, write_folder
from zoo.demo.page import FIRST
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


# ---- in a browser ----

FIRST_ANSWER = """
const seen = () => document.querySelector(".result .text")?.textContent;
new MutationObserver((_, observer) => {
  if (seen()) { observer.disconnect(); window.answered = performance.now(); }
}).observe(document, {childList: true, subtree: true});
"""
# From the first event until a frame with the change was drawn; the page tells screen readers of each change.
WATCH = """([selector, kinds]) => {
  window.took = null;
  let start = null;
  const begin = (event) => (start ??= event.timeStamp);
  kinds.forEach((kind) => addEventListener(kind, begin, {capture: true, once: true}));
  const observer = new MutationObserver(() => {
    if (start === null) { return; }
    observer.disconnect();
    kinds.forEach((kind) => removeEventListener(kind, begin, {capture: true}));
    requestAnimationFrame(() => setTimeout(() => (window.took = performance.now() - start)));
  });
  observer.observe(document.querySelector(selector), {childList: true, subtree: true});
}"""
SAID = "main > .unseen"


class Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def timed(page: Any, act: Callable[[], Any], kinds: tuple[str, ...], change: str = SAID) -> float:
    """Milliseconds from the first event of these kinds until what it changes is drawn."""
    page.evaluate(WATCH, [change, kinds])
    act()
    page.wait_for_function("() => window.took !== null")
    return page.evaluate("window.took")


def move_line(page: Any, n: int) -> float:
    handle = page.locator(".handle")
    if n == 0:
        page.click(".target button >> nth=1")
    return timed(page, lambda: handle.press("ArrowLeft" if n % 2 else "ArrowRight"), ("keydown",))


def strike_word(page: Any, n: int) -> float:
    page.click(".source button >> nth=1")
    return timed(page, lambda: page.click(".word-tools > button >> nth=0"), ("click",))


def paint(page: Any, n: int) -> float:
    if n == 0:
        page.click(".strip button >> nth=1")
    place = {"x": 60 + 50 * (n % 4), "y": 80 + 40 * (n % 3)}
    return timed(page, lambda: page.click(".photo", position=place), ("pointerdown",))


def strike_in_document(page: Any, n: int) -> float:
    return timed(page, lambda: page.click(f".document button.shaded >> nth={n // 2 % 20}"), ("click",))


def narrow_window(page: Any, n: int) -> float:
    slider = page.locator("input[type=range]").nth(2)
    return timed(page, lambda: slider.fill(str(1 + n % 5)), ("input",))


def ask_again(page: Any, n: int) -> float:
    page.fill(".field input", ["Anna Peter John", "Anna Peter", ""][n % 3])
    return timed(page, lambda: page.click("button.main"), ("click",))


READY = ".result .text"
INTERVENTIONS = [  # what is done, model, view, what is there before it, how
    ("a line moved to another word", FIRST, "translate", READY, move_line),
    ("a word of the sentence struck", FIRST, "translate", READY, strike_word),
    ("a line of a Transformer moved", "transformer_tiny.multi30k_en_de", "translate", READY, move_line),
    ("a region painted", "show_attend_tell_soft.flickr8k", "captions", ".strip button", paint),
    ("a word of a document struck", "han.imdb", "documents", ".effects", strike_in_document),
    ("the window of a language model", "key_value_predict.ptb", "language", ".perplexity", narrow_window),
    ("other candidates for a reader", "attention_over_attention.cbtlike_ne", "reading", ".answer .text", ask_again),
]


def in_browser(count: int) -> None:
    from playwright.sync_api import sync_playwright

    path = next(found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name)))
    names = list(dict.fromkeys(name for _, name, *_ in INTERVENTIONS))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        write_folder(folder, [(listed(name), graphs_of(name, int8=True)) for name in names])
        with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_address[1]}/"
            browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
            print(f"{machine()}, Chromium {browser.version}\n\n| | median, ms | slowest, ms |\n|---|---:|---:|")
            print(
                row("first translation after the page has loaded", [first_answer(browser, url) for _ in range(count)])
            )
            for what, name, view, ready, act in INTERVENTIONS:
                page = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce").new_page()
                page.goto(f"{url}#/{view}/{name}")
                page.wait_for_selector(ready)
                print(row(f"{what}, `{name}`", [act(page, n) for n in range(count)]), flush=True)
                page.context.close()
            browser.close()
            server.shutdown()


def row(name: str, times: list[float]) -> str:
    return f"| {name} | {statistics.median(times):,.0f} | {max(times):,.0f} |"


def first_answer(browser: Any, url: str) -> float:
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(FIRST_ANSWER)
    page.goto(url)
    page.wait_for_function("() => window.answered")
    found = page.evaluate("answered - performance.getEntriesByType('navigation')[0].loadEventEnd")
    context.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all weights")
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--equal", type=int, metavar="N", help="inputs of each weight")
    either.add_argument("--browser", type=int, metavar="N", help="loads of the page, and interventions in each view")
    parser.add_argument("--root", help="folder of the data (default: ZOO_DATA)")
    parser.add_argument("--graphs", type=Path, help="folder of the exports (default: the cache)")
    options = parser.parse_args()
    if options.root:
        os.environ["ZOO_DATA"] = options.root
    measuring.prepare(threads=1)
    if options.browser:
        in_browser(options.browser)
        return
    print(f"{machine()}\n\n| weight | inputs | equal | warnings | largest difference | one, ms |")
    print(f"|---|{'---:|' * 5}")
    notes = []
    for name in options.names or zoo.list_models():
        figures, more = compare(name, options)
        print(f"| {name} | {' | '.join(figures)} |", flush=True)
        notes += more
    print("\n".join(["", *notes]))


if __name__ == "__main__":
    main()
