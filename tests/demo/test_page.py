"""The page in a real browser: every view answers, every interaction does what it says, and no request leaves the folder."""

import importlib
import importlib.util
import re
import time
from pathlib import Path

import PIL.Image
import pytest
from page_browser import COUNTING, becomes, changed, idle, served

import zoo.runtime
from zoo import registry
from zoo.commands.demo import _shown
from zoo.commands.graphs import graphs_of
from zoo.demo.code import PARTS, excerpts
from zoo.demo.page import FIRST, Shown
from zoo.demo.static import write_folder

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SENTENCE = "A dog runs in the snow."
SOFT, HARD = "show_attend_tell_soft.flickr8k", "show_attend_tell_hard.flickr8k"
TRANSFORMER, READER = "transformer_tiny.multi30k_en_de", "attention_over_attention.cbtlike_ne"
VIEWS = {  # by task: path, and what is there once a model has answered
    "translation": ("translate", ".result .text"),
    "captioning": ("captions", ".board .text"),
    "classification": ("documents", ".effects"),
    "language modelling": ("language", ".words button"),
    "reading": ("reading", ".answer .text"),
}


def test_the_code_that_the_page_names_is_in_its_list():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "web" / "src" / "page").glob("*.ts")]
    files = {path for source in sources for path in re.findall(r"\"(zoo/[\w/]+\.py)\"", source)}
    symbols = {name for source in sources for name in re.findall(r"symbol: \"([\w.]+)\"", source)}
    symbols |= {name for source in sources for name in re.findall(r"\"zoo/[\w/]+\.py\", \"([\w.]+)\"", source)}
    assert files == PARTS.keys()
    assert symbols == {part for parts in PARTS.values() for part in parts}


def test_the_code_is_as_it_stands_here():
    found = excerpts()
    assert len(found) == sum(map(len, PARTS.values()))
    for name, excerpt in found.items():
        file, _, part = name.partition(":")
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        shown = excerpt["text"].splitlines()
        assert re.match(rf"(class|def) {part.split('.')[-1]}\b", shown[0])
        there = lines[excerpt["line"] - 1 :][: len(shown)]
        assert [line.strip() for line in there] == [line.strip() for line in shown]
        after = lines[excerpt["line"] - 1 + len(shown) :]
        following = next((line for line in after if line.strip()), "")
        indent = len(there[0]) - len(there[0].lstrip())
        assert len(following) - len(following.lstrip()) <= indent  # the part is whole


@pytest.fixture(scope="module")
def site():
    """All weights; each is exported when a browser first asks for it, unless it is in the cache."""
    names = sorted(registry.list_models(), key=lambda name: name != FIRST)
    with served([_shown(name) for name in names], {}, lambda name: graphs_of(name, int8=True)) as url:
        yield url


def test_a_sentence_is_translated_as_in_python(open_page, translator):
    """With a model made of random numbers; the page is complete without any other."""
    _, folder = translator
    wanted = zoo.runtime.load(folder).translate(SENTENCE, beam_size=1)  # with which the page begins
    shown = Shown("tiny", "translation", "A tiny model", ["en", "de"])
    with served([shown], {"tiny": folder}, None) as url:
        page = open_page(url)
        assert changed(page, ".result .text", "") == wanted.text
        assert page.inner_text(".trust p >> nth=0") == f"confidence {wanted.confidence:.2f}"
        assert page.locator(".trust .warning").all_inner_texts() == wanted.warnings
        assert page.locator(".target li").count() == len(wanted.tokens)
        page.click(".target button >> nth=0")
        shares = page.locator(".editor .share").all_inner_texts()
        expected = [float(weight) * 100 for weight in wanted.attention[0]]
        assert [0 if "<" in share else int(share.split()[0]) for share in shares] == pytest.approx(expected, abs=0.51)
        page.click("nav >> text=Captions")
        page.wait_for_selector("text=This folder has no model for that")


def test_it_needs_no_server(open_page, translator, tmp_path):
    """A folder of `zoo demo --export`, opened from the disk."""
    _, graphs = translator
    wanted = zoo.runtime.load(graphs).translate(SENTENCE, beam_size=1).text
    write_folder(tmp_path, [(Shown("tiny", "translation", "A tiny model", ["en", "de"]), graphs)])
    page = open_page((tmp_path / "index.html").as_uri(), home=tmp_path.as_uri())
    assert changed(page, ".result .text", "") == wanted
    page.click(".target button >> nth=0")
    assert "zoo/layers/" in page.inner_text(".computed")
    page.click("nav >> text=Captions")
    page.wait_for_selector("text=This folder has no model for that")


# ---- with small models of random numbers ----


def only(size, position):
    return [float(n == position) for n in range(size)]


def drag(page, start, end):
    """With the mouse, from the middle of one element to that of another."""
    for element, press in [(start, page.mouse.down), (end, page.mouse.up)]:
        box = element.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
        press()


