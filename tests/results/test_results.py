"""Results as pages, as parts of a notebook, as tables and as figures."""

import copy
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from matplotlib._pylab_helpers import Gcf
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

import zoo
import zoo.results
from zoo.plots.html import LEVELS, NIGHT, fragment
from zoo.plots.style import contrast
from zoo.results import (
    Alignment,
    Caption,
    Classification,
    Completion,
    DocumentClassification,
    Look,
    Reading,
    Result,
    Translation,
)
from zoo.results.base import rounded

EVIL = "</style><script>alert(1)</script>"
SOURCE, TARGET = ["the", EVIL, "the", '"&'], ["der", "x", "</s>"]
WEIGHTS = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 0.99, 0.0, 0.01], [0.2, 0.2, 0.3, 0.3]])


def rows(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(len(shape))).softmax(-1)


RESULTS = {
    "translation": Translation("der x", -0.5, SOURCE, TARGET, WEIGHTS),
    "alignment": Alignment(SOURCE, TARGET, WEIGHTS, [(0, 0), (1, 1)]),
    "completion": Completion(f"the cat {EVIL}", EVIL, -1.0, ["the", "cat", EVIL, "the"], 2, rows(4, 2), []),
    "caption": Caption(EVIL, -1.0, [EVIL, "dog", "</s>"], rows(3, 2, 2), image=Image.new("RGB", (30, 20))),
    "classification": Classification("b", ["b"], {"a": 0.4, "b": 0.6}, [SOURCE, ["x"]], [rows(2, 4), rows(2, 1)]),
    "document": DocumentClassification(
        EVIL,
        [EVIL, "b"],
        {"a": 0.1, "b": 0.8, EVIL: 0.9},
        [SOURCE, ["x"]],
        torch.tensor([0.7, 0.3]),
        [rows(4), rows(1)],
    ),
    "reading": Reading("the", {"the": 0.9, EVIL: 0.1}, SOURCE, rows(4), ["who", "?"], rows(2)),
}
BARE = {
    "translation": Translation("der x", -0.5, SOURCE, TARGET, None),
    "nothing": Translation("", 0.0, [], [], None),
    "alignment": Alignment([], ["x"], torch.zeros(1, 0), []),
    "completion": Completion("the cat", "cat", -1.0, ["the", "cat"], 1, None, []),
    "no words": Completion("", "", -1.0, [], 0, rows(0, 2), []),
    "photo": Caption("a dog", -1.0, ["a", "dog"], rows(2, 2, 2)),
    "no caption": Caption("", -1.0, ["</s>"], rows(1, 2, 2), image=Image.new("RGB", (3, 2))),
    "classification": Classification("b", ["b"], {"a": 0.4, "b": 0.6}, [[], ["x"]], [rows(1, 0), rows(1, 1)]),
    "document": DocumentClassification(None, [], {"a": 0.4}, [], torch.zeros(0), []),
}
each = pytest.mark.parametrize("name", RESULTS)


def test_a_page_of_what_is_no_result():
    with pytest.raises(TypeError, match="zoo.page takes what the verbs of models answer; got str"):
        zoo.page(["a"])
    with pytest.raises(TypeError, match="zoo.page takes what the verbs of models answer; got float"):
        zoo.page(3.2)
    with pytest.raises(TypeError, match="title must be a string; got int"):
        zoo.page(RESULTS["caption"], title=5)


@each
def test_a_title_is_a_string(name, tmp_path):
    for write in (RESULTS[name].plot, RESULTS[name].to_html):
        with pytest.raises(TypeError, match="title must be a string; got list"):
            write(tmp_path / "a.png", title=["a"])


@each
def test_equality_compares_values(name):
    result = RESULTS[name]
    assert result == copy.deepcopy(result) and result != replace(result, confidence=0.5) and result != name
    field = next(key for key, value in vars(result).items() if isinstance(value, torch.Tensor) or key == "attention")
    value = getattr(result, field)
    other = value / 2 if isinstance(value, torch.Tensor) else [part / 2 for part in value]
    assert result != replace(result, **{field: other})
    with pytest.raises(TypeError, match="unhashable"):
        hash(result)


def test_attention_of_all_layers_is_equal_by_value():
    look = Look(["a"], ["b", "</s>"], rows(1, 1, 1, 1), rows(1, 1, 2, 2), rows(1, 1, 2, 1))
    assert look == copy.deepcopy(look) and look != replace(look, decoder=look.decoder / 2)


