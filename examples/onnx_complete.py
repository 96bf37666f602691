"""Completes texts greedily, or says how surprising they are, with the graph of `zoo export --format onnx` of a language
model.

Needs onnxruntime, numpy and tokenizers; neither torch nor zoo.

    zoo export local-dir:my_language_model graphs --format onnx
    python examples/onnx_complete.py graphs "The old house" "It was" --max-words 10
    python examples/onnx_complete.py graphs "The old house was empty ." --perplexity
"""

import argparse
import json
import math
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession
from tokenizers import Tokenizer

AT_ONCE = 256  # words that are read in one call


class LanguageModel:
    """One text at a time; the graph itself takes many (its axis "batch", with their numbers of words in `lengths`)."""

    def __init__(self, folder: str) -> None:
        path = Path(folder)
        self.step = InferenceSession(path / "step.onnx", providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        about = json.loads((path / "onnx.json").read_text(encoding="utf-8"))
        self.state, self.first_state, self.kind, self.search = (
            about[name] for name in ("state", "first_state", "tokenizer", "search")
        )
        self.unk, self.eos = about["special_tokens"]["unk"], about["special_tokens"]["eos"]

    def complete(self, text: str, max_words: int | None = None) -> tuple[str, float]:
        """The text with the most probable word at every step, to the end of its line, and the score of what was
        added.
        """
        most, ids, added, total = max_words or self.search["max_words"], self.encode(text)[:-1], [], 0.0
        *_, (log_probs, state) = self.read([self.eos, *ids])  # only the last ones count
        while True:
            last = log_probs[-1]
            last[self.search["never"]] = -np.inf
            if len(added) < self.search["min_words"]:
                last[self.eos] = -np.inf
            added.append(int(last.argmax()))
            total += last[added[-1]]
            if added[-1] == self.eos or len(added) == most:
                break
            ((log_probs, state),) = self.read(added[-1:], state)
        return self.joined(text, ids, added), float(total / ((5 + len(added)) / 6) ** self.search["length_penalty"])

    def perplexity(self, text: str) -> float:
        """exp of the mean loss over the words and line ends of a text; NaN for a text without words."""
        ids, total = self.encode(text.removesuffix("\n")), 0.0
        if set(ids) == {self.eos}:
            return math.nan
        for n, (log_probs, _) in enumerate(self.read([self.eos, *ids[:-1]])):
            wanted = ids[n * AT_ONCE :][: len(log_probs)]
            total += log_probs[range(len(wanted)), wanted].sum(dtype=np.float64)
        return math.exp(-total / len(ids))

    def read(self, ids: list[int], state: dict | None = None) -> Iterator[tuple[np.ndarray, dict]]:
        """Log-probabilities (words, vocabulary) of what follows each word, and the state after them, a piece of the
        text at a time.
        """
        state = state or {name: np.zeros([1, *x["zeros"][1:]], x["type"]) for name, x in self.first_state.items()}
        for first in range(0, len(ids), AT_ONCE):
            piece = ids[first : first + AT_ONCE]
            values = self.step.run(None, {"tokens": np.array([piece]), "lengths": np.array([len(piece)]), **state})
            found = {value.name: x for value, x in zip(self.step.get_outputs(), values)}
            state = {name: found[after] for name, after in self.state.items()}
            yield found["log_probs"][0], state

    def encode(self, text: str) -> list[int]:
        """Words of all lines, each line ended by EOS."""
        return [i for line in text.split("\n") for i in [*self.line(line), self.eos]]

    def line(self, line: str) -> list[int]:
        """Words of a line; to a model of tokenised text a word may be a known one in another form."""
        words = unicodedata.normalize("NFC", line).split()
        ids = self.ids(" ".join(words))
        return [i for word in words for i in self.word(word)] if self.kind == "word" and self.unk in ids else ids

    def word(self, word: str) -> list[int]:
        bare = word.strip('",;:!?().')
        forms = [word, word.lower(), bare, bare.lower(), *["N"] * bool(re.fullmatch(r"[-+]?\d[\d.,]*", bare))]
        return next((ids for form in forms if self.unk not in (ids := self.ids(form))), [self.unk])

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def joined(self, text: str, ids: list[int], added: list[int]) -> str:
        """The text as it was given, with what was added."""
        text, more = text.rstrip(" "), self.decode(added)
        if self.kind in ("word", "word_punct"):
            return f"{text} {more}" if more and text and text[-1] != "\n" else text + more
        line = ids[len(ids) - ids[::-1].index(self.eos) :] if self.eos in ids else ids
        return text + self.decode([*line, *added])[len(self.decode(line)) :]

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode([i for i in ids if i > self.eos]).strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--max-words", type=int)
    parser.add_argument("--perplexity", action="store_true")
    options = parser.parse_args()
    if not Path(options.folder, "onnx.json").is_file():
        parser.error(
            f"{options.folder} holds no onnx.json: give the folder that `zoo export NAME FOLDER --format onnx` wrote"
        )
    try:
        model = LanguageModel(options.folder)
        for text in options.texts:
            if options.perplexity:
                print(f"{model.perplexity(text):.4f}")
            else:
                print("{}\t{:.4f}".format(*model.complete(text, options.max_words)))
    except (ValueError, OSError) as error:
        parser.error(str(error))
