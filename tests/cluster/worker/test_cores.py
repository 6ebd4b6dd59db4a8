"""A rank's share of the host's cores."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cluster.worker.cores import share_of_cores
from experiments.components.workload import Unsupported


def test_ranks_have_as_many_cores_each_and_none_in_common() -> None:
    available = set(range(2, 18))
    assert [sorted(share_of_cores(available, 4, rank)) for rank in (0, 1, 3)] == [[2, 3, 4, 5], [6, 7, 8, 9], [14, 15, 16, 17]]


def test_a_host_with_too_few_is_unsupported() -> None:
    with pytest.raises(Unsupported, match=r"cores_per_device 4: rank 4 of this host would need core 20 of 16"):
        share_of_cores(set(range(16)), 4, 4)


def test_threads_that_run_and_processes_that_start_later_are_held() -> None:
    code = (
        "import os, subprocess, sys, threading\n"
        "from cluster.worker.cores import hold_to_cores\n"
        "over = threading.Event(); thread = threading.Thread(target=over.wait); thread.start()\n"
        "hold_to_cores(None, 0); before = os.sched_getaffinity(0)\n"
        "hold_to_cores(1, 0)\n"
        "told = 'import os; print(sorted(os.sched_getaffinity(0)))'\n"
        "later = subprocess.run([sys.executable, '-c', told], capture_output=True, text=True)\n"
        "held = sorted(os.sched_getaffinity(thread.native_id)); over.set()\n"
        "print([len(before), held, sorted(os.sched_getaffinity(0)), later.stdout.strip()])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first = [min(os.sched_getaffinity(0))]
    assert done.stdout.strip() == str([len(os.sched_getaffinity(0)), first, first, str(first)])
