"""What a flow does when it is told to stop: by Ctrl-C, SIGTERM, a cancel in Prefect, `sweep stop`, or by an error of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from prefect.runtime import flow_run

from cluster import launchers
from experiments.config.errors import DamagedFile
from experiments.trial import Trial
from flows.runtime import prefect_runs
from flows.runtime.interrupts import TerminalClosed, ending
from flows.runtime.session import Session
from tasks.sweep.what_is_left import end_is_unknown


def until_stopped(session: Session, work: Callable[[], None]) -> BaseException | None:
    """Do the work. Whatever interrupts it stops the trials first, and is returned."""
    watch_ended = threading.Event()
    watcher = threading.Thread(target=session.stop.watch_file, args=(watch_ended,), name="stop", daemon=True)
    watcher.start()
    try:
        work()
        return None
    except BaseException as error:  # SIGTERM and Ctrl-C are no Exceptions
        with ending():
            stop_trials(session, _reason(error))
        return error
    finally:
        watch_ended.set()
        watcher.join()


def stop_trials(session: Session, reason: str) -> None:
    """Stop every trial and wait until none of their processes is left and their ends are recorded."""
    session.stop.request(reason)
    for trial in session.plan.trials:  # what no thread of ours follows
        with suppress(launchers.LaunchError, DamagedFile):  # a damaged one is kept aside and stopped by the next flow
            folder, result = session.store.trial_dir(trial.key), session.store.result(trial.key)
            if result is None or (not result.outcome.final and end_is_unknown(launchers.load(folder), result)):
                launch = launchers.find(trial, folder, partial(_launcher, session, trial))
                if launch is not None:
                    _launcher(session, trial).stop(launch)


def _launcher(session: Session, trial: Trial) -> launchers.Launcher:
    return session.pools[trial.pool].launcher


def _reason(error: BaseException) -> str:
    if isinstance(error, TerminalClosed):
        return "the terminal was closed (SIGHUP)"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted (Ctrl-C)"
    if type(error).__name__ == "TerminationSignal":
        if prefect_runs.being_cancelled(str(flow_run.id)):
            return "cancelled in Prefect"
        return f"process {os.getpid()} was told to end (SIGTERM)"
    return f"the sweep failed: {type(error).__name__}: {error}"
