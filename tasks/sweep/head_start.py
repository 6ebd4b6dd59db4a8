"""Begin a sweep's first trial beside the start of what its flow needs: a Prefect server and libraries, some seconds each.

The command that starts the flow in its own process begins the trial under the sweep's lease; the flow takes it over, with its slots, its
launcher and the launcher's template process. The trial is recorded as any other (launch.json), so that a resume finds it if the command
dies in between. What the flow does not take over is ended.

Where the start of the flow would disturb the trial, the trial waits, before it sets up anything, until it is taken over: a figure such as
the time to the first step counts from there. It waits for a file lock (cluster/worker/hold.py), which a dead command does not hold.

The template's imports need a core and no accelerator. Where a start disturbs nothing that is measured, the slots are taken after them:
until then others may use the device.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from filelock import FileLock

from cluster.launchers.local import LocalLauncher
from cluster.launchers.template import TemplateError, shared_templates
from cluster.pools.node_locks import NodeLocks
from cluster.pools.pool import Pool, find_pool, load_pools
from cluster.trial_layout import HOLD, SLOTS
from experiments.trial import Outcome, Trial
from tasks.sweep import deadline, own_data
from tasks.sweep.attempt_end import flow_result
from tasks.sweep.begin_attempt import Attempt, AttemptStarter
from tasks.sweep.failure_policy import Policy
from tasks.sweep.pool_slots import PoolSlots
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.slot_log import SlotLog
from tasks.sweep.store import Plan, SweepStore
from tasks.sweep.trial_context import TrialContext
from tasks.sweep.what_is_left import what_is_left

FEW_CORES = 8  # the server and the flow's imports take two for some seconds; a trial on an accelerator needs some for its loaders


@dataclass(frozen=True)
class Begun:
    """What the flow takes over: the trial's slots, which are locked, and its attempt."""

    slots: NodeLocks
    attempt: Attempt


class HeadStart:
    """The first trial of a sweep, begun in a thread of its own. The flow goes on with its `launcher` and its `slot_log`."""

    def __init__(self, store: SweepStore, trial: Trial, launcher: LocalLauncher, slots: NodeLocks, *, held: bool) -> None:
        """`slots`: the trial's. `held`: they are locked already, and the trial waits until it is taken over. It begins with `begin`."""
        self.trial, self.launcher, self.slot_log = trial, launcher, SlotLog(store.dir / SLOTS)
        self._store, self._slots, self._folder = store, slots, store.trial_dir(trial.key)
        self._hold = FileLock(self._folder / HOLD, thread_local=False) if held else None
        self._attempt: Attempt | None = None
        # Nobody joins the thread: in Python 3.11 a join that Ctrl-C interrupts takes the thread for ended, and every later one returns
        # at once. The thread holds the lock while it begins the trial; `_tried`: it is done with that, or will not do it.
        self._stop, self._tried, self._over, self._lock = threading.Event(), threading.Event(), False, threading.Lock()
        self._has_slots = False
        if self._hold:
            self._hold.acquire(timeout=1)  # not 0: a process of the trial that a dead command left takes it for a moment
            self._take_slots()

    def begin(self) -> None:
        """Let the trial begin, in the thread. From here on `end` is due, also where this is interrupted."""
        threading.Thread(target=self._begin, name="first trial", daemon=True).start()

    def _begin(self) -> None:
        try:
            with self._lock:
                if self._stop.is_set():  # ended before this thread came to it
                    return
                template = self.launcher.prepare(self.trial, self._folder)
                own_data.make_ready(self.trial)
                if template is not None and not self._hold:
                    with suppress(TemplateError):  # the launcher will meet it too, and say so
                        template.wait_until_ready()
                if not self._take_slots():
                    return
                watch = PoolWatch(self.trial.pool, wait_s=0.0)
                parts = (self._store, self.launcher, Policy(), self._stop, lambda trial, attempt, records: None, watch)
                context = TrialContext(*parts, starting=self.slot_log.started)
                attempt = AttemptStarter(context, self.trial).begin()
                self._attempt = attempt if isinstance(attempt, Attempt) else None  # the flow takes a result for itself
        except Exception:  # noqa: S110 - the flow then begins it, meets the same, and has the patience and the words for it
            pass
        finally:
            self._tried.set()

    def _take_slots(self) -> bool:
        """Lock them, unless they are; False if another sweep measures there by now."""
        if not self._has_slots and (names := self._slots.take()):
            self._has_slots = True
            self.slot_log.taken(self.trial.key, self.trial.pool, names, time.time())
        return self._has_slots

    def settle(self, plan: Plan) -> Trial | None:
        """Wait until the trial has begun, and return it. None, and its slots are free, where it did not or is not in the plan any more."""
        self._tried.wait()
        if self.trial.key not in {trial.key for trial in plan.trials}:
            self.end("the sweep's code or data changed meanwhile")
        elif self._attempt is None:
            self._release()
        return None if self._over else self.trial

    def take_over(self, trial: Trial) -> Begun | None:
        """The slots and the attempt of this trial, which goes on: they are the caller's. None for every other trial, and a second time."""
        with self._lock:
            if self._over or self._attempt is None or trial.key != self.trial.key:
                return None
            self._over = True
        if self._hold:
            self._hold.release()
        return Begun(self._slots, self._attempt)

    def end(self, reason: str) -> None:
        """Stop the trial unless it was taken over, and record that it was cancelled. `reason`: why. Raises LaunchError, OSError."""
        self._stop.set()
        with self._lock:  # one that is being started is waited for: what is asked of a template cannot be taken back
            if self._over:
                return
            try:
                if self._attempt is not None:
                    self._cancel(self._attempt, reason)
                self.launcher.close()
            finally:
                self._release()

    def _cancel(self, attempt: Attempt, reason: str) -> None:
        self.launcher.stop(attempt.launch)
        result = self._store.result(self.trial.key)
        if result is None or result.attempt != attempt.launch.attempt:
            self._store.save_result(flow_result(self.trial, attempt.launch.attempt, Outcome.CANCELLED, reason, time.time()))

    def _release(self) -> None:
        self._over = True
        if self._hold:
            self._hold.release()
        if self._has_slots:
            self._slots.give_back()
            self.slot_log.given_back(self.trial.key)


