"""What came of a training, told in one block at its end: how far the weights moved, the scores, and what to do next."""

import math
import os
from collections.abc import Sequence
from typing import Any, cast

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from zoo.registry import load
from zoo.tasks.base import ZooModule
from zoo.tasks.classification import ClassificationModule
from zoo.training.checkpoints import is_fast_dev_run, read_checkpoint
from zoo.training.endings import calibration_of
from zoo.training.finetuning import FineTuning
from zoo.training.logs import LOSS, draw
from zoo.utils.modules import imports
from zoo.utils.shell import command_line

HARDLY = 0.001  # relative change below which a model answers as before
FEW = 100  # held-out inputs: with fewer, one of them is more than one per cent
INPUTS = {  # what `zoo predict` takes
    "text": ["A sentence."],
    "document": ["A text."],
    "pair": ["A sentence.", "Another one."],
    "image": ["photo.jpg"],
    "question": ["A query with XXXXX.", "--document", "story.txt"],
}


class Report(Callback):
    """Keeps the scores before a fine-tuning and those of its best validation, and prints them at the end.

    The scores before are those of Lightning's sanity check, which a fine-tuning runs over all validation data. They are
    stored in the checkpoints with the name, so that a resumed training reports them too.

    Args:
        name: the pretrained weights that the training starts from; None if it starts from scratch, or is resumed.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.before: dict[str, float] = {}
        self.best: dict[str, float] = {}
        self.held_out: int | None = None
        self.most_frequent: float | None = None
        self.new_labels = False
        self._labels: list[Tensor] = []

    def state_dict(self) -> dict[str, Any]:
        judged = {"held_out": self.held_out, "most_frequent": self.most_frequent, "new_labels": self.new_labels}
        return {"name": self.name, "before": self.before, "best": self.best, **judged}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.name, self.before, self.best = state_dict["name"], state_dict["before"], state_dict["best"]
        self.held_out, self.most_frequent = state_dict.get("held_out"), state_dict.get("most_frequent")
        self.new_labels = state_dict.get("new_labels", False)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keeps whether the training is for other labels: then the last layer is new, and other parts were shrunk."""
        if self.name and not trainer.ckpt_path:
            self.new_labels = getattr(pl_module, "has_new_labels", False)

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.name and trainer.num_sanity_val_steps == float("inf"):
            self.before = _scores(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._labels = []

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keeps the labels, if each text has one."""
        if self._counts_labels(pl_module) and batch is not None:
            self._labels.append(batch.known_labels())

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keeps the best scores, and what they were judged on."""
        loader: Any = trainer.val_dataloaders
        count = getattr(loader, "count", None)  # a list of loaders has a method of that name
        if self.held_out is None and isinstance(count, int) and trainer.num_val_batches == [len(loader)]:
            self.held_out = count
        if self._counts_labels(pl_module):
            labels = torch.cat([torch.zeros(0, dtype=torch.long, device=pl_module.device), *self._labels])
            counts = labels.bincount(minlength=cast(ZooModule, pl_module).config["num_classes"]).float()
            counts = cast(Tensor, trainer.strategy.reduce(counts, reduce_op="sum"))  # over the processes
            self.most_frequent = (100 * counts.max() / counts.sum()).item()
        if trainer.sanity_checking or (saving := _saving(trainer)) is None:
            return
        now = _scores(trainer)
        if not self.best or _is_better(saving, now, self.best):
            self.best = now

    def _counts_labels(self, model: LightningModule) -> bool:
        """Whether the most frequent label is still to be found, of texts that have one label each."""
        if self.most_frequent is not None or not isinstance(model, ClassificationModule):
            return False
        return not model.config["multi_label"]

    @rank_zero_only
    def show(self, trainer: Trainer, model: ZooModule, args: list[str]) -> None:
        """Prints the block, unless the run left nothing behind.

        Args:
            trainer: after the training.
            model: what it trained.
            args: the arguments of the command line, of which the first is the verb.
        """
        if is_fast_dev_run(trainer) or trainer.interrupted or not trainer.global_step:
            return
        saving = _saving(trainer)
        path = _shown(saving.best_model_path) if saving and saving.best_model_path else None
        start = self._start(trainer) if self.name else {}
        change, last_change = (self._change(start, model, which) for which in (path, None))
        ran = f"{_count(trainer.current_epoch, 'epoch')}, {_count(trainer.global_step, 'step')}"
        lines = [f"{f'Fine-tuning of {self.name}' if self.name else 'Training'}: {ran}"]
        if change is not None:
            lines.append(f"{'weights':<17} changed by {change:.2%} (relative L2 norm)")
        monitor = saving.monitor if saving else None
        for name, score in sorted(self.best.items(), key=lambda item: item[0] != monitor):  # it comes first
            before = f"{self.before[name]:.4f} -> " if name in self.before else ""
            lines.append(f"{name:<17} {before}{score:.4f}")
        if self.held_out is not None:
            few = ", so few that small differences are chance" if self.held_out < FEW else ""
            lines.append(f"judged on         {_count(self.held_out, 'held-out input')}{few}")
        lines += self._advice(saving, change, last_change, model.measures)
        if picture := draw(trainer, saving):
            lines.append(f"learning curves   {_shown(picture)}")
        if path:
            inputs, module = command_line(INPUTS[model.task.input]), type(model).__module__
            options = command_line(imports(*[] if module.startswith("zoo.") else [module]))
            options = f" {options}" if options else ""
            lines.append(f"best checkpoint   {path}")
            lines.append(f"export it         zoo export{options} {command_line([path])} my_weights")
            lines.append(f"and predict       zoo predict{options} local-dir:my_weights {inputs}")
            if self.name and type(model).event is not ZooModule.event:
                lines.append(f"for a confidence  {calibration_of('my_weights', args)}")
                lines.append("                  (until then it is null; it takes some hundred held-out inputs)")
        print("\n" + "\n  ".join(lines))

    def _start(self, trainer: Trainer) -> dict[str, Tensor]:
        """The weights that the training started from; none if they are not there any more."""
        try:
            begun = load(self.name or "")
        except (ValueError, OSError):
            return {}
        for callback in getattr(trainer, "callbacks", []):
            if self.new_labels and isinstance(callback, FineTuning):
                callback.shrink_parts(begun)
        return _of_words(begun)

    def _change(self, start: dict[str, Tensor], model: ZooModule, path: str | None) -> float | None:
        """How far the trained weights moved in the best checkpoint, or in the model itself: relative L2 norm.

        A new last layer does not count. None without the weights that the training started from.
        """
        if not start:
            return None
        now = read_checkpoint(path)["state_dict"] if path else model.state_dict()
        new = tuple(f"{head}." for head in model.heads) if self.new_labels else ()
        trained = [name for name, p in model.named_parameters() if p.requires_grad and not name.startswith(new)]
        after = {name: now[name].cpu() for name in trained if name in now}
        return _relative_change(start, after) if start.keys() & after.keys() else None

    def _advice(
        self, saving: ModelCheckpoint | None, change: float | None, last_change: float | None, measures: Sequence[str]
    ) -> list[str]:
        """What is wrong with the fine-tuning, and what to do; nothing if all is well.

        Args:
            saving: what chose the best checkpoint.
            change: how far the best checkpoint moved from the start.
            last_change: how far the last weights did.
            measures: scores that are neither good nor bad.
        """
        longer = "train longer, or with a higher --optimizer.lr, or on more data"
        if change is not None and change < HARDLY and not self._scores_moved():
            said = "The weights hardly changed, so the model answers as before"
            if saving is None or last_change is None or last_change < HARDLY:
                return [f"{said}: {longer}."]
            judged = "" if self.held_out is None else f" on {_count(self.held_out, 'held-out input')}"
            return [
                f"{said}. Training went on to {last_change:.2%}, but {saving.monitor}{judged} found nothing better: "
                "give more data for validation, or judge last.ckpt yourself."
            ]
        if not self.before or saving is None:
            return []
        if not _is_better(saving, self.best, self.before):
            if self._diverged():
                lower = "The loss rose far above that of the start: try a lower --optimizer.lr."
                return [f"{saving.monitor} did not improve. {lower}"]
            if self.new_labels:
                return [f"{saving.monitor} did not improve: the new last layer has learnt nothing yet; {longer}."]
            return [
                f"{saving.monitor} did not improve: the weights as they were score at least as well on the validation "
                f"data. Keep {self.name}, or {longer}."
            ]
        lines = []
        if worse := self._worse(measures):
            lines.append(
                f"Got worse: {', '.join(worse)}. Look at the learning curves; try a lower --optimizer.lr, more data, "
                "or another weight."
            )
        elif self._only_the_loss_moved(saving, measures):
            lines.append(
                f"Only {saving.monitor} improved, and no answer on the validation data. With few texts the score says "
                f"little; {longer}, or start from another weight."
            )
        if self.most_frequent == 100:
            lines.append("All held-out texts have one label, so val/accuracy says little: give others as --data.val.")
        elif self._is_at_chance():
            lines.append(
                f"val/accuracy is not clearly above {self.most_frequent:.2f}, that of always answering the most "
                "frequent label: try a lower --optimizer.lr, more data, or another weight."
            )
        return lines

    def _scores_moved(self) -> bool:
        """Whether a score other than the loss is now more than 1 % of it higher or lower."""
        names = self.best.keys() & self.before.keys() - {LOSS}
        return any(abs(self.best[name] - self.before[name]) > 0.01 * abs(self.before[name]) for name in names)

    def _worse(self, measures: Sequence[str]) -> list[str]:
        """The scores that are worse after than before, as printed."""
        found = []
        for name in self.best.keys() & self.before.keys():
            rose = self.best[name] - self.before[name]
            if name.removeprefix("val/") not in measures and (rose if _should_fall(name) else -rose) > 5e-5:
                found.append(name)
        return sorted(found)

    def _diverged(self) -> bool:
        """Whether the best validation loss is no number, or more than half above that before."""
        before, best = (scores.get(LOSS, math.nan) for scores in (self.before, self.best))
        return LOSS in self.best and not best <= 1.5 * before and not math.isnan(before)

    def _is_at_chance(self) -> bool:
        """Whether the best accuracy is within two standard errors of that of always giving the same answer."""
        accuracy = self.best.get("val/accuracy")
        if accuracy is None or self.most_frequent is None or not self.held_out:
            return False
        error = math.sqrt(self.most_frequent * (100 - self.most_frequent) / self.held_out)
        return accuracy <= self.most_frequent + 2 * error and accuracy < 100

    def _only_the_loss_moved(self, saving: ModelCheckpoint, measures: Sequence[str]) -> bool:
        """Whether the monitored loss fell and no other score changed."""
        both = {name for name in self.best.keys() & self.before.keys() if name.removeprefix("val/") not in measures}
        others = [name for name in both if not _should_fall(name)]  # the higher, the better
        watches_loss = (saving.monitor or "").endswith("loss")
        return watches_loss and bool(others) and all(self.best[name] <= self.before[name] for name in others)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _scores(trainer: Trainer) -> dict[str, float]:
    return {name: value.item() for name, value in trainer.callback_metrics.items() if name.startswith("val/")}


def _saving(trainer: Trainer) -> ModelCheckpoint | None:
    """What saves the best checkpoint by a score of the validation."""
    found = (saving for saving in trainer.checkpoint_callbacks if isinstance(saving, ModelCheckpoint))
    return next((saving for saving in found if (saving.monitor or "").startswith("val/")), None)


def _should_fall(score: str) -> bool:
    """Whether a lower score, such as "val/loss", is better: losses, perplexities and squared errors."""
    return score.endswith(("loss", "mse")) or "perplexity" in score


def _is_better(saving: ModelCheckpoint, scores: dict[str, float], others: dict[str, float]) -> bool:
    monitor, tie = saving.monitor or "", getattr(saving, "tie", None)
    if monitor not in scores or monitor not in others:
        return False
    if math.isnan(others[monitor]):
        return not math.isnan(scores[monitor])
    if scores[monitor] == others[monitor] and tie in scores and tie in others:
        return scores[tie] < others[tie]
    return scores[monitor] > others[monitor] if saving.mode == "max" else scores[monitor] < others[monitor]


def _shown(path: str | os.PathLike) -> str:
    """A path as it is printed: relative where that is possible."""
    try:
        return os.path.relpath(path)
    except ValueError:  # on another drive of Windows
        return os.fspath(path)


def _of_words(model: ZooModule) -> dict[str, Tensor]:
    """The parameters of a model, without rows that no word has yet: new words begin in these with other values."""
    words = {
        model.config[f"{side}vocab_size"]: len(tokenizer)
        for side in ("", "src_", "tgt_")
        if (tokenizer := getattr(model, f"{side}tokenizer", None)) is not None
    }
    found = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return {name: rows[: words.get(len(rows))] if rows.dim() else rows for name, rows in found.items()}


def _relative_change(before: dict[str, Tensor], after: dict[str, Tensor]) -> float:
    """The norm of the change relative to that before, over the rows that both have."""
    change, size = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for name in before.keys() & after.keys():
        old, new = before[name].double(), after[name].double()
        if old.dim() and old.shape[1:] == new.shape[1:]:
            rows = min(len(old), len(new))
            change += (new[:rows] - old[:rows]).square().sum()
            size += old[:rows].square().sum()
    return (change / size).sqrt().item() if size else 0.0
