"""The plots as HTML: self-contained pages, or parts of a notebook, without network or script, for light and dark screens.

Pointing at a word shows its weight, or where the model looked for it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from html import escape
from typing import NamedTuple, ParamSpec

from zoo.plots.style import COLOURS, GRID, INK, MUTED, printable, rounded, shade, shortened, text_on
from zoo.plots.weights import HopWeights, Matrix, Weights, document_weights, hop_weights, largest

LEVELS = 32  # shades; neighbours differ less than the eye can see
OPEN_HOPS = 4  # number of hops unfolded from the start
CONTENTS = 60  # letters of an answer in the table of contents
BEST = 5  # labels shown from the start, unless more are chosen
NIGHT = ["#12181f", "#173243", "#1c4f6b", "#267399", "#4c9bc3", "#8cc7e4", "#d3edf9"]  # COLOURS on a dark screen
NIGHT_INK, NIGHT_MUTED, NIGHT_GRID = "#dbe3ea", "#93a1ae", "#2a343f"
AMBER, NIGHT_AMBER = "#b7791f", "#d9a441"  # beside a warning
Arguments = ParamSpec("Arguments")

WHOLE = "html { color-scheme: light dark } body { margin: 0 }"
# All rules are nested in a class, so that they change nothing else in a notebook; it is named twice, which makes them
# stronger than the notebook's own rules for tables and paragraphs. The last rules follow the notebook's choice of
# light or dark where there is one (JupyterLab, VS Code, Colab).
STYLE = """
.attention-zoo.attention-zoo {
color-scheme: light dark; background: var(--paper); color: var(--ink); font: 16px/1.75 system-ui, sans-serif; text-align: start;
%(colours)s
& main { max-width: 64rem; margin: auto; padding: 1.5rem clamp(1rem, 4vw, 3rem) 3rem }
& .part { max-width: 64rem; padding: 1rem }
h1, h2.head, .part .head { font-size: 1.4rem; font-weight: 600; line-height: 1.3; margin: 0 0 1.25rem; overflow-wrap: anywhere }
h2 { font-size: 1.05rem; font-weight: 600; margin: 0; color: inherit }
p { margin: 0; font-size: inherit }
.above { margin-bottom: .25rem; overflow-wrap: anywhere }
.trust { margin: -.9rem 0 1.25rem; line-height: 1.5; overflow-wrap: anywhere }
.warning { font-size: .875rem; margin-top: .35rem; padding-inline-start: .6rem; border-inline-start: 3px solid var(--warning) }
nav { margin-bottom: 2rem }
nav p { overflow-wrap: anywhere; padding: .2rem 0; line-height: 1.5 }
a { color: var(--link) }
article { border-top: 1px solid var(--grid); padding: 2rem 0; scroll-margin-top: 1rem }
table { border-collapse: collapse; margin: 1.75rem 0 0; width: min(100%%, 34rem); line-height: 1.5; font-size: inherit; color: inherit; table-layout: fixed }
tr:nth-child(n) { background: none }
:is(th, td) { border: 0; background: none; text-align: left; vertical-align: baseline; padding: .1rem 0 }
th { font-weight: normal; padding-right: .8rem; width: 35%%; overflow-wrap: anywhere }
td:last-child { text-align: right; padding-left: .8rem; width: 4rem }
.explains { margin-top: 1.5rem }
.chosen :is(th, td) { font-weight: 700; color: var(--ink) }
.more { margin-top: .75rem; width: min(100%%, 34rem) }
.more table { margin-top: .25rem }
.bar { display: block; height: .7rem; border-radius: 2px;
  background: linear-gradient(to right, var(--bar) var(--part), var(--grid) var(--part)) }
.n { font-size: .8rem; color: var(--muted); font-variant-numeric: tabular-nums }
.scale { display: flex; align-items: center; flex-wrap: wrap; gap: .2rem .6rem; margin: .25rem 0 .75rem;
  line-height: 1.4 }
.scale span { display: flex; align-items: center; gap: .45rem }
.scale .ramp { width: 6rem; height: .7rem; border-radius: 2px; border: 1px solid var(--grid);
  background: linear-gradient(to right, %(ramp)s) }
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
.ask { font-size: 1.25rem; line-height: 1.8; margin: 0 0 .25rem }
.ask span { display: inline-block; padding: 0 .25em; margin: 0; border-radius: 4px; cursor: pointer; outline: none; max-width: 100%%;
  box-sizing: border-box; border-bottom: 2px solid var(--grid) }
.ask span:is(:hover, :focus) { border-bottom-color: var(--bar) }
.look { position: relative }
.look .ask + .n { margin-top: 1rem }
.look .hint { min-height: 3rem; line-height: 1.5rem }
.look:has(span:is(:hover, :focus)) .hint { visibility: hidden }
.look .own { font-weight: 700 }
.look .ask span:is(:hover, :focus)::after { content: attr(data-tip); position: absolute; left: 0; right: 0; bottom: 0; min-height: 3rem;
  font: .8rem/1.5rem system-ui, sans-serif; color: var(--muted); background: var(--paper); white-space: normal }
.look:has(span:hover) .ask span:focus:not(:hover)::after { content: none }
.photo { position: relative; overflow: hidden; border-radius: 6px; border: 1px solid var(--grid); margin: 0 auto 1rem;
  aspect-ratio: var(--ratio); max-width: min(100%%, calc(70vh * var(--ratio))) }
.photo img { position: absolute; inset: 0; width: 100%%; height: 100%%; max-width: none; margin: 0 }
.photo img + img { opacity: 0; transition: opacity .2s }
.photo ~ .ask span:is(:hover, :focus) { background: var(--s4); color: var(--t4) }
.photo ~ .ask span::after { content: attr(data-top); font-size: .7rem; margin-inline-start: .35em; opacity: .75 }
%(shades)s
%(rules)s
@media (max-width: 40rem) {
li { grid-template-columns: 3rem 1fr }
li .text { grid-column: 1 / -1 }
}
@media (prefers-reduced-motion: reduce) { .photo img + img { transition: none } }
@media print { & * { print-color-adjust: exact; -webkit-print-color-adjust: exact } }
[data-jp-theme-light="true"] &, .vscode-light & { color-scheme: light }
[data-jp-theme-light="false"] &, .vscode-dark &, [theme="dark"] & { color-scheme: dark }
}
"""


class Section(NamedTuple):
    """One result in a page.

    Attributes:
        title: Its heading.
        body: HTML.
        rules: Rules of style that it needs in addition to STYLE.
        above: What stands in small letters above the heading, e.g. the name of the model.
        confidence: What stands in small letters below the heading: the probability that the answer is good.
        warnings: Reasons to doubt the answer, below it.
        explains: What stands in small letters at the end: whether the attention explains the answer.
    """

    title: str
    body: str
    rules: tuple[str, ...] = ()
    above: str = ""
    confidence: float | None = None
    warnings: tuple[str, ...] = ()
    explains: str | None = None


def page(sections: Sequence[Section], title: str | None = None) -> str:
    """An HTML file of one result, or of several with a table of contents.

    Args:
        sections: The results.
        title: Heading of the page; by default the answer, or of several results their number.

    Returns:
        The text of the file, to be saved as UTF-8; it needs no network and no script.

    Raises:
        ValueError: There are no results.
    """
    if not sections:
        raise ValueError("a page needs at least one result")
    if len(sections) == 1:
        above, answer = _above(sections[0]), _heading(sections[0])
        if title is None:
            heading, head = sections[0].title, [above, f"<h1>{answer}</h1>"]
        else:
            heading, head = title, [f"<h1>{escaped(title)}</h1>", above, f'<h2 class="head">{answer}</h2>']
        body = [*head, _content(sections[0])]
    else:
        heading = f"{len(sections)} results" if title is None else title
        links = (
            f'<p><a href="#result-{n}">{n}. {_heading(section, CONTENTS)}</a>{_beside(section)}</p>'
            for n, section in enumerate(sections, 1)
        )
        body = [f"<h1>{escaped(heading)}</h1>", "<nav>", *links, "</nav>"]
        for n, section in enumerate(sections, 1):
            head = f'<h2 class="head">{n}. {_heading(section)}</h2>'
            body += [f'<article id="result-{n}">', _above(section), head, _content(section), "</article>"]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(heading)}</title><style>{WHOLE}{_style(sections)}</style></head>",
            '<body class="attention-zoo"><main>',
            *filter(None, body),
            "</main></body></html>\n",
        ]
    )


def fragment(section: Section) -> str:
    """A result as a part of a notebook: the style acts on nothing else there, and no ids can clash."""
    parts = [_above(section), f'<div class="head">{_heading(section)}</div>', _content(section)]
    body = "\n".join(filter(None, parts))
    return f'<div class="attention-zoo"><style>{_style([section])}</style><div class="part">\n{body}\n</div></div>\n'


def as_page(section: Callable[Arguments, Section]) -> Callable[Arguments, str]:
    """The same function, which returns a whole page: the text of an HTML file, to be saved as UTF-8."""

    @wraps(section)
    def whole(*args: Arguments.args, **options: Arguments.kwargs) -> str:
        return page([section(*args, **options)])

    return whole


def plain_section(
    title: str,
    texts: Mapping[str, str],
    probabilities: Mapping[str, float],
    note: str,
    chosen: Collection[str] | None = None,
) -> Section:
    """A result without attention.

    Args:
        title: Heading.
        texts: Texts by their names, e.g. {"source": "A dog runs."}.
        probabilities: Probability of each class; may be empty.
        note: Why there is no attention.
        chosen: The predicted classes, in bold letters; the most probable one if not given.
    """
    body = [
        f'<p class="n">{escaped(name)}</p><p class="text" lang="" dir="auto">{escaped(text)}</p>'
        for name, text in texts.items()
        if text.strip()
    ]
    return Section(
        title, "\n".join([*body, _probabilities(probabilities, chosen), f'<p class="n">{escaped(note)}</p>'])
    )


def document_section(
    sentences: Sequence[Sequence[str]],
    sentence_weights: Weights,
    word_weights: Sequence[Weights],
    title: str,
    probabilities: Mapping[str, float],
    chosen: Collection[str] | None = None,
) -> Section:
    """The sentence and word attention of a document, like `document_picture`, and the probabilities of its classes.

    Args:
        sentences: S lists of words.
        sentence_weights: (S,) weights that sum to 1.
        word_weights: For each sentence (W_s,) weights that sum to 1.
        title: Heading.
        probabilities: Probability of each class; may be empty. Of more than five the most probable come first, and the
            others are folded.
        chosen: The predicted classes, in bold letters; the most probable one if not given.

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
    shades = scale("bar: sentence weight · shade: word weight × √sentence weight", top)
    return Section(title, "\n".join([shades, "<ol>", *items, "</ol>", _probabilities(probabilities, chosen)]))


