"""Colours, sizes, token spelling and file formats that all pictures and pages share."""

import io
import shutil
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from zoo.utils.atomic import write_bytes
from zoo.utils.regular import check_regular

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What drawing returns: the path of the file, or the figure if no file was named.
Drawn: TypeAlias = "Path | Figure"

DPI, MAX_PIXELS, SCREEN = 160, 8000, 96  # dots per inch; pixels; dots per inch of a screen
INK, MUTED, GRID = "#26323f", "#5d6a77", "#e4e8ec"
# White for no attention, so that the alignment stands out; the dark end still separates 0.9 from 1.
COLOURS = ["#ffffff", "#dbe9f1", "#a9cfe0", "#6aaecb", "#2f86ae", "#145f8c", "#0a3a5f"]
CONTRAST = 4.5  # between text and background (WCAG 2, level AA); black or white reaches it on every colour


def check_file(path: str | PathLike, picture: bool = True) -> None:
    """Rejects a file to which a picture or page cannot be written, before it is computed.

    Raises:
        ValueError: the extension is not a format of pictures, or of pages, or the path is a folder or a pipe.
        FileNotFoundError: no such folder.
    """
    path = Path(path)
    if path.exists():
        check_regular(path)
    if picture:
        from matplotlib.backend_bases import FigureCanvasBase

        endings = sorted(FigureCanvasBase.get_supported_filetypes())
        if path.suffix.lower().lstrip(".") not in endings:
            page = "; to_html or --html writes a page" if path.suffix.lower() in (".html", ".htm") else ""
            formats = ", .".join(endings)
            raise ValueError(f"the name of a picture must end in one of .{formats}; got {str(path)!r}{page}")
        _check_latex(path)
    elif path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the name of a page must end in .html; got {str(path)!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(2, "no such folder", str(path.parent))


def _check_latex(path: Path) -> None:
    """Raises ValueError for a picture that LaTeX would have to draw, where there is none."""
    from matplotlib import rcParams

    if path.suffix.lower() == ".pgf" and shutil.which(program := rcParams["pgf.texsystem"]) is None:
        raise ValueError(f"a .pgf is drawn by {program} of LaTeX, which is not installed; got {str(path)!r}, try .pdf")


def new_figure(**options: Any) -> "Figure":
    """A figure that pyplot does not know: it opens no window, and is forgotten like any other object."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(facecolor="white", **options)
    FigureCanvasAgg(figure)
    return figure


_FOOTNOTE: ContextVar[str | None] = ContextVar("footnote", default=None)


@contextmanager
def footnote(text: str | None) -> Iterator[None]:
    """Context: pictures have a line in small type at the bottom; None for none."""
    token = _FOOTNOTE.set(text)
    try:
        yield
    finally:
        _FOOTNOTE.reset(token)


def save_or_show(figure: "Figure", path: str | PathLike | None, **options: Any) -> Drawn:
    """Like `save`; without a path it returns the figure, which a notebook shows."""
    if text := _FOOTNOTE.get():
        # a picture that is cut to its content grows by the line, another one has a margin for it
        below = {"y": -0.01, "va": "top"} if "bbox_inches" in options else {"y": 0.005, "va": "bottom"}
        figure.text(x=0.99, s=text, ha="right", fontsize=6, color=MUTED, **below)
    if path is not None:
        return save(figure, path, **options)
    # A notebook shows a figure by itself only where pyplot was imported.
    figure._repr_png_ = _Shown(figure, options)  # pyright: ignore[reportAttributeAccessIssue]
    return figure


def save(figure: "Figure", path: str | PathLike, **options: Any) -> Path:
    """Writes a figure atomically, with the format of its suffix, and returns the path.

    Raises:
        ValueError, FileNotFoundError: see `check_file`.
    """
    path, content = Path(path), io.BytesIO()
    check_file(path)
    figure.savefig(content, format=path.suffix.lower().lstrip("."), **options)
    with content.getbuffer() as written:
        write_bytes(path, written)
    return path


class _Shown:
    """What a notebook asks of a figure: the image, and the width in pixels at which its letters have their usual size.

    Args:
        figure: the figure.
        options: arguments of `savefig`.
    """

    def __init__(self, figure: "Figure", options: dict[str, Any]) -> None:
        self.figure, self.options = figure, options

    def __call__(self) -> tuple[bytes, dict[str, int]]:
        file = io.BytesIO()
        self.figure.savefig(file, format="png", **self.options)
        pixels = int.from_bytes(file.getvalue()[16:20], "big")  # the width in the header of every PNG file
        return file.getvalue(), {"width": round(pixels * SCREEN / self.options.get("dpi", self.figure.dpi))}


def shade(fraction: float, colours: list[str] = COLOURS) -> str:
    """The colour "#rrggbb" at a fraction between 0 (first colour) and 1 (last), interpolated linearly."""
    place = fraction * (len(colours) - 1)
    left = min(int(place), len(colours) - 2)
    pairs = zip(_channels(colours[left]), _channels(colours[left + 1]))
    return "#" + "".join(f"{round(a + (place - left) * (b - a)):02x}" for a, b in pairs)


def text_on(background: str, ink: str = INK) -> str:
    """The colour of text on a background: `ink` if it is legible there, else white or black."""
    return next(colour for colour in (ink, "#ffffff", "#000000") if contrast(colour, background) >= CONTRAST)


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours "#rrggbb", from 1 (equal) to 21 (black and white), as defined by WCAG 2."""
    darker, lighter = sorted((_luminance(a), _luminance(b)))
    return (lighter + 0.05) / (darker + 0.05)


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _luminance(colour: str) -> float:
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _channels(colour)))
    return sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear))


def printable(token: str) -> str:
    """A token on one line: a lone space is made visible, control characters become "�"."""
    if not token.strip():
        return "␣"
    return "".join(" " if c.isspace() else "�" if unicodedata.category(c) in ("Cc", "Cs") else c for c in token)


def shortened(text: str, length: int) -> str:
    """The beginning of a text of more than `length` characters, with an ellipsis."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def rounded(weight: float) -> str:
    """A weight in three decimals; one that would look like zero without being it is "<0.001"."""
    return "<0.001" if 0 < weight < 0.0005 else f"{weight:.3f}"
