import pytest
import torch
from torch import nn

from zoo.layers import kernels
from zoo.layers.kernels import cross_entropy
from zoo.layers.losses import output_loss, output_losses, sampled_output_loss, soft_output_loss

pytestmark = pytest.mark.usefixtures("float64")


def linear(weight, bias):
    """An output layer with these weights."""
    layer = nn.Linear(weight.size(1), weight.size(0))
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    return layer


@pytest.mark.parametrize("rows", [3, 512])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_equal_torch(smoothing, rows, monkeypatch):
    monkeypatch.setattr(cross_entropy, "_ROWS", rows)
    torch.manual_seed(0)
    layer = nn.Linear(4, 5)
    x, labels = (torch.randn(7, 4) * 30).requires_grad_(), torch.tensor([0, 4, 1, 2, 3, 3, 0])
    ours = output_loss(layer, x, labels, smoothing)
    theirs = nn.functional.cross_entropy(layer(x), labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours, theirs)
    parameters = [x, layer.weight, layer.bias]
    for a, b in zip(torch.autograd.grad(ours * 3, parameters), torch.autograd.grad(theirs * 3, parameters)):
        torch.testing.assert_close(a, b)


def test_under_autocast_and_without_gradient():
    layer, labels = nn.Linear(4, 5, dtype=torch.float32), torch.tensor([0, 4, 1])
    x = torch.randn(3, 4, dtype=torch.float32)
    want = output_loss(layer, x, labels)
    with torch.autocast("cpu", torch.bfloat16):
        got = output_loss(layer, x.bfloat16(), labels)
    got.backward()
    assert got.dtype == layer.weight.grad.dtype == torch.float32
    torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)  # bfloat16 has 8 bits
    with torch.no_grad():
        torch.testing.assert_close(output_loss(layer, x, labels), want)


def test_no_rows():
    assert output_loss(nn.Linear(4, 5), torch.empty(0, 4), torch.empty(0, dtype=torch.long)) == 0


def test_sampled_softmax_is_right_on_average():
    torch.manual_seed(0)
    x, weight, bias, labels = torch.randn(3, 4), torch.randn(50, 4) / 2, torch.randn(50), torch.tensor([0, 33, 49])
    scores, layer = x @ weight.t() + bias, linear(weight, bias)

    def norms(**chosen):  # the sum of the softmax of each row: exp(loss) times the exponential of its label's score
        draws = torch.stack([sampled_output_loss(layer, x[n : n + 1], labels[n : n + 1], **chosen) for n in range(3)])
        return draws.detach().exp() * scores.gather(1, labels[:, None]).squeeze(1).exp()

    want = scores.exp().sum(1)
    draws = torch.stack([norms(sampled=10) for _ in range(1000)])
    assert (draws.std(0) > 0.05 * want).all()  # it is a sample
    assert ((draws.mean(0) - want).abs() < 4 * draws.std(0) / len(draws) ** 0.5).all()
    assert (draws.std(0) / len(draws) ** 0.5 < 0.05 * want).all()  # which would show an error of a fifth


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("sampled", [9, 10, 100])
def test_sampled_softmax_of_all_words_is_the_whole_one(sampled, plain):
    torch.manual_seed(0)
    x, layer = torch.randn(7, 4, requires_grad=True), nn.Linear(4, 10)
    labels = torch.tensor([0, 9, 5, 6, 7, 8, 4])  # with the first four words there is one left, which is drawn
    with kernels.plain() if plain else kernels.plain("dropout"):
        got, want = sampled_output_loss(layer, x, labels, sampled), output_loss(layer, x, labels)
    torch.testing.assert_close(got, want)
    wanted = [x, *layer.parameters()]
    for a, b in zip(torch.autograd.grad(got, wanted), torch.autograd.grad(want, wanted)):
        torch.testing.assert_close(a, b)


def test_words_outside_the_sample_get_no_gradient():
    layer = nn.Linear(4, 1000)
    sampled_output_loss(layer, torch.randn(5, 4), torch.tensor([7, 999, 500, 7, 3]), 20).backward()
    seen = layer.weight.grad.abs().sum(1) > 0
    assert seen[:10].all() and seen[[500, 999]].all() and seen.sum() == 10 + 2 + 10


def test_a_layer_with_hooks_is_called_and_gives_the_same():
    torch.manual_seed(0)
    layer, x, labels, calls = nn.Linear(4, 30), torch.randn(5, 4), torch.tensor([7, 9, 2, 7, 3]), []
    want = output_losses(layer, x, labels, 0.1)
    torch.manual_seed(1)
    want_sampled = sampled_output_loss(layer, x, labels, 10)
    layer.register_forward_hook(lambda *_: calls.append(1))
    torch.testing.assert_close(output_losses(layer, x, labels, 0.1), want)
    torch.manual_seed(1)
    torch.testing.assert_close(sampled_output_loss(layer, x, labels, 10), want_sampled)
    assert len(calls) == 2


