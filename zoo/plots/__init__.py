"""Plots and web pages of attention: who attends to whom, and what a classifier looked at.

All texts use one style: white is no attention, darker blue is more, and a scale shows the values. Photos are bright
where the attention is.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.plots.alignment import alignment_heatmap, alignment_html, heads_heatmap
    from zoo.plots.caption import caption_html, caption_picture
    from zoo.plots.document import document_picture
    from zoo.plots.hops import hops_picture
    from zoo.plots.html import document_html, hops_html
    from zoo.plots.look_back import look_back_html, look_back_picture
    from zoo.plots.reading import reading_html, reading_picture

__all__ = [
    "alignment_heatmap",
    "alignment_html",
    "caption_html",
    "caption_picture",
    "document_html",
    "document_picture",
    "heads_heatmap",
    "hops_html",
    "hops_picture",
    "look_back_html",
    "look_back_picture",
    "reading_html",
    "reading_picture",
]

_HOME = {  # imported when used: a page needs no photos
    "alignment_heatmap": "alignment",
    "alignment_html": "alignment",
    "caption_html": "caption",
    "caption_picture": "caption",
    "document_html": "html",
    "document_picture": "document",
    "heads_heatmap": "alignment",
    "hops_html": "html",
    "hops_picture": "hops",
    "look_back_html": "look_back",
    "look_back_picture": "look_back",
    "reading_html": "reading",
    "reading_picture": "reading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'zoo.plots' has no attribute '{name}'")
    return getattr(importlib.import_module(f"zoo.plots.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
