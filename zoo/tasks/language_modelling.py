"""LanguageModelModule: what all language models share: loss, perplexity, carried state, `complete` and `perplexity`.

A model implements

    start(batch_size)               -> state             before the first word: tensors (B, ...)
    read(inputs, state, lengths)    -> readouts, weights, state      any number of words

and owns `words` (Words), whose output layer turns readouts into scores of the vocabulary.

A text is read as written: EOS stands at the end of each line and before the first one. The state keeps what was read.
It is carried from one training batch to the next without gradient (truncated back-propagation), and into the
checkpoints.

Shapes: B streams or texts, T words, L window of the attention, D readout size, E embedding, V vocabulary.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from zoo.batches.language_modelling import LMBatch
from zoo.layers.search import SearchResult, search
from zoo.metrics.gather import gathered
from zoo.results.language_modelling import Completion
from zoo.tasks.base import ZooModule, score_prefix
from zoo.tasks.checks import as_list, check_assets, check_batch_size, present
from zoo.tasks.confidence import Evidence, trusted
from zoo.tasks.evaluation import evaluated
from zoo.tasks.task import Task
from zoo.tasks.words import Words
from zoo.text import EOS, PAD, UNK, Tokenizer
from zoo.text.familiar import known_share

STEPS_AT_ONCE = 256  # in evaluation
NEAR = 5  # distances whose share of the attention is reported separately
_PUNCTUATION = '",;:!?().'
_NUMBER = re.compile(r"[-+]?\d[\d.,]*")

State = tuple[Tensor, ...]


class LanguageModelModule(ZooModule):
    """Base class of the language models.

    Every subclass has vocab_size among its `__init__` arguments (read from `self.config`).
    """

    task = Task(
        "language modelling",
        "complete",
        "text",
        Completion,
        "text-generation",
        'model.complete("...").text',
        searches=True,
    )
    words: Words
    tokenizer: Tokenizer | None = None

    def __init__(self):
        super().__init__()
        self._carried: dict[
            bool, State
        ] = {}  # by `self.training`: validation within an epoch does not change the training state
        self._totals: Tensor | None = None

    @property
    def vocabulary(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ValueError: there is none yet.
        """
        return present(self.tokenizer)

    # ---- filled in by the model ----

    def start(self, batch_size: int) -> State:
        """State before the first word, tensors (B, ...)."""
        raise NotImplementedError

    def read(self, inputs: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None, State]:
        """Reads words from a given state on.

        Args:
            inputs: (B, T) ids.
            state: from `start` or the previous call.
            lengths: (B,) number of real words in each row, 0 to T; padding follows them. All if not given.

        Returns:
                readouts (B, T, D), which predict the next word; weights (B, T, L) on the words 1, 2, ... L steps back,
                0 where there are none, or None; and the state after the real words.
        """
        raise NotImplementedError

    # ---- training ----

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Reads whole texts: inputs (B, T) -> logits of the next words (B, T, V), weights (B, T, L) or None."""
        readouts, weights, _ = self.read(inputs, self.start(len(inputs)))
        return self.words.logits(readouts), weights

    def loss(self, batch: LMBatch) -> tuple[Tensor, int]:
        """Summed loss in nats over the labels, and their number; continues the previous batch unless `first`."""
        readouts, _ = self._go_on(batch)
        real = batch.labels != PAD
        return self.words.loss(readouts[real], batch.labels[real]), int(real.sum())

    def _go_on(self, batch: LMBatch) -> tuple[Tensor, Tensor | None]:
        streams, state = len(batch.inputs), None if batch.first else self._carried.get(self.training)
        if state is None:
            state = self.start(streams)
        elif len(state[0]) != streams:
            raise ValueError(
                f"a batch of {streams} streams cannot continue one of {len(state[0])}; give equal batches, "
                "or one with first=True"
            )
        readouts, weights, state = self.read(batch.inputs, tuple(x.to(self.device) for x in state))
        self._carried[self.training] = tuple(x.detach() for x in state)
        return readouts, weights

    def adapt(self, data: Any, stage: str) -> None:
        """Takes the vocabulary of a data module: as it is, or the words that it adds to that of a pretrained model.

        A model without a vocabulary is new: its output bias is initialised with the word frequencies, because otherwise
        the first steps would saturate its readouts.
        """
        if self.tokenizer is None and len(data.tokenizer) > self.config["vocab_size"]:
            raise ValueError(
                f"the data has a vocabulary of {len(data.tokenizer)} words, the model one of "
                f"{self.config['vocab_size']}; "
                f"set the model's vocab_size to at least {len(data.tokenizer)}"
            )
        if self.tokenizer is None and stage == "fit":
            self.words.expect(data.word_counts())
        if self.tokenizer is not None and len(data.tokenizer) > len(self.tokenizer):
            self._give_rows(len(self.tokenizer), len(data.tokenizer))
        self.tokenizer = data.tokenizer

    def extend_vocabulary(self, words: Sequence[str]) -> None:
        """Appends words to the vocabulary, to be learnt in training. All other weights stay bit-identical.

        See zoo/tasks/vocabulary.py.

        Args:
            words: single words; known ones are skipped.

        Raises:
            ValueError: no tokenizer, or one that splits a word.
        """
        self._checked([], "extend_vocabulary")
        extended = self.vocabulary.extended(words)
        self._give_rows(len(self.vocabulary), len(extended))
        self.tokenizer = extended

    def _give_rows(self, known: int, size: int) -> None:
        if size > known:
            self.words.extend(known, size)
            self.config["vocab_size"] = len(self.words.table.weight)

    def training_step(self, batch: LMBatch, batch_idx: int) -> Tensor:
        loss, words = self.loss(batch)
        self.log("train/loss", loss.detach() / max(words, 1), prog_bar=True, batch_size=max(words, 1))
        return self.normalize_gradient(loss, words)

    def on_validation_epoch_start(self) -> None:
        self._totals = None

    def validation_step(self, batch: LMBatch, batch_idx: int) -> None:
        self._measure(batch)

    def on_validation_epoch_end(self) -> None:
        for key, value in self._values().items():
            self.log(f"val/{key}", value, prog_bar=key in ("loss", "perplexity"))

    on_test_epoch_start = on_validation_epoch_start
    test_step = validation_step

    def on_test_epoch_end(self) -> None:
        values, name = self._values(), self.data_module.test_names[0]
        for key, value in values.items():
            self.log(f"{score_prefix(name)}{key}", value)
        self.print("\n".join([f"\n{name}, fp32", *(f"  {key:16}{value:8.4f}" for key, value in values.items())]))

    def _measure(self, batch: LMBatch) -> None:
        """Adds a batch to the totals: loss, labels, labels with a window, and weight at each distance."""
        with torch.autocast(self.device.type, enabled=False):  # scores do not depend on the training precision
            readouts, weights = self._go_on(batch)
            real = batch.labels != PAD
            losses = self.words.losses(readouts[real], batch.labels[real])
        totals = [losses.double().sum(), real.double().sum()]
        if weights is not None:
            weights = weights[real].double()  # (N, L)
            totals += [(weights.sum(-1) > 0.5).double().sum(), *weights.sum(0)]
        totals = torch.stack(totals)
        self._totals = totals if self._totals is None else self._totals + totals

    def _values(self) -> dict[str, float]:
        """loss, perplexity and, with attention, mean_distance and share_1 to share_5 (weight 1 to 5 steps back)."""
        if self._totals is None:
            raise ValueError("there is no text to measure; give validation and test data with a word at least")
        totals = self._totals.cpu()
        loss, labels, *seen = sum(gathered([totals]), torch.zeros_like(totals)).tolist()
        values = {"loss": loss / labels, "perplexity": _perplexity(loss / labels)}
        if seen and seen[0]:
            shares = [weight / seen[0] for weight in seen[1:]]
            values["mean_distance"] = sum(d * share for d, share in enumerate(shares, start=1))
            values |= {f"share_{d}": share for d, share in enumerate(shares[:NEAR], start=1)}
        return values

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Stores the carried training state of all processes, in their order."""
        super().on_save_checkpoint(checkpoint)
        carried = self._carried.get(True, ())
        checkpoint["zoo_carried"] = [
            self.of_all_processes(x).reshape(len(x) * self.trainer.world_size, *x.shape[1:]).cpu() for x in carried
        ]

    def make_room(self, config: Mapping[str, Any]) -> None:
        self._give_rows(self.config["vocab_size"], config.get("vocab_size", 0))

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores it, each process its own streams."""
        super().on_load_checkpoint(checkpoint)
        rank, processes = (self.trainer.global_rank, self.trainer.world_size) if self._trainer else (0, 1)
        if carried := checkpoint.get("zoo_carried"):
            self._carried[True] = tuple(x.tensor_split(processes)[rank] for x in carried)

    # ---- use ----

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
    ) -> Completion: ...

    @overload
    def complete(
        self,
        texts: list[str] | tuple[str, ...],
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
    ) -> list[Completion]: ...

    @evaluated
    def complete(
        self,
        texts: str | Sequence[str] = "",
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
    ) -> Completion | list[Completion]:
        """Completes texts up to the end of the line.

        Args:
            texts: one text or many, each of any length and of one line or more; an empty one starts a line.
            max_words: maximum number of words to add.
            min_words: minimum number of words before the line may end.
            n_best: number of alternatives in `Completion.n_best`, at most `beam_size`.
            beam_size: number of hypotheses; 1 is greedy search. 5 if not given.
            length_penalty: alpha of the length normalisation.
            no_repeat_ngram: n > 0 forbids repeating an n-gram of the added words.
            allow_unk: allow the model to output UNK.
            temperature: sample `n_best` completions instead of searching; 1 is the model's own distribution.
            top_k: with a temperature: sample from the k most probable words; 0: from all.
            batch_size: texts completed together.

        Returns:
            One Completion for a string, a list of them for a list, in the order given.

        Raises:
            ValueError: no tokenizer, or an option outside its range.
            TypeError: `texts` is neither a string nor a sequence of strings.
        """
        check_batch_size(batch_size)
        one, texts = self._checked(texts, "complete")
        if not 0 <= min_words <= max_words or max_words < 1:
            raise ValueError(
                f"max_words must be at least 1, and min_words from 0 to max_words; got {max_words} and {min_words}"
            )
        rows = [self._encode(text)[:-1] for text in texts]
        options = {
            "beam_size": 5 if beam_size is None else beam_size,
            "n_best": n_best,
            "max_length": max_words,
            "min_length": min_words + 1,  # the end of the line comes after them
            "length_penalty": length_penalty,
            "no_repeat_ngram": no_repeat_ngram,
            "temperature": temperature,
            "top_k": top_k,
        }
        unused = range(len(self.vocabulary), self.config["vocab_size"])  # rows of the output layer without a word
        options["forbid"] = (*unused,) if allow_unk else (UNK, *unused)
        results: list[Any] = [None] * len(texts)
        for group in _groups([len(row) for row in rows], batch_size):
            for n, result in zip(
                group, self._complete([texts[n] for n in group], [rows[n] for n in group], options), strict=True
            ):
                results[n] = result
        return results[0] if one else results

    @overload
    def perplexity(self, texts: str, batch_size: int = ...) -> float: ...

    @overload
    def perplexity(self, texts: list[str] | tuple[str, ...], batch_size: int = ...) -> list[float]: ...

    @evaluated
    def perplexity(self, texts: str | Sequence[str], batch_size: int = 16) -> float | list[float]:
        """Perplexity of texts: exp of the mean loss over their words and line ends.

        Args:
            texts: one text or many, of any length; each is read from its beginning. An unknown word counts as UNK.
            batch_size: texts read together.

        Returns:
            A number for a string, a list of them for a list; NaN for a text without words.

        Raises:
            ValueError: no tokenizer.
            TypeError: `texts` is neither a string nor a sequence of strings.
        """
        check_batch_size(batch_size)
        one, texts = self._checked(texts, "perplexity")
        rows = [self._encode(text.removesuffix("\n")) for text in texts]
        results = [math.nan] * len(texts)
        has_words = [any(i != EOS for i in row) for row in rows]
        for group in _groups([len(row) for row in rows], batch_size):
            group = [n for n in group if has_words[n]]
            labels = _padded([rows[n] for n in group], self.device)
            total = torch.zeros(len(group), dtype=torch.float64, device=self.device)

            def add(
                first: int, readouts: Tensor, weights: Tensor | None, labels: Tensor = labels, total: Tensor = total
            ) -> None:
                wanted = labels[:, first : first + readouts.size(1)]
                real = wanted != PAD
                total.index_add_(0, real.nonzero()[:, 0], self.words.losses(readouts[real], wanted[real]).double())

            self._follow([[EOS, *rows[n][:-1]] for n in group], add)
            for n, loss in zip(group, total.tolist(), strict=True):
                results[n] = _perplexity(loss / len(rows[n]))
        return results[0] if one else results

    def _checked(self, texts: str | Sequence[str], what: str) -> tuple[bool, list[str]]:
        one, texts = isinstance(texts, str), [texts] if isinstance(texts, str) else as_list(texts, what)
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"{what} takes a string or a list of strings; got {type(text).__name__} in the list")
        self.check_ready(self.tokenizer)
        return one, texts

    def _encode(self, text: str) -> list[int]:
        """Words of all lines, each line ended by EOS."""
        return [i for line in text.split("\n") for i in [*self._line(line), EOS]]

    def _line(self, line: str) -> list[int]:
        """Words of a line.

        For a model of tokenised text, an unknown word is also tried in lower case, without its punctuation marks, and
        as N for a number.
        """
        ids = self.vocabulary.encode(line)
        if self.vocabulary.kind != "word" or UNK not in ids:
            return ids
        return [i for word in line.split() for i in self._word(word)]

    def _word(self, word: str) -> list[int]:
        bare = word.strip(_PUNCTUATION)
        forms = [word, word.lower(), bare, bare.lower(), *["N"] * bool(_NUMBER.fullmatch(bare))]
        return next((ids for form in forms if UNK not in (ids := self.vocabulary.encode(form))), [UNK])

    def _follow(self, rows: list[list[int]], visit: Callable[[int, Tensor, Tensor | None], None]) -> State:
        """Reads texts in chunks of steps; calls visit(first step, readouts, weights) for each. Returns the state."""
        inputs, lengths = _padded(rows, self.device), torch.tensor([len(row) for row in rows], device=self.device)
        state = self.start(len(rows))
        for first in range(0, inputs.size(1), STEPS_AT_ONCE):
            piece = inputs[:, first : first + STEPS_AT_ONCE]
            readouts, weights, state = self.read(piece, state, (lengths - first).clamp(0, piece.size(1)))
            visit(first, readouts, weights)
        return state

    def _complete(self, texts: list[str], rows: list[list[int]], options: dict[str, Any]) -> list[Completion]:
        seen: list[Tensor] = []
        rows = [[EOS, *row] for row in rows]
        state = self._follow(
            [row[:-1] for row in rows],
            lambda first, readouts, weights: None if weights is None else seen.append(weights),
        )
        last = torch.tensor([row[-1] for row in rows], device=self.device)
        found = search(self._step, tuple(x.unsqueeze(1) for x in state), last, **options)
        return [
            self._completion(text, row[1:], found, n, [weights[n] for weights in seen])
            for n, (text, row) in enumerate(zip(texts, rows, strict=True))
        ]

    def _step(self, tokens: Tensor, state: State, last: Tensor, t: int) -> tuple[Tensor, State, Tensor | None]:
        """One search step: last words (B, K), at first the last given ones (B,) -> logits (B, K, V), state, weights."""
        if t == 0:
            tokens = last.unsqueeze(1).expand_as(tokens)
        shape = tokens.shape
        readouts, weights, state = self.read(tokens.reshape(-1, 1), tuple(x.flatten(0, 1) for x in state))
        weights = None if weights is None else weights.view(*shape, -1)
        return self.words.logits(readouts).view(*shape, -1), tuple(x.unflatten(0, shape) for x in state), weights

    def _completion(self, text: str, ids: list[int], found: SearchResult, n: int, seen: list[Tensor]) -> Completion:
        added = [found.tokens[n, k, :length].tolist() for k, length in enumerate(found.lengths[n].tolist())]
        n_best = [
            (self._joined(text, ids, more), score) for more, score in zip(added, found.scores[n].tolist(), strict=True)
        ]
        weights = found.attn_weights
        if weights is not None:
            before = torch.cat([*seen, weights.new_zeros(0, weights.size(-1))])[: len(ids)]
            weights = torch.cat([before, weights[n, 0, : len(added[0])]]).cpu()
        result = Completion(
            text=n_best[0][0],
            continuation=self.vocabulary.decode(added[0]),
            score=n_best[0][1],
            tokens=self.vocabulary.tokens([*ids, *added[0]]),
            given=len(ids),
            attention=weights,
            n_best=n_best,
        )
        return trusted(result, self.calibration, Evidence({}, known_share(ids, self.vocabulary), text))

    def _joined(self, text: str, ids: list[int], added: list[int]) -> str:
        """The given text followed by the added words."""
        text, more = text.rstrip(" "), self.vocabulary.decode(added)
        if self.vocabulary.kind in ("word", "word_punct"):
            return f"{text} {more}" if more and text and text[-1] != "\n" else text + more
        line = ids[len(ids) - ids[::-1].index(EOS) :] if EOS in ids else ids
        return text + self.vocabulary.decode([*line, *added])[len(self.vocabulary.decode(line)) :]

    # ---- bundle and tests ----

    def assets(self) -> dict[str, str]:
        """tokenizer.json."""
        return {} if self.tokenizer is None else {"tokenizer.json": self.tokenizer.to_json()}

    def load_assets(self, assets: dict[str, str]) -> None:
        if assets:
            check_assets(assets, name := "tokenizer.json")
            self.tokenizer = Tokenizer.from_json(assets[name], self.config["vocab_size"], name)

    def example_batch(self, batch_size: int) -> LMBatch:
        """The first batch of streams of random words, the last ones shorter than the others."""
        generator = torch.Generator().manual_seed(batch_size)
        words = torch.randint(EOS + 1, self.config["vocab_size"], (batch_size, 7), generator=generator)
        inputs, labels = words[:, :-1].clone(), words[:, 1:].clone()
        inputs[batch_size // 2 :, -2:] = labels[batch_size // 2 :, -2:] = PAD
        return LMBatch(inputs, labels, first=True)

    @evaluated
    def golden(self) -> dict[str, Tensor]:
        """About a hundred columns of the logits of a fixed batch, and its attention."""
        inputs = self.example_batch(6).inputs
        logits, weights = self(inputs)
        found = {"inputs": inputs, "logits": logits[..., :: max(1, logits.size(-1) // 100)].contiguous()}
        return found if weights is None else {**found, "weights": weights.contiguous()}


def _perplexity(loss: float) -> float:
    """exp of a mean loss in nats; infinite if it overflows."""
    return math.exp(loss) if loss < 700 else math.inf if loss == loss else math.nan


def _groups(sizes: list[int], batch_size: int) -> list[list[int]]:
    """Batches of indices of texts of similar size."""
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]


def _padded(rows: list[list[int]], device: torch.device) -> Tensor:
    """(B, longest) ids, padded with PAD."""
    out = torch.full((len(rows), max(map(len, rows), default=0)), PAD, dtype=torch.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = torch.tensor(row, dtype=torch.int64)
    return out.to(device)