def test_dragged_attention_decodes_the_rest_anew(open_page, small, engine, translator):
    asked = {"model": str(translator[1]), "text": SENTENCE}
    own = engine.ask("translate", **asked, options={"beamSize": 1})
    first = own["hypotheses"][0]["steps"][0]["token"]
    page = open_page(f"{small}#/translate/luong")
    becomes(page, ".result .text", own["text"])
    page.click(".target button >> nth=1")
    words = page.locator(".source button")
    place = words.count() - 3
    given = [[1, only(words.count(), place)]]
    moved = engine.ask("translate", **asked, options={"beamSize": 1, "given": given, "prefix": [first]})["text"]
    assert moved != own["text"]
    drag(page, page.locator(".handle"), words.nth(place))
    becomes(page, ".result .text", moved)
    page.wait_for_function("() => document.querySelector('.handle').getAttribute('aria-valuetext').endsWith('100 %')")
    assert page.locator(".target .given").count() == 1 and page.locator(".target .changed").count() > 0
    page.click(".result .own button")
    becomes(page, ".result .text", own["text"])


def test_words_of_the_sentence_are_struck_out(open_page, small, engine, translator):
    page = open_page(f"{small}#/translate/luong")
    page.wait_for_selector(".result .text")
    own = page.inner_text(".result .text")
    page.click(".source button >> nth=0")
    page.click(".word-tools >> text=Remove")
    page.wait_for_selector(".source .struck")
    assert changed(page, ".result .text", own)
    page.click(".source .struck >> nth=0")
    page.click(".word-tools >> text=Put back")
    becomes(page, ".result .text", own)


def test_a_struck_word_moves_the_verdict_as_the_table_says(open_page, small, document_classifier):
    page = open_page(f"{small}#/documents")
    page.wait_for_selector(".effects")
    own = page.inner_text(".documents .text")
    wanted = zoo.runtime.load(document_classifier[1]).classify(page.input_value("#text"))
    assert own == f"{wanted.label} {wanted.probabilities[wanted.label]:.2f}"
    bar = page.locator(f".labels li:has-text('{wanted.label}') meter")
    before = float(bar.get_attribute("value"))
    rows = page.locator(".effects tbody tr")
    promised = [float(row.locator("td").nth(1).inner_text().replace("−", "-")) for row in rows.all()]
    strongest = max(range(len(promised)), key=lambda n: abs(promised[n]))
    rows.nth(strongest).locator("button").click()
    page.wait_for_selector(".document .struck")
    assert (float(bar.get_attribute("value")) - before) * 100 == pytest.approx(promised[strongest], abs=0.06)
    page.click(".documents .own button")
    becomes(page, ".documents .text", own)


def test_a_painted_region_changes_the_caption(open_page, small):
    page = open_page(f"{small}#/captions")
    page.wait_for_selector(".strip button")
    own = page.inner_text(".board .text")
    page.click(".strip button >> nth=1")
    page.wait_for_selector(".equations")
    shown = page.inner_text(".equations")
    box = page.locator(".photo").bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector(".strip .given")
    assert "yours, instead of" in changed(page, ".equations", shown)
    page.click(".board .own button")
    becomes(page, ".board .text", own)
    assert page.locator(".strip .given").count() == 0


def test_a_smaller_window_changes_the_perplexity(open_page, small, engine, language_model):
    page = open_page(f"{small}#/language")
    page.wait_for_selector(".perplexity")
    asked = {"model": str(language_model[1]), "text": page.input_value("#text")}
    whole, less = (engine.ask("score", **asked, options=options)["perplexity"] for options in ({}, {"window": 1}))
    line = "Perplexity of this line"
    assert page.inner_text(".perplexity") == f"{line}: {whole:,.1f}"
    page.locator("input[type=range]").nth(2).fill("1")
    becomes(page, ".perplexity", f"{line}: {less:,.1f}; with the model’s window of 3: {whole:,.1f}")
    assert f"{less:.1f}" != f"{whole:.1f}"


def test_the_last_text_that_is_asked_for_is_shown(open_page, small, engine, translator):
    page = open_page(f"{small}#/translate/luong")
    page.wait_for_selector(".result .text")
    page.evaluate(COUNTING)
    wanted = engine.ask("translate", model=str(translator[1]), text=SENTENCE, options={"beamSize": 3, "nBest": 3})
    long = "Two women eat ice cream on the beach. " * 12  # is ready later than what is asked for after it
    page.evaluate(
        """texts => {
            for (const text of texts) {
                document.querySelector("#text").value = text;
                document.querySelector("form").requestSubmit();
            }
            document.querySelector("#text").value = "";
            const beam = document.querySelector(".ask select");
            beam.value = "3";
            beam.dispatchEvent(new Event("change"));
        }""",
        [long, SENTENCE],
    )
    becomes(page, ".result .text", wanted["text"])
    idle(page)
    assert page.inner_text(".result .text") == wanted["text"]
    assert page.locator(".hypotheses button").count() == len(wanted["hypotheses"])
    assert page.locator(".source li").count() == len(wanted["source"])
    page.select_option(".ask select", "10")
    page.click(".examples button >> nth=1")
    idle(page)
    assert page.locator(".source button").all_inner_texts()[:2] != ["A", "dog"]
    assert page.locator(".error").is_hidden()


