"""A training in processes that Lightning forks, as in a notebook with several devices (`strategy="ddp_notebook"`).

The processes train copies of the model, and Lightning brings the weights back to the model of the notebook. Labels,
vocabulary and the sizes that follow, which the data module gave to the copies, travel with them here: else the new
weights would answer with the old labels.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from zoo.tasks.base import ZooModule

KEY = "zoo_handed_over"  # beside the names of the weights


def is_forked(trainer: "Trainer") -> bool:
    """Whether the processes of a training are copies of the one that started it."""
    from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher  # late: Lightning takes seconds

    return isinstance(trainer.strategy.launcher, _MultiProcessingLauncher)


def add_assets(model: "ZooModule", state_dict: dict[str, Any], prefix: str, metadata: dict[str, Any]) -> None:
    """Hook of `state_dict`: adds what `ZooModule.restore_assets` takes."""
    state_dict[KEY] = {model.CHECKPOINT_HYPER_PARAMS_KEY: dict(model.config), "zoo_assets": model.assets()}


def take_assets(model: "ZooModule", state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    """The weights alone; gives the model what `add_assets` added to them."""
    if not (isinstance(state_dict, Mapping) and KEY in state_dict):  # torch says what is wrong
        return state_dict
    model.restore_assets(state_dict[KEY])
    return {name: value for name, value in state_dict.items() if name != KEY}
