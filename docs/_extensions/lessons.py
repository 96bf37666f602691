"""Shows the lessons: the cells of a text as code, and below each what it printed and drew in the notebook."""

import base64
import hashlib
import json
import re
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

MAGIC = re.compile(r"^ *%", re.MULTILINE)  # commands of Jupyter, which are not Python
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class CodeCell(SphinxDirective):
    """A cell of a MyST notebook: `{code-cell}`. Its option `alt` describes the picture that it draws."""

    has_content = True
    optional_arguments = 1
    option_spec = {"tags": directives.unchanged, "alt": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """The code, then the outputs."""
        code = "\n".join(self.content)
        language = "text" if MAGIC.search(code) else "python"
        shown: list[nodes.Node] = [nodes.literal_block(code, code, language=language)]
        notebook = Path(self.env.doc2path(self.env.docname)).with_suffix(".ipynb")
        self.env.note_dependency(str(notebook))
        for output in _outputs(notebook, code):
            shown += self._shown(output)
        return shown

    def _shown(self, output: dict) -> list[nodes.Node]:
        data = output.get("data", {})
        for kind in ("png", "jpeg"):
            if f"image/{kind}" in data:
                return [self._picture(base64.b64decode(data[f"image/{kind}"]), kind)]
        text = COLOURS.sub("", "".join(output.get("text", data.get("text/plain", ""))))
        return [nodes.literal_block(text, text, language="text", classes=["output"])] if text.strip() else []

    def _picture(self, content: bytes, kind: str) -> nodes.image:
        name = f"lesson_pictures/{hashlib.sha256(content).hexdigest()[:16]}.{kind}"
        file = Path(self.env.srcdir) / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        return nodes.image(
            uri=f"/{name}", alt=self.options.get("alt", "what the code above draws"), candidates={"*": name}
        )


def _outputs(notebook: Path, code: str) -> list[dict]:
    """What the cell with this code gave in the notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return next((cell["outputs"] for cell in cells if "".join(cell["source"]) == code), [])


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("code-cell", CodeCell)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
