"""The plots as HTML: self-contained pages without network or script, for light and dark screens.

Pointing at a word shows its weight.
"""

from collections.abc import Mapping, Sequence
from html import escape

from zoo.plots.style import COLOURS, GRID, INK, MUTED, printable, rounded, shade, text_on
from zoo.plots.weights import HopWeights, Matrix, Weights, document_weights, hop_weights, largest

LEVELS = 32  # shades; neighbours differ less than the eye can see
OPEN_HOPS = 4  # number of hops unfolded from the start
NIGHT = ["#12181f", "#173243", "#1c4f6b", "#267399", "#4c9bc3", "#8cc7e4", "#d3edf9"]  # COLOURS on a dark screen
NIGHT_INK, NIGHT_MUTED, NIGHT_GRID = "#dbe3ea", "#93a1ae", "#2a343f"

STYLE = """
:root { color-scheme: light dark; --bar: %(bar)s; --ink: %(ink)s; --muted: %(muted)s; --grid: %(grid)s;
  --paper: %(paper)s; --ramp: %(ramp)s }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.75 system-ui, sans-serif }
main { max-width: 64rem; margin: auto; padding: 1.5rem clamp(1rem, 4vw, 3rem) 3rem }
h1 { font-size: 1.4rem; line-height: 1.3; margin: 0 0 1.25rem; overflow-wrap: anywhere }
h2 { font-size: 1.05rem; margin: 0 }
p { margin: 0 }
table { border-collapse: collapse; margin-bottom: 1.75rem; width: min(100%%, 34rem); line-height: 1.5 }
th { font-weight: normal; text-align: left; padding: .1rem .8rem .1rem 0; max-width: 14rem; overflow-wrap: anywhere }
td { padding: .1rem 0 }
td:nth-child(2) { width: 60%% }
td:last-child { text-align: right; padding-left: .8rem }
.first :is(th, td) { font-weight: 600; color: var(--ink) }
.bar { display: block; height: .7rem; border-radius: 2px;
  background: linear-gradient(to right, var(--bar) var(--part), var(--grid) var(--part)) }
.n { font-size: .8rem; color: var(--muted); font-variant-numeric: tabular-nums }
.scale { display: flex; align-items: center; flex-wrap: wrap; gap: .2rem .6rem; margin: .25rem 0 .75rem;
  line-height: 1.4 }
.scale span { display: flex; align-items: center; gap: .45rem }
.scale .ramp { width: 6rem; height: .7rem; border-radius: 2px; border: 1px solid var(--grid);
  background: linear-gradient(to right, var(--ramp)) }
ol { list-style: none; margin: 0; padding: 0 }
li { display: grid; grid-template-columns: 3rem 4rem 1fr; gap: 0 .6rem; margin-bottom: .6rem }
li .n { text-align: right; line-height: 1.75rem }
li .bar { margin-top: .55rem }
.text { overflow-wrap: anywhere; white-space: pre-wrap }
.text span { unicode-bidi: isolate; border-radius: 3px; padding: .1em .18em; margin: 0 -.06em;
  -webkit-box-decoration-break: clone; box-decoration-break: clone }
.texts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%%, 22rem), 1fr)); gap: 2rem 3rem }
details { border-top: 1px solid var(--grid); padding: .35rem 0 }
.text + .scale { margin-top: 1.5rem }
summary { cursor: pointer }
summary .n { margin-left: .5rem }
%(shades)s
@media (prefers-color-scheme: dark) {
:root { --bar: %(night_bar)s; --ink: %(night_ink)s; --muted: %(night_muted)s; --grid: %(night_grid)s;
  --paper: %(night_paper)s; --ramp: %(night_ramp)s }
%(night_shades)s
}
@media (max-width: 40rem) {
li { grid-template-columns: 3rem 1fr }
li .text { grid-column: 1 / -1 }
}
@media print { * { print-color-adjust: exact; -webkit-print-color-adjust: exact } }
"""


def document_html(
    sentences: Sequence[Sequence[str]],
    sentence_weights: Weights,
    word_weights: Sequence[Weights],
    title: str,
    probabilities: Mapping[str, float],
) -> str:
    """A page with the sentence and word attention of a document, like `document_picture`.

    Args:
        sentences: S lists of words.
        sentence_weights: (S,) weights that sum to 1.
        word_weights: For each sentence (W_s,) weights that sum to 1.
        title: Heading of the page.
        probabilities: Probability of each class, in display order; may be empty.

    Returns:
        The text of an HTML file, to be saved as UTF-8.

    Raises:
        ValueError: The number of weights does not match the words, a weight is negative or not finite, a probability is
            outside [0, 1], or there is nothing to show.
        TypeError: A sentence is a string instead of a list of words.
    """
    weights = document_weights(sentences, sentence_weights, word_weights)
    top, heaviest = largest(weights.shown), largest([weights.sentences])
    items = [
        '<li><span class="n" '
        f'title="{weight:.4g}">{escape(rounded(weight))}</span><span>{_bar(weight / heaviest)}</span>'
        f"{_words(words, inner, shown, top)}</li>"
        for words, weight, inner, shown in zip(sentences, weights.sentences, weights.words, weights.shown)
    ]
    scale = _scale("bar: sentence weight · shade: word weight × √sentence weight", top)
    return _page(title, probabilities, [scale, "<ol>", *items, "</ol>"])


