"""Each kernel against the plain torch it stands in for: values, gradients, second derivatives; and when it may stand
in.
"""

import copy
import itertools
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from zoo.layers import kernels, recurrent
from zoo.layers.dropout import Dropout
from zoo.layers.kernels import additive, cross_entropy, products, recurrence
from zoo.layers.losses import output_loss
from zoo.layers.packed import pack, step_major
from zoo.layers.recurrent import CELLS, GRUCell, LSTMCell, RecurrentEncoder, run_layer
from zoo.layers.scores import additive_score

DOUBLE = {"dtype": torch.float64, "requires_grad": True}
COUNTS = [3, 3, 2, 1]
LABELS = torch.tensor([0, 4, 1, 1])
EXPECTED = (
    torch.tensor([[4, 0], [1, 2], [3, 0], [0, 1]]),
    torch.tensor([[0.5, 0.3], [0.7, 0.3], [0.0, 0.9], [0.2, 0.1]], dtype=torch.float64),
)
PACK = products.pack


def _lstm_case(directions=2):
    rows = directions * sum(COUNTS)
    inputs = [torch.randn(rows, 8, **DOUBLE), torch.randn(directions, 8, 2, **DOUBLE)]
    return [*inputs, *(torch.randn(directions, 3, 2, **DOUBLE) for _ in range(2))]


def _gru_case(directions=2):
    rows = directions * sum(COUNTS)
    return [
        torch.randn(rows, 6, **DOUBLE),
        torch.randn(directions, 6, 2, **DOUBLE),
        torch.randn(directions, 3, 2, **DOUBLE),
    ]


def _additive_case(queries, batch, positions=3, size=2):
    return [torch.randn(*shape, **DOUBLE) for shape in ((batch, queries, size), (batch, positions, size), (size,))]


def _plain_additive_score(*given):
    with kernels.plain("additive"):
        return additive_score(*given)


