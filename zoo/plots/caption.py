"""Attention of a captioner: the photo once per word, bright where the attention is."""

import base64
import io
import math
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from zoo.plots.html import Section, as_page, escaped
from zoo.plots.page import HEADING, MARGIN, SMALL, Page, clean, measure, shorten, wrap
from zoo.plots.style import DPI, GRID, MUTED, Drawn, rounded
from zoo.plots.weights import as_array, check_values
from zoo.utils.extras import require

if TYPE_CHECKING:
    from torch import Tensor

END = "</s>"  # the end of a caption is no word
COLUMNS = 6
SIDE, LEAST = 150, 8  # points: longer side of a tile, and minimum of its shorter side
BETWEEN, ABOVE = 12, 20  # points: between tiles, and for the word above each
BLUR = 0.55  # standard deviation of the smoothing, in cells of attention
DIM, GLOW = (
    0.24,
    0.25,
)  # brightness without attention; share of the way to white that full attention adds
OWN_SCALE = "Each word has its own scale; its number is the weight of its brightest place."
CONTRAST = 0.5  # minimum span of a brightness scale relative to its top: nearly uniform weights look nearly uniform
PHOTO, VEIL = 960, 64  # pixels of the longer side in a page: of the photo, and of the dark overlay


def caption_picture(
    path: str | PathLike | None,
    image: Image.Image,
    tokens: Sequence[str],
    attention: "Tensor | np.ndarray",
    title: str | None = None,
) -> Drawn:
    """Plots the photo, then once per word the photo lit where the word's attention is (Xu et al. 2015, Fig. 2).

    Attention is smoothed, and each word has its own scale: full brightness for its largest weight, darkness for its
    smallest (unless they hardly differ: uniform attention lights the whole photo). The largest weight stands next to
    the word. A row has at most six tiles. The suffix
    of `path` gives the format (png, pdf, svg, ...). A photo more than 18 times as long as wide is drawn wider.

    Args:
        path: The file to write; None for none.
        image: The photo, of any size, upright and of 8 bits, as `Caption.image` or `zoo.vision.images.open_image` gives
            it; the grid of attention covers all of it.
        tokens: T words; an end-of-sentence token at the end is left out.
        attention: (T, rows, columns) weights, not negative.
        title: Optional heading.

    Returns:
        `path`, or the figure if there is none.

    Raises:
        ValueError: The number of weights does not match the words, a weight is negative or not finite, there is nothing
            to draw, or matplotlib is missing.
        TypeError: `tokens` is a string instead of a list of words.
    """
    require("plots", "a picture of attention")
    words, weights = _weights(tokens, attention)
    scale = SIDE / max(image.size)
    width, height = (max(side * scale, LEAST) for side in image.size)
    labels, tops = ["", *clean([words])[0]], ["", *(rounded(float(cells.max())) for cells in weights)]
    numbers = [measure(top, SMALL) + 5 for top in tops]
    cell = max(width, 64.0)
    for label, number in zip(labels, numbers, strict=True):  # space for a word above a narrow photo
        cell = max(cell, measure(shorten(label, SIDE - number, HEADING), HEADING) + number)
    columns = _columns(len(words) + 1, cell, height)
    page = Page(2 * MARGIN + columns * cell + (columns - 1) * BETWEEN)
    if title:
        page.heading(title)
    pixels = [max(round(side / 72 * DPI), 1) for side in (width, height)]
    photo = _pixels(image, pixels[0], pixels[1])
    for line in wrap(OWN_SCALE.split(), page.width - 2 * MARGIN, SMALL):
        page.note(MARGIN, " ".join(word.text for word in line))
    page.y += BETWEEN
    top = page.y
    for n, label in enumerate(labels):
        row, column = divmod(n, columns)
        x, y = MARGIN + column * (cell + BETWEEN), top + row * (height + ABOVE + BETWEEN)
        shown = photo if n == 0 else _lit(photo, _light(weights[n - 1], pixels[1], pixels[0]))
        x += (cell - width) / 2
        page.axes.imshow(shown.astype(np.uint8), extent=(x, x + width, y + ABOVE + height, y + ABOVE), aspect="auto")
        page.box(x, y + ABOVE, width, height, "none", edgecolor=GRID, linewidth=0.6)
        text = shorten(label, cell - numbers[n], HEADING)
        left = x + (width - measure(text, HEADING) - numbers[n]) / 2
        page.text(left, y + ABOVE - 6, text, HEADING)
        page.text(left + measure(text, HEADING) + 5, y + ABOVE - 6, tops[n], SMALL, MUTED)
        page.y = y + ABOVE + height
    return page.save(path)


