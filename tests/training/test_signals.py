"""How a training ends on a signal."""

import os
import subprocess
import sys

import pytest

CLEANING = """
import os, signal, sys, time
from zoo.training import signals
signals.GRACE = 0.1
with signals.ending_by_signal(lambda number: print("stopped", number), lambda: []):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep({handled})
    finally:
        time.sleep(0.7)
        print("clean")
"""


@pytest.mark.parametrize("started", [False, True])
def test_a_process_of_its_own_may_clean_up_for_longer(started):
    """On a busy machine the rest of a step takes seconds. Only processes that wait for each other may never end."""
    alone = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
    environment = {**alone, "LOCAL_RANK": "0"} if started else alone
    command = [sys.executable, "-c", CLEANING.format(handled=5)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (143, "")
    assert run.stdout == ("stopped 15\n" if started else "clean\nstopped 15\n")