def test_a_reset_is_not_undone_by_what_was_decoded_before(open_page, small):
    page = open_page(f"{small}#/translate/luong")
    page.wait_for_selector(".result .text")
    own = page.inner_text(".result .text")
    page.click(".target button >> nth=1")
    page.click(".editor button.small >> nth=4")
    moved = changed(page, ".result .text", own)
    page.evaluate(COUNTING)
    page.evaluate(
        """() => {
            document.querySelectorAll(".editor button.small")[5].click();
            document.querySelector(".result .own button").click();
        }"""
    )
    idle(page)
    assert page.inner_text(".result .text") == own != moved
    assert page.locator(".target .given").count() == page.locator(".target .changed").count() == 0


def test_weights_go_to_no_word_that_is_struck_out(open_page, small):
    page = open_page(f"{small}#/translate/luong")
    page.wait_for_selector(".result .text")
    own = page.inner_text(".result .text")
    size = page.locator(".source li").count()
    page.click(".source button >> nth=1")
    page.click(".word-tools >> text=Remove")
    changed(page, ".result .text", own)
    page.click(".target button >> nth=0")
    left = size - page.locator(".source .struck").count()
    assert page.locator(".editor li").count() == left
    page.click(".editor button.small >> nth=0")
    looks = "document.querySelector('.handle').getAttribute('aria-valuetext')"
    page.wait_for_function(f"() => {looks}.endsWith('100 %')")
    assert page.evaluate(looks).startswith(page.inner_text(".source button >> nth=0"))
    before = page.evaluate(looks)
    page.press(".handle", "ArrowRight")
    page.wait_for_function(f"was => {looks} !== was", arg=before)
    assert page.evaluate(looks).endswith(", 100 %")


def test_the_words_beside_a_fixed_one_are_shown(open_page, small):
    page = open_page(f"{small}#/translate/luong")
    page.wait_for_selector(".result .text")
    own = page.inner_text(".result .text")
    page.click(".target button >> nth=1")
    before = page.locator(".step .bars .word").all_inner_texts()
    page.click(".step .bars .word >> nth=1")
    changed(page, ".result .text", own)
    assert page.locator(".step .bars .word").all_inner_texts() == before
    page.click(".step .bars .word >> nth=0")
    becomes(page, ".result .text", own)


def test_a_word_that_is_struck_and_put_back_at_once_is_there(open_page, small):
    page = open_page(f"{small}#/documents")
    page.wait_for_selector(".effects")
    own = page.inner_text(".labels")
    page.evaluate(COUNTING)
    page.evaluate(
        """() => {
            const word = document.querySelectorAll(".document p .shaded")[3];
            word.click();
            word.click();
        }"""
    )
    idle(page)
    assert page.inner_text(".labels") == own and page.locator(".document .struck").count() == 0
    assert page.locator(".documents .own button").count() == 0


def test_what_is_typed_while_a_text_is_classified_is_not_shown_as_it(open_page, small):
    page = open_page(f"{small}#/documents")
    page.wait_for_selector(".effects")
    page.evaluate(COUNTING)
    page.evaluate(
        """() => {
            document.querySelector("#text").value = "A man runs.";
            document.querySelector("form").requestSubmit();
            document.querySelector("#text").value = "Two women";
        }"""
    )
    idle(page)
    assert page.locator(".document p .shaded").all_inner_texts() == ["A", "man", "runs", "."]


def test_given_words_of_several_lines_are_as_probable_when_they_are_continued(open_page, small, engine, language_model):
    page = open_page(f"{small}#/language")
    page.wait_for_selector(".words button")
    text = "A man runs\nTwo women zzz"
    page.fill("#text", text)
    page.click("text=Continue it")
    page.wait_for_selector(".words .added")
    scored = engine.ask("score", model=str(language_model[1]), text=text)["words"]
    shares = page.locator(".words small").all_inner_texts()[: len(scored) - 1]
    assert [0 if "<" in share else int(share.split()[0]) for share in shares] == pytest.approx(
        [100 * 2.718281828 ** word["logProb"] for word in scored[:-1]], abs=0.51
    )


