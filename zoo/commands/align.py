"""`zoo align`: word alignments of given translations, or their error rate."""

import argparse
import json
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.commands.reporting import Faults, say
from zoo.data.translation.pair_files import has_names, read_pairs
from zoo.metrics import GoldAlignment, alignment_error_rate, diagonal_links, read_gold_alignments
from zoo.plots.html import page
from zoo.plots.style import check_file
from zoo.results.alignment import Alignment
from zoo.tasks.translation import TranslationModule
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.atomic import write_text
from zoo.utils.extras import require


def run(options: argparse.Namespace) -> None:
    """Prints the links `i-j` (source word, target word, from 0) of each pair, or with `--gold` the error rate.

    A pair that fails is reported on standard error with its line number and has no links; all others still have theirs.
    There is no error rate then.

    Args:
        options: name, source, target, gold, json, plot, html.

    Raises:
        ValueError: the model cannot align, the files do not match, or --plot has an unknown format or needs an
            extra; or, after all others were aligned, a text is too long.
    """
    if options.plot:
        require("plots", "--plot")
        check_file(options.plot)
    if options.html:
        check_file(options.html, picture=False)
    if options.gold and options.json:
        raise ValueError("--gold prints the error rate and --json the links: give only one of them")
    keep_freed_memory()
    source, target = Path(options.source), options.target and Path(options.target)
    noun = "line" if target or not has_names(source) else "pair"  # rows of a table may have several lines
    pairs = list(read_pairs(source, target, keep_empty=True))
    gold = read_gold_alignments(options.gold) if options.gold else None
    if gold is not None:
        _check(gold, pairs, options.gold)
    model = registry.load(options.name)
    if not isinstance(model, TranslationModule):
        raise ValueError(f"{options.name} is not a translator: it cannot align")
    results, faults = _aligned(model, pairs), Faults(noun)
    for number, result in enumerate(results, 1):
        if isinstance(result, ValueError):
            faults.add(number, result)
    found = [result for result in results if not isinstance(result, ValueError)]
    if gold is not None:
        faults.raise_any(len(pairs))
        diagonal = [diagonal_links(len(alignment.source_words), len(alignment.target_words)) for alignment in found]
        rows = {options.name: [alignment.links for alignment in found], "the diagonal": diagonal}
        print(_table({name: alignment_error_rate(links, gold) for name, links in rows.items()}))
    else:
        for (source, target), alignment in zip(pairs, results, strict=True):
            if isinstance(alignment, ValueError):
                print(end="" if options.json else "\n")  # so that lines of links stay next to those of the texts
            elif options.json:
                print(json.dumps({"source": source, "target": target, **alignment.to_dict()}, ensure_ascii=False))
            else:
                print(alignment.line())
    for number, alignment in enumerate(results, 1):
        if not isinstance(alignment, ValueError) and alignment.warnings:
            say(f"{noun} {number}: warning: {'; '.join(alignment.warnings)}")
    drawn = next((alignment for alignment in found if alignment.source_words and alignment.target_words), None)
    if options.plot and drawn:  # without words there is nothing to draw
        drawn.plot(options.plot, title=options.name)
    if options.html and found:
        write_text(options.html, page([alignment.section(options.name) for alignment in found]))
    faults.raise_any(len(pairs))


def _aligned(model: TranslationModule, pairs: list[tuple[str, str]]) -> list[Alignment | ValueError]:
    """The alignment of each pair, or the ValueError that it raised."""
    try:
        return [*model.align(pairs)]
    except ValueError as error:  # which one was it?
        model.align(("a", "a"))  # raises what is wrong with the model, and with no pair
        if len(pairs) == 1:
            return [error]
    half = len(pairs) // 2
    return _aligned(model, pairs[:half]) + _aligned(model, pairs[half:])


def _check(gold: list[GoldAlignment], pairs: list[tuple[str, str]], file: str) -> None:
    if len(gold) != len(pairs):
        raise ValueError(f"{file} has {len(gold):,} lines for {len(pairs):,} pairs; give one line per pair")
    for number, (reference, (source, target)) in enumerate(zip(gold, pairs, strict=True), 1):
        words = len(source.split()), len(target.split())
        for link in reference.possible:
            if any(n >= count for n, count in zip(link, words, strict=True)):
                got = f"{link[0] + 1} and {link[1] + 1} of sentences of {words[0]} and {words[1]} words"
                raise ValueError(f"{file}, line {number}: a link joins words {got}; source words come first")


def _table(scores: dict[str, dict[str, Any]]) -> str:
    width = max(map(len, scores))
    lines = [f"{'':{width}}{'AER':>8}{'precision':>11}{'recall':>8}"]
    return "\n".join(
        [
            *lines,
            *(f"{name:{width}}{s['aer']:8.2f}{s['precision']:11.2f}{s['recall']:8.2f}" for name, s in scores.items()),
        ]
    )
