"""Processes of a trial, and what they run."""

from __future__ import annotations

import psutil

from cluster.launchers import processes


def commands_of(key: str) -> dict[psutil.Process, list[str]]:
    """The command of each process of the trial, without those that end while they are asked."""
    found = {}
    for process in processes.of_trial(key):
        try:
            found[process] = process.cmdline()
        except psutil.NoSuchProcess:  # of one that its parent has not yet waited for, psutil raises a ZombieProcess, which is one too
            continue
    return found