def caption_section(
    image: Image.Image, tokens: Sequence[str], attention: "Tensor | np.ndarray", caption: str
) -> Section:
    """The photo and its caption: pointing at, tapping or tabbing to a word shows its attention.

    Args:
        image: The photo, of any size, upright and of 8 bits, as `Caption.image` or `zoo.vision.images.open_image` gives
            it; the grid of attention covers all of it.
        tokens: T words; an end-of-sentence token at the end is left out.
        attention: (T, rows, columns) weights, not negative.
        caption: Heading.

    Raises:
        ValueError: The number of weights does not match the words, a weight is negative or not finite, or there is
            nothing to draw.
        TypeError: `tokens` is a string instead of a list of words.
    """
    words, weights = _weights(tokens, attention)
    width, height = (max(round(side * min(1, PHOTO / max(image.size))), 1) for side in image.size)
    photo = Image.fromarray(_pixels(image, width, height).astype(np.uint8))
    layers = [f'<img alt="" src="{_data(photo, "JPEG")}">']
    for n, cells in enumerate(weights):
        rows, columns = (max(round(side * VEIL / max(width, height)), 1) for side in (height, width))
        dark = ((1 - DIM) * 255 * (1 - _light(cells, rows, columns))).round().astype(np.uint8)
        veil = Image.merge("LA", [Image.new("L", (columns, rows)), Image.fromarray(dark)])
        layers.append(f'<img alt="" class="w{n}" src="{_data(veil, "PNG")}">')
    spans = " ".join(
        f'<span class="t{n}" tabindex="0" data-top="{rounded(float(cells.max()))}">{escaped(word)}</span>'
        for n, (word, cells) in enumerate(zip(words, weights, strict=True))
    )
    rules = [f".photo:has(~ .text .t{n}:is(:hover, :focus)) .w{n} {{ opacity: 1 }}" for n in range(len(words))]
    # While one word is pointed at, a focused one must not darken the photo too.
    rules += [
        f".photo:has(~ .text :hover):not(:has(~ .text .t{n}:hover)) .w{n} {{ opacity: 0 }}" for n in range(len(words))
    ]
    ratio = min(max(width / height, 1 / 18), 18)
    hint = f"Point at a word, or tap it, to see where the model looked. {OWN_SCALE}"
    body = [
        f'<div class="photo" style="--ratio:{ratio:.4f}">',
        *layers,
        f'</div><p class="text ask" lang="" dir="auto">{spans}</p>',
        f'<p class="n">{hint}</p>',
    ]
    return Section(caption, "\n".join(body), tuple(rules))


caption_html = as_page(caption_section)


def _weights(tokens: Sequence[str], attention: "Tensor | np.ndarray") -> tuple[list[str], np.ndarray]:
    """The words without EOS, and their weights (T, rows, columns) in float64, validated."""
    if isinstance(tokens, str):
        raise TypeError("tokens must be a list of words; got a string")
    if len(attention.shape) != 3 or len(attention) != len(tokens):
        raise ValueError(
            f"attention must have rows and columns for each of the {len(tokens)} tokens; got shape "
            f"{tuple(attention.shape)}"
        )
    words = list(tokens[:-1] if tokens and tokens[-1] == END else tokens)
    weights = as_array(attention[: len(words)])
    if not weights.size:
        raise ValueError("there are no words or no attention to plot")
    check_values(weights, "attention")
    return words, weights


def _light(cells: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Brightness from 0 to 1 of each pixel (rows, columns) of a picture covered by cells (r, c) of attention.

    It is the mean of the cells, weighted by a Gaussian of the distance from their centres.
    """
    sides = []
    for size, count in zip((rows, columns), cells.shape, strict=True):
        places = (np.arange(size) + 0.5) * count / size
        distances = places[:, None] - (np.arange(count) + 0.5)  # (size, count)
        bells = -(distances**2) / (2 * BLUR**2)
        shares = np.exp(bells - bells.max(1, keepdims=True))
        sides.append(shares / shares.sum(1, keepdims=True))
    weights = sides[0] @ cells @ sides[1].T
    top, bottom = weights.max(), weights.min()
    if top == 0:
        return weights
    return 1 - (top - weights) / max(top - bottom, CONTRAST * top)


def _lit(photo: np.ndarray, light: np.ndarray) -> np.ndarray:
    """The photo (h, w, 3) at a given brightness (h, w)."""
    light = light[..., None]
    return photo * (DIM + (1 - DIM) * light) + GLOW * light**2 * (255 - photo)


def _pixels(image: Image.Image, width: int, height: int) -> np.ndarray:
    """(height, width, 3) colours from 0 to 255."""
    image = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    return np.asarray(image, dtype=np.float64)


def _columns(count: int, width: float, height: float) -> int:
    """Number of tiles per row that makes the page slightly wider than high and its last row as full as possible."""
    ideal = min(max(round(math.sqrt(1.6 * count * (height + ABOVE) / width)), 1), COLUMNS)
    return min({ideal, min(ideal + 1, COLUMNS, count)}, key=lambda columns: (-count % columns, columns))


def _data(image: Image.Image, kind: str) -> str:
    file = io.BytesIO()
    image.save(file, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
