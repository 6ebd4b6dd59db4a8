"""How long a run of a campaign has, and whether any of what is left fits in it."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.config import duration
from experiments.config.errors import ConfigError
from tasks.campaign.entries import Entry

REPORT_S = 10.0  # of a run's time that the last sweep leaves: its report, and what goes to MLflow
_MARGIN = 1.1  # trials vary, and a run has to start


def check_time(budget_s: float, key: str) -> None:
    """Raise ConfigError where a run's time holds no trial: its last report has some of it. `key`: which option or key of the file it is."""
    if budget_s <= REPORT_S:
        problem = f"{duration.text(budget_s)} leaves no time for a trial: {duration.text(REPORT_S)} of it are for the report"
        raise ConfigError.one(key, None, "", problem, "give more, such as 5m")


def check_holds_any(entries: Sequence[Entry], budget_s: float, key: str, part: str, usual_s: float = 0.0) -> None:
    """Raise ConfigError where nothing of what is left is expected to be over in a run's time, `budget_s`, nor is a report to come.

    `key`: as `check_time`. `part`: what `sweep campaign` is given beside --budget. `usual_s`: of a trial of which nothing is known, s.
    """
    time_s = budget_s - REPORT_S
    if any(entry.runs(time_s, usual_s) for entry in entries) or (shortest := _shortest(entries, usual_s)) is None:
        return
    least_s = shortest.least_s(usual_s)
    is_trial = any(seconds <= least_s for seconds in shortest.times(usual_s).values())
    what = f"{'a trial' if is_trial else 'another round'} of {shortest.name}"
    problem = (
        f"{duration.text(budget_s)} is too short for what is left: {duration.text(time_s)} of it are for trials, "
        f"and the shortest, {what}, is expected to take {duration.about(least_s)}"
    )
    raise ConfigError.one(key, None, "", problem, f"give more, such as `sweep campaign {part} --budget {_enough(least_s)}`")


def time_to_go_on(entries: Sequence[Entry], budget_s: float, usual_s: float = 0.0, *, in_vain: bool = False) -> str | None:
    """The time that a further run needs where nothing of what is left fits in `budget_s`, such as 5m; None where it is enough. `in_vain`: a
    run of as long came to none of it, since its start took too much of the time."""
    shortest = _shortest(entries, usual_s)
    if shortest is None or (not in_vain and any(entry.runs(budget_s - REPORT_S, usual_s) for entry in entries)):
        return None
    return _enough(max(shortest.least_s(usual_s), budget_s if in_vain else 0.0))


def own_time_to_give(entries: Sequence[Entry], budget_s: float, usual_s: float = 0.0) -> list[str]:
    """After a run of `budget_s` in vain, what to write in the file, such as `per_run: 2m` of a: the times that it gives the sweeps of which
    something is left, where no longer run would give any of them more. Empty where one would."""
    left = [entry for entry in entries if entry.fits(float("inf"), usual_s)]
    if any(entry.left_s > budget_s - REPORT_S for entry in left):
        return []
    return [f"`{entry.own_limit}: {_enough_own(entry, usual_s)}` of {entry.name}" for entry in left]


def _enough_own(entry: Entry, usual_s: float) -> str:
    """Of its own time: what it has had so far, and somewhat more than what was not enough."""
    had_s = (entry.spec.budget_s or 0.0) - entry.left_s if entry.own_limit == "budget" else 0.0
    return duration.in_minutes(had_s + _MARGIN * max(entry.least_s(usual_s), entry.left_s))


def measured_nothing(before: Sequence[Entry], after: Sequence[Entry]) -> bool:
    """Whether a run that ended well came to no trial, and had no report to make up for."""
    done = [sum(len(entry.plan.trials) - len(entry.to_do) for entry in entries) for entries in (before, after)]
    return done[0] == done[1] and not any(entry.unreported for entry in before)


def _shortest(entries: Sequence[Entry], usual_s: float) -> Entry | None:
    """The entry of which some part is over first; None where nothing is left that the file's times hold."""
    left = [entry for entry in entries if entry.fits(float("inf"), usual_s)]
    return min(left, key=lambda entry: entry.least_s(usual_s), default=None)


def _enough(least_s: float) -> str:
    return duration.in_minutes(_MARGIN * least_s + REPORT_S)
