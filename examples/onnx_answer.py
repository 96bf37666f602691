"""Finds the word of a document that is missing in a query, with the graph of `zoo export --format onnx` of a reader.

Needs onnxruntime, numpy and tokenizers; neither torch nor zoo.

    zoo export local-dir:my_reader graphs --format onnx
    python examples/onnx_answer.py graphs story.txt "Then XXXXX ran home ." --candidates "Alice|Rabbit|Bob"
"""

import argparse
import json
import re
import unicodedata
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession
from tokenizers import Tokenizer

PIECE = re.compile(r"@?\w+(?:[-.'’]\w+|(?<=\d),\d+)*|--+|\.{2,}|``|''|\S")  # what stays whole: rabbit-hole, U.S, 1,000
APART = re.compile(r"(?<!\S)[.,;:!?](?!\S)")  # tokenised text has such marks
ATTACHED = re.compile(r"\w(?:[,;:!?]|n['’]t|['’](?:s|ll|re|ve|d|m))(?!\S)")  # and none of these
CONTRACTION = re.compile(r"(?i)(?=n['’]t$|['’](?:s|ll|re|ve|d|m)$)")
PENN = {'"': ("``", "''"), "“": ("``", "``"), "”": ("''", "''"), "‘": ("`", "`"), "’": ("'", "'")}  # opening, other


class Reader:
    """One question at a time; the graph itself takes many (its axis "batch", with their numbers of words in the
    lengths).
    """

    def __init__(self, folder: str) -> None:
        path = Path(folder)
        self.session = InferenceSession(path / "reader.onnx", providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        about = json.loads((path / "onnx.json").read_text(encoding="utf-8"))
        self.kind, self.blank, self.unknown = (about[name] for name in ("tokenizer", "blank", "unknown_words"))
        self.special, self.cleaning = about["special_tokens"], about["cleaning"]

    def answer(self, document: str, query: str, candidates: list[str] | None = None) -> dict[str, float]:
        """Probabilities of the candidates, or of all words of the document, the most probable first."""
        candidates = None if candidates is None else [unicodedata.normalize("NFC", word) for word in candidates]
        keep = {self.blank, *(candidates or ())}
        words, asked = self.words(document, keep), self.words(query, keep)
        if not words or self.blank not in asked:
            raise ValueError(f"give a document, and a query with {self.blank} in place of the missing word")
        ids = self.ids(dict.fromkeys([*words, *asked]))
        inputs = {}
        for name, text in (("document", words), ("query", asked)):
            inputs |= {name: np.array([[ids[word] for word in text]]), f"{name}_lengths": np.array([len(text)])}
        inputs["not_in_query"] = np.array([[word not in asked for word in words]])
        weights = self.session.run(
            ["weights"], {value.name: inputs[value.name] for value in self.session.get_inputs()}
        )[0][0]
        choices = [word for word in words if word != self.blank] or words if candidates is None else candidates
        found = dict.fromkeys(choices, 0.0)
        for word, weight in zip(words, weights.tolist(), strict=True):
            if word in found:
                found[word] += weight
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def ids(self, words: dict[str, None]) -> dict[str, int]:
        """The id of each distinct word of an example, in the order in which they occur; unknown ones have their own."""
        ids, unknown, count = {}, 0, self.unknown["count"]
        for word in words:
            ids[word] = self.word_id(word)
            if ids[word] == self.special["unk"] and count:
                ids[word] = self.unknown["first_id"] + unknown % count
                unknown += 1
        return ids

    def word_id(self, word: str) -> int:
        ids = self.tokenizer.encode(word, add_special_tokens=False).ids
        return self.special["blank"] if word == self.blank else ids[0] if len(ids) == 1 else self.special["unk"]

    def words(self, text: str, keep: set[str]) -> list[str]:
        """Words of raw or of tokenised text, as they are written in what the model was trained on."""
        for pattern, content in self.cleaning:
            text = re.sub(pattern, content, text)
        chunks, found = unicodedata.normalize("NFC", text).split(), []
        if self.kind != "word":
            encodings = [(chunk, self.tokenizer.encode(chunk, add_special_tokens=False)) for chunk in chunks]
            return [chunk[start:end] for chunk, encoding in encodings for start, end in encoding.offsets]

        if APART.search(text) and not ATTACHED.search(text):
            return chunks

        def whole(word: str) -> bool:
            return word in keep or self.word_id(word) != self.special["unk"]

        for chunk in chunks:
            for place, piece in enumerate([chunk] if whole(chunk) else PIECE.findall(chunk)):
                mark = PENN.get(piece, (piece, piece))[place > 0]
                if whole(piece):
                    found.append(piece)
                elif piece in PENN:
                    found.append(mark if self.word_id(mark) != self.special["unk"] else piece)
                else:
                    found += [part.replace("’", "'") for part in CONTRACTION.split(piece, maxsplit=1) if part]
        return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("document", help="a text file")
    parser.add_argument("query", help="a sentence with XXXXX in place of the missing word")
    parser.add_argument("--candidates", help="words with | between them; all words of the document if not given")
    options = parser.parse_args()
    if not Path(options.folder, "onnx.json").is_file():
        parser.error(
            f"{options.folder} holds no onnx.json: give the folder that `zoo export NAME FOLDER --format onnx` wrote"
        )
    try:
        candidates = [word.strip() for word in options.candidates.split("|")] if options.candidates else None
        found = Reader(options.folder).answer(
            Path(options.document).read_text(encoding="utf-8"), options.query, candidates
        )
        for word, probability in list(found.items())[:5]:
            print(f"{word}\t{probability:.4f}")
    except (ValueError, OSError) as error:
        parser.error(str(error))
