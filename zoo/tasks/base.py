"""ZooModule, the base class of every model: a LightningModule that saves and loads itself as a folder.

zoo/bundles/files.py describes what a folder of weights (a "bundle") holds. The `__init__` signature of a model is its
configuration: its arguments, including defaults, are recorded in `self.config`, written by `save_pretrained` and passed
back by `from_pretrained`. Loading is strict.
"""

import inspect
import logging
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from typing_extensions import Self

from zoo.bundles.files import CONFIG, GOLDEN, WEIGHTS, Bundle, MisfitError, config_text, file_hashes, replaceable
from zoo.bundles.publish import Published, push
from zoo.bundles.skeleton import (
    at_fault,
    build,
    check_loadable,
    check_types,
    fill,
    materialize,
    most_bytes,
    shape_mismatches,
    skeleton,
)
from zoo.bundles.tensors import differs_in_8_bits, in_8_bits, parse
from zoo.tasks.checks import (
    check_arguments,
    check_choices,
    check_methods,
    check_sizes,
    naming_overrides,
    warn_of_hooks,
    warn_of_unused_forward,
)
from zoo.tasks.evaluation import is_watched, usual_defaults, without_dropout
from zoo.tasks.forked import add_assets, is_forked, take_assets
from zoo.tasks.foundation import Foundation
from zoo.tasks.measured import Measured, constant
from zoo.tasks.optimizer import AdamW, WarmupCosine, parameter_groups
from zoo.tasks.own import own_modules
from zoo.tasks.precision import PRECISIONS, check_training, in_precision
from zoo.tasks.predicting import Predicting
from zoo.utils.atomic import new_folder, target_folder
from zoo.utils.modules import path_of
from zoo.verbs.base import wrong_verb
from zoo.verbs.confidence import CALIBRATION, Calibration

if TYPE_CHECKING:
    from lightning.pytorch.utilities.types import OptimizerLRScheduler

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)
Z = TypeVar("Z", bound="ZooModule")
log = logging.getLogger(__name__)
FITTING = 1.5  # factor up to which the steps of a schedule may differ from those of the training


