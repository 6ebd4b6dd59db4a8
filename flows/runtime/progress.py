"""Where each trial of a running sweep stands, for whoever draws it: the terminal's live table, Prefect's artifacts."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from cluster.journal.lines import Record
from cluster.pools.lanes import lanes, together_s
from experiments.trial import Outcome, Trial, TrialResult
from tasks.report.text_format import listed
from tasks.sweep.batch_search import known_text
from tasks.sweep.pool_slots import IN_USE

_BRIEFLY_S = 5.0  # a shorter wait needs no line
SEARCHING = "searching the largest batch"  # of a trial whose batch_size is max; what is known so far follows
IN_USE_BY = "in use by"  # begins what is said of a pool that another sweep holds: it is not broken, so it does not "answer again"

CURRENT: ContextVar[SweepProgress | None] = ContextVar("progress", default=None)


@dataclass
class TrialProgress:
    """One trial. Rates are over the measured steps seen so far. `steps`: as many as it runs, or at least if a part is to
    last some time.

    `started` and `ended` are of this process's clock, monotonic s; of a trial that an earlier flow ran `started` is None.
    """

    trial: Trial
    state: str = "waiting"
    result: TrialResult | None = None
    attempt: int = 0
    step: int = 0
    steps: int = 0
    loss: float | None = None
    samples_per_s: float | None = None
    emulated: bool = False
    earlier: bool = False  # it had ended before this flow
    started: float | None = None
    ended: float | None = None
    waits_since: float = field(default=0.0, repr=False)  # for what its state says, monotonic s
    others: Sequence[str] = ()  # who holds the slots that it waits for, where that is not its own sweep; "": somebody
    _measured: int = field(default=0, repr=False)
    _samples: float = field(default=0.0, repr=False)
    _seconds: float = field(default=0.0, repr=False)

    def begin_attempt(self, attempt: int) -> None:
        """Forget what its journal said before."""
        self.attempt, self.step, self._measured, self._samples, self._seconds = attempt, 0, 0, 0.0, 0.0
        self.loss, self.samples_per_s = None, None

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it has not."""
        return self.result.outcome if self.result else None

    @property
    def share(self) -> float:
        """How much of its steps, and of the time that it is to measure, is done: 0 to 1. Set-up before the first step does not count, and
        neither does a warm-up that is to last some time: nobody knows how many steps it has."""
        timed = self.trial.parameters.get("warmup_s") is not None
        steps, of = (self._measured, int(self.trial.parameters["steps"])) if timed else (self.step, self.steps)
        done = steps / of if of else 0.0
        measure_s = self.trial.parameters.get("measure_s")
        return min(1.0, done if measure_s is None else min(done, self._seconds / measure_s))

    @property
    def elapsed_s(self) -> float | None:
        """For how long it has run, or ran; None before it begins."""
        if self.result is not None:
            return self.result.finished_at - self.result.started_at
        return None if self.started is None else time.monotonic() - self.started


