"""The page when something fails, comes late or is left: what stands together belongs together."""

import PIL.Image
import pytest
from page_browser import COUNTING, becomes, changed, idle, served

from zoo.demo.page import Shown

pytestmark = pytest.mark.integration

LOST = "net::ERR_FAILED"  # what a browser writes of a file that does not arrive
FAILING = """() => {
    const send = Worker.prototype.postMessage;
    window.failing = 1;
    Worker.prototype.postMessage = function (asked) {
        const fails = asked.method === "run" && window.failing-- > 0;
        send.call(this, fails ? { ...asked, values: [-1, {}] } : asked);
    };
}"""  # the first graph that is asked for does not run


def ask_for(page, text):
    page.fill("#text", text)
    page.press("#text", "Enter")


# ---- addresses and models ----


@pytest.mark.parametrize(("name", "named"), [("luong%zz", "luong%zz"), ("a%20b", "a b"), ("documents", "documents")])
def test_an_address_of_no_model_says_which_one_it_shows(open_page, small, name, named):
    page = open_page(f"{small}#/translate/{name}")
    page.wait_for_selector(".result .text")
    line = f"This folder has no model “{named}” for the view “Translation”, so it shows luong."
    assert page.inner_text(".picker .warning") == line
    assert page.input_value("#model") == "luong"
    page.select_option("#model", "transformer")
    page.wait_for_selector(".picker .warning", state="detached")


def test_a_model_that_did_not_arrive_is_loaded_again(open_page, small):
    page = open_page(f"{small}#/documents", broken=[LOST])
    page.wait_for_selector("table.effects")
    page.route("**/models/luong/**", lambda route: route.abort())
    page.click("nav >> text=Translation")
    page.wait_for_selector(".error:has-text('cannot be fetched')")
    page.unroute("**/models/luong/**")
    page.click("text=Try again")
    page.wait_for_selector(".result .text")
    assert page.is_hidden(".error")


def test_an_engine_that_did_not_arrive_is_loaded_again(open_page, small):
    def without_engine(page):
        page.context.route("**/engine.wasm.js", lambda route: route.abort())

    page = open_page(f"{small}#/reading", before=without_engine, broken=[LOST])
    page.wait_for_selector(".error:has-text('engine.wasm.js cannot be fetched')")
    page.context.unroute("**/engine.wasm.js")
    page.click("text=Try again")
    page.wait_for_selector(".answer .text")


def test_a_model_that_is_left_while_it_loads_says_nothing_more(open_page, small):
    page = open_page(f"{small}#/documents", broken=[LOST])
    page.wait_for_selector("table.effects")
    held = []
    page.route("**/models/luong/**", lambda route: held.append(route))
    page.click("nav >> text=Translation")
    page.wait_for_selector(".loading:has-text('Loading luong')")
    page.click("nav >> text=Documents")
    page.wait_for_selector("table.effects")
    assert page.is_hidden(".loading")
    page.go_back()
    page.wait_for_selector(".loading:has-text('Loading luong')")
    page.go_back()
    page.wait_for_selector("table.effects")
    for route in held:
        route.abort()
    page.wait_for_timeout(300)
    assert page.is_hidden(".error") and page.is_hidden(".loading")


def test_a_card_is_closed_when_its_view_is_left(open_page, translator):
    shown = Shown("tiny", "translation", "A tiny model", ["en", "de"], {"paper": "https://example.org/p"}, "# A card")
    with served([shown], {"tiny": translator[1]}, None) as url:
        page = open_page(f"{url}#/captions")
        page.click("nav >> text=Translation")
        page.wait_for_selector(".result .text")
        page.click("summary:has-text('A tiny model')")
        page.click("text=The whole card")
        page.wait_for_selector("dialog h2")
        page.go_back()
        page.wait_for_selector("dialog", state="detached")


# ---- translation ----


def test_the_beam_is_changed_after_a_failure(open_page, small):
    page = open_page(f"{small}#/translate/luong", before=lambda page: page.add_init_script(f"({FAILING})()"))
    page.wait_for_selector(".error:visible")
    page.select_option(".ask select", "3")
    page.wait_for_selector(".hypotheses button")
    assert page.is_hidden(".error") and page.inner_text(".result .text")


