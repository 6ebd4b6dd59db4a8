"""Trials of a night's pairs: a cell as tonight's commit runs it and as an earlier one does, by turns A B B A, in the night's own sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from cluster.pools.pool import Pool
from experiments.trial import Outcome, Trial, TrialResult, digest, trial_key
from tasks.nightly.store import PAIRED
from tasks.sweep.plan import CurrentInputs, once_more
from tasks.sweep.store import Plan, SweepStore
from tasks.sweep.variants import check_commits

Side = Literal["good", "tonight", "bisect"]
GOOD: Side = "good"
TONIGHT: Side = "tonight"
BISECT: Side = "bisect"
SIDE = "night.side"  # label of a trial of a given commit


class PairMaker:
    """Makes trials of given commits. Checks commits out as it goes."""

    def __init__(self, pools: Mapping[str, Pool]) -> None:
        self._inputs = CurrentInputs(pools)

    def make(self, template: Trial, commit: str, side: Side) -> Trial:
        """The first trial of the template's cell as the code of a commit (40 hex digits) runs it. Raises CommitError, ConfigError.

        It is a cell of its own for each commit and side, which no other night measures, and no part of the cell's history.
        """
        inputs = self._inputs.key_parts(
            template.workload, template.pool, template.device, template.data, environment=template.environment, commit=commit
        )
        configuration = digest({"of": template.key_parts["configuration"], "commit": commit, "side": side})
        parts = {**template.key_parts, **inputs, "configuration": configuration, "repeat": "1"}
        changed = {
            "key": trial_key(parts),
            "key_parts": parts,
            "cell": configuration,
            "commit": commit,
            "repeat": 1,
            "axes": {**template.axes, "probe": f"{side} {commit[:12]}"},
            "labels": {**template.labels, "night.role": PAIRED, SIDE: side},
        }
        return template.model_copy(update=changed)

    def check(self, trials: Sequence[Trial]) -> dict[str, str]:
        """Commit -> hash of its code. Raises ConfigError if the code of their commits cannot run these trials."""
        return check_commits(trials)


def of_side(plan: Plan, cell: str, side: Side, commit: str) -> list[Trial]:
    """The trials of one commit of a cell (its identity) that a plan has for this purpose, in order."""
    return [trial for trial in plan.trials if (trial.labels["night.cell"], trial.labels.get(SIDE), trial.commit) == (cell, side, commit)]


def with_pairs(plan: Plan, both: Sequence[tuple[Trial, Trial, int]]) -> Plan:
    """The plan with pairs added until each (good, tonight, count) has so many: cell by cell a pair at a time, in turns A B B A A B ...

    So the two trials of a pair are neighbours in time, and neither commit is always the first.
    """
    trials = list(plan.trials)
    have = [max((trial.repeat for trial in plan.trials if trial.cell == good.cell), default=0) for good, _, _ in both]
    for number in range(1, max((count for *_, count in both), default=0) + 1):
        for (good, tonight, count), done in zip(both, have, strict=True):
            if done < number <= count:
                turn = (good, tonight) if number % 2 else (tonight, good)
                trials += [once_more(trial, number, len(trials) + place) for place, trial in enumerate(turn)]
    return plan.model_copy(update={"trials": trials})


def results_of_pairs(store: SweepStore, plan: Plan, good: Trial, tonight: Trial) -> list[tuple[TrialResult, TrialResult]]:
    """(good, tonight) of each pair of which both trials ended ok on one host."""
    found: dict[tuple[str, int], TrialResult] = {}
    for trial in plan.trials:
        if trial.cell in (good.cell, tonight.cell):
            result = store.result(trial.key)
            if result is not None and result.outcome is Outcome.OK:
                found[trial.cell, trial.repeat] = result
    numbers = sorted(repeat for cell, repeat in found if cell == good.cell and (tonight.cell, repeat) in found)
    pairs = [(found[good.cell, number], found[tonight.cell, number]) for number in numbers]
    return [(a, b) for a, b in pairs if a.environment.get("host") == b.environment.get("host")]
