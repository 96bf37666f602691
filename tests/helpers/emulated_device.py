"""Makes torch and Lightning know the device of emulated_device.cpp. Once a process, before the first backward pass."""

import os
import subprocess
import types
from pathlib import Path

import torch
from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
from lightning.pytorch.strategies import SingleDeviceStrategy, StrategyRegistry
from torch.utils.cpp_extension import include_paths, library_paths

NAME = "emulated"
LIBRARY = "ZOO_TEST_DEVICE"  # environment variable: the compiled emulated_device.cpp


def compile_device(library: Path) -> None:
    includes = [f"-isystem{path}" for path in include_paths()]
    folders = [option for path in library_paths() for option in (f"-L{path}", f"-Wl,-rpath,{path}")]
    source = Path(__file__).with_suffix(".cpp")
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-std=c++20", "-O1", *includes, source, "-o", library, *folders, "-lc10", "-ltorch_cpu", "-ltorch"],
        check=True,
    )  # fmt: skip


class _Accelerator(Accelerator):
    """What Lightning wants to know of a device."""

    @staticmethod
    def name() -> str:
        return NAME

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def parse_devices(devices: object) -> list[int]:
        return [0]

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        return [torch.device(NAME, 0)]

    def setup_device(self, device: torch.device) -> None:
        pass

    def get_device_stats(self, device: object) -> dict[str, float]:
        return {}

    def teardown(self) -> None:
        pass


def register() -> None:
    """Afterwards tensors may be on "emulated", and trainers have an accelerator and a strategy "emulated"."""
    torch.utils.rename_privateuse1_backend(NAME)
    found = {
        "is_available": True,
        "is_initialized": True,
        "_is_in_bad_fork": False,
        "device_count": 1,
        "current_device": 0,
    }
    module = types.ModuleType(f"torch.{NAME}")
    for name, value in found.items():
        setattr(module, name, lambda value=value: value)
    module.manual_seed_all = lambda seed: None
    module.get_rng_state, module.set_rng_state = torch.get_rng_state, torch.set_rng_state  # operators draw on the CPU
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    torch._register_device_module(NAME, module)
    torch.ops.load_library(os.environ[LIBRARY])
    torch.utils.generate_methods_for_privateuse1_backend()
    AcceleratorRegistry.register(NAME, _Accelerator)
    StrategyRegistry.register(NAME, SingleDeviceStrategy, device=torch.device(NAME, 0))