def test_a_replacement_that_is_too_long_leaves_the_sentence_as_it_was(open_page, small):
    page = open_page(f"{small}#/translate/luong")
    page.wait_for_selector(".result .text")
    words = page.locator(".source button").all_inner_texts()
    own = page.inner_text(".result .text")
    page.click(".source button >> nth=1")
    page.fill(".word-tools input", "snow " * 2000)
    page.press(".word-tools input", "Enter")
    page.wait_for_selector(".error:has-text('at most')")
    page.click(".target button >> nth=0")
    assert page.locator(".source button").all_inner_texts() == words and page.inner_text(".result .text") == own
    assert page.locator(".editor li").count() == len(words)
    assert page.locator(".result .own button").count() == 0
    page.click(".source button >> nth=1")
    page.fill(".word-tools input", "snow")
    page.press(".word-tools input", "Enter")
    changed(page, ".result .text", own)
    assert page.is_hidden(".error")


def test_the_whole_text_is_that_of_the_chosen_beam(open_page, small, engine, transformer):
    text = "A dog runs in the snow. Two women eat ice cream."
    wanted = []
    for size in (1, 5):
        options = {"beamSize": size, "nBest": size}
        found = engine.ask("translate", model=str(transformer[1]), text=text, options=options)["sentences"]
        wanted.append(" ".join(sentence["text"] for sentence in found))
    assert wanted[0] != wanted[1]
    page = open_page(f"{small}#/translate/transformer")
    page.wait_for_selector(".result .text")
    ask_for(page, text)
    becomes(page, ".whole", wanted[0])
    page.click("text=Sentence 2")
    page.select_option(".ask select", "5")
    becomes(page, ".whole", wanted[1])
    assert page.get_attribute("button:has-text('Sentence 2')", "aria-pressed") == "true"


def test_a_hypothesis_of_the_tree_has_the_weights_that_were_given(open_page, small):
    page = open_page(f"{small}#/translate/luong")
    page.select_option(".ask select", "3")
    page.wait_for_selector(".hypotheses button")
    page.click(".target button >> nth=0")
    page.click(".editor button.small >> nth=4")
    page.wait_for_selector(".target .given")
    assert page.locator(".result .trust .muted").count() == 1  # the confidence, of the best one
    own = page.inner_text(".result .text")
    page.click("summary:has-text('Search tree')")
    page.locator(".tree .ended").last.click()
    changed(page, ".result .text", own)
    assert page.locator(".translation > div > .numbers td").all_text_contents()[5] == "1.000"
    assert page.locator(".result .trust .muted").count() == 0


def test_the_hypothesis_that_is_picked_last_is_shown(open_page, small):
    page = open_page(f"{small}#/translate/luong")
    page.select_option(".ask select", "5")
    page.wait_for_selector(".hypotheses button >> nth=2")
    page.click("summary:has-text('Search tree')")
    wanted = page.inner_text(".hypotheses button >> nth=2")
    page.evaluate(COUNTING)
    page.evaluate(
        """() => {
            [...document.querySelectorAll(".tree .ended")].at(-1).dispatchEvent(new MouseEvent("click"));
            document.querySelectorAll(".hypotheses button")[2].click();
        }"""
    )
    idle(page)
    assert page.inner_text(".result .text") == wanted


def test_a_model_that_does_not_answer_stands_beside_those_that_do(open_page, mechanisms):
    page = open_page(f"{mechanisms}#/translate/luong_local_m_no_feed.multi30k_en_de", broken=[LOST])
    page.wait_for_selector(".result .text")
    page.route("**/models/seq2seq.multi30k_en_de/**", lambda route: route.abort())
    for name in ("seq2seq", "transformer_tiny"):
        page.check(f".chip:has-text('{name}') input")
    page.wait_for_function("() => document.querySelectorAll('.side-by-side article').length === 3")
    assert page.locator(".side-by-side h3").all_inner_texts() == [
        "luong_local_m_no_feed",
        "seq2seq",
        "transformer_tiny",
    ]
    assert "cannot be fetched" in page.inner_text("article:has(h3:text-is('seq2seq')) .error")
    assert page.locator(".side-by-side .heatmap").count() == 2


def test_an_input_method_keeps_its_keys(open_page, small):
    """Enter confirms a word of it, and asks for nothing."""
    page = open_page(f"{small}#/translate/luong")
    page.wait_for_selector(".result .text")
    taken = page.evaluate(
        """() => [{ isComposing: true }, { keyCode: 229 }, {}].map((more) => {
            const event = new KeyboardEvent("keydown", { key: "Enter", cancelable: true, ...more });
            return !document.querySelector("#text").dispatchEvent(event);
        })"""
    )
    assert taken == [False, False, True]


# ---- documents and reading ----


