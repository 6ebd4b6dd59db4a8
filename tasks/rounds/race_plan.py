"""Races (`sweep tune`): all settings of a suite in the first round, then those that are left, until the race is decided or time is up."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from statistics import fmean

from cluster.pools.pool import load_pools
from experiments import metrics
from experiments.config import duration
from experiments.config.errors import ConfigError
from experiments.metric import Direction, Metric, Scale
from experiments.parameters import REFERENCE_SEEDS
from experiments.spec import matrix
from experiments.spec.schema import Suite
from experiments.trial import Trial
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import MINIMUM_EFFECT
from tasks.analysis.race import State, race_of
from tasks.analysis.results import load_sweep
from tasks.analysis.row_times import row_times
from tasks.analysis.same_work import groups_of_work, set_work
from tasks.analysis.trial_row import TrialRow
from tasks.report.text_format import plural
from tasks.sweep.constraints import OPTION, Constraint
from tasks.sweep.plan import TrialMaker, expected_seconds, make_plan, once_more
from tasks.sweep.race_settings import RaceSettings
from tasks.sweep.request_text import arguments_of
from tasks.sweep.round_time import TrialTimes
from tasks.sweep.store import Plan, Request, SweepStore
from tasks.sweep.variants import Say


def plan_race(
    request: Request,
    *,
    metric: str,
    maximise: bool,
    budget_s: float,
    where: Sequence[Constraint] = (),
    parity: bool = False,
    say: Say = lambda text: None,
) -> Plan:
    """The plan of a race: its first round, of all settings and, with `parity`, of the references that loss parity needs.

    Settings whose parameters say that they break a limit do not run, and `say` is told how many these are. Raises ConfigError, as
    `make_plan`, and for a metric that has no ratios or is better the other way, settings on several pools or that do not do the same work,
    fewer than two of them, references that cannot be, and a budget that is too short for one round.
    """
    option = "--maximise" if maximise else "--minimise"
    _check_metric(option, metric, maximise=maximise)
    plan, suite = make_plan(request, plain=False)
    suite = _within_limits(_of_race(suite, metric, parity=parity), where, say)
    cells = matrix.expand(suite)
    maker = TrialMaker(plan.sweep_id, load_pools())
    trials = [maker.make(suite, cell, 1, index, seed=matrix.seed_of(suite, cell, 1)) for index, cell in enumerate(cells)]
    references = [trial.cell for trial, cell in zip(trials, cells, strict=True) if cell.reference or (cell.repeats or 1) > 1]
    settings = RaceSettings(
        metric=metric,
        direction="maximise" if maximise else "minimise",
        where=list(where),
        parity=parity,
        budget_s=budget_s,
        minimum=suite.report.minimum_effect or MINIMUM_EFFECT,
        references=references,
        seeds=suite.parity_reference if references else 0,
    )
    made = {"suite": suite, "trials": trials, "race": settings, "decide": None, "labels": {"sweep.race": metric}}
    plan = plan.model_copy(update={**made, "command": _command(request, plan.profile, settings)})
    _check_settings(plan)
    _check_budget(plan, settings)
    return plan


def one_more_heat(store: SweepStore, plan: Plan, now_s: float) -> Plan | None:
    """The plan with another round of the settings that are left; None where the race is decided, or no round fits in what is left of the
    budget by what trials took here. `now_s`: for how long the sweep's trials have run, s.

    References of loss parity run a round for each of its seeds, whether they have dropped out or not. No round starts either where none of
    the last one's trials ended ok. Raises StoreError, ResultsError.
    """
    settings = plan.race
    if settings is None:
        return None
    rows = load_sweep(store.dir).rows
    last = plan.last_round
    race = race_of(plan, rows)
    if race.state is not State.OPEN or not race.rounds or race.rounds[-1].number < last:
        return None
    if not any(row.outcome == "ok" for row in rows if row.trial.repeat == last):
        return None
    cells = {race.trials[racer].cell for racer in race.left}
    if last < settings.seeds:
        ran = {row.trial.cell for row in rows if row.outcome == "ok"}
        cells |= {cell for cell in settings.references if cell in ran}
    trials = _heat(plan, cells, last + 1)
    if now_s + heat_seconds(rows, trials) > settings.budget_s or len(plan.trials) + len(trials) > plan.suite.limit:
        return None
    return plan.model_copy(update={"trials": [*plan.trials, *trials]})


def heat_seconds(rows: Sequence[TrialRow], trials: Sequence[Trial]) -> float:
    """How long these trials take by what a race's trials took, of which one at least ended ok, s."""
    times = row_times(rows)
    usual = fmean(times.seconds.values())  # for a setting whose trials were lost until now
    seconds = {**dict.fromkeys((trial.cell for trial in trials), usual), **times.seconds}
    return TrialTimes(seconds, times.between_s).of_round(trials) or 0.0


def race_note(plan: Plan) -> str:
    """What is running: `round 3: 14 of 72 settings are left`."""
    number = plan.last_round
    racing = [{trial.cell for trial in plan.trials if trial.repeat == at and not trial.reference} for at in (1, number)]
    return f"round {number}: {len(racing[1])} of {len(racing[0])} settings run"


