"""Pictures of documents: every word once, where it can be read, darker with its weight, in a file of limited size."""

import warnings
import xml.etree.ElementTree as ElementTree

import matplotlib.image
import pytest
import torch

from zoo.plots import document_picture
from zoo.plots.page import SIZE
from zoo.plots.style import contrast

WORDS = "The waiter forgot our soup , yet the größte garden с музыкой cost $5 _ ^ {x} \\frac | παρακαλώ !".split()


def document(count, length, seed=0):
    """A document whose words all differ, with random weights."""
    generator = torch.Generator().manual_seed(seed)
    sentences = [[f"{WORDS[(s + w) % len(WORDS)]}{s}.{w}" for w in range(length)] for s in range(count)]
    outer = torch.rand(count, generator=generator).softmax(0)
    return sentences, outer, [(3 * torch.randn(length, generator=generator)).softmax(0) for _ in range(count)]


def words_of(figure, sentences):
    """The text objects that are words, in drawing order."""
    known = {word for sentence in sentences for word in sentence}
    return [text for text in figure.axes[0].texts if text.get_text() in known and text.get_fontsize() == SIZE]


def texts_of(figure):
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize(("count", "length"), [(3, 12), (30, 12), (1, 400), (1, 1)])
def test_each_word_is_drawn_once_on_the_page_and_over_no_other(tmp_path, drawn, count, length):
    arguments = document(count, length)
    path = document_picture(tmp_path / "a.png", *arguments, title="Two stars")
    assert path == tmp_path / "a.png"
    words = words_of(drawn[0], arguments[0])
    assert [word.get_text() for word in words] == sum(arguments[0], [])
    boxes = [word.get_window_extent() for word in words]
    width, height = drawn[0].bbox.size
    assert all(box.x0 > 0 and box.x1 < width and box.y0 > 0 and box.y1 < height for box in boxes)
    baselines = [word.get_position()[1] for word in words]
    for left, right, y, z in zip(boxes, boxes[1:], baselines, baselines[1:]):
        assert z > y or (z == y and left.x1 < right.x0)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_formats(tmp_path, suffix):
    path = document_picture(tmp_path / f"a.{suffix}", *document(2, 5))
    assert path.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])


