"""A page of running text with words on shades, drawn with matplotlib; all lengths in points (1/72 inch).

matplotlib is imported late: it is an extra, and its import takes 0.4 s.
"""

import unicodedata
import warnings
from collections.abc import Sequence
from functools import lru_cache
from os import PathLike
from typing import Any, NamedTuple

from zoo.plots import style
from zoo.plots.style import COLOURS, GRID, INK, MUTED, printable, shade, text_on

MARGIN = 24
SIZE, SMALL, HEADING = 10, 7.5, 12  # of letters
LINE = 17  # from one line of text to the next
ROUND = "round,pad=0,rounding_size=2.5"  # corners of a shade
PAD, GAP = 2.2, 1.2  # a shade extends PAD beyond the word; GAP between two shades
MIN_WIDTH, MAX_WIDTH = 400, 720  # of a column of text
FINEST = 0.9  # width of a cell of a heat map: two pixels
READABLE = 80  # dots per inch; below it the letters of running text are no longer legible
# DejaVu Sans comes with matplotlib. For scripts that it lacks, these are used if installed.
FONTS = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "Hiragino Sans",
    "PingFang SC",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Noto Sans Arabic",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Noto Emoji",
    "Segoe UI Symbol",
    "Arial Unicode MS",
    "Unifont",
)


class Word(NamedTuple):
    """A word in a line of text."""

    place: int  # in the text
    text: str
    x: float  # left end, from the left end of the line
    width: float


class Page:
    """A page that grows downwards; `y` is the position of the next element, from the top.

    Args:
        width: of the page, margins included.
    """

    def __init__(self, width: float):
        self.width, self.y = width, float(MARGIN)
        self.figure = style.new_figure()
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()

    def text(self, x: float, y: float, text: str, size: float = SIZE, colour: str = INK, **options: Any) -> None:
        """Writes plain text, without mathematics, with its baseline at `y`."""
        options = {"va": "baseline", "fontsize": size, "color": colour, "fontfamily": fonts()} | options
        self.axes.text(x, y, text, parse_math=False, usetex=False, **options)

    def box(self, x: float, y: float, width: float, height: float, colour: str, **options: Any) -> None:
        """Fills a box whose upper left corner is at (x, y)."""
        from matplotlib.patches import Rectangle

        self.axes.add_patch(Rectangle((x, y), width, height, **{"facecolor": colour, "edgecolor": "none", **options}))

    def heading(self, text: str, size: float = HEADING) -> None:
        """A heading, in as many lines as needed; moves down."""
        for line in wrap(clean([text.split()])[0], self.width - 2 * MARGIN, size, weight="bold"):
            self.y += 1.15 * size
            for word in line:
                self.text(MARGIN + word.x, self.y, word.text, size, weight="bold")
        self.y += 0.6 * size

    def scale(self, x: float, y: float, label: str, top: float) -> None:
        """The scale of the shades, from 0 to `top`, on a line with its baseline at `y`."""
        ramp, gap = 72, 5
        self.text(x, y, label, SMALL, MUTED)
        x += measure(label, SMALL) + 2 * gap
        self.text(x, y, "0", SMALL, MUTED)
        x += measure("0", SMALL) + gap
        self.heat(x, y - 6.5, ramp / 64, 7.5, [[i / 63 for i in range(64)]], 1.0)
        self.text(x + ramp + gap, y, f"{top:.2g}", SMALL, MUTED)

    def note(self, x: float, text: str) -> None:
        """A note in small letters; moves down."""
        self.y += 0.8 * LINE
        self.text(x, self.y, text, SMALL, MUTED)

    def ellipsis(self, x: float) -> None:
        """Marks, left of a text that begins at `x`, that lines are missing before its next line."""
        self.text(x - PAD - 2, self.y + LINE, "…", colour=MUTED, ha="right")

    def words(self, x: float, lines: Sequence[Sequence[Word]], shades: Sequence[float]) -> None:
        """Lines of words, each on its shade between 0 and 1; moves down."""
        from matplotlib.collections import PatchCollection
        from matplotlib.patches import FancyBboxPatch

        boxes, follows = [], 0
        for line in lines:
            if line and line[0].place != follows:
                self.ellipsis(x)
            follows = line[-1].place + 1 if line else 0
            self.y += LINE
            for word in line:
                colour = shade(shades[word.place])
                if colour != COLOURS[0]:
                    corner = (x + word.x - PAD, self.y - 10.4)
                    boxes.append(FancyBboxPatch(corner, word.width + 2 * PAD, 14.2, ROUND, fc=colour, ec="none"))
                self.text(x + word.x, self.y, word.text, colour=text_on(colour))
        # much faster than one by one
        self.axes.add_collection(PatchCollection(boxes, match_original=True), autolim=False)

    def heat(
        self, x: float, y: float, width: float, height: float, rows: Sequence[Sequence[float]], top: float
    ) -> None:
        """A heat map with its upper left corner at (x, y) and cells of `width` and `height`; the dark end is `top`.

        Cells narrower than FINEST are merged, in the colour of the largest, so that no peak is lost.
        """
        from matplotlib.colors import LinearSegmentedColormap

        right, bottom = x + len(rows[0]) * width, y + len(rows) * height
        merged = max(1, round(FINEST / width))
        rows = [[max(row[n : n + merged]) for n in range(0, len(row), merged)] for row in rows]
        extent = (x, x + len(rows[0]) * merged * width, bottom, y)
        colours = LinearSegmentedColormap.from_list("attention", COLOURS)
        look = {"cmap": colours, "vmin": 0, "vmax": top, "interpolation": "nearest", "aspect": "auto"}
        self.axes.imshow(rows, extent=extent, **look)
        self.box(x, y, right - x, bottom - y, "none", edgecolor=GRID, linewidth=0.6)

    def grid(self, x: float, y: float, width: float, height: float, rows: int, columns: int) -> None:
        """Lines between the cells of a heat map."""
        look = {"colors": GRID, "linewidths": 0.6}
        self.axes.vlines([x + n * width for n in range(columns + 1)], y, y + rows * height, **look)
        self.axes.hlines([y + n * height for n in range(rows + 1)], x, x + columns * width, **look)

    def save(self, path: str | PathLike | None) -> style.Drawn:
        """Writes the file, with the format of its suffix, and returns the path; without a path, the figure."""
        height = self.y + MARGIN
        self.axes.set(xlim=(0, self.width), ylim=(height, 0))
        inches = self.width / 72, height / 72
        self.figure.set_size_inches(*inches)
        return style.save_or_show(self.figure, path, dpi=min(style.DPI, style.MAX_PIXELS / max(inches)))


