"""What an A/A sweep shows: how often the intervals of this pool's device are right, and how often its verdicts are false.

The intervals and verdicts are those that a report gives: small sweeps are made of the pairs, and compared by `make_cells`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.metrics import metric_of
from experiments.spec.schema import Suite
from experiments.stats.coverage import Share, covered_by_steps, covers_no_change, share_of, spreads_without_each, times_apart
from experiments.stats.estimate import Estimate
from experiments.stats.spread import Spread
from experiments.stats.verdict import Verdict
from tasks.analysis.cell import estimate_of, is_number
from tasks.analysis.compare_cells import make_cells
from tasks.analysis.stretches import stretches
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.aa_arms import ARM, ARMS

# Raise it whenever the same trials may give other pairs that count, another interval or another verdict: certificates of another version do
# not count. A test of this name holds both. 2: pairs count by what their samples show, and a trial's cores are those that it is held to.
STATISTICS_VERSION = 2
GROUPS = (2, 3, 5)  # pairs that make a small sweep of two cells with so many repeats
DISTURBED, NOT_JUDGED, ELSEWHERE = "disturbed", "not judged", "not on one host with one code"
APART_S = 60.0  # between the trials of a pair: a longer gap, and longer than its longer trial, says that something interrupted them

Comparison = tuple[Estimate, Verdict | None]
Compare = Callable[[Sequence[TrialRow], Suite, Spread | None], Comparison | None]


@dataclass(frozen=True)
class Pair:
    """The i-th repeats of both arms. `left_out`: why they say nothing about intervals; None where they do."""

    number: int
    a: TrialRow
    b: TrialRow
    left_out: str | None = None


@dataclass(frozen=True)
class PairComparison:
    """A pair as a sweep of two trials: B over A, with the spread between trials known from all other pairs alone."""

    number: int
    ratio: Estimate

    @property
    def covered(self) -> bool:
        return covers_no_change(self.ratio)


@dataclass(frozen=True)
class GroupShares:
    """Groups of `size` consecutive pairs, each as a sweep: how many intervals hold 1, and how many verdicts are false."""

    size: int
    covered: Share
    false_verdicts: Share


@dataclass(frozen=True)
class AaResult:
    """What the pairs of one A/A sweep show.

    `single`: of the pairs' intervals; `with_disturbed`: the same as if the disturbed pairs counted too, None where there are none; `steps`:
    of intervals that know the noise of steps alone; `times_apart`: how many times further trials lie apart than their steps suggest.
    `left_out`: why, and how many pairs.
    """

    pairs: int
    left_out: Mapping[str, int]
    single: Share
    with_disturbed: Share | None
    groups: Sequence[GroupShares]
    steps: Share
    times_apart: float | None
    comparisons: Sequence[PairComparison]
    rows: Sequence[TrialRow] = field(default=(), repr=False)  # of the pairs that count

    def group(self, size: int) -> GroupShares:
        """Raises KeyError for a size that is not in GROUPS."""
        for group in self.groups:
            if group.size == size:
                return group
        raise KeyError(f"no groups of {size} pairs")


def analyse(rows: Sequence[TrialRow], suite: Suite, compare: Compare | None = None) -> AaResult | None:
    """The result of an A/A sweep's trials, finished or not; emulated ones measure nothing and are not among them.

    None where no pair has ended. `compare`: makes the interval and verdict of one small sweep, with the spread between trials that is
    known; `by_the_report` unless given.
    """
    compare = compare or by_the_report
    pairs = pairs_of([row for row in rows if not row.emulated], suite.report.metric)
    if not pairs:
        return None
    used = [pair for pair in pairs if pair.left_out is None]
    measured = [pair for pair in pairs if pair.left_out in (None, DISTURBED)]
    comparisons = _compare_each(used, suite, compare)
    arms = [pair.a for pair in used], [pair.b for pair in used]
    ses = [[_se_of_steps(row, suite) for row in rows_of] for rows_of in arms]
    known = [place for place in range(len(used)) if all(math.isfinite(side[place]) for side in ses)]
    a, b, se_a, se_b = ([side[place] for place in known] for side in (*_logs(used, suite), *ses))
    return AaResult(
        pairs=len(used),
        left_out=Counter(pair.left_out for pair in pairs if pair.left_out is not None),
        single=_share(comparisons),
        with_disturbed=_share(_compare_each(measured, suite, compare)) if len(measured) > len(used) else None,
        groups=[_grouped(used, size, suite, compare) for size in GROUPS],
        steps=covered_by_steps(a, b, se_a, se_b),
        times_apart=times_apart(a, b, [*se_a, *se_b]) if known else None,
        comparisons=comparisons,
        rows=[row for pair in used for row in (pair.a, pair.b)],
    )


def pairs_of(rows: Sequence[TrialRow], metric: str) -> list[Pair]:
    """The pairs of which both trials have ended, in order."""
    arms: dict[int, dict[str, TrialRow]] = {}
    for row in rows:
        if row.result is not None or row.problem:
            arms.setdefault(row.trial.repeat, {})[str(row.trial.axes.get(ARM))] = row
    first, second = ARMS
    whole = [(number, both[first], both[second]) for number, both in sorted(arms.items()) if both.keys() >= set(ARMS)]
    return [Pair(number, a, b, _why_left_out(a, b, metric)) for number, a, b in whole]


def by_the_report(rows: Sequence[TrialRow], suite: Suite, known: Spread | None) -> Comparison | None:
    """The interval of B over A and the verdict as the report of a sweep of these trials gives them; None where it gives no interval."""
    cells = make_cells(rows, suite, known=(lambda *place: known) if known else None)
    second = next((cell for cell in cells if cell.axes.get(ARM) == ARMS[1]), None)
    if second is None or second.speedup is None or not math.isfinite(second.speedup.se):
        return None
    return second.speedup, second.verdict


def _why_left_out(a: TrialRow, b: TrialRow, metric: str) -> str | None:
    for row in (a, b):
        value = row.summary.get(metric)
        if row.outcome != "ok":
            return f"ended as {row.outcome}"
        if not is_number(value) or not float(value or 0) > 0:
            return f"no {metric}"
        if row.disturbed:
            return DISTURBED
    if a.not_judged or b.not_judged:
        return NOT_JUDGED
    first, second = sorted((row.result for row in (a, b) if row.result), key=lambda result: result.started_at)
    longest = max(result.finished_at - result.started_at for result in (first, second))
    if second.started_at - first.finished_at > max(APART_S, longest):
        return "interrupted"
    return ELSEWHERE if len(stretches([a, b])) > 1 else None


def _logs(pairs: Sequence[Pair], suite: Suite) -> tuple[list[float], list[float]]:
    """Logarithms of the metric of each arm."""

    def log(row: TrialRow) -> float:
        return math.log(float(row.summary[suite.report.metric] or 0))

    return [log(pair.a) for pair in pairs], [log(pair.b) for pair in pairs]


def _se_of_steps(row: TrialRow, suite: Suite) -> float:
    """The standard error of the logarithm that the trial's steps imply; infinite where it has none."""
    return estimate_of(row, metric_of(suite.report.metric)).se


