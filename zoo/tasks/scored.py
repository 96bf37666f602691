"""ScoredModule: validation and testing of models whose outputs are scored: translations, captions, labels, answers."""

from typing import Any, ClassVar, Protocol

from torch import Tensor

from zoo.metrics import Mean
from zoo.metrics.gather import gathered
from zoo.tasks.base import ZooModule, score_prefix
from zoo.tasks.precision import chosen, for_scores
from zoo.utils.search_options import SearchSettings
from zoo.verbs.confidence import Evidence


class Scores(Protocol):
    """A metric over a whole data set."""

    def compute(self) -> dict[str, float]:
        """Values by name over all processes; an attribute `signatures` may say how some were computed."""
        ...


class ScoredModule(ZooModule):
    """Logs val/loss, val/SCORE and test/SCORE, or test/SET/SCORE for a test set that is not named "test".

    Prints the scores of `zoo validate` and `zoo test`.

    Class attributes:
        shown: scores in the progress bar; the first one if there are none.
    """

    shown: ClassVar[tuple[str, ...]] = ()
    search_settings = SearchSettings()  # of `zoo validate` and `zoo test`, for models that search for their outputs

    # ---- filled in by the task ----

    def new_scores(self) -> Scores:
        """Empty metrics."""
        raise NotImplementedError

    def new_test_scores(self) -> Scores:
        """Empty metrics of a test set: those of validation, or more that take longer."""
        return self.new_scores()

    def score(self, batch: Any, scores: Any, validating: bool) -> tuple[Tensor, int] | None:
        """Adds a batch to the metrics. Returns its summed loss and number of items if `validating`.

        Products are computed in the model's `precision`.
        """
        raise NotImplementedError

    # ---- calibration, see zoo/verbs/confidence.py ----

    def judge(self, batch: Any) -> list[tuple[Evidence, Any]]:
        """The evidence for each answer to a validation batch, and what `happened` needs to tell if it is right."""
        raise NotImplementedError

    def happened(self, outcomes: list[Any]) -> list[bool]:
        """Whether the event happened, for all validation examples; by default `judge` has said so."""
        return outcomes

    def judged_by_all(self, found: list[tuple[Evidence, Any]]) -> list[tuple[Evidence, Any]]:
        """What `judge` has found in all processes of the run, by rank."""
        return gathered(found)

    # ---- the loops ----

    def on_validation_epoch_start(self) -> None:
        self._scores, self._val_loss = {"val": self.new_scores()}, Mean()

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        if batch is not None:
            with for_scores(self.precision, self.device.type):  # they do not depend on the training's
                loss = self.score(batch, self._scores["val"], validating=True)
            if loss is not None:
                self._val_loss.update(*loss)

    def on_validation_epoch_end(self) -> None:
        loss = self._val_loss.compute()
        self.log("val/loss", loss, prog_bar=True)
        judged = _judged(self.trainer.val_dataloaders, self.trainer.num_val_batches[0])
        self._report("val", "val/", judged, validating=True, loss=loss)

    def on_test_epoch_start(self) -> None:
        self._scores = {name: self.new_test_scores() for name in self.data_module.test_names}

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        if batch is not None:
            name = self.data_module.test_names[dataloader_idx]
            with for_scores(self.precision, self.device.type):
                self.score(batch, self._scores[name], validating=False)

    def on_test_epoch_end(self) -> None:
        for name, loader, batches in zip(
            self._scores, _listed(self.trainer.test_dataloaders), self.trainer.num_test_batches, strict=True
        ):
            self._report(name, score_prefix(name), _judged(loader, batches), validating=False)

    def _report(self, name: str, prefix: str, judged: str, validating: bool, loss: float | None = None) -> None:
        values = self._scores[name].compute()
        shown = self.shown or (next(iter(values)),)
        for key, value in values.items():
            self.log(f"{prefix}{key}", value, prog_bar=key in shown)
        if self.trainer.state.fn == "fit":
            return
        signatures = getattr(self._scores[name], "signatures", {})
        width = len(prefix) + max(12, *map(len, values))
        lines = [] if loss is None else [f"  {f'{prefix}loss':{width}}{loss:8.4f}"]
        lines += [
            f"  {prefix + key:{width}}{value:6.2f}    {signatures.get(key, '')}".rstrip()
            for key, value in values.items()
        ]
        precision = chosen(self.precision, self.device.type)
        self.print("\n".join([f"\n{name}, {self._decoding(validating)}{precision}{judged}", *lines]))

    def searched_by(self, validating: bool) -> tuple[int, float]:
        """Beam size and length penalty with which scored outputs are searched for."""
        beam_size, length_penalty = self.search_settings.beam_size, self.search_settings.length_penalty
        if beam_size is None:
            beam_size = 1 if validating else self.config["beam_size"]
        return beam_size, self.config["length_penalty"] if length_penalty is None else length_penalty

    def _decoding(self, validating: bool) -> str:
        """The search settings of a model that searches for its outputs."""
        if "beam_size" not in self.config:
            return ""
        return "beam {}, length penalty {}, ".format(*self.searched_by(validating))


def _listed(loaders: Any) -> list[Any]:
    return loaders if isinstance(loaders, list) else [loaders]


def _judged(loader: Any, batches: int | float) -> str:
    """What the scores are of, e.g. ", 500 texts", if a loader knows it; batches of which were used."""
    if not isinstance(getattr(loader, "count", None), int):  # a list has a method of that name
        return ""
    return f", {loader}" if batches == len(loader) else f", {batches} of {len(loader)} batches"
