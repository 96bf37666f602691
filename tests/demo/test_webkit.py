"""The page in WebKit, the engine of Safari: every view answers, from the disk too, and does what the mouse says.

`apt-get install webkit2gtk-driver xvfb` and `pip install selenium` bring what it needs.
"""

import shutil
import subprocess
import time
from pathlib import Path

import PIL.Image
import pytest

import zoo.runtime
from zoo.demo.page import Shown
from zoo.demo.static import write_folder

pytestmark = pytest.mark.slow

BROWSER = next(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"), None)
DRIVER = shutil.which("WebKitWebDriver")
SENTENCE = "A dog runs in the snow."
WAIT = 120  # seconds until a model answers on a busy machine


@pytest.fixture(scope="module")
def webkit(tmp_path_factory):
    """The driver of the browser, on a screen of its own."""
    selenium = pytest.importorskip("selenium.webdriver")
    if not (BROWSER and DRIVER and shutil.which("Xvfb")):
        pytest.skip("WebKit is not installed")
    command = ["Xvfb", "-displayfd", "1", "-screen", "0", "1400x1100x24"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as screen:
        environment = {
            "DISPLAY": f":{screen.stdout.readline().decode().strip()}",
            "HOME": str(tmp_path_factory.mktemp("home")),
            "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1",  # root may not use it
        }
        options = selenium.WebKitGTKOptions()
        options.binary_location = str(BROWSER)
        options.add_argument("--automation")
        try:
            with selenium.WebKitGTK(options, selenium.WebKitGTKService(DRIVER, env=environment)) as driver:
                driver.set_window_size(1200, 1000)
                yield driver
        finally:
            screen.terminate()


class Page:
    """What the tests do with a page."""

    def __init__(self, driver):
        self.driver = driver

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def text(self, selector):
        found = self.all(selector)
        return found[0].text if found else ""

    def wait(self, condition):
        """What the condition gives, once it is true."""
        end = time.monotonic() + WAIT
        while not (found := condition()):
            assert time.monotonic() < end, self.text("body")
            time.sleep(0.1)
        return found

    def becomes(self, selector, text):
        self.wait(lambda: self.text(selector) == text)

    def changed(self, selector, was=""):
        return self.wait(lambda: (now := self.text(selector)) != was and now)

    def click(self, selector, number=0):
        found = self.wait(lambda: self.all(selector)[number:])[0]
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found)
        found.click()

    def drag(self, start, end):
        from selenium.webdriver import ActionChains

        chains = ActionChains(self.driver)
        chains.move_to_element(start).click_and_hold().move_to_element(end).release().perform()


@pytest.fixture(scope="module")
def address(translator, captioner, document_classifier, language_model, reader, tmp_path_factory):
    """That of a folder on the disk, with a small model of random numbers for each view."""
    folder = tmp_path_factory.mktemp("site")
    models = {
        "translation": translator,
        "captioning": captioner,
        "classification": document_classifier,
        "language modelling": language_model,
        "reading": reader,
    }
    write_folder(
        folder, [(Shown(task, task, f"A small model: {task}", []), graphs) for task, (_, graphs) in models.items()]
    )
    return (folder / "index.html").as_uri()


@pytest.fixture
def open_view(webkit, address):
    """Opens a view, whose page must be no wider than the window."""

    def open_view(name):
        webkit.get("about:blank")
        webkit.get(f"{address}#/{name}")
        return Page(webkit)

    yield open_view
    wide, window = webkit.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window


def test_a_sentence_is_translated_and_its_attention_moved(open_view, translator):
    page = open_view("translate")
    own = page.changed(".result .text")
    assert own == zoo.runtime.load(translator[1]).translate(SENTENCE, beam_size=1).text
    page.click(".target button", 1)
    words = page.all(".source button")
    page.drag(page.wait(lambda: page.all(".handle"))[0], words[-3])
    page.changed(".result .text", own)
    assert len(page.all(".target .given")) == 1
    page.click(".result .own button")
    page.becomes(".result .text", own)


def test_a_photo_is_chosen_and_painted(open_view, tmp_path):
    page = open_view("captions")
    own = page.changed(".board .text")
    page.click(".strip button", 1)
    page.click(".photo")
    page.wait(lambda: page.all(".strip .given"))
    page.click(".board .own button")
    page.becomes(".board .text", own)
    PIL.Image.new("RGB", (320, 200), "green").save(tmp_path / "green.png")
    page.all("#photo-file")[0].send_keys(str(tmp_path / "green.png"))
    page.wait(lambda: "green.png" in page.text(".ask"))


def test_a_struck_word_moves_the_verdict(open_view, document_classifier):
    page = open_view("documents")
    own = page.changed(".documents .text")
    text = page.all("#text")[0].get_property("value")
    wanted = zoo.runtime.load(document_classifier[1]).classify(text)
    assert own == f"{wanted.label} {wanted.probabilities[wanted.label]:.2f}"
    page.click(".effects tbody tr button")
    page.wait(lambda: page.all(".document .struck"))


def test_a_line_is_scored_and_continued(open_view):
    page = open_view("language")
    assert page.changed(".perplexity").startswith("Perplexity of this line: ")
    next(button for button in page.all("button") if button.text == "Continue it").click()
    page.wait(lambda: page.all(".words .added"))


def test_a_question_is_answered(open_view):
    page = open_view("reading")
    answer = page.changed(".answer .text")
    assert {word.text for word in page.all(".framed")} == {answer}
    page.all("#query")[0].clear()
    page.all("#query")[0].send_keys("There is no mark here.")
    page.click("button.main")
    assert "the query must have XXXXX in place of the missing word" in page.changed(".error")
