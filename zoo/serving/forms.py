"""Request forms for the models of each task."""

import math
import textwrap
from typing import Any

import PIL.Image

from zoo.serving import checks
from zoo.serving.base import Form, Searching
from zoo.serving.checks import Refused, short
from zoo.serving.images import Attached
from zoo.serving.limits import MAX_ADDED, MAX_QUERY, MAX_TOP_K, TEMPERATURES


class Translating(Searching):
    """Sentences."""

    name, default_tokens = "translation", 256

    def tokens(self, text: str) -> int:
        return len(self.model.src_tokenizer.encode(self.model.src_tokenizer.plain(text)))

    def work(self, item: str, *, beam_size: int, **options: Any) -> int:
        return self.tokens(item) * beam_size

    def attention_work(self, item: str) -> int:
        return self.tokens(item) ** 2 // 64  # one weight per pair of words

    def run(self, items: list[str], **options: Any) -> list[Any]:
        return self.model.translate(items, **options)


class Completing(Searching):
    """Beginnings of texts, possibly empty; each is completed up to the end of its line."""

    name, default_tokens = "language modelling", 1_000
    about_attention = ("tokens", "given", "attention")
    option_names = (
        "max_words",
        "min_words",
        *Searching.option_names,
        "no_repeat_ngram",
        "allow_unk",
        "temperature",
        "top_k",
        "perplexity",
    )

    def defaults(self) -> tuple[int, float]:
        return 5, 1.0

    def tokens(self, text: str) -> int:
        return super().tokens(text) + text.count("\n")  # line ends are read, too

    def item(self, value: Any, name: str) -> str:
        return checks.text(value, name, self.tokens, self.max_tokens, may_be_empty=True)

    def options(self, fields: dict[str, Any]) -> dict[str, Any]:
        max_words = checks.number(fields, "max_words", 20, 1, MAX_ADDED, whole=True)
        why = "; without it the most probable words are chosen"
        return {
            **super().options(fields),
            "max_words": max_words,
            "min_words": checks.number(fields, "min_words", 1, 0, max_words, whole=True, why=", the max_words"),
            "no_repeat_ngram": checks.number(fields, "no_repeat_ngram", 0, 0, MAX_ADDED, whole=True),
            "allow_unk": checks.truth(fields, "allow_unk"),
            "temperature": checks.number(fields, "temperature", None, *TEMPERATURES, why=why)
            if "temperature" in fields
            else None,
            "top_k": checks.number(fields, "top_k", 0, 0, MAX_TOP_K, whole=True),
            "perplexity": checks.truth(fields, "perplexity"),
        }

    def work(
        self, item: str, *, beam_size: int, n_best: int, max_words: int, temperature: float | None, **options: Any
    ) -> int:
        return (self.tokens(item) + max_words * (beam_size if temperature is None else n_best)) // 2

    def run(self, items: list[str], perplexity: bool = False, **options: Any) -> list[Any]:
        """Completions, or pairs of a completion and the perplexity of the given text."""
        found = self.model.complete(items, **options)
        return list(zip(found, self.model.perplexity(items), strict=True)) if perplexity else found

    def shown(self, result: Any, attention: bool) -> dict[str, Any]:
        if isinstance(result, tuple):
            completion, perplexity = result
            return {
                **self.shown(completion, attention),
                "perplexity": perplexity if math.isfinite(perplexity) else None,
            }
        if not math.isfinite(result.score):
            raise ValueError("no words can follow under these rules; lower min_words or no_repeat_ngram")
        return super().shown(result, attention)

    def limits(self) -> dict[str, float]:
        most = {
            "max_words": MAX_ADDED,
            "no_repeat_ngram": MAX_ADDED,
            "temperature": TEMPERATURES[1],
            "top_k": MAX_TOP_K,
        }
        return {**super().limits(), **most}


class Classifying(Form):
    """Texts, or pairs of them."""

    name, default_tokens = "classification", 5_000

    def __init__(self, model: Any, max_tokens: int) -> None:
        super().__init__(model, max_tokens)
        if model.task.input == "pair":
            self.one, self.probe = "pair", ("a", "a")

    def item(self, value: Any, name: str) -> str | tuple[str, str]:
        if self.one == "text":
            return super().item(value, name)
        if not isinstance(value, list) or len(value) != 2:
            raise Refused(400, f"{name} must be a list of two strings; got {short(value)}")
        first, second = (super(Classifying, self).item(part, f"text {n} of {name}") for n, part in enumerate(value, 1))
        return first, second

    def work(self, item: str | tuple[str, str], **options: Any) -> int:
        return sum(self.tokens(text) for text in ((item,) if isinstance(item, str) else item)) // 4

    def run(self, items: list[Any], **options: Any) -> list[Any]:
        return self.model.classify(items)


