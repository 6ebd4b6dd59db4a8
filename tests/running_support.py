"""A trial that a thread of the test follows, as a sweep does, on this machine or on a real cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.journal.journal import read_journal
from cluster.launchers import Launcher
from cluster.launchers.ray_job import RayJobLauncher
from cluster.pools.pool import Pool
from experiments.trial import Trial, TrialResult
from tasks.sweep.failure_policy import Policy
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.run_trial import TrialRunner
from tasks.sweep.store import SweepStore
from tests.clusters_support import Cluster
from tests.contracts import make_trial

EXTRA = str(Path(__file__).parent / "workloads_for_tests")


class Remembers(SweepStore):
    """Keeps every result that was published, not only the last."""

    def save_result(self, result: TrialResult) -> None:
        super().save_result(result)
        self.results = [*getattr(self, "results", []), result]


class Running:
    """A trial that a runner follows in a thread of its own."""

    def __init__(self, folder: Path, launcher: Launcher, key: str, policy: Policy, pool: PoolWatch, **parameters: Any) -> None:
        self.store = Remembers("contract-20260101-000000-0000", folder)
        self.folder = self.store.trial_dir(key)
        values = {"fault_times": 1, "marker_dir": str(folder), "threads": 1, **parameters}
        self.trial: Trial = make_trial(self.folder, key, workload="faulty", **values)
        self.stop, self.result, self.error = threading.Event(), None, None
        self._runner = TrialRunner(self.store, launcher, policy, self.stop, lambda trial, attempt, records: None, pool)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result: TrialResult | None = self._runner.run(self.trial)
        except BaseException as error:
            self.error: BaseException | None = error

    def impatient(self, seconds: float) -> None:
        """From now on the watchdog waits only for so long."""
        object.__setattr__(self._runner.policy, "hang_timeout_s", seconds)

    def until_step(self, step: int, attempt: int = 1) -> None:
        self.until(lambda: (journal := self.journal()).attempt == attempt and len(journal.steps) >= step)

    def until(self, condition: Callable[[], bool], timeout_s: float = 240) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self._thread.is_alive() and time.monotonic() < deadline, (self.result, self.error)
            time.sleep(0.05)

    def journal(self) -> Any:
        return read_journal(self.folder / "journal.jsonl")

    def end(self, timeout_s: float = 240) -> TrialResult:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive() and self.result is not None, self.error
        return self.result

    def close(self) -> None:
        self.stop.set()
        self._thread.join(120)


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    """Starts a trial and follows it; what still runs at the test's end is stopped."""
    monkeypatch.setenv("SWEEPBENCH_EXTRA", EXTRA)
    begun: list[Running] = []

    def begin(launcher: Launcher, key: str, *, wait_s: float = 60, lost_after_s: float = 2, **more: Any) -> Running:
        given = {name: more.pop(name) for name in ("retries", "hang_timeout_s") if name in more}
        policy = Policy(disturbed=0, **given)  # how often an attempt is made must not depend on what else the machine does
        begun.append(Running(tmp_path, launcher, key, policy, PoolWatch("p", wait_s, lost_after_s), **more))
        return begun[-1]

    yield begin
    for running in begun:
        running.close()


def launcher(of: Cluster, **entry: Any) -> RayJobLauncher:
    return RayJobLauncher(Pool.model_validate({"name": of.name, **of.entry(accelerators_per_node=2, **entry)}))
