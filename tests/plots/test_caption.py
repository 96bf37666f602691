"""Captions over photos: as many tiles as words, light where the attention is, pages that stand alone."""

import base64
import io
import re

import matplotlib.image
import numpy as np
import pytest
import torch
from PIL import Image

from zoo.plots import caption_html, caption_picture
from zoo.plots.caption import DIM
from zoo.plots.page import HEADING

GREY = Image.new("RGB", (300, 200), (100, 100, 100))


def spots(*places, rows=7, columns=7):
    """All attention of each word in one cell."""
    attention = torch.zeros(len(places), rows, columns)
    for word, (row, column) in zip(attention, places):
        word[row, column] = 1
    return attention


def tiles_of(figure):
    return [np.asarray(image.get_array()).astype(float) for image in figure.axes[0].images]


def veils_of(page):
    """The images of a page: the photo, then the darkness of each word."""
    found = re.findall(r'<img alt="" (?:class="w(\d+)" )?src="data:image/(?:jpeg|png);base64,([\w+/=]+)">', page)
    images = [Image.open(io.BytesIO(base64.b64decode(data))) for _, data in found]
    assert [number for number, _ in found] == ["", *map(str, range(len(found) - 1))]
    return images


def brightest(light):
    row, column = np.unravel_index(light.argmax(), light.shape)
    return (row + 0.5) / light.shape[0], (column + 0.5) / light.shape[1]


def test_the_light_is_where_the_attention_is(tmp_path, drawn):
    places = [(0, 0), (3, 5), (6, 2)]
    path = caption_picture(
        tmp_path / "a.png", GREY, ["a", "red", "dog", "</s>"], spots(*places, (1, 1)), title="A red dog"
    )
    assert path == tmp_path / "a.png" and max(matplotlib.image.imread(path).shape) < 2000
    photo, *tiles = tiles_of(drawn[0])
    assert len(tiles) == 3 and (photo == 100).all()
    for tile, (row, column) in zip(tiles, places):
        light = tile.mean(2)
        y, x = brightest(light)
        # at the border of the picture the smoothed peak may lie anywhere between the border and the middle of the cell
        assert abs(y - (row + 0.5) / 7) < 1 / 13 and abs(x - (column + 0.5) / 7) < 1 / 13
        assert light.max() > 100 and light.min() == pytest.approx(100 * DIM, abs=1)
        assert np.abs(np.diff(light, axis=0)).max() < 12 and np.abs(np.diff(light, axis=1)).max() < 12  # no steps
    words = [text.get_text() for text in drawn[0].axes[0].texts if text.get_fontsize() == HEADING]
    assert words == ["A", "red", "dog", "", "a", "red", "dog"]


def test_each_word_has_its_own_scale(tmp_path, drawn):
    attention = spots((1, 1), (1, 1))
    attention[1] = attention[1] * 0.01 + 0.001
    caption_picture(tmp_path / "a.png", GREY, ["a", "b"], attention)
    _, strong, weak = tiles_of(drawn[0])
    assert np.abs(strong - weak).max() <= 1


def test_even_attention_lights_the_whole_photo(tmp_path, drawn):
    noise = 1 + 0.01 * torch.rand(1, 7, 7, generator=torch.Generator().manual_seed(0))
    caption_picture(tmp_path / "a.png", GREY, ["a", "b"], torch.cat([noise / noise.sum(), torch.zeros(1, 7, 7)]))
    _, even, none = tiles_of(drawn[0])
    assert even.min() > 95 and np.ptp(even) < 12 and none.max() <= 100 * DIM + 1


def test_the_photo_keeps_its_shape_and_colours(tmp_path, drawn):
    image = Image.new("RGBA", (90, 180), "red")
    image.paste("blue", (0, 90, 90, 180))
    caption_picture(tmp_path / "a.png", image, ["a"], torch.ones(1, 3, 4))
    for picture in drawn[0].axes[0].images:
        left, right, bottom, top = picture.get_extent()
        assert (right - left) / (bottom - top) == pytest.approx(0.5)
    photo = tiles_of(drawn[0])[0]
    assert photo[2, 2].tolist() == [255, 0, 0] and photo[-2, 2].tolist() == [0, 0, 255]


def test_words_above_a_narrow_photo_are_whole(tmp_path, drawn):
    words = ["a", "dog", "running", "through", "strawberries"]
    caption_picture(tmp_path / "a.png", Image.new("RGB", (90, 200)), words, torch.rand(len(words), 7, 7))
    texts = [text for text in drawn[0].axes[0].texts if text.get_text()]
    assert set(words) <= {text.get_text() for text in texts}
    boxes = [text.get_window_extent() for text in texts]
    assert not any(box.overlaps(other) for n, box in enumerate(boxes) for other in boxes[:n])


