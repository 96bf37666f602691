"""Attention of a reader in a document, for the missing word of a query."""

from collections.abc import Mapping, Sequence
from os import PathLike

from zoo.plots.html import Section, as_page, hops_section
from zoo.plots.page import LINE, MARGIN, SMALL, Page, clean, column, heaviest_lines, measure, most_lines, shorten, wrap
from zoo.plots.style import MUTED, Drawn, rounded, shade
from zoo.plots.weights import HopWeights, Weights, hop_weights, largest
from zoo.utils.extras import require

MOST_CANDIDATES = 10  # in a picture: the most probable ones
LONGEST, BAR = 120, 120  # widths of the words and of the longest bar next to them


def reading_picture(
    path: str | PathLike | None,
    document: Sequence[str],
    weights: Weights,
    query: Sequence[str],
    query_weights: "Weights | None",
    probabilities: Mapping[str, float],
    title: str | None = None,
) -> Drawn:
    """Plots candidate probabilities, the query, and the document on shades of its weights (Cui et al. 2017, Fig. 1).

    The suffix of `path` gives the format (png, pdf, svg, ...). If a document would become illegible, its least
    important lines are left out, and a note says so.

    Args:
        path: The file to write; None for none.
        document: D words.
        weights: (D,) weights that sum to 1.
        query: L words.
        query_weights: (L,) weights that sum to 1; None for a model without them.
        probabilities: Probability of each candidate; the ten highest are drawn.
        title: Optional heading.

    Returns:
        `path`, or the figure if there is none.

    Raises:
        ValueError: The number of weights does not match the words, a weight is negative or not finite, there is nothing
            to draw, or matplotlib is missing.
        TypeError: A text is a string instead of a list of words.
    """
    require("plots", "a picture of attention")
    of_query, of_document = _weights(document, weights, query, query_weights)
    asked, words = clean([query, document])
    width = column([words])
    page = Page(MARGIN + width + MARGIN)
    if title:
        page.heading(title)
    _candidates(page, _most_probable(probabilities))
    for text, found, label in ((asked, of_query, "query"), (words, of_document, "document")):
        top = largest([found.total])
        if found.total and any(found.total):
            page.scale(MARGIN, page.y + SMALL, label, top)
        else:
            page.text(MARGIN, page.y + SMALL, label, SMALL, MUTED)
        page.y += SMALL + 2
        lines, note = heaviest_lines(wrap(text, width), found.total, most_lines() // 2)
        if note:
            page.note(MARGIN, note)
        page.words(MARGIN, lines, [weight / top for weight in found.total])
        page.y += LINE
    return page.save(path)


def reading_section(
    document: Sequence[str],
    weights: Weights,
    query: Sequence[str],
    query_weights: "Weights | None",
    probabilities: Mapping[str, float],
    title: str,
) -> Section:
    """The same for a page; see `reading_picture` for arguments and errors."""
    found = _weights(document, weights, query, query_weights)
    return hops_section(
        [query, document], [w.hops for w in found], title, _most_probable(probabilities), ["query", "document"]
    )


reading_html = as_page(reading_section)


def _weights(
    document: Sequence[str], weights: Weights, query: Sequence[str], query_weights: "Weights | None"
) -> list[HopWeights]:
    """Validated weights of the query (zeros if it has none) and of the document."""
    of_query = [0.0] * len(query) if query_weights is None else query_weights
    return hop_weights([query, document], [_row(of_query), _row(weights)], None)


def _row(weights: Weights) -> list[Sequence[float]]:
    return [weights if isinstance(weights, Sequence) else weights.tolist()]


def _most_probable(probabilities: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(probabilities.items(), key=lambda item: -item[1])[:MOST_CANDIDATES])


def _candidates(page: Page, probabilities: Mapping[str, float]) -> None:
    """One bar per candidate; moves down."""
    names = [shorten(name, LONGEST, SMALL + 1) for (name,) in clean([[name] for name in probabilities])]
    left = MARGIN + max((measure(name, SMALL + 1) for name in names), default=0.0) + 8
    top = largest([list(probabilities.values())])
    for name, p in zip(names, probabilities.values(), strict=True):
        page.y += 0.8 * LINE
        page.text(left - 8, page.y, name, SMALL + 1, ha="right")
        page.box(left, page.y - 7.5, max(BAR * p / top, 0.6), 8.5, shade(0.35 + 0.55 * p / top))
        page.text(left + BAR * p / top + 5, page.y, rounded(p), SMALL, MUTED)
    page.y += LINE