def test_the_last_photo_is_described(open_page, small):
    page = open_page(f"{small}#/captions")
    page.wait_for_selector(".strip button")
    page.evaluate(COUNTING)
    first = page.inner_text(".board .text")
    page.click("text=A dog in the forest")
    page.wait_for_function("text => document.querySelector('.board .text')?.innerText !== text", arg=first)
    idle(page)
    wanted = page.inner_text(".board .text"), page.locator(".photo").bounding_box()["height"]
    page.evaluate(
        """() => {
            const buttons = [...document.querySelectorAll(".captions .ask button")];
            for (const name of ["A game of pool", "A rabbit on the grass", "A dog in the forest"]) {
                buttons.find((button) => button.textContent === name).click();
            }
        }"""
    )
    page.wait_for_timeout(300)
    idle(page)
    assert (page.inner_text(".board .text"), page.locator(".photo").bounding_box()["height"]) == wanted


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("view", "answered"), VIEWS.values())
def test_everybody_can_use_the_page(open_page, small, view, answered, scheme):
    """By the rules of axe-core: contrasts, names for screen readers, headings, what the keyboard reaches."""
    page = open_page(f"{small}#/{view}", scheme=scheme)
    page.wait_for_selector(answered)
    for word in page.locator(".target button >> nth=1").all() + page.locator(".strip button >> nth=1").all():
        word.click()
    for summary in page.locator("summary:visible").all():
        summary.click()
    # as dark as a word becomes
    page.evaluate("document.querySelectorAll('[style*=--weight]').forEach(e => e.style.setProperty('--weight', 1))")
    axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found] == []


def test_the_card_opens_from_the_page(open_page, translator, tmp_path):
    """From the disk too; its Markdown is shown as headings, tables and links."""
    card = "# A *card*\n\nSome `code`\nand [a link](https://example.org/x), ![no](a.png)[a file](a.md).\n\n"
    card += "## Scores\n\n| set | **BLEU** |\n|---|---:|\n| test | 1.5 |\n\n- one\n  more\n- two\n\n    a  b\n    c\n\n```python\n# x\n```\n"
    shown = Shown("tiny", "translation", "A tiny model", ["en", "de"], {"paper": "https://example.org/p"}, card)
    write_folder(tmp_path, [(shown, translator[1])])
    with served([shown], {"tiny": translator[1]}, None) as url:
        for address, home in [(url, None), ((tmp_path / "index.html").as_uri(), tmp_path.as_uri())]:
            page = open_page(address, home=home)
            page.wait_for_selector(".result .text")
            page.click("summary:has-text('A tiny model')")
            page.click("text=The whole card")
            page.wait_for_selector("dialog h2")
            assert page.inner_text("dialog h2") == "A *card*" and page.inner_text("dialog h3") == "Scores"
            assert page.locator("dialog p").all_inner_texts() == ["Some code and a link, a file."]
            assert page.get_attribute("dialog a", "href") == "https://example.org/x"
            assert page.locator("dialog table tr").all_inner_texts() == ["set\tBLEU", "test\t1.5"]
            assert page.locator("dialog li").all_inner_texts() == ["one more", "two"]
            assert page.locator("dialog pre").all_inner_texts() == ["a  b\nc", "# x"]
            page.keyboard.press("Escape")
            page.wait_for_selector("dialog", state="detached")


def test_a_reader_shows_its_matrix(open_page, small, reader):
    page = open_page(f"{small}#/reading")
    page.wait_for_selector(".answer .text")
    found = zoo.runtime.load(reader[1]).answer(
        page.input_value("#document"), page.input_value("#query"), page.input_value(".field input").split()
    )
    assert page.inner_text(".answer .text") == found.answer
    rows, columns = len(found.query) + 1, min(28, len(found.document))  # the last row has the sums
    assert page.locator(".heatmap rect").count() == rows * columns
    assert set(page.locator(".framed").all_inner_texts()) == {found.answer}


def test_two_translators_stand_side_by_side(open_page, small, transformer):
    page = open_page(f"{small}#/translate/luong")
    page.wait_for_selector(".result .text")
    page.check(".chip:has-text('transformer') input")
    page.wait_for_function("() => document.querySelectorAll('.side-by-side article').length === 2")
    cards = page.locator(".side-by-side article")
    assert cards.locator("h3").all_inner_texts() == ["luong", "transformer"]
    assert cards.nth(1).locator(".text").inner_text() == zoo.runtime.load(transformer[1]).translate(SENTENCE).text
    assert cards.locator(".heatmap").count() == 2


def in_minus(number, digits=3):
    """A number as the page writes it."""
    return f"{number:.{digits}f}".replace("-", "−")


def test_equations_have_the_scores_and_the_predicted_position(open_page, mechanisms, engine, predictive_translator):
    name = "luong_local_p_no_feed.multi30k_en_de"
    asked = {"model": str(predictive_translator[1]), "text": SENTENCE, "options": {"beamSize": 1}}
    step = engine.ask("translate", **asked)["hypotheses"][0]["steps"][1]
    page = open_page(f"{mechanisms}#/translate/{name}", width=390)
    page.click(".target button >> nth=1")
    page.wait_for_selector(".equations")
    shown = page.locator(".equations").evaluate("element => element.textContent")
    best = max(range(len(step["attention"])), key=step["attention"].__getitem__)
    assert f"p2={in_minus(step['alignedPosition'], 2)}" in shown and "(D = 3)" in shown
    assert f"={in_minus(step['scores'][best])}" in shown and f"={in_minus(step['attention'][best])}" in shown
    page.click(".editor button.small >> nth=0")  # all of it to the first word
    page.wait_for_selector("text=The model’s own, which your weights replace.")
    shown = page.locator(".equations").evaluate("element => element.textContent")
    assert f"={in_minus(max(step['scores']))}" in shown


