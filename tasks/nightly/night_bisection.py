"""A night's own bisection: the commit that made a confirmed cell slower, looked for within the night's sweep and its remaining budget.

Its trials are the sweep's: planned before they start, each with its journal, and not run twice. An interrupted night goes through the
same steps again and takes what has been measured from there.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable

from cluster.commits.resolve import CommitError
from cluster.pools.pool import load_pools
from experiments.config.errors import ConfigError
from experiments.stats.estimate import Estimate
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome, Trial
from tasks.nightly import bisect
from tasks.nightly.bisect import BisectError, Bisection, PairValues
from tasks.nightly.commit_records import FoundCommit
from tasks.nightly.night_run import NightRun
from tasks.nightly.pair_trials import BISECT, PairMaker, of_side
from tasks.nightly.plan import templates
from tasks.nightly.store import CellVerdict
from tasks.nightly.suspects import suspects
from tasks.sweep.plan import once_more
from tasks.sweep.store import Plan

MOST_PAIRS = 12  # for one decision, as `sweep bisect` has it


class Interrupted(Exception):
    """The night was told to stop while it bisected."""


def bisect_night(run: NightRun, measure: Callable[[Plan], None], stopped: Callable[[], bool]) -> None:
    """Look for the commit behind each cell that pairs have shown to be worse, the worst first; keep what is found in the night's record.

    `measure` runs what a plan has beyond the night's; `stopped` says whether the night is to end. Nothing begins beyond the definition's
    `bisect_budget` or the night's own, in which no wait for others counts. What an earlier night found for the same change is taken over.
    """
    ends = time.monotonic() - run.waits.seconds + min(run.definition.bisect_budget_s, max(0.0, run.left_s))
    found: list[FoundCommit] = []
    for item in sorted(_confirmed(run), key=lambda item: item.pairs.ratio or 1.0 if item.pairs else 1.0):
        known = _known(run, item)
        if known is None:
            search = _Search(run, item, measure, stopped, ends)
            try:
                known = search.record()
            except Interrupted:
                return
        found.append(known)
        run.save(bisections=found)


def _confirmed(run: NightRun) -> list[CellVerdict]:
    """The cells that are worse by their first metric, or else by another, as pairs have shown; not what crept, which is of many commits."""
    worse: dict[str, CellVerdict] = {}
    for item in run.judged()[0]:
        if (
            item.role == "history"
            and not item.crept
            and item.verdict is Verdict.SLOWER
            and item.pairs
            and item.pairs.verdict is Verdict.SLOWER
        ):
            worse.setdefault(item.cell, item)
    return list(worse.values())


def _known(run: NightRun, item: CellVerdict) -> FoundCommit | None:
    """What an earlier night found between the same good commit and one that tonight's still has; None where none did."""
    assert item.pairs is not None
    for night in reversed(run.nights.all()):
        if night.date >= run.night.date or night.date < (item.alarm_since or run.night.date):
            continue
        for old in night.bisections:
            if (old.cell, old.metric, old.good) == (item.cell, item.metric, item.pairs.good) and old.commit:
                return old
    return None


class _Search:
    """The bisection of one cell. Its trials are told by their commit and their place among the commit's own."""

    def __init__(self, run: NightRun, item: CellVerdict, measure: Callable[[Plan], None], stopped: Callable[[], bool], ends: float) -> None:
        self.run, self.item, self.ends = run, item, ends
        self._measure_plan, self._stopped = measure, stopped
        self._template = templates(run.plan)[item.cell, "history"]
        self._maker = PairMaker(load_pools())
        self._turns: Counter[str] = Counter()
        self._took_s = run.trial_seconds().get((item.cell, item.role), 0.0)

    def record(self) -> FoundCommit:
        """Raises Interrupted."""
        pairs = self.item.pairs
        assert pairs is not None
        try:
            result = self._search()
        except (BisectError, CommitError, ConfigError, subprocess.SubprocessError) as error:
            result = Bisection(f"The bisection of {pairs.good[:12]}..{pairs.tonight[:12]} ended: {error}", trials=self._turns.total())
        return FoundCommit(
            cell=self.item.cell,
            name=self.item.name,
            metric=self.item.metric,
            good=pairs.good,
            bad=pairs.tonight,
            commit=result.commit,
            subject=result.subject,
            between=result.between,
            sentence=result.sentence,
            trials=result.trials,
            on=self.run.night.date,
        )

    def _search(self) -> Bisection:
        pairs = self.item.pairs
        assert pairs is not None and pairs.ratio is not None and pairs.low is not None and pairs.high is not None
        good, commits = bisect.commits_between(pairs.good, pairs.tonight)
        can = suspects(commits, good, self._template)
        minimum = self.item.minimum
        whole = Estimate(pairs.ratio, pairs.low, pairs.high, 0.0, pairs.count - 1.0, pairs.count)
        result = bisect.search(can, good, self._measure_pair, MOST_PAIRS, minimum, whole=whole, go_on=self._in_time)
        if result.commit:
            result.subject = bisect.subject(result.commit)
            left = f"; of {len(commits)} commits only this one changes what the cell runs" if len(can) == 1 < len(commits) else ""
            result.sentence = f"{result.commit[:12]} is the first bad commit{left}: {result.subject}"
        return result

    def _in_time(self) -> bool:
        if self._stopped():
            raise Interrupted
        return time.monotonic() - self.run.waits.seconds + 2 * self._took_s <= self.ends

    def _measure_pair(self, first: str, second: str) -> PairValues:
        """The next trial of each commit, as `bisect.MeasurePair`. Raises BisectError, CommitError, ConfigError, Interrupted."""
        (before, disturbed), (after, disturbed_too) = self._measure(first), self._measure(second)
        return PairValues(before, after, disturbed or disturbed_too)

    def _measure(self, commit: str) -> tuple[float, str | None]:
        """The metric's logarithm of the commit's next trial, and what disturbed it, where it does not count then."""
        self._turns[commit] += 1
        trial = self._trial(commit, self._turns[commit])
        if trial.key not in {known.key for known in self.run.plan.trials}:
            self._measure_plan(self.run.plan.model_copy(update={"trials": [*self.run.plan.trials, trial]}))
        elif self.run.sweep.result(trial.key) is None:
            self._measure_plan(self.run.plan)  # planned by a flow that was interrupted
        result = self.run.sweep.result(trial.key)
        if self._stopped() or result is None or result.outcome is Outcome.CANCELLED:
            raise Interrupted
        return bisect.value_of(result, self.item.metric, f"a trial of {commit[:12]}")

    def _trial(self, commit: str, number: int) -> Trial:
        first = of_side(self.run.plan, self.item.cell, BISECT, commit)
        if not first:
            first = [self._maker.make(self._template, commit, BISECT)]
            self._maker.check(first)
        same = [trial for trial in first if trial.repeat == number]
        return same[0] if same else once_more(first[0], number, len(self.run.plan.trials))
