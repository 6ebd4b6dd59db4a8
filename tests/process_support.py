"""What processes run: those of a trial, and any other."""

from __future__ import annotations

import psutil

from cluster.launchers import processes
from cluster.process_variables import variables


def command_of(process: psutil.Process) -> list[str]:
    """Its command, also where it has only just been started: during exec a process shows none. Empty where it has ended."""
    try:
        variables(process)  # returns once the exec is over
        return process.cmdline()
    except psutil.NoSuchProcess:  # of one that its parent has not yet waited for, psutil raises a ZombieProcess, which is one too
        return []


def commands_of(key: str) -> dict[psutil.Process, list[str]]:
    """The command of each process of the trial, without those that end while they are asked."""
    return {process: command for process in processes.of_trial(key) if (command := command_of(process))}