def hops_section(
    texts: Sequence[Sequence[str]],
    attentions: Sequence[Matrix],
    title: str,
    probabilities: Mapping[str, float],
    labels: Sequence[str] | None = None,
    chosen: Collection[str] | None = None,
) -> Section:
    """The sum of the hops over each text and, folded, each hop; then the probabilities. See `hops_picture`.

    Args:
        texts: One text, or more (a pair of sentences): lists of n tokens.
        attentions: For each text (r, n) weights; each row sums to 1.
        title: Heading.
        probabilities: Probability of each class; see `document_section`.
        labels: Optional name of each text, e.g. ["premise", "hypothesis"].
        chosen: The predicted classes, in bold letters; the most probable one if not given.

    Raises:
        ValueError: The number of weights does not match the tokens, a weight is negative or not finite, a probability
            is outside [0, 1], or there is nothing to show.
        TypeError: A text is a string instead of a list of tokens.
    """
    weights = hop_weights(texts, attentions, labels)
    parts = []
    for n, (text, hops) in enumerate(zip(texts, weights)):
        parts += ["<section>", f"<h2>{escaped(labels[n])}</h2>" if labels else "", *_hops(text, hops), "</section>"]
    body = ['<div class="texts">', *filter(None, parts), "</div>", _probabilities(probabilities, chosen)]
    return Section(title, "\n".join(body))


