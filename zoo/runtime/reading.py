"""Readers as graphs.

Shapes: B questions, D and L words of a document and a query.
"""

from collections.abc import Sequence

import numpy as np

from zoo.runtime.base import GraphModel
from zoo.runtime.graphs import Exported, padded
from zoo.text import UNK
from zoo.verbs.reading import Numbered, Reader


class GraphReader(Reader, GraphModel):
    """A reader as a graph."""

    def __init__(self, exported: Exported) -> None:
        super().__init__(exported)
        self._graph = exported.graph("reader.onnx")

    def weigh(
        self, questions: Sequence[Numbered], ids: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
        rows = [self._rows(document, query, ids) for document, query, _ in questions]
        inputs = {}
        for name, texts in zip(("document", "query", "not_in_query"), zip(*rows, strict=True)):
            inputs[name], inputs[f"{name}_lengths"] = padded(list(texts))
        inputs["not_in_query"] = inputs["not_in_query"].astype(bool)
        found = self._graph(inputs)
        of_queries, answers = found.get("query_weights"), []
        for n, (document, query, candidates) in enumerate(questions):
            weights = found["weights"][n, : len(document)]
            sums = np.zeros(len(ids), np.float32)
            np.add.at(sums, document, weights)
            chosen = candidates if len(candidates) else document[np.sort(np.unique(document, return_index=True)[1])]
            answers.append((weights, None if of_queries is None else of_queries[n, : len(query)], sums[chosen]))
        return answers

    def _rows(self, document: np.ndarray, query: np.ndarray, ids: np.ndarray) -> tuple[list[int], list[int], list[int]]:
        """Rows of the embedding for the words of a document and a query, and which document words are not in the query.

        Unknown words are numbered in the order in which they occur.
        """
        rows, seen, unknown = {}, 0, self.about["unknown_words"]
        for word in dict.fromkeys([*document.tolist(), *query.tolist()]):
            rows[word] = int(ids[word])
            if rows[word] == UNK and unknown["count"]:
                rows[word] = unknown["first_id"] + seen % unknown["count"]
                seen += 1
        asked = set(query.tolist())
        return (
            [rows[word] for word in document.tolist()],
            [rows[word] for word in query.tolist()],
            [int(word not in asked) for word in document.tolist()],
        )
