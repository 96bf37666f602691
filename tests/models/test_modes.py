"""Every model in every mode of torch: the loss and each gradient are those of float64 and one plain `backward`, or
there is an error.

The models are tiny, so that a wrong term cannot hide in a mean, and in float64 wherever the mode allows it: there the
rounding is a millionth of any fault. `reference` itself is compared with finite differences.
"""

import copy
import io
import pickle
import re

import lightning.pytorch as pl
import pytest
import torch
from forks import torchrun
from model_cases import MAIN, build
from modes import Found, Loss, distributed, drawn, gradients, half, make, parameters, reference, rounding, same, trained
from torch import nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from zoo.layers import kernels

CLASSES = [case for case in MAIN if not case.values[1]]
every_case = pytest.mark.parametrize("cls, options", MAIN)
# what depends on the kind of layers and not on the options: the options when there is time
every_class = pytest.mark.parametrize(
    "cls, options",
    [case if case in CLASSES else pytest.param(*case.values, id=case.id, marks=pytest.mark.slow) for case in MAIN],
)
# a class of each way to be traced: a decoder's loop, attention alone, documents, images, a carried state, a reader
TRACED = {"LuongNMT", "TransformerNMT", "HAN", "ShowAttendTell", "KeyValuePredictLM", "AttentionOverAttentionReader"}
# what hard attention minimises is an estimate whose gradient is that of Eq. 12-13, by design not the slope of its value
differentiable = pytest.mark.parametrize(
    "cls, options", [case for case in MAIN if case.values[1].get("attention") != "hard"]
)


@pytest.fixture(autouse=True)
def same_random_numbers():
    with drawn():
        yield


def direction(module, seed=0):
    """A random vector for each parameter."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(p.shape, generator=generator, dtype=p.dtype) for name, p in parameters(module).items()}


def move(module, step, by):
    """Adds `by` times a vector to the parameters."""
    with torch.no_grad():
        for name, p in parameters(module).items():
            p.add_(step[name], alpha=by)


def compiled(function, backend):
    torch.compiler.reset()
    return torch.compile(function, backend=backend)


@pytest.fixture
def guards_without_a_clock(monkeypatch):
    """For its log torch measures how long each guard takes, with an empty cache: a third of the time of compiling."""
    monkeypatch.setattr("torch._dynamo.guards.profile_guard_manager", lambda *_: 0.0, raising=False)


def holders(module):
    """The modules that can be called and hold a trained parameter themselves, by name."""
    return {
        name: part
        for name, part in module.named_modules()
        if any(p.requires_grad for p in part.parameters(recurse=False)) and not isinstance(part, nn.ParameterList)
    }


def replace(module, name, new):
    """Puts another module in the place of a part."""
    parent, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(parent), attribute, new)


# ---- the reference ----


@differentiable
def test_the_reference_is_the_slope_of_the_loss(cls, options):
    module, batch = make(cls, options)
    expected = reference(cls, options)
    for name, vector in direction(module).items():
        losses, step = [], {name: vector}
        for by in (1e-5, -1e-5):
            with torch.no_grad():
                module.get_parameter(name).add_(vector, alpha=by)
                losses.append(module(batch).item())
                module.get_parameter(name).add_(vector, alpha=-by)
        slope = (losses[0] - losses[1]) / 2e-5
        assert slope == pytest.approx((step[name] * expected.gradients[name]).sum().item(), rel=1e-6, abs=1e-6), name


@pytest.mark.numeric
@every_case
def test_float32(cls, options):
    """Within 30 roundings of the size that `rounding` measures."""
    same(trained(*make(cls, options, torch.float32)), reference(cls, options), rounding(cls, options), times=30)


@every_case
def test_plain_torch_without_any_kernel(cls, options):
    """What a GPU runs: torch's fused layers, and no function of our own."""
    with kernels.plain():
        same(trained(*make(cls, options)), reference(cls, options))


@every_case
def test_without_a_gradient_the_loss_is_the_same(cls, options):
    loss = reference(cls, options).loss.item()  # out here: it needs gradients, and may be the first to ask for it
    for mode in (torch.no_grad, torch.inference_mode):
        module, batch = make(cls, options)
        with mode():
            assert module(batch).item() == pytest.approx(loss, rel=1e-12)


# ---- torch.compile ----


