"""`--trainer.strategy fsdp`: each process keeps a part of the weights, gradients and optimiser states."""

import importlib.util
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

STEPS = ("training_step", "validation_step", "test_step")


def strategy(name: Any) -> Any:
    """What the trainer gets for a `--trainer.strategy`: the one below for "fsdp", else the same.

    Raises:
        ValueError: it is DeepSpeed, which is not installed.
    """
    if name == "fsdp":
        return FullyShardedStrategy()
    if str(name).startswith("deepspeed") and importlib.util.find_spec("deepspeed") is None:
        raise ValueError(
            f"trainer.strategy {name} needs a GPU and the package deepspeed; install with: pip install deepspeed, or "
            "take fsdp, which needs neither"
        )
    return name


class FullyShardedStrategy(ModelParallelStrategy):
    """Lightning's `ModelParallelStrategy` with torch's `fully_shard` over all processes, on GPUs or CPUs.

    A step gathers all weights when it begins. Checkpoints are whole files as in every other training, so one with
    another strategy or number of processes can resume them, and `zoo export` reads them.

    Lightning's own "fsdp" is torch's older form of it, needs GPUs and cannot limit the norm of the gradient, as the
    recipes do.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False, **options)

    def setup_environment(self) -> None:
        """Makes all processes one group of data-parallel ones."""
        self._data_parallel_size = self.num_processes * self.num_nodes
        super().setup_environment()

    def setup(self, trainer: Trainer) -> None:
        """Shards the model, whose sizes the data has set by now, and builds the optimiser of the shards.

        Raises:
            ValueError: a callback averages the weights, which it would take from one process.
        """
        averaging = [callback for callback in _callbacks(trainer) if isinstance(callback, WeightAveraging)]
        if averaging:
            raise ValueError(
                f"trainer.strategy fsdp cannot be combined with {type(averaging[0]).__name__}; leave it out of the "
                "recipe's callbacks, or use trainer.strategy ddp"
            )
        model, accelerator = self.model, self.accelerator
        if model is None or accelerator is None:
            raise ValueError("the strategy needs a trainer; give it as Trainer(strategy=...)")
        accelerator.setup(trainer)
        cls = type(model)
        fully_shard(model, mesh=self.device_mesh["data_parallel"])
        type(model).__module__, type(model).__qualname__ = cls.__module__, cls.__qualname__  # checkpoints name it
        for name in STEPS:
            register_fsdp_forward_method(model, name)
        self.model_to_device()
        self.barrier()
        if trainer.state.fn == TrainerFn.FITTING:
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()


def _callbacks(trainer: Trainer) -> list[Any]:
    return trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]  # Lightning does not declare it