def test_the_equation_of_a_head_has_its_scores(open_page, mechanisms, engine, transformer):
    name = "transformer_tiny.multi30k_en_de"
    asked = {"model": str(transformer[1]), "text": SENTENCE, "options": {"beamSize": 1}}
    step = engine.ask("translate", **asked)["hypotheses"][0]["steps"][0]
    page = open_page(f"{mechanisms}#/translate/{name}")
    page.click(".target button >> nth=0")
    page.wait_for_selector(".equations")
    options = page.locator(".result select option").all_inner_texts()
    assert options[0] == "the head that translate shows (layer 1, head 2)" and len(options) == 5
    for chosen, head in [("0", 1), ("3", 2)]:  # what the model shows, and the first head of the second layer
        page.select_option(".result select", chosen)
        shown = page.locator(".equations").evaluate("element => element.textContent")
        best = max(range(len(step["heads"][head])), key=step["heads"][head].__getitem__)
        assert f"={in_minus(step['headScores'][head][best])}" in shown


def test_equations_of_documents_and_language_models_have_their_scores(
    open_page, small, engine, document_classifier, language_model
):
    page = open_page(f"{small}#/documents", width=390)
    page.wait_for_selector(".equations")
    asked = {"model": str(document_classifier[1]), "text": page.input_value("#text")}
    parts = engine.ask("classify", **asked)["parts"]
    part = max(parts, key=lambda part: part["weight"])
    best = max(range(len(part["words"])), key=part["hops"][0].__getitem__)
    shown = page.locator(".equations").evaluate("element => element.textContent")
    assert f"={in_minus(part['score'])}" in shown and f"={in_minus(part['scores'][0][best])}" in shown
    page = open_page(f"{small}#/language", width=390)
    page.click(".words button >> nth=4")
    asked = {"model": str(language_model[1]), "text": page.input_value("#text")}
    word = engine.ask("score", **asked)["words"][4]
    shown = page.locator(".equations").evaluate("element => element.textContent")
    assert all(f"={in_minus(score)}" in shown for score in word["scores"])
    page.click(".words button >> nth=0")  # which has no word before it
    shown = page.locator(".equations").evaluate("element => element.textContent")
    assert "r1=0" in shown and "e1" not in shown


def test_a_translator_without_attention_says_so(open_page, mechanisms, plain_translator):
    page = open_page(f"{mechanisms}#/translate/seq2seq.multi30k_en_de")
    page.wait_for_selector(".result .text")
    own = page.inner_text(".result .text")
    assert own == zoo.runtime.load(plain_translator[1]).translate(SENTENCE, beam_size=1).text
    assert "This model has no attention" in page.inner_text(".result")
    page.click(".target button >> nth=0")
    page.wait_for_selector("h2:has-text('Step 1 in numbers')")
    assert page.locator(".bars .word").count() == 5 and "This model has no attention" in page.inner_text(".step")
    assert page.locator(".wires path, .measures, .editor, .numbers").count() == 0 and page.is_hidden(".handle")
    page.click(".bars .word >> nth=1")
    forced = changed(page, ".result .text", own)
    page.click(".result .own button")
    becomes(page, ".result .text", own)
    page.click(".source button >> nth=0")
    page.click(".word-tools >> text=Remove")
    assert changed(page, ".result .text", own) and forced != own


def test_mechanisms_stand_side_by_side(open_page, mechanisms):
    page = open_page(f"{mechanisms}#/translate/luong_local_m_no_feed.multi30k_en_de")
    page.wait_for_selector(".result .text")
    for name in ("seq2seq", "transformer_tiny", "luong_local_p_no_feed"):
        page.check(f".chip:has-text('{name}') input")
    page.wait_for_function("() => document.querySelectorAll('.side-by-side article').length === 4")
    cards = page.locator(".side-by-side article")
    plain, heads = (page.locator(f"article:has(h3:text-is('{name}'))") for name in ("seq2seq", "transformer_tiny"))
    assert "This model has no attention" in plain.inner_text()
    assert plain.locator(".heatmap, .measures").count() == 0 and cards.locator(".heatmap").count() == 3
    assert cards.locator("select:visible").count() == 1  # the Transformer's
    entropy = heads.locator(".measures strong").first
    before = entropy.inner_text(), heads.locator(".heatmap").inner_html()
    heads.locator("select").select_option(label="layer 2, head 1")
    assert (entropy.inner_text(), heads.locator(".heatmap").inner_html()) != before
    page.check(".chip:has-text('seq2seq') input")
    assert page.locator(".chip input:disabled").count() == 0  # three others are all that there are


