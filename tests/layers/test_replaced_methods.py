"""Methods that somebody replaced, and hooks, count wherever a kernel computes the same as they did."""

import pytest
import torch
from torch import nn

from zoo.layers import recurrent
from zoo.layers.dropout import Dropout
from zoo.layers.losses import output_logits, output_loss, output_losses, sampled_output_loss, soft_output_loss
from zoo.layers.multi_head import MultiHeadAttention
from zoo.layers.recurrent import RecurrentDecoder, RecurrentEncoder

LENGTHS = torch.tensor([5, 2])


def by_instance(monkeypatch, module, name, function):
    """As `module.forward = function`, which gets no self."""
    monkeypatch.setattr(module, name, function)


def by_class(monkeypatch, module, name, function):
    changed = staticmethod(function) if name == "update" else lambda self, *given: function(*given)
    monkeypatch.setattr(type(module), name, changed)


every_way = pytest.mark.parametrize("replace", [by_instance, by_class])


@every_way
@pytest.mark.parametrize("method", ["forward", "update"])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("kind", recurrent.CELLS)
def test_recurrent_cells(kind, gradient, method, replace, monkeypatch):
    torch.manual_seed(0)
    encoder, decoder = RecurrentEncoder(kind, 3, 4), RecurrentDecoder(kind, 3, 4)
    inputs, state = torch.randn(2, 5, 3), tuple(torch.zeros(2, 4) for _ in range(encoder.layers[0][0].state_size))
    for layer, cell, arguments in ((encoder, encoder.layers[0][0], LENGTHS), (decoder, decoder.cells[0], state)):
        with torch.set_grad_enabled(gradient), monkeypatch.context() as patch:
            before = layer(inputs, arguments)[0]
            own = getattr(cell, method)
            replace(patch, cell, method, lambda *given, own=own: tuple(0.5 * x for x in own(*given)))
            after = layer(inputs, arguments)[0]
            patch.undo()
            assert (before[..., :4].abs() > after[..., :4].abs() + 1e-4).any()
            torch.testing.assert_close(layer(inputs, arguments)[0], before, rtol=0, atol=0)


@every_way
def test_output_layers(replace, monkeypatch):
    torch.manual_seed(0)
    layer, x, labels = nn.Linear(4, 9), torch.randn(6, 4), torch.arange(6)
    words, probabilities = labels.unsqueeze(1), torch.ones(6, 1)
    functions = {
        "logits": lambda: output_logits(layer, x),
        "loss": lambda: output_loss(layer, x, labels),
        "losses": lambda: output_losses(layer, x, labels)[1],
        "sampled": lambda: sampled_output_loss(layer, x, labels, 8),
        "soft": lambda: soft_output_loss(layer, x, words, probabilities),
    }
    for name, function in functions.items():
        with monkeypatch.context() as patch:
            own = layer.forward
            replace(patch, layer, "forward", lambda x: own(x) * 0)  # all words are then equally probable
            torch.manual_seed(1)
            found = function()
        even = {"logits": torch.zeros(6, 9), "losses": torch.full((6,), 9.0).log()}
        if name != "sampled":
            torch.testing.assert_close(found, even.get(name, 6 * torch.tensor(9.0).log()), msg=name)
        torch.manual_seed(1)
        assert not found.allclose(function())


def attended(attention):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4)
    return attention(x, *attention.project(x))[0]


@every_way
def test_the_scores_of_multi_head_attention(replace, monkeypatch):
    torch.manual_seed(1)
    attention = MultiHeadAttention(4, 2, 2, True, dropout=0.0)
    before, own = attended(attention), attention.scores
    replace(monkeypatch, attention, "scores", lambda *given: 3 * own(*given))
    after = attended(attention)
    attention.query.weight.detach().mul_(3)
    monkeypatch.undo()
    torch.testing.assert_close(after, attended(attention))
    assert not before.allclose(after)


def test_the_scores_of_a_class_of_ones_own():
    class Sharper(MultiHeadAttention):
        def scores(self, queries, keys):
            return 3 * super().scores(queries, keys)

    torch.manual_seed(1)
    sharper, attention = Sharper(4, 2, 2, True, 0.0), MultiHeadAttention(4, 2, 2, True, 0.0)
    attention.load_state_dict(sharper.state_dict())
    attention.query.weight.detach().mul_(3)
    torch.testing.assert_close(attended(sharper), attended(attention))


@pytest.mark.parametrize("change", ["replaced", "patched", "hooked"])
def test_the_dropout_of_multi_head_attention(change, monkeypatch):
    attention = MultiHeadAttention(4, 2, 2, output_projection=False, dropout=0.0)
    if change == "replaced":
        attention.dropout = nn.Threshold(2.0, 0.0)  # no weight is above 2
    elif change == "patched":
        attention.dropout.forward = torch.zeros_like
    else:
        attention.dropout.register_forward_hook(lambda module, given, found: found * 0)
    assert not attended(attention).any()


def test_dropout_of_multi_head_attention_alone_in_training():
    """As for a spread of predictions by dropout, in a model that is otherwise evaluated."""
    attention = MultiHeadAttention(4, 2, 2, output_projection=False, dropout=0.5).eval()
    assert attended(attention).equal(attended(attention))
    for module in attention.modules():
        module.train(isinstance(module, Dropout))
    torch.manual_seed(0)
    assert len({attended_without_seed(attention).sum().item() for _ in range(8)}) > 1


def attended_without_seed(attention):
    x = torch.ones(2, 3, 4)
    return attention(x, *attention.project(x))[0]
