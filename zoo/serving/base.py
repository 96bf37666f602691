"""Common to requests for all models: a validated request, its fields, options and limits, and the answer's form."""

from dataclasses import dataclass
from typing import Any, ClassVar

from zoo.serving import checks
from zoo.serving.limits import MAX_BEAM, MAX_WORD


@dataclass(frozen=True)
class Job:
    """A validated request."""

    items: list[Any]  # texts, pairs of texts, images or questions
    works: list[int]  # of each item, see limits.py
    options: tuple[tuple[str, Any], ...]  # of the model's method; jobs with different options cannot share a batch
    attention: bool  # whether the answer includes it
    one: bool  # "text" was sent, not "texts"


class Form:
    """How requests to one kind of model are read and answered.

    Args:
        model: in eval mode.
        max_tokens: maximum length of one text, by the model's tokenizer.
    """

    name: ClassVar[str]
    option_names: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[tuple[str, ...]] = ()  # fields of an item that is an object
    # of a result; sent on request
    about_attention: ClassVar[tuple[str, ...]] = ("tokens", "source_tokens", "attention", "sentences")
    default_tokens: ClassVar[int] = 0
    default_bytes: ClassVar[int] = 2**20
    lower: ClassVar[str] = "shorten it"  # how to make an item cheaper
    one: str = "text"  # the field of one item; "texts" is the field of several
    probe: Any = "a"  # an item that every model can answer

    def __init__(self, model: Any, max_tokens: int) -> None:
        self.model, self.max_tokens = model, max_tokens

    @property
    def fields(self) -> list[str]:
        """Fields that a request may have."""
        return [self.one, f"{self.one}s", *self.option_names, "attention"]

    def tokens(self, text: str) -> int:
        """Number of tokens that the model reads."""
        return len(self.model.tokenizer.encode(self.model.tokenizer.plain(text)))

    def item(self, value: Any, name: str) -> Any:
        """One item of a request, validated; `name` is its name in messages."""
        return checks.text(value, name, self.tokens, self.max_tokens)

    def options(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the model's method."""
        return {}

    def work(self, item: Any, **options: Any) -> int:
        """Cost of an item, see limits.py, without that of `attention`."""
        return self.tokens(item) // 4

    def attention_work(self, item: Any) -> int:
        """Cost of writing the weights into the answer."""
        return 0

    def run(self, items: list[Any], **options: Any) -> list[Any]:
        """A result for each item."""
        raise NotImplementedError

    def shown(self, result: Any, attention: bool) -> dict[str, Any]:
        """The answer for a result."""
        found = result.to_dict()
        return (
            found if attention else {name: value for name, value in found.items() if name not in self.about_attention}
        )

    def limits(self) -> dict[str, float]:
        """Their entry in `/info`."""
        return {"tokens": self.max_tokens, "characters_of_a_word": MAX_WORD}


class Searching(Form):
    """Models that search for their output."""

    option_names = ("beam_size", "n_best", "length_penalty")
    lower = "shorten it, or lower beam_size"

    def defaults(self) -> tuple[int, float]:
        """Beam size and length penalty of the model."""
        return self.model.config["beam_size"], self.model.config["length_penalty"]

    def options(self, fields: dict[str, Any]) -> dict[str, Any]:
        beam_size, length_penalty = self.defaults()
        most = max(MAX_BEAM, beam_size)
        beam_size = checks.number(fields, "beam_size", beam_size, 1, most, whole=True)
        bound = (most, "") if "temperature" in fields else (beam_size, ", the beam_size")  # samples need no beam
        return {
            "beam_size": beam_size,
            "n_best": checks.number(fields, "n_best", 1, 1, bound[0], whole=True, why=bound[1]),
            "length_penalty": checks.number(fields, "length_penalty", length_penalty, -10, 10),
        }

    def limits(self) -> dict[str, float]:
        return {**super().limits(), "beam_size": max(MAX_BEAM, self.defaults()[0])}
