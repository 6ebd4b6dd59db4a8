"""How long a round of trials takes: from what trials of this sweep took, and of past ones where it has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median_low

from cluster.pools.lanes import together_s
from experiments.trial import Outcome, Trial, TrialResult


@dataclass(frozen=True)
class TrialTimes:
    """`seconds`: cell's hash -> what its trials took on average, s. `between_s`: from a trial's end to the next one's start on its pool,
    at the median."""

    seconds: Mapping[str, float]
    between_s: float = 0.0

    def of_round(self, trials: Iterable[Trial]) -> float | None:
        """What these trials take one after the other, pools as `together_s` has them, s. None where nothing is known of one of them."""
        times = list[tuple[str, float]]()
        for trial in trials:
            if trial.cell not in self.seconds:
                return None
            times.append((trial.pool, self.seconds[trial.cell] + self.between_s))
        return together_s(times)


def trial_times(
    ended: Sequence[tuple[Trial, TrialResult]], expected: Mapping[str, float] | None = None, flows: Mapping[str, str] | None = None
) -> TrialTimes:
    """What the trials that ended ok would take again: a compilation that found nothing in its cache is not paid twice, and where only the
    first repeats are traced (`profile_repeats`), neither is their trace. Nor is a search for the largest batch: a repeat on the same node
    takes over what it found.

    `expected`: cell -> s, for cells of which none ended ok. `flows`: trial key -> the flow that ran it. What lies between two flows is a
    pause between two runs of a command, which no round has. Where flows are not known, as on a page, it may be among the gaps: so of the
    two in the middle the shorter one counts.
    """
    flows = flows or {}
    took: dict[str, list[float]] = {}
    by_pool: dict[str, list[TrialResult]] = {}
    for trial, result in ended:
        by_pool.setdefault(trial.pool, []).append(result)
        if result.outcome is Outcome.OK:
            took.setdefault(trial.cell, []).append(_again_s(trial, result))
    gaps = []
    for results in by_pool.values():
        ordered = sorted(results, key=lambda result: result.started_at)
        of_one_flow = [(before, after) for before, after in pairwise(ordered) if flows.get(before.key) == flows.get(after.key)]
        gaps += [max(0.0, after.started_at - before.finished_at) for before, after in of_one_flow]
    return TrialTimes({**(expected or {}), **{cell: fmean(each) for cell, each in took.items()}}, median_low(gaps) if gaps else 0.0)


def longest_trials(ended: Sequence[tuple[Trial, TrialResult]]) -> dict[str, float]:
    """Cell -> its longest trial that ended ok, compilation and traces included, s: what the first trial of another cell may take."""
    longest: dict[str, float] = {}
    for trial, result in ended:
        if result.outcome is Outcome.OK:
            longest[trial.cell] = max(longest.get(trial.cell, 0.0), result.finished_at - result.started_at)
    return longest


def _again_s(trial: Trial, result: TrialResult) -> float:
    traced = trial.parameters.get("profile_repeats")
    once = ["compile_seconds", "batch_search_seconds", *(["trace_seconds"] if traced is not None and trial.repeat >= traced else [])]
    return result.finished_at - result.started_at - sum(float(result.summary.get(name) or 0.0) for name in once)
