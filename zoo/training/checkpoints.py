"""Training checkpoints: read only from local files, verified before use, and written atomically."""

import errno
import inspect
import io
import logging
import math
import os
import re
import reprlib
import stat
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from zoo.bundles.files import MisfitError
from zoo.bundles.skeleton import check_types, skeleton
from zoo.registry import model_class
from zoo.tasks.base import ZooModule
from zoo.training.monitored import check_known
from zoo.utils.atomic import write_bytes
from zoo.utils.modules import OF_A_MODULE
from zoo.utils.shell import command_line

NAN_CHECK = 50  # steps between two checks of the weights

log = logging.getLogger(__name__)


class NotWrittenError(ValueError):
    """A checkpoint could not be written; the message names an intact one."""


def is_fast_dev_run(trainer: Trainer) -> bool:
    """Whether a run is a trial of a few steps that leaves nothing behind."""
    return bool(trainer.fast_dev_run)  # pyright: ignore[reportAttributeAccessIssue]  # Lightning does not declare it


# ---- reading ----


def read_checkpoint(path: str | Path, resume: bool = False) -> dict[str, Any]:
    """Reads a checkpoint of `zoo fit` onto the CPU. No code in it is ever run.

    Args:
        path: a local file.
        resume: require the training state, not only a model.

    Raises:
        ValueError: it is a URL, not a file, or damaged; the message names an intact checkpoint in the same folder, if
            any.
        OSError: it cannot be read.
    """
    path = local_file(path)
    data = path.read_bytes()
    if not _is_whole(data):
        raise ValueError(f"{path} is not a checkpoint, or is damaged{_another(path)}")
    try:
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # of many classes, including torch's error for untrusted objects
        raise ValueError(f"{path} is not a checkpoint of `zoo fit`, or is damaged{_another(path)}") from error
    if wrong := _what_is_wrong(found, resume):
        raise ValueError(f"{path} is not a checkpoint of `zoo fit`: {wrong}{_another(path)}")
    return found


def model_of(path: str | Path) -> ZooModule:
    """The model of a checkpoint of `zoo fit`, on the CPU, in eval mode.

    Raises:
        ValueError: not such a checkpoint, or its weights do not match its own description of the model.
    """
    found = read_checkpoint(path)
    arguments = dict(found["hyper_parameters"])
    try:
        cls = model_class(arguments.pop("_class_path"))
    except MisfitError as error:
        raise ValueError(f"{path}: {error}") from error
    try:
        if unknown := arguments.keys() - inspect.signature(cls).parameters.keys():
            raise ValueError(f"{cls.__name__} has no argument {reprlib.repr(min(map(str, unknown)))}")
        check_types(cls, arguments)
        shapes = {name: tensor.shape for name, tensor in skeleton(cls, arguments).state_dict().items()}
        tensors = {name: tensor.shape for name, tensor in found["state_dict"].items()}
        if differ := [name for name in {**shapes, **tensors} if shapes.get(name) != tensors.get(name)]:
            raise ValueError(f"its weights do not match {cls.__name__}: {differ[0]} differs")
        model = cls(**arguments)
        model.restore_assets(found)
        model.load_state_dict(found["state_dict"])
    except Exception as error:  # crafted assets raise nearly anything
        if str(error).endswith(OF_A_MODULE):
            raise ValueError(f"{path}: {error}") from error
        raise ValueError(f"{path} is not a checkpoint of `zoo fit`: {' '.join(str(error).split())[:300]}") from error
    return model.eval()


def local_file(path: str | Path) -> Path:
    """The path of a checkpoint.

    Raises:
        ValueError: it is a URL, or not a file. FileNotFoundError: it does not exist.
    """
    if re.search(r"^[A-Za-z][\w+.-]*::|://", str(path)):
        raise ValueError(
            f"{path}: checkpoints are read from local files only; download it, if you trust it, and give the path"
        )
    path = Path(path)
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is not a file; give the path of a checkpoint, e.g. runs/NAME/checkpoints/last.ckpt")
    return path


