"""The page of `zoo demo` in Chromium, served with small models of random numbers."""

import importlib
import importlib.util
import shutil
import threading
from contextlib import contextmanager

import pytest
from page_engine import missing

from zoo.demo.page import Shown
from zoo.demo.server import Models, Server

BROWSERS = "chromium", "chromium-browser", "google-chrome"
WAIT = 120_000  # milliseconds until a model answers on a busy machine, its export included
PREPARING = "503 (Service Unavailable)"  # what a browser writes while `zoo demo` exports a model


COUNTING = """() => {
    const send = Worker.prototype.postMessage;
    window.waiting = 0;
    Worker.prototype.postMessage = function (...values) {
        if (!this.isHeard) this.addEventListener("message", () => (window.waiting -= 1));
        this.isHeard = true;
        window.waiting += 1;
        return send.apply(this, values);
    };
}"""  # how many answers of the engine a page waits for


def idle(page):
    page.wait_for_function("() => window.waiting === 0")


@pytest.fixture(scope="module")
def browser():
    """One for this file; while its driver runs, no other test could start an event loop."""
    if importlib.util.find_spec("playwright") is None:
        missing("playwright is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        missing("chromium is not installed")
    playwright = importlib.import_module("playwright.sync_api")
    camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=["--no-sandbox", *camera])
        yield chromium
        chromium.close()


@contextmanager
def served(shown, ready, prepare):
    """The address of the page with these models."""
    with Server(0, Models(shown, ready, prepare)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


@pytest.fixture
def open_page(browser):
    """Opens pages, which must log no error, ask nobody else and not be wider than the window."""
    opened = []

    def open_page(url, width=1200, scheme="light", home=None, before=None, broken=()):
        """`before` gets the page before its address is opened; `broken` are parts of what the browser may log."""
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        page, asked, faults = context.new_page(), [], []
        page.set_default_timeout(WAIT)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        opened.append((context, page, home or url.split("#")[0], asked, faults, [PREPARING, *broken]))
        if before:
            before(page)
        page.goto(url)
        return page

    yield open_page
    for context, page, home, asked, faults, allowed in opened:
        assert [fault for fault in faults if not any(part in fault for part in allowed)] == []
        assert [url for url in asked if not url.startswith((home, "blob:", "data:"))] == []
        wide, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= window
        context.close()


def changed(page, selector, was):
    """The text of an element once it is no longer as it was."""
    page.wait_for_function(
        "([selector, was]) => (document.querySelector(selector)?.innerText ?? was) !== was", arg=[selector, was]
    )
    return page.inner_text(selector)


def becomes(page, selector, text):
    """Waits until an element has a text."""
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.innerText === text", arg=[selector, text]
    )


@pytest.fixture(scope="module")
def small(translator, transformer, captioner, document_classifier, language_model, reader):
    """A page of one small model for each view, and one more translator."""
    tasks = {
        "luong": ("translation", translator),
        "transformer": ("translation", transformer),
        "captions": ("captioning", captioner),
        "documents": ("classification", document_classifier),
        "language": ("language modelling", language_model),
        "reading": ("reading", reader),
    }
    shown = [Shown(name, task, f"A small model: {name}", []) for name, (task, _) in tasks.items()]
    with served(shown, {name: folder for name, (_, (_, folder)) in tasks.items()}, None) as url:
        yield url


@pytest.fixture(scope="module")
def mechanisms(translator, predictive_translator, plain_translator, transformer):
    """A page of translators with the names and languages of the weights of the comparison."""
    folders = {
        "luong_local_m_no_feed": translator[1],
        "luong_local_p_no_feed": predictive_translator[1],
        "seq2seq": plain_translator[1],
        "transformer_tiny": transformer[1],
    }
    folders = {f"{name}.multi30k_en_de": folder for name, folder in folders.items()}
    shown = [Shown(name, "translation", f"A small model: {name}", ["en", "de"]) for name in folders]
    with served(shown, folders, None) as url:
        yield url
