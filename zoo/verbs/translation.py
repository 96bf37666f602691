"""Translator: `translate` and `align`."""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any, overload

import numpy as np

from zoo.results.alignment import Alignment
from zoo.results.translation import Translation
from zoo.text import EOS, SPECIAL_NAMES, UNK, Tokenizer
from zoo.text.familiar import known_share
from zoo.utils.numbers_given import check_integer
from zoo.utils.search_options import check_beam, check_sampling, check_search
from zoo.verbs.alignment import PAIRS, Pair, pair_words, word_alignment, word_pieces
from zoo.verbs.base import Hypotheses, Verbs, evaluated
from zoo.verbs.checks import Many, as_list, check_assets, check_batch_size, present, texts_of
from zoo.verbs.confidence import Evidence, log_odds, trusted, warnings_of
from zoo.verbs.given import Given, given_weights
from zoo.verbs.sentences import Sentence, different, join, read_sentences
from zoo.verbs.task import Task

PER_SOURCE_TOKEN, MORE = 1.5, 10  # of `longest_translation`
MAX_SOURCE_TOKENS = 1000  # of one sentence; a longer text has several sentences


def longest_translation(source_lengths: Any) -> Any:
    """At most so many tokens does a search give: a number, a tensor or an array, with EOS as the source's lengths."""
    return source_lengths * 3 // 2 + MORE  # PER_SOURCE_TOKEN, rounded down


