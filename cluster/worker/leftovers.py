"""End orphaned processes of earlier trials of the same pool on this node.

A killed trial can leave children that run in a session of their own. A running trial descends from Ray, from its flow, or from a template
process, which kills it when its job ends; an orphan was adopted by init or a subreaper. An orphan would use the device and disturb the
measurement, so the next trial kills it before it starts and notes this in its journal.
"""

from __future__ import annotations

import os

import psutil

from cluster.process_marks import MARK, NO_TRIAL, POOL_MARK
from cluster.process_variables import variables


def end() -> list[str]:
    """Kill the orphans of this process's pool on this node. Returns a sentence for the journal for each one."""
    pool = os.environ.get(POOL_MARK)
    if not pool:
        return []
    notes, killed = [], []
    for process in psutil.process_iter():
        try:
            environment = variables(process)
            trial_key = environment.get(MARK)
            if environment.get(POOL_MARK) != pool or trial_key in (None, NO_TRIAL) or _runs(process):
                continue
            command = " ".join(process.cmdline())[:100]
            process.kill()
        except (psutil.Error, OSError):
            continue
        killed.append(process)
        notes.append(f"ended process {process.pid} ({command}), which trial {trial_key} had left on this node")
    psutil.wait_procs(killed, timeout=2)  # the device's memory is free once the process has ended
    return notes


def _runs(process: psutil.Process) -> bool:
    """True if the process descends from Ray or a template: it belongs to a running trial.

    Its own name says nothing: what a worker of Ray forked is still called `ray::...` once that worker is gone.
    """
    return any(_is_template(parent) or any(name.startswith(("raylet", "ray::")) for name in _names(parent)) for parent in process.parents())


def _is_template(process: psutil.Process) -> bool:
    try:
        return variables(process).get(MARK) == NO_TRIAL
    except (psutil.Error, OSError):
        return False


def _names(process: psutil.Process) -> list[str]:
    try:
        return [process.name(), *(part.rsplit("/", 1)[-1] for part in process.cmdline()[:1])]
    except psutil.Error:
        return []