CASES = {
    "lstm": (
        lambda gates, weight, h, c: recurrence.steps(LSTMCell.update, gates, weight, (h, c), COUNTS),
        lambda gates, weight, h, c: recurrence.plain_steps(LSTMCell.update, gates, weight, (h, c), COUNTS),
        _lstm_case,
    ),
    "lstm_one_way": (
        lambda gates, weight, h, c: recurrence.steps(LSTMCell.update, gates, weight, (h, c), COUNTS),
        lambda gates, weight, h, c: recurrence.plain_steps(LSTMCell.update, gates, weight, (h, c), COUNTS),
        lambda: _lstm_case(1),
    ),
    "gru": (
        lambda gates, weight, h: recurrence.steps(GRUCell.update, gates, weight, (h,), COUNTS),
        lambda gates, weight, h: recurrence.plain_steps(GRUCell.update, gates, weight, (h,), COUNTS),
        _gru_case,
    ),
    "additive": (lambda *given: additive.fast_additive_score(*given), _plain_additive_score, lambda: _additive_case(2, 2)),
    "additive_one_query": (
        lambda *given: additive.fast_additive_score(*given),
        _plain_additive_score,
        lambda: _additive_case(1, 3),
    ),
    "cross_entropy": (
        lambda x, weight, bias: cross_entropy.linear_cross_entropy(x, weight, bias, LABELS, 0.1)[0],
        lambda x, weight, bias: cross_entropy.plain_linear_cross_entropy(x, weight, bias, LABELS, 0.1)[0],
        lambda: [torch.randn(4, 3, **DOUBLE), torch.randn(5, 3, **DOUBLE), torch.randn(5, **DOUBLE)],
    ),
    "soft_cross_entropy": (
        lambda x, weight, bias: cross_entropy.linear_soft_cross_entropy(x, weight, bias, *EXPECTED),
        lambda x, weight, bias: cross_entropy.plain_linear_soft_cross_entropy(x, weight, bias, *EXPECTED),
        lambda: [torch.randn(4, 3, **DOUBLE), torch.randn(5, 3, **DOUBLE), torch.randn(5, **DOUBLE)],
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_additive_scores(monkeypatch):
    monkeypatch.setattr(additive, "_SMALLEST", {False: 1, True: 1})


every_kernel = pytest.mark.parametrize("kernel, plain, inputs", CASES.values(), ids=CASES)


def scalar(outputs):
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return sum((x * torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).view(x.shape)).sin().sum() for x in outputs)


@every_kernel
def test_values_and_gradients_equal_plain_torch(kernel, plain, inputs):
    torch.manual_seed(0)
    inputs = inputs()
    got, want = scalar(kernel(*inputs)), scalar(plain(*inputs))
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    for a, b in zip(torch.autograd.grad(got, inputs), torch.autograd.grad(want, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@every_kernel
def test_second_derivatives_equal_plain_torch(kernel, plain, inputs):
    torch.manual_seed(1)
    inputs = inputs()
    seconds = []
    for function in (kernel, plain):
        first = torch.autograd.grad(scalar(function(*inputs)), inputs, create_graph=True)
        seconds.append(torch.autograd.grad(sum(g.square().sum() for g in first), inputs))
    for a, b in zip(*seconds, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@every_kernel
def test_second_derivatives_where_one_input_is_made_of_the_others(kernel, plain, inputs):
    torch.manual_seed(1)
    leaves, seconds = inputs(), []
    for function in (kernel, plain):
        inputs = [leaves[0] * sum(x.sin().sum() for x in leaves[1:]), *leaves[1:]]
        first = torch.autograd.grad(scalar(function(*inputs)), leaves, create_graph=True)
        seconds.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    for a, b in zip(*seconds, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@every_kernel
def test_inputs_without_gradient_and_inputs_left_alone(kernel, plain, inputs):
    torch.manual_seed(2)
    inputs = inputs()
    before = [x.detach().clone() for x in inputs]
    for n, alone in enumerate(inputs):
        given = [x if x is alone else x.detach() for x in inputs]
        torch.testing.assert_close(
            torch.autograd.grad(scalar(kernel(*given)), alone),
            torch.autograd.grad(scalar(plain(*given)), alone),
            rtol=1e-10,
            atol=1e-12,
        )
        assert torch.equal(inputs[n], before[n])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", CELLS)
def test_three_ways_to_run_a_layer_agree(name, rows, monkeypatch):
    """Cell by cell, torch's fused layer and the kernel: values, states and all gradients, also from a given state."""
    torch.manual_seed(3)
    layer = RecurrentEncoder(name, 3, 2).double().layers[0]
    for lengths, start in (([3, 0, 5, 5], None), ([1, 2, 2, 1], 2), ([0, 0, 0, 4], 1)):
        lengths = torch.tensor(lengths)
        x = torch.randn(int(lengths.sum()), 3, **DOUBLE)
        state = None if start is None else tuple(torch.randn(4, 4, **DOUBLE) for _ in range(CELLS[name].state_size))
        found = {}
        for way in ("kernel", "fused", "steps"):
            cells = copy.deepcopy(layer)
            if way == "steps":
                cells[0].register_forward_hook(lambda *_: None)
            with kernels.plain() if way == "fused" else kernels.plain("dropout"):
                outputs, finals = run_layer(cells, x, pack(lengths), start=state)
            wanted = [x, *(state or ()), *cells.parameters()]
            found[way] = outputs, *finals, *torch.autograd.grad(scalar((outputs, *finals)), wanted)
        for way in ("fused", "steps"):
            for a, b in zip(found["kernel"], found[way], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", CELLS)
def test_items_that_lie_step_after_step(name):
    torch.manual_seed(4)
    cell = CELLS[name](3, 2).double()
    x, state = torch.randn(4, 3, 3, **DOUBLE), tuple(torch.randn(3, 2, **DOUBLE) for _ in range(CELLS[name].state_size))
    given = pack(torch.tensor([4, 4, 4]), 1)
    flat, finals = run_layer([cell], x.transpose(0, 1).flatten(0, 1), given, start=state)
    for switched_off in ((), kernels.KERNELS):
        with kernels.plain(*switched_off) if switched_off else kernels.plain("dropout"):
            got, last = run_layer([cell], x.flatten(0, 1), step_major(4, 3, x.device), start=state)
        torch.testing.assert_close(got.view(4, 3, 2), flat.view(3, 4, 2).transpose(0, 1))
        torch.testing.assert_close(last, finals)


@pytest.mark.parametrize(
    "name, gradient, autocast, by_torch",
    [
        ("lstm", True, False, True),
        ("lstm", False, False, True),
        ("lstm", True, True, False),
        ("gru", True, False, False),
        ("gru", False, False, True),
        ("gru", False, True, False),
    ],
)
def test_rows_of_equal_length_go_where_they_are_fastest(name, gradient, autocast, by_torch, monkeypatch):
    cell, x, calls = CELLS[name](3, 2), torch.randn(12, 3), []
    for ways in ("_fused", "_by_kernel"):
        way = getattr(recurrent, ways)
        monkeypatch.setattr(recurrent, ways, lambda *given, way=way, name=ways: calls.append(name) or way(*given))
    with torch.set_grad_enabled(gradient), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        run_layer([cell], x, step_major(4, 3, x.device))
        run_layer([cell], x, pack(torch.tensor([6, 4, 2]), 1))
    assert calls == ["_fused" if by_torch else "_by_kernel", "_by_kernel"]


@pytest.mark.parametrize("name", CELLS)
def test_second_derivatives_of_rows_of_equal_length_in_float32(name):
    """oneDNN's layer is there in float32 only."""
    torch.manual_seed(4)
    cell, x = CELLS[name](3, 2), torch.randn(12, 3)
    found = []
    for dtype in (torch.float32, torch.float64):
        twin = copy.deepcopy(cell).to(dtype)
        wanted = [x.to(dtype).requires_grad_(), *twin.parameters()]
        outputs, finals = run_layer([twin], wanted[0], step_major(4, 3, x.device))
        first = torch.autograd.grad(scalar((outputs, *finals)), wanted, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), wanted))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-3 * b.abs().max().item())


class Elements(TorchDispatchMode):
    """Counts the elements of the tensors that are made new, and those of the largest tensor."""

    total = largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.largest = max(self.largest, *(x.numel() for x in tree_leaves(found) if isinstance(x, torch.Tensor)), 0)
        if "empty" in str(func) or "softmax" in str(func):
            self.total += found.numel()
        return found


def elements(function):
    with Elements() as made:
        function()
    return made.total


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("name", CELLS)
def test_without_a_gradient_a_layer_gives_the_same_and_keeps_nothing_for_one(name, directions):
    torch.manual_seed(5)
    cells = RecurrentEncoder(name, 3, 2, bidirectional=directions == 2).double().layers[0]
    x, rows = torch.randn(4, 3, dtype=torch.float64), torch.randint(4, (11,))
    state = tuple(torch.randn(4, 2 * directions, dtype=torch.float64) for _ in range(CELLS[name].state_size))
    given = (*cells.parameters(), *state, x)
    before = [x.detach().clone() for x in given]
    for lengths, arguments in (([3, 0, 6, 2], (rows, None)), ([3, 0, 0, 1], (None, state))):
        run = partial(run_layer, cells, x, pack(torch.tensor(lengths), directions), *arguments)
        want, wanted = run()
        with torch.no_grad():
            got, found = run()
            made = elements(run)
        torch.testing.assert_close((got, *found), (want, *wanted), rtol=1e-12, atol=1e-12)
        assert elements(run) - made >= sum(lengths) * directions * 2
    assert all(map(torch.equal, given, before))


@pytest.mark.parametrize("name", ["lstm_one_way", "gru"])
def test_without_a_gradient_gates_may_lie_step_after_step(name):
    torch.manual_seed(5)
    gates, weight, *start = (x.detach() for x in CASES[name][2]())
    want = CASES[name][0](gates, weight, *start)
    got, finals = recurrence.steps_without_gradient(gates.clone(), None, weight, tuple(start), COUNTS)
    torch.testing.assert_close(got, want[0] if isinstance(want, tuple) else want, rtol=1e-12, atol=1e-12)
    assert len(finals) == len(start)


@pytest.fixture
def packed(monkeypatch):
    """The weights that are packed, of any size."""
    found = []
    monkeypatch.setattr(products, "_LARGE", 0)
    for module in (products, recurrence):
        monkeypatch.setattr(module, "pack", lambda weight: found.append(weight) or PACK(weight))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("steps", [1, 9])
def test_a_packed_product_equals_the_plain_one(dtype, directions, steps, packed):
    torch.manual_seed(8)
    weight, x = torch.randn(directions, 24, 40), torch.randn(directions, 5, 40)
    for given in (weight, weight.transpose(1, 2).contiguous().transpose(1, 2)):
        got = recurrence._products(given, dtype, steps)(x)
        assert got.dtype == dtype and got.shape == (directions, 5, 24)
        want = x.to(dtype).double() @ weight.to(dtype).double().transpose(1, 2)
        torch.testing.assert_close(got.double(), want, rtol=2**-7 if dtype == torch.bfloat16 else 1e-5, atol=1e-4)
    assert len(packed) == (2 if steps == 9 and directions == 1 and dtype in products._packable() else 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_search_packs_a_weight_once_when_enough_rows_meet_it(dtype, packed):
    torch.manual_seed(8)
    weight = nn.Parameter(torch.randn(24, 40), requires_grad=False)  # so that autocast keeps no copy of it
    bias, x = torch.randn(24), torch.randn(5, 1, 40)
    can_pack, enough = dtype in products._packable(), products._ROWS[dtype]
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
        want = nn.functional.linear(x, weight, bias)
        for _ in range(3):  # searches: each packs again, because a weight may have changed
            packed.clear()
            with products.constant_weights():
                found = [products.linear(x, weight, bias) for _ in range((enough - 1) // 5)]
                assert not packed
                found += [products.linear(x, weight, bias) for _ in range(4)]
            assert len(packed) == can_pack
            for got in found:
                assert got.dtype == want.dtype
                torch.testing.assert_close(got, want, rtol=2**-7 if dtype == torch.bfloat16 else 1e-5, atol=1e-4)
            weight += 1
            want = nn.functional.linear(x, weight, bias)
        packed.clear()
        products.linear(x, weight, bias)
        with products.constant_weights():
            for _ in range(enough):
                products.linear(x[:1], weight, bias)  # a single row gains too little
            with kernels.plain("products"):
                products.linear(x.repeat(enough, 1, 1), weight, bias)
    assert not packed


def test_small_weights_are_not_packed(packed, monkeypatch):
    monkeypatch.setattr(products, "_LARGE", 1000)
    x = torch.randn(16, 40)
    with torch.no_grad(), products.constant_weights():
        products.linear(x, nn.Parameter(torch.randn(24, 40)))
        assert not packed
        products.linear(x, torch.randn(25, 40))  # no weight of a layer, but perhaps computed anew at each step
        assert not packed
        products.linear(x, nn.Parameter(torch.randn(25, 40)))  # 1,000 elements
    assert len(packed) == bool(products._packable())


@pytest.mark.parametrize("name", CELLS)
def test_a_single_step_calls_the_cell(name, monkeypatch):
    """Preparing the weights for a whole sequence would take longer than the step."""
    torch.manual_seed(6)
    cell, x = CELLS[name](3, 2).double(), torch.randn(4, 3, **DOUBLE)
    start = tuple(torch.randn(4, 2, **DOUBLE) for _ in range(CELLS[name].state_size))
    weight = torch.randn_like(cell.weight_hidden)
    want = [run_layer([cell], x, pack(torch.ones(4, dtype=torch.int64), 1), None, start, w) for w in (None, [weight])]
    for way in ("_fused", "_by_kernel", "_by_steps"):
        monkeypatch.setattr(recurrent, way, None)
    got = [run_layer([cell], x, step_major(1, 4, x.device), None, start, w) for w in (None, [weight])]
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    monkeypatch.undo()


def additive_case(queries, dtype=torch.float64, batch=5, positions=7, size=6):
    torch.manual_seed(4)
    parts = ((batch, queries, size), (batch, positions, size), (size,))
    return [2 * torch.randn(*shape, dtype=dtype) for shape in parts]


def naive_additive_score(query, keys, v):
    """Element by element, in float64."""
    out = torch.empty(len(query), query.size(1), keys.size(1), dtype=torch.float64)
    for b, t, s in itertools.product(*map(range, out.shape)):
        out[b, t, s] = sum(
            v[j].double() * (query[b, t, j].double() + keys[b, s, j].double()).tanh() for j in range(len(v))
        )
    return out


@pytest.mark.parametrize("dtype, largest", [(torch.float64, 1e-13), (torch.float32, 3e-6)])
@pytest.mark.parametrize("elements", [1, 500, 10**9])  # one row at a time, some rows, all
def test_the_additive_score_without_tanh(elements, dtype, largest, monkeypatch):
    monkeypatch.setattr(additive, "_ELEMENTS", elements)
    given = additive_case(4, dtype)
    before = [x.clone() for x in given]
    found = additive.fast_additive_score(*given)
    assert found.dtype == dtype and found.shape == (5, 4, 7)
    torch.testing.assert_close(found.double(), naive_additive_score(*given), rtol=0, atol=largest)
    with kernels.plain():
        torch.testing.assert_close(found, additive_score(*given), rtol=0, atol=2 * largest)
    assert all(map(torch.equal, given, before))


def test_the_additive_score_in_half_precision_is_computed_in_float32():
    given = [x.bfloat16() for x in additive_case(4)]
    with torch.autocast("cpu", torch.bfloat16):
        found = additive.fast_additive_score(*given)
        with kernels.plain():
            torch.testing.assert_close(found, additive_score(*given), rtol=0, atol=1e-5)
    assert found.dtype == torch.float32


@pytest.mark.parametrize("queries", [1, 4])
def test_the_part_of_the_keys_is_computed_once(queries, monkeypatch):
    """For a single query once the keys come a second time; for many queries, and in training, at once."""
    calls, powers = [], additive._powers
    monkeypatch.setattr(additive, "_powers", lambda x: calls.append(x.shape[1]) or powers(x))
    query, keys, v = additive_case(queries)
    for n, memory in enumerate((keys, keys, keys, keys[1:], keys[1:].clone())):
        rows = query[-len(memory) :]
        found = additive.fast_additive_score(rows, memory, v)
        assert (found is None) == (queries == 1 and n in (0, 3, 4))
        if found is not None:
            torch.testing.assert_close(found, naive_additive_score(rows, memory, v), rtol=0, atol=1e-13)
    assert calls.count(7) == (1 if queries == 1 else 3)
    calls.clear()
    keys = keys.clone().requires_grad_()
    for _ in range(3):
        assert additive.fast_additive_score(query, keys, v).requires_grad
    assert calls.count(7) == 1


def test_keys_that_change_in_place_and_keys_that_are_gone():
    query, keys, v = additive_case(4)
    for _ in range(3):
        keys.add_(0.5)
        want = naive_additive_score(query, keys, v)
        torch.testing.assert_close(additive.fast_additive_score(query, keys, v), want, rtol=0, atol=1e-13)
    with torch.inference_mode():
        there = keys * 1.5
        for _ in range(2):  # an inference tensor counts no versions
            there.mul_(0.5)
            want = naive_additive_score(query, there, v)
            torch.testing.assert_close(additive.fast_additive_score(query, there, v), want, rtol=0, atol=1e-13)
    count = len(additive._met)
    assert count >= 2
    del keys, there
    assert len(additive._met) == count - 2  # nothing is kept longer than the keys


def test_keys_that_an_optimizer_moves():
    """A fused step changes parameters without a new version; `.data` has a counter of its own."""
    query, keys, v = additive_case(4, torch.float32)
    keys = nn.Parameter(keys)
    optimizer = torch.optim.Adam([keys], lr=0.1, fused=True)
    for change in (lambda: None, optimizer.step, lambda: keys.data.mul_(0.5)):
        keys.grad = torch.ones_like(keys)
        change()
        with torch.no_grad():
            found, want = additive.fast_additive_score(query, keys, v), _plain_additive_score(query, keys, v)
        torch.testing.assert_close(found, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("value", [30.0, -25.0, float("inf"), float("nan")])
@pytest.mark.parametrize("part", [0, 1])
def test_large_queries_and_keys_have_the_additive_score_of_plain_torch(part, value):
    """A product of powers would overflow: 30 - 29 is 1, whose tanh is not that of infinity."""
    given = additive_case(4, torch.float32)
    given[part][0, 0, 0], given[1 - part][0, 0, 0] = value, -value / 1.1
    assert additive.fast_additive_score(*given) is None
    hidden = torch.tanh(given[0].unsqueeze(2) + given[1].unsqueeze(1))
    torch.testing.assert_close(additive_score(*given), hidden @ given[2], rtol=0, atol=1e-6, equal_nan=True)


def test_the_additive_score_of_nothing():
    query, keys, v = additive_case(4)
    assert additive_score(query[:0], keys[:0], v).shape == (0, 4, 7)
    assert additive_score(query, keys[:, :0], v).shape == (5, 4, 0)


def test_small_additive_scores_are_plain(monkeypatch):
    monkeypatch.setattr(additive, "_SMALLEST", {False: 5 * 4 * 7 * 6, True: 5 * 4 * 7 * 6 + 1})
    query, keys, v = additive_case(4)
    assert additive.fast_additive_score(query, keys, v) is not None
    assert additive.fast_additive_score(query[1:], keys[1:], v) is None
    assert additive.fast_additive_score(query, keys, v.requires_grad_()) is None


def test_when_a_kernel_may_stand_in():
    x = torch.ones(2)
    assert kernels.usable("recurrence", x, None, nn.Parameter(x))
    assert not kernels.usable("recurrence", x.to("meta"))
    with kernels.plain("recurrence"):
        assert not kernels.usable("recurrence", x) and kernels.usable("dropout", x)
    with kernels.plain():
        assert not any(kernels.usable(name, x) for name in kernels.KERNELS)
    assert kernels.usable("recurrence", x)
    with pytest.raises(ValueError, match="kernels are recurrence, .*; got speed"), kernels.plain("speed"):
        pass
    seen = []
    torch.func.grad(lambda y: seen.append(kernels.usable("recurrence", y)) or y.sum())(x)
    torch.compile(lambda y: seen.append(kernels.usable("recurrence", y)) or y + 1, backend="eager")(x)
    with torch.autograd.forward_ad.dual_level():
        seen.append(kernels.usable("recurrence", x))
    assert seen == [False, False, False]


def test_an_environment_variable_switches_kernels_off(monkeypatch):
    for value, on in (("1", False), ("0", True), ("", True)):
        monkeypatch.setenv("ZOO_PLAIN", value)
        assert kernels.usable("recurrence", torch.ones(1)) is on


def test_dropout_by_bytes_drops_the_share_it_should():
    torch.manual_seed(9)
    x = torch.ones(400, 1000)
    for p in (0.1, 0.5):
        found = Dropout(p)(x)
        assert (found == 0).float().mean().item() == pytest.approx(p, abs=3e-3)
        assert found.mean().item() == pytest.approx(1, abs=5e-3) and len(found.unique()) == 2
    assert torch.equal(Dropout(0.5).eval()(x), x)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_scores_of_all_rows_never_exist_as_a_whole(smoothing):
    layer, x = nn.Linear(4, 300), torch.randn(3000, 4, requires_grad=True)
    labels = torch.randint(300, (3000,))
    for kernel in (True, False):
        with kernels.plain("dropout" if kernel else "cross_entropy"), Elements() as made:
            output_loss(layer, x, labels, smoothing).backward()
        assert made.largest == (512 if kernel else 3000) * 300


def test_the_output_layer_in_float16_is_plain(monkeypatch):
    """Its gradient would be formed before the loss is scaled."""
    monkeypatch.setattr(cross_entropy, "_LinearCrossEntropy", None)
    layer, x = nn.Linear(4, 5), torch.randn(3, 4)
    with torch.autocast("cpu", torch.float16):
        assert output_loss(layer, x, torch.tensor([0, 4, 1])).isfinite()
