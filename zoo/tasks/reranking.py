"""Re-ranking of a reader's N best answers by how well each fills the blank of the query.

Cui et al. 2017, "Attention-over-Attention Neural Networks for Reading Comprehension", section 4,
https://arxiv.org/abs/1607.04423. Each of the N best candidates c is put in place of the blank and gets four features
f(c): its log-probability under the reader, and the log-probability of the filled query under three n-gram models: a
global one of the training documents, a local one of the document itself, and a global one of word classes. The answer
is argmax_c w . f(c), with weights w learnt on validation questions.

    reranker = Reranker.fit(reader, training_texts, validation_questions)
    reranker.answer(document, query).answer

Differs from the paper:
- w maximises the likelihood of the right answers among the N best, softmax_c(w . f(c)), minus a small quadratic
  penalty; a convex problem with one solution. The paper uses K-best MIRA.
- Word classes are clusters (k-means) of the reader's own embeddings instead of those of mkcls.
- The n-gram models are interpolated Kneser-Ney models of order 3 by default; the paper's have order 8 and come from
  SRILM.
"""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from zoo.layers.masking import lengths_to_mask
from zoo.results.reading import Reading
from zoo.tasks.reading import ReadingModule
from zoo.text.words import BLANK, split_words, word_id
from zoo.verbs.confidence import LOW_CONFIDENCE

FEATURES = ("reader", "global", "local", "classes")
Question = tuple[str, str, Sequence[str] | None, str]  # document, query, candidates or None, answer

_LEAST = 1e-6  # floor of a candidate's probability
_PENALTY = 1e-3


class NGramModel:
    """Interpolated Kneser-Ney model of words, or of any other symbols (Chen and Goodman 1999).

    P(w | h) = (c(h w) - d) / sum_v c(h v) + d N(h) / sum_v c(h v) P(w | h without its first symbol), where N(h) is the
    number of different symbols that follow h. For the longest h, c counts occurrences; for shorter ones, the number of
    different symbols before h w. The recursion ends with a uniform distribution over the symbols plus one for all
    unseen symbols.

    Args:
        texts: Sequences of symbols; each starts with an empty history.
        order: n, length of the n-grams.
        discount: d, above 0 and at most 1.

    Raises:
        ValueError: a number outside its range.
    """

    def __init__(self, texts: Iterable[Sequence[Hashable]], order: int = 3, discount: float = 0.75):
        if order < 1:
            raise ValueError(f"order must be at least 1; got {order}")
        if not 0 < discount <= 1:
            raise ValueError(f"discount must be above 0 and at most 1; got {discount}")
        self.order, self.discount = order, discount
        grams: Counter[tuple] = Counter()
        for text in texts:
            padded = [*[None] * (order - 1), *text]
            grams.update(zip(*(padded[n:] for n in range(order)), strict=False))
        self.following: list[
            dict[tuple, tuple[Counter, int]]
        ] = []  # for histories of 0, 1, ... symbols: counts and their sum
        for _ in range(order):
            following: dict[tuple, Counter] = defaultdict(Counter)
            for *history, symbol in grams:
                following[tuple(history)][symbol] = grams[(*history, symbol)]
            self.following.insert(0, {history: (found, found.total()) for history, found in following.items()})
            grams = Counter(gram[1:] for gram in grams)
        self.size = len(self.following[0][()][0]) if self.following[0] else 0

    def probability(self, symbol: Hashable, history: Sequence[Hashable]) -> float:
        """P(symbol | history), using the longest suffix of the history that was seen."""
        p = 1 / (self.size + 1)
        for n, table in enumerate(self.following):
            key = tuple(history[len(history) - n :])
            if len(key) < n or key not in table:
                break
            found, total = table[key]
            p = (max(found[symbol] - self.discount, 0) + self.discount * len(found) * p) / total
        return p

    def log_probability(self, text: Sequence[Hashable]) -> float:
        """Log-probability of a whole text, in nats."""
        padded = [*[None] * (self.order - 1), *text]
        return sum(math.log(self.probability(padded[n], padded[:n])) for n in range(self.order - 1, len(padded)))


