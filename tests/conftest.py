"""Every test runs offline, on the CPU, with few threads; one each if pytest-xdist runs several side by side."""

import atexit
import gc
import os

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "ZOO_DATA": ""}
# The workers of pytest-xdist inherit the environment of the process that starts them, and so its default.
if "OMP_NUM_THREADS" not in os.environ or "ZOO_TEST_THREADS" in os.environ:
    os.environ |= {
        "OMP_NUM_THREADS": "1" if "PYTEST_XDIST_WORKER" in os.environ else "2",
        "ZOO_TEST_THREADS": "default",
    }

import signal
import socket
import sys
import tempfile

if "ZOO_TEST_CACHE" not in os.environ:  # the caches of whoever runs the tests are neither read nor filled
    cache = tempfile.TemporaryDirectory(prefix="zoo-test-cache-")
    os.environ |= {"ZOO_TEST_CACHE": "of its own", "ZOO_CACHE": cache.name}
    atexit.register(cache.cleanup)

import fakes
import jsonargparse
import pytest
import torch
from exported import (  # noqa: F401  # fixtures of several folders
    captioner,
    document_classifier,
    excluding_reader,
    language_model,
    pair_classifier,
    plain_translator,
    predictive_translator,
    reader,
    transformer,
    translator,
    treebank_model,
)
from hub_server import Hub
from model_cases import model_classes

from zoo import extensions, registry
from zoo.bundles.files import Bundle
from zoo.commands import cards


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What is computed in float64 is compared with something."""
    for item in items:
        if "float64" in item.fixturenames:
            item.add_marker(pytest.mark.numeric)


def pytest_xdist_auto_num_workers():
    """`-n auto`: one more than there are cores, because some tests wait for processes or time limits."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """A garbage collection looks through all that there is, and so copies it in each fork: here most is imported, and
    stays.
    """
    gc.freeze()
    atexit.register(gc.unfreeze)  # else nanobind reports leaks


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Lets processes of one test talk to each other, and nothing else."""
    connect = socket.socket.connect

    def local_only(self, address):
        if self.family != getattr(socket, "AF_UNIX", None) and address[0] not in ("127.0.0.1", "localhost", "::1"):
            raise AssertionError(f"a test tried to reach {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(autouse=True)
def no_rank_is_left():
    """A later training of this process would take itself for one of several, and end this process on a signal."""
    before = os.environ.get("LOCAL_RANK")
    yield
    assert os.environ.get("LOCAL_RANK") == before


@pytest.fixture
def toy_in_zoo(monkeypatch):
    """Makes `fakes.Toy` a class of `zoo.models`, the only place that weights may come from."""
    monkeypatch.setattr(fakes.Toy, "__module__", "zoo.models.toy")
    monkeypatch.setitem(sys.modules, "zoo.models.toy", fakes)


@pytest.fixture
def toy_registry(tmp_path, monkeypatch, toy_in_zoo):
    """A registry of two weights, `toy.v2` and `toy.v10`, with cards."""
    monkeypatch.setattr(registry, "BUNDLED", tmp_path / "weights")
    monkeypatch.setattr(registry, "PINS", tmp_path / "pins.json")
    monkeypatch.setattr(cards, "CARDS", tmp_path / "cards")
    cards.CARDS.mkdir()
    entries = []
    for name, hidden in [("toy.v10", 10), ("toy.v2", 2)]:
        model = fakes.Toy(hidden=hidden)
        folder = model.save_pretrained(registry.BUNDLED / name, half=True)
        entries.append(registry.Entry(name, Bundle(folder).config_sha256))
        (cards.CARDS / f"{name}.md").write_text(
            f"---\nname: {name}\ntask: capitals\nparameters: {1234567 * hidden}\n"
            f"scores:\n- {{split: test, metric: accuracy, value: 99.50}}\n---\n# Toy ß\n",
            encoding="utf-8",
        )
    monkeypatch.setattr(registry, "TABLE", registry._table(*entries))
    return tmp_path


@pytest.fixture
def nothing_registered(tmp_path):
    """What a test registers, and the modules that it imports for that, are gone afterwards."""
    tables = extensions.SCORES, extensions.ATTENTIONS, extensions.NORMALIZATIONS, registry._REGISTERED
    kept = [dict(table) for table in tables]
    types = {cls: dict(cls.__init__.__annotations__) for cls in model_classes()}
    modules, path = set(sys.modules), list(sys.path)
    parsers = getattr(jsonargparse._typehints, "_cached_class_parsers", {})  # of newer versions; a command has its own
    parsers.clear()
    yield
    parsers.clear()
    for table, before in zip(tables, kept):
        table.clear()
        table.update(before)
    for cls, before in types.items():
        cls.__init__.__annotations__.update(before)
    for name in set(sys.modules) - modules:
        if str(tmp_path.parents[1]) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def float64():
    """New tensors and modules are of double precision: what is compared with an equation is then exact to 1e-9, on
    every processor.
    """
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def hub():
    """A Hub on the loopback device."""
    with Hub() as found:
        yield found


@pytest.fixture
def remote(hub):
    """The Hub, empty."""
    hub.reset()
    return hub


@pytest.fixture
def heeded():
    """Python's own handlers: what starts pytest in the background, a shell or nohup, has it ignore SIGINT or SIGHUP, and
    so would `zoo`.
    """
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
