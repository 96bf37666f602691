"""Settings of the site: `sphinx-build -W docs build/site` (extra `docs`). The build needs no network."""

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


def _copy_cards(app: Sphinx) -> None:
    """The cards lie beside the weights' pictures in model_cards/; a page shows them without their front matter."""
    target = HERE / "cards"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for file in sorted((HERE.parent / "model_cards").iterdir()):
        if file.suffix == ".md":
            text = file.read_text(encoding="utf-8").split("\n---\n", 1)[1]
            (target / file.name).write_text(f"---\norphan: true\n---\n{text}", encoding="utf-8")
        elif file.is_file():  # a picture
            shutil.copy(file, target)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", _copy_cards)
