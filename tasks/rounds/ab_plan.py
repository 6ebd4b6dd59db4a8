"""A/B sweeps (`sweep ab`): cells of a suite as side A and as side B, in turns A B B A A B ..., until each comparison is decided.

A side is told by the axis `side`, which is no parameter of a workload. What the sides differ by is the commit, the environment or the
settings of their trials; everything else is the same. Rounds and looks are those of any sweep with a budget (decide_plan.py).
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.pools.pool import load_pools
from experiments.config import duration
from experiments.config.errors import ConfigError
from experiments.metric import Direction
from experiments.metrics import metric_of
from experiments.parameters import SIDE
from experiments.spec import matrix
from experiments.spec.matrix import PlannedCell
from experiments.spec.schema import Condition, Suite
from experiments.trial import DEFAULT_ENVIRONMENT, WORKTREE, Scalar, Trial, label
from tasks.analysis.cell import Cell
from tasks.analysis.same_work import other_work, set_work
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.aa_plan import baseline_cell
from tasks.sweep.ab_settings import AbSettings
from tasks.sweep.ab_sides import Side, parse_sides, short
from tasks.sweep.plan import TrialMaker, expected_seconds, make_plan
from tasks.sweep.request_text import arguments_of
from tasks.sweep.store import Plan, Request
from tasks.sweep.variants import Say, Variants


@dataclass(frozen=True)
class _Pair:
    """A cell of side A and the cell of side B that it is compared with. `axes`: what both share."""

    axes: Mapping[str, Scalar]
    a: PlannedCell
    b: PlannedCell


def plan_ab(
    request: Request, a: str, b: str, *, every: bool = False, devices: Container[str] | None = None, say: Say = lambda text: None
) -> Plan:
    """The first round of an A/B sweep, whose request has a budget. Cells: the suite's baseline cell, else the first; with `every`, and
    where the request has `only`, all that it leaves, with the references that loss parity needs. `devices`: only of cells on these kinds,
    which a change can touch (tasks/sweep/touched.py).

    Everything is checked before an environment is built; `say` is told of that. Raises ConfigError, CommitError or DatasetError, as
    `make_plan`, and ConfigError for sides that are none or whose trials are the same, that do not do the same work or have different
    cells, for a metric without a better, and for a budget that is too short for one round.
    """
    sides = parse_sides(a, b)
    settings = AbSettings(kind=sides[0].kind, a=short(a), b=short(b))
    plan, suite = _checked(request, sides[0], "A")
    pools = list(dict.fromkeys(trial.pool for trial in plan.trials)) if request.profile == "auto" else request.pools
    resolved = request.model_copy(update={"profile": plan.profile, "pools": pools})
    other, suite_b = _checked(resolved, sides[1], "B", plan.sweep_id)
    pairs = _pairs(sides, _cells(suite, devices), _cells(suite_b, devices), suite, every=every or bool(request.only))
    known = load_pools()
    if settings.kind != "settings":
        Variants(known).check([cell for pair in pairs for cell in (pair.a, pair.b)], "A and B")
    if metric_of(suite.report.metric).direction is Direction.NEITHER:
        problem = "is better neither high nor low, so that neither side could win"
        raise ConfigError.one(suite.file or request.suite, None, suite.report.metric, problem, "choose another suite")
    plain = TrialMaker(plan.sweep_id, known, Variants(known, build_them=False))
    firsts = [_trial(plain, suite, pair, settings, index) for index, pair in enumerate(pairs)]
    _check_apart(pairs, firsts)
    _check_work(pairs, firsts, suite)
    _check_budget(plan, [plain.make(suite, _plain(cell), 1, 0) for pair in pairs for cell in (pair.a, pair.b)])
    maker = TrialMaker(plan.sweep_id, known, Variants(known, say=say))
    trials = [trial for index, pair in enumerate(pairs) for trial in _trial(maker, suite, pair, settings, 2 * index)]
    made: dict[str, Any] = {"suite": _of_sides(suite, sides, settings), "request": request, "trials": trials, "ab": settings}
    made |= {"trees": {**plan.trees, **other.trees}, "labels": {"sweep.ab": f"{settings.b} against {settings.a}"}}
    return plan.model_copy(update={**made, "command": _command(request, plan.profile, settings, every=every, changed=devices is not None)})


def _checked(request: Request, side: Side, name: str, sweep_id: str | None = None) -> tuple[Plan, Suite]:
    """`make_plan` of a side, without building anything. What is wrong with what the side sets is said of the side."""
    try:
        return make_plan(_with(request, side), sweep_id, plain=False, build_environments=False)
    except ConfigError as error:
        raise ConfigError([replace(one, file=name) if one.key in side.sets else one for one in error.problems]) from None


def _with(request: Request, side: Side) -> Request:
    """The request with what a side sets. Raises ConfigError for what --set sets too."""
    for name in side.sets:
        if name in request.set:
            hint = "leave --set out: a side's value is the side's alone"
            raise ConfigError.one("--set", None, name, f"stands in {side.text!r} too", hint)
    return request.model_copy(update={"set": {**request.set, **side.sets}})


def _cells(suite: Suite, devices: Container[str] | None) -> list[PlannedCell]:
    return [cell for cell in matrix.expand(suite) if devices is None or cell.device in devices]


def _pairs(
    sides: tuple[Side, Side], cells: Sequence[PlannedCell], others: Sequence[PlannedCell], suite: Suite, *, every: bool
) -> list[_Pair]:
    """The cells of both sides, by the axes that no side sets. Raises ConfigError where one of them has no partner, or two."""
    own = {*sides[0].sets, *sides[1].sets}
    if not every:
        cells = [baseline_cell([cell for cell in cells if not cell.reference], suite)]
    found = [_Pair({k: v for k, v in cell.axes.items() if k not in own}, cell, cell) for cell in cells]
    mine = [(pair, [one for one in others if _matches(pair, one, own)]) for pair in found]
    lone = [(pair, partners) for pair, partners in mine if len(partners) != 1 or sum(_matches(pair, cell, own) for cell in cells) != 1]
    matched = [partner for _, partners in mine for partner in partners]
    strange = [cell for cell in others if every and not any(cell is one for one in matched)]
    if lone or strange:
        axes = lone[0][0].axes if lone else {k: v for k, v in strange[0].axes.items() if k not in own}
        name = " · ".join(label(axis, value) for axis, value in axes.items())
        why = f"cells of A and B do not pair up: {name} is not once on each side"
        hint = "name the same settings on both sides, or keep the cells that both have with --only"
        raise ConfigError.one("A and B", None, "", why, hint)
    return [replace(pair, b=partners[0]) for pair, partners in mine]


def _matches(pair: _Pair, cell: PlannedCell, own: set[str]) -> bool:
    shared = {k: v for k, v in cell.axes.items() if k not in own}
    return cell.reference == pair.a.reference and repr(shared) == repr(dict(pair.axes))


def _trial(maker: TrialMaker, suite: Suite, pair: _Pair, settings: AbSettings, index: int) -> tuple[Trial, Trial]:
    """The first trials of a pair, A then B. They are two cells also where both sides are the same, as of a reference."""
    both = zip("AB", (pair.a, pair.b), settings.labels, strict=True)
    a, b = (
        maker.make(
            suite,
            cell,
            1,
            index + place,
            seed=matrix.seed_of(suite, cell, 1),
            axes={**pair.axes, SIDE: name},
            apart={SIDE: side},
            labels={"ab.side": side},
        )
        for place, (side, cell, name) in enumerate(both)
    )
    return a, b


def _of_sides(suite: Suite, sides: tuple[Side, Side], settings: AbSettings) -> Suite:
    """The suite whose table compares side B with side A, and which says what a side sets."""
    own = {*sides[0].sets, *sides[1].sets}
    report = suite.report.model_copy(
        update={"columns": SIDE, "rows": [axis for axis in suite.report.rows if axis not in own], "figures": [], "published": None}
    )
    named = [Condition(when={SIDE: name}, set=dict(side.sets)) for name, side in zip(settings.labels, sides, strict=True)]
    conditions = [*suite.conditions, *(named if settings.kind == "settings" else [])]
    changed = {"baseline": {SIDE: settings.labels[0]}, "report": report, "conditions": conditions, "rounds": None, "repeats": 1}
    changed["axes"] = {**{k: v for k, v in suite.axes.items() if k not in own}, SIDE: list(settings.labels)}
    return suite.model_copy(update={**changed, "sets": {k: v for k, v in suite.sets.items() if k not in own}})


def _check_apart(pairs: Sequence[_Pair], trials: Sequence[tuple[Trial, Trial]]) -> None:
    """Raise ConfigError where both trials of a pair are the same: parameters, code, environment, data. Only references may be."""
    measured = [(pair, both) for pair, both in zip(pairs, trials, strict=True) if not pair.a.reference]
    alike = [pair for pair, (a, b) in measured if _what_runs(a) == _what_runs(b)]
    if not alike:
        return
    twice = "`sweep aa` compares a cell with itself"
    if len(alike) == len(measured):
        raise ConfigError.one("A and B", None, "", "are the same trials: no setting, code or environment differs", f"name two; {twice}")
    name = " · ".join(label(axis, value) for axis, value in alike[0].axes.items())
    problem = f"are the same trials in {len(alike)} of {len(measured)} cells, first in {name}"
    raise ConfigError.one("A and B", None, "", problem, f"keep the cells in which they differ with --only; {twice}")


def _what_runs(trial: Trial) -> tuple[Any, ...]:
    """What a trial runs, without what only tells its cell from others. Two commits are two also where this workload's code is the same."""
    parts = {name: part for name, part in trial.key_parts.items() if name != "configuration"}
    return trial.parameters, trial.commit, trial.environment_digest, parts


