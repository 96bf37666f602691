import sys

import process_worker
from forks import Fork

from zoo.utils.allocator import keep_freed_memory


def test_freed_memory_is_used_again():
    """40 MB are allocated, written and freed ten times: their pages must not be mapped ten times."""
    keep_freed_memory()  # may be called at any time, anywhere
    run = Fork(process_worker.page_faults).wait()
    assert run.code == 0, run.output
    default, kept = map(int, run.output.split())
    assert kept < 20
    if sys.platform.startswith("linux"):
        assert default > 100  # 10,000 pages each time, or 20 huge ones