class ZooModule(Predicting, Foundation, Measured):
    """Base class of every model: a LightningModule, except in the process of `zoo predict` (zoo/tasks/foundation.py).

    Tensors created in `__init__` must become parameters or buffers: a pretrained model is first built without memory
    (zoo/bundles/skeleton.py).

    A subclass of a model takes the arguments of its base class, too: methods read them from `config`.

    Class attributes:
        task: Name, method, input and result of its task (zoo/verbs/task.py); set by the base class of each task.
        heads: Submodules that `from_pretrained(..., overrides=...)` may re-initialise, e.g. `("classifier",)`.
        may_be_zero: Sizes among the `__init__` arguments for which 0 means that the part does not exist.
        required: `__init__` arguments that every model of the task takes; set by the base class of each task.
        methods: Methods that a base class leaves to each model; only in the class that does.
        measures: Scores that are neither good nor bad, such as how far the attention looks.
        tiny: The smallest sensible `__init__` arguments; used by the common tests.
    """

    heads: ClassVar[tuple[str, ...]] = ()
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    required: ClassVar[tuple[str, ...]] = ()
    methods: ClassVar[tuple[str, ...]] = ()
    measures: ClassVar[tuple[str, ...]] = ()
    tiny: ClassVar[dict[str, Any]] = {}
    optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer] = AdamW  # of parameter groups
    lr_scheduler: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler] = WarmupCosine
    learning_rates: Mapping[str, float] = {}  # parts with their own peak learning rate
    training_settings: Mapping[str, Any] = {}  # optimizer and lr_scheduler as in the recipe, for checkpoints
    _precision: str = PRECISIONS[0]
    _items: int = 0  # counted by normalize_gradient since the last optimiser step
    _random: dict[str, Tensor] | None = None  # generator states to resume with

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        warn_of_unused_forward(cls)
        warn_of_hooks(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Recorded here and not in __init__, so that no model has to call anything. Lightning's `hparams` will not do:
        # under LightningCLI they hold what the recipe says, e.g. the arguments of `zoo.load`.
        self = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind_partial(self, *args, **kwargs)
        bound.apply_defaults()
        self.__dict__["config"] = dict(list(bound.arguments.items())[1:])
        check_methods(cls)
        check_arguments(cls, bound.signature, cls.required)
        check_choices(cls, self.config)
        check_sizes(self.config, cls.may_be_zero)
        return self

    if not TYPE_CHECKING:  # what attributes there are is nn.Module's to declare

        def __getattr__(self, name: str) -> Any:
            if name not in self.__dict__.get("_modules", ()) and (error := wrong_verb(type(self), name)):
                raise error
            return super().__getattr__(name)

    def zeros(self, shape: tuple[int, ...]) -> Tensor:
        """Zeros in the precision of the weights, on the CPU."""
        return torch.zeros(shape, dtype=next(self.parameters()).dtype)

    def check_ready(self, *parts: Any) -> None:
        """Raises ValueError unless the model can read raw input.

        It can if `parts`, such as the tokenizer, are there, and the weights are all float32, or all float64.
        """
        super().check_ready(*parts)
        dtypes = {weight.dtype for weight in self.parameters()}
        if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
            found = " and ".join(sorted(map(str, dtypes)))
            raise ValueError(
                f"the weights must be float32 or float64; got {found}: call float(), and for speed use torch.autocast"
            )
        if self.device.type == "meta":
            raise ValueError(
                "the weights are on the device meta, where they have no values; load them, e.g. by zoo.load"
            )

    # ---- what a model fills in ----------------------------------------------------------------------------------

    def example_batch(self, batch_size: int) -> Any:
        """A batch of random valid data, as `training_step` takes it; used by the common tests."""
        raise NotImplementedError(f"{type(self).__name__} has no example_batch")

    def golden(self) -> dict[str, Tensor]:
        """A fixed input and the output of these weights for it; written once by `zoo export`, compared by a test."""
        return {}

    def own_modules(self) -> list[str]:
        """Names of the user's modules that must be imported before this model is loaded."""
        return own_modules(self)

    def event(self) -> str:
        """What the confidence is the probability of, as part of a sentence.

        Raises:
            ValueError: the answers of this task are neither right nor wrong.
        """
        raise ValueError(f"models for {self.task.name} have no confidence: their outputs are neither right nor wrong")

    def adapt(self, data: Any, stage: str) -> None:
        """Takes vocabularies and labels from a data module.

        The data module calls this at the end of its `setup`, before any callback copies the model.
        """

    def check_extras(self, stage: str, validates: bool, data: Any) -> None:
        """Raises ValueError if an extra that the run's scores need is missing; `zoo fit` asks before it reads any data.

        Args:
            stage: "fit", "validate" or "test".
            validates: whether there is a validation.
            data: the data module of the run, which says how its answers are scored.
        """

    # ---- training -----------------------------------------------------------------------------------------------

    @property
    def data_module(self) -> Any:
        """The data module of the run.

        Raises:
            ValueError: the trainer was given none.
        """
        data = self.trainer.datamodule  # pyright: ignore[reportAttributeAccessIssue]  # Lightning does not declare it
        if data is None:
            raise ValueError("this run needs a data module of zoo.data; give the trainer datamodule=..., not loaders")
        return data

    def of_all_processes(self, x: Tensor) -> Tensor:
        """The tensors of all processes, (processes, ...); the tensor itself if there is only this one."""
        return cast(Tensor, self.all_gather(x))  # declared for collections too

    def on_validation_start(self) -> None:
        """Raises ValueError if the trainer was given several validation sets: which of them should decide?"""
        loaders = self.trainer.val_dataloaders
        if not type(self).validation_step.__module__.startswith("zoo."):  # of a user, who may score them apart
            return
        if isinstance(loaders, (list, tuple, dict)) and len(loaders) > 1:
            raise ValueError(
                f"validation takes one set, whose scores decide; got {len(loaders)}: give the others to trainer.test"
            )

    def setup(self, stage: str) -> None:
        """Turns dropout on for training: pretrained models come in eval mode, and Lightning would keep it.

        In a model in training mode the parts that somebody put in eval mode, such as a teacher, stay so.
        """
        if stage == "fit":
            if not self.training:
                self.train()
            self.calibration = self.explains = None
            self._items = 0  # of a training that was interrupted between two steps
            self._random = None  # from a checkpoint loaded for another purpose; the one to resume from comes later

    def on_fit_start(self) -> None:
        """Raises ValueError if the weights themselves are in half precision."""
        check_training(self.trainer.precision)

    def configure_optimizers(self) -> "OptimizerLRScheduler":
        """The optimizer and schedule of the recipe (`optimizer`, `lr_scheduler`).

        In Python they are attributes, e.g. `model.optimizer = partial(AdamW, lr=5e-4)`. The schedule counts optimiser
        steps.

        Raises:
            ValueError: `learning_rates` names a part that has no parameters.
        """
        optimizer = self._callable("optimizer")(parameter_groups(self, self.learning_rates))
        schedule = self._callable("lr_scheduler")(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _callable(self, name: str) -> Callable[..., Any]:
        """An attribute to call with its argument alone, also if it is a function of one argument in a class."""
        found = vars(self).get(name) or inspect.getattr_static(type(self), name)
        plain = inspect.isfunction(found) and len(inspect.signature(found).parameters) == 1
        return found if plain else getattr(self, name)

    def on_train_start(self) -> None:
        """Warns of a schedule for another number of steps, as that of a recipe on other data."""
        schedule = self.lr_schedulers()
        wanted = getattr(schedule, "total_steps", None)
        if wanted is None or self.trainer.max_steps != -1 or not self.trainer.is_global_zero:
            return
        steps = self.trainer.estimated_stepping_batches
        if math.isfinite(steps) and max(steps / wanted, wanted / steps) > FITTING:
            options = getattr(schedule, "options_for", "--lr_scheduler.total_steps {}".format)  # that of others
            advice = f"give {options(int(steps))}, or total_steps null for a constant rate"
            if self.trainer.ckpt_path:  # it keeps its schedule
                advice = "a resumed training keeps its schedule, and stays at its last rate; for another one begin anew"
            log.warning(f"the learning rate falls over {wanted:,} steps, but this training has {steps:,}: {advice}")

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Restores the random state (of dropout) here, after all other draws since the checkpoint was read."""
        if self._random is not None:
            for device, states in self._random.items():
                if len(states) == self.trainer.world_size:  # else an exact resume is impossible
                    state = states[self.global_rank].cpu().clone()  # set_rng_state ignores the offset of a view
                    _generator(device).set_rng_state(state)
            self._random = None

    def normalize_gradient(self, loss: Tensor, count: int) -> Tensor:
        """Counts the items of a batch, so that the gradient of an optimiser step becomes the mean over all its items.

        Items are tokens or sentences. A mean per batch would give more weight to the items of a small batch. So the
        loss stays a sum here, and `optimizer_step` divides the gradient by the number of items in all accumulated
        batches of all processes.

        Args:
            loss: Sum over the items of this batch.
            count: Number of items.

        Returns:
            What `training_step` returns. The mean over the batch if a model optimises manually
            (`automatic_optimization = False`).
        """
        if not self.automatic_optimization:
            return loss / max(count, 1)
        self._items += count
        return loss * self.trainer.accumulate_grad_batches  # the trainer divides by this

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Any,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """Gives the gradient its scale before clipping and before any `on_before_optimizer_step` reads it.

        `on_after_backward`, which comes for each batch, still sees the sum.
        """

        def closure() -> Any:
            loss = optimizer_closure() if optimizer_closure is not None else None
            self._divide_gradient()
            return loss

        super().optimizer_step(epoch, batch_idx, optimizer, closure)

    def _divide_gradient(self) -> None:
        """Divides the gradient by the items counted since the last step."""
        # 0 in a process whose batches have no label; float32 whatever the precision of the training
        counted = torch.tensor(float(self._items), dtype=torch.float32, device=self.device)
        items = cast(Tensor, self.trainer.strategy.reduce(counted, reduce_op="sum")).item()
        self._items = 0
        if not items:
            return
        scale = self.trainer.world_size / items  # processes average their gradients
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, scale)  # pyright: ignore[reportPrivateImportUsage]  # it has no public name

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Stores class, configuration, assets and the random state in a training checkpoint."""
        checkpoint[self.CHECKPOINT_HYPER_PARAMS_KEY] = {"_class_path": path_of(type(self)), **self.config}
        checkpoint["zoo_assets"] = self.assets()
        checkpoint["zoo_training"] = self.training_settings
        checkpoint["zoo_random"] = {}  # device -> (processes, bytes)
        for device in dict.fromkeys(["cpu", self.device.type]):  # in the same order in every process
            states = self.of_all_processes(_generator(device).get_rng_state().to(self.device))
            checkpoint["zoo_random"][device] = states.view(self.trainer.world_size, -1).cpu()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores the assets before the weights are loaded, and records the random state."""
        self.restore_assets(checkpoint)
        self._random = checkpoint.get("zoo_random")

    def restore_assets(self, checkpoint: Mapping[str, Any]) -> None:
        """Takes back what a checkpoint holds beside the weights: vocabulary, labels, and the sizes that follow."""
        self.make_room(checkpoint.get(self.CHECKPOINT_HYPER_PARAMS_KEY, {}))
        self.load_assets(checkpoint.get("zoo_assets", {}))

    def make_room(self, config: Mapping[str, Any]) -> None:
        """Changes the sizes of this model to those of `config`: fine-tuning may have added words or replaced labels."""

    def teardown(self, stage: str) -> None:
        """Lets the weights of a training in forked processes carry the assets along; see zoo/tasks/forked.py."""
        if stage == "fit" and is_forked(self.trainer):
            self.register_state_dict_post_hook(add_assets)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **options: Any) -> Any:
        """As in torch; weights from a forked process bring their assets and sizes."""
        return super().load_state_dict(take_assets(self, state_dict), *args, **options)

    # ---- bundles ------------------------------------------------------------------------------------------------

    def save_pretrained(
        self, folder: str | os.PathLike, half: bool = False, golden: bool = False, int8: bool = False
    ) -> Path:
        """Writes the model as a folder. If the call is interrupted, either the old or the new folder is there.

        A killed process may leave a hidden folder next to it, which nothing reads.

        Args:
            folder: Target. May exist if it is empty or holds an earlier bundle, whose files are then replaced; its
                README.md and pictures stay. A link is followed.
            half: Store floating-point tensors as fp16. They load back as fp32.
            golden: Add golden.safetensors: the model's output with the stored weights.
            int8: Store weights in 8 bits with a scale for each row, and vectors as fp16: half the size of `half`. They
                load back as fp32, rounded by at most 0.4 % of the largest of their row, and without the calibration of
                those that were not rounded.

        Returns:
            The folder.

        Raises:
            ValueError: `folder` holds other files, a weight is not finite (after rounding to fp16), or the model could
                not be loaded again: an argument is nothing that config.json can hold, or its tensors are others than
                those of its class, as after `torch.compile` or pruning of a part.
        """
        folder = Path(folder).absolute()
        target_folder(folder, replaceable)
        weights = _untied(self)
        check_loadable(self, weights)
        tensors = {key: t for name, t in weights.items() for key, t in _stored(name, t, half, int8).items()}
        keeps = not (int8 and any(differs_in_8_bits(name, t.cpu()) for name, t in weights.items()))
        with new_folder(folder, replaceable) as new:
            for name, text in self.assets().items():
                (new / name).write_bytes(text.encode())
            if self.calibration is not None and keeps:
                (new / CALIBRATION).write_bytes(self.calibration.to_json().encode())
            _save(tensors, new / WEIGHTS, {"format": "pt"})
            self._write_config(new)
            if golden and (output := type(self).from_pretrained(new).golden()):
                _save(output, new / GOLDEN)
                (new / CONFIG).unlink()
                self._write_config(new)
        return folder

    def _write_config(self, folder: Path) -> None:
        (folder / CONFIG).write_bytes(config_text(path_of(type(self)), self.config, file_hashes(folder)).encode())

    @classmethod
    def from_pretrained(cls, source: str | os.PathLike | Bundle, overrides: dict[str, Any] | None = None) -> Self:
        """Loads a folder written by `save_pretrained`; the model is on the CPU, in eval mode and in single precision.

        Args:
            source: The folder, or the opened bundle.
            overrides: `__init__` arguments to change, e.g. `{"dropout": 0.3}`. A module listed in `heads` whose
                shape changes is re-initialised (a warning says which); any other difference between the file and
                the model raises.

        Raises:
            BundleError: A file is missing or damaged, the folder is of another class, or shapes do not match.
            ValueError: An override is not an argument of the model.
        """
        bundle = source if isinstance(source, Bundle) else Bundle(source)
        model = cls.without_memory(bundle, overrides)
        weights = bundle.folder / WEIGHTS
        assets = {name: bundle.text(name) for name in bundle.assets}
        changed = {name: value for name, value in (overrides or {}).items() if bundle.init_args.get(name) != value}
        with naming_overrides(cls, bundle.init_args, changed):
            stored = parse(bundle.read(WEIGHTS, most_bytes(model)), weights)
            reset = shape_mismatches(model, stored, weights, cls.heads if overrides else ())
        if reset or not materialize(model):
            model = build(cls, model.config)
        model.overridden = frozenset(changed)
        with at_fault(bundle.folder):
            text = assets.pop(CALIBRATION, None)
            calibration = None if text is None or changed else Calibration.from_json(text)
            model.load_assets(assets)
        fill(model, stored, weights, reset)
        model.calibration = calibration
        if made := [name for name in reset if getattr(model, name, None) is not None]:  # others are left out
            log.warning("%s: re-initialised %s", bundle.folder, ", ".join(made))
        return model.eval()

    @classmethod
    def without_memory(cls, bundle: Bundle, overrides: dict[str, Any] | None = None) -> Self:
        """The model that config.json describes, without memory for its tensors: what the weights must match.

        Raises:
            BundleError: The bundle is of another class, or its arguments do not match the class.
            ValueError: An override is not an argument of the model, or is invalid.
        """
        where = bundle.folder / CONFIG
        if bundle.class_path != path_of(cls):
            raise MisfitError(f"{bundle.folder} holds a {reprlib.repr(bundle.class_path)[1:-1]}, not a {path_of(cls)}")
        init_args, parameters = bundle.init_args, dict(inspect.signature(cls.__init__).parameters)
        del parameters["self"]
        for key in overrides or {}:
            if key not in parameters:
                nearest = get_close_matches(key, parameters, n=1, cutoff=0)
                raise ValueError(f"overrides: {cls.__name__} has no argument '{key}'; nearest: {', '.join(nearest)}")
        if unknown := sorted(set(init_args) - set(parameters)):
            names = ", ".join(name if name.isidentifier() else reprlib.repr(name) for name in unknown[:5])
            raise MisfitError(f"{where}: {cls.__name__} has no argument {names}")
        if missing := [n for n, p in parameters.items() if p.default is p.empty and n not in init_args]:
            raise MisfitError(f"{where}: init_args lacks {', '.join(missing)} of {cls.__name__}")
        check_types(cls, overrides or {})
        with at_fault(where):
            check_types(cls, init_args)
        with nullcontext() if overrides else at_fault(where):
            return skeleton(cls, {**init_args, **(overrides or {})})

    @property
    def precision(self) -> str:
        """In which the verbs compute: "fp32" (the default), or "bf16", faster where the processor or GPU has it.

        In bf16 the products are computed by autocast; scores change in the third digit. Where bf16 would only be
        slower, the verbs stay in fp32 and a warning says why. `zoo test` and `zoo validate` score in it too; training
        has `trainer.precision` instead.

        Raises:
            ValueError: another precision is set.
        """
        return self._precision

    @precision.setter
    def precision(self, value: str) -> None:
        if value not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {value!r}")
        self._precision = value

    @contextmanager
    def evaluating(self) -> Iterator[Self]:
        """Gives a copy of this model in eval mode that shares all tensors and attributes.

        So no mode is switched, and one thread may train or evaluate while another translates. Inside there are no
        gradients, torch's defaults for new tensors are the ones that the models assume, and products have the model's
        `precision`.

        A model in eval mode that has hooks, or is of a user's class, is given itself: its code may store things on the
        modules, or look for them. Such a model must not be switched to training mode by another thread meanwhile.

        Raises:
            ValueError: the model is in training mode, and a part's `forward` was replaced by a function of that part.
        """
        with torch.no_grad(), usual_defaults(), in_precision(self._precision, self.device.type):
            self.forget_if_changed()
            model = self if is_watched(self) else without_dropout(self)
            with constant(model):
                yield model

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = False,
        commit_message: str | None = None,
        token: str | None = None,
        card: str | None = None,
    ) -> Published:
        """Publishes the model on the Hugging Face Hub, all files in one commit.

        Args:
            repo_id: `ORG/REPO`; created if it does not exist.
            private: Create it as a private repository.
            commit_message: One line.
            token: Hub token; by default that of `hf auth login` or HF_TOKEN.
            card: Text of README.md, with YAML front matter; replaces an existing one. By default a short card is
                generated, unless a person wrote the existing one.

        Returns:
            `.commit`, its full id, and `.source`, the argument with which `zoo.load` gets exactly this model back.

        Raises:
            FetchError: The Hub cannot be reached, refuses, or changed in the meantime; then nothing was published.
        """
        return push(self, repo_id, private=private, message=commit_message, token=token, card=card)


def score_prefix(name: str) -> str:
    """Where the scores of a test set are logged: `test/`, or `test/NAME/` if the set has another name than "test"."""
    return "test/" if name == "test" else f"test/{name}/"


def _generator(device: str) -> Any:
    """The module with the default random generator of a device type."""
    return torch.random if device == "cpu" else torch.get_device_module(device)


def _save(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Writes tensors; raises OSError where safetensors gives the system's error only in its text."""
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        found = re.search(r"\(os error (\d+)\)", str(error))
        if found is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from error


def _untied(model: torch.nn.Module) -> dict[str, Tensor]:
    """The state dict with each shared tensor only once, under its first name."""
    found: dict[tuple, tuple[str, Tensor]] = {}
    for name, t in model.state_dict().items():
        found.setdefault((t.data_ptr(), t.shape, t.stride()) if t.numel() else (name,), (name, t))
    return dict(found.values())


def _stored(name: str, t: Tensor, half: bool, int8: bool) -> dict[str, Tensor]:
    """The tensors of the file for one of the model."""
    t = t.detach().cpu()
    if int8:
        tensors = in_8_bits(name, t)
    else:
        tensors = {name: t.to(torch.float16 if half and t.is_floating_point() else t.dtype).contiguous()}
    if any(part.is_floating_point() and not part.isfinite().all() for part in tensors.values()):
        rounded = " after rounding to fp16" if half or int8 else ""
        raise ValueError(f"{name} holds NaN or infinite values{rounded}; refusing to save it")
    return tensors