@contextmanager
def template_ahead(plan: Plan) -> Iterator[None]:
    """Inside the block, the template that a new sweep's first trial is forked from makes its imports, which take seconds.

    This process meanwhile makes its own. For a saved plan, with the variables set that trials are to have.
    """
    trial = plan.trials[0]
    pool = find_pool(load_pools(), trial.pool)
    with shared_templates():
        if pool.embedded:
            LocalLauncher(pool).prepare(trial, SweepStore(plan.sweep_id).trial_dir(trial.key))
        yield


@contextmanager
def head_start(store: SweepStore, plan: Plan) -> Iterator[HeadStart | None]:
    """Begin the first trial of what is left of a sweep, inside the block. None where that is the flow's: see `_first`.

    For the holder of the sweep's lease, with a saved plan. At the end of the block what nobody took over is ended.
    """
    first = _hold_first(store, plan)
    try:
        if first is not None:
            first.begin()
        yield first
    finally:
        if first is not None:
            first.end("the sweep's flow did not begin")


def _hold_first(store: SweepStore, plan: Plan) -> HeadStart | None:
    """It has not begun. Its slots are free for it, and locked where it is to wait until it is taken over."""
    trial = _first(store, plan)
    pool = find_pool(load_pools(), trial.pool) if trial else None
    if trial is None or pool is None or not pool.embedded:
        return None
    slots = PoolSlots(pool, plan.trials).hold(trial, threading.Event(), lambda: None)
    if not slots.take():  # another sweep measures there
        return None
    if not (held := is_disturbed_by_a_start(pool)):
        slots.give_back()
    return HeadStart(store, trial, LocalLauncher(pool), slots, held=held)


def _first(store: SweepStore, plan: Plan) -> Trial | None:
    """The trial that the flow would begin first. None if it has others to follow or to stop before: what an earlier flow left.

    None also for a trial of another commit, whose code may not know that it is to wait until the flow has started, and for one for which
    there is no time.
    """
    left = what_is_left(store, plan)
    if left.begun or left.damaged or plan.superseded or not left.rest or left.rest[0].commit:
        return None
    ends = deadline.CURRENT.get()
    return left.rest[0] if ends is None or ends.fits(left.rest[0], store, plan) else None


def is_disturbed_by_a_start(pool: Pool) -> bool:
    """Whether the start of a flow would show in what is measured on this embedded pool: on a CPU, and on a host with few cores."""
    return pool.device == "cpu" or len(os.sched_getaffinity(0)) < FEW_CORES