def hops_html(
    texts: Sequence[Sequence[str]],
    attentions: Sequence[Matrix],
    title: str,
    probabilities: Mapping[str, float],
    labels: Sequence[str] | None = None,
) -> str:
    """A page with the sum of the hops over each text and, folded, each hop; see `hops_picture`.

    Args:
        texts: One text, or more (a pair of sentences): lists of n tokens.
        attentions: For each text (r, n) weights; each row sums to 1.
        title: Heading of the page.
        probabilities: Probability of each class, in display order; may be empty.
        labels: Optional name of each text, e.g. ["premise", "hypothesis"].

    Returns:
        The text of an HTML file, to be saved as UTF-8.

    Raises:
        ValueError: The number of weights does not match the tokens, a weight is negative or not finite, a probability
            is outside [0, 1], or there is nothing to show.
        TypeError: A text is a string instead of a list of tokens.
    """
    weights = hop_weights(texts, attentions, labels)
    sections = []
    for n, (text, hops) in enumerate(zip(texts, weights)):
        sections += ["<section>", f"<h2>{_escaped(labels[n])}</h2>" if labels else "", *_hops(text, hops), "</section>"]
    return _page(title, probabilities, ['<div class="texts">', *sections, "</div>"])


def _hops(text: Sequence[str], weights: HopWeights) -> list[str]:
    """The sum of the hops and, if there are several, each of them with its three top words as a summary."""
    r, top = len(weights.hops), largest([weights.total])
    if r == 1:
        return [_scale("attention", top), _words(text, weights.total, weights.total, top)]
    parts = [_scale(f"sum of {r} hops, normalised", top), _words(text, weights.total, weights.total, top)]
    top = largest(weights.hops)
    parts.append(_scale("each hop", top))
    for n, hop in enumerate(weights.hops, 1):
        heaviest = sorted(range(len(hop)), key=lambda i: -hop[i])[:3]
        summary = ", ".join(dict.fromkeys(_escaped(text[i]) for i in heaviest))
        opened = " open" if r <= OPEN_HOPS else ""
        parts.append(f'<details{opened}><summary>hop {n}<span class="n" lang="" dir="auto">{summary}</span></summary>')
        parts.append(f"{_words(text, hop, hop, top)}</details>")
    return parts


def _words(words: Sequence[str], weights: Sequence[float], shown: Sequence[float], top: float) -> str:
    """Words on their shades. The language is marked as unknown; the direction follows from the letters."""
    spans = (
        f'<span class="s{round(LEVELS * shown / top)}" title="{weight:.4g}">{_escaped(word)}</span>'
        for word, weight, shown in zip(words, weights, shown)
    )
    return f'<p class="text" lang="" dir="auto">{" ".join(spans)}</p>'


def _bar(fraction: float) -> str:
    return f'<span class="bar" style="--part:{100 * fraction:.4g}%"></span>'


def _scale(label: str, top: float) -> str:
    """The scale of the shades, from 0 to `top`."""
    return f'<p class="scale n"><span>{label}</span><span>0<span class="ramp"></span>{top:.2g}</span></p>'


def _probabilities(probabilities: Mapping[str, float]) -> str:
    if wrong := next((p for p in probabilities.values() if not 0 <= p <= 1.0001), None):
        raise ValueError(f"probabilities must be between 0 and 1; got {wrong:g}")
    if not probabilities:
        return ""
    best = max(probabilities, key=probabilities.__getitem__)
    rows = (
        f'<tr{" class=first" if name == best else ""}><th scope="row">{_escaped(name)}</th>'
        f'<td>{_bar(p)}</td><td class="n" title="{p:.4g}">{p:.1%}</td></tr>'
        for name, p in probabilities.items()
    )
    return f"<table>{''.join(rows)}</table>"


def _page(title: str, probabilities: Mapping[str, float], body: Sequence[str]) -> str:
    head = f"<title>{_escaped(title)}</title><style>{_style()}</style>"
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta name="viewport" content="width=device-width, initial-scale=1">{head}</head>',
            f"<body><main><h1>{_escaped(title)}</h1>",
            _probabilities(probabilities),
            *filter(None, body),
            "</main></body></html>\n",
        ]
    )


def _escaped(text: str) -> str:
    return escape(printable(text))


def _style() -> str:
    return STYLE % {
        "bar": COLOURS[4],
        "ink": INK,
        "muted": MUTED,
        "grid": GRID,
        "paper": COLOURS[0],
        "ramp": ", ".join(COLOURS),
        "shades": _shades(COLOURS, INK),
        "night_bar": NIGHT[4],
        "night_ink": NIGHT_INK,
        "night_muted": NIGHT_MUTED,
        "night_grid": NIGHT_GRID,
        "night_paper": NIGHT[0],
        "night_ramp": ", ".join(NIGHT),
        "night_shades": _shades(NIGHT, NIGHT_INK),
    }


def _shades(colours: list[str], ink: str) -> str:
    rules = []
    for level in range(1, LEVELS + 1):
        colour = shade(level / LEVELS, colours)
        rules.append(f".s{level} {{ background: {colour}; color: {text_on(colour, ink)} }}")
    return "\n".join(rules)
