"""TranslationModule: what all encoder-decoders share: loss, scores, search and `translate`.

A model implements

    encode(src, src_lengths)     -> memory, state      once per sentence; memory and state are tuples of tensors
    decode(tgt, memory, state)   -> readouts, weights  teacher forcing, all steps
    step(tokens, state, memory, t) -> readouts, state, weights    one step of a search

and owns `embeddings` (Embeddings), whose output layer turns readouts into scores of the target vocabulary.

Shapes: B batch, S source tokens, T target tokens, K hypotheses, D readout size, V target vocabulary.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from zoo.batches.translation import PairBatch, pad_batch
from zoo.layers.kernels import wide
from zoo.layers.search import SearchResult, check_search, search
from zoo.results.alignment import Alignment
from zoo.results.translation import Translation
from zoo.tasks.alignment import PAIRS, Pair, pair_words, word_alignment, word_pieces
from zoo.tasks.checks import as_list, check_assets, check_batch_size, present
from zoo.tasks.confidence import Evidence, log_odds, trusted
from zoo.tasks.embeddings import Embeddings
from zoo.tasks.evaluation import evaluated
from zoo.tasks.scored import ScoredModule
from zoo.tasks.sentences import Sentence, join, read_sentences
from zoo.tasks.task import Task
from zoo.text import EOS, PAD, UNK, Tokenizer
from zoo.text.familiar import known_share
from zoo.utils.extras import require

if TYPE_CHECKING:
    from zoo.metrics import ExactMatch

Memory = TypeVar("Memory", bound=NamedTuple)

MAX_SOURCE_TOKENS = 1000  # of one sentence; a longer text has several sentences
GOOD_CHRF = 50  # of a good translation, in percent
GOOD = f"the translation has a chrF of at least {GOOD_CHRF} with a human one"


class TranslationModule(ScoredModule, Generic[Memory]):
    """Base class of the translation models, by what their decoders read of the source, e.g.
    `TranslationModule[AttentionMemory]`.

    Every subclass has the `__init__` arguments of `required`, which are read from `self.config`.
    """

    task = Task(
        "translation", "translate", "text", Translation, "translation", 'model.translate("...").text', searches=True
    )
    required = ("src_vocab_size", "tgt_vocab_size", "label_smoothing", "beam_size", "length_penalty")
    embeddings: Embeddings
    max_source_tokens: int = MAX_SOURCE_TOKENS  # of one sentence, without EOS
    src_tokenizer: Tokenizer | None = None
    tgt_tokenizer: Tokenizer | None = None

    def __init__(self):
        super().__init__()
        c = self.config
        if not 0 <= c["label_smoothing"] < 1:
            raise ValueError(f"label_smoothing must be in [0, 1); got {c['label_smoothing']}")
        check_search(c["beam_size"], c["length_penalty"])

    @property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Those of source and target, which are one if the languages have one vocabulary.

        Raises:
            ValueError: there are none yet.
        """
        return present(self.src_tokenizer), present(self.tgt_tokenizer)

    # ---- filled in by the model ----

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[Memory, tuple[Tensor, ...]]:
        """src (B, S), src_lengths (B,) -> memory of tensors (B, ...), first decoder state of tensors (B, ...)."""
        raise NotImplementedError

    def decode(self, tgt: Tensor, memory: Memory, state: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
        """Decoder inputs tgt (B, T) -> readouts (B, T, D), weights (B, T, S) or None."""
        raise NotImplementedError

    def step(
        self, tokens: Tensor, state: tuple[Tensor, ...], memory: Memory, t: int
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor | None]:
        """Last tokens (B, K), state, memory, step number -> readouts (B, K, D), state, weights (B, K, S) or None."""
        raise NotImplementedError

    # ---- training ----

    def forward(self, src: Tensor, src_lengths: Tensor, tgt: Tensor) -> tuple[Tensor, Tensor | None]:
        """Teacher forcing.

        Args:
            src: (B, S) source ids, each row ending with EOS, then PAD.
            src_lengths: (B,) real source tokens.
            tgt: (B, T) decoder inputs, BOS first.

        Returns:
            logits (B, T, V) and attention weights (B, T, S) (None without attention, and in the training of a
            Transformer).
        """
        memory, state = self.encode(src, src_lengths)
        readouts, weights = self.decode(tgt, memory, state)
        return self.embeddings.logits(readouts), weights

    def loss(self, batch: PairBatch, label_smoothing: float = 0.0) -> tuple[Tensor, int]:
        """Summed loss in nats over the real target tokens, and their number. Padding never reaches the output layer."""
        if self.training and self.config.get("consistency"):
            return self._consistency_loss(batch, label_smoothing)
        tgt, tgt_lengths = batch.targets()
        memory, state = self.encode(batch.src, batch.src_lengths)
        readouts, _ = self.decode(tgt[:, :-1], memory, state)
        labels = tgt[:, 1:]
        real = labels != PAD
        return self.embeddings.loss(readouts[real], labels[real], label_smoothing), int(tgt_lengths.sum())

    def _consistency_loss(self, batch: PairBatch, label_smoothing: float) -> tuple[Tensor, int]:
        """Mean loss of two passes with different dropout, and the divergence of their predictions p and q.

        (KL(p|q) + KL(q|p)) / 2, as in R-Drop (Liang et al. 2021, arXiv:2106.14448).
        """
        tgt, tgt_lengths = batch.targets()
        src, src_lengths, tgt = (torch.cat([x, x]) for x in (batch.src, batch.src_lengths, tgt))
        readouts, _ = self.decode(tgt[:, :-1], *self.encode(src, src_lengths))
        labels = tgt[:, 1:]
        real = labels != PAD
        logits = wide(self.embeddings.logits(readouts[real]))  # of the first pass, then of the second
        log_p, log_q = logits.log_softmax(-1).chunk(2)
        divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2
        loss = cross_entropy(logits, labels[real], label_smoothing=label_smoothing, reduction="sum") / 2
        return loss + self.config["consistency"] * divergence, int(tgt_lengths.sum())

    def check_extras(self, stage: str, validates: bool, data: Any) -> None:
        if (stage != "fit" or validates) and not _exact_only(data):
            require("scores", f"the BLEU {'after each epoch' if stage == 'fit' else 'of translations'}")

    def setup(self, stage: str) -> None:
        self.check_extras(stage, bool(self.trainer.limit_val_batches), getattr(self.trainer, "datamodule", None))
        super().setup(stage)

    def adapt(self, data: Any, stage: str) -> None:
        """Takes the vocabularies of a data module: as they are, or the words that they add to a pretrained model's."""
        if self.src_tokenizer is not None:
            self._take(data.src_tokenizer, data.tgt_tokenizer)
            return
        for side in ("src", "tgt"):
            tokenizer, size = getattr(data, f"{side}_tokenizer"), self.config[f"{side}_vocab_size"]
            if len(tokenizer) > size:
                raise ValueError(
                    f"the data has a {side} vocabulary of {len(tokenizer)} tokens, the model one of {size}; "
                    f"set {side}_vocab_size to at least {len(tokenizer)}"
                )
        self.src_tokenizer, self.tgt_tokenizer = data.src_tokenizer, data.tgt_tokenizer

    def extend_vocabulary(self, words: Sequence[str], tgt_words: Sequence[str] = ()) -> None:
        """Appends words to the vocabulary, to be learnt in training. All other weights stay bit-identical.

        See zoo/tasks/vocabulary.py.

        Args:
            words: single words (characters, if the model reads characters) of the source, or of both languages if
                they share a vocabulary; known ones are skipped.
            tgt_words: the same for the target.

        Raises:
            ValueError: no tokenizer, or one that splits a word.
        """
        self.check_ready(self.src_tokenizer, self.tgt_tokenizer)
        src, tgt = self.tokenizers
        if src is tgt:
            tokenizer = src.extended([*words, *tgt_words])
            self._take(tokenizer, tokenizer)
        else:
            self._take(src.extended(words), tgt.extended(tgt_words))

    def _take(self, src: Tokenizer, tgt: Tokenizer) -> None:
        """Switches to tokenizers that are this model's, or this model's with more words."""
        old_src, old_tgt = self.tokenizers
        known, sizes = (len(old_src), len(old_tgt)), (len(src), len(tgt))
        if sum(sizes) <= sum(known):
            return
        self._extend(known, sizes, (_new_pieces(old_src, src), _new_pieces(old_tgt, tgt)))
        self.src_tokenizer, self.tgt_tokenizer = src, tgt

    def _extend(self, known: tuple[int, int], sizes: tuple[int, int], pieces: tuple[list, list] = ([], [])) -> None:
        if sizes == known:
            return
        self.embeddings.extend(known, sizes, pieces)
        for side, table in (("src", self.embeddings.source), ("tgt", self.embeddings.tgt_table)):
            self.config[f"{side}_vocab_size"] = len(table.weight)

    def make_room(self, config: Mapping[str, Any]) -> None:
        src, tgt = self.config["src_vocab_size"], self.config["tgt_vocab_size"]
        self._extend((src, tgt), (max(src, config.get("src_vocab_size", 0)), max(tgt, config.get("tgt_vocab_size", 0))))

    def training_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        loss, tokens = self.loss(batch, self.config["label_smoothing"])
        self.log("train/loss", loss.detach() / tokens, prog_bar=True, batch_size=tokens)
        return self.normalize_gradient(loss, tokens)

    def new_scores(self) -> "ExactMatch":
        from zoo.metrics import CorpusScore, ExactMatch  # late: torchmetrics takes a second

        data = self.data_module
        return ExactMatch() if _exact_only(data) else CorpusScore(data.tgt_lang, data.tokenized)

    def score(self, batch: PairBatch, scores: "ExactMatch", validating: bool) -> tuple[Tensor, int] | None:
        loss = self.loss(batch) if validating else None
        found = self._search(
            batch.src, batch.src_lengths, 1 if validating else self.config["beam_size"], return_attention=False
        )
        _, tokenizer = self.tokenizers
        scores.update([tokenizer.decode(row) for row in found.tokens[:, 0].tolist()], batch.references())
        return loss

    # ---- use ----

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
    ) -> Translation: ...

    @overload
    def translate(
        self,
        texts: list[str] | tuple[str, ...],
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

    @evaluated
    def translate(
        self,
        texts: str | Sequence[str],
        beam_size: int | None = None,
        n_best: int = 1,
        length_penalty: float | None = None,
        no_repeat_ngram: int = 0,
        allow_unk: bool = False,
        temperature: float | None = None,
        top_k: int = 0,
        batch_size: int = 64,
        split_sentences: bool = True,
    ) -> Translation | list[Translation]:
        """Translates raw text.

        A sentence in capitals is read in lower case if the model knows its words better so; `source_tokens` show it.

        Args:
            texts: one text or many; an empty one gives an empty translation.
            beam_size: number of hypotheses; 1 is greedy search. The model's own setting if not given.
            n_best: number of alternatives in `Translation.n_best`, at most `beam_size`; fewer if the search finds
                fewer different texts.
            length_penalty: alpha of the length normalisation; the model's own setting if not given.
            no_repeat_ngram: n > 0 forbids repeating an n-gram of tokens.
            allow_unk: allow the model to output UNK.
            temperature: sample `n_best` translations instead of searching; 1 is the model's own distribution.
            top_k: with a temperature: sample from the k most probable tokens; 0: from all.
            batch_size: sentences translated together.
            split_sentences: translate the sentences of a text one by one and join the answers; otherwise a text is read
                as one, as in training and for scores. Models of characters always do that.

        Returns:
            One Translation for a string, a list of them for a list, in the order given.

        Raises:
            ValueError: no tokenizer, a sentence longer than 1,000 tokens, or an option outside its range.
            TypeError: `texts` is neither a string nor a sequence of strings.
        """
        check_batch_size(batch_size)
        one, texts = isinstance(texts, str), [texts] if isinstance(texts, str) else as_list(texts, "translate")
        if wrong := next((t for t in texts if not isinstance(t, str)), None):
            raise TypeError(f"translate takes a string or a list of strings; got {type(wrong).__name__} in the list")
        self.check_ready(self.src_tokenizer, self.tgt_tokenizer)
        language = (self.calibration and self.calibration.language) or "en"
        parts = [
            read_sentences(text, self.tokenizers[0], split_sentences, language, f"text {n}")
            for n, text in enumerate(texts, 1)
        ]
        sentences = list(chain.from_iterable(parts))
        ids = [sentence.ids for sentence in sentences]
        self._check_lengths(ids, [sentence.place for sentence in sentences])
        width: int = self.config["beam_size"] if beam_size is None else beam_size
        searched = n_best > 1 and temperature is None  # several hypotheses may be the same text in different tokens
        results = [Translation("", 0.0, [], [], None, [("", 0.0)] * n_best)] * len(ids)
        order = sorted((n for n in range(len(ids)) if ids[n]), key=lambda n: len(ids[n]))
        for first in range(0, len(order), batch_size):
            rows = order[first : first + batch_size]
            batch = pad_batch([ids[n] for n in rows])
            found = self._search(
                batch.src.to(self.device),
                batch.src_lengths.to(self.device),
                width,
                n_best=max(n_best, width) if searched else n_best,
                length_penalty=length_penalty,
                no_repeat_ngram=no_repeat_ngram,
                allow_unk=allow_unk,
                temperature=temperature,
                top_k=top_k,
            )
            for i, n in enumerate(rows):
                result = self._translation(found, i, ids[n], n_best if searched else None)
                results[n] = trusted(result, self.calibration, self._evidence(found, i, sentences[n], result.text))
        rest = iter(results)
        joined = [join(list(islice(rest, len(found))), n_best, temperature is None) for found in parts]
        return joined[0] if one else joined

    @overload
    def align(self, pairs: Pair, batch_size: int = ...) -> Alignment: ...

    @overload
    def align(self, pairs: Sequence[Pair], batch_size: int = ...) -> list[Alignment]: ...

    @evaluated
    def align(self, pairs: Pair | Sequence[Pair], batch_size: int = 64) -> Alignment | list[Alignment]:
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
        self._check_lengths(src_ids, places)
        self._check_lengths(tgt_ids, places)
        results = [Alignment(source, target, torch.zeros(len(target), len(source)), []) for source, target in words]
        order = sorted(
            (n for n, (source, target) in enumerate(words) if source and target), key=lambda n: len(words[n][0])
        )
        for first in range(0, len(order), batch_size):
            rows = order[first : first + batch_size]
            batch = pad_batch([src_ids[n] for n in rows], [tgt_ids[n] for n in rows])
            src, lengths, tgt = (x.to(self.device) for x in (batch.src, batch.src_lengths, batch.targets()[0]))
            _, weights = self(src, lengths, tgt[:, :-1])
            if weights is None:
                raise ValueError(
                    "this model has no attention to align with; load one that has, e.g. a bahdanau or luong model"
                )
            for row, n in zip(weights.float().cpu(), rows, strict=True):
                results[n] = word_alignment(row, *words[n], *pieces[n])
        return results[0] if one else results

    def _check_lengths(self, ids: Sequence[Sequence[int]], places: Sequence[str]) -> None:
        for place, row in zip(places, ids, strict=True):
            if len(row) > self.max_source_tokens:
                raise ValueError(
                    f"{place} has {len(row):,} tokens; at most {self.max_source_tokens:,} are allowed. Split it "
                    "into sentences"
                )

    @torch.no_grad()
    def _search(
        self,
        src: Tensor,
        src_lengths: Tensor,
        beam_size: int,
        length_penalty: float | None = None,
        allow_unk: bool = False,
        **options: Any,
    ) -> SearchResult:
        memory, state = self.encode(src, src_lengths)

        def step(tokens: Tensor, state: tuple, memory: Memory, t: int) -> tuple[Tensor, tuple, Tensor | None]:
            readouts, state, weights = self.step(tokens, state, memory, t)
            return self.embeddings.logits(readouts), state, weights

        vocab = len(self.tgt_tokenizer) if self.tgt_tokenizer else self.config["tgt_vocab_size"]
        forbid = range(vocab, self.config["tgt_vocab_size"])  # rows of the output layer without a token
        options["forbid"] = (*forbid,) if allow_unk else (UNK, *forbid)
        options.setdefault("max_length", src_lengths * 3 // 2 + 10)
        options["length_penalty"] = self.config["length_penalty"] if length_penalty is None else length_penalty
        state = tuple(x.unsqueeze(1) for x in state)  # (B, 1, ...)
        return search(step, state, memory, beam_size=beam_size, **options)

    def _translation(self, found: SearchResult, row: int, source: list[int], different: int | None) -> Translation:
        """One row of a search; `n_best` are all its hypotheses, or its `different` best texts."""
        src_tokenizer, tgt_tokenizer = self.tokenizers
        n_best = []
        for n in range(found.tokens.size(1)):
            ids = found.tokens[row, n, : found.lengths[row, n]].tolist()
            n_best.append((tgt_tokenizer.decode(ids), float(found.scores[row, n])))
        if different is not None:
            scores: dict[str, float] = {}
            for text, score in n_best:
                scores.setdefault(text, score)
            n_best = list(scores.items())[:different]
        best = found.tokens[row, 0, : found.lengths[row, 0]].tolist()
        weights = found.attn_weights
        return Translation(
            text=n_best[0][0],
            score=n_best[0][1],
            source_tokens=src_tokenizer.tokens([*source, EOS]),
            tokens=tgt_tokenizer.tokens(best),
            attention=None if weights is None else weights[row, 0, : len(best), : len(source) + 1].cpu(),
            n_best=n_best,
        )

    # ---- calibration ----

    def event(self) -> str:
        """Exact match for data that is scored so."""
        return "the answer is exactly right" if _exact_only(self.data_module) else GOOD

    def judge(self, batch: PairBatch) -> list[tuple[Evidence, Any]]:
        """Answers of the default search, with answer and reference."""
        found = self._search(batch.src, batch.src_lengths, self.config["beam_size"], return_attention=False)
        texts = [self.tokenizers[1].decode(row) for row in found.tokens[:, 0].tolist()]
        src = [row[:length] for row, length in zip(batch.src.tolist(), (batch.src_lengths - 1).tolist(), strict=True)]
        sources = present(batch.src_text)
        return [
            (self._evidence(found, n, Sentence(source, ids, False, ""), text), (text, reference))
            for n, (source, ids, text, reference) in enumerate(
                zip(sources, src, texts, batch.references(), strict=True)
            )
        ]

    def evidence(self, texts: Sequence[str]) -> list[Evidence]:
        """The evidence for the default answers to texts that have no reference."""
        ids = self.tokenizers[0].encode_batch(texts)
        batch = pad_batch(ids, ids, list(texts), list(texts))
        with torch.no_grad():
            return [found for found, _ in self.judge(batch._replace(src=batch.src.to(self.device)))]

    def happened(self, outcomes: list[tuple[str, str]]) -> list[bool]:
        if _exact_only(self.data_module):
            return [text == reference for text, reference in outcomes]
        from sacrebleu.metrics.chrf import CHRF  # of an extra

        chrf = CHRF()
        return [chrf.sentence_score(text, [reference]).score >= GOOD_CHRF for text, reference in outcomes]

    def _evidence(self, found: SearchResult, row: int, sentence: Sentence, answer: str) -> Evidence:
        """What a search tells about its best output: the log-odds of its mean token, and known words."""
        score = log_odds(float(found.log_probs[row, 0]) / max(1, int(found.lengths[row, 0])))
        notes = ["the text is in capitals and was read in lower case"] * sentence.was_loud
        notes += ["the answer was cut at its maximum length"] * (EOS not in found.tokens[row, 0].tolist())
        known = known_share(sentence.ids, self.tokenizers[0])
        return Evidence({"score": score, "known": known}, known, sentence.text, answer, tuple(notes))

    # ---- bundle and tests ----

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

    def example_batch(self, batch_size: int) -> PairBatch:
        """Random ids with lengths from 1 up; used for training in the common tests."""
        generator = torch.Generator().manual_seed(batch_size)

        def rows(vocab_size: int, longest: int) -> list[list[int]]:
            lengths = [n % longest for n in range(batch_size)]
            return [torch.randint(EOS + 1, vocab_size, (n,), generator=generator).tolist() for n in lengths]

        return pad_batch(rows(self.config["src_vocab_size"], 7), rows(self.config["tgt_vocab_size"], 5))

    @evaluated
    def golden(self) -> dict[str, Tensor]:
        """About a hundred columns of the logits of a fixed batch, and the beam search's output for it."""
        batch = self.example_batch(6)
        tgt, _ = batch.targets()
        logits, _ = self(batch.src, batch.src_lengths, tgt[:, :-1])
        found = self._search(batch.src, batch.src_lengths, self.config["beam_size"])
        logits = logits[..., :: max(1, logits.size(-1) // 100)].contiguous()
        return {
            "src": batch.src,
            "src_lengths": batch.src_lengths,
            "tgt": tgt,
            "logits": logits,
            "tokens": found.tokens,
        }


def _exact_only(data: Any) -> bool:
    """Whether a data module, which may be a user's own, asks for exact match instead of BLEU."""
    return getattr(data, "exact_only", False)


def _new_pieces(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Of each word that `new` has more its pieces in `old`; none for a word that `old` cannot write."""
    encoded = (old.encode(word) for word in new.tokens(range(len(old), len(new))))
    return [[] if UNK in ids else ids for ids in encoded]