def test_the_keyboard_is_enough(open_page, small):
    page = open_page(f"{small}#/translate/luong")
    page.wait_for_selector(".result .text")
    focused = "document.activeElement"
    page.keyboard.press("Tab")
    assert page.evaluate(f"{focused}.innerText") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate(f"{focused}.id") == "main"
    page.focus(".target button >> nth=0")
    page.keyboard.press("Enter")
    handle = page.locator(".handle")
    was = handle.get_attribute("aria-valuenow")
    handle.focus()
    page.keyboard.press("ArrowLeft" if int(was) > 1 else "ArrowRight")
    page.wait_for_selector(".target .given")
    assert handle.get_attribute("aria-valuenow") != was
    assert page.evaluate(f"{focused}.className") == "handle"  # so that the next key moves it too
    page.focus(".result .own button")
    page.keyboard.press("Enter")
    page.wait_for_selector(".target .given", state="detached")
    page.focus("#text")
    own = page.inner_text(".result .text")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("Two women")
    page.keyboard.press("Enter")
    changed(page, ".result .text", own)


def test_all_views_fit_a_dark_phone(open_page, small):
    """`open_page` compares the page's width with that of the window."""
    page = open_page(small, width=390, scheme="dark")
    for (_, answer), name in zip(VIEWS.values(), ["Translation", "Captions", "Documents", "Language model", "Reading"]):
        page.click(f"nav >> text={name}")
        page.wait_for_selector(answer)
        assert page.is_hidden(".error")
        wide, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= window == 390, name
    red, green, blue = re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert max(int(red), int(green), int(blue)) < 60


# ---- with the weights of the zoo ----


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.list_models())
def test_every_model_answers_on_a_phone(open_page, site, name):
    path, answer = VIEWS[_shown(name).task]
    page = open_page(f"{site}#/{path}/{name}", width=390, scheme="dark")
    page.wait_for_selector(answer)
    assert page.input_value("#model") == name
    assert page.is_hidden(".error")


@pytest.mark.slow
def test_attention_moves_by_hand(open_page, site):
    start = time.perf_counter()
    page = open_page(site)
    own = changed(page, ".result .text", "")
    print(f"first answer {time.perf_counter() - start:.2f} s after the page was asked for")
    assert own == "Ein Hund rennt im Schnee."
    assert page.is_hidden(".handle")
    page.click(".target button:has-text('rennt')")
    handle = page.locator(".handle")
    assert handle.get_attribute("aria-valuetext").startswith("runs")

    handle.press("ArrowRight")
    assert "rennt" not in changed(page, ".result .text", own)
    assert handle.get_attribute("aria-valuetext") == "in, 100 %"
    assert page.locator(".target .given").get_attribute("aria-pressed") == "true"
    assert page.locator(".result .own del").all_inner_texts() == ["rennt"]
    for word, expected in [("dog", "Hund"), ("snow", "Schnee")]:
        to = page.locator(f".source button:has-text('{word}')").bounding_box()
        handle.hover()
        page.mouse.down()
        page.mouse.move(to["x"] + to["width"] / 2, to["y"] + to["height"] / 2, steps=8)
        page.mouse.up()
        page.wait_for_function(
            "text => document.querySelector('.handle').getAttribute('aria-valuetext') === text", arg=f"{word}, 100 %"
        )
        first = [page.locator(".bars .word").nth(n).inner_text() for n in range(5)]
        print(f"attention on {word}: {', '.join(first)}; {page.inner_text('.result .time')}")
        assert any(expected.startswith(piece) for piece in first)
    assert page.inner_text(".result .text") != own and page.locator(".target .changed").count() > 0
    assert page.inner_text(".result .own").startswith(f"The model’s own: {own}")

    page.click("button:has-text('Uniform')")
    becomes(page, ".editor .share", "13 %")
    page.locator(".editor input >> nth=0").press("End")
    becomes(page, ".editor .share", "100 %")
    page.click(".result .own button")
    assert page.inner_text(".result .text") == own and page.locator(".target .given").count() == 0


@pytest.mark.slow
def test_words_of_the_sentence_are_removed_and_replaced(open_page, site):
    page = open_page(site)
    own = changed(page, ".result .text", "")
    page.click(".source button:has-text('dog')")
    page.fill(".word-tools input", "cat")
    page.press(".word-tools input", "Enter")
    assert "Katze" in changed(page, ".result .text", own)
    page.click(".result .own button")
    page.click(".source button:has-text('snow')")
    page.click(".word-tools >> text=Remove")
    assert "Schnee" not in changed(page, ".result .text", own)
    assert page.locator(".source .struck").all_inner_texts() == ["snow"]
    page.click(".source .struck")
    page.click(".word-tools >> text=Put back")
    becomes(page, ".result .text", own)