@pytest.mark.parametrize(
    ("size", "count"), [((300, 200), 40), ((200, 300), 7), ((1, 1), 1), ((30_000, 10), 9), ((10, 30_000), 9)]
)
def test_everything_is_on_the_page(tmp_path, drawn, size, count):
    words = ["immeasurably" * 4, *["W$_x$"] * (count - 1)]
    path = caption_picture(tmp_path / "a.png", Image.new("RGB", size), words, torch.rand(count, 7, 7))
    assert max(matplotlib.image.imread(path).shape) <= 8000
    axes = drawn[0].axes[0]
    assert len(axes.images) == count + 1
    boxes = [artist.get_window_extent() for artist in [*axes.images, *(text for text in axes.texts if text.get_text())]]
    width, height = drawn[0].bbox.size
    assert all(0 < box.x0 < box.x1 < width and 0 < box.y0 < box.y1 < height for box in boxes)
    corners = {(round(image.get_extent()[0]), round(image.get_extent()[3])) for image in axes.images}
    assert len(corners) == count + 1 and len({x for x, _ in corners}) <= 6
    for n, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:n])


def test_page_shows_each_word_and_its_light():
    words, places = ["a", "<b>bold</b>", "&", '"x"'], [(0, 6), (3, 3), (6, 0), (2, 5)]
    page = caption_html(GREY, [*words, "</s>"], spots(*places, (1, 1)), "A <i> & more")
    assert re.findall(r'<span class="t(\d)" tabindex="0" data-top="1.000">(.*?)</span>', page) == [
        ("0", "a"), ("1", "&lt;b&gt;bold&lt;/b&gt;"), ("2", "&amp;"), ("3", "&quot;x&quot;"),
    ]  # fmt: skip
    assert page.count("A &lt;i&gt; &amp; more") == 2  # title and heading
    photo, *veils = veils_of(page)
    assert photo.size == (300, 200) and len(veils) == 4
    for veil, (row, column) in zip(veils, places):
        light = 255 - np.asarray(veil.getchannel("A")).astype(float)
        y, x = brightest(light)
        assert abs(y - (row + 0.5) / 7) < 1 / 12 and abs(x - (column + 0.5) / 7) < 1 / 12
        assert light.max() > 240 and light.min() == pytest.approx(255 * DIM, abs=2)
    for n in range(4):
        assert f".photo:has(~ .text .t{n}:is(:hover, :focus)) .w{n} {{ opacity: 1 }}" in page


def test_page_stands_alone():
    page = caption_html(
        Image.new("L", (5000, 10)), ["</title><script>x", "日本", "\x00"], torch.rand(3, 2, 2), "</style>"
    )
    rest = re.sub(r"data:image/(jpeg|png);base64,[\w+/=]+", "", page).lower()
    for outside in ("http", "//", "url(", "@import", "href=", "<script", "<link", "onclick", "%("):
        assert outside not in rest
    assert rest.count("src=") == rest.count('src=""') == 4 and rest.count("</style>") == 1
    assert page.startswith("<!DOCTYPE html>") and '<meta charset="utf-8">' in page and len(page) < 50_000
    assert "color-scheme: light dark" in page
    assert veils_of(page)[0].size == (960, 2)


@pytest.mark.parametrize(
    "draw",
    [
        lambda path, tokens, attention: caption_picture(path / "a.png", GREY, tokens, attention),
        lambda path, tokens, attention: caption_html(GREY, tokens, attention, ""),
    ],
)
def test_wrong_input(tmp_path, draw):
    with pytest.raises(ValueError, match=r"for each of the 2 tokens; got shape \(3, 7, 7\)"):
        draw(tmp_path, ["a", "b"], torch.rand(3, 7, 7))
    with pytest.raises(ValueError, match=r"for each of the 1 tokens; got shape \(1, 49\)"):
        draw(tmp_path, ["a"], torch.rand(1, 49))
    with pytest.raises(TypeError, match="tokens must be a list of words; got a string"):
        draw(tmp_path, "a", torch.rand(1, 7, 7))
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=f"attention must be finite and not negative; got {wrong:g}"):
            draw(tmp_path, ["a"], torch.full((1, 7, 7), wrong))
    for tokens in ([], ["</s>"]):
        with pytest.raises(ValueError, match="there are no words or no attention to plot"):
            draw(tmp_path, tokens, torch.rand(len(tokens), 7, 7))
