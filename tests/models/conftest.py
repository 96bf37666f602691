"""What the tests of several kinds of models share."""

import pytest
import torch
from model_cases import build


@pytest.fixture
def model_and_batch(cls, options):
    """A tiny model in eval mode and a batch for it."""
    torch.manual_seed(0)
    model = build(cls, **options).eval()
    for p in model.parameters():  # large weights, so that a difference shows
        p.data.mul_(2)
    return model, model.example_batch(6)
