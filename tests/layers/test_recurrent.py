"""Cells against torch's, encoders against each sentence alone, loops against whole sequences."""

import pytest
import torch
from torch import nn

from zoo.layers.maxout import maxout
from zoo.layers.recurrent import CELLS, RecurrentDecoder, RecurrentEncoder

pytestmark = pytest.mark.usefixtures("float64")

TORCH = {"lstm": nn.LSTM, "gru": nn.GRU}


def torch_twin(cell, name):
    """torch's own layer with the same weights."""
    twin = TORCH[name](cell.input_size, cell.hidden_size)
    with torch.no_grad():
        twin.weight_ih_l0.copy_(cell.weight_input)
        twin.weight_hh_l0.copy_(cell.weight_hidden)
        twin.bias_ih_l0.copy_(cell.bias)
        twin.bias_hh_l0.zero_()
    return twin


@pytest.mark.parametrize("name", CELLS)
def test_cell_and_its_gradients_equal_torch(name):
    torch.manual_seed(0)
    cell = CELLS[name](5, 4)
    nn.init.normal_(cell.bias)
    twin = torch_twin(cell, name)
    x, grad = torch.randn(6, 3, 5, requires_grad=True), torch.randn(6, 3, 4)
    state, outputs = (torch.zeros(3, 4),) * cell.state_size, []
    for inputs in x:
        state = cell(inputs, state)
        outputs.append(state[0])
    ours = torch.stack(outputs)
    theirs, _ = twin(x)
    torch.testing.assert_close(ours, theirs)
    got = torch.autograd.grad(ours, [x, cell.weight_input, cell.weight_hidden, cell.bias], grad)
    want = torch.autograd.grad(theirs, [x, twin.weight_ih_l0, twin.weight_hh_l0, twin.bias_ih_l0], grad)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_encoder_does_not_see_padding(name, bidirectional):
    torch.manual_seed(1)
    encoder = RecurrentEncoder(name, 5, 4, num_layers=2, bidirectional=bidirectional)
    lengths = torch.tensor([6, 1, 3])
    x = torch.randn(3, 8, 5)
    memory, finals = encoder(x, lengths)
    assert memory.shape == (3, 8, encoder.output_size)
    for row, length in enumerate(lengths.tolist()):
        alone, alone_finals = encoder(x[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(memory[row, :length], alone[0])
        assert (memory[row, length:] == 0).all()
        for layer, alone_layer in zip(finals, alone_finals):
            for a, b in zip(layer, alone_layer):
                torch.testing.assert_close(a[row], b[0])


def test_final_state_is_the_last_real_step_of_each_direction():
    encoder = RecurrentEncoder("gru", 5, 4)
    memory, finals = encoder(torch.randn(2, 6, 5), torch.tensor([6, 4]))
    torch.testing.assert_close(finals[0][0][1], torch.cat([memory[1, 3, :4], memory[1, 0, 4:]]))


@pytest.mark.parametrize("name", CELLS)
def test_steps_of_a_loop_equal_torch(name):
    """A stack stepped with fed-back inputs equals torch's layers over the concatenated inputs, gradients included."""
    torch.manual_seed(2)
    decoder = RecurrentDecoder(name, 8, 4, num_layers=2)
    x, feed = torch.randn(2, 6, 5, requires_grad=True), torch.randn(2, 6, 3, requires_grad=True)
    state, outputs = tuple(torch.zeros(2, 4) for _ in range(2 * CELLS[name].state_size)), []
    for t in range(6):
        top, state = decoder.step(torch.cat([x[:, t], feed[:, t]], dim=-1), state)
        outputs.append(top)
    ours = torch.stack(outputs, dim=1)
    theirs = torch.cat([x, feed], dim=-1).transpose(0, 1)
    for cell in decoder.cells:
        twin = TORCH[name](cell.input_size, 4)
        params = [cell.weight_input, cell.weight_hidden, cell.bias, torch.zeros_like(cell.bias)]
        theirs, *_ = torch.func.functional_call(twin, dict(zip(dict(twin.named_parameters()), params)), (theirs,))
    torch.testing.assert_close(ours, theirs.transpose(0, 1))
    parameters = [x, feed, *decoder.parameters()]
    for a, b in zip(
        torch.autograd.grad(ours.sin().sum(), parameters), torch.autograd.grad(theirs.sin().sum(), parameters)
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", CELLS)
def test_whole_sequence_equals_steps(name):
    decoder = RecurrentDecoder(name, 5, 4, num_layers=2)
    x = torch.randn(2, 6, 5)
    state = tuple(torch.randn(2, 4) for _ in range(2 * (2 if name == "lstm" else 1)))
    whole, last = decoder(x, state)
    for t in range(6):
        top, state = decoder.step(x[:, t], state)
        torch.testing.assert_close(top, whole[:, t])
    for a, b in zip(state, last):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", CELLS)
def test_dropout_is_between_the_layers_alone(name):
    """In training a stack is its layers one by one, with dropout of what each passes on to the next."""
    torch.manual_seed(3)
    encoder, lengths = RecurrentEncoder(name, 5, 4, num_layers=2, dropout=0.5), torch.tensor([6, 0, 3])
    one, two = RecurrentEncoder(name, 5, 4), RecurrentEncoder(name, 8, 4)
    one.layers[0], two.layers[0] = encoder.layers
    x = torch.randn(9, 5)
    first, _ = one.flat(x, lengths)
    want, _ = seeded(lambda: two.flat(encoder.dropout(first), lengths))
    torch.testing.assert_close(seeded(lambda: encoder.flat(x, lengths))[0], want)

    decoder = RecurrentDecoder(name, 5, 4, num_layers=2, dropout=0.5)
    lower, upper = RecurrentDecoder(name, 5, 4), RecurrentDecoder(name, 4, 4)
    lower.cells[0], upper.cells[0] = decoder.cells
    x, width = torch.randn(2, 6, 5), CELLS[name].state_size
    state = tuple(torch.randn(2, 4) for _ in range(2 * width))
    first, _ = lower(x, state[:width])
    steps_first = lambda y: decoder.dropout(y.transpose(0, 1)).transpose(0, 1)  # noqa: E731
    want, _ = seeded(lambda: upper(steps_first(first), state[width:]))
    torch.testing.assert_close(seeded(lambda: decoder(x, state))[0], want)
    want, _ = seeded(lambda: upper.step(decoder.dropout(first[:, 0]), state[width:]))
    torch.testing.assert_close(seeded(lambda: decoder.step(x[:, 0], state))[0], want)


def seeded(function):
    torch.manual_seed(0)
    return function()


@pytest.mark.parametrize("name", CELLS)
def test_first_weights(name):
    """Each gate has an orthogonal matrix for the state, and the one of an LSTM that forgets is open."""
    torch.manual_seed(0)
    cell = CELLS[name](5, 4)
    for block in cell.weight_hidden.chunk(cell.gates):
        torch.testing.assert_close(block @ block.T, torch.eye(4))
    assert cell.bias.unflatten(0, (-1, 4)).tolist() == [
        [float(name == "lstm" and n == 1)] * 4 for n in range(cell.gates)
    ]


def test_maxout():
    assert maxout(torch.tensor([1.0, 3.0, -2.0, -5.0])).tolist() == [3.0, -2.0]


def test_unknown_cell():
    with pytest.raises(ValueError, match="cell must be one of 'lstm', 'gru'; got 'rnn'"):
        RecurrentEncoder("rnn", 4, 4)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_decoder_compiles_as_a_whole_and_is_exported(cell):
    decoder = RecurrentDecoder(cell, 4, 8, num_layers=2)
    state = tuple(torch.randn(2, 8) for _ in range(2 * decoder.cells[0].state_size))
    inputs = torch.randn(2, 3, 4)
    expected, expected_state = decoder(inputs, state)
    compiled = torch.compile(decoder, fullgraph=True, backend="eager")
    exported = torch.export.export(decoder, (inputs, state)).module()
    for run in (compiled, exported):
        found, new = run(inputs, state)
        torch.testing.assert_close((found, *new), (expected, *expected_state))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([7, 2], "lengths must be at least 0 and at most the 5 positions of the input; got 2 to 7"),
        ([-1, 2], "lengths must be at least 0 and at most the 5 positions of the input; got -1 to 2"),
        ([3.0, 2.0], "lengths must be whole numbers; got torch.float"),
        ([3], r"lengths must be \(N\), here \(2\); got \(1,\)"),
    ],
)
def test_lengths_that_do_not_fit(lengths, message):
    with pytest.raises(ValueError, match=message):
        RecurrentEncoder("lstm", 3, 4)(torch.randn(2, 5, 3), torch.tensor(lengths))


def test_other_sizes_that_do_not_fit():
    encoder, decoder = RecurrentEncoder("gru", 3, 4), RecurrentDecoder("gru", 3, 4)
    with pytest.raises(ValueError, match="lengths must sum to the number of items, 10; got 7"):
        encoder.flat(torch.randn(10, 3), torch.tensor([3, 4]))
    with pytest.raises(ValueError, match=r"a state must be \(B, H\), here \(2, 4\); got \(3, 4\)"):
        decoder(torch.randn(2, 5, 3), (torch.randn(3, 4),))
    with pytest.raises(ValueError, match="state must have 1 tensors, those of each layer in turn; got 2"):
        decoder(torch.randn(2, 5, 3), (torch.randn(2, 4),) * 2)


def test_lengths_of_32_bits():
    encoder, inputs = RecurrentEncoder("gru", 3, 4), torch.randn(2, 5, 3)
    expected, _ = encoder(inputs, torch.tensor([3, 5]))
    torch.testing.assert_close(encoder(inputs, torch.tensor([3, 5], dtype=torch.int32))[0], expected)