def most_lines() -> int:
    """Number of text lines that fit on a page with legible letters."""
    return int(style.MAX_PIXELS / READABLE * 72 / LINE)


def heaviest_lines(lines: list[list[Word]], weights: Sequence[float], limit: int) -> tuple[list[list[Word]], str]:
    """The `limit` lines with the most weight, in order, and a note on what is missing ("" if nothing is)."""
    if len(lines) <= limit:
        return lines, ""
    heavy = sorted(lines, key=lambda line: -sum(weights[word.place] for word in line))
    kept = sorted(heavy[:limit], key=lambda line: line[0].place)
    gone = [word for line in heavy[limit:] for word in line]
    return kept, missing(len(gone), len(weights), "words", sum(weights[word.place] for word in gone))


def missing(count: int, of: int, what: str, weight: float) -> str:
    """A note that the least important parts are not shown."""
    return f"{count:,} of {of:,} {what} are left out (…): the least important ones, with {weight:.2g} of the weight"


def column(texts: Sequence[Sequence[str]]) -> float:
    """A text width: wide for long texts, so that the page does not become a ribbon."""
    area = LINE * sum(measure(word, SIZE) + 2 * PAD + GAP for text in texts for word in text)
    return min(max((1.5 * area) ** 0.5, MIN_WIDTH), MAX_WIDTH)


def wrap(words: Sequence[str], width: float, size: float = SIZE, weight: str = "normal") -> list[list[Word]]:
    """Breaks a text into lines of at most `width`; a word longer than a line is cut. One empty line if no words."""
    lines: list[list[Word]] = [[]]
    x = 0.0
    for n, text in enumerate(words):
        text = shorten(text, width, size, weight)
        length = measure(text, size, weight)
        if lines[-1] and x + length > width:
            lines.append([])
            x = 0.0
        lines[-1].append(Word(n, text, x, length))
        x += length + 2 * PAD + GAP
    return lines


def shorten(text: str, width: float, size: float, weight: str = "normal") -> str:
    """Cuts a text that is too long, with an ellipsis."""
    if len(text) > 300:  # no line fits so many letters, and measuring a million takes long
        text = text[:300] + "…"
    while len(text) > 2 and measure(text, size, weight) > width:
        text = text[: (len(text) - 1) * 9 // 10] + "…"
    return text


@lru_cache(maxsize=20_000)
def measure(text: str, size: float, weight: str = "normal") -> float:
    """Width of a text in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=fonts(), size=size, weight=weight)
    return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]


def clean(texts: Sequence[Sequence[str]], families: Sequence[str] = ()) -> list[list[str]]:
    """Words as they can be drawn: a character without an installed font becomes a box, with one warning for all.

    Args:
        texts: the words of several texts.
        families: fonts that draw them besides `fonts()`.
    """
    texts = [[printable(word) for word in text] for text in texts]
    unknown = {c for text in texts for word in text for c in word} - _characters(tuple(families))
    if not unknown:
        return texts
    first = ", ".join(f"U+{ord(c):04X}" for c in sorted(unknown)[:3])
    warnings.warn(
        f"no installed font has {len(unknown)} of the characters (first: {first}), which are drawn as boxes; "
        "install a font that has them, e.g. one of the Noto Sans family",
        stacklevel=3,
    )
    # marks that only change the preceding letter do not get their own box
    boxes = str.maketrans({c: "" if unicodedata.category(c) in ("Mn", "Me", "Cf") else "□" for c in unknown})
    return [[word.translate(boxes) for word in text] for text in texts]


@lru_cache(maxsize=1)
def fonts() -> tuple[str, ...]:
    """The installed fonts among FONTS; matplotlib takes each character from the first that has it."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return tuple(name for name in FONTS if name in installed)


@lru_cache(maxsize=8)
def _characters(families: tuple[str, ...]) -> frozenset[str]:
    """Characters that these fonts, or `fonts()`, have."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    files = {findfont(FontProperties(family=[name])) for name in (*families, *fonts())}
    return frozenset(chr(code) for file in files for code in get_font(file).get_charmap())