class Page(HTMLParser):
    """Checks that tags are nested; has all tags with their attributes, all text, and the words of lines to point at."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text, self.style, self.words = [], [], "", "", []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append((tag, dict(attrs)))
        if self.in_line() and tag == "span":
            self.words.append(["", dict(attrs)])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1][0] == "style":
            self.style += data
            return
        self.text += data
        if self.in_line() and self.open[-1][0] == "span":
            self.words[-1][0] += data

    def in_line(self):
        return any(attributes.get("class") == "text ask" for _, attributes in self.open)

    def shades(self):
        """The levels of the shades: {(word, word that is pointed at): level}, words by the first of their classes."""
        found = {}
        for _, attributes in self.words:
            word, *kinds = attributes["class"].split()
            shades = re.findall(r"--(\w+):var\(--s(\d+)\);--on-\1:var\(--t\2\)", attributes.get("style", ""))
            assert not re.search(rf"^\.{word}\b", self.style, re.M), "no other rule acts on the word"
            assert [kind for kind in kinds if kind != "own"] == [f"of-{place}" for place, _ in shades]
            found |= {(word, place): int(level) for place, level in shades}
        return found

    def tip(self, word):
        (tip,) = (a["data-tip"] for _, a in self.words if a["class"].split()[0] == word)
        return tip

    def ids(self):
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]


@each
def test_pages_stand_alone(name):
    page, part = (Page(text) for text in (RESULTS[name].to_html(), RESULTS[name]._repr_html_()))
    for found in (page, part):
        assert EVIL in found.text or name == "alignment" and EVIL in str(found.words)
        assert not {"script", "link", "iframe", "a"} & {tag for tag, _ in found.tags}
        for _, attributes in found.tags:
            assert not {"onclick", "onload", "href"} & attributes.keys()
            assert attributes.get("src", "data:image/").startswith("data:image/")
        assert found.tags.count(("style", {})) == 1 and "%(" not in found.style and "url(" not in found.style
    assert [tag for tag, _ in page.tags][:2] == ["html", "head"] and page.ids() == []
    assert part.tags[0] == ("div", {"class": "attention-zoo"}) and "h1" not in dict(part.tags)


@each
def test_a_notebook_may_show_it_twice(name):
    """No id, and no rule that acts on anything else in the notebook."""
    text = RESULTS[name]._repr_html_()
    assert Page(text + text).ids() == []
    start, rest = Page(text).style.strip().split("\n", 1)
    assert start == ".attention-zoo.attention-zoo {"
    depth = 1
    for character in rest[:-1]:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth > 0
    assert rest.endswith("}") and depth == 1


def test_pointing_at_a_word_of_a_translation_shades_by_its_weights():
    page = Page(RESULTS["translation"].to_html())
    assert [word for word, _ in page.words] == SOURCE + TARGET
    assert all(attributes["tabindex"] == "0" for _, attributes in page.words)
    want = {}
    for t, row in enumerate(WEIGHTS.tolist()):
        for s, weight in enumerate(row):
            if level := round(LEVELS * weight):
                want |= {(f"a{s}", f"b{t}"): level, (f"b{t}", f"a{s}"): level}
    assert page.shades() == want
    assert page.tip("b1") == f'x: {EVIL} 0.990 · "& 0.010 · the 0.000 · the 0.000'
    assert page.tip("a3") == '"&: </s> 0.300 · x 0.010 · der 0.000'
    for word in ("a0", "a3", "b0", "b2"):
        rule = f".look:has(.{word}:hover) .of-{word}, .look:not(:has(span:hover)):has(.{word}:focus) .of-{word}"
        assert page.style.count(f"{rule} {{ background: var(--{word}); color: var(--on-{word}) }}\n") == 1
    assert ".a4:hover" not in page.style and ".b3:hover" not in page.style


def test_pointing_at_a_word_of_a_completion_shades_what_it_was_predicted_from():
    attention = torch.tensor([[0.0, 0.0], [0.8, 0.0], [0.3, 0.5], [0.2, 0.6]])
    page = Page(Completion("", "", 0.0, ["the", "cat", "sat", "down"], 2, attention, []).to_html())
    assert [word for word, _ in page.words] == ["</s>", "the", "cat", "sat", "down"]
    # "cat" (2) was predicted from the output after </s> (0), "sat" (3) from 1 and 0, "down" (4) from 2 and 1
    weights = {("w0", "w2"): 0.8, ("w1", "w3"): 0.3, ("w0", "w3"): 0.5, ("w2", "w4"): 0.2, ("w1", "w4"): 0.6}
    assert page.shades() == {place: round(LEVELS * weight / 0.8) for place, weight in weights.items()}
    assert [word for word, a in page.words if "own" in a["class"].split()] == ["sat", "down"]
    assert page.tip("w4") == "down: the 0.600 (−2) · cat 0.200 (−1); on average 1.8 steps back"
    assert page.tip("w1") == "the: looked at no earlier word"
    assert page.style.count(".look:has(.w4:hover) .of-w4") == 1


def test_scales_say_their_maximum():
    for name, top in {"translation": "1", "alignment": "1", "completion": f"{rows(4, 2).max():.2g}"}.items():
        (scale,) = re.findall('<span class="ramp"></span>(.*?)</span>', RESULTS[name].to_html())
        assert scale == top
    tops = [f"{float(cells.max()):.3f}" for cells in RESULTS["caption"].attention[:2]]
    assert [a["data-top"] for _, a in Page(RESULTS["caption"].to_html()).words] == tops


@pytest.mark.parametrize(("predicted", "shown"), [(1, 5), (0, 5), (7, 7)])
def test_of_many_labels_the_best_are_shown(predicted, shown):
    probabilities = {f"l{n}": n / 100 for n in range(90)}
    best = [f"l{89 - n}" for n in range(90)]
    result = DocumentClassification(None, best[:predicted], probabilities, [["text"]], torch.ones(1), [torch.ones(1)])
    page = result.to_html()
    first, rest = page.split("<details")
    assert first.index(">text<") < first.index("<table>")
    assert re.findall('<th scope="row">(.*?)</th>', first) == best[:shown]
    assert re.findall('<th scope="row">(.*?)</th>', rest) == best[shown:] and f"{90 - shown} more" in rest
    assert re.findall('<tr class=chosen><th scope="row">(.*?)</th>', page) == best[:predicted]


@pytest.mark.parametrize("chosen", [[], ["b"], ["b", "a"]])
def test_without_words_the_chosen_labels_are_bold_too(chosen):
    answer = (chosen[0] if chosen else None), chosen, {"a": 0.6, "b": 0.7, "c": 0.1}
    for result in (
        Classification(*answer, [[], ["x"]], [rows(1, 0), rows(1, 1)]),
        DocumentClassification(*answer, [], torch.zeros(0), []),
    ):
        bold = re.findall('<tr class=chosen><th scope="row">(.*?)</th>', result.to_html())
        assert sorted(bold) == sorted(chosen)


@pytest.mark.parametrize("name", BARE)
def test_without_attention_the_text_remains(name):
    result = BARE[name]
    for found in (Page(result._repr_html_()), Page(result.to_html())):
        assert re.search("no attention|no words|without its photo", found.text)
        assert not found.words and result.line().partition(" ")[0] in found.text


def test_several_results_make_one_linked_page(tmp_path):
    path = zoo.page([*RESULTS.values(), *RESULTS.values()], tmp_path / "all.html", title="All <of> it")
    page = Page(path.read_text(encoding="utf-8"))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links == [f"#{name}" for name in page.ids()] and len({*links}) == 2 * len(RESULTS)
    assert "All <of> it" in page.text and [tag for tag, _ in page.tags].count("h1") == 1
    assert page.tags.count(("style", {})) == 1 and page.style.count(".look:has(.a0:hover)") == 1
    one = RESULTS["reading"]
    assert zoo.page(one) == zoo.page([one]) == one.to_html() and "<nav>" not in zoo.page(one)
    page = Page(zoo.page(one, title="All <of> it"))
    assert page.text.count("All <of> it") == 2  # in the name of the window, and above the answer
    assert [tag for tag, _ in page.tags if tag in ("h1", "h2")][:2] == ["h1", "h2"] and one.line().split()[
        0
    ] in page.text
    with pytest.raises(ValueError, match="a page needs at least one result"):
        zoo.page([])


def pages_of(result):
    """The result in all kinds of pages, without and with a title."""
    both = zoo.page([result, RESULTS["alignment"]])
    return [result.to_html(), result._repr_html_(), fragment(result.section("model")), both]


@pytest.mark.parametrize("result", [r for r in (*RESULTS.values(), *BARE.values()) if not isinstance(r, Alignment)])
def test_pages_show_confidence_and_warnings_below_the_answer(result):
    for text in pages_of(result):
        assert 'class="trust"' not in text and "confidence" not in Page(text).text
    for text in pages_of(replace(result, confidence=0.0649)):
        assert re.search(r'</(h1|h2|div)>\n<div class="trust"><p class="n">confidence 0.06</p></div>\n', text)
        assert text.count('class="trust"') == 1
    for text in pages_of(replace(result, warnings=[f"2 of 3 words {EVIL}", "another language"])):
        page = Page(text)
        assert "script" not in {tag for tag, _ in page.tags} and "confidence" not in page.text
        assert f"warning: 2 of 3 words {EVIL}warning: another language\n" in page.text
        assert page.tags.count(("p", {"class": "warning"})) == 2


def test_the_mark_of_a_warning_is_seen_on_light_and_dark_screens():
    style = Page(RESULTS["reading"].to_html()).style
    assert "border-inline-start: 3px solid var(--warning)" in style
    ((light, dark),) = re.findall(r"--warning: light-dark\((#\w{6}), (#\w{6})\);", style)
    assert contrast(light, "#ffffff") >= 3 and contrast(dark, NIGHT[0]) >= 3  # WCAG 2 on marks that are not text


def test_a_table_of_contents_is_short():
    fits, long = "a" * 60, "<b> " * 16
    results = [Translation(text, -0.5, SOURCE, TARGET, WEIGHTS) for text in (fits, long, "")]
    nav = zoo.page(results).partition("<nav>")[2].partition("</nav>")[0].strip().splitlines()
    cut = ("&lt;b&gt; " * 15)[:-1] + "…"  # 59 characters, the last a blank
    assert nav == [f'<p><a href="#result-{n}">{n}. {text}</a></p>' for n, text in enumerate((fits, cut, "(empty)"), 1)]
    whole = "&lt;b&gt; " * 16
    assert f'<h2 class="head">2. {whole}</h2>' in zoo.page(results)


@each
def test_a_figure_without_a_file(name):
    figure = RESULTS[name].plot(title="model · $x$")
    assert isinstance(figure, Figure) and Gcf.get_all_fig_managers() == [], "pyplot does not know it"
    written = " ".join(text.get_text() for text in figure.findobj(Text))
    assert "model · $x$" in written.replace(r"\$", "$").replace("model  ·", "model ·")


@pytest.mark.parametrize("name", ["alignment", "reading"])
def test_a_notebook_shows_what_a_file_would_have(name, tmp_path):
    result = RESULTS[name]
    content, size = result.plot(title="model · $x$")._repr_png_()
    assert content.startswith(b"\x89PNG") and 100 < size["width"] < 1200
    assert result.plot(tmp_path / "a.png", title="model · $x$") == tmp_path / "a.png"
    assert (tmp_path / "a.png").read_bytes() == content


def test_heads_without_a_file():
    look = Look(["a", "b"], ["c"], rows(1, 2, 2, 2), rows(1, 2, 1, 1), rows(1, 2, 1, 2))
    names = {part: look.plot(part=part).axes[0].get_xlabel() for part in ("encoder", "decoder", "cross")}
    assert names == {"encoder": "source", "decoder": "target", "cross": "source"}
    assert look.plot(part="encoder").axes[0].get_ylabel() == "source"


def test_a_heat_map_names_its_axes_and_its_input():
    axes = RESULTS["translation"].plot(title="model · " + "a long input " * 5).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("source", "target")
    assert "\n" in axes.get_title(loc="left") and " ".join(axes.get_title(loc="left").split()).endswith("long input")


# ---- tables ----


def test_a_table_of_pairs_gives_the_matrix_back():
    for name in ("translation", "alignment"):
        table = RESULTS[name].to_pandas()
        assert list(table) == ["target_position", "target", "source_position", "source", "weight"] and len(table) == 12
        matrix = table.pivot(
            index=["target_position", "target"], columns=["source_position", "source"], values="weight"
        )
        assert torch.equal(torch.tensor(matrix.to_numpy().copy()), WEIGHTS.double())
        assert [word for _, word in matrix.columns] == SOURCE and [word for _, word in matrix.index] == TARGET


def test_a_table_of_a_completion():
    result = RESULTS["completion"]
    table = result.to_pandas()
    assert len(table) == 1 + 2 + 2  # before the first word there is none, before the second one
    read = ["</s>", *result.tokens]
    for row in table.itertuples():
        assert row.word == result.tokens[row.position] and row.seen == read[row.seen_position + 1]
        assert row.back == row.position - row.seen_position - 1
        assert row.weight == float(result.attention[row.position, row.back - 1])


def test_tables_of_the_others():
    table = RESULTS["caption"].to_pandas()
    for row in table.itertuples():
        assert row.weight == float(RESULTS["caption"].attention[row.position, row.row, row.column])
    assert len(table) == 12 and table.word[4] == "dog"

    result = RESULTS["classification"]
    table = result.to_pandas()
    assert len(table) == 2 * 4 + 2 * 1 and list(table.word)[:4] == SOURCE
    for row in table.itertuples():
        assert row.weight == float(result.attention[row.text][row.hop, row.position])

    table = RESULTS["document"].to_pandas()
    assert list(table.word) == [*SOURCE, "x"] and list(table.sentence) == [0, 0, 0, 0, 1]
    assert table.groupby("sentence").weight.sum().tolist() == pytest.approx([1, 1])
    assert table.drop_duplicates("sentence").sentence_weight.tolist() == pytest.approx([0.7, 0.3])

    table = RESULTS["reading"].to_pandas()
    assert table.groupby("part").weight.sum().to_dict() == pytest.approx({"document": 1, "query": 1})
    assert list(table[table.part == "query"].word) == ["who", "?"]


def test_no_table_without_attention_or_pandas(monkeypatch):
    with pytest.raises(ValueError, match="this model has no attention"):
        BARE["translation"].to_pandas()
    for ask in (BARE["nothing"].to_pandas, BARE["nothing"].plot):
        with pytest.raises(ValueError, match="^an empty translation has no attention to plot or tabulate; translate"):
            ask()
    assert len(BARE["alignment"].to_pandas()) == 0
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError) as caught:
        RESULTS["translation"].to_pandas()
    assert str(caught.value) == 'to_pandas() needs pandas; install with: pip install "pandas>=2.0"'


# ---- the rest ----


def test_rounding_is_that_of_python():
    weights = torch.cat([torch.rand(500), torch.arange(65) / 64, torch.rand(9).bfloat16()]).view(2, -1)
    for digits in (4, 5):
        assert rounded(weights, digits) == [[round(w, digits) for w in row] for row in weights.tolist()]
    assert rounded(torch.zeros(0, 3)) == [] and rounded(torch.zeros(1, 0)) == [[]]


def test_a_result_prints_on_one_line():
    assert repr(RESULTS["translation"]) == "Translation('der x')"
    trusted = replace(RESULTS["translation"], confidence=0.987)
    assert repr(trusted) == "Translation('der x', confidence=0.99)"
    assert repr(replace(trusted, warnings=["few words"])) == (
        "Translation('der x', confidence=0.99, warnings=['few words'])"
    )
    assert repr(RESULTS["alignment"]) == "Alignment('0-0 1-1')"
    assert repr(RESULTS["classification"]) == "Classification('b 0.6000')"
    assert repr(BARE["document"]) == "DocumentClassification('no label')"
    assert repr(replace(RESULTS["completion"], text="a\n" * 40)) == "Completion('" + r"a\n" * 40 + "')"
    assert repr(replace(RESULTS["caption"], text="b" * 81)) == f"Caption('{'b' * 79}…')"
    for result in (*RESULTS.values(), *BARE.values()):
        assert "tensor" not in repr(result) and "\n" not in repr(result) and len(repr(result)) < 120
    look = Look(["a"], ["b"], *[rows(1, 1, 1, 1)] * 3)
    assert repr(look) == "Look(source_tokens=['a'], target_tokens=['b'])"


def test_types_are_exported():
    for name in zoo.results.__all__:
        assert name in dir(zoo.results) and getattr(zoo.results, name).__module__.startswith("zoo.results")
    assert zoo.results.page is zoo.page
    assert all(isinstance(result, Result) for result in (*RESULTS.values(), *BARE.values()))
    with pytest.raises(AttributeError, match="module 'zoo.results' has no attribute 'Summary'"):
        zoo.results.Summary
