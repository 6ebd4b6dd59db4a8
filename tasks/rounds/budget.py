"""More time for a sweep that exists."""

from __future__ import annotations

import time
from dataclasses import replace

from cluster import launchers
from experiments.config import duration
from experiments.config.errors import ConfigError
from experiments.spec.schema import MOST_ROUNDS
from experiments.stats.interim_looks import only_look
from experiments.trial import Outcome, Trial
from tasks.analysis.looks import undecided_of
from tasks.analysis.race import State, race_of
from tasks.analysis.results import load_sweep
from tasks.analysis.row_times import row_times
from tasks.report.text_format import plural
from tasks.rounds.growth import seconds_run
from tasks.rounds.race_plan import heat_seconds
from tasks.sweep.budget import too_short
from tasks.sweep.cut import restored
from tasks.sweep.deadline import Deadline, expected_trial_s, times_so_far
from tasks.sweep.plan import expected_seconds, renew
from tasks.sweep.store import DecideSettings, Plan, SweepStore, readable_result
from tasks.sweep.variants import Say
from tasks.sweep.what_is_left import Left


def gone_on_with(
    store: SweepStore,
    budget_s: float | None = None,
    until_decided: bool | None = None,
    say: Say = lambda text: None,
    *,
    crashed: bool = False,
) -> Plan:
    """The plan of a sweep that exists, under today's code and data, and with so much more time, s, if any is given.

    With more time, trials for which there was none before come back (tasks/sweep/cut.py). They run first: what was asked for comes before
    more rounds of what is measured. Writes nothing. `crashed`: as `with_budget`. Raises as `renew` and `with_budget`.
    """
    plan = store.load_plan()
    plan = renew(plan if budget_s is None else restored(plan), say=say)
    return plan if budget_s is None and until_decided is None else with_budget(store, plan, budget_s, until_decided, crashed=crashed)


def deadline_of(store: SweepStore, plan: Plan, left: Left, budget_s: float | None) -> Deadline | None:
    """By when the flow of a sweep that is gone on with is to end, from now; None: with its last round, however long that takes.

    Trials that are left of a round have the time that is given and no more: of these none begins that is not expected to end in it, and
    they are cut again. So it is with one whose start came to nothing (`Session.in_time`). Where measured trials are to be measured again,
    since the code is another, that would take them out of the sweep. A heat of a race and a round of an A/B sweep are compared whole, so
    they are finished. Raises ConfigError where no trial is expected to end in time.
    """
    some_left = left.rest or any(_may_not_have_begun(store, trial) for trial in left.begun)
    if budget_s is None or not some_left or plan.race is not None or plan.ab is not None or _measured_anew(store, plan, left):
        return None
    ends = Deadline(time.monotonic() + budget_s, expected_seconds(plan))
    so_far = times_so_far(store, plan)
    shortest = min((expected_trial_s(trial, so_far, ends.expected) for trial in left.rest), default=0.0)
    if shortest > budget_s:
        problem = f"{duration.text(budget_s)} is too short for any trial that is left"
        raise ConfigError.one("--budget", None, "", problem, f"give more: the shortest is expected to take {duration.about(shortest)}")
    return ends


def _may_not_have_begun(store: SweepStore, trial: Trial) -> bool:
    launch = launchers.load(store.trial_dir(trial.key))
    return launch is not None and launch.starting


def _measured_anew(store: SweepStore, plan: Plan, left: Left) -> bool:
    """Whether a trial that is left was measured under another key: with other code, data or libraries."""
    waiting = {trial.key for trial in left.rest}
    for one in reversed(plan.superseded):  # the newest first: a trial may have had several keys
        if one.by in waiting:
            waiting.add(one.key)
            if (end := readable_result(store, one.key)) is not None and end.outcome.final:
                return True
    return False


