"""What Lightning says for its own sake, which `zoo fit`, `validate` and `test` leave out. Everything else stays."""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

LOGGER = "lightning.pytorch.utilities.rank_zero"
SAID = re.compile(  # not the user's concern, or said by us
    "💡 Tip: |GPU available: |TPU available: |HPU available: |LOCAL_RANK: |"
    "Restoring states from the checkpoint path|You are using a CUDA device .* Tensor Cores"
)
WARNINGS = (
    r"It is recommended to use `self\.log\(.*, sync_dist=True\)`",  # scores are of all processes already
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning 2.6 with torch 2.13
    r"The '\w+' does not have many workers",  # batches are read from arrays; a worker saves nothing
    r"The number of training batches .* is smaller than the logging interval",  # training/logs.py has a row anyway
    r"Be aware that when using `ckpt_path`, callbacks used to create the checkpoint need to be provided",
    r"You're using the WeightAveraging callback, but loading a checkpoint outside the 'fit' stage",  # averaged already
    r"torch\.distributed\.nn\.functional\.\w+ is deprecated",  # with torch 2.14, in a checkpoint of several processes
    r"RNN module weights are not part of single contiguous chunk",  # of cuDNN, which copies them
    r'\.fit\(ckpt_path="last"\) is set, but there is no last checkpoint available',  # lightning_cli.py says it
    r"Checkpoint directory .* exists and is not empty",  # it is resumed, or the training ends with a message
)


@contextmanager
def quiet() -> Iterator[None]:
    """Context: without the tips, the notices and the warnings above, in this process."""
    logger = logging.getLogger(LOGGER)
    logger.addFilter(_is_worth_saying)
    try:
        with warnings.catch_warnings():
            for message in WARNINGS:
                warnings.filterwarnings("ignore", message)
            yield
    finally:
        logger.removeFilter(_is_worth_saying)


def _is_worth_saying(record: logging.LogRecord) -> bool:
    return not SAID.match(record.getMessage())