def _is_whole(data: bytes) -> bool:
    """Whether every part of the archive has the checksum stored with it."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            stored = all(part.compress_type == zipfile.ZIP_STORED for part in archive.infolist())
            return stored and archive.testzip() is None
    except Exception:  # a damaged archive may raise almost any exception
        return False


def _another(path: Path) -> str:
    """The end of a message: the newest intact checkpoint in the same folder, if any."""
    others = [other for other in path.parent.glob("*.ckpt") if other.is_file() and other.name != path.name]
    for other in sorted(others, key=lambda other: other.stat().st_mtime, reverse=True):
        if _is_whole(other.read_bytes()):
            return f"; {other} is intact: give {command_line(['--ckpt_path', str(other)])}"
    return ""


def _what_is_wrong(found: Any, resume: bool) -> str | None:
    fields = {"state_dict": dict, "hyper_parameters": dict, "zoo_assets": dict}
    if resume:
        fields |= {"loops": dict, "callbacks": dict, "optimizer_states": list, "lr_schedulers": list}
    if not isinstance(found, dict):
        return "it is not a dictionary"
    for name, kind in fields.items():
        if not isinstance(found.get(name), kind):
            return f"it has no {name}" if name not in found else f"its {name} has a wrong type"
    for name in ("zoo_random", "averaging_state", "current_model_state"):  # optional
        if not (
            isinstance(part := found.get(name, {}), dict) and all(isinstance(value, Tensor) for value in part.values())
        ):
            return f"its {name} has a wrong type"
    if resume and not (found["loops"] and found["optimizer_states"]):
        return "it holds a model, but no training state"
    if resume and not _names_classes(found.get("zoo_training", {})):
        return "its zoo_training has a wrong type"
    if not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in found["state_dict"].items()):
        return "its state_dict holds values that are not tensors"
    if not isinstance(found["hyper_parameters"].get("_class_path"), str):
        return "it does not name a model class"
    if not all(isinstance(text, str) for item in found["zoo_assets"].items() for text in item):
        return "its zoo_assets hold values that are not texts"
    return None


def _names_classes(settings: Any) -> bool:
    """Whether settings of a training name class and arguments of its optimiser and of its model, or none."""
    if not isinstance(settings, dict):
        return False
    parts = [settings[name] for name in ("optimizer", "lr_scheduler", "model") if name in settings]
    return all(
        isinstance(part, dict)
        and isinstance(part.get("class_path"), str)
        and isinstance(part.get("init_args") or {}, dict)
        for part in parts
    )


# ---- writing ----


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint atomically: next to its target, flushed to disk, then renamed; reads by `read_checkpoint`.

    Lightning's own writer moves the file from the system's temporary folder. On another file system that copies, and
    may leave half a checkpoint.

    Attributes:
        restoring: path of the checkpoint that is being restored.
    """

    restoring: str | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Saves `checkpoint`; after a crash at any moment, `path` is either the old or the new file.

        Raises:
            NotWrittenError: the disk is full, or the folder cannot be written to.
        """
        if "://" in str(path):
            return super().save_checkpoint(checkpoint, path, storage_options)
        path, data = Path(path), io.BytesIO()
        torch.save(checkpoint, data)
        try:
            with data.getbuffer() as content:  # released here: Python 3.12.1 crashes if an exception keeps it
                write_bytes(path, content)
        except OSError as error:
            earlier = f"; the earlier {path} is intact" if path.is_file() else _another(path)
            raise NotWrittenError(f"{path} could not be written ({error.strerror or error}){earlier}") from error

    def load_checkpoint(self, path: str | Path, *args: Any, **options: Any) -> dict[str, Any]:
        """Reads and verifies a checkpoint, whatever the options are."""
        checkpoint = read_checkpoint(path)
        self.restoring = str(path)
        return checkpoint


def is_full(error: BaseException | None) -> bool:
    """Whether an error means that the disk or folder takes no more data."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


# ---- when ----