def test_the_effects_are_those_of_the_text_that_is_shown(open_page, small):
    page = open_page(f"{small}#/documents")
    page.wait_for_selector("table.effects")
    page.evaluate(
        """() => {
            const look = () => (window.isOld ??= document.querySelector("table.effects") !== null);
            new MutationObserver(look).observe(document.querySelector(".document"), { childList: true });
        }"""
    )
    ask_for(page, "Two women eat ice cream. A man runs.")
    page.wait_for_function("() => window.isOld !== undefined")
    assert page.evaluate("window.isOld") is False
    page.wait_for_selector("table.effects")
    assert {"women", "man"} <= set(page.locator(".effects tbody button").all_inner_texts())


def test_the_effects_have_the_weights_of_the_chosen_hop(open_page, pair_classifier):
    shown = Shown("pairs", "classification", "A small model", ["en"])
    with served([shown], {"pairs": pair_classifier[1]}, None) as url:
        page = open_page(f"{url}#/documents")
        page.wait_for_selector("table.effects")
        before = page.inner_text(".effects tbody")
        page.select_option(".documents .panel select", "1")
        after = changed(page, ".effects tbody", before)
        first = page.locator(".effects tbody tr").first
        word = page.locator(f".document .shaded:text-is('{first.locator('button').inner_text()}')").first
        assert word.get_attribute("title") == first.locator("td .share").first.inner_text() and after != before


def test_a_question_that_fails_has_no_answer_of_an_earlier_one_beside_it(open_page, small):
    page = open_page(f"{small}#/reading")
    page.wait_for_selector(".answer .text")
    before = page.inner_text(".shades >> nth=0")
    page.evaluate(COUNTING)
    page.evaluate(
        """() => {
            const form = document.querySelector("form");
            document.querySelector("#document").value += " And Anna slept.";
            form.requestSubmit();
            document.querySelector("#query").value = "There is no mark here.";
            form.requestSubmit();
        }"""
    )
    idle(page)
    page.wait_for_selector(".error:has-text('XXXXX')")
    assert page.inner_text(".shades >> nth=0") == before


# ---- captions ----


def test_the_camera_is_off_once_its_view_is_left(open_page, small):
    page = open_page(f"{small}#/captions")
    page.wait_for_selector(".strip button")
    page.evaluate(
        """() => {
            const { mediaDevices } = navigator;
            const get = mediaDevices.getUserMedia.bind(mediaDevices);
            window.tracks = [];
            mediaDevices.getUserMedia = async (wish) => {
                const stream = await get(wish);
                window.tracks.push(...stream.getTracks());
                return stream;
            };
            const button = [...document.querySelectorAll("button")].find((one) => one.textContent === "Camera");
            button.click();
            button.click();
        }"""
    )
    page.wait_for_selector("button:has-text('Take the photo'):enabled")
    page.wait_for_function("() => window.tracks.length === 2")
    live = "window.tracks.filter((track) => track.readyState === 'live').length"
    assert page.evaluate(live) == 1
    page.click("nav >> text=Reading")
    page.wait_for_selector(".answer .text")
    assert page.evaluate(live) == 0


def test_a_strip_is_no_photo(open_page, small, tmp_path):
    page = open_page(f"{small}#/captions")
    page.wait_for_selector(".strip button")
    for size in [(3000, 1), (2, 41)]:
        PIL.Image.new("RGB", size).save(tmp_path / "strip.png")
        page.set_input_files("#photo-file", tmp_path / "strip.png")
        page.wait_for_selector(f".error:has-text('got {size[0]} × {size[1]}')")
    PIL.Image.new("RGB", (2, 40)).save(tmp_path / "narrow.png")
    page.set_input_files("#photo-file", tmp_path / "narrow.png")
    page.wait_for_selector(".ask:has-text('narrow.png')")
    page.wait_for_selector(".error", state="hidden")


def test_a_model_that_did_not_come_is_asked_for_again(open_page, captioner):
    shown = [Shown(name, "captioning", "A small model", []) for name in ("one", "other")]
    with served(shown, {"one": captioner[1], "other": captioner[1]}, None) as url:
        page = open_page(f"{url}#/captions", broken=[LOST])
        page.wait_for_selector(".strip button")
        page.route("**/models/other/**", lambda route: route.abort())
        page.click("text=Beside it: other")
        page.wait_for_selector(".error:has-text('cannot be fetched')")
        page.unroute("**/models/other/**")
        page.click("text=Beside it: other")
        page.wait_for_selector(".board >> nth=1 >> .strip button >> nth=0")
