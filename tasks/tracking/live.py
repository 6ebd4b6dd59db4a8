"""Log to MLflow while trials run, in a thread: an outage of MLflow affects neither a trial nor the flow that follows it.

Records that cannot be sent are dropped. The journal still has them, and the projection at the end of the sweep sends them again.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.journal.lines import Record
from experiments.trial import Trial, TrialResult
from tasks.sweep.store import Plan
from tasks.sweep.trial_record import measured_journal
from tasks.tracking.client import connect, why
from tasks.tracking.log_trial import finish_trial, log_records
from tasks.tracking.runs import SweepRuns

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_QUIET_S = 10.0  # pause after a failure
_GATHER_S = 1.0  # all records of this period go into one call
_LOOK_S = 0.1  # between two looks for a stop


@dataclass
class _Batch:
    """What was queued within _GATHER_S seconds: records and start time (Unix, s) by attempt, and trials that ended."""

    steps: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    started: dict[tuple[str, int], float] = field(default_factory=dict)
    ended: list[tuple[str, TrialResult, Path]] = field(default_factory=list)


class LivePublisher:
    """Logs a sweep's trials to MLflow while they run. `feed` and `finish` neither block nor raise."""

    def __init__(self, plan: Plan, logger: logging.Logger | logging.LoggerAdapter[logging.Logger]) -> None:
        self._plan, self._log = plan, logger
        self._trials = {trial.key: trial for trial in plan.trials}
        self._queue: queue.SimpleQueue[Callable[[_Batch], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)
        self._loaded = threading.Event()
        self.failures = 0
        self._sent: dict[tuple[str, int], set[int]] = {}  # attempt -> steps that MLflow has accepted

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread.ident is None:
            self._thread.start()

    def wait_until_loaded(self, stop: threading.Event) -> None:
        """Wait until the thread has imported MLflow and opened its store, which takes a core for seconds; not for any server's answer.

        Returns at once where that failed or was done before, and soon after `stop` is set. `start` must have been called.
        """
        while not self._loaded.wait(_LOOK_S) and not stop.is_set():
            pass

    def extend(self, plan: Plan) -> None:
        """Take over a plan that has gained trials."""
        self._plan = plan
        self._trials |= {trial.key: trial for trial in plan.trials}

    def feed(self, trial: Trial, attempt: int, started_at: float, records: Sequence[Record]) -> None:
        """Queue new journal records of a running trial."""

        def add(batch: _Batch) -> None:
            batch.steps.setdefault((trial.key, attempt), []).extend(records)
            batch.started.setdefault((trial.key, attempt), started_at)

        self._queue.put(add)

    def finish(self, trial: Trial, result: TrialResult, folder: Path) -> None:
        """Queue the end of a trial."""
        self._queue.put(lambda batch: batch.ended.append((trial.key, result, folder)))

    def close(self, timeout_s: float = 60.0) -> None:
        """Send the queued records and end the thread. Gives up after `timeout_s` seconds, since the projection follows anyway."""
        if self._thread.ident is not None:
            self._queue.put(None)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        runs: SweepRuns | None = None
        closing, not_before = False, 0.0
        client = self._load()
        while not closing:
            batch, closing = self._gather()
            if time.monotonic() < not_before:
                continue
            try:
                runs, client = runs or SweepRuns(client or connect(), self._plan), None
                self._send(runs, batch)
            except Exception as error:  # whatever MLflow, its database or the network can think of
                self.failures += 1
                runs = client = None  # a reply that was lost may have created a run: they are looked up again
                not_before = time.monotonic() + _QUIET_S
                self._log.warning("MLflow does not take metrics now (%s); they are in the journals and follow later", why(error))

    def _load(self) -> MlflowClient | None:
        """A client; None where there is none now: the first records then meet the reason, and say it.

        What a trial's summary imports is imported too: the first one is made while the second trial measures.
        """
        try:
            import scipy.optimize  # noqa: F401 - see experiments/stats/root.py

            return connect()
        except Exception:
            return None
        finally:
            self._loaded.set()

    def _send(self, runs: SweepRuns, batch: _Batch) -> None:
        for (key, attempt), records in batch.steps.items():
            run_id = runs.trial_run(self._trials[key], attempt, batch.started[key, attempt])
            log_records(runs.client, run_id, records)
            self._sent.setdefault((key, attempt), set()).update(record["step"] for record in records if record["kind"] == "step")
        for key, result, folder in batch.ended:
            sent_steps = self._sent.pop((key, result.attempt), set())
            finish_trial(runs, self._trials[key], measured_journal(folder, result, key), result, folder, sent_steps)

    def _gather(self) -> tuple[_Batch, bool]:
        batch = _Batch()
        add = self._queue.get()
        deadline = time.monotonic() + _GATHER_S
        while add is not None:
            add(batch)
            try:
                add = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return batch, False
        return batch, True
