"""Reader: `answer`.

Shapes: C candidates, D and L words of a document and a query, W distinct words of all questions.
"""

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np

from zoo.results.reading import Reading
from zoo.text import Tokenizer
from zoo.text.familiar import known_share
from zoo.text.words import BLANK, split_words, word_id
from zoo.verbs.base import Verbs, evaluated
from zoo.verbs.checks import Many, as_list, check_assets, check_finite, present
from zoo.verbs.confidence import Evidence, trusted
from zoo.verbs.groups import groups_of_similar_size
from zoo.verbs.task import Task

MOST_ABSENT = 10  # candidates that a warning lists
Numbered = tuple[np.ndarray, np.ndarray, np.ndarray]  # document, query, candidates (none: all words of the document)


class Reader(Verbs):
    """The verb of readers. `config` has vocab_size and may have exclude_query_words."""

    task = Task(
        "reading", "answer", "question", Reading, "question-answering", 'model.answer("...", "... XXXXX ...").answer'
    )
    tokenizer: Tokenizer | None = None

    @property
    def vocabulary(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ValueError: there is none yet.
        """
        return present(self.tokenizer)

    # ---- filled in by the engine ----

    def weigh(self, questions: Sequence[Numbered], ids: np.ndarray) -> list[tuple[Any, Any, np.ndarray]]:
        """Reads questions.

        Args:
            questions: document (D,), query (L,) and candidates (C,), in numbers of distinct words.
            ids: (W,) id of each distinct word, UNK for one that is not in the vocabulary.

        Returns:
            For each question the weights of the document's words (D,) and of the query's (L,) or None, and the
            probability of each candidate; without candidates of each distinct word of the document, in order.
        """
        raise NotImplementedError

    # ---- the verb ----

    @overload
    def answer(self, document: str, query: str, candidates: Iterable[str] | None = ...) -> Reading: ...

    @overload
    def answer(
        self,
        document: str | Iterable[str],
        query: Many[str],
        candidates: Iterable[Iterable[str] | None] | None = ...,
    ) -> list[Reading]: ...

    @overload
    def answer(
        self,
        document: str | Iterable[str],
        query: str | Iterable[str],
        candidates: Iterable[str] | Iterable[Iterable[str] | None] | None = ...,
    ) -> Reading | list[Reading]: ...

    @evaluated
    def answer(
        self,
        document: str | Iterable[str],
        query: str | Iterable[str],
        candidates: Iterable[str] | Iterable[Iterable[str] | None] | None = None,
    ) -> Reading | list[Reading]:
        """Finds the missing word of a query in a document.

        Args:
            document: raw or tokenised text; a list of N, one per query; or one text for all queries.
            query: a sentence with XXXXX in place of the missing word, or a list of N of them.
            candidates: possible answers, compared as strings; for a list of queries a list of N such lists. If not
                given, any word of the document may be the answer. With `exclude_query_words` the words of the query
                cannot be the answer. A candidate that is not in the document has probability 0, and `warnings` names
                it; confidence needs two that are.

        Returns:
            One Reading for one query, a list of them for a list.

        Raises:
            ValueError: the model has no tokenizer; a document or query has no words; a query has no XXXXX; there
                are no candidates, one has several words, or none is in the document or possible; the lists differ
                in length.
            TypeError: something is not a string, or not a list.
        """
        self.check_ready(self.tokenizer)
        one = isinstance(query, str)
        queries = [query] if one else as_list(query, "query")
        documents = [document] * len(queries) if isinstance(document, str) else as_list(document, "document")
        choices = (
            [candidates]
            if one
            else [None] * len(queries)
            if candidates is None
            else as_list(candidates, "candidates", "lists of words")
        )
        for name, values in (("documents", documents), ("lists of candidates", choices)):
            if len(values) != len(queries):
                raise ValueError(f"there must be as many {name} as queries; got {len(values)} and {len(queries)}")
        questions = [
            self.read_question(*parts, "" if one else f"question {n}: ")
            for n, parts in enumerate(zip(documents, queries, choices, strict=True), 1)
        ]
        results: list[Any] = [None] * len(questions)
        for rows in groups_of_similar_size([len(words) + len(asked) for words, asked, _ in questions]):
            for n, result in zip(rows, self._answers([questions[n] for n in rows]), strict=True):
                results[n] = result
        return results[0] if one else results

    def read_question(
        self, document: Any, query: Any, candidates: Any, where: str = ""
    ) -> tuple[list[str], list[str], list[str]]:
        """Words of document and query, and candidates; errors as in `answer`, with `where` in front."""
        for name, text in (("document", document), ("query", query)):
            if not isinstance(text, str):
                raise TypeError(f"{where}the {name} must be a string; got {type(text).__name__}")
        if candidates is not None:
            is_list = isinstance(candidates, Iterable) and not isinstance(candidates, (str, Mapping))
            listed = list(candidates) if is_list else None
            if listed is None or not all(isinstance(word, str) for word in listed):
                raise TypeError(f"{where}candidates must be a list of strings; got {candidates!r:.50}")
            candidates = list(dict.fromkeys(unicodedata.normalize("NFC", word) for word in listed))
        keep = {BLANK, *(candidates or ())}
        words, asked = (split_words(text, self.vocabulary, keep) for text in (document, query))
        for name, found in (("document", words), ("query", asked)):
            if not found:
                raise ValueError(f"{where}the {name} has no words; give a text")
        if BLANK not in asked:
            raise ValueError(f"{where}the query must have {BLANK} in place of the missing word; got {query!r:.100}")
        if candidates is None:
            return words, asked, []
        if not candidates:
            raise ValueError(
                f"{where}there are no candidates; give some, or None to choose from all words of the document"
            )
        for word in candidates:
            if split_words(word, self.vocabulary, keep) != [word]:
                raise ValueError(f"{where}a candidate must be one word of the document; got {word!r}")
        if not set(candidates) & set(words):
            given = ", ".join(map(repr, candidates[:10]))
            raise ValueError(f"{where}none of the candidates is in the document (upper and lower case differ): {given}")
        free = set(words) - set(asked) or set(words)
        if self.config.get("exclude_query_words") and not set(candidates) & free:
            raise ValueError(
                f"{where}this model never answers with a word of the query, and the candidates in the document are "
                "such words"
            )
        return words, asked, candidates

    def _answers(self, questions: list[tuple[list[str], list[str], list[str]]]) -> list[Reading]:
        numbers: dict[str, int] = {}

        def numbered(words: list[str]) -> np.ndarray:
            return np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64)

        texts: list[Numbered] = [
            (numbered(words), numbered(asked), numbered(given)) for words, asked, given in questions
        ]
        ids = np.array([word_id(word, self.vocabulary) for word in numbers], np.int64)
        results = []
        for (words, asked, given), (w, v, p) in zip(questions, self.weigh(texts, ids), strict=True):
            # a sum of rounded weights may be a little more than 1
            probabilities = dict(zip(given or dict.fromkeys(words), check_finite(p).clip(max=1).tolist(), strict=True))
            if not given and len(probabilities) > 1:
                probabilities.pop(BLANK, None)  # the document may contain the mark too
            best = max(probabilities, key=probabilities.__getitem__)
            if not given:
                probabilities = dict(sorted(probabilities.items(), key=lambda item: -item[1]))
            result = Reading(best, probabilities, words, w, asked, v)
            known = [int(ids[numbers[word]]) for word in words]
            absent = [word for word in given if word not in words]
            chosen = len(given) - len(absent) > 1  # confidence was measured for choices among candidates
            score = log_odds_of_best(p) if chosen else math.nan
            evidence = self.evidence_of(score, known, " ".join(words), _notes(absent))
            results.append(trusted(result, self.calibration, evidence))
        return results

    def evidence_of(self, score: float, document: list[int], text: str, notes: tuple[str, ...] = ()) -> Evidence:
        known = known_share(document, self.vocabulary)
        return Evidence({"score": score}, known, text, notes=notes, vocabulary=self.vocabulary)

    # ---- bundle ----

    def assets(self) -> dict[str, str]:
        """tokenizer.json."""
        return {} if self.tokenizer is None else {"tokenizer.json": self.tokenizer.to_json()}

    def load_assets(self, assets: dict[str, str]) -> None:
        if assets:
            check_assets(assets, name := "tokenizer.json")
            self.tokenizer = Tokenizer.from_json(assets[name], self.config["vocab_size"], name)


def _notes(absent: list[str]) -> tuple[str, ...]:
    """The warning of candidates that are not in the document, whose probability is 0."""
    if not absent:
        return ()
    more = ", ..." if len(absent) > MOST_ABSENT else ""
    return (f"not in the document, so never the answer: {', '.join(absent[:MOST_ABSENT])}{more}",)


def log_odds_of_best(probabilities: np.ndarray) -> float:
    """Log-odds of the best of (C,) candidates, whose probabilities may sum to less than 1."""
    found = np.maximum(probabilities.astype(np.float64), 1e-9)
    best = float(found.max() / found.sum())
    return math.log(best) - math.log(max(1 - best, 1e-9))