class Translator(Verbs):
    """The verbs of translation models. `config` has src_vocab_size, tgt_vocab_size and beam_size."""

    task = Task(
        "translation", "translate", "text", Translation, "translation", 'model.translate("...").text', searches=True
    )
    max_source_tokens: int = MAX_SOURCE_TOKENS  # of one sentence, without EOS
    src_tokenizer: Tokenizer | None = None
    tgt_tokenizer: Tokenizer | None = None

    @property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Those of source and target, which are one if the languages have one vocabulary.

        Raises:
            ValueError: there are none yet.
        """
        return present(self.src_tokenizer), present(self.tgt_tokenizer)

    # ---- filled in by the engine ----

    def hypotheses(self, rows: Sequence[list[int]], beam_size: int, **options: Any) -> Hypotheses:
        """Searches for translations.

        Args:
            rows: token ids of each sentence, without EOS.
            beam_size: number of hypotheses.
            **options: n_best, length_penalty (None for the model's own), no_repeat_ngram, allow_unk, temperature,
                top_k as in `translate`; only if they are given, attention weights `given` (B, T, S + 1) of the first
                T target tokens, with zeros where the model decides.
        """
        raise NotImplementedError

    def forced_attention(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> Any:
        """Attention weights (B, T + 1, S + 1) of given translations, EOS included; None without attention."""
        raise NotImplementedError

    def sentences(self, text: str, split: bool, place: str) -> list[Sentence]:
        """What the model reads of a text, see `read_sentences`; ValueError for a sentence that is too long."""
        language = (self.calibration and self.calibration.language) or "en"
        found = read_sentences(text, self.tokenizers[0], split, language, place)
        for sentence in found:
            _check_length(sentence.ids, self.max_source_tokens, sentence.place)
        return found

    def check_pairs(self, src_ids: Sequence[list[int]], tgt_ids: Sequence[list[int]], places: Sequence[str]) -> None:
        """Raises ValueError for a source, or a given translation, that is too long."""
        for src, tgt, place in zip(src_ids, tgt_ids, places, strict=True):
            _check_length(src, self.max_source_tokens, place)
            _check_length(tgt, max(MAX_SOURCE_TOKENS, self.max_source_tokens), f"the translation of {place}")

    # ---- the verbs ----

    @overload
    def translate(
        self,
        texts: str,
        beam_size: int | None = ...,
        n_best: int = ...,
        length_penalty: float | None = ...,
        no_repeat_ngram: int = ...,
        allow_unk: bool = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
        split_sentences: bool = ...,
        attention: Given | None = ...,
    ) -> Translation: ...

    @overload
    def translate(
        self,
        texts: Many[str],
        beam_size: int | None = ...,
        n_best: int = ...,
        length_penalty: float | None = ...,
        no_repeat_ngram: int = ...,
        allow_unk: bool = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
        split_sentences: bool = ...,
    ) -> list[Translation]: ...

    @overload
    def translate(
        self,
        texts: str | Iterable[str],
        beam_size: int | None = ...,
        n_best: int = ...,
        length_penalty: float | None = ...,
        no_repeat_ngram: int = ...,
        allow_unk: bool = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
        split_sentences: bool = ...,
        attention: Given | None = ...,
    ) -> Translation | list[Translation]: ...

    @evaluated
    def translate(
        self,
        texts: str | Iterable[str],
        beam_size: int | None = None,
        n_best: int = 1,
        length_penalty: float | None = None,
        no_repeat_ngram: int = 0,
        allow_unk: bool = False,
        temperature: float | None = None,
        top_k: int = 0,
        batch_size: int = 64,
        split_sentences: bool = True,
        attention: Given | None = None,
    ) -> Translation | list[Translation]:
        """Translates raw text.

        Capitals are read in lower case if the model knows the words better so; `source_tokens` show it.

        Args:
            texts: one text or many; an empty one gives an empty translation.
            beam_size: number of hypotheses; 1 is greedy search. The model's own setting if not given.
            n_best: number of alternatives in `Translation.n_best`, at most `beam_size`; fewer if the search finds
                fewer different texts.
            length_penalty: alpha of the length normalisation; the model's own setting if not given.
            no_repeat_ngram: n > 0 forbids repeating an n-gram of tokens.
            allow_unk: allow the model to output UNK, which is <unk> in the text.
            temperature: sample `n_best` translations instead of searching; 1 is the model's own distribution.
            top_k: with a temperature: sample from the k most probable tokens; 0: from all.
            batch_size: sentences translated together.
            split_sentences: translate the sentences of a text one by one and join the answers; otherwise a text is read
                as one, as in training and for scores. Models of characters always do that.
            attention: for one sentence: weights that the model must use instead of its own. A dict from positions in
                `tokens` to the weights of `source_tokens`: one for each, or a dict from positions to weights. They sum
                to 1, or less if a part of the attention is to be missing. All heads of all decoder layers of a
                Transformer use them.

        Returns:
            One Translation for a string, a list of them for a list, in the order given.

        Raises:
            ValueError: no tokenizer, a sentence longer than 1,000 tokens, an option outside its range, or attention
                that does not suit the sentence or a model without attention.
            TypeError: `texts` is neither a string nor strings in an order.
        """
        check_batch_size(batch_size)
        check_integer("n_best", n_best)
        one, texts = texts_of(texts, "translate")
        self.check_ready(self.src_tokenizer, self.tgt_tokenizer)
        parts = [self.sentences(text, split_sentences, f"text {n}") for n, text in enumerate(texts, 1)]
        sentences = list(chain.from_iterable(parts))
        ids = [sentence.ids for sentence in sentences]
        more = {} if attention is None else {"given": self._given(attention, one, ids)}
        width: int = self.config["beam_size"] if beam_size is None else beam_size
        if temperature is None:
            check_search(width, self.config["length_penalty"] if length_penalty is None else length_penalty)
            check_beam(width, n_best)
        else:
            check_sampling(n_best, temperature, top_k)
        searched = n_best > 1 and temperature is None  # several hypotheses may be the same text in different tokens
        results = [Translation("", 0.0, [], [], None, [("", 0.0)] * (1 if searched else n_best)) for _ in ids]
        for result, sentence in zip(results, sentences, strict=True):
            if sentence.note and not sentence.ids:
                result.warnings.append(sentence.note)
        order = sorted((n for n in range(len(ids)) if ids[n]), key=lambda n: len(ids[n]))
        for first in range(0, len(order), batch_size):
            rows = order[first : first + batch_size]
            found = self.hypotheses(
                [ids[n] for n in rows],
                width,
                n_best=max(n_best, width) if searched else n_best,
                length_penalty=length_penalty,
                no_repeat_ngram=no_repeat_ngram,
                allow_unk=allow_unk,
                temperature=temperature,
                top_k=top_k,
                **more,
            )
            for i, n in enumerate(rows):
                result = self._translation(found, i, ids[n], n_best if searched else None)
                results[n] = trusted(result, self.calibration, self.evidence_of(found, i, sentences[n], result.text))
        rest = iter(results)
        joined = [join(list(islice(rest, len(found))), n_best, temperature is None, self.zeros) for found in parts]
        return joined[0] if one else joined

    @overload
    def align(self, pairs: Pair, batch_size: int = ...) -> Alignment: ...

    @overload
    def align(self, pairs: Iterable[Pair], batch_size: int = ...) -> list[Alignment]: ...

    @evaluated
    def align(self, pairs: Pair | Iterable[Pair], batch_size: int = 64) -> Alignment | list[Alignment]:
        """Which source words each word of a given translation attends to, under forced decoding.

        Args:
            pairs: (source, target), or a list of such pairs; each side is a text, split at spaces into words, or a
                list of words.
            batch_size: pairs aligned together.

        Returns:
            One Alignment for one pair, a list of them for a list, in the order given.

        Raises:
            ValueError: the model has no attention or no tokenizer, or a text is too long.
            TypeError: `pairs` is of another type, such as a tuple of pairs.
        """
        self.check_ready(self.src_tokenizer, self.tgt_tokenizer)
        check_batch_size(batch_size)
        one = isinstance(pairs, tuple)
        words = [pair_words(pair) for pair in ([pairs] if one else as_list(pairs, "align", PAIRS))]
        src_tokenizer, tgt_tokenizer = self.tokenizers
        pieces = [(word_pieces(src_tokenizer, source), word_pieces(tgt_tokenizer, target)) for source, target in words]
        src_ids, tgt_ids = ([list(chain.from_iterable(pair[side])) for pair in pieces] for side in (0, 1))
        places = [f"text {n}" for n in range(1, len(words) + 1)]
        self.check_pairs(src_ids, tgt_ids, places)
        results = [Alignment(source, target, self.zeros((len(target), len(source))), []) for source, target in words]
        order = sorted(
            (n for n, (source, target) in enumerate(words) if source and target), key=lambda n: len(words[n][0])
        )
        for first in range(0, len(order), batch_size):
            rows = order[first : first + batch_size]
            weights = self.forced_attention([src_ids[n] for n in rows], [tgt_ids[n] for n in rows])
            if weights is None:
                raise ValueError(
                    "this model has no attention to align with; load one that has, e.g. a bahdanau or luong model"
                )
            for row, n in zip(weights, rows, strict=True):
                results[n] = word_alignment(row, *words[n], *pieces[n], self.zeros)
        for n, (source, _) in enumerate(words):
            known = known_share(src_ids[n], src_tokenizer)
            evidence = Evidence({}, known, " ".join(source), vocabulary=src_tokenizer)
            results[n].warnings.extend(warnings_of(self.calibration, evidence))
        return results[0] if one else results

    def _given(self, attention: Given, one: bool, ids: list[list[int]]) -> np.ndarray:
        """The weights for `hypotheses`."""
        if not one or len(ids) != 1:
            raise ValueError(f"attention is for one sentence, given as a string; got {len(ids)} sentences or a list")
        places = len(ids[0]) + 1  # with EOS
        return given_weights(attention, places, longest_translation(places))

    def _translation(self, found: Hypotheses, row: int, source: list[int], most: int | None) -> Translation:
        """One row of a search; `n_best` are all its hypotheses, or its best different texts, at most so many."""
        src_tokenizer, tgt_tokenizer = self.tokenizers
        n_best = []
        for n in range(found.tokens.shape[1]):
            ids = found.tokens[row, n, : found.lengths[row, n]].tolist()
            n_best.append((tgt_tokenizer.decode(ids, SPECIAL_NAMES[UNK]), float(found.scores[row, n])))
        if most is not None:
            n_best = different(n_best)[:most]
        best = found.tokens[row, 0, : found.lengths[row, 0]].tolist()
        weights = found.attn_weights
        return Translation(
            text=n_best[0][0],
            score=n_best[0][1],
            source_tokens=src_tokenizer.tokens([*source, EOS]),
            tokens=tgt_tokenizer.tokens(best),
            attention=None if weights is None else weights[row, 0, : len(best), : len(source) + 1],
            n_best=n_best,
        )

    def evidence_of(self, found: Hypotheses, row: int, sentence: Sentence, answer: str) -> Evidence:
        """What a search tells about its best output: the log-odds of its mean token, and known words."""
        score = log_odds(float(found.log_probs[row, 0]) / max(1, int(found.lengths[row, 0])))
        notes = [sentence.note] if sentence.note else []
        notes += ["the answer was cut at its maximum length"] * (EOS not in found.tokens[row, 0].tolist())
        vocabulary = self.tokenizers[0]
        known = known_share(sentence.ids, vocabulary)
        return Evidence({"score": score, "known": known}, known, sentence.given, answer, tuple(notes), vocabulary)

    def assets(self) -> dict[str, str]:
        """tokenizer.json, or tokenizer.src.json and tokenizer.tgt.json."""
        if self.src_tokenizer is None or self.tgt_tokenizer is None:
            return {}
        if self.src_tokenizer is self.tgt_tokenizer:
            return {"tokenizer.json": self.src_tokenizer.to_json()}
        return {"tokenizer.src.json": self.src_tokenizer.to_json(), "tokenizer.tgt.json": self.tgt_tokenizer.to_json()}

    def load_assets(self, assets: dict[str, str]) -> None:
        src, tgt = self.config["src_vocab_size"], self.config["tgt_vocab_size"]
        if "tokenizer.json" in assets:
            check_assets(assets, name := "tokenizer.json")
            self.src_tokenizer = self.tgt_tokenizer = Tokenizer.from_json(assets[name], min(src, tgt), name)
        elif assets:
            check_assets(assets, src_name := "tokenizer.src.json", tgt_name := "tokenizer.tgt.json")
            self.src_tokenizer = Tokenizer.from_json(assets[src_name], src, src_name)
            self.tgt_tokenizer = Tokenizer.from_json(assets[tgt_name], tgt, tgt_name)


def _check_length(ids: list[int], most: int, place: str) -> None:
    if len(ids) > most:
        raise ValueError(f"{place} has {len(ids):,} tokens; at most {most:,} are allowed. Split it into sentences")