def with_budget(store: SweepStore, plan: Plan, budget_s: float | None, until_decided: bool | None = None, *, crashed: bool = False) -> Plan:
    """The plan of a sweep that exists with so much more time from now on, s; None leaves what it has.

    A sweep whose trials were all planned at the start was looked at when they were done: that look is noted, and its comparisons that are
    decided get no more rounds unless `until_decided` is False. One of a campaign keeps the most rounds that its file gives it. `crashed`:
    trials that crashed are about to run again, so the time is theirs first, and no round has to fit in it. Raises ConfigError for a sweep
    that cannot have a budget, or no more rounds, and for a budget that is too short.
    """
    if plan.aa is not None or plan.is_night:
        kind = "an A/A sweep: it goes on by pairs" if plan.aa else "a night, whose definition says its budget"
        raise ConfigError.one("--budget", None, "", f"{plan.sweep_id} is {kind}", "give the id of a sweep of `sweep run`")
    if plan.race is not None:
        return _race_with_budget(store, plan, budget_s, until_decided, crashed=crashed)
    settings = plan.decide
    over = all(_is_over(outcome, crashed=crashed) for outcome in store.states(plan).values())
    if plan.campaign is not None and budget_s is not None:
        if over and plan.has_all_rounds:
            raise _all_rounds_run(plan)
        if settings is None:
            return plan  # the time is for what is left of its only round
    if settings is None:
        if budget_s is None:
            raise ConfigError.one("--until-decided", None, "", f"{plan.sweep_id} has no budget of time", "add --budget 25m")
        rounds = plan.last_round
        looks = [only_look(rounds)] if rounds >= 2 else []
        settings = DecideSettings(budget_s=budget_s, until_decided=True, least=rounds if looks else 3, looks=looks)
    if until_decided is not None:
        settings = settings.model_copy(update={"until_decided": until_decided})
    if budget_s is not None:
        most = MOST_ROUNDS if plan.campaign is None else settings.most
        settings = settings.model_copy(update={"budget_s": seconds_run(store, plan) + budget_s, "most": most, "resumed": True})
    plan = plan.model_copy(update={"decide": settings})
    if budget_s is not None and over:
        _check_room(store, plan, budget_s)
    return plan


def _all_rounds_run(plan: Plan) -> ConfigError:
    problem = f"{plan.sweep_id} has had the {plural(plan.last_round, 'round')} that campaign {plan.campaign} gives it at the most"
    hint = f"raise `rounds.most` of it in the campaign's file and run that again, or measure it with `sweep run {plan.request.suite}`"
    return ConfigError.one("--budget", None, "", problem, hint)


def _is_over(outcome: Outcome | None, *, crashed: bool) -> bool:
    """Whether a trial will not run, with `crashed` run again."""
    return outcome is not None and outcome.final and not (crashed and outcome is Outcome.CRASHED)


def _race_with_budget(store: SweepStore, plan: Plan, budget_s: float | None, until_decided: bool | None, *, crashed: bool) -> Plan:
    assert plan.race is not None
    if until_decided is not None:
        raise ConfigError.one(
            "--until-decided", None, "", f"{plan.sweep_id} is a race, which always ends once it is decided", "leave it out"
        )
    if budget_s is None:
        return plan
    settings = plan.race.model_copy(update={"budget_s": seconds_run(store, plan) + budget_s})
    rows = load_sweep(store.dir).rows
    over = all(_is_over(row.result.outcome if row.result else None, crashed=crashed) for row in rows)
    if over and any(row.outcome == "ok" for row in rows):
        race = race_of(plan, rows)
        left = [race.trials[racer] for racer in race.left]
        round_s = heat_seconds(rows, left)
        if race.state is State.OPEN and round_s > budget_s:
            raise too_short(plan, budget_s, round_s, len(left))
    return plan.model_copy(update={"race": settings})


def _check_room(store: SweepStore, plan: Plan, budget_s: float) -> None:
    """Raise ConfigError where a round of what is undecided takes longer than the time that was given for it."""
    assert plan.decide is not None
    sweep = replace(load_sweep(store.dir), plan=plan)
    looked = plan.decide.until_decided and bool(plan.decide.looks)
    cells = undecided_of(sweep) if looked else []
    if looked and not cells:
        return  # no round is to come
    open_cells = {one.trial.cell for cell in cells for one in (cell, cell.baseline) if one is not None}
    first: dict[str, Trial] = {trial.cell: trial for trial in plan.trials if not open_cells or trial.cell in open_cells}
    times = row_times(sweep.rows)
    trials = [trial for trial in first.values() if trial.cell in times.seconds]
    round_s = times.of_round(trials)
    if trials and round_s is not None and round_s > budget_s:
        raise too_short(plan, budget_s, round_s, len(trials))
