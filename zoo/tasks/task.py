"""The record of a task: what the command line, the data modules, the server, the Hub and the ONNX export need to know
of its models.
"""

from dataclasses import dataclass
from typing import Literal

Input = Literal["text", "document", "pair", "image", "question"]


@dataclass(frozen=True)
class Task:
    """What is asked of the models of a task, and how.

    Attributes:
        name: As the cards have it, e.g. "translation".
        verb: The method of the models for raw input, e.g. "translate".
        input: What it takes one or many of: "text" (one sentence or one beginning), "document" (a text, at the command
            line also a file that holds it), "pair" (two texts), "image", or "question" (a document, a query and the
            words to choose from).
        result: Class of what it returns for each. Has `line()`, `to_dict()`, `plot(path)`, and `to_html(path)` if there
            are pages.
        hub: The name of the task on the Hugging Face Hub.
        example: A Python expression that uses the verb.
        searches: The verb searches for a text: it takes beam_size and n_best, and results have `n_best`.
    """

    name: str
    verb: str
    input: Input
    result: type
    hub: str
    example: str
    searches: bool = False

    @property
    def has_pages(self) -> bool:
        """Whether results can be written as HTML."""
        return hasattr(self.result, "to_html")
