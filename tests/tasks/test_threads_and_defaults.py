"""A model is used by several threads, in the middle of a training, and under other defaults of torch: always the same
answers.
"""

from concurrent.futures import ThreadPoolExecutor

import bundle_corpus
import pytest
import torch
from bundle_corpus import use
from lightning.pytorch.utilities.compile import from_compiled

import zoo
from zoo import registry
from zoo.bundles.files import local_dir
from zoo.bundles.publish import check_golden
from zoo.models.luong import LuongNMT

BUNDLED = [name for name in registry.list_models() if registry.is_bundled(name)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Name -> folder of a tiny model of each task."""
    folder = tmp_path_factory.mktemp("tiny")
    return {name: bundle_corpus.write(files, folder / name) for name, files in bundle_corpus.bundles().items()}


TASKS = ["translator", "classifier", "document", "captioner", "writer", "reader"]


@pytest.mark.parametrize("task", TASKS)
def test_a_model_in_training_answers_as_in_eval_mode(tiny, task):
    """And is in training as before, each part of it."""
    model = zoo.load(f"local-dir:{tiny[task]}", {"dropout": 0.9} if task != "reader" else None)
    expected, golden = use(model), model.golden()
    model.train()
    modes = {name: module.training for name, module in model.named_modules()}
    assert use(model) == expected
    assert all(torch.equal(value, golden[key]) for key, value in model.golden().items())
    assert {name: module.training for name, module in model.named_modules()} == modes
    list(model.children())[0].eval()  # one part only
    assert use(model) == expected


@pytest.mark.parametrize("task", TASKS)
def test_threads_do_not_change_the_mode_of_each_other(tiny, task):
    """One of them switches between training and evaluation, as a training with validation does, while others ask."""
    model = zoo.load(f"local-dir:{tiny[task]}", {"dropout": 0.9} if task != "reader" else None)
    expected = use(model)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(use, model) for _ in range(12)]
        while not all(one.done() for one in asked):
            model.train()
            assert model.training and all(
                module.training for module in model.modules() if "encoder" not in type(module).__name__.lower()
            )
            model.eval()
    assert [one.result() for one in asked] == [expected] * 12


@pytest.mark.parametrize("setting", ["float64", "meta"])
@pytest.mark.parametrize("task", TASKS)
def test_other_defaults_of_torch(tiny, task, setting):
    expected = use(zoo.load(f"local-dir:{tiny[task]}"))
    try:
        if setting == "meta":
            torch.set_default_device("meta")
        else:
            torch.set_default_dtype(torch.float64)
        model = zoo.load(f"local-dir:{tiny[task]}")
        assert {(t.dtype, t.device.type) for t in model.parameters()} == {(torch.float32, "cpu")}
        assert use(model) == expected
        again = zoo.load(
            f"local-dir:{tiny[task]}", {"num_classes": 4} if task == "document" else None
        )  # a part of it is built anew
        assert {(t.dtype, t.device.type) for t in again.parameters()} == {(torch.float32, "cpu")}
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("setting", ["float64", "meta"])
@pytest.mark.parametrize("name", [*BUNDLED[:1], *(pytest.param(name, marks=pytest.mark.slow) for name in BUNDLED[1:])])
def test_golden_output_under_other_defaults(name, setting):
    try:
        if setting == "meta":
            torch.set_default_device("meta")
        else:
            torch.set_default_dtype(torch.float64)
        check_golden(zoo.load(name), local_dir(str(registry.BUNDLED / name)))
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


def test_a_double_model_stays_double(tiny):
    model = zoo.load(f"local-dir:{tiny['translator']}")
    expected = use(model)
    double = zoo.load(f"local-dir:{tiny['translator']}").double()
    try:
        torch.set_default_dtype(torch.float64)
        found = double.translate(bundle_corpus.TEXTS)
    finally:
        torch.set_default_dtype(torch.float32)
    assert [out.text for out in found] == [out.text for out in model.translate(bundle_corpus.TEXTS)] and use(
        model
    ) == expected


def test_hooks_get_the_modules_of_the_model(tiny):
    model = zoo.load(f"local-dir:{tiny['translator']}")
    names, seen = {module: name for name, module in model.named_modules()}, set()
    handles = [module.register_forward_hook(lambda module, *_: seen.add(names[module])) for module in names]
    expected = use(model)
    assert {"encoder.layers.0.0", "attention"} <= seen
    for handle in handles:
        handle.remove()
    assert use(model) == expected


def test_an_own_class_keeps_what_it_stores(tiny):
    class Watching(LuongNMT):
        def encode(self, src, src_lengths):
            self.seen = src.clone()
            return super().encode(src, src_lengths)

    found = zoo.load(f"local-dir:{tiny['translator']}")
    model = Watching(**found.config).eval()
    model.load_state_dict(found.state_dict())
    model.load_assets(found.assets())
    use(model)
    assert model.seen.shape[0] > 0


@pytest.mark.parametrize("compiled", ["method", "part"])
def test_a_compiled_part_has_no_dropout_in_a_verb(tiny, compiled):
    model = zoo.load(f"local-dir:{tiny['translator']}", {"dropout": 0.9})
    expected = use(model)
    model.train()
    if compiled == "method":
        model.dropout.compile(backend="eager")
    else:
        model.dropout = torch.compile(model.dropout, backend="eager")
    assert all(use(model) == expected for _ in range(3))
    assert model.dropout.training


def test_a_replaced_forward_in_training_mode_is_refused(tiny):
    """It would run the original, with dropout."""
    model = zoo.load(f"local-dir:{tiny['translator']}", {"dropout": 0.9})
    expected, forward = use(model), model.dropout.forward
    model.dropout.forward = lambda x: forward(x)
    assert use(model) == expected
    model.train()
    with pytest.raises(ValueError, match=r"forward of dropout was replaced by a function.*call eval\(\) on the model"):
        use(model)


def test_what_lightning_leaves_in_place_of_forward_is_no_replacement(tiny, tmp_path):
    """After a run of several processes it is the class's own, bound to the model; of a compiled model the compiled."""
    model = zoo.load(f"local-dir:{tiny['translator']}", {"dropout": 0.9})
    expected = use(model)
    model.train()
    model.forward = model.forward
    assert use(model) == expected and "forward" in vars(model)
    from_compiled(torch.compile(model, backend="eager"))
    assert use(model) == expected
