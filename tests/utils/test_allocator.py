import os
import subprocess
import sys

from zoo.utils.allocator import keep_freed_memory

CODE = """
import resource, sys
import torch
from zoo.utils.allocator import keep_freed_memory
if sys.argv[1] == "keep": keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.empty(10 * 2**20).fill_(1)
    if _ == 9: start = faults()
print(faults() - start)
"""


def test_freed_memory_is_used_again():
    """40 MB are allocated, written and freed ten times: their pages must not be mapped ten times."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}

    def run(how):
        done = subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=True, env=env)
        return int(done.stdout)

    keep_freed_memory()  # may be called at any time, anywhere
    assert run("keep") < 20
    if sys.platform.startswith("linux"):
        assert run("default") > 100  # 10,000 pages each time, or 20 huge ones
