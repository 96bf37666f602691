"""TranslationModule: what all encoder-decoders share: loss, scores and search; its verbs are in zoo/verbs.

A model implements

    encode(src, src_lengths)     -> memory, state      once per sentence; memory and state are tuples of tensors
    decode(tgt, memory, state)   -> readouts, weights  teacher forcing, all steps
    step(tokens, state, memory, t, given) -> readouts, state, weights    one step of a search

and owns `embeddings` (Embeddings), whose output layer turns readouts into scores of the target vocabulary.

Shapes: B batch, S source tokens, T target tokens, K hypotheses, D readout size, V target vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from zoo.batches.devices import on
from zoo.batches.translation import PairBatch, pad_batch
from zoo.layers.kernels import wide
from zoo.layers.search import SearchResult, check_search, search
from zoo.tasks.embeddings import Embeddings
from zoo.tasks.given import following
from zoo.tasks.scored import ScoredModule
from zoo.tasks.vocabulary import check_fits
from zoo.text import EOS, PAD, UNK, Tokenizer
from zoo.utils.extras import require
from zoo.verbs.base import evaluated
from zoo.verbs.checks import present
from zoo.verbs.confidence import Evidence
from zoo.verbs.sentences import Sentence
from zoo.verbs.translation import Translator, longest_translation

if TYPE_CHECKING:
    from zoo.metrics import ExactMatch

Memory = TypeVar("Memory", bound=NamedTuple)

GOOD_CHRF = 50  # of a good translation, in percent
GOOD = f"the translation has a chrF of at least {GOOD_CHRF} with a human one"


class TranslationModule(Translator, ScoredModule, Generic[Memory]):
    """Base class of the translation models, by what their decoders read of the source, e.g.
    `TranslationModule[AttentionMemory]`.

    Every subclass has the `__init__` arguments of `required`, which are read from `self.config`.
    """

    required = ("src_vocab_size", "tgt_vocab_size", "label_smoothing", "beam_size", "length_penalty")
    methods = ("encode", "decode", "step")
    embeddings: Embeddings

    def __init__(self):
        super().__init__()
        c = self.config
        if not 0 <= c["label_smoothing"] < 1:
            raise ValueError(f"label_smoothing must be in [0, 1); got {c['label_smoothing']}")
        check_search(c["beam_size"], c["length_penalty"])

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
        """Last tokens (B, K), state, memory, step number -> readouts (B, K, D), state, weights (B, K, S) or None.

        A model with attention has one more argument, `given: Tensor | None = None`: weights (B, K, S) that replace
        its own, where a row is not all zeros (`zoo.layers.attention.replaced`).
        """
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
        scores = stage in ("validate", "test") or (stage == "fit" and validates)
        if scores and not _exact_only(data):
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
            check_fits(getattr(data, f"{side}_tokenizer"), self.config[f"{side}_vocab_size"], side)
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
            tokenizer = src.extended(words).extended(tgt_words)
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
        self.log("train/loss", loss.detach() / max(tokens, 1), prog_bar=True, batch_size=max(tokens, 1))
        return self.normalize_gradient(loss, tokens)

    def new_scores(self) -> "ExactMatch":
        from zoo.metrics import CorpusScore, ExactMatch  # late: torchmetrics takes a second

        data = self.data_module
        return ExactMatch() if _exact_only(data) else CorpusScore(data.tgt_lang, data.tokenized)

    def score(self, batch: PairBatch, scores: "ExactMatch", validating: bool) -> tuple[Tensor, int] | None:
        loss = self.loss(batch) if validating else None
        found = self._search(batch.src, batch.src_lengths, *self.searched_by(validating), return_attention=False)
        _, tokenizer = self.tokenizers
        scores.update([tokenizer.decode(row) for row in found.tokens[:, 0].tolist()], batch.references())
        return loss

    # ---- use: computations for the verbs of `Translator` ----

    def predict_batch(self, batch: PairBatch) -> list[str]:
        """Translations of the default search."""
        found = self._search(batch.src, batch.src_lengths, self.config["beam_size"], return_attention=False)
        return [self.tokenizers[1].decode(row) for row in found.tokens[:, 0].tolist()]

    def hypotheses(self, rows: Sequence[list[int]], beam_size: int, **options: Any) -> SearchResult:
        batch = pad_batch(rows)
        return self._search(batch.src.to(self.device), batch.src_lengths.to(self.device), beam_size, **options).cpu()

    def forced_attention(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> Tensor | None:
        batch = pad_batch(sources, targets)
        src, lengths, tgt = (x.to(self.device) for x in (batch.src, batch.src_lengths, batch.targets()[0]))
        _, weights = self(src, lengths, tgt[:, :-1])
        return None if weights is None else weights.float().cpu()

    @torch.no_grad()
    def _search(
        self,
        src: Tensor,
        src_lengths: Tensor,
        beam_size: int,
        length_penalty: float | None = None,
        allow_unk: bool = False,
        given: np.ndarray | None = None,
        **options: Any,
    ) -> SearchResult:
        memory, state = self.encode(src, src_lengths)
        own = self.step if given is None else following(self.step)

        def step(tokens: Tensor, state: tuple, memory: Any, t: int) -> tuple[Tensor, tuple, Tensor | None]:
            readouts, state, weights = own(tokens, state, memory, t)
            return self.embeddings.logits(readouts), state, weights

        vocab = len(self.tgt_tokenizer) if self.tgt_tokenizer else self.config["tgt_vocab_size"]
        forbid = range(vocab, self.config["tgt_vocab_size"])  # rows of the output layer without a token
        options["forbid"] = (*forbid,) if allow_unk else (UNK, *forbid)
        options.setdefault("max_length", longest_translation(src_lengths))
        options["length_penalty"] = self.config["length_penalty"] if length_penalty is None else length_penalty
        state = tuple(x.unsqueeze(1) for x in state)  # (B, 1, ...)
        seen = memory if given is None else (memory, torch.from_numpy(given).to(src.device))
        return search(step, state, seen, beam_size=beam_size, **options)

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
            (self.evidence_of(found, n, Sentence(source, ids, None, ""), text), (text, reference))
            for n, (source, ids, text, reference) in enumerate(
                zip(sources, src, texts, batch.references(), strict=True)
            )
        ]

    def evidence(self, texts: Sequence[str]) -> list[Evidence]:
        """The evidence for the default answers to texts that have no reference."""
        ids = self.tokenizers[0].encode_batch(texts)
        batch = pad_batch(ids, ids, list(texts), list(texts))
        with torch.no_grad():
            here = batch._replace(src=batch.src.to(self.device), src_lengths=batch.src_lengths.to(self.device))
            return [found for found, _ in self.judge(here)]

    def happened(self, outcomes: list[tuple[str, str]]) -> list[bool]:
        if _exact_only(self.data_module):
            return [text == reference for text, reference in outcomes]
        from sacrebleu.metrics.chrf import CHRF  # of an extra

        chrf = CHRF()
        return [chrf.sentence_score(text, [reference]).score >= GOOD_CHRF for text, reference in outcomes]

    # ---- bundle and tests ----

    def example_batch(self, batch_size: int) -> PairBatch:
        """Random ids with lengths from 1 up, sources within the limit; used for training in the common tests."""
        generator, most = torch.Generator().manual_seed(batch_size), self.max_source_tokens

        def rows(vocab_size: int, lengths: list[int]) -> list[list[int]]:
            return [torch.randint(EOS + 1, vocab_size, (n,), generator=generator).tolist() for n in lengths]

        src = rows(self.config["src_vocab_size"], [min(n % 7, most) for n in range(batch_size)])
        return pad_batch(src, rows(self.config["tgt_vocab_size"], [n % 5 for n in range(batch_size)]))

    @evaluated
    def golden(self) -> dict[str, Tensor]:
        """About a hundred columns of the logits of a fixed batch, and the beam search's output for it."""
        batch = on(self.device, self.example_batch(6))
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
