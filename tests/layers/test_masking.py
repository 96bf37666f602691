import pytest
import torch

from zoo.layers.masking import lengths_to_mask, masked_mean, masked_softmax, reverse_rows

pytestmark = pytest.mark.usefixtures("float64")


def test_lengths_to_mask():
    mask = lengths_to_mask(torch.tensor([2, 0, 3]), 4)
    assert mask.tolist() == [[True, True, False, False], [False] * 4, [True, True, True, False]]
    assert lengths_to_mask(torch.tensor([2, 3])).shape == (2, 3)


def test_masked_softmax_is_the_softmax_of_the_real_part():
    scores = torch.randn(3, 5) * 50
    mask = torch.tensor([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]]).bool()
    weights = masked_softmax(scores, mask)
    for row in range(3):
        torch.testing.assert_close(weights[row][mask[row]], torch.softmax(scores[row][mask[row]], -1))
    assert (weights[~mask] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_fully_masked_row_gives_zero_weights_and_zero_gradient(dtype):
    scores = torch.full((2, 3), 6e4, dtype=dtype).requires_grad_()
    weights = masked_softmax(scores, torch.tensor([[False] * 3, [True, False, True]]))
    assert weights.tolist() == [[0, 0, 0], [0.5, 0, 0.5]]
    (weights * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert scores.grad[0].tolist() == [0, 0, 0] and scores.grad.isfinite().all()
    assert scores.grad[1, 0] < 0


def test_rows_do_not_disturb_each_other():
    """The maximum is subtracted per row: a row whose scores lie far below another's must survive."""
    weights = masked_softmax(torch.tensor([[0.0, 0.0], [-200.0, -200.0]]), torch.ones(2, 2, dtype=torch.bool))
    assert weights.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_masked_mean_and_reverse():
    x, lengths = torch.randn(3, 4, 2), torch.tensor([2, 0, 4])
    mean = masked_mean(x, lengths_to_mask(lengths, 4))
    torch.testing.assert_close(mean[0], x[0, :2].mean(0))
    assert mean[1].tolist() == [0, 0]
    back = reverse_rows(x, lengths)
    assert torch.equal(back[0], torch.stack([x[0, 1], x[0, 0], x[0, 2], x[0, 3]]))
    assert torch.equal(back[1], x[1]) and torch.equal(back[2], x[2].flip(0))
    assert reverse_rows(torch.tensor([[5, 6, 0]]), torch.tensor([2])).tolist() == [[6, 5, 0]]
