import itertools

import pytest
import torch

from zoo.layers.masking import lengths_to_mask, masked_mean, masked_softmax, masked_sparsemax, reverse_rows

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


def nearest_distribution(z):
    """argmin_p ||p - z||^2 over the simplex (Martins and Astudillo 2016, Eq. 2): the best of all supports."""
    best = None
    for support in itertools.product([False, True], repeat=len(z)):
        if any(support):
            chosen = torch.tensor(support)
            p = torch.where(chosen, z + (1 - z[chosen].sum()) / chosen.sum(), 0.0)
            if (p >= 0).all() and (best is None or (p - z).norm() < (best - z).norm()):
                best = p
    return best


@pytest.mark.parametrize("scale", [0.01, 1, 50])
def test_masked_sparsemax_is_the_nearest_distribution_over_the_real_part(scale):
    torch.manual_seed(0)
    scores = torch.randn(20, 6) * scale
    mask = torch.rand(20, 6) < 0.7
    mask[:, 0] = True
    weights = masked_sparsemax(scores, mask)
    for row in range(20):
        nearest = nearest_distribution(scores[row][mask[row]])
        torch.testing.assert_close(weights[row][mask[row]], nearest, rtol=1e-9, atol=1e-9)
    assert (weights[~mask] == 0).all()
    assert (scale < 1) == (weights[mask] > 0).all()


def test_the_gradients_of_masked_sparsemax_are_its_slopes():
    torch.manual_seed(0)
    scores, mask = torch.randn(8, 6, requires_grad=True), lengths_to_mask(torch.tensor([6, 6, 6, 5, 4, 2, 1, 0]))
    weights = masked_sparsemax(scores, mask)
    assert (weights[mask] == 0).any() and (weights > 0).sum(-1).max() > 2  # some zeros, and more than a choice
    assert torch.autograd.gradcheck(lambda x: masked_sparsemax(x, mask), scores)
    assert torch.autograd.gradgradcheck(lambda x: masked_sparsemax(x, mask).square(), scores)


def test_masked_sparsemax_of_equal_scores_is_even_and_not_a_number_stays_so():
    assert masked_sparsemax(torch.full((1, 4), 3.0), torch.tensor([[True, True, False, True]])).tolist() == [
        pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])
    ]
    weights = masked_sparsemax(torch.tensor([[torch.nan, 0.0], [1.0, 0.0]]), torch.ones(2, 2, dtype=torch.bool))
    assert weights[0].isnan().all() and weights[1].tolist() == [1, 0]


@pytest.mark.parametrize("normalize", [masked_softmax, masked_sparsemax])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_fully_masked_row_gives_zero_weights_and_zero_gradient(dtype, normalize):
    scores = torch.full((2, 3), 6e4, dtype=dtype).requires_grad_()
    weights = normalize(scores, torch.tensor([[False] * 3, [True, False, True]]))
    assert weights.tolist() == [[0, 0, 0], [0.5, 0, 0.5]]
    (weights * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert scores.grad[0].tolist() == [0, 0, 0] and scores.grad.isfinite().all()
    assert scores.grad[1, 0] < 0


@pytest.mark.parametrize("normalize", [masked_softmax, masked_sparsemax])
def test_rows_do_not_disturb_each_other(normalize):
    """The maximum is subtracted per row: a row whose scores lie far below another's must survive."""
    weights = normalize(torch.tensor([[0.0, 0.0], [-200.0, -200.0]]), torch.ones(2, 2, dtype=torch.bool))
    assert weights.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_masked_mean_and_reverse():
    x, lengths = torch.randn(4, 4, 2), torch.tensor([2, 0, 4, 1])
    mean = masked_mean(x, lengths_to_mask(lengths, 4))
    torch.testing.assert_close(mean[0], x[0, :2].mean(0))
    assert mean[1].tolist() == [0, 0] and mean[3].equal(x[3, 0])
    back = reverse_rows(x, lengths)
    assert torch.equal(back[0], torch.stack([x[0, 1], x[0, 0], x[0, 2], x[0, 3]]))
    assert torch.equal(back[1], x[1]) and torch.equal(back[2], x[2].flip(0))
    assert reverse_rows(torch.tensor([[5, 6, 0]]), torch.tensor([2])).tolist() == [[6, 5, 0]]


def test_the_mean_neither_overflows_nor_reads_the_padding():
    x = torch.full((1, 3000, 1), 30.0, dtype=torch.float16)
    assert masked_mean(x, torch.ones(1, 3000, dtype=torch.bool)).item() == 30.0
    x, mask = torch.tensor([[[1.0], [3.0], [torch.nan], [torch.inf]]], requires_grad=True), torch.tensor([[1, 1, 0, 0]])
    found = masked_mean(x, mask.bool())
    assert found.item() == 2.0
    assert torch.autograd.grad(found.sum(), x)[0].flatten().tolist() == [0.5, 0.5, 0, 0]


def test_nothing_at_all():
    assert lengths_to_mask(torch.zeros(0, dtype=torch.long)).shape == (0, 0)
    assert masked_softmax(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool)).shape == (2, 0)
