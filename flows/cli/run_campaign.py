"""Run the sweeps of a campaign in this process, one after the other: one Prefect server, one set of templates, a deadline for each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from statistics import median

from rich.console import Console

from cluster.launchers.local import LocalLauncher
from cluster.launchers.template import shared_templates
from cluster.pools.busy import Look
from cluster.pools.pool import load_pools
from experiments.config import duration
from experiments.config.paths import REPOSITORY
from experiments.spec.campaign import CampaignFile
from experiments.trial import Trial
from flows.cli.campaign_time import REPORT_S, check_holds_any, measured_nothing, own_time_to_give, time_to_go_on
from flows.cli.run_sweep import KEEP, SEVERITY, run_sweep
from flows.cli.show_campaign import print_entries, print_in_vain, print_left, print_page
from flows.cli.show_plan import print_lacking
from flows.runtime.command_environment import prepare_environment
from flows.runtime.interrupts import TOLD_TO_END
from tasks.campaign.entries import Entry, Overrides, check_fits, check_rehearsed, entries_of, with_time
from tasks.campaign.pages import publish_pages
from tasks.campaign.store import CampaignStore
from tasks.rounds.growth import seconds_run
from tasks.sweep.deadline import Deadline, held_to
from tasks.sweep.head_start import is_disturbed_by_a_start
from tasks.sweep.plan import expected_seconds, lacking_pools
from tasks.sweep.round_time import trial_times
from tasks.sweep.slot_waits import SlotWaits
from tasks.sweep.store import SweepBusy, SweepStore, readable_result


@dataclass(frozen=True)
class Campaign:
    """One run of the command. `asked`: the campaign as it was named; `part`: the same with the sweeps of it that are run.

    `file` has these alone. `budget`: --budget as it was given; `budget_s`: that or the file's. `began`: monotonic time of the command's
    start, s.
    """

    asked: str
    part: str
    budget: str | None
    file: CampaignFile
    store: CampaignStore
    overrides: Overrides
    budget_s: float
    began: float
    again: bool = False
    waits: list[SlotWaits] = field(default_factory=list)  # of its sweeps: for slots that others hold, which is none of its time
    failed: list[str] = field(default_factory=list)  # its sweeps that ended with another status than 0, and not for want of time alone

    def show(self, out: Console) -> None:
        """Print what would run, how long that is expected to take, and which devices are not here for it: nothing starts."""
        entries = self._entries(to_run=False)
        print_entries(out, entries, self._time_s)
        print_lacking(out, lacking_pools([trial for entry in entries for trial in entry.plan.trials]))
        self._check_time(entries)

    def publish(self, out: Console, err: Console) -> int:
        """Write the pages; those of a rehearsal below its state. Returns the exit status: 1 where a page was refused. Raises as
        `publish_pages` and `check_rehearsed`."""
        root = self.store.dir if self.overrides or self.store.name != self.file.campaign else REPOSITORY
        status = 0
        with self.store.lock():
            state = self.store.load()
            if root != REPOSITORY:
                check_rehearsed(self.file, state, self.overrides)
            for page in publish_pages(self.file, state, root, changed=root == REPOSITORY):
                print_page(out, err, page)
                status = max(status, 1 if page.refused else 0)
        return status

    def run(self, out: Console, err: Console) -> int:
        """Run what there is time for; returns the worst exit status of its sweeps. Raises ConfigError before anything starts."""
        with self.store.lock(), ExitStack() as stack:
            entries = self._entries()
            self._check_time(entries)
            print_entries(err, entries, self._time_s)
            stack.enter_context(shared_templates())
            prepare_environment()  # first: a template has the variables that its trials are to have
            KEEP.set(stack)
            TOLD_TO_END.clear()
            try:
                status = self._run(entries, out, err)
            finally:
                KEEP.set(None)
            left = self._entries()
            in_vain = not self.failed and not TOLD_TO_END.is_set() and measured_nothing(entries, left)
            own = own_time_to_give(left, self.budget_s, self._usual_s()) if in_vain else []
            longer = None if own else time_to_go_on(left, self.budget_s, self._usual_s(), in_vain=in_vain)
            if too_short := in_vain and bool(own or longer):
                print_in_vain(err, f"{self.file.campaign}.yaml", own)
            print_left(err, left, self.asked, self._go_on(longer or self.budget), told_to_end=TOLD_TO_END.is_set())
            return 1 if too_short else status

    def _check_time(self, entries: Sequence[Entry]) -> None:
        """Raise ConfigError where a sweep's own time, or this run's, holds nothing of what is left."""
        check_fits(self.file, entries)
        check_holds_any(entries, self.budget_s, "--budget" if self.budget else "budget", self.part, self._usual_s())

    def _go_on(self, budget: str | None) -> str:
        """The words of a further run with this time; None: the file's."""
        return f"{self.part} --budget {budget}" if budget else self.part

    def _begin_templates(self, entries: Sequence[Entry]) -> None:
        """Let the templates of the next two workloads make their imports now: the second one's need no time of its own then.

        Not of all: as many at once would hold up the first, and few are kept.
        """
        pools = load_pools()
        trials: dict[tuple[str, str], Trial] = {}
        for first in (entry.plan.trials[0] for entry in entries):
            trials.setdefault((first.workload, first.pool), first)
        for trial in islice(trials.values(), 2):
            if pools[trial.pool].embedded and not is_disturbed_by_a_start(pools[trial.pool]):
                LocalLauncher(pools[trial.pool]).prepare(trial, self.store.dir)

    def _run(self, entries: Sequence[Entry], out: Console, err: Console) -> int:
        self._take_up(entries)
        statuses, usual_s = [0], self._usual_s()
        for number, entry in enumerate(entries, 1):
            left_s = self._left_s
            if not entry.runs(left_s, usual_s):
                continue
            err.print(
                f"\n[bold]{self.file.campaign}[/] {number} of {len(entries)}: {entry.name}, {duration.text(left_s)} left", highlight=False
            )
            self._begin_templates([later for later in entries[number - 1 :] if later.fits(left_s, usual_s)])
            statuses.append(self._run_one(entry, left_s, usual_s, out, err))
            usual_s = self._usual_s()
            if TOLD_TO_END.is_set() or entry.store.stop_reason() is not None:
                TOLD_TO_END.set()
                return 1
        return max(statuses, key=SEVERITY.index)

    def _take_up(self, entries: Sequence[Entry]) -> None:
        """Note which sweeps the entries have, also those of which nothing is left to run: --publish looks there."""
        before = state = self.store.load()
        for entry in entries:
            state = state if entry.is_new else state.with_sweep(entry.name, entry.plan.sweep_id)
        if state != before:
            self.store.save(state)

    def _run_one(self, entry: Entry, left_s: float, usual_s: float, out: Console, err: Console) -> int:
        sweep = entry.store
        if sweep.is_held():
            raise SweepBusy(f"another process works on sweep {sweep.sweep_id}; `sweep stop {sweep.sweep_id}` ends it")
        left_s = max(0.0, min(left_s, entry.left_s))
        plan = with_time(entry.plan, seconds_run(sweep, entry.plan), left_s)
        self.store.save(self.store.load().with_sweep(entry.name, sweep.sweep_id))  # first: see tasks/campaign/store.py
        sweep.save_plan(plan)
        ends = Deadline(time.monotonic() + left_s, expected_seconds(plan), usual_s)
        self.waits.append(ends.waits)
        with held_to(ends):
            status = run_sweep(plan, out, err, Look(), more=entry.grows, go_on=f"sweep campaign {self._go_on(self.budget)}")
        for_want_of_time = bool(entry.to_do) and all(trial.key in ends.late for trial in entry.to_do)  # a round begins where it fits
        if status and not for_want_of_time:
            self.failed.append(entry.name)
        return status

    def _usual_s(self) -> float:
        """What the trials of this campaign took at the median, s; 0 where none has ended."""
        sweeps = self.store.load().sweeps
        stores = [SweepStore(sweeps[spec.called]) for spec in self.file.sweeps if spec.called in sweeps]
        plans = [(store, store.load_plan()) for store in stores if store.exists()]
        ended = [(trial, end) for store, plan in plans for trial in plan.trials if (end := readable_result(store, trial.key)) is not None]
        return median(trial_times(ended).seconds.values() or [0.0])

    @property
    def _time_s(self) -> float:
        """For trials, of this run's time as a whole, s."""
        return self.budget_s - REPORT_S

    @property
    def _left_s(self) -> float:
        return self._time_s - (time.monotonic() - self.began) + sum(one.seconds for one in self.waits)

    def _entries(self, *, to_run: bool = True) -> list[Entry]:
        return entries_of(self.file, self.store.load(), self.overrides, self._time_s, again=self.again, to_run=to_run)
