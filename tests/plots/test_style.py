"""Colours that can be told apart, text that can be read on them, weights that fit their words."""

import random

import pytest
import torch
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.colors import LinearSegmentedColormap, to_hex

from zoo.plots.html import LEVELS, NIGHT, NIGHT_INK, NIGHT_MUTED
from zoo.plots.style import (
    COLOURS,
    CONTRAST,
    INK,
    MUTED,
    contrast,
    new_figure,
    printable,
    rounded,
    save,
    shade,
    text_on,
)
from zoo.plots.weights import document_weights, hop_weights, largest


def test_shades_are_the_colours_of_the_heat_maps():
    colours = LinearSegmentedColormap.from_list("attention", COLOURS, N=1001)
    for i in range(1001):
        drawn, mixed = (bytes.fromhex(colour[1:]) for colour in (to_hex(colours(i)), shade(i / 1000)))
        assert max(abs(a - b) for a, b in zip(drawn, mixed)) <= 1


@pytest.mark.parametrize("colours", [COLOURS, NIGHT], ids=["light", "dark"])
def test_each_level_differs_more_from_the_paper_than_the_one_below(colours):
    paper = colours[0]
    steps = [contrast(shade(level / LEVELS, colours), paper) for level in range(LEVELS + 1)]
    assert steps[0] == 1 and all(a < b for a, b in zip(steps, steps[1:]))
    assert steps[-1] > 10


@pytest.mark.parametrize(("colours", "ink", "muted"), [(COLOURS, INK, MUTED), (NIGHT, NIGHT_INK, NIGHT_MUTED)])
def test_text_can_be_read_on_every_shade(colours, ink, muted):
    for i in range(1001):
        background = shade(i / 1000, colours)
        assert contrast(text_on(background, ink), background) >= CONTRAST
    assert text_on(colours[0], ink) == ink and contrast(muted, colours[0]) >= CONTRAST


def test_text_can_be_read_on_every_colour():
    draw = random.Random(1)
    for _ in range(2000):
        background = f"#{draw.randrange(2**24):06x}"
        assert contrast(text_on(background), background) >= CONTRAST


def test_contrast():
    assert contrast("#000000", "#ffffff") == contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # the well-known grey that just fails


@pytest.mark.parametrize(
    ("token", "printed"),
    [
        ("a\tb\nc", "a b c"),
        ("", "␣"),
        (" \n", "␣"),
        ("a\x00b", "a�b"),
        ("\ud800", "�"),
        ("$x^2$ жизнь", "$x^2$ жизнь"),
    ],
)
def test_printable(token, printed):
    assert printable(token) == printed


@pytest.mark.parametrize(("weight", "text"), [(0, "0.000"), (1e-5, "<0.001"), (0.0006, "0.001"), (1, "1.000")])
def test_rounded(weight, text):
    assert rounded(weight) == text


def test_words_of_light_sentences_fade():
    outer, inner = [0.64, 0.36, 0.0], [[0.5, 0.5], [1.0], [0.2, 0.3, 0.5]]
    weights = document_weights([["a", "b"], ["c"], ["d", "e", "f"]], outer, inner)
    assert weights.sentences == outer and weights.words == inner
    for s, row in enumerate(weights.shown):
        assert row == pytest.approx([outer[s] ** 0.5 * weight for weight in inner[s]])
    assert largest(weights.shown) == pytest.approx(0.6)
    assert largest([[0.0], []]) == 1


def test_sum_of_the_hops():
    hops = [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]
    (weights,) = hop_weights([["a", "b", "c"]], [hops], None)
    assert weights.hops == hops
    assert weights.total == [sum(row[n] for row in hops) / 2 for n in range(3)]
    assert hop_weights([["a"]], [[[0.0], [0.0]]], None)[0].total == [0.0]  # fully masked


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tensors_and_lists_are_the_same(dtype):
    lists = [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]
    tensor = torch.tensor(lists, dtype=dtype, requires_grad=True)
    assert hop_weights([list("abc")], [tensor], None) == hop_weights([list("abc")], [lists], None)
    sentences = [list("abc"), list("def")]
    assert document_weights(sentences, tensor[0, :2], tensor) == document_weights(sentences, [0.5, 0.25], lists)


