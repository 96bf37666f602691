import pytest
import torch

from zoo.layers.dropout import Dropout, LockedDropout


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_share_scale_and_gradient(p):
    torch.manual_seed(0)
    x = torch.ones(300, 333, requires_grad=True)
    y = Dropout(p)(x)
    rounded = max(1, round(p * 256)) / 256
    assert (y == 0).float().mean().item() == pytest.approx(rounded, abs=4 * (rounded / x.numel()) ** 0.5)
    assert torch.unique(y[y != 0]).item() == pytest.approx(1 / (1 - rounded))
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad, y.detach())
    rows = (y == 0).float().mean(1)
    assert rows.std().item() == pytest.approx((rounded * (1 - rounded) / 333) ** 0.5, rel=0.25)  # independent


def test_seed_eval_and_odd_sizes():
    dropout, x = Dropout(0.5), torch.randn(3, 7).bfloat16()
    torch.manual_seed(1)
    first = dropout(x)
    torch.manual_seed(1)
    assert torch.equal(first, dropout(x)) and first.dtype == torch.bfloat16
    assert not torch.equal(first, dropout(x))
    assert dropout.eval()(x) is x
    assert Dropout(0.5)(torch.empty(0, 4)).shape == (0, 4)


def test_locked_dropout_has_one_mask_for_all_steps_of_a_sequence():
    torch.manual_seed(0)
    x = torch.randn(5, 40, 30)
    y = LockedDropout(0.5)(x)
    mask = y / x
    assert torch.equal(mask, mask[:1].expand_as(mask)) and mask.unique().tolist() == [0, 2]
    assert len(mask[0].unique(dim=0)) == 40 and len(mask[0].unique(dim=1).T) == 30  # of each sequence its own
    assert LockedDropout(0.5).eval()(x) is x


def test_bad_probability():
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\); got 1.0"):
        Dropout(1.0)
