"""The precision of a training is one that the device computes in."""

import pytest
import torch
from lightning.pytorch.accelerators import MPSAccelerator

from zoo.tasks import precision
from zoo.tasks.precision import lacks_bf16
from zoo.training.precision import choose, device_type

XEON = "Intel(R) Xeon(R) Processor"


@pytest.fixture
def processor(monkeypatch):
    """Pretends to be a processor."""

    def pretend(
        machine="x86_64", name="AMD EPYC", avx512_bf16=False, amx=False, kernels="AVX512", mkldnn=True, limit=""
    ):
        monkeypatch.setattr(precision, "processor", lambda: name)
        monkeypatch.setattr(precision.platform, "machine", lambda: machine)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: kernels)
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: mkldnn)
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)

    return pretend


@pytest.mark.parametrize(
    ("features", "has_it"),
    [
        (dict(kernels="AVX2", mkldnn=False), False),
        (dict(), False),  # AVX-512 without bf16, of which mkldnn says that it can
        (dict(avx512_bf16=True), True),
        (dict(amx=True), True),
        (dict(amx=True, limit="AVX2"), False),
        (dict(amx=True, limit="AVX512_CORE"), False),
        (dict(amx=True, limit="AVX512_CORE_BF16"), False),
        (dict(amx=True, avx512_bf16=True, limit="AVX512_CORE_BF16"), True),
        (dict(amx=True, avx512_bf16=True, limit="AVX512_CORE_AMX", name=XEON), True),
        (dict(amx=True, avx512_bf16=True, limit="AVX512_CORE_BF16", name=XEON), False),
        (dict(amx=True, avx512_bf16=True, name=XEON), True),
        (dict(avx512_bf16=True, name=XEON), False),
        (dict(avx512_bf16=True, name="Intel64 Family 6 Model 143 Stepping 8, GenuineIntel"), False),  # on Windows
        (dict(amx=True, limit="default"), True),
        (dict(avx512_bf16=True, kernels="DEFAULT"), False),
        (dict(machine="aarch64", kernels="DEFAULT"), True),
        (dict(machine="arm64", kernels="DEFAULT", mkldnn=False), False),
    ],
)
def test_processors(processor, features, has_it):
    processor(**features)
    assert (lacks_bf16("cpu") is None) == has_it
    for recipe in ("bf16-mixed", "bf16"):
        chosen, line = choose(recipe, "cpu", asked=False)
        assert (chosen, line is None) == ((recipe, True) if has_it else ("32-true", False))
        chosen, line = choose(recipe, "cpu", asked=True)
        assert chosen == recipe and (line is None) == has_it
    assert choose("32-true", "cpu", asked=False) == ("32-true", None) == choose("32-true", "cpu", asked=True)


@pytest.mark.parametrize("has_it", [True, False])
def test_gpus(monkeypatch, has_it):
    def supported(including_emulation=True):
        return has_it or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert choose("bf16-mixed", "cuda", asked=False)[0] == ("bf16-mixed" if has_it else "32-true")
    assert choose("16-mixed", "cuda", asked=False) == ("16-mixed", None)


def test_apple_gpus_train_in_fp32():
    chosen, line = choose("bf16-mixed", "mps", asked=False)
    assert (
        chosen == "32-true"
        and line == "computing in 32-true instead of the recipe's bf16-mixed: bf16 is not faster on Apple GPUs"
    )


@pytest.mark.parametrize(("cuda", "mps", "found"), [(True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")])
def test_device_types(monkeypatch, cuda, mps, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(MPSAccelerator, "is_available", lambda: mps)
    assert device_type("auto") == device_type(None) == device_type("gpu") == found
    assert device_type("cpu") == "cpu" and device_type("cuda") == "cuda"