def test_words_in_an_svg_are_text(tmp_path, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    document_picture(tmp_path / "a.svg", [WORDS], [1.0], [[1 / len(WORDS)] * len(WORDS)], title="A & $B$")
    texts = [text.strip() for text in ElementTree.parse(tmp_path / "a.svg").getroot().itertext()]
    assert [text for text in texts if text in WORDS] == WORDS and "$B$" in texts


def test_the_picture_is_not_blank(tmp_path):
    image = matplotlib.image.imread(document_picture(tmp_path / "a.png", *document(3, 12)))[..., :3]
    assert 0.01 < (image < 0.99).any(-1).mean() < 0.5


def test_words_are_darker_with_their_weight(tmp_path, drawn):
    weights = torch.arange(1.0, 51) / 1275
    document_picture(tmp_path / "a.png", [[f"w{n}" for n in range(50)]], [1.0], [weights])
    (boxes,) = [c for c in drawn[0].axes[0].collections if len(c.get_paths())]
    colours = [matplotlib.colors.to_hex(colour) for colour in boxes.get_facecolor()]
    depths = [contrast(colour, "#ffffff") for colour in colours]
    assert len(depths) == 50 and depths == sorted(depths) and len(set(depths)) == 50
    assert colours[-1] == "#0a3a5f"  # the heaviest word is the dark end of the scale
    text = [word.get_color() for word in drawn[0].axes[0].texts if word.get_fontsize() == SIZE]
    assert all(contrast(ink, colour) >= 4.5 for ink, colour in zip(text, colours))


def test_bars_are_longer_with_the_weight_of_the_sentence(tmp_path, drawn):
    outer = [0.1, 0.2, 0.3, 0.4]
    document_picture(tmp_path / "a.png", [["a"]] * 4, outer, [[1.0]] * 4)
    bars = [patch for patch in drawn[0].axes[0].patches if patch.get_height() == 9.5]
    assert [bar.get_width() / bars[-1].get_width() for bar in bars] == pytest.approx([w / 0.4 for w in outer])
    assert [text for text in texts_of(drawn[0]) if text.endswith("00")] == ["0.100", "0.200", "0.300", "0.400"]


def test_a_masked_document_is_white(tmp_path, drawn):
    document_picture(tmp_path / "a.png", [["a", "b"], []], [0.0, 0.0], [[0.0, 0.0], []])
    assert not any(len(c.get_paths()) for c in drawn[0].axes[0].collections)
    assert {"a", "b"} <= set(texts_of(drawn[0]))


def test_the_lightest_sentences_of_a_long_document_are_left_out(tmp_path, drawn, monkeypatch):
    monkeypatch.setattr("zoo.plots.style.MAX_PIXELS", 1000)
    sentences, outer, inner = document(70, 4)
    path = document_picture(tmp_path / "a.png", sentences, outer, inner, title="Long")
    height, width, _ = matplotlib.image.imread(path).shape
    assert width < height <= 1000
    shown = {word.get_text() for word in words_of(drawn[0], sentences)}
    kept = [s for s in range(70) if shown & set(sentences[s])]
    assert 30 < len(kept) < 70 and all(set(sentences[s]) <= shown for s in kept)
    gone = sorted(set(range(70)) - set(kept))
    assert max(outer[gone]) <= min(outer[kept])
    note = f"{len(gone)} of 70 sentences are left out (…): the least important ones"
    assert f"{note}, with {outer[gone].sum():.2g} of the weight" in texts_of(drawn[0])
    gaps = sum(s > 0 and s - 1 in gone for s in kept)
    assert texts_of(drawn[0]).count("…") == gaps > 0


def test_the_lightest_lines_of_a_long_sentence_are_left_out(tmp_path, drawn, monkeypatch):
    monkeypatch.setattr("zoo.plots.style.MAX_PIXELS", 1000)
    sentences, outer, inner = document(2, 1000)
    inner[1][990] = 0.5
    path = document_picture(tmp_path / "a.png", sentences, [0.2, 0.8], inner)
    assert max(matplotlib.image.imread(path).shape) <= 1000
    words = [word.get_text() for word in words_of(drawn[0], sentences)]
    assert words == [word for word in sentences[1] if word in set(words)] and sentences[1][990] in words
    texts = texts_of(drawn[0])
    assert "1 of 2 sentences are left out (…): the least important ones, with 0.2 of the weight" in texts
    assert any(text.startswith(f"{1000 - len(words):,} of 1,000 words are left out (…)") for text in texts)


def test_letters_that_no_font_has_are_boxes_with_one_warning(tmp_path, drawn):
    message = r"no installed font has 3 of the characters \(first: U\+E0101, U\+F0000, U\+F0001\)"
    with pytest.warns(UserWarning, match=message) as caught:
        document_picture(tmp_path / "a.png", [["a\U000f0000"], ["\U000f0001b\U000e0101"]], [0.5, 0.5], [[1.0], [1.0]])
    assert len(caught) == 1 and caught[0].filename == __file__
    assert {"a□", "□b"} <= set(texts_of(drawn[0]))  # the last one is a mark, which has no box of its own


def test_strange_words(tmp_path, drawn):
    strange = ["a" * 100_000, "", "\n", "x\x00y", "two words", "שלום", "é", "$\\frac{"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        document_picture(tmp_path / "a.png", [strange], [1.0], [[1 / 8] * 8], title="$\\frac{ " * 40)
    words = [text.get_text() for text in drawn[0].axes[0].texts if text.get_fontsize() == SIZE]
    assert words[0].startswith("aaa") and words[0].endswith("a…") and words[1:] == ["␣", "␣", "x�y", *strange[4:]]
    width = drawn[0].bbox.width
    assert all(text.get_window_extent().x1 < width for text in drawn[0].axes[0].texts)


def test_wrong_weights(tmp_path):
    with pytest.raises(ValueError, match=r"a weight for each of the 1 sentences; got shape \(2,\)"):
        document_picture(tmp_path / "a.png", [["a"]], [0.5, 0.5], [[1.0]])
