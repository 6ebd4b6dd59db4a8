"""One run of the flow over one sweep: what its threads share, which trials are to run, and what is published at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect.utilities.annotations import quote

from cluster import launchers
from cluster.launchers import LaunchError
from cluster.pools.pool import find_pool, load_pools
from cluster.trial_layout import LAUNCH, SLOTS
from experiments.config import duration
from experiments.config.error_text import first_line
from experiments.config.errors import DamagedFile
from experiments.trial import Trial
from flows.runtime import artifacts, prefect_api
from flows.runtime.progress import SweepProgress
from flows.runtime.trial_records import TrialRecords
from tasks.analysis.results import write_steps
from tasks.report.prefect_tasks import report
from tasks.report.text_format import listed
from tasks.rounds.growth import growth
from tasks.sweep.batch_search import SearchLimit
from tasks.sweep.cut import cut
from tasks.sweep.deadline import Deadline
from tasks.sweep.failure_policy import Policy
from tasks.sweep.first_failures import FirstFailures
from tasks.sweep.head_start import HeadStart, is_disturbed_by_a_start
from tasks.sweep.pool_slots import PoolSlots
from tasks.sweep.pool_trials import PoolTrials
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.slot_log import SlotLog
from tasks.sweep.slot_waits import SlotWaits
from tasks.sweep.store import Plan, SweepStore
from tasks.sweep.sweep_stop import SweepStop
from tasks.sweep.trial_record import damage_of, keep_aside, last_attempt
from tasks.sweep.what_is_left import end_is_unknown, what_is_left
from tasks.tracking.client import why
from tasks.tracking.live import LivePublisher
from tasks.tracking.prefect_tasks import publish
from tasks.tracking.projection import Published


class Session:
    """Created by the flow once it holds the sweep's lease."""

    def __init__(
        self,
        store: SweepStore,
        plan: Plan,
        progress: SweepProgress,
        logger: Any,
        pool_wait_s: float | None = None,
        head_start: HeadStart | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """`pool_wait_s`: how long trials wait for a pool that is down, else as it says. `head_start`: the first trial, if it has begun.

        `deadline`: no trial begins that is not expected to end by then.
        """
        self.store, self.plan, self.progress, self.log, self.deadline = store, plan, progress, logger, deadline
        self.found = ""  # by the report: what the sweep found, and where it is
        self._head_start = head_start
        self.stop = SweepStop(store)
        self._publisher = LivePublisher(plan, logger)
        self._records = TrialRecords(store, plan, progress, self._publisher, logger)
        self._slot_log = head_start.slot_log if head_start else SlotLog(store.dir / SLOTS)
        self._policy = Policy(retries=plan.suite.retries, disturbed=plan.suite.measured_again, hang_timeout_s=plan.suite.hang_timeout_s)
        self.waits = deadline.waits if deadline else SlotWaits()
        self.ran_s: Callable[[], float] | None = None  # of a sweep that grows by rounds: for how long its trials have run by now, s
        self.searches = SearchLimit(lambda: self.left_s)
        self._failures = FirstFailures({trial.pool for trial in plan.trials}, len({trial.cell for trial in plan.trials}))
        known = load_pools()
        self.pools = {
            name: self._pool_trials(PoolSlots(find_pool(known, name), plan.trials), pool_wait_s)
            for name in dict.fromkeys(trial.pool for trial in plan.trials)
        }

    def _pool_trials(self, slots: PoolSlots, wait_s: float | None) -> PoolTrials:
        pool = slots.pool
        wait_s = pool.wait_s if wait_s is None else wait_s
        watch = PoolWatch(pool.name, wait_s, pool.lost_after_s, self._records.pool_changed)
        begun = self._head_start if self._head_start and self._head_start.trial.pool == pool.name else None
        launcher = begun.launcher if begun else launchers.for_pool(pool)  # one template for all trials of the pool
        parts = (self.store, slots, launcher, self._policy, watch, self.stop, self._records, write_steps, self._slot_log, begun)
        return PoolTrials(*parts, failures=self._failures, waits=self.waits, searches=self.searches)

    def to_do(self) -> list[Trial]:
        """Trials without a final result, in order; those that have begun come first, before anything else takes their pool.

        What is done shows in the progress, what runs under an old key is stopped, and MLflow hears of trials from here on. Its
        import is over before a trial is let go that it would disturb.
        """
        first = self._head_start.settle(self.plan) if self._head_start else None
        self._stop_superseded()
        self._publisher.start()
        if any(trials.slots.pool.here and is_disturbed_by_a_start(trials.slots.pool) for trials in self.pools.values()):
            self._publisher.wait_until_loaded(self.stop.event)
        left = what_is_left(self.store, self.plan)
        for trial in left.damaged:
            self._keep_damage_aside(trial)
        if left.damaged:
            self.store.save_plan(self.plan)  # writes a trial.json that was moved again
            left = what_is_left(self.store, self.plan)
        # The first may have ended; it is followed to its end like the others
        self.progress.take_up([(trial, result) for trial, result in left.done if first is None or trial.key != first.key])
        begun = [] if first is None else [first]
        begun += [trial for trial in left.begun if first is None or trial.key != first.key]
        rest = [trial for trial in left.rest if first is None or trial.key != first.key]
        self.log.info("%d of %d trials to run, %d of them begun", len(begun) + len(rest), len(self.plan.trials), len(begun))
        return begun + rest

    def _keep_damage_aside(self, trial: Trial) -> None:
        """A trial whose record is damaged runs again: what may be left of it is ended, and its files stay in a folder beside the new ones.

        Raises LaunchError where its pool does not answer: the trial might run twice.
        """
        folder = self.store.trial_dir(trial.key)
        damage = damage_of(trial, folder)
        if damage is not None and damage.path.name == LAUNCH and (attempt := last_attempt(folder)):
            self.pools[trial.pool].launcher.stop_lost(trial, folder, attempt)
        aside = keep_aside(folder)
        self.log.warning("%s: %s; it runs again, what there was of it is in %s", trial.name, damage, aside)

    def _stop_superseded(self) -> None:
        for old in self.plan.superseded:
            pool = next((trial.pool for trial in self.plan.trials if trial.key == old.by), None)
            try:
                launch = launchers.load(self.store.trial_dir(old.key))
            except DamagedFile as error:
                self.log.warning("what runs under the old key %s cannot be found: %s", old.key, error)
                continue
            if launch is not None and pool is not None:
                try:
                    self.pools[pool].launcher.stop(launch)
                except LaunchError as error:
                    self.log.warning("what runs under the old key %s cannot be stopped: %s", old.key, error)

    def extend(self, plan: Plan) -> None:
        """Go on with a plan that has more trials; what is done stays done."""
        self.store.save_plan(plan)
        self.plan = plan
        self._records.extend(plan)

    def in_time(self, trial: Trial) -> bool:
        """Whether there is time for a trial, which else waits for a later flow. One that has begun goes on."""
        if self.deadline is None or self.deadline.fits(trial, self.store, self.plan) or self._has_begun(trial):
            return True
        self.deadline.late.add(trial.key)
        self.progress.wait(trial, "no time left")
        return False

    def _has_begun(self, trial: Trial) -> bool:
        """Whether an attempt of the trial has begun whose end no flow saw. One whose flow died in its start is looked for; where its pool
        does not answer, it may have."""
        folder = self.store.trial_dir(trial.key)
        launch = launchers.load(folder)
        if launch is None or not launch.starting:
            return end_is_unknown(launch, self.store.result(trial.key))
        try:
            return launchers.find(trial, folder, lambda: self.pools[trial.pool].launcher) is not None
        except LaunchError:
            return True

    @property
    def left_s(self) -> float:
        """How much of the sweep's time is left, s; infinite where it is not limited. A round of an A/B sweep is finished."""
        if self.plan.decide is not None and self.plan.ab is None and self.ran_s is not None:
            return self.plan.decide.budget_s - self.ran_s()
        return self.deadline.left_s if self.deadline else math.inf

    def cut(self) -> None:
        """Take what there was no time for out of the plan, so that what was measured is a whole sweep."""
        self.plan = cut(self.store, self.plan, begun=self.searches.cut)
        self.store.save_plan(self.plan)

    @property
    def searched(self) -> str | None:
        """In which trials time cut off the search for the largest batch; None where in none."""
        cut = [trial for trial in [*self.plan.trials, *self.plan.cut] if trial.key in self.searches.cut]
        begun = [trial for trial in cut if (end := self.store.result(trial.key)) is None or not end.outcome.final]
        if not begun:
            return None
        names = [trial.name for trial in begun]
        then = "the campaign's next run" if self.plan.campaign else f"`sweep resume {self.store.sweep_id} --budget TIME`"
        here = all(self.pools[trial.pool].slots.pool.here for trial in begun)
        where = "" if here else " on the node that keeps it, and starts anew on another one"  # each on its own disk: cluster/kept_files.py
        return f"no time was left to search the largest batch of {listed(names, 3)}: {then} goes on from what was tried{where}"

    @property
    def given_up(self) -> str | None:
        """Why no trial was begun after the first ones, which all failed alike; None where that did not happen."""
        return self._failures.why

    @property
    def waited(self) -> str | None:
        """For how long this sweep, whose time is limited, waited for others, which did not count; None where it did not."""
        limited = self.deadline is not None or growth(self.plan) is not None or self.plan.is_night
        if not limited or (seconds := self.waits.seconds) < 1.0:
            return None
        who = listed(sorted(self.waits.holders), 3) or "others"
        return f"it waited {duration.text(seconds)} for slots that {who} held, which does not count as its time"

    def end(self, status: int, message: str) -> None:
        """Record how the flow ended, for whoever runs it here and for those who look at the sweep later."""
        self.progress.ended = status, message
        self.store.save_status(status, message)

    def publish_and_report(self) -> str | None:
        """results.parquet, report, figures; then all of it in MLflow. Returns what could not be done, None if all was."""
        self.progress.note = "publishing"
        if self._head_start:
            self._head_start.end(self.store.stop_reason() or "the sweep was stopped")
        self._publisher.close()
        for pool in self.pools.values():
            pool.launcher.close()
        problems = [*self._records.damage]
        files: list[Path] = []
        headline, drawn = "", None
        try:
            written = report(self.store.dir)
            files, headline, drawn = written.all, written.headline, written.drawn
            self.found = f"{written.line}. Report: {written.html}"
            problems += written.damage
        except Exception as error:
            self.log.exception("the report could not be written")
            problems.append(f"no report ({first_line(error)})")
        published: Published | None = None
        try:
            waiting = self.progress.set_mlflow_problem
            plan = quote(self.plan)  # not searched for futures
            published = publish(self.store, plan, files, headline, waiting)  # type: ignore[call-overload]
            if published.trials:
                report.with_options(task_run_name="report with links to MLflow")(self.store.dir, published.trials, drawn)
        except DamagedFile as error:
            problems.append(str(error))
        except Exception as error:
            self.log.warning("MLflow: %s", why(error))
            problems.append(f"not all is in MLflow ({why(error)}): nothing is lost, `sweep resume {self.store.sweep_id}` publishes it")
        if prefect_api.problem() is None:
            artifacts.progress(self.plan, self.progress)  # no trial has ended here where a killed flow had left its report alone
            artifacts.sweep(self.store, self.plan, published)
        return "; ".join(dict.fromkeys(problems)) or None
