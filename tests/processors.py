"""Runs the numerically sensitive tests (marker `numeric`) as several kinds of processor would, with 1, 2 and 4 threads.

    python tests/processors.py                  all that this processor can stand in for
    python tests/processors.py -n auto          more arguments are pytest's
    python tests/processors.py -m "not slow and not gpu"    whatever .ci/run runs under each

The libraries below torch (ATen, oneDNN, MKL) choose their code by what the processor has, and other code rounds in
another order. Environment variables let them use less than there is.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Processor:
    """A kind of processor.

    Attributes:
        name: what is printed.
        needs: what this processor must have to stand in for it, as torch names it: "AVX2", "AVX512" or more.
        aten, onednn, mkl: what the libraries may use; empty: all.
        reproducible: MKL's code path of conditional numerical reproducibility, which ignores the maker of the
            processor.
    """

    name: str
    needs: str
    aten: str = ""
    onednn: str = ""
    mkl: str = ""
    reproducible: str = ""

    @property
    def environment(self) -> dict[str, str]:
        chosen = {
            "ATEN_CPU_CAPABILITY": self.aten,
            "ONEDNN_MAX_CPU_ISA": self.onednn,
            "MKL_ENABLE_INSTRUCTIONS": self.mkl,
            "MKL_CBWR": self.reproducible,
        }
        return {name: value for name, value in chosen.items() if value}


PROCESSORS = (
    Processor("this one", ""),
    Processor("SSE4", "SSE4", "default", "SSE41", "SSE4_2", "COMPATIBLE"),
    Processor("AVX", "AVX", "default", "AVX", "AVX", "AVX"),
    Processor("AVX2, ATen without", "AVX2", "default", "AVX2", "AVX2"),
    Processor("AVX2", "AVX2", "avx2", "AVX2", "AVX2"),
    Processor("AVX2, MKL for all makers", "AVX2", "avx2", "AVX2", "", "AVX2"),
    Processor("AVX2, oneDNN with AVX", "AVX2", "avx2", "AVX", "", "COMPATIBLE"),
    Processor("AVX-512", "AVX512", "avx512", "AVX512_CORE", "AVX512", "AVX512"),
    Processor("AVX-512, ATen with AVX2", "AVX512", "avx2", "AVX512_CORE", "AVX512"),
    Processor("AVX-512 with bfloat16", "AVX512_BF16", "avx512", "AVX512_CORE_BF16", "AVX512"),
    Processor("AMX", "AMX", "avx512", "AVX512_CORE_AMX", "AVX512"),
)
THREADS = (1, 2, 4)


def abilities() -> set[str]:
    """What this processor has."""
    has = torch.cpu.get_capabilities()
    flags = {
        "SSE4": ("sse4_2",),
        "AVX": ("avx",),
        "AVX2": ("avx2", "fma3"),
        "AVX512": ("avx512_f", "avx512_bw", "avx512_dq", "avx512_vl"),
        "AVX512_BF16": ("avx512_bf16",),
        "AMX": ("amx_tile", "amx_bf16"),
    }
    return {"", *(name for name, needed in flags.items() if all(has.get(flag, False) for flag in needed))}


def main(arguments: list[str]) -> int:
    """Runs pytest once for each kind of processor and number of threads; returns how many runs failed."""
    here, failed = abilities(), []
    marked = [] if "-m" in arguments else ["-m", "numeric and not slow and not gpu"]
    for processor in PROCESSORS:
        if processor.needs not in here:
            print(f"{processor.name}: skipped, this processor has no {processor.needs}", flush=True)
            continue
        for threads in THREADS:
            count = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
            run = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *marked, *arguments],
                cwd=Path(__file__).parent.parent,
                env=os.environ | count | processor.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            lines = run.stdout.splitlines()
            print(f"{processor.name}, {threads} threads: {lines[-1] if lines else 'no output'}", flush=True)
            if run.returncode:
                failed.append(f"{processor.name}, {threads} threads")
                print("\n".join(line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))), flush=True)
    print("failed under: " + "; ".join(failed) if failed else "passed under each")
    return min(len(failed), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