class ExactCheckpoints(ModelCheckpoint):
    """Saves the last state at every point from which training can be resumed exactly.

    Lightning writes last.ckpt only together with a best one, and cannot resume exactly from checkpoints taken after the
    last batch of an epoch, or before a pending validation. Such checkpoints are written here after the validation or
    the epoch has ended. last.ckpt is also written at the end of each epoch.

    A best one is written only when its own weights were just scored: Lightning would give those of any due step the
    score of an earlier validation. With `every_n_train_steps` or `train_time_interval` each validation may give one.

    Args:
        tie: a loss that decides between equal scores: the lower one is better.
        **options: those of Lightning's ModelCheckpoint.
    """

    _due = False
    _judged = -1  # step of the last validation
    _of_validation: frozenset[str] = frozenset()  # names of its scores

    def __init__(self, *, tie: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.tie = tie
        self._tie_score = math.inf

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Saves every N steps or minutes, unless a validation or the end of the epoch follows."""
        self._due |= self._is_time(trainer)
        if not self._due or trainer.is_last_batch:
            return
        loop, fetcher = trainer.fit_loop.epoch_loop, trainer.fit_loop._data_fetcher
        if fetcher is None or not loop._should_check_val_fx(fetcher):
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves after a validation within an epoch, and the best ones after any validation."""
        self._of_validation = frozenset(trainer._logger_connector.metrics["callback"])
        if trainer.state.fn != TrainerFn.FITTING or trainer.sanity_checking:
            return
        self._judged = trainer.global_step
        later = self._should_save_on_train_epoch_end(trainer) and not (self._chooses and not trainer.is_last_batch)
        by_steps = self._chooses and bool(self._every_n_train_steps or self._train_time_interval)
        if self._due or by_steps or (self._is_epoch(trainer) and not later):
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves at the end of an epoch.

        Raises:
            ValueError: the validation gives no score of the name of `monitor` or `tie`, so none would be the best.
        """
        for score in (self.monitor, self.tie):
            check_known(self, score, self._monitor_candidates(trainer))
        due = self._due or (self._is_epoch(trainer) and self._should_save_on_train_epoch_end(trainer))
        self._save(trainer, due)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Does nothing: the last epoch's end was saved, and by now averages may have replaced the weights."""

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Does nothing: in the middle of a step there is no state to resume from."""

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Records the progress in the only form that Lightning resumes exactly."""
        loops = checkpoint["loops"]["fit_loop"]
        epochs, batches = loops["epoch_progress"], loops["epoch_loop.batch_progress"]
        if epochs["current"]["processed"] < epochs["current"]["started"]:
            return  # amid an epoch
        whole = batches["is_last_batch"] or batches["current"]["ready"] >= trainer.num_training_batches
        for progress in epochs.values():
            progress["completed" if whole else "processed"] = progress["processed" if whole else "completed"]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the best scores, even if the run's folder was moved with its checkpoints."""

        def here(path: str) -> str:
            return os.path.join(str(self.dirpath), os.path.basename(path)) if path else path

        if os.path.isfile(here(state_dict["best_model_path"])):
            paths = {
                name: here(state_dict[name]) for name in ("best_model_path", "kth_best_model_path", "last_model_path")
            }
            best = {here(path): score for path, score in state_dict["best_k_models"].items()}
            state_dict = {**state_dict, **paths, "best_k_models": best, "dirpath": self.dirpath}
        self._tie_score = state_dict.get("tie_score", math.inf)  # an older checkpoint has none
        self._judged = state_dict.get("judged", -1)
        super().load_state_dict(state_dict)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends a resumed training that had already stopped early, and says so."""
        for callback in trainer.early_stopping_callbacks:
            if callback.stopped_epoch or callback.wait_count >= callback.patience:
                trainer.should_stop = True
                why = "reached a threshold"
                if callback.wait_count >= callback.patience:
                    why = f"had no better value {callback.wait_count} times"
                rank_zero_info(
                    f"this training had stopped early, as {callback.monitor} {why}: nothing is left to do; to train "
                    "longer, begin a new one with other settings of EarlyStopping"
                )

    def check_monitor_top_k(self, trainer: Trainer, current: Tensor | None = None) -> bool:
        """Whether a score is among the best; NaN never is."""
        if current is not None and current.isnan():
            log.warning("%s is NaN: such a model is never saved as the best", self.monitor)
            return False
        best = self.best_model_score
        loss = trainer.callback_metrics.get(self.tie or "", torch.tensor(math.inf)).item()
        better = super().check_monitor_top_k(trainer, current)
        if current is not None and best is not None and bool(current == best.to(current.device)):
            better = better or loss < self._tie_score
        if better:
            self._tie_score = loss
        return better

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "tie_score": self._tie_score, "judged": self._judged}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Counts from the resumed step."""
        super().on_train_start(trainer, pl_module)
        self._last_global_step_saved = trainer.global_step

    def _is_time(self, trainer: Trainer) -> bool:
        if trainer.global_step == self._last_global_step_saved or trainer.fit_loop._should_accumulate():
            return False
        if self._every_n_train_steps:
            return trainer.global_step % self._every_n_train_steps == 0
        if self._train_time_interval is None or self._last_time_checked is None:
            return False
        now = time.monotonic()
        passed = trainer.strategy.broadcast(now - self._last_time_checked >= self._train_time_interval.total_seconds())
        if passed:
            self._last_time_checked = now
        return passed

    @property
    def _chooses(self) -> bool:
        """Whether a score of the validation decides which ones are kept."""
        return self.monitor in self._of_validation and self.save_top_k != -1

    def _is_epoch(self, trainer: Trainer) -> bool:
        return bool(self._every_n_epochs) and (trainer.current_epoch + 1) % self._every_n_epochs == 0

    def _save(self, trainer: Trainer, due: bool = True) -> None:
        """Writes the best ones if they are due, and the last one unless gradients of an unfinished step lack there."""
        if is_fast_dev_run(trainer) or trainer.global_step == 0:
            return
        self._due = False
        scores = self._monitor_candidates(trainer)
        of_now = not self._chooses or self._judged == trainer.global_step
        if due and of_now and (self.monitor is None or self.monitor in scores):
            self._save_topk_checkpoint(trainer, scores)
        if not trainer.fit_loop._should_accumulate():
            self._save_last_checkpoint(trainer, scores)


class StopAtNaN(Callback):
    """Stops a training whose weights are NaN or infinite, before such a checkpoint is written."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_last_batch or trainer.global_step % NAN_CHECK == 0:
            self._check(trainer, pl_module.parameters())

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        for name in ("state_dict", "current_model_state"):  # of an average also the weights that are trained
            if weights := checkpoint.get(name):  # of sharded weights only the first process has them
                self._check(trainer, weights.values())

    def _check(self, trainer: Trainer, tensors: Iterable[Tensor]) -> None:
        weights = [tensor.detach() for tensor in tensors if tensor.is_floating_point()]
        norms = torch._foreach_norm(weights)  # pyright: ignore[reportPrivateImportUsage]  # it has no public name
        if not torch.stack([norm.float() for norm in norms]).isfinite().all():
            raise ValueError(
                f"the weights are NaN or infinite after {trainer.global_step:,} steps; lower --optimizer.lr, "
                "or set "
                "--trainer.gradient_clip_val 1.0; earlier checkpoints are unchanged"
            )