document_html, hops_html = as_page(document_section), as_page(hops_section)


def asking(
    line: str,
    words: Sequence[str],
    seen: Mapping[str, Sequence[Mapping[int, int]]],
    tips: Sequence[str],
    own: Collection[int] = (),
) -> str:
    """A line of words that can be pointed at, and that are shaded while certain words are pointed at.

    Args:
        line: One letter, the name of the line in `look_rules`.
        words: The words.
        seen: By the name of the line that is pointed at: for each word its level from 1 to LEVELS, by the place of the
            word that is pointed at.
        tips: What is shown below the lines while the word is pointed at.
        own: Places of words in bold letters.
    """
    spans = []
    for n, (word, tip) in enumerate(zip(words, tips, strict=True)):
        levels = {f"{name}{k}": level for name, rows in seen.items() for k, level in rows[n].items()}
        kinds = " ".join([f"{line}{n}", *(f"of-{place}" for place in levels), *(["own"] if n in own else [])])
        shades = ";".join(f"--{place}:var(--s{level});--on-{place}:var(--t{level})" for place, level in levels.items())
        style = f' style="{shades}"' if shades else ""
        spans.append(f'<span class="{kinds}" tabindex="0" data-tip="{escaped(tip)}"{style}>{escaped(word)}</span>')
    return f'<p class="text ask" lang="" dir="auto">{" ".join(spans)}</p>'


