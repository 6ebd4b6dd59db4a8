"""Records what becomes of a sweep's trials: for the terminal, in Prefect's log and artifacts, and in MLflow."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from typing import Any

from cluster.journal.lines import Record
from cluster.trial_layout import LOG
from experiments.metrics import metric_of
from experiments.trial import Outcome, Trial, TrialResult
from flows.runtime import artifacts, prefect_api
from flows.runtime.progress import SEARCHING, SweepProgress
from tasks.report.text_format import quantity
from tasks.sweep.store import Plan, SweepStore
from tasks.tracking.live import LivePublisher

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LOG_TAIL = 20_000  # characters of a trial's log that go into Prefect's


class TrialRecords:
    """The TrialEvents of a flow. `damage` has what was found wrong with journals."""

    def __init__(self, store: SweepStore, plan: Plan, progress: SweepProgress, publisher: LivePublisher, log: Any) -> None:
        self._store, self._plan, self._progress, self._publisher, self._log = store, plan, progress, publisher, log
        self._began: dict[tuple[str, int], float] = {}  # time of an attempt's first record, Unix s
        self.damage: list[str] = []

    def extend(self, plan: Plan) -> None:
        """Know the trials that a plan has gained."""
        self._plan = plan
        self._progress.fill(plan.trials)
        self._publisher.extend(plan)

    def waiting(self, trial: Trial, reason: str, others: Sequence[str] = ()) -> None:
        self._progress.wait(trial, reason, others)

    def started(self, trial: Trial) -> None:
        self._progress.start(trial)

    def observed(self, trial: Trial, attempt: int, records: Sequence[Record], log: Any) -> None:
        before = self._progress.rows[trial.key].state
        self._progress.observe(trial, attempt, records)
        now = self._progress.rows[trial.key].state
        if now != before and now.startswith(SEARCHING):  # a few lines: one for each size that it tries
            log.info("%s: %s", trial.name, now)
        began = self._began.setdefault((trial.key, attempt), records[0]["t"])
        self._publisher.feed(trial, attempt, began, records)

    def finished(self, trial: Trial, result: TrialResult, log: Any) -> None:
        self._publisher.finish(trial, result, self._store.trial_dir(trial.key))
        self._record_end(trial, result, log)

    def damaged(self, trial: Trial, result: TrialResult, log: Any) -> None:
        self.damage.append(result.reason or "")
        log.error("%s", result.reason)
        self._record_end(trial, result, log)

    def _record_end(self, trial: Trial, result: TrialResult, log: Any) -> None:
        for attempt in [attempt for attempt in list(self._began) if attempt[0] == trial.key]:
            self._began.pop(attempt, None)
        self._progress.finish(trial, result)
        text = self._store.trial_dir(trial.key) / LOG
        if result.outcome is not Outcome.CANCELLED and text.exists():
            log.info("log of %s:\n%s", trial.name, _COLOUR.sub("", text.read_text(errors="replace"))[-_LOG_TAIL:])
        rate = result.summary.get("throughput")
        log.log(
            logging.INFO if result.outcome.expected else logging.ERROR,
            "%s: %s%s%s",
            trial.name,
            result.outcome,
            f", {quantity(rate, metric_of('throughput'))}" if rate else "",
            f" ({result.remark})" if result.remark else "",
        )
        if self._prefect_answers():
            artifacts.trial(trial, result)
            artifacts.progress(self._plan, self._progress)

    def _prefect_answers(self) -> bool:
        """Whether Prefect may be asked for pictures; says so where it does not answer, and that trials do not need it."""
        problem = prefect_api.problem()
        if problem is not None and self._progress.prefect is None:
            self._log.warning("Prefect: %s", problem)
        self._progress.set_prefect_problem(f"{problem}; trials go on and are recorded without it" if problem else None)
        return problem is None

    def pool_changed(self, pool: str, problem: str | None, left_s: float) -> None:
        """A pool went down, or answers again (`problem` None). `left_s`: for how long its trials wait, s."""
        if problem is None:
            self._log.info("pool %s answers again", pool)
            self._progress.set_pool_problem(pool, None)
            return
        until = time.strftime("%H:%M:%S", time.localtime(time.time() + left_s))
        then = f"its trials wait until {until} and then end as infra" if left_s else "its trials end as infra"
        text = f"{re.sub(f'^pool {re.escape(pool)}:? ', '', problem)}; {then}"
        self._log.warning("pool %s %s", pool, text)
        self._progress.set_pool_problem(pool, text)