def _heat(plan: Plan, cells: set[str], number: int) -> list[Trial]:
    """A round of these cells, in the order of the first round or its reverse, by turns: a steady drift favours none."""
    first = [trial for trial in plan.trials if trial.repeat == 1 and trial.cell in cells]
    seeds = plan.suite.repeats_are_seeds
    return [
        once_more(trial, number, len(plan.trials) + place, seed=int(trial.parameters["seed"]) + number - 1 if seeds else None)
        for place, trial in enumerate(first if number % 2 else reversed(first))
    ]


def _of_race(suite: Suite, metric: str, *, parity: bool) -> Suite:
    """The suite whose report is of the race's metric. References of loss parity run only for a race that asks for it."""
    if parity and "precision" in suite.sets:
        hint = f"keep settings with --only precision={suite.sets['precision']} instead, or leave out --parity"
        raise ConfigError.one("--set", None, "precision", "would be the references' too, which loss parity needs in fp32", hint)
    report = suite.report.model_copy(update={"metric": metric, "published": None})
    seeds = max(suite.parity_reference, REFERENCE_SEEDS) if parity else 0
    return suite.model_copy(update={"report": report, "parity_reference": seeds, "repeats": 1, "rounds": None})


def _within_limits(suite: Suite, where: Sequence[Constraint], say: Say) -> Suite:
    """The suite without the cells, and their references, that break a limit on a metric whose value a parameter of that name gives:
    the batch size, where it is a number. Raises ConfigError where fewer than two settings keep it."""
    for limit in where:
        cells = [cell for cell in matrix.expand(suite) if not cell.reference]
        values = [cell.parameters.get(limit.metric) for cell in cells]
        kept = [not isinstance(value, int | float) or limit.keeps(value) for value in values]
        lost = kept.count(False)
        if not lost:
            continue
        if len(kept) - lost < 2:
            known = ", ".join(str(value) for value in dict.fromkeys(values))
            problem = f"{plural(len(kept) - lost, 'setting')} of {len(kept)} can keep it, and a race needs two"
            raise ConfigError.one(OPTION, None, limit.text, problem, f"{limit.metric} is {known} in this suite: take another limit")
        say(f"{plural(lost, 'setting')} cannot keep {limit.text}, and {'does' if lost == 1 else 'do'} not run")
        remaining = [value for value, keeps in zip(values, kept, strict=True) if keeps]
        suite = suite.model_copy(update={"only": {**suite.only, limit.metric: list(dict.fromkeys(remaining))}})
    return suite


def _check_metric(option: str, name: str, *, maximise: bool) -> None:
    try:
        metric: Metric = metrics.metric_of(name, unlisted=False)
    except ConfigError as error:
        raise ConfigError.one(option, None, name, "unknown metric", error.hint) from None
    if metric.of_steps or "*" in name or metric.scale is not Scale.LOG:
        raise ConfigError.one(option, None, name, "has no ratios by which settings could race", "take a rate, a time or a size")
    wrong = Direction.LOWER if maximise else Direction.HIGHER
    if metric.direction is wrong:
        raise ConfigError.one(option, None, name, f"is better {wrong}", f"use --{'minimise' if maximise else 'maximise'} {name}")


def _check_settings(plan: Plan) -> None:
    """Raise ConfigError unless there are two settings at least, on one pool, that do the same work."""
    trials = [trial for trial in plan.trials if not trial.reference]
    file = plan.suite.file or plan.request.suite
    pools = list(dict.fromkeys(trial.pool for trial in trials))
    if len(pools) > 1:
        hint = f"choose one, such as --pool {pools[0]}"
        raise ConfigError.one(file, None, "pool", f"a race is on one pool, and this one has {', '.join(pools)}", hint)
    if len(trials) < 2:
        raise ConfigError.one(file, None, "axes", "there is one setting, and nothing to race against", "give an axis more values")
    cells = [Cell([TrialRow(trial)], metrics.metric_of(plan.suite.report.metric)) for trial in trials]
    set_work(cells, plan.suite)
    groups = groups_of_work(cells)
    if len(groups) > 1:
        works = [group[0].work for group in groups.values()]
        differ = [name for name in works[0] if any(work.get(name) != works[0][name] for work in works)]
        value = cells[0].trial.parameters[differ[0]]
        hint = f"keep one value of each, such as --only {differ[0]}={value} or --set {differ[0]}={value}"
        raise ConfigError.one(file, None, ", ".join(differ), "changes the work, and only settings that do the same work race", hint)


def _check_budget(plan: Plan, settings: RaceSettings) -> None:
    """Raise ConfigError where one round surely takes longer: by what trials took in past sweeps, else by their measured window alone."""
    known = expected_seconds(plan)
    least = sum(known.get(trial.cell, trial.least_s) for trial in plan.trials)
    if least > settings.budget_s:
        count, seen = len(plan.trials), sum(trial.cell in known for trial in plan.trials)
        how = f"{seen} of them as in past sweeps, the others at least as long as they measure"
        problem = f"{duration.text(settings.budget_s)} is too short for one round: its {count} trials take {duration.text(least)} ({how})"
        raise ConfigError.one("--budget", None, "", problem, "give it more time, or leave settings out with --only")


def _command(request: Request, profile: str, settings: RaceSettings) -> str:
    words = ["sweep", "tune", *arguments_of(request, profile), f"--{settings.direction}", settings.metric]
    for limit in settings.where:
        words += ["--where", limit.text]
    return shlex.join([*words, *(["--parity"] if settings.parity else []), "--budget", duration.text(settings.budget_s)])
