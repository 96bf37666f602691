"""Attention of a hierarchical classifier: sentences and the words in them."""

from collections.abc import Sequence
from os import PathLike

from zoo.plots.page import LINE, MARGIN, SMALL, Page, Word, clean, column, heaviest_lines, missing, most_lines, wrap
from zoo.plots.style import MUTED, Drawn, rounded, shade
from zoo.plots.weights import Weights, document_weights, largest
from zoo.utils.extras import require

NUMBER, BAR, GUTTER = 30, 46, 22  # widths left of the text: the weight as a number, the longest bar, the space after it
BETWEEN = 5  # additional space between sentences


def document_picture(
    path: str | PathLike | None,
    sentences: Sequence[Sequence[str]],
    sentence_weights: Weights,
    word_weights: Sequence[Weights],
    title: str | None = None,
) -> Drawn:
    """Plots a document with its sentence and word attention (Yang et al. 2016, Fig. 5).

    Each sentence starts a line, with its weight as a bar on the left. The shade of a word is its weight times the
    square root of its sentence's weight, so that important words of unimportant sentences fade. The suffix of `path`
    gives the format (png, pdf, svg, ...). If a document would become illegible at 8,000 pixels (more than about 400
    lines), its least important sentences are left out, and a line at the top says so.

    Args:
        path: The file to write; None for none.
        sentences: S lists of words.
        sentence_weights: (S,) weights that sum to 1.
        word_weights: For each sentence (W_s,) weights that sum to 1.
        title: Optional heading.

    Returns:
        `path`, or the figure if there is none.

    Raises:
        ValueError: The number of weights does not match the words, a weight is negative or not finite, there is nothing
            to draw, or matplotlib is missing.
        TypeError: A sentence is a string instead of a list of words.
    """
    require("plots", "a picture of attention")
    weights = document_weights(sentences, sentence_weights, word_weights)
    words = clean(sentences)
    width, left = column(words), MARGIN + NUMBER + BAR + GUTTER
    lines = [wrap(sentence, width) for sentence in words]
    notes = _leave_out(lines, weights.sentences, weights.words)

    page = Page(left + width + MARGIN)
    if title:
        page.heading(title)
    top = largest(weights.shown)
    page.scale(left, page.y + SMALL, "word weight × √sentence weight", top)
    page.text(MARGIN, page.y + SMALL, "sentence weight", SMALL, MUTED)
    page.y += SMALL + 2
    for note in notes:
        page.note(left, note)
    heaviest = largest([weights.sentences])
    for n, sentence in enumerate(lines):
        if not sentence:
            continue
        page.y += BETWEEN
        if n and not lines[n - 1]:
            page.ellipsis(left)
        fraction, baseline = weights.sentences[n] / heaviest, page.y + LINE
        page.text(MARGIN + NUMBER - 5, baseline, rounded(weights.sentences[n]), SMALL, MUTED, ha="right")
        page.box(MARGIN + NUMBER, baseline - 8, max(BAR * fraction, 0.6), 9.5, shade(0.35 + 0.55 * fraction))
        page.words(left, sentence, [w / top for w in weights.shown[n]])
    return page.save(path)


def _leave_out(
    lines: list[list[list[Word]]], sentences: Sequence[float], words: Sequence[Sequence[float]]
) -> list[str]:
    """Removes the lightest sentences in `lines` until the page is short enough; returns notes on what is missing.

    The heaviest sentence always stays. If it alone is too long, it loses its lightest lines.
    """
    limit, heights = LINE * most_lines(), [LINE * len(sentence) + BETWEEN for sentence in lines]
    total = sum(heights)
    first, *lighter = sorted(range(len(lines)), key=lambda n: -sentences[n])
    dropped = []
    while total > limit and lighter:
        dropped.append(lighter.pop())
        total -= heights[dropped[-1]]
        lines[dropped[-1]] = []
    lines[first], note = heaviest_lines(lines[first], words[first], most_lines())
    share = sum(sentences[n] for n in dropped)
    notes = [missing(len(dropped), len(lines), "sentences", share)] if dropped else []
    return [*notes, note] if note else notes