@pytest.mark.integration
@pytest.mark.usefixtures("guards_without_a_clock")
@pytest.mark.parametrize(
    "cls, options",
    [
        case if case.values[0].__name__ in TRACED else pytest.param(*case.values, id=case.id, marks=pytest.mark.slow)
        for case in CLASSES
    ],
)
def test_compile(cls, options):
    """Of two items and without a compiler behind it: the time goes into tracing, which is where Python's side effects
    get lost.
    """
    module, batch = make(cls, options)
    two = half(batch, 0, 3)
    same(trained(module, two, compiled(module, "eager")), trained(make(cls, options)[0], two))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@every_case
def test_compile_with_each_backend(cls, options, backend):
    module, batch = make(cls, options)
    same(trained(module, batch, compiled(module, backend)), reference(cls, options))


@pytest.mark.slow
@pytest.mark.parametrize("cls, options", CLASSES)
def test_a_trainer_trains_a_compiled_model_as_the_plain_one(cls, options):
    found = []
    for wrap in (lambda model: model, lambda model: compiled(model, "aot_eager")):
        module, batch = make(cls, options)
        trainer = pl.Trainer(
            max_epochs=2,
            accelerator="cpu",
            precision="64-true",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(wrap(module.model), DataLoader([batch], batch_size=None))
        found.append({name: p.detach().clone() for name, p in parameters(module).items()})
    start = dict(make(cls, options)[0].named_parameters())
    for name, p in found[0].items():
        assert not torch.equal(p, start[name]), name
        torch.testing.assert_close(found[1][name], p, rtol=1e-7, atol=1e-7)


# ---- autograd ----


@every_case
def test_the_gradient_of_a_part_changes_no_other(cls, options):
    module, batch = make(cls, options)
    expected = reference(cls, options)
    loss = module(batch)
    found = {name: torch.autograd.grad(loss, p, retain_graph=True)[0] for name, p in parameters(module).items()}
    same(Found(loss, found), expected)
    loss.backward()
    same(Found(loss, gradients(module)), expected)


@every_case
def test_backward_twice_gives_the_gradient_twice(cls, options):
    module, batch = make(cls, options)
    expected = reference(cls, options)
    loss = module(batch)
    loss.backward(retain_graph=True)
    loss.backward()
    same(Found(loss, {name: g / 2 for name, g in gradients(module).items()}), expected)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


@every_case
def test_two_graphs_at_once(cls, options):
    module, batch = make(cls, options)
    first, second = module(batch), module.model.loss(half(batch, 0, 2))[0]
    first.backward()
    same(Found(first, gradients(module)), reference(cls, options))
    whole = gradients(module)
    second.backward()
    part = {name: g - whole[name] for name, g in gradients(module).items()}
    again, _ = make(cls, options)
    again(batch)  # hard attention keeps a moving average
    same(Found(second, part), trained(again, half(batch, 0, 2)))


@every_case
def test_parts_that_are_frozen(cls, options):
    expected = reference(cls, options)
    for parity in (0, 1):
        module, batch = make(cls, options)
        frozen = list(parameters(module))[parity::2]
        for name in frozen:
            module.get_parameter(name).requires_grad_(False)
        found = trained(module, batch)
        assert all(module.get_parameter(name).grad is None for name in frozen)
        same(found, Found(expected.loss, {name: expected.gradients[name] for name in found.gradients}))


@every_class
def test_weights_that_change_before_the_backward_pass(cls, options):
    """As everywhere in torch: an error, or the gradient at the old weights."""
    expected = reference(cls, options)
    module, batch = make(cls, options)
    start = copy.deepcopy(module.state_dict())
    for name in expected.gradients:
        module.load_state_dict(start)
        module.zero_grad()
        loss = module(batch)
        with torch.no_grad():
            module.get_parameter(name).mul_(3)
        try:
            loss.backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
        else:
            same(Found(loss, gradients(module)), expected)


@differentiable
def test_second_derivatives(cls, options):
    """The product of the second derivatives and a vector, against differences of gradients, or one clear error."""
    module, batch = make(cls, options)
    vector = direction(module, 1)
    names, weights = zip(*parameters(module).items())
    try:
        first = torch.autograd.grad(module(batch), weights, create_graph=True)
        slope = sum((g * vector[name]).sum() for name, g in zip(names, first))
        second = torch.autograd.grad(slope, weights, allow_unused=True, materialize_grads=True)
    except RuntimeError as error:
        assert re.search("second|twice|double|derivative for .* is not implemented", str(error)), error
        return
    sides = []
    for by in (1e-5, -1e-5):
        module, batch = make(cls, options)
        move(module, vector, by)
        sides.append(trained(module, batch).gradients)
    for name, found in zip(names, second):
        true = (sides[0][name] - sides[1][name]) / 2e-5
        scale = max(1.0, true.abs().max().item())
        assert (found - true).abs().max() <= 1e-5 * scale, name


@pytest.mark.parametrize("reentrant", [False, True], ids=["", "reentrant"])
@every_case
def test_activation_checkpointing(cls, options, reentrant):
    module, batch = make(cls, options)
    start = torch.zeros((), requires_grad=True)  # what a reentrant one must have to be differentiated at all
    same(
        trained(module, batch, lambda batch: checkpoint(lambda _: module(batch), start, use_reentrant=reentrant)),
        reference(cls, options),
    )


@pytest.mark.parametrize("cls, options", CLASSES)
def test_activation_checkpointing_drops_the_same_units_again(cls, options):
    found = []
    for wrap in (lambda module: module, lambda module: lambda batch: checkpoint(module, batch, use_reentrant=False)):
        module, batch = make(cls, options, dropout=0.4)
        torch.manual_seed(2)
        found.append(trained(module, batch, wrap(module)))
    assert found[0].loss != reference(cls, options).loss
    same(found[1], found[0])


# ---- modules are modules ----


@every_case
def test_hooks_that_look_on(cls, options):
    module, batch = make(cls, options)
    seen, parts = set(), holders(module)
    for name, part in parts.items():
        part.register_forward_pre_hook(lambda *_, name=name: seen.add((name, "before")))
        part.register_forward_hook(lambda *_, name=name: seen.add((name, "after")))
        part.register_full_backward_hook(lambda *_, name=name: seen.add((name, "backward")))
    same(trained(module, batch), reference(cls, options))
    missing = {(name, when) for name in parts for when in ("before", "after", "backward")} - seen
    assert not missing, f"hooks that did not fire: {sorted(missing)}"


@every_case
def test_a_hook_that_changes_the_output_of_one_part(cls, options):
    missing = []
    module, batch = make(cls, options)
    start = copy.deepcopy(module.state_dict())
    for name in holders(module):
        module.load_state_dict(start)  # hard attention keeps a moving average
        calls = []

        def bend(part, given, out):
            calls.append(part)
            return tree_map_only(torch.Tensor, lambda x: torch.sin(3 * x) if x.is_floating_point() else x, out)

        hook = module.get_submodule(name).register_forward_hook(bend)
        loss = module(batch).item()
        hook.remove()
        if not calls or loss == pytest.approx(reference(cls, options).loss.item(), rel=1e-9):
            missing.append(f"{name}: called {len(calls)} times, loss {loss}")
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("cls, options", CLASSES)
def test_global_hooks_see_every_part(cls, options):
    module, batch = make(cls, options)
    seen = set()
    hook = nn.modules.module.register_module_forward_hook(lambda part, *_: seen.add(part))
    try:
        same(trained(module, batch), reference(cls, options))
    finally:
        hook.remove()
    missing = [name for name, part in holders(module).items() if part not in seen]
    assert not missing, missing


class _Scaled(nn.Module):
    def forward(self, weight):
        return 1.25 * weight

    def right_inverse(self, weight):
        return weight


def scaled(cls, options, chosen):
    """The model with some (module, attribute) scaled by parametrizations, and the same with other values, each with
    what it finds.
    """
    module, batch = make(cls, options)
    for name, attribute in chosen:  # of its own, if it was tied
        owner = module.get_submodule(name)
        setattr(owner, attribute, nn.Parameter(1.25 * getattr(owner, attribute).detach()))
    expected = trained(module, batch)
    twin, batch = make(cls, options)
    for name, attribute in chosen:
        owner = twin.get_submodule(name)
        setattr(owner, attribute, nn.Parameter(getattr(owner, attribute).detach()))
        parametrize.register_parametrization(owner, attribute, _Scaled())
    found = trained(twin, batch)
    pairs = {
        f"{name}.{attribute}": (
            twin.get_submodule(name).parametrizations[attribute].original.grad,
            getattr(module.get_submodule(name), attribute).grad,
        )
        for name, attribute in chosen
    }
    wrong = [
        f"{name}: gradient {got} for {1.25 * want}"
        for name, (got, want) in pairs.items()
        if got is None or not torch.allclose(got, 1.25 * want, rtol=1e-9, atol=1e-9)
    ]
    if found.loss.item() != pytest.approx(expected.loss.item(), rel=1e-9):
        wrong.append(f"{', '.join(pairs)}: loss {found.loss} for {expected.loss}")
    if found.loss.item() == pytest.approx(reference(cls, options).loss.item(), rel=1e-9):
        wrong.append(f"{', '.join(pairs)}: the loss is that of the plain model")
    return wrong


def attributes(cls, options):
    """(module, attribute) of each trained parameter."""
    return [
        (name, attribute)
        for name, part in holders(make(cls, options)[0]).items()
        for attribute, p in part.named_parameters(recurse=False)
        if p.requires_grad
    ]


@every_case
def test_parametrize_all(cls, options):
    wrong = scaled(cls, options, attributes(cls, options))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("cls, options", CLASSES)
def test_parametrize_one(cls, options):
    """Each in turn: a kernel that reads one weight past its module must not hide behind another that is not used
    then.
    """
    wrong = [line for pair in attributes(cls, options) for line in scaled(cls, options, [pair])]
    assert not wrong, "\n".join(wrong)


class _Adapter(nn.Module):
    """A low-rank adapter as peft puts it around a layer: the layer's attributes can still be read, its forward is
    another one.
    """

    def __init__(self, base, rank=2):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.base = base
        rows, columns = base.weight.shape
        self.down = nn.Parameter(torch.randn(rank, columns, generator=generator, dtype=base.weight.dtype))
        self.up = nn.Parameter(torch.randn(rows, rank, generator=generator, dtype=base.weight.dtype))

    def forward(self, x):
        if isinstance(self.base, nn.Embedding):
            return self.base(x) + nn.functional.embedding(x, self.up) @ self.down
        return self.base(x) + (x @ self.down.t()) @ self.up.t()

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "base":
                raise
            return getattr(self.base, name)


@every_class
def test_low_rank_adapters(cls, options):
    """Around each linear layer and embedding in turn; the model is then the one whose matrix is the sum."""
    wrong = []
    for name, part in holders(make(cls, options)[0]).items():
        if not isinstance(part, nn.Linear | nn.Embedding):
            continue
        module, batch = make(cls, options)
        adapter = _Adapter(module.get_submodule(name))
        replace(module, name, adapter)
        found = trained(module, batch)

        module, batch = make(cls, options)
        merged = copy.copy(module.get_submodule(name))  # one that another name has too keeps its weight there
        merged._parameters = {**merged._parameters}
        replace(module, name, merged)
        merged.weight = nn.Parameter((merged.weight + adapter.up @ adapter.down).detach())
        expected = trained(module, batch)
        gradient = merged.weight.grad @ adapter.down.t()
        right = adapter.up.grad is not None and torch.allclose(adapter.up.grad, gradient, rtol=1e-9, atol=1e-9)
        if not right or found.loss.item() != pytest.approx(expected.loss.item(), rel=1e-9):
            wrong.append(f"{name}: loss {found.loss} for {expected.loss}, gradient right: {right}")
    assert not wrong, "\n".join(wrong)


# ---- copies ----


def _pickled(module):
    return pickle.loads(pickle.dumps(module))


def _saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, _pickled, _saved], ids=["deepcopy", "pickle", "save"])
@every_class
def test_copies(cls, options, copied):
    """Of a model that was used; training the copy leaves the original as it is."""
    module, batch = make(cls, options)
    trained(module, batch)
    fresh, _ = make(cls, options)
    module.load_state_dict(fresh.state_dict())  # hard attention keeps a moving average
    again = copied(module)
    expected = reference(cls, options)
    same(trained(again, batch), expected)
    move(again, direction(again), 0.1)
    assert trained(again, batch).loss != expected.loss
    same(trained(module, batch), expected)