def look_rules(line: str, count: int) -> tuple[str, ...]:
    """For each of `count` words of a line: while it is pointed at, or else has the focus, what it sees is shaded."""

    def rule(word: str) -> str:
        places = f".look:has(.{word}:hover) .of-{word}, .look:not(:has(span:hover)):has(.{word}:focus) .of-{word}"
        return f"{places} {{ background: var(--{word}); color: var(--on-{word}) }}"

    return tuple(rule(f"{line}{n}") for n in range(count))


def level_of(weight: float, top: float) -> int:
    """The shade of a weight, from 0 to LEVELS."""
    return min(round(LEVELS * weight / top), LEVELS)


def scale(label: str, top: float) -> str:
    """The scale of the shades, from 0 to `top`."""
    return f'<p class="scale n"><span>{label}</span><span>0<span class="ramp"></span>{top:.2g}</span></p>'


def escaped(text: str) -> str:
    """A token or title on one line, as text of a page."""
    return escape(printable(text))


def _hops(text: Sequence[str], weights: HopWeights) -> list[str]:
    """The sum of the hops and, if there are several, each of them with its three top words as a summary.

    A text of one hop without any weight, the query of a reader that has no query attention, has no scale.
    """
    if len(weights.hops) == 1 and not any(weights.total):
        spans = (f'<span class="s0">{escaped(word)}</span>' for word in text)
        return [f'<p class="text" lang="" dir="auto">{" ".join(spans)}</p>']
    r, top = len(weights.hops), largest([weights.total])
    if r == 1:
        return [scale("attention", top), _words(text, weights.total, weights.total, top)]
    parts = [scale(f"sum of {r} hops, normalised", top), _words(text, weights.total, weights.total, top)]
    top = largest(weights.hops)
    parts.append(scale("each hop", top))
    for n, hop in enumerate(weights.hops, 1):
        heaviest = sorted(range(len(hop)), key=lambda i: -hop[i])[:3]
        summary = ", ".join(dict.fromkeys(escaped(text[i]) for i in heaviest))
        opened = " open" if r <= OPEN_HOPS else ""
        parts.append(f'<details{opened}><summary>hop {n}<span class="n" lang="" dir="auto">{summary}</span></summary>')
        parts.append(f"{_words(text, hop, hop, top)}</details>")
    return parts


def _words(words: Sequence[str], weights: Sequence[float], shown: Sequence[float], top: float) -> str:
    """Words on their shades. The language is marked as unknown; the direction follows from the letters."""
    spans = (
        f'<span class="s{level_of(shown, top)}" title="{weight:.4g}">{escaped(word)}</span>'
        for word, weight, shown in zip(words, weights, shown)
    )
    return f'<p class="text" lang="" dir="auto">{" ".join(spans)}</p>'


