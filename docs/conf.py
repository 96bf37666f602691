"""Settings of the site: `sphinx-build -W docs build/site` (extra `docs`). The build needs no network."""

import re
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
sys.path.insert(0, str(HERE.parent))

from zoo.utils.version import __version__ as release  # noqa: E402

project = "attention-zoo"
author = "The attention-zoo authors"
project_copyright = author
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "lessons",
    "mathml",
]
exclude_patterns = ["_extensions", "_static", "photos"]
default_role = "code"  # docstrings write `name`
suppress_warnings = ["myst.xref_missing", "myst.header", "image.not_readable"]

myst_enable_extensions = ["dollarmath", "amsmath", "attrs_inline", "colon_fence"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"show-inheritance": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"attention-zoo {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "tango"
pygments_dark_style = "native"
copybutton_prompt_text = "$ "


def _copy(app: Sphinx) -> None:
    """Cards and the tables of comparisons lie beside the weights' pictures and the recipes; the site has copies."""
    root = HERE.parent
    tables = [file.parent for file in sorted((root / "recipes").glob("comparison*/README.md"))]
    for source, target in [
        (root / "model_cards", HERE / "cards"),
        *((folder, HERE / "recipes" / folder.name) for folder in tables),
    ]:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for file in sorted(source.iterdir()):
            if file.suffix == ".md":
                text = file.read_text(encoding="utf-8")
                if text.startswith("---\n"):  # a page shows a card without its front matter
                    text = text.split("\n---\n", 1)[1]
                (target / file.name).write_text(f"---\norphan: true\n---\n{text}", encoding="utf-8")
            elif file.is_file():  # a picture, or a file to download
                shutil.copy(file, target)


def _link_copies(app: Sphinx, name: str, source: list[str]) -> None:
    """Links of a page to cards and tables, which are right in the repository, go to the copies."""
    text = re.sub(r"\]\(((?:\.\./)*)\.\./model_cards/", r"](\1cards/", source[0])
    source[0] = re.sub(r"\]\(((?:\.\./)*)\.\./(recipes/comparison)", r"](\1\2", text)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", _copy)
    app.connect("source-read", _link_copies)
