"""Pictures of readings: candidates, query and document, darker with their weight, in a file of limited size."""

import matplotlib.image
import pytest
import torch

from zoo.plots import reading_html, reading_picture, style


def reading(words, asked=5):
    document, query = [f"w{n}" for n in range(words)], [f"q{n}" for n in range(asked)]
    torch.manual_seed(0)
    weights, query_weights = (torch.randn(n).mul(2).softmax(0) for n in (words, asked))
    return document, weights, query, query_weights, {f"w{n}": float(weights[n]) for n in range(min(words, 20))}


@pytest.mark.parametrize("words", [1, 150])
def test_everything_is_drawn_once(tmp_path, drawn, words):
    document, weights, query, query_weights, probabilities = reading(words)
    path = reading_picture(tmp_path / "a.png", document, weights, query, query_weights, probabilities, title="Who?")
    texts = [text.get_text() for text in drawn[0].axes[0].texts]
    named = sorted(probabilities, key=probabilities.get)[::-1][:10]
    for word in document + query + ["Who?", "query", "document"]:
        assert texts.count(word) == 1 + (word in named), word
    assert max(matplotlib.image.imread(path).shape[:2]) <= 8001


def test_the_heaviest_word_is_the_darkest(tmp_path, drawn):
    reading_picture(tmp_path / "a.png", ["a", "b", "c"], [0.1, 0.7, 0.2], ["q"], [1.0], {})
    faces = [patch for collection in drawn[0].axes[0].collections for patch in collection.get_facecolors()]
    assert len(faces) == 4 and min(range(3), key=lambda n: faces[1:][n][:3].sum()) == 1


def test_a_long_document_keeps_its_heaviest_lines(tmp_path, drawn, monkeypatch):
    monkeypatch.setattr(style, "MAX_PIXELS", 900)
    document, weights, query, query_weights, _ = reading(700)
    heaviest = document[int(weights.argmax())]
    path = reading_picture(tmp_path / "a.png", document, weights, query, query_weights, {})
    texts = [text.get_text() for text in drawn[0].axes[0].texts]
    assert heaviest in texts and any("words are left out" in text for text in texts)
    assert max(matplotlib.image.imread(path).shape[:2]) <= 901


def test_pages(tmp_path):
    arguments = reading(50)
    page = reading_html(*arguments, title="Who & what?")
    assert "<h1>Who &amp; what?</h1>" in page and page.count("<tr") == 10 and "<h2>query</h2>" in page
    without = reading_html(*arguments[:3], None, {}, "-")
    assert "<table>" not in without and ">w49<" in without
    query, document = without.split("<main>")[1].split("<h2>document</h2>")
    assert "scale" in document and "title=" in document  # a query without weights shows none, as in the picture
    assert "scale" not in query and "title=" not in query and arguments[2][0] in query


@pytest.mark.parametrize(
    "draw", [lambda *args: reading_picture("a.png", *args), lambda *args: reading_html(*args, "title")]
)
def test_mistakes(draw, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="each of the 2 tokens of text 2; got shape"):
        draw(["a", "b"], [1.0], ["q"], [1.0], {})
    with pytest.raises(ValueError, match="must be finite and not negative; got -1"):
        draw(["a"], [-1.0], ["q"], None, {})
    with pytest.raises(ValueError, match="there are no tokens or no hops to plot in text 1"):
        draw(["a"], [1.0], [], None, {})
    with pytest.raises(TypeError, match="got a string in place of such a list"):
        draw("ab", [0.5, 0.5], ["q"], None, {})