def _bar(fraction: float) -> str:
    return f'<span class="bar" style="--part:{100 * fraction:.4g}%"></span>'


def _probabilities(probabilities: Mapping[str, float], chosen: Collection[str] | None = None) -> str:
    """A table; of more than BEST classes the most probable, and the others folded."""
    if wrong := next((p for p in probabilities.values() if not 0 <= p <= 1.0001), None):
        raise ValueError(f"probabilities must be between 0 and 1; got {wrong:g}")
    if not probabilities:
        return ""
    bold = [max(probabilities, key=probabilities.__getitem__)] if chosen is None else chosen
    names = [*probabilities]
    if len(names) > BEST:
        names.sort(key=lambda name: (name not in bold, -probabilities[name]))
    first = max(BEST, len(bold))
    table = _table({name: probabilities[name] for name in names[:first]}, bold)
    if len(names) <= first:
        return table
    rest = _table({name: probabilities[name] for name in names[first:]}, bold)
    return f'{table}\n<details class="more"><summary>{len(names) - first} more</summary>{rest}</details>'


def _table(probabilities: Mapping[str, float], bold: Collection[str]) -> str:
    rows = (
        f'<tr{" class=chosen" if name in bold else ""}><th scope="row">{escaped(name)}</th>'
        f'<td>{_bar(p)}</td><td class="n" title="{p:.4g}">{p:.1%}</td></tr>'
        for name, p in probabilities.items()
    )
    return f"<table>{''.join(rows)}</table>"


def _above(section: Section) -> str:
    return f'<p class="above n">{escaped(section.above)}</p>' if section.above else ""


def _beside(section: Section) -> str:
    """What an entry of the table of contents has after the answer."""
    return f' <span class="n">{escaped(section.above)}</span>' if section.above else ""


def _heading(section: Section, length: int | None = None) -> str:
    """The answer, of at most so many characters."""
    if not section.title.strip():
        return "(empty)"
    return escaped(section.title if length is None else shortened(section.title, length))


def _content(section: Section) -> str:
    """What stands below the heading: confidence and warnings, the body, and whether the attention explains."""
    end = f'<p class="n explains">{escaped(section.explains)}</p>' if section.explains else ""
    return "\n".join(filter(None, [_trust(section), section.body, end]))


def _trust(section: Section) -> str:
    """Confidence and warnings; nothing if there are none."""
    lines = [] if section.confidence is None else [f'<p class="n">confidence {section.confidence:.2f}</p>']
    lines += [f'<p class="warning">warning: {escaped(text)}</p>' for text in section.warnings]
    return f'<div class="trust">{"".join(lines)}</div>' if lines else ""


def _style(sections: Sequence[Section]) -> str:
    pairs = {
        "ink": (INK, NIGHT_INK),
        "muted": (MUTED, NIGHT_MUTED),
        "grid": (GRID, NIGHT_GRID),
        "paper": (COLOURS[0], NIGHT[0]),
        "bar": (COLOURS[4], NIGHT[4]),
        "link": (COLOURS[5], NIGHT[5]),
        "warning": (AMBER, NIGHT_AMBER),
    }
    for level in range(1, LEVELS + 1):
        light, dark = shade(level / LEVELS), shade(level / LEVELS, NIGHT)
        pairs |= {f"s{level}": (light, dark), f"t{level}": (text_on(light), text_on(dark, NIGHT_INK))}
    return STYLE % {
        "colours": "\n".join(f"--{name}: light-dark({light}, {dark});" for name, (light, dark) in pairs.items()),
        "ramp": ", ".join(f"light-dark({light}, {dark})" for light, dark in zip(COLOURS, NIGHT)),
        "shades": "\n".join(f".s{n} {{ background: var(--s{n}); color: var(--t{n}) }}" for n in range(1, LEVELS + 1)),
        "rules": "\n".join(dict.fromkeys(rule for section in sections for rule in section.rules)),
    }
