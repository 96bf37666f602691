"""What the data modules of all tasks share: what the trainer is about to do, and with which model."""

from typing import Any, Literal

import lightning.pytorch as pl

Split = Literal["train", "val", "test"]

OF_STAGE: dict[str | None, list[Split]] = {"fit": ["train", "val"], "validate": ["val"], "test": ["test"]}


class DataModule(pl.LightningDataModule):
    """Base class of the data modules."""

    @staticmethod
    def _check_at_least(**limits: tuple[int | None, int]) -> None:
        """Raises ValueError for an argument, given with its least value, that is smaller; None is always allowed."""
        for name, (value, least) in limits.items():
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}; got {value}")

    def _splits(self) -> list[Split]:
        """Those that the trainer is about to use; all of them without a trainer."""
        return OF_STAGE.get(self.trainer.state.fn if self.trainer else None, self._all_splits())

    def _all_splits(self) -> list[Split]:
        return ["train", "val", "test"]

    def _of_model(self, name: str) -> Any:
        """An attribute of the model that is trained or tested; None if there is no such thing."""
        return getattr(self.trainer.lightning_module if self.trainer else None, name, None)

    def _rank_and_world_size(self) -> tuple[int, int]:
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
