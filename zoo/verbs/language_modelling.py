"""Completer: `complete` and `perplexity`."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, overload

from zoo.results.language_modelling import Completion
from zoo.text import EOS, SPECIAL_NAMES, UNK, Tokenizer
from zoo.text.familiar import known_share
from zoo.text.penn import CONTRACTED, MARKS, NUMBER, treebank_words
from zoo.utils.continuous_cache import ContinuousCache
from zoo.utils.numbers_given import check_integer
from zoo.verbs.base import Hypotheses, Verbs, evaluated
from zoo.verbs.checks import Many, check_assets, check_batch_size, present, texts_of
from zoo.verbs.confidence import Evidence, trusted
from zoo.verbs.groups import batches_of_similar_size
from zoo.verbs.task import Task


class Completer(Verbs):
    """The verbs of language models. `config` has vocab_size."""

    task = Task(
        "language modelling",
        "complete",
        "text",
        Completion,
        "text-generation",
        'model.complete("...").text',
        searches=True,
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

    def continued(
        self, rows: Sequence[list[int]], cache: ContinuousCache | None = None, **options: Any
    ) -> tuple[Hypotheses, list[Any] | None]:
        """Searches for continuations.

        Args:
            rows: ids of each text, EOS first.
            cache: of the words before.
            **options: of `search` (zoo/layers/search.py).

        Returns:
            What the search found, and the attention weights (len(row) - 1, L) of the words after the first EOS, or None
            without attention.
        """
        raise NotImplementedError

    def total_losses(self, rows: Sequence[list[int]], cache: ContinuousCache | None = None) -> list[float]:
        """The summed loss in nats of the words of each text after its first EOS."""
        raise NotImplementedError

    # ---- the verbs ----

    @overload
    def complete(
        self,
        texts: str = ...,
        max_words: int = ...,
        min_words: int = ...,
        n_best: int = ...,
        beam_size: int | None = ...,
        length_penalty: float = ...,
        no_repeat_ngram: int = ...,
        allow_unk: bool = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
        cache: ContinuousCache | None = ...,
    ) -> Completion: ...

    @overload
    def complete(
        self,
        texts: Many[str],
        max_words: int = ...,
        min_words: int = ...,
        n_best: int = ...,
        beam_size: int | None = ...,
        length_penalty: float = ...,
        no_repeat_ngram: int = ...,
        allow_unk: bool = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
        cache: ContinuousCache | None = ...,
    ) -> list[Completion]: ...

    @overload
    def complete(
        self,
        texts: str | Iterable[str] = ...,
        max_words: int = ...,
        min_words: int = ...,
        n_best: int = ...,
        beam_size: int | None = ...,
        length_penalty: float = ...,
        no_repeat_ngram: int = ...,
        allow_unk: bool = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
        cache: ContinuousCache | None = ...,
    ) -> Completion | list[Completion]: ...

    @evaluated
    def complete(
        self,
        texts: str | Iterable[str] = "",
        max_words: int = 20,
        min_words: int = 1,
        n_best: int = 1,
        beam_size: int | None = None,
        length_penalty: float = 1.0,
        no_repeat_ngram: int = 0,
        allow_unk: bool = False,
        temperature: float | None = None,
        top_k: int = 0,
        batch_size: int = 64,
        cache: ContinuousCache | None = None,
    ) -> Completion | list[Completion]:
        """Completes texts up to the end of the line.

        Args:
            texts: one text or many, each of any length and of one line or more; an empty one starts a line. A model
                that has learnt from the Penn Treebank reads plain text in its form (zoo/text/penn.py): do n't, $ N.
            max_words: maximum number of words to add.
            min_words: minimum number of words before the line may end.
            n_best: number of alternatives in `Completion.n_best`, at most `beam_size`.
            beam_size: number of hypotheses; 1 is greedy search. 5 if not given.
            length_penalty: alpha of the length normalisation.
            no_repeat_ngram: n > 0 forbids repeating an n-gram of the added words.
            allow_unk: allow the model to output UNK, which is <unk> in the text.
            temperature: sample `n_best` completions instead of searching; 1 is the model's own distribution.
            top_k: with a temperature: sample from the k most probable words; 0: from all.
            batch_size: texts completed together.
            cache: makes the words of the text more probable, `zoo.ContinuousCache()`; not for exported graphs.

        Returns:
            One Completion for a string, a list of them for a list, in the order given.

        Raises:
            ValueError: no tokenizer, or an option outside its range.
            TypeError: `texts` is neither a string nor strings in an order.
        """
        check_batch_size(batch_size)
        check_integer("max_words", max_words)
        check_integer("min_words", min_words)
        one, texts = self._checked(texts, "complete", cache)
        if not 0 <= min_words <= max_words or max_words < 1:
            raise ValueError(
                f"max_words must be at least 1, and min_words from 0 to max_words; got {max_words} and {min_words}"
            )
        rows = [self._encode(self.vocabulary.plain(text))[:-1] for text in texts]
        options = {
            "beam_size": 5 if beam_size is None else beam_size,
            "n_best": n_best,
            "max_length": max_words,
            "min_length": min_words + 1,  # the end of the line comes after them
            "length_penalty": length_penalty,
            "no_repeat_ngram": no_repeat_ngram,
            "temperature": temperature,
            "top_k": top_k,
            "cache": cache,
        }
        unused = range(len(self.vocabulary), self.config["vocab_size"])  # rows of the output layer without a word
        options["forbid"] = (*unused,) if allow_unk else (UNK, *unused)
        results: list[Any] = [None] * len(texts)
        for group in batches_of_similar_size([len(row) for row in rows], batch_size):
            for n, result in zip(
                group, self._complete([texts[n] for n in group], [rows[n] for n in group], options), strict=True
            ):
                results[n] = result
        return results[0] if one else results

    @overload
    def perplexity(self, texts: str, batch_size: int = ..., cache: ContinuousCache | None = ...) -> float: ...

    @overload
    def perplexity(
        self, texts: Many[str], batch_size: int = ..., cache: ContinuousCache | None = ...
    ) -> list[float]: ...

    @overload
    def perplexity(
        self, texts: str | Iterable[str], batch_size: int = ..., cache: ContinuousCache | None = ...
    ) -> float | list[float]: ...

    @evaluated
    def perplexity(
        self, texts: str | Iterable[str], batch_size: int = 16, cache: ContinuousCache | None = None
    ) -> float | list[float]:
        """Perplexity of texts: exp of the mean loss over their words and line ends.

        Args:
            texts: one text or many, of any length; each is read from its beginning. An unknown word counts as UNK.
            batch_size: texts read together.
            cache: with the words of each text before, `zoo.ContinuousCache()`; not for exported graphs.

        Returns:
            A number for a string, a list of them for a list; NaN for a text without words.

        Raises:
            ValueError: no tokenizer.
            TypeError: `texts` is neither a string nor strings in an order.
        """
        check_batch_size(batch_size)
        one, texts = self._checked(texts, "perplexity", cache)
        rows = [self._encode(text.removesuffix("\n")) for text in texts]
        results = [math.nan] * len(texts)
        has_words = [any(i != EOS for i in row) for row in rows]
        for group in batches_of_similar_size([len(row) for row in rows], batch_size):
            group = [n for n in group if has_words[n]]
            for n, loss in zip(group, self.total_losses([[EOS, *rows[n]] for n in group], cache), strict=True):
                results[n] = perplexity_of(loss / len(rows[n]))
        return results[0] if one else results

    def _checked(self, texts: str | Iterable[str], what: str, cache: ContinuousCache | None) -> tuple[bool, list[str]]:
        found = texts_of(texts, what)
        if not (cache is None or isinstance(cache, ContinuousCache)):
            raise TypeError(f"cache must be a zoo.ContinuousCache, such as zoo.ContinuousCache(); got {cache!r}")
        self.check_ready(self.tokenizer)
        return found

    def _encode(self, text: str) -> list[int]:
        """Words of all lines, each line ended by EOS."""
        return [i for line in text.split("\n") for i in [*self._line(line), EOS]]

    def _line(self, line: str) -> list[int]:
        """Words of a line.

        For a model of tokenised text, an unknown word is also tried in lower case, without its punctuation marks, as N
        for a number, and as the words of which it consists in the Penn Treebank, if the model has learnt from such.
        """
        ids = self.vocabulary.encode(line)
        if self.vocabulary.kind != "word" or UNK not in ids:
            return ids
        splits = UNK not in self.vocabulary.encode(CONTRACTED)
        return [i for word in line.split() for i in self._word(word, splits)]

    def _word(self, word: str, splits: bool) -> list[int]:
        found = self._whole(word)
        if UNK not in found or not splits:
            return found
        return [i for part in treebank_words(word) for i in self._whole(part)]

    def _whole(self, word: str) -> list[int]:
        bare = word.strip(MARKS)
        numeral = NUMBER.fullmatch(bare) or bare == "%"  # Mikolov's Treebank has N for the sign too
        forms = [word, word.lower(), bare, bare.lower(), *["N"] * bool(numeral)]
        return next((ids for form in forms if UNK not in (ids := self.vocabulary.encode(form))), [UNK])

    def _complete(self, texts: list[str], rows: list[list[int]], options: dict[str, Any]) -> list[Completion]:
        found, seen = self.continued([[EOS, *row] for row in rows], **options)
        return [
            self._completion(text, row, found, n, None if seen is None else seen[n])
            for n, (text, row) in enumerate(zip(texts, rows, strict=True))
        ]

    def _completion(self, text: str, ids: list[int], found: Hypotheses, n: int, seen: Any) -> Completion:
        added = [found.tokens[n, k, :length].tolist() for k, length in enumerate(found.lengths[n].tolist())]
        n_best = [
            (self._joined(text, ids, more), score) for more, score in zip(added, found.scores[n].tolist(), strict=True)
        ]
        weights = None
        if seen is not None:
            weights = self.zeros((len(ids) + len(added[0]), seen.shape[-1]))
            weights[: len(ids)], weights[len(ids) :] = seen, found.attn_weights[n, 0, : len(added[0])]
        result = Completion(
            text=n_best[0][0],
            continuation=self._written(added[0]),
            score=n_best[0][1],
            tokens=self.vocabulary.tokens([*ids, *added[0]]),
            given=len(ids),
            attention=weights,
            n_best=n_best,
        )
        known = known_share(ids, self.vocabulary)
        return trusted(result, self.calibration, Evidence({}, known, text, vocabulary=self.vocabulary))

    def _joined(self, text: str, ids: list[int], added: list[int]) -> str:
        """The given text followed by the added words."""
        text, more = text.rstrip(" "), self._written(added)
        if self.vocabulary.kind in ("word", "word_punct"):
            return f"{text} {more}" if more and text and text[-1] != "\n" else text + more
        line = ids[len(ids) - ids[::-1].index(EOS) :] if EOS in ids else ids
        return text + self._written([*line, *added])[len(self._written(line)) :]

    def _written(self, ids: list[int]) -> str:
        """The text of words, with <unk> for UNK."""
        return self.vocabulary.decode(ids, SPECIAL_NAMES[UNK])

    # ---- bundle ----

    def assets(self) -> dict[str, str]:
        """tokenizer.json."""
        return {} if self.tokenizer is None else {"tokenizer.json": self.tokenizer.to_json()}

    def load_assets(self, assets: dict[str, str]) -> None:
        if assets:
            check_assets(assets, name := "tokenizer.json")
            self.tokenizer = Tokenizer.from_json(assets[name], self.config["vocab_size"], name)


def perplexity_of(loss: float) -> float:
    """exp of a mean loss in nats; infinite if it overflows."""
    return math.exp(loss) if loss < 700 else math.inf if loss == loss else math.nan