@dataclass(frozen=True)
class Reranker:
    """A reader and the features that re-rank its best answers; made by `fit`.

    Attributes:
        weights: One per feature, in the order of FEATURES.
    """

    reader: ReadingModule
    n_best: int
    global_model: NGramModel
    class_model: NGramModel
    classes: tuple[int, ...]  # class of each vocabulary id
    weights: dict[str, float]

    @classmethod
    def fit(
        cls,
        reader: ReadingModule,
        texts: Iterable[str],
        questions: Sequence[Question],
        n_best: int = 5,
        order: int = 3,
        num_classes: int = 100,
    ) -> "Reranker":
        """Counts n-grams and learns the weights.

        Args:
            reader: A trained reader with its vocabulary.
            texts: Documents of the training data, for the global and the word-class model.
            questions: Validation data: (document, query, candidates or None, answer) as in `reader.answer`.
            n_best: N, number of candidates that are re-ranked.
            order: Order of the n-gram models.
            num_classes: Maximum number of word classes.

        Raises:
            ValueError: A number is below 1, there are no texts, or no question has its answer among the N best.
        """
        for name, value in (("n_best", n_best), ("order", order), ("num_classes", num_classes)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        reader.check_ready(reader.tokenizer)
        documents = [split_words(text, reader.vocabulary) for text in texts]
        if not any(documents):
            raise ValueError("the n-gram models need texts with words; got none")
        classes = tuple(_clusters(reader.embedding.weight.detach()[: len(reader.vocabulary)], num_classes).tolist())
        of_classes = NGramModel(
            ([classes[word_id(word, reader.vocabulary)] for word in words] for words in documents), order
        )
        unweighted = cls(
            reader, n_best, NGramModel(documents, order), of_classes, classes, dict.fromkeys(FEATURES, 0.0)
        )
        readings = reader.answer(
            [document for document, _, _, _ in questions],
            [query for _, query, _, _ in questions],
            [candidates for _, _, candidates, _ in questions],
        )
        found = []
        for reading, (_, _, _, answer) in zip(readings, questions, strict=True):
            candidates, answer = unweighted.best(reading), unicodedata.normalize("NFC", answer)
            if answer in candidates:
                found.append((unweighted.features(reading, candidates), candidates.index(answer)))
        if not found:
            raise ValueError(
                f"none of {len(questions)} questions has its answer among the {n_best} best; "
                "give more, or a larger n_best"
            )
        return replace(unweighted, weights=dict(zip(FEATURES, learn_weights(found).tolist(), strict=True)))

    @overload
    def answer(self, document: str, query: str, candidates: Sequence[str] | None = ...) -> Reading: ...

    @overload
    def answer(
        self,
        document: str | Sequence[str],
        query: list[str] | tuple[str, ...],
        candidates: Sequence[Sequence[str] | None] | None = ...,
    ) -> list[Reading]: ...

    def answer(self, document: Any, query: Any, candidates: Any = None) -> Reading | list[Reading]:
        """As `ReadingModule.answer`, with the N best candidates re-ranked.

        They share the total probability that the reader gives them. There is no confidence: that was measured for the
        reader's own answers.
        """
        found = self.reader.answer(document, query, candidates)
        return self.rerank(found) if isinstance(found, Reading) else [self.rerank(reading) for reading in found]

    def rerank(self, reading: Reading) -> Reading:
        """The same reading with the answer and the probabilities after re-ranking, without a confidence."""
        candidates = self.best(reading)
        weights = torch.tensor([self.weights[name] for name in FEATURES], dtype=torch.float64)
        shares = (self.features(reading, candidates) @ weights).softmax(0)
        total = sum(reading.probabilities[word] for word in candidates)
        again = {word: total * share for word, share in zip(candidates, shares.tolist(), strict=True)}
        probabilities = {**reading.probabilities, **again}
        if _is_of_all_words(reading):
            probabilities = dict(sorted(probabilities.items(), key=lambda item: -item[1]))
        return replace(
            reading,
            answer=candidates[int(shares.argmax())],
            probabilities=probabilities,
            confidence=None,
            warnings=[warning for warning in reading.warnings if not warning.startswith(LOW_CONFIDENCE)],
        )

    def best(self, reading: Reading) -> list[str]:
        """The N best candidates, the best first; none that the reader rules out, with a probability of 0."""
        possible = [word for word, p in reading.probabilities.items() if p > 0] or [*reading.probabilities]
        return sorted(possible, key=lambda word: -reading.probabilities[word])[: self.n_best]

    def features(self, reading: Reading, candidates: Sequence[str]) -> Tensor:
        """FEATURES of each candidate in place of the blank, (N, 4) float64."""
        local = NGramModel([reading.document], self.global_model.order)
        rows = []
        for word in candidates:
            filled = [word if asked == BLANK else asked for asked in reading.query]
            classes = [self.classes[word_id(part, self.reader.vocabulary)] for part in filled]
            scores = [
                model.log_probability(text)
                for model, text in ((self.global_model, filled), (local, filled), (self.class_model, classes))
            ]
            rows.append([math.log(max(reading.probabilities[word], _LEAST)), *scores])
        return torch.tensor(rows, dtype=torch.float64)


def _is_of_all_words(reading: Reading) -> bool:
    """Whether a reading was made without candidates: it has all words of the document, the most probable first."""
    values = [*reading.probabilities.values()]
    return {*reading.document} <= {*reading.probabilities, BLANK} and values == sorted(values, reverse=True)


def learn_weights(found: Sequence[tuple[Tensor, int]]) -> Tensor:
    """Weights of features that are best for choosing the right candidates.

    Args:
        found: of each question, the features (N, F) of its candidates, and the place of the right one.

    Returns:
        w (F,), which maximises the mean of log softmax(features w)[right], minus a small quadratic penalty.
    """
    features = pad_sequence([rows for rows, _ in found], batch_first=True)
    real = lengths_to_mask(torch.tensor([len(rows) for rows, _ in found]))
    right = torch.tensor([place for _, place in found])
    weights = torch.zeros(features.size(2), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=500, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        scores = (features @ weights).masked_fill(~real, -torch.inf)
        total = nn.functional.cross_entropy(scores, right) + _PENALTY * weights.square().sum()
        total.backward()
        return total

    with torch.enable_grad():
        optimizer.step(loss)
    return weights.detach()


def _clusters(vectors: Tensor, count: int, rounds: int = 20) -> Tensor:
    """k-means: vectors (V, E) -> cluster index of each, (V,)."""
    start = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(0))[:count]
    vectors = vectors.cpu().double()
    centres, nearest = vectors[start], start.new_zeros(len(vectors))
    for _ in range(rounds):
        nearest = torch.cdist(vectors, centres).argmin(1)
        sizes = torch.bincount(nearest, minlength=len(centres)).unsqueeze(1)
        sums = torch.zeros_like(centres).index_add(0, nearest, vectors)
        centres = torch.where(sizes > 0, sums / sizes.clamp(min=1), centres)
    return nearest