class SweepProgress:
    """Rows by trial key, in the sweep's order. Written by the flow's threads, read by one drawer."""

    def __init__(self, trials: Sequence[Trial] = (), expected_s: dict[str, float] | None = None, *, metric: str | None = None) -> None:
        """`metric`: the one that a drawer compares trials by; None: nothing is compared."""
        self._compared = () if metric is None else (metric, f"{metric}_low", f"{metric}_high")
        self.rows: dict[str, TrialProgress] = {}
        self.lock = threading.Lock()
        self.note = ""
        self.began = time.monotonic()
        self.grows = False  # further rounds may come
        self.most: int | None = None  # trials in all, if that is known
        self.ended: tuple[int, str] | None = None  # exit status and a line for people; None: the flow did not come to its end
        self.pools: dict[str, str] = {}  # pool -> what is wrong with it
        self.prefect: str | None = None  # what is wrong with Prefect, which trials do not need
        self.mlflow: str | None = None  # what publishing waits for
        self.expected_s = expected_s or {}
        self._lanes: dict[str, str] = {}  # of the trials' pools, read once: the live table asks several times a second
        self.fill(trials)

    def fill(self, trials: Sequence[Trial]) -> None:
        """Take the trials of a plan."""
        with self.lock:
            for trial in trials:
                total = int(trial.parameters["steps"]) + int(trial.parameters["warmup_steps"])
                self.rows.setdefault(trial.key, TrialProgress(trial, steps=total))
            if not self._lanes.keys() >= (pools := {trial.pool for trial in trials}):
                self._lanes = lanes(self._lanes.keys() | pools)

    def wait(self, trial: Trial, reason: str, others: Sequence[str] = ()) -> None:
        """A trial has not begun: what it waits for. `others`: who holds its slots, where that is not its own sweep; "" for somebody."""
        with self.lock:
            row = self.rows[trial.key]
            if row.state != reason or bool(row.others) != bool(others):
                row.state, row.waits_since = reason, time.monotonic()
            if reason == IN_USE:  # it may have had its slots before, and waited for its pool without them
                row.started = None
            row.others = tuple(others)

    def start(self, trial: Trial) -> None:
        """A trial holds its slots."""
        with self.lock:
            row = self.rows[trial.key]
            row.state, row.started = "starting", time.monotonic()

    def finish(self, trial: Trial, result: TrialResult) -> None:
        """A trial has ended. Its rate is its result's; a trial that failed has none."""
        with self.lock:
            self._end(self.rows[trial.key], result)

    def take_up(self, done: Sequence[tuple[Trial, TrialResult]]) -> None:
        """Trials that are done: those whose end this flow has not seen had ended before it. All at once: they are counted together."""
        with self.lock:
            for trial, result in done:
                row = self.rows[trial.key]
                row.earlier = row.earlier or row.result is None
                self._end(row, result)

    def _end(self, row: TrialProgress, result: TrialResult) -> None:
        """For a holder of the lock. Of thousands of results no more is kept than is drawn: a whole one takes some KiB."""
        summary = {name: result.summary[name] for name in self._compared if name in result.summary}
        left_out: dict[str, Any] = {"environment": {}, "detail": None, "journal": None, "device_state": None}
        drawn = result.model_copy(update={**left_out, "summary": summary})
        row.state, row.result, row.ended = "done", drawn, time.monotonic()
        row.samples_per_s = result.summary.get("throughput")
        row.emulated = row.trial.emulated or result.emulated

    def set_growth(self, most: int | None) -> None:
        """Further rounds may follow those that are planned: `most` trials in all, None where nobody can say."""
        with self.lock:
            self.grows, self.most = most is None or most > len(self.rows), most

    def set_pool_problem(self, name: str, problem: str | None) -> None:
        """What is wrong with a pool now, None for nothing."""
        with self.lock:
            self.pools.pop(name, None)
            if problem:
                self.pools[name] = problem

    def set_prefect_problem(self, problem: str | None) -> None:
        """What is wrong with Prefect's API now, None for nothing."""
        with self.lock:
            self.prefect = problem

    def set_mlflow_problem(self, problem: str) -> None:
        """What publishing waits for. It stays: when MLflow answers, publishing ends, and with it the sweep."""
        with self.lock:
            self.mlflow = problem

    def problems(self) -> dict[str, str]:
        """What a person should know of pools, Prefect and MLflow: name -> what is wrong. For a holder of the lock."""
        servers = {name: problem for name, problem in (("Prefect", self.prefect), ("MLflow", self.mlflow)) if problem}
        in_use = {pool: f"{IN_USE_BY} {who}, which this one waits for" for pool, who in self._in_use().items()}
        pools = {**in_use, **self.pools}
        return {**{f"pool {name}": problem for name, problem in pools.items()}, **servers}

    def _in_use(self) -> dict[str, str]:
        """Pool -> who holds its slots, where that is not this sweep: a trial waits for them and none of this sweep's runs there."""
        since, running = time.monotonic() - _BRIEFLY_S, {trial.pool for trial in self.running()}
        return {
            row.trial.pool: listed([name or "another sweep" for name in row.others])
            for row in self.rows.values()
            if row.state == IN_USE and row.others and row.waits_since < since and row.trial.pool not in running
        }

    def running(self) -> list[Trial]:
        """Trials that began and have not ended. Takes no lock: a signal's handler asks, whatever its thread was doing."""
        return [row.trial for row in list(self.rows.values()) if row.started is not None and row.ended is None]

    def counts(self) -> tuple[int, int]:
        """(trials that ended, all trials)."""
        with self.lock:
            return sum(row.ended is not None for row in self.rows.values()), len(self.rows)

    def observe(self, trial: Trial, attempt: int, records: Sequence[Record]) -> None:
        """Take new journal records of a running trial."""
        with self.lock:
            row = self.rows[trial.key]
            if attempt != row.attempt:
                row.begin_attempt(attempt)
            for record in records:
                if record["kind"] == "attempt":  # the same one stands there again where its journal was completed
                    row.begin_attempt(attempt)
                elif record["kind"] == "environment":
                    row.emulated = row.trial.emulated or bool(record.get("emulated"))
                elif record["kind"] == "phase":
                    row.state = _state_of(str(record.get("name", row.state)))
                elif record["kind"] == "note" and "batch_search" in record:
                    row.state = f"{SEARCHING}: {known_text(record['batch_search'])}"
                elif record["kind"] == "step":
                    row.step, row.loss = int(record["step"]), record.get("loss")
                    if record.get("measured"):
                        row._measured += 1
                        row._samples += record["samples"]
                        row._seconds += record["total_s"]
                        row.samples_per_s = row._samples / row._seconds if row._seconds else None

    def seconds_left(self) -> float | None:
        """Expected seconds until the sweep is done, from trials that ended and history; None before there is either."""
        with self.lock:
            took = [row.ended - row.started for row in self.rows.values() if row.ended and row.started]
            typical = sum(took) / len(took) if took else None
            times = list[tuple[str, float]]()
            for row in self.rows.values():
                if row.ended is not None:
                    continue
                expected = typical if typical is not None else self.expected_s.get(row.trial.cell)
                if expected is None:
                    return None
                spent = time.monotonic() - row.started if row.started else 0.0
                times.append((row.trial.pool, max(expected - spent, 0.5)))
            return together_s(times, self._lanes)


def _state_of(phase: str) -> str:
    """What a person reads while a trial is in this phase of its journal."""
    return SEARCHING if phase == "max_batch" else phase
