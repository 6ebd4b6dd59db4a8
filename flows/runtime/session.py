"""One run of the flow over one sweep: what its threads share."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from cluster import launchers
from cluster.journal.journal import JournalError, Record
from cluster.pools.node_locks import NodeLocks
from cluster.pools.placement import nodes_for
from cluster.pools.pool import Pool, find_pool, load_pools
from cluster.trial_layout import JOURNAL, LOG
from experiments.trial import Outcome, Trial, TrialResult
from flows.runtime import artifacts
from flows.runtime.progress import Board
from tasks.analysis.results import write_steps
from tasks.report.write import write_report
from tasks.sweep.failure_policy import Policy
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.run_trial import TrialRunner
from tasks.sweep.store import Plan, SweepStore
from tasks.tracking.live import LivePublisher, first_line
from tasks.tracking.projection import Published, publish_sweep

_MLFLOW_WAIT_S = 60.0
_STOP_S = 20.0  # for the trials to stop; Prefect kills a cancelled flow after 30
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Session:
    """Created by the flow once it holds the sweep's lease."""

    def __init__(self, store: SweepStore, plan: Plan, board: Board, logger: Any, pool_wait_s: float | None = None) -> None:
        self.store, self.plan, self.board, self.log = store, plan, board, logger
        self.stop = threading.Event()
        self.damaged: list[str] = []  # journals that were changed by others: reported, never overwritten
        self._pools = load_pools()
        self._launchers = {name: launchers.for_pool(self.pool(name)) for name in {trial.pool for trial in plan.trials}}
        self._watches = {name: self._watch(self.pool(name), pool_wait_s) for name in self._launchers}
        self._publisher = LivePublisher(plan, logger)
        self._at_work, self._all_ended = 0, threading.Condition()
        self._started: dict[tuple[str, int], float] = {}
        self._policy = Policy(retries=plan.suite.retries, hang_timeout_s=plan.suite.hang_timeout_s)

    def pool(self, name: str) -> Pool:
        return find_pool(self._pools, name)

    def places(self, name: str) -> int:
        """How many places a pool has: one a node, since neighbours disturb each other's measurement."""
        pool = self.pool(name)
        if pool.exclusive:
            return pool.nodes
        widest = max(int(trial.parameters["devices"]) for trial in self.plan.trials if trial.pool == name)
        return max(1, pool.nodes * (pool.accelerators_per_node or widest) // widest)

    def width(self, trial: Trial) -> int:
        """How many of its pool's places a trial takes."""
        pool = self.pool(trial.pool)
        return min(nodes_for(pool, int(trial.parameters["devices"])) if pool.exclusive else 1, self.places(trial.pool))

    def _watch(self, pool: Pool, wait_s: float | None) -> PoolWatch:
        return PoolWatch(pool.name, pool.wait_s if wait_s is None else wait_s, pool.lost_after_s, self._tell)

    def _tell(self, pool: str, problem: str | None, left_s: float) -> None:
        """A pool went down, or is back: on the board and in the log."""
        if problem is None:
            self.log.info("pool %s answers again", pool)
            self.board.pool(pool, None)
            return
        until = time.strftime("%H:%M:%S", time.localtime(time.time() + left_s))
        then = f"its trials wait until {until} and then end as infra" if left_s else "its trials end as infra"
        text = f"{problem.removeprefix(f'pool {pool} ')}; {then}"
        self.log.warning("pool %s %s", pool, text)
        self.board.pool(pool, text)

    # --- what is to do

    def to_do(self) -> list[Trial]:
        """Trials without a final result, in order. What is done shows on the board; what runs under an old key is stopped."""
        for old in self.plan.superseded:
            launch = launchers.load(self.store.trial_dir(old.key))
            pool = next((trial.pool for trial in self.plan.trials if trial.key == old.by), None)
            if launch is not None and pool is not None:
                try:
                    self._launchers[pool].stop(launch)
                except launchers.LaunchError as error:
                    self.log.warning("what runs under the old key %s cannot be stopped: %s", old.key, error)
        self._publisher.start()
        left: list[Trial] = []
        begun: list[Trial] = []  # by another flow, and perhaps running still: first, before anything else takes their pool
        for trial in self.plan.trials:
            result = self.store.result(trial.key)
            if result is not None and result.outcome.final:
                self.board.done(trial, result.outcome, result.reason)
            elif launchers.load(self.store.trial_dir(trial.key)) is not None and (result is None or result.outcome is Outcome.INFRA):
                begun.append(trial)
            else:
                left.append(trial)
        self.log.info("%d of %d trials to run, %d of them begun", len(begun) + len(left), len(self.plan.trials), len(begun))
        return begun + left

    def extend(self, plan: Plan) -> None:
        """Go on with a plan that has more trials; what is done stays done."""
        self.store.save_plan(plan)
        self.plan = plan
        self.board.fill(plan.trials)
        self._publisher.extend(plan)

    def run(self, trial: Trial) -> TrialResult:
        """Run one trial, in the thread of its task."""
        with self._all_ended:
            self._at_work += 1
        try:
            return self._run(trial)
        finally:
            with self._all_ended:
                self._at_work -= 1
                self._all_ended.notify_all()

    def _run(self, trial: Trial) -> TrialResult:
        log = get_run_logger()
        log.info("trial %s (%s) on pool %s", trial.name, trial.key, trial.pool)
        folder = self.store.trial_dir(trial.key)
        launcher, watch = self._launchers[trial.pool], self._watches[trial.pool]
        try:
            with self._slot(trial):
                self.board.start(trial)
                result = TrialRunner(self.store, launcher, self._policy, self.stop, self._observe, watch, self.board.say).run(trial)
            if (folder / JOURNAL).exists():
                write_steps(folder)
            if (launch := launchers.load(folder)) is not None:
                try:
                    launcher.keep(launch, folder)
                except launchers.LaunchError as error:
                    log.warning("results are here and not on the pool's storage: %s", error)
        except JournalError as error:
            self.damaged.append(str(error))
            log.error("%s", error)
            now = time.time()
            result = TrialResult(
                key=trial.key, attempt=1, outcome=Outcome.INFRA, reason=str(error), started_at=now, finished_at=now, emulated=trial.emulated
            )
        else:
            self._publisher.finish(trial, result, folder)
        self.board.done(trial, result.outcome, result.reason)
        self._say(log, trial, result, folder)
        return result

    def _observe(self, trial: Trial, attempt: int, records: Sequence[Record]) -> None:
        self.board.observe(trial, attempt, records)
        started = self._started.setdefault((trial.key, attempt), records[0]["t"])
        self._publisher.feed(trial, attempt, started, records)

    def _say(self, log: Any, trial: Trial, result: TrialResult, folder: Path) -> None:
        if result.outcome is not Outcome.CANCELLED and (folder / LOG).exists():
            log.info("log of %s:\n%s", trial.name, _COLOUR.sub("", (folder / LOG).read_text(errors="replace"))[-20_000:])
        rate = result.summary.get("throughput")
        log.log(
            logging.INFO if result.outcome.expected else logging.ERROR,
            "%s: %s%s%s",
            trial.name,
            result.outcome,
            f", {rate:.1f} samples/s" if rate else "",
            f" ({result.reason})" if result.reason else "",
        )
        artifacts.trial(trial, result)
        artifacts.progress(self.plan, self.board)

    def _slot(self, trial: Trial) -> NodeLocks:
        busy = partial(self.board.say, trial, "pool in use")
        return NodeLocks(self.pool(trial.pool), self.places(trial.pool), self.width(trial), self.stop, busy)

    # --- being told to stop

    def watch_stop_file(self, ended: threading.Event) -> None:
        """Turn `sweep stop`, a file, into the event that the trials watch."""
        while not ended.wait(0.3):
            if self.store.stop_reason() is not None:
                self.stop.set()

    def stop_now(self, reason: str) -> None:
        """Stop every trial and wait until none of their processes is left and their ends are recorded."""
        if self.store.stop_reason() is None:
            self.store.request_stop(reason)
        self.stop.set()
        with self._all_ended:  # each trial's own thread stops it and says how it ended; only then can that be published
            self._all_ended.wait_for(lambda: self._at_work == 0, timeout=_STOP_S)
        for trial in self.plan.trials:
            launch = launchers.load(self.store.trial_dir(trial.key))
            if launch is not None and self.store.result(trial.key) is None:
                with suppress(launchers.LaunchError):
                    self._launchers[trial.pool].stop(launch)

    # --- the end

    def task(self, name: str, body: Callable[[], Any]) -> Any:
        """Run `body` as a Prefect task of that name."""
        return task(name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)(body)()

    def publish_and_report(self) -> str | None:
        """results.parquet, report, figures; then all of it in MLflow. Returns what could not be done, None if all was."""
        self.board.note = "publishing"
        self._publisher.close()
        problems = [*self.damaged]
        published: Published | None = None
        try:
            files = write_report(self.store.dir).all
        except Exception as error:
            self.log.exception("the report could not be written")
            problems.append(f"no report ({first_line(error)})")
            files = []
        try:
            published = publish_sweep(self.store, self.plan, files, self.store.stop_reason(), wait_s=_MLFLOW_WAIT_S, log=self.log)
            if published.trials:
                write_report(self.store.dir, mlflow_links=published.trials)
        except JournalError as error:
            problems.append(str(error))
        except Exception as error:
            self.log.warning("MLflow: %s", first_line(error))
            problems.append(
                f"not all is in MLflow ({first_line(error)}): nothing is lost, `sweep resume {self.store.sweep_id}` publishes it"
            )
        artifacts.sweep(self.store, self.plan, published)
        return "; ".join(dict.fromkeys(problems)) or None
