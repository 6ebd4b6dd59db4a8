"""Cells of a sweep that is looked at after several of its rounds: a verdict belongs to the look at which it fell, and stays.

The plan holds which looks there were (`Plan.decide`). What a look saw is found again from the trials, so that the report says what ended
the rounds of a cell, however often it is derived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.spec.schema import Suite
from experiments.stats.estimate import LEVEL
from experiments.stats.interim_levels import look_levels
from experiments.stats.interim_looks import Look
from experiments.stats.spread import SpreadLookup
from experiments.stats.verdict import CHANCE, Levels, Verdict
from tasks.analysis.cell import Cell
from tasks.analysis.compare_cells import compared_pairs, laid_out_cells, make_cells, shown, take
from tasks.analysis.judge_cells import Comparison, judge_ratios, ratio_of, scaled_p
from tasks.analysis.kept_looks import inputs_of, keep_results, read_results
from tasks.analysis.known_spread import known_for
from tasks.analysis.look_result import LookResult
from tasks.analysis.parity_gate import gate_on_parity
from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow, keep_failing
from tasks.sweep.store import Plan

NOT_LOOKED = "its rounds are not done"  # why a comparison without a look is undecided


NO_LOOK = Levels(0.0, LEVEL)


def cells_of_plan(
    rows: Sequence[TrialRow], plan: Plan, *, emulated: bool = False, known: SpreadLookup | None = None, folder: Path | None = None
) -> list[Cell]:
    """The cells of a sweep as `make_cells` has them, with verdicts by the plan's looks where it has such.

    A race's have none: its own rule (tasks/analysis/race.py) compares settings with the leader.

    Values and loss parity are of all trials. A speed-up and its verdict are of the look that decided them, else of the last one.
    `folder`: the sweep's, which keeps what its looks found.
    """
    if plan.decide is None and plan.race is None:
        return make_cells(rows, plan.suite, emulated=emulated, known=known)
    cells = laid_out_cells(rows, plan.suite, emulated=emulated, known=known)
    if plan.decide is not None:
        _judge_by_looks(cells, rows, plan.suite, plan.decide.looks, emulated=emulated, known=known, folder=folder)
    else:
        for cell, baseline in compared_pairs(cells):
            cell.speedup = ratio_of(cell, baseline)
    gate_on_parity(cells)
    return shown(cells)


def _judge_by_looks(
    cells: Sequence[Cell],
    rows: Sequence[TrialRow],
    suite: Suite,
    looks: Sequence[Look],
    *,
    emulated: bool,
    known: SpreadLookup | None,
    folder: Path | None,
) -> None:
    """Give each cell that has a baseline the comparison of the look that decided it, else of the last one."""
    mine = [row for row in rows if row.emulated == emulated]
    seen = _look(mine, suite, looks, emulated=emulated, known=known, folder=folder)
    for cell, baseline in compared_pairs(cells):
        last = seen.get(cell.trial.cell)
        cell.levels = last.levels if last else NO_LOOK
        take(cell, last.found if last else Comparison(ratio_of(cell, baseline), Verdict.UNDECIDED, NOT_LOOKED))
        if last and last.decided and cell.verdict is not None:
            cell.decided_after = last.round


def _look(
    rows: Sequence[TrialRow], suite: Suite, looks: Sequence[Look], *, emulated: bool, known: SpreadLookup | None, folder: Path | None
) -> dict[str, LookResult]:
    """What the looks found of each cell, by its hash: the look that decided it, else the last.

    Looks that were judged before are not judged again: of the last, or of the one before it, that is kept.
    """
    seen: dict[str, LookResult] = {}
    begin = 0
    for count in (len(looks), len(looks) - 1) if folder is not None else ():
        kept = read_results(folder, _inputs(rows, suite, looks[:count], known)) if count > 0 else None
        if kept is not None:
            seen, begin = kept, count
            break
    for count in range(begin + 1, len(looks) + 1):
        seen |= next_results(rows, suite, looks[:count], seen, emulated=emulated, known=known)
    if folder is not None and begin < len(looks):
        keep_results(folder, _inputs(rows, suite, looks, known), seen)
    return seen


def _inputs(rows: Sequence[TrialRow], suite: Suite, looks: Sequence[Look], known: SpreadLookup | None) -> str:
    return inputs_of(rows_at(rows, looks[-1].round), suite, looks, known)


def next_results(
    rows: Sequence[TrialRow],
    suite: Suite,
    looks: Sequence[Look],
    seen: Mapping[str, LookResult],
    *,
    emulated: bool = False,
    known: SpreadLookup | None = None,
) -> dict[str, LookResult]:
    """What the last of these looks found of the cells, by their hash, that those before it (`seen`) left undecided."""
    levels = Levels(look_levels(looks, CHANCE)[-1], 1 - look_levels(looks, 1 - LEVEL)[-1])
    cells = laid_out_cells(rows_at(rows, looks[-1].round), suite, emulated=emulated, known=known)
    for cell in cells:
        cell.levels = levels
    decided = {cell: one.p for cell, one in seen.items() if one.decided}
    pairs = [(cell, baseline) for cell, baseline in compared_pairs(cells) if cell.trial.cell not in decided]
    ratios = [ratio_of(*pair) for pair in pairs]
    found = judge_ratios(pairs, ratios, suite.report.minimum_effect, decided=list(decided.values()))
    return {
        cell.trial.cell: LookResult(one, levels, looks[-1].round, scaled_p(cell, baseline, ratio))
        for (cell, baseline), ratio, one in zip(pairs, ratios, found, strict=True)
    }


def rows_at(rows: Sequence[TrialRow], at: int) -> list[TrialRow]:
    """The trials that the look after round `at` saw: of rounds up to it, without those that ran again once a later round had a result."""
    over = [row.result.finished_at for row in rows if row.trial.repeat > at and row.result is not None]
    end = min(over, default=math.inf)
    return [row for row in rows if row.trial.repeat <= at and (row.result is None or row.result.started_at < end)]


def judged_cells(sweep: Sweep, *, emulated: bool = False) -> list[Cell]:
    """The cells of a sweep with their verdicts, as its report has them: of the trials that measured, or of the emulated ones alone."""
    known = None if emulated else known_for(sweep).spreads.trial
    return cells_of_plan(sweep.rows, sweep.plan, emulated=emulated, known=known, folder=sweep.dir)


def undecided_of(sweep: Sweep) -> list[Cell]:
    """The cells of a sweep whose comparison another round may decide, by the verdicts of its report: see `undecided_cells`."""
    emulated = bool(sweep.rows) and all(row.emulated for row in sweep.rows)
    return undecided_cells(judged_cells(sweep, emulated=emulated))


def undecided_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Those whose comparison another round may decide: not where the loss is struck, since then nothing is claimed anyway, nor where the
    cell or its baseline keeps failing."""
    return [cell for cell in cells if cell.verdict is Verdict.UNDECIDED and not cell.struck and not given_up(cell)]


def given_up(cell: Cell) -> bool:
    """Whether further rounds would not compare a cell with its baseline, since trials of one of them keep failing."""
    return any(keep_failing(one.rows) for one in (cell, cell.baseline) if one is not None)