@pytest.mark.slow
def test_other_hypotheses_are_picked(open_page, site):
    page = open_page(site)
    own = changed(page, ".result .text", "")
    page.select_option(".ask select", "5")
    page.wait_for_function("() => document.querySelectorAll('.hypotheses button').length === 5")
    second = page.locator(".hypotheses button").nth(1)
    other = second.inner_text()
    second.click()
    assert page.inner_text(".result .text") == other != own
    page.click("summary:has-text('Search tree')")
    page.locator(".tree .ended").last.click()
    third = changed(page, ".result .text", other)
    page.click(".result .own button")
    becomes(page, ".result .text", own)
    page.click(".target button:has-text('rennt')")
    page.click(".bars .word >> nth=1")
    forced = changed(page, ".result .text", own)
    assert third != own and "rennt" not in forced


@pytest.mark.slow
def test_translators_stand_side_by_side(open_page, site):
    page = open_page(site)
    page.wait_for_selector(".result .text")
    for name in ("bahdanau", "transformer_tiny"):
        page.check(f".chip:has-text('{name}') input")
    page.wait_for_function("() => document.querySelectorAll('.side-by-side article').length === 3")
    cards = page.locator(".side-by-side article")
    assert cards.locator("h3").all_inner_texts() == ["luong_general", "bahdanau", "transformer_tiny"]
    assert cards.locator(".heatmap").count() == 3
    entropies = [float(text.split()[0]) for text in cards.locator(".measures strong").all_inner_texts()[::2]]
    assert entropies[0] < entropies[1] < 2.08  # ln 8, of uniform weights


@pytest.mark.slow
def test_heads_are_shown_and_given_weights(open_page, site):
    page = open_page(f"{site}#/translate/{TRANSFORMER}")
    page.wait_for_selector(".result .text")
    assert page.locator(".result select option").count() == 13  # 3 layers of 4 heads, and the mean
    page.click(".target button >> nth=1")
    mean = page.locator(".editor .share").all_inner_texts()
    page.select_option(".result select", "1")
    assert page.locator(".editor .share").all_inner_texts() != mean
    page.click(".editor button.small >> nth=0")
    page.wait_for_selector("text=All heads of all layers use your weights.")
    assert page.locator(".editor .share").first.inner_text() == "100 %"


@pytest.mark.slow
def test_the_verdict_moves_when_words_are_struck_out(open_page, site):
    page = open_page(f"{site}#/documents/han.imdb")
    page.wait_for_selector(".effects")
    own = page.inner_text(".documents .text")
    bar = page.locator(f".labels li:has-text('{own.split()[0]}') meter")
    before = float(bar.get_attribute("value"))
    rows = page.locator(".effects tbody tr")
    promised = [float(row.locator("td").nth(1).inner_text().replace("−", "-")) for row in rows.all()]
    strongest = min(range(len(promised)), key=promised.__getitem__)
    rows.nth(strongest).locator("button").click()
    changed(page, ".documents .text", own)
    assert (float(bar.get_attribute("value")) - before) * 100 == pytest.approx(promised[strongest], abs=0.06)
    page.click(".documents .own button")
    becomes(page, ".documents .text", own)
    page.click("button.sentence >> nth=0")
    page.wait_for_selector("button.sentence.struck")
    assert page.locator(".document .part").first.locator("p .struck").count() > 3
    page.click("button.sentence >> nth=0")
    becomes(page, ".documents .text", own)


@pytest.mark.slow
def test_a_word_looks_where_it_is_painted(open_page, site, tmp_path):
    page = open_page(f"{site}#/captions/{SOFT}")
    page.wait_for_selector(".strip button")
    own = page.inner_text(".board .text")
    page.click(".strip button >> nth=1")
    box = page.locator(".photo").bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.6 * box["height"])
    page.mouse.down()
    page.mouse.up()
    painted = changed(page, ".board .text", own)
    print(f"{own} -> {painted}; {page.inner_text('.board .time')}")
    assert page.locator(".strip .given").count() == 1 and page.locator(".strip .changed").count() > 0
    shown = page.inner_text(".equations")
    page.press(".photo", "ArrowUp")
    assert "yours, instead of" in changed(page, ".equations", shown)
    page.click(".board .own button")
    assert page.inner_text(".board .text") == own
    page.click(f"text=Beside it: {HARD.split('.')[0]}")
    page.wait_for_selector(".board >> nth=1 >> .strip button >> nth=3")
    assert "hard attention" in page.inner_text(".board >> nth=1")


