"""Alignment pictures."""

import warnings
import xml.etree.ElementTree as ElementTree

import matplotlib.image
import pytest
import torch

from zoo.plots import alignment_heatmap, heads_heatmap
from zoo.plots.page import fonts

WORDS = "Überraschend öffnet der größte Fußballspieler die Straße ; garçon , où est la forêt ? $5 _ ^".split()


@pytest.mark.parametrize(("s", "t"), [(3, 3), (30, 30), (2, 40), (1, 1)])
def test_picture_grows_with_the_tokens(tmp_path, s, t):
    source, target = [WORDS[i % len(WORDS)] for i in range(s)], [WORDS[-i % len(WORDS)] for i in range(t)]
    path = alignment_heatmap(tmp_path / "a.png", source, target, torch.eye(t, s), title="Ausrichtung")
    height, width, _ = matplotlib.image.imread(path).shape
    assert width > 45 * s and height > 45 * t  # pixels: enough for a label each
    assert width < 52 * s + 600 and height < 52 * t + 600


def test_labels_are_written_out(tmp_path, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    alignment_heatmap(tmp_path / "a.svg", ["Müller", "l'été", "$5", " "], ["où", "_a^b$"], torch.rand(2, 4))
    text = " ".join(ElementTree.parse(tmp_path / "a.svg").getroot().itertext())
    for token in ("Müller", "l'été", "$5", "␣", "où", "_a^b$"):
        assert token in text


def test_letters_that_the_usual_font_lacks_are_drawn_with_another_installed_one(tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.plots.page.FONTS", ("DejaVu Sans", "STIXGeneral"))  # matplotlib brings both
    fonts.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "Glyph 7553 (...) missing from font(s) DejaVu Sans."
        alignment_heatmap(tmp_path / "a.png", ["\u1d81"], ["a\u1d81"], torch.ones(1, 1), title="\u1d81")
    fonts.cache_clear()


def test_letters_without_a_font_are_boxes_with_one_warning(tmp_path, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")  # matplotlib would warn of each glyph
        alignment_heatmap(tmp_path / "a.svg", ["a\U00010380", "b"], ["\u200dc"], torch.ones(1, 2), title="\U00010381 d")
    assert len(seen) == 1 and str(seen[0].message).startswith("no installed font has ")
    text = " ".join(ElementTree.parse(tmp_path / "a.svg").getroot().itertext())
    assert "a□" in text and "□ d" in text


def test_an_absurd_length_stays_within_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.plots.alignment.MAX_PIXELS", 400)
    path = alignment_heatmap(tmp_path / "a.png", ["a"] * 30, ["b"] * 30, torch.rand(30, 30))
    assert max(matplotlib.image.imread(path).shape) < 600


def test_wrong_shapes(tmp_path):
    wanted = r"a row for each of the 1 target tokens and a column for each of the 2 source tokens; got shape \(2, 1\)"
    with pytest.raises(ValueError, match=wanted):
        alignment_heatmap(tmp_path / "a.png", ["a", "b"], ["c"], torch.rand(2, 1))
    with pytest.raises(ValueError, match="there are no tokens to plot"):
        alignment_heatmap(tmp_path / "a.png", ["a", "b"], [], torch.rand(0, 2))
    for maps, titles in (((2, 1, 2), ["one"]), ((1, 2, 1), ["one"]), ((1, 2), ["one"]), ((1, 1, 2), ["one", "two"])):
        with pytest.raises(ValueError, match="attention must have a map for each title, a row .* got shape"):
            heads_heatmap(None, ["a", "b"], ["c"], torch.rand(maps), titles)
    with pytest.raises(ValueError, match="there are no maps to plot"):
        heads_heatmap(None, ["a", "b"], ["c"], torch.rand(0, 1, 2), [])