# ---- torch.func ----


@every_case
def test_functional_call_takes_other_weights(cls, options):
    module, batch = make(cls, options)
    other = {name: (0.7 * p).detach().requires_grad_() for name, p in parameters(module).items()}
    before = {name: p.detach().clone() for name, p in parameters(module).items()}
    loss = torch.func.functional_call(module, other, (batch,))
    loss.backward()
    found = Found(loss.detach(), {name: p.grad for name, p in other.items()})
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in parameters(module).items())
    moved, _ = make(cls, options)
    with torch.no_grad():
        for p in parameters(moved).values():
            p.mul_(0.7)
    same(found, trained(moved, batch))


@every_case
def test_functional_gradient(cls, options):
    module, batch = make(cls, options)
    weights = {name: p.detach() for name, p in parameters(module).items()}
    found, loss = torch.func.grad_and_value(lambda weights: torch.func.functional_call(module, weights, (batch,)))(
        weights
    )
    same(Found(loss, found), reference(cls, options))


@differentiable
def test_forward_mode(cls, options):
    """The slope along a vector, or an error where torch has no forward mode of its own."""
    module, batch = make(cls, options)
    weights, vector = {name: p.detach() for name, p in parameters(module).items()}, direction(module)
    try:
        loss, slope = torch.func.jvp(
            lambda weights: torch.func.functional_call(module, weights, (batch,)), (weights,), (vector,)
        )
    except NotImplementedError as error:
        assert "forward AD" in str(error)
        return
    expected = reference(cls, options)
    assert loss.item() == pytest.approx(expected.loss.item(), rel=1e-9)
    assert slope.item() == pytest.approx(
        sum((vector[name] * g).sum().item() for name, g in expected.gradients.items()), rel=1e-8
    )