def expected(rows=7, vocab=12, words=4, share=0.8):
    """Different words for each row, and their probabilities, which have the sum `share`."""
    drawn = torch.rand(rows, words)
    chosen = torch.stack([torch.randperm(vocab)[:words] for _ in range(rows)])
    return chosen, share * drawn / drawn.sum(-1, keepdim=True)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("rows", [3, 512])
def test_soft_targets_against_a_loop(rows, plain, monkeypatch):
    monkeypatch.setattr(cross_entropy, "_ROWS", rows)
    torch.manual_seed(0)
    x, layer, (words, probabilities) = torch.randn(7, 4, requires_grad=True), nn.Linear(4, 12), expected()
    want = torch.zeros(())
    for row, some, wanted in zip(layer(x).softmax(-1), words.tolist(), probabilities):
        for word, p in zip(some, wanted):
            want = want - p * row[word].log()
        others = torch.stack([row[word] for word in range(12) if word not in some])
        want = want - (1 - wanted.sum()) * others.sum().log()
    with kernels.plain() if plain else kernels.plain("dropout"):
        got = soft_output_loss(layer, x, words, probabilities)
    torch.testing.assert_close(got, want)
    wanted = [x, *layer.parameters()]
    for a, b in zip(torch.autograd.grad(got * 3, wanted), torch.autograd.grad(want * 3, wanted)):
        torch.testing.assert_close(a, b)


def test_a_certain_soft_target_is_a_label():
    torch.manual_seed(0)
    layer, x, labels = nn.Linear(4, 12), torch.randn(7, 4), torch.tensor([0, 9, 2, 7, 3, 11, 0])
    got = soft_output_loss(layer, x, labels.unsqueeze(1), torch.ones(7, 1))
    torch.testing.assert_close(got, output_loss(layer, x, labels))
    with torch.no_grad():
        torch.testing.assert_close(soft_output_loss(layer, x, labels.unsqueeze(1), torch.ones(7, 1)), got)


def test_the_gradient_is_zero_where_all_that_is_expected_is_predicted():
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 12), torch.randn(7, 4)
    words = expected()[0]
    with torch.no_grad():
        probabilities = layer(x).softmax(-1).gather(-1, words)
    soft_output_loss(layer, x, words, probabilities).backward()
    torch.testing.assert_close(layer.weight.grad, torch.zeros(12, 4))


def test_soft_targets_of_all_words_whose_sum_is_rounded_up():
    """In fp16 probabilities may have a sum above 1, and a prediction may leave nothing for other words."""
    layer, x = nn.Linear(4, 3, dtype=torch.float32), torch.randn(2, 4, dtype=torch.float32) * 100
    words = torch.tensor([[0, 1, 2], [2, 1, 0]])
    for plain in (False, True):
        with kernels.plain() if plain else kernels.plain("dropout"):
            loss = soft_output_loss(layer, x, words, torch.tensor([[0.5, 0.3, 0.21], [1.0, 0.001, 0.0]]))
        loss.backward()
        assert loss.isfinite() and layer.weight.grad.isfinite().all()


def test_soft_targets_under_autocast():
    torch.manual_seed(0)
    layer, (words, probabilities) = nn.Linear(4, 12, dtype=torch.float32), expected()
    x = torch.randn(7, 4, dtype=torch.float32)
    want = soft_output_loss(layer, x, words, probabilities.float())
    for plain in (False, True):
        with torch.autocast("cpu", torch.bfloat16), kernels.plain() if plain else kernels.plain("dropout"):
            got = soft_output_loss(layer, x, words, probabilities.float())
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("loss", [output_loss, lambda *args: sampled_output_loss(*args, 20)])
@pytest.mark.parametrize("kernel", [True, False])
def test_labels_that_do_not_fit(loss, kernel):
    layer = nn.Linear(4, 200)
    if not kernel:
        layer.register_forward_hook(lambda *_: None)
    x = torch.randn(5, 4)
    with pytest.raises(ValueError, match="labels must be from 0 to V - 1; got -100: leave out rows that do not count"):
        loss(layer, x, torch.tensor([1, -100, 3, 4, -100]))
    with pytest.raises(ValueError, match=r"labels must be \(N\), here \(5\); got \(7,\)"):
        loss(layer, x, torch.zeros(7, dtype=torch.long))


def test_distributions_that_do_not_fit():
    words = torch.zeros(4, 2, dtype=torch.long)
    with pytest.raises(ValueError, match=r"words must be \(N, K\), here \(5, K\); got \(4, 2\)"):
        soft_output_loss(nn.Linear(4, 9), torch.randn(5, 4), words, torch.zeros(4, 2))
    with pytest.raises(ValueError, match=r"probabilities must be \(N, K\), here \(4, 2\); got \(4, 3\)"):
        soft_output_loss(nn.Linear(4, 9), torch.randn(4, 4), words, torch.zeros(4, 3))
