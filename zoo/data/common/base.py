"""What the data modules of all tasks share: the trainer's next stage, its model, and words that the model lacks."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import lightning.pytorch as pl

from zoo.data.common.cache import cached_text
from zoo.data.common.files import fingerprint
from zoo.data.common.loaders import BatchStream, ItemsT, SortedLoader, Stream, TrainLoader
from zoo.text import Tokenizer

Split = Literal["train", "val", "test"]

OF_STAGE: dict[str | None, list[Split]] = {"fit": ["train", "val"], "validate": ["val"], "test": ["test"]}


log = logging.getLogger(__name__)
T = TypeVar("T")


class DataModule(pl.LightningDataModule):
    """Base class of the data modules.

    Attributes:
        task: name of the task that the data is for (`zoo.verbs.task.Task`).
        changes_model: training may give a pretrained model the words and labels of the data; a resumed training may
            not.
        own_files: arguments that name files of the user, and what these may be.
        of_vocabulary: arguments that only decide on a new vocabulary; a pretrained model has its own.
    """

    task: ClassVar[str]
    own_files: ClassVar[Mapping[str, str]] = {}
    of_vocabulary: ClassVar[Sequence[str]] = ("lowercase", "vocab_size")
    changes_model: bool = True
    cache: Path
    extend_vocabulary: int
    num_workers: int
    _resumed: dict[str, Any] | None = None  # position in the training batches, from a checkpoint
    _unknown: tuple[int, int] = (0, 0)  # training words that a pretrained model does not know, and all

    def __init__(self) -> None:
        super().__init__()
        self._extended_by_us: set[str] = set()  # tokenizers, as JSON

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: data for {self.task}>"

    __str__ = __repr__  # Lightning's looks for the lengths of loaders of torch

    def check_files(self, verb: str) -> None:
        """Looks for the `own_files` that fit, validate or test will read, before anything long begins.

        Raises:
            OSError, ValueError: one is missing, or cannot be read.
        """
        self._check_files(OF_STAGE[verb])

    def _check_files(self, splits: Sequence[Split]) -> None:
        """The same for splits; of a data set with files of the user."""

    def check_task(self, model: Any) -> None:
        """Raises ValueError if a model is for another task."""
        task = getattr(model, "task", None)
        if task and task.name != self.task:
            raise ValueError(
                f"{type(self).__name__} is data for {self.task}; {type(model).__name__} is a model for {task.name}: "
                "use other data or another model"
            )

    def _splits(self) -> list[Split]:
        """The splits that the trainer is about to use; all of them without a trainer."""
        return OF_STAGE.get(self.trainer.state.fn if self.trainer else None, self._all_splits())

    def _all_splits(self) -> list[Split]:
        return ["train", "val", "test"]

    def _opened(self, stage: str | None) -> list[Split]:
        """The splits that `setup` opens: those of a stage, or all."""
        return self._all_splits() if stage is None else OF_STAGE.get(stage, [])

    def _of_model(self, name: str) -> Any:
        """An attribute of the model that is trained or tested; None if it does not exist."""
        return getattr(self.trainer.lightning_module if self.trainer else None, name, None)

    @property
    def _model(self) -> pl.LightningModule:
        """The model that is trained or tested.

        Raises:
            ValueError: there is no trainer, so there is none.
        """
        if self.trainer is None:
            raise ValueError(f"{type(self).__name__} has no trainer, so no model; pass it to a method of a Trainer")
        return self.trainer.lightning_module

    def _ready(self, value: T | None, name: str) -> T:
        """What `setup` sets.

        Raises:
            ValueError: `setup` was not called.
        """
        if value is None:
            raise ValueError(f"{type(self).__name__} has no {name} yet; call prepare_data() and setup() first")
        return value

    def _may_change_model(self) -> bool:
        return self.changes_model and self.trainer is not None and self.trainer.state.fn == "fit"

    def _adds_words(self) -> bool:
        """Whether a pretrained model should get more words now."""
        if not self.extend_vocabulary or not self._may_change_model():
            return False
        if self._of_model("extend_vocabulary") is None:
            raise ValueError(f"{type(self._model).__name__} does not support new words; set extend_vocabulary to 0")
        return True

    def _adapt_model(self, stage: str | None) -> None:
        """Tells the model that vocabulary and labels are set, before any callback uses it.

        Raises:
            ValueError: the model is for another task.
        """
        if self._of_model("task"):
            self.check_task(self._model)
            self._of_model("adapt")(self, stage)

    def _extended(
        self, tokenizer: Tokenizer, texts: Callable[[], Iterable[str]], signature: object, min_frequency: int = 1
    ) -> Tokenizer:
        """The tokenizer of a pretrained model with `extend_vocabulary` more words, from the cache if possible.

        Args:
            tokenizer: the model's.
            texts: the training texts.
            signature: of what they depend on.
            min_frequency: less frequent words are not added.
        """
        text = tokenizer.to_json()
        if text in self._extended_by_us:  # a second training would add further words
            return tokenizer
        key = fingerprint("extended", text, self.extend_vocabulary, min_frequency, signature)

        def more() -> str:
            return tokenizer.extended(tokenizer.lacking(texts(), self.extend_vocabulary, min_frequency)).to_json()

        extended = Tokenizer.from_json(cached_text(self.cache / "tokenizers" / f"{key}.json", more))
        self._extended_by_us.add(extended.to_json())
        return extended

    def _report_unknown(self) -> None:
        """Warns, as a training begins, of words that its pretrained model does not know."""
        unknown, total = self._unknown
        share = f"{unknown:,} of the {total:,} tokens of the training text ({unknown / total:.1%})"
        log.warning(f"{share} are words that the model does not know and reads as UNK; {self._about_new_words()}")

    def _about_new_words(self) -> str:
        if not self.extend_vocabulary:
            return "--data.extend_vocabulary N adds the N most frequent of them to its vocabulary"
        least = getattr(self, "min_frequency", 1)
        seen = f", of those seen at least {least} times (min_frequency)" if least > 1 else ""
        return f"they remain after extend_vocabulary {self.extend_vocabulary:,}, which adds the most frequent{seen}"

    def state_dict(self) -> dict[str, Any]:
        """Position of the training in its batches. Lightning itself asks the loader only within an epoch."""
        loader = self.trainer.train_dataloader if self.trainer else None
        return {"train": loader.state_dict()} if isinstance(loader, TrainLoader) else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Lets the next training loader continue from there, if training is resumed."""
        if self.trainer is not None and self.trainer.state.fn == "fit":
            self._resumed = state_dict.get("train")

    def _train_loader(self, stream: Stream) -> TrainLoader:
        """The training batches of a stream, from where the previous loader stopped, in this or a killed process."""
        on_gpu = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        loader = TrainLoader(
            stream, self.trainer.current_epoch if self.trainer else 0, self.num_workers, pin_memory=on_gpu
        )
        if self._unknown[0] and self._resumed is None:
            self._report_unknown()
        self._unknown = (0, 0)
        if state := self.state_dict().get("train") or self._resumed:
            if state.get("data", loader.mark) != loader.mark:
                self._tell(
                    "the training data are not those with which this training began; it goes on with them. If that is "
                    "not meant, end it, and resume it with the files of before"
                )
            loader.load_state_dict({**state, "given": 0})  # the trainer itself counts the batches of an epoch
        self._resumed = None
        return loader

    def _tell(self, message: str) -> None:
        """Prints a line, once for all processes."""
        if self._rank_and_world_size()[0] == 0:
            log.warning(message)

    def _rank_and_world_size(self) -> tuple[int, int]:
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)


class SortedData(DataModule, Generic[ItemsT]):
    """Base class of data modules whose `setup` opens arrays of items that are batched by length.

    Attributes:
        batch_size, batch_tokens, pool_batches, num_workers, seed: as in `LabeledData`.
    """

    batch_size: int | None
    batch_tokens: int | None
    pool_batches: int
    num_workers: int
    seed: int
    _train: ItemsT
    _val: ItemsT
    _test: ItemsT

    def train_dataloader(self) -> TrainLoader:
        """Endless, resumable, shuffled batches of similar length."""
        ranks = self._rank_and_world_size()
        stream = BatchStream(self._train, self.batch_size, self.batch_tokens, self.pool_batches, self.seed, *ranks)
        return self._train_loader(stream)

    def val_dataloader(self) -> SortedLoader:
        """Validation batches, sorted by length."""
        return self._eval_loader(self._val)

    def test_dataloader(self) -> list[SortedLoader]:
        """One loader per name in `test_names`."""
        return [self._eval_loader(self._test)]

    def _eval_loader(self, items: ItemsT) -> SortedLoader:
        return SortedLoader(items, self.batch_size, self.batch_tokens, *self._rank_and_world_size())