# ---- more processes, less precision ----


@pytest.mark.integration
def test_two_processes(tmp_path):
    """Each has half of the batch, and DistributedDataParallel gives both the mean of their gradients."""
    torchrun(2, distributed, str(tmp_path))
    results, wrong = torch.load(tmp_path / "found.pt", weights_only=False), []
    for number, case in enumerate(MAIN):
        if isinstance(results[number], str):
            wrong.append(f"{case.id}: {results[number]}")
            continue
        parts = []
        for rank in range(2):
            module, batch = make(*case.values)
            parts.append(trained(module, half(batch, rank, 2)))
        mean = {name: (gradient + parts[1].gradients[name]) / 2 for name, gradient in parts[0].gradients.items()}
        try:
            same(results[number], Found(parts[0].loss, mean))
        except AssertionError as error:
            wrong.append(f"{case.id}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.numeric
@every_case
def test_autocast(cls, options):
    """bfloat16 has 8 bits: the loss within 3 %, and the gradient within a tenth of its length."""
    module, batch = make(cls, options, torch.float32)

    def call(batch):
        with torch.autocast("cpu", torch.bfloat16):
            return module(batch)

    found, expected = trained(module, batch, call), reference(cls, options)
    assert all(g.dtype == torch.float32 and g.isfinite().all() for g in found.gradients.values())
    assert found.loss.item() == pytest.approx(expected.loss.item(), rel=0.03)
    flat, true = (torch.cat([g.double().flatten() for g in f.gradients.values()]) for f in (found, expected))
    assert (flat - true).norm() <= 0.1 * true.norm()


# ---- construction without memory ----


@pytest.mark.parametrize("assign", [False, True])
@every_case
def test_construction_on_the_device_meta(cls, options, assign):
    """As in frameworks that shard large models: memory, and then values, come when all sizes are known."""
    module, batch = make(cls, options)
    expected = trained(module, batch)
    with torch.device("meta"):
        found = Loss(build(cls, **options).double().train())
    assert all(x.is_meta for x in found.parameters())
    if not assign:
        found.to_empty(device="cpu")
    found.load_state_dict(make(cls, options)[0].state_dict(), assign=assign)
    assert parameters(found).keys() == parameters(module).keys()  # tied ones are still one
    same(trained(found, batch), expected)


# ---- half precision ----


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@every_case
def test_weights_in_half_precision(cls, options, dtype):
    """Of a model in somebody's own code, after `half()` or `bfloat16()`."""
    found, expected = trained(*make(cls, options, dtype)), reference(cls, options)
    assert found.loss.item() == pytest.approx(expected.loss.item(), rel=0.03)
    assert all(gradient.isfinite().all() for gradient in found.gradients.values())
    model = make(cls, options, dtype)[0].model.eval()
    assert all(torch.is_tensor(x) for x in model.golden().values())  # searches too


@pytest.mark.parametrize("cls, options", CLASSES)
@pytest.mark.parametrize("precision", ["16-true", "bf16-true"])
def test_a_trainer_trains_no_weights_in_half_precision(cls, options, precision, tmp_path):
    model = make(cls, options, torch.float32)[0].model
    loader = DataLoader([model.example_batch(3)], batch_size=None)
    trainer = pl.Trainer(
        max_steps=1, precision=precision, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    with pytest.raises(ValueError, match=f"^precision must not be {precision}: .*; use (bf)?16-mixed, .* or 32-true$"):
        trainer.fit(model, loader)
