"""The record of a task: what command line, data modules, server, Hub and ONNX export need to know of its models."""

from dataclasses import dataclass
from typing import Literal

Input = Literal["text", "document", "pair", "image", "question"]


@dataclass(frozen=True)
class Task:
    """Properties that all models of a task share.

    Attributes:
        name: As on the cards, e.g. "translation".
        verb: The method of the models for raw input, e.g. "translate".
        input: Type of one input: "text" (one sentence or the beginning of a text), "document" (a text, at the
            command line also a file that holds it), "pair" (two texts), "image", or "question" (a document, a query
            and the candidate answers).
        result: Class of the result for each input, a `zoo.results.Result`.
        hub: The name of the task on the Hugging Face Hub.
        example: A Python expression that uses the verb.
        searches: The verb searches for an output text: it takes beam_size and n_best, and results have `n_best`.
    """

    name: str
    verb: str
    input: Input
    result: type
    hub: str
    example: str
    searches: bool = False