class Captioning(Searching):
    """Images: base64 of a file's bytes, never a path or URL. Other processes decode them, see images.py."""

    name, default_bytes = "captioning", 16 * 2**20

    def __init__(self, model: Any, max_tokens: int) -> None:
        super().__init__(model, max_tokens)
        self.one, self.probe = "image", bytes(3 * model.transform.size**2)

    def item(self, value: Any, name: str) -> Attached:
        if not isinstance(value, Attached):
            raise Refused(400, f"{name} must be a string, base64 of an image file; got {short(value)}")
        return Attached(value.number, name)

    def work(self, item: Attached, *, beam_size: int, **options: Any) -> int:
        return 16 + 4 * beam_size  # the model decides the length of a caption

    def run(self, items: list[bytes], **options: Any) -> list[Any]:
        """Captions of decoded images from images.py."""
        size = (self.model.transform.size,) * 2
        return self.model.caption([PIL.Image.frombytes("RGB", size, pixels) for pixels in items], **options)

    def limits(self) -> dict[str, float]:
        from zoo.vision.images import MAX_PIXELS, MAX_SCANS, SLOWNESS_OF_OTHERS

        return {
            "pixels": MAX_PIXELS,  # of JPEG, BMP and GIF
            "pixels_of_other_formats": MAX_PIXELS // SLOWNESS_OF_OTHERS,
            "jpeg_scans": MAX_SCANS,
            "beam_size": super().limits()["beam_size"],
        }


class Answering(Form):
    """Questions: a document, a query with XXXXX in place of a word, and optionally candidate answers."""

    name, default_tokens, one = "reading", 2_000, "question"
    parts = ("document", "query", "candidates")
    about_attention = ("document", "weights", "query", "query_weights")
    probe = ("a", "XXXXX", None)

    def __init__(self, model: Any, max_tokens: int) -> None:
        super().__init__(model, max_tokens)
        self.max_query = min(MAX_QUERY, max_tokens)

    def tokens(self, text: str) -> int:
        from zoo.text.words import split_words

        return len(split_words(text, self.model.tokenizer))

    def item(self, value: Any, name: str) -> tuple[str, str, list[str] | None]:
        if not isinstance(value, dict):
            raise Refused(
                400,
                f'{name} must be an object with "document", "query" and, optionally, "candidates"; got {short(value)}',
            )
        checks.names(value, [*self.parts], f" of {name}")
        for part, most in (("document", self.max_tokens), ("query", self.max_query)):
            if part not in value:
                raise Refused(
                    400, f'{name} has no "{part}"; send a document and a query with XXXXX in place of the missing word'
                )
            checks.text(value[part], f"{part} of {name}", self.tokens, most, remedy="shorten it")
        question = value["document"], value["query"], self._candidates(value, f"candidates of {name}")
        try:
            self.model.read_question(*question, f"{name}: ")  # as in `answer`, which would reject the whole batch
        except ValueError as error:
            raise Refused(422, textwrap.shorten(str(error), 240, placeholder=" ...")) from error
        return question

    def work(self, item: tuple[str, str, list[str] | None], **options: Any) -> int:
        return sum(map(self.tokens, item[:2])) // 4

    def _candidates(self, fields: dict[str, Any], name: str) -> list[str] | None:
        if "candidates" not in fields:
            return None
        words = fields["candidates"]
        if wrong := [word for word in words if not isinstance(word, str)] if isinstance(words, list) else [words]:
            raise Refused(400, f"{name} must be a list of strings; got {short(wrong[0])}")
        if not 1 <= len(words) <= self.max_tokens:
            hint = "leave the field out to choose from all words of the document"
            raise Refused(422, f"{name} must have 1 to {self.max_tokens:,} words; got {len(words):,}; {hint}")
        checks.words(words, name)
        return words

    def run(self, items: list[Any], **options: Any) -> list[Any]:
        return self.model.answer(*map(list, zip(*items, strict=True)))

    def limits(self) -> dict[str, float]:
        return {**super().limits(), "query_tokens": self.max_query, "candidates": self.max_tokens}


FORMS: dict[str, type[Form]] = {
    form.name: form for form in (Translating, Completing, Classifying, Captioning, Answering)
}  # by task
