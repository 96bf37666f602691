"""HTML pages: well-formed, complete, closed to the outside, darker with the weight."""

import re
from html.parser import HTMLParser

import pytest
import torch

from zoo.plots import document_html, hops_html
from zoo.plots.html import LEVELS, NIGHT
from zoo.plots.style import shade

VOID = {"meta", "br", "hr"}
SENTENCES = [["Warm", "soup", "&amp;", "<script>alert(1)</script>", "'\"", "$5"], ["жизнь", "日本", "", "x\x00y"]]
WORDS = [["Warm", "soup", "&amp;", "<script>alert(1)</script>", "'\"", "$5"], ["жизнь", "日本", "␣", "x�y"]]
OUTER, INNER = [0.75, 0.25], [[0.1, 0.2, 0.3, 0.15, 0.05, 0.2], [0.4, 0.3, 0.2, 0.1]]


class Page(HTMLParser):
    """Checks that tags are nested, and collects the words of each text as (word, level, title)."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts, self.words = [], [], [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.attributes.append((tag, attrs))
        if tag not in VOID:
            self.open.append((tag, attrs))
        if attrs.get("class") == "text":
            self.words.append([])
        if self.in_text() and tag == "span":
            self.words[-1].append(["", int(attrs["class"][1:]), attrs["title"]])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1][0] != "style":
            self.texts.append(data.strip())
        if self.in_text() and self.open[-1][0] == "span":
            self.words[-1][-1][0] += data

    def in_text(self):
        return any(attrs.get("class") == "text" for _, attrs in self.open)

    def bars(self):
        parts = [attrs["style"] for _, attrs in self.attributes if attrs.get("class") == "bar"]
        return [float(re.fullmatch(r"--part:([\d.e-]+)%", part)[1]) for part in parts]


def documents():
    return document_html(SENTENCES, OUTER, INNER, "Soup <b> & more", {"bad": 0.25, "good & cheap": 0.75})


def hops(r, n=20):
    attention = torch.randn(r, n, generator=torch.Generator().manual_seed(r)).softmax(1)
    return [f"t{i}" for i in range(n)], attention


PAGES = {
    "document": documents,
    "hops": lambda: hops_html([SENTENCES[0]], [torch.rand(3, 6)], "</title><script>", {"<i>": 1.0}, ["<u>"]),
}


@pytest.mark.parametrize("name", PAGES)
def test_pages_stand_alone(name):
    text = PAGES[name]()
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>") and page.tags.count("html") == page.tags.count("h1") == 1
    assert text.encode()  # no lone surrogate is left
    for outside in (
        "http",
        "//",
        "url(",
        "@import",
        "src=",
        "href=",
        "<script",
        "<link",
        "<b>",
        "<i>",
        "<u>",
        "onclick",
    ):
        assert outside not in text.lower()
    assert ("meta", {"charset": "utf-8"}) in page.attributes
    assert "color-scheme: light dark" in text and "%(" not in text
    for level in range(1, LEVELS + 1):
        for name in (f"s{level}", f"t{level}"):  # background and text, each for light and dark
            (pair,) = re.findall(rf"^--{name}: light-dark\((#\w{{6}}), (#\w{{6}})\);$", text, re.M)
            assert name[0] == "t" or pair == (shade(level / LEVELS), shade(level / LEVELS, NIGHT))
        assert text.count(f"\n.s{level} {{ background: var(--s{level}); color: var(--t{level}) }}\n") == 1


def test_each_word_once_in_order_with_its_weight():
    page = Page(documents())
    assert [[word for word, _, _ in words] for words in page.words] == WORDS
    assert [[float(title) for _, _, title in words] for words in page.words] == INNER


def test_levels_are_weight_times_root_of_sentence_weight():
    shown = [weight * outer**0.5 for outer, inner in zip(OUTER, INNER) for weight in inner]
    levels = [level for words in Page(documents()).words for _, level, _ in words]
    assert levels == [round(LEVELS * weight / max(shown)) for weight in shown]
    assert max(levels) == LEVELS


def test_bars_and_headings():
    page = Page(documents())
    assert page.bars() == pytest.approx([100, 100 / 3, 25, 75], rel=1e-3)  # sentences, then probabilities
    assert {"Soup <b> & more", "bad", "25.0%", "good & cheap", "75.0%", "0.750", "0.250"} <= set(page.texts)
    best = [attrs for tag, attrs in page.attributes if tag == "tr"]
    assert best == [{}, {"class": "chosen"}]
    assert "table" not in Page(document_html([["a"]], [1.0], [[1.0]], "", {})).tags


@pytest.mark.parametrize("r", [2, 4, 5, 30])
def test_the_sum_and_each_hop(r):
    tokens, attention = hops(r)
    page = Page(hops_html([tokens], [attention], "Hops", {}))
    assert [[word for word, _, _ in words] for words in page.words] == [tokens] * (r + 1)
    weights = torch.tensor([[float(title) for _, _, title in words] for words in page.words])
    torch.testing.assert_close(weights, torch.cat([attention.sum(0, keepdim=True) / r, attention]), rtol=1e-3, atol=0)
    levels = torch.tensor([[level for _, level, _ in words] for words in page.words])
    for part in (slice(0, 1), slice(1, None)):  # one scale for the sum, one for all hops
        ranked = levels[part].flatten()[weights[part].flatten().argsort()]
        assert (ranked.diff() >= 0).all() and ranked[-1] == LEVELS
    details = [attrs for tag, attrs in page.attributes if tag == "details"]
    assert details == [{"open": None} if r <= 4 else {}] * r
    best = attention[0].argsort(descending=True)[:3]
    assert ", ".join(tokens[i] for i in best) in page.texts


def test_one_hop_is_no_sum():
    page = Page(hops_html([["a", "b"]], [[[0.25, 0.75]]], "One", {}))
    assert page.words == [[["a", 11, "0.25"], ["b", 32, "0.75"]]]
    assert "details" not in page.tags and "attention" in page.texts


def test_a_pair_of_texts():
    (first, a), (second, b) = hops(2, 7), hops(2, 4)
    page = Page(hops_html([first, second], [a, b], "Pair", {}, ["premise", "hypothesis"]))
    assert [[word for word, _, _ in words] for words in page.words] == [first] * 3 + [second] * 3
    assert page.tags.count("section") == 2 and {"premise", "hypothesis"} <= set(page.texts)


def test_a_masked_text_has_no_shade():
    page = Page(hops_html([["a", "b"]], [torch.zeros(2, 2)], "", {}))
    assert {level for words in page.words for _, level, _ in words} == {0}


@pytest.mark.parametrize("wrong", [1.5, -0.5, float("nan")])
def test_wrong_probabilities(wrong):
    with pytest.raises(ValueError, match=f"probabilities must be between 0 and 1; got {wrong:g}"):
        document_html([["a"]], [1.0], [[1.0]], "", {"x": wrong})


def test_wrong_weights():
    with pytest.raises(ValueError, match=r"a weight for each of the 1 sentences; got shape \(2,\)"):
        document_html([["a"]], [0.5, 0.5], [[1.0]], "", {})
    with pytest.raises(ValueError, match=r"a column for each of the 1 tokens of text 1; got shape \(1, 2\)"):
        hops_html([["a"]], [[[0.5, 0.5]]], "", {})