@pytest.mark.slow
def test_photos_are_chosen_uploaded_and_taken(open_page, site, tmp_path):
    page = open_page(f"{site}#/captions/{SOFT}")
    page.wait_for_selector(".strip button")
    beach = page.inner_text(".board .text")
    page.click("text=A dog in the forest")
    dog = changed(page, ".board .text", beach)
    page.click("text=A game of pool")
    own = changed(page, ".board .text", dog)
    print(f"beach: {beach}; dog: {dog}; pool: {own}")
    assert "dog" in dog and "CC BY-SA" in page.inner_text(".ask .muted")
    PIL.Image.new("RGB", (320, 200), "green").save(tmp_path / "green.png")
    page.set_input_files("#photo-file", tmp_path / "green.png")
    green = changed(page, ".board .text", own)
    page.get_by_role("button", name="Camera", exact=True).click()
    page.wait_for_function("() => document.querySelector('video')?.videoWidth > 0")
    page.click("text=Take the photo")
    page.wait_for_selector("text=From the camera")
    assert changed(page, ".board .text", green) and page.locator("video").count() == 0
    (tmp_path / "note.txt").write_text("no photo")
    page.set_input_files("#photo-file", tmp_path / "note.txt")
    page.wait_for_selector("text=note.txt is not an image that this browser can read")


@pytest.mark.slow
def test_a_text_is_scored_and_continued(open_page, site):
    page = open_page(f"{site}#/language")
    page.wait_for_selector(".words button")
    text = page.input_value("#text").split()
    assert page.locator(".words span").all_inner_texts() == [*text, "end of line"]
    sliders = page.locator(".language input[type=range]")
    warmth, _, window = sliders.all()
    warmth.fill("0")
    page.click("text=Continue it")
    page.wait_for_selector(".words .added")
    page.click(".words button >> nth=8")
    assert page.locator(".bars .name").first.inner_text() == f"1 back: {text[6]}"
    weights = page.locator(".bars meter").evaluate_all("bars => bars.map(bar => bar.value)")
    assert len(weights) == 5 and sum(weights) == pytest.approx(1, abs=1e-3)
    continued = page.inner_text(".answer strong")
    warmth.fill("1.5")
    changed(page, ".answer strong", continued)
    warmth.fill("0")
    becomes(page, ".answer strong", continued)
    window.fill("1")  # the model sees no more, so it computes other probabilities
    page.wait_for_function("() => document.querySelectorAll('.bars meter').length === 1")
    assert page.locator(".bars meter").first.evaluate("bar => bar.value") == pytest.approx(1, abs=1e-3)
    page.click("text=Score the words")
    page.wait_for_selector(".perplexity")
    found = re.fullmatch(
        r"Perplexity of this line: ([\d.]+); with the model’s window of 5: ([\d.]+)", page.inner_text(".perplexity")
    )
    assert found and float(found[1]) != float(found[2])
    window.fill("5")
    becomes(page, ".perplexity", f"Perplexity of this line: {found[2]}")
    page.click("text=Continue it")
    page.click("text=Take it over")
    page.wait_for_function("was => document.querySelector('#text').value.length > was", arg=len(" ".join(text)))


@pytest.mark.slow
def test_equations_fit_a_phone(open_page, site):
    """`open_page` compares the page's width with that of the window."""
    page = open_page(f"{site}#/language", width=390)
    page.click(".words button >> nth=5")
    page.wait_for_selector(".equations")
    page = open_page(f"{site}#/reading/{READER}", width=390)
    page.wait_for_selector(".equations")


@pytest.mark.slow
def test_the_code_of_an_equation_can_be_read(open_page, site):
    page = open_page(site)
    page.click(".target button >> nth=0")
    lines = (ROOT / "zoo" / "layers" / "scores.py").read_text(encoding="utf-8").splitlines()
    first = lines.index("class GeneralScore(nn.Module):") + 1
    assert f"zoo/layers/scores.py, line {first}: GeneralScore" in page.inner_text(".computed")
    page.click("summary:has-text('The code')")
    shown = page.inner_text(".excerpt pre").splitlines()
    assert shown[0] == f"{first}{lines[first - 1]}" and "return torch.matmul" in shown[-1]
    page.click(".computed >> text=The model’s card")
    page.wait_for_selector("dialog h2")
    assert page.inner_text("dialog h2") == _shown(FIRST).title


@pytest.mark.slow
def test_a_reader_finds_the_word(open_page, site):
    page = open_page(f"{site}#/reading/{READER}")
    page.wait_for_selector(".answer .text")
    assert page.inner_text(".answer .text") == "John"
    assert page.locator(".framed").all_inner_texts() == ["John"] * 3
    page.click(".labels .word:has-text('Anna')")
    assert page.locator(".framed").all_inner_texts() == ["Anna"] * 3
    assert page.locator(".heatmap rect").count() > 400
    page.fill("#query", "There is no mark here.")
    page.click("button.main")
    page.wait_for_selector(".error:has-text('the query must have XXXXX in place of the missing word')")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colours_are_chosen(open_page, site, scheme):
    page = open_page(site, scheme=scheme)
    page.wait_for_selector(".result .text")
    colour = "getComputedStyle(document.body).backgroundColor"
    of_system = page.evaluate(colour)
    page.select_option("header select", "dark" if scheme == "light" else "light")
    chosen = page.evaluate(colour)
    assert chosen != of_system
    page.reload()
    page.wait_for_selector(".result .text")
    assert page.evaluate(colour) == chosen
