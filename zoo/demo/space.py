"""README.md of the folder of the page, with which it is a static Space of the Hugging Face Hub."""

from collections.abc import Sequence

from zoo.demo.page import Shown

README = "README.md"
OWN = "apache-2.0"  # licence of the page
OTHER = "other"
_TEXT = """---
title: Attention Zoo
sdk: static
app_file: index.html
license: {license}
short_description: Trained attention models to touch, in your browser
tags: [attention, interpretability, onnx]
---
# Attention Zoo

Trained attention models that run in your browser: no server computes anything, and nothing that you type leaves
the page. Open `index.html`, or serve this folder with any web server; `zoo demo --export` of attention-zoo wrote it.

| model | what it is | licence |
|---|---|---|
{rows}

The page is under {own}; `licences.txt` has the licences of the programs in it, and `photos/LICENSE` that of the
photos. What the licence `other` means stands on the card of the model, which the page shows.
"""


def space_readme(models: Sequence[Shown]) -> str:
    """The text; its front matter names the licence that all parts have, or "other".

    Args:
        models: those in the folder.
    """
    licences = [str(model.facts.get("license", OTHER)) for model in models]
    rows = [f"| {model.name} | {model.title} | {licence} |" for model, licence in zip(models, licences)]
    common = OWN if all(licence == OWN for licence in licences) else OTHER
    return _TEXT.format(license=common, rows="\n".join(rows), own=OWN)