def _compare_each(pairs: Sequence[Pair], suite: Suite, compare: Compare) -> list[PairComparison]:
    """Each pair against what the others say of the spread; none of them where there are fewer than 3 pairs."""
    if len(pairs) < 3:
        return []
    found = []
    for pair, spread in zip(pairs, spreads_without_each(*_logs(pairs, suite)), strict=True):
        if spread is not None and (comparison := compare([pair.a, pair.b], suite, spread)) is not None:
            found.append(PairComparison(pair.number, comparison[0]))
    return found


def _share(comparisons: Sequence[PairComparison]) -> Share:
    return share_of([one.covered for one in comparisons])


def _grouped(pairs: Sequence[Pair], size: int, suite: Suite, compare: Compare) -> GroupShares:
    """Small sweeps of `size` consecutive pairs, none in two of them, without a spread from elsewhere."""
    covered, false = [], []
    for start in range(0, len(pairs) - size + 1, size):
        rows = [row for pair in pairs[start : start + size] for row in (pair.a, pair.b)]
        if (comparison := compare(rows, suite, None)) is not None:
            ratio, verdict = comparison
            covered.append(covers_no_change(ratio))
            false.append(verdict in (Verdict.FASTER, Verdict.SLOWER))
    return GroupShares(size, share_of(covered), share_of(false))
