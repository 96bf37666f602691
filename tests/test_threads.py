"""The tests themselves: several processes do not fight for the cores."""

import os

import torch


def test_a_process_among_others_has_one_thread():
    if "ZOO_TEST_THREADS" in os.environ:  # else the caller chose
        assert torch.get_num_threads() == (1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