WORDS = [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("sentences", "outer", "inner", "message"),
    [
        (WORDS, [1.0], [[0.5, 0.5], [1.0]], r"a weight for each of the 2 sentences; got shape \(1,\)"),
        (WORDS, [[0.5, 0.5]], [[0.5, 0.5], [1.0]], r"a weight for each of the 2 sentences; got shape \(1, 2\)"),
        (WORDS, [0.5, 0.5], [[0.5, 0.5]], r"word_weights must have an entry for each of the 2 sentences; got 1"),
        (WORDS, [0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], r"each of the 1 words of sentence 2; got shape \(2,\)"),
        (WORDS, [0.5, float("nan")], [[0.5, 0.5], [1.0]], "sentence_weights must be finite and not negative; got nan"),
        (
            WORDS,
            [0.5, 0.5],
            [[1.5, -0.5], [1.0]],
            "word_weights of sentence 1 must be finite and not negative; got -0.5",
        ),
        (WORDS, [0.5, "x"], [[0.5, 0.5], [1.0]], "sentence_weights must be a tensor, or a list of numbers"),
        ([], [], [], "there are no words to plot"),
        ([[], []], [0.5, 0.5], [[], []], "there are no words to plot"),
    ],
)
def test_wrong_document(sentences, outer, inner, message):
    with pytest.raises(ValueError, match=message):
        document_weights(sentences, outer, inner)


@pytest.mark.parametrize(
    ("texts", "attentions", "labels", "message"),
    [
        ([["a", "b"]], [[[1.0]]], None, r"a column for each of the 2 tokens of text 1; got shape \(1, 1\)"),
        ([["a"], ["b"]], [[[1.0]], [1.0]], None, r"a column for each of the 1 tokens of text 2; got shape \(1,\)"),
        ([["a"]], [[[1.0]], [[1.0]]], None, "attentions must have an entry for each of the 1 texts; got 2"),
        ([["a", "b"]], [[[1.0, 0.0], [1.0]]], None, "attention of text 1 must be a tensor, or .* rows of equal length"),
        ([["a"]], [[[float("inf")]]], None, "attention of text 1 must be finite and not negative; got inf"),
        ([["a"]], [[[1.0]]], ["x", "y"], "labels must have a name for each of the 1 texts; got 2"),
        ([], [], None, "there are no texts to plot"),
        ([["a"], []], [[[1.0]], torch.zeros(2, 0)], None, "there are no tokens or no hops to plot in text 2"),
        ([["a"]], [torch.zeros(0, 1)], None, "there are no tokens or no hops to plot in text 1"),
    ],
)
def test_wrong_hops(texts, attentions, labels, message):
    with pytest.raises(ValueError, match=message):
        hop_weights(texts, attentions, labels)


def test_a_string_is_no_list_of_words():
    with pytest.raises(
        TypeError, match="sentences must be a list with a list of words for each sentence; got a string"
    ):
        document_weights(["ab"], [1.0], [[0.5, 0.5]])
    with pytest.raises(TypeError, match="texts must be a list with a list of words for each text; got a string"):
        hop_weights(["a", "b"], [[[1.0]], [[1.0]]], None)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("map.foo", "map.foo'"),
        ("map", "map'"),
        ("map.html", "map.html'; to_html or --html writes a page"),
    ],
)
def test_a_picture_has_the_ending_of_a_picture(tmp_path, name, end):
    with pytest.raises(ValueError) as error:
        save(new_figure(), tmp_path / name)
    formats = ", .".join(sorted(FigureCanvasBase.get_supported_filetypes()))
    assert str(error.value) == f"the name of a picture must end in one of .{formats}; got '{tmp_path}/{end}"
    assert not list(tmp_path.iterdir())


def test_a_picture_needs_its_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        save(new_figure(), tmp_path / "no" / "map.png")
