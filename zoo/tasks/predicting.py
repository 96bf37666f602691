"""`predict_step`: `trainer.predict(model, DataLoader(texts, batch_size=8))` answers raw inputs by the task's verb."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from zoo.verbs.base import Verbs


class Predicting(nn.Module, Verbs):
    """Gives a model the step of `Trainer.predict`."""

    def predict_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> Any:
        """Answers a batch.

        Args:
            batch: raw inputs as the verb of the task takes them: a list of texts, of images (paths, bytes or PIL
                images), of pairs of texts, or of questions (document, query) or (document, query, candidates). What
                the default `collate_fn` of a DataLoader makes of such pairs and questions is taken too. Or a batch of
                a data module of `zoo.data`.
            batch_idx: not used.
            dataloader_idx: which of several loaders the batch is from.

        Returns:
            For raw inputs a list of results, in their order. For a batch of a data module the texts of the default
            search, from a model that writes texts; else the outputs of the network.

        Raises:
            TypeError: the batch is something else.
        """
        if isinstance(batch, Tensor) or hasattr(batch, "_fields"):
            return self.predict_batch(batch)
        verb = getattr(self, self.task.verb)
        if self.task.input not in ("pair", "question"):
            return verb([*batch] if isinstance(batch, tuple) else batch)
        rows = _rows(batch) if self._is_collated(dataloader_idx) else batch
        if self.task.input == "pair":
            return verb([tuple(row) if isinstance(row, list) else row for row in rows])
        documents, queries, *candidates = zip(*rows, strict=True) if rows else ((), ())
        return verb(documents, queries, *candidates)

    def predict_batch(self, batch: Any) -> Any:
        """The outputs of the network for a batch of a data module."""
        return self(batch)

    def _is_collated(self, dataloader_idx: int) -> bool:
        """Whether the loader gives columns of its batches instead of rows."""
        from torch.utils.data import default_collate  # late: not in the process of `zoo predict`

        trainer: Any = self.trainer
        loaders = trainer.predict_dataloaders
        loader = loaders[dataloader_idx] if isinstance(loaders, Sequence) else loaders
        return getattr(loader, "collate_fn", None) is default_collate


def _rows(columns: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Rows of what the default `collate_fn` made of tuples of texts and lists of texts."""
    whole = [column if isinstance(column[0], str) else zip(*column, strict=True) for column in columns]
    return list(zip(*whole, strict=True))
