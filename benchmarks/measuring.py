"""What the scripts of this folder share: the device, its clock, its memory and what its matrix products alone take."""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from zoo.tasks.precision import lacks_bf16
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.memory import peak_memory

Job = Callable[[], object]
Clock = Callable[[], float]
Name = TypeVar("Name", bound=Hashable)
_clock: Clock = time.perf_counter  # see `parse`


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options, `--device` among them; sets the process up for them and names the GPU, if it is one."""
    global _clock
    parser.add_argument("--device", type=torch.device, default="cpu", help='"cpu" or a GPU, e.g. "cuda"')
    options = parser.parse_args()
    if options.threads == 1 and options.device.type == "cpu":
        _clock = time.process_time  # other programs on the machine do not count
    if why := lacks_bf16(options.device.type):
        print(f"fp32 only: {why}")
    prepare(options.threads)
    if options.device.type == "cuda":
        print(torch.cuda.get_device_name(options.device))
    return options


def prepare(threads: int) -> None:
    keep_freed_memory()  # as the command line does
    torch.set_num_threads(threads)
    torch.backends.cudnn.allow_tf32 = False  # nor does torch.mm use it: fp32 means the same on both sides


def on(batch: Any, device: torch.device) -> Any:
    """The batch (tensors in tuples, lists or dicts) on the device."""
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), batch)


def precisions(device: torch.device) -> dict[str, torch.dtype]:
    """fp32, and bf16 where the device computes in it."""
    return {"fp32": torch.float32} | ({} if lacks_bf16(device.type) else {"bf16": torch.bfloat16})


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Mixed precision for a `dtype` below float32."""
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def cast(job: Job, device: torch.device, dtype: torch.dtype) -> Job:
    """The job under `autocast`, entered at each call: until it is left, it keeps the weights that it has cast."""

    def run() -> None:
        with autocast(device, dtype):
            job()

    return run


def synchronize(device: torch.device) -> None:
    """Waits for the work that the device has been given. The CPU has done it already."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def seconds(function: Job, device: torch.device, clock: Clock | None = None) -> float:
    """Seconds of one call."""
    clock = clock or _clock
    synchronize(device)
    start = clock()
    function()
    synchronize(device)
    return clock() - start


def best(function: Job, device: torch.device, rounds: int = 5, warm: int = 1) -> float:
    """Seconds of the fastest of several calls."""
    for _ in range(warm):
        function()
    return min(seconds(function, device) for _ in range(rounds))


def fastest(jobs: dict[Name, Job], rounds: int, device: torch.device, clock: Clock | None = None) -> dict[Name, float]:
    """Least seconds of each job, alternated: a change of the machine's pace meets all."""
    found = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            found[name] = min(found[name], seconds(job, device, clock))
    return found


def product_seconds(rows: int, k: int, n: int, dtype: torch.dtype, backward: bool, device: torch.device) -> float:
    """Seconds of the product (rows, k) x (k, n), if `backward` with the two of its gradients."""
    shapes = (rows, k), (n, k), (rows, n)
    x, w, g = (torch.randn(*shape, dtype=dtype, device=device) for shape in shapes)
    calls = 64 if device.type != "cpu" else 8 if rows <= 512 else 1  # a GPU is kept busy: no wait for single ones

    def run() -> None:
        for _ in range(calls):
            torch.mm(x, w.t())
            if backward:
                torch.mm(g, w)
                torch.mm(g.t(), x)

    return best(run, device, rounds=4, warm=2) / calls


def high_water(device: torch.device) -> float:
    """Most memory this process ever had, in MB: of the GPU, or of the machine."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return (peak_memory() or 0) / 2**20


def peak(
    make: Callable[..., tuple[dict[str, Job], int]], arguments: tuple, job: str, threads: int, device: torch.device
) -> float:
    """MB beyond what the process had before the job `make(*arguments, device)[0][job]`, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_report_peak, args=(make, arguments, job, threads, device, queue))
    process.start()
    found = queue.get()
    process.join()
    return found


def _report_peak(make: Callable, arguments: tuple, job: str, threads: int, device: torch.device, result: Any) -> None:
    prepare(threads)
    found, _ = make(*arguments, device)
    before = high_water(device)
    found[job]()
    result.put(high_water(device) - before)