def _check_work(pairs: Sequence[_Pair], trials: Sequence[tuple[Trial, Trial]], suite: Suite) -> None:
    """Raise ConfigError where the sides of a pair do not do the same work: no ratio of theirs would say which is faster."""
    for pair, both in zip(pairs, trials, strict=True):
        cells = [Cell([TrialRow(trial)], metric_of(suite.report.metric)) for trial in both]
        set_work(cells, suite)
        if not pair.a.reference and (differs := other_work(cells[1], cells[0])):
            raise ConfigError.one(
                "A and B", None, "", f"do not do the same work: {differs}", "compare settings that leave the work as it is"
            )


def _plain(cell: PlannedCell) -> PlannedCell:
    """The cell as `sweep run` has it: its time is known where those of a commit are not."""
    return replace(cell, environment=DEFAULT_ENVIRONMENT, commit=WORKTREE)


def _check_budget(plan: Plan, trials: Sequence[Trial]) -> None:
    """Raise ConfigError where one round surely takes longer: by what such cells took in past sweeps, else by their measured windows."""
    assert plan.decide is not None
    known = expected_seconds(plan.model_copy(update={"trials": list(trials)}))
    least = sum(known.get(trial.cell, trial.least_s) for trial in trials)
    if least > plan.decide.budget_s:
        how = "in past sweeps here" if known else "in their measured windows alone"
        problem = (
            f"{duration.text(plan.decide.budget_s)} is too short: one round of {len(trials)} trials takes {duration.text(least)} ({how})"
        )
        raise ConfigError.one("--budget", None, "", problem, f"give more, such as --budget {duration.text(4 * least)}")


def _command(request: Request, profile: str, settings: AbSettings, *, every: bool, changed: bool) -> str:
    arguments = arguments_of(request.model_copy(update={"until_decided": None}), profile)
    flags = [*(["--all"] if every else []), *(["--changed"] if changed else [])]
    return shlex.join(["sweep", "ab", settings.a, settings.b, "--suite", *arguments, *flags])
