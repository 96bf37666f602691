"""Several results in one web page."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import overload

from zoo.plots.html import page as page_of
from zoo.results.base import Result, check_title, written


@overload
def page(results: Iterable[Result] | Result, path: None = None, title: str | None = None) -> str: ...
@overload
def page(results: Iterable[Result] | Result, path: str | os.PathLike, title: str | None = None) -> Path: ...
def page(
    results: Iterable[Result] | Result, path: str | os.PathLike | None = None, title: str | None = None
) -> str | Path:
    """Makes one web page of several results, also of different models, with a table of contents.

    Args:
        results: What the verbs of the models answered.
        path: HTML file to write.
        title: Heading of the page; by default the answer, or of several results their number.

    Returns:
        `path`; without it the text of the page.

    Raises:
        ValueError: there are no results.
        TypeError: one is no result, or the title is no string.
    """
    check_title(title)
    if not isinstance(results, Iterable | Result):
        raise TypeError(f"zoo.page takes what the verbs of models answer; got {type(results).__name__}")
    found = [results] if isinstance(results, Result) else list(results)
    for result in found:
        if not isinstance(result, Result):
            raise TypeError(f"zoo.page takes what the verbs of models answer; got {type(result).__name__}")
    return written(page_of([result.section() for result in found], title), path)
