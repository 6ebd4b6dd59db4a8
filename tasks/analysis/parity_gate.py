"""No speed-up is claimed for a cell that has not shown that it learns what its reference learns.

A cell has nothing to prove if it computes as its baseline does: with equal NUMERICS (experiments/parameters.py) on the same kind of device.
Else its losses are compared with those of a reference, which learns the same in fp32 or, where no fp32 has enough seeds, in TF32 or bf16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.config.scalar_text import yaml_text
from experiments.parameters import REFERENCE, REFERENCE_SEEDS, REFERENCES, SAME_MATHEMATICS, as_reference, numerics_of
from experiments.stats.loss_parity import Parity, ParityStatus, loss_parity
from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.analysis.parity_note import parity_note

Settings = dict[str, Any]


@dataclass(eq=False)
class _Arm:
    """Cells that learn the same with the same numbers: they differ in SAME_NUMBERS and in their seed alone."""

    settings: Settings
    place: tuple[str | None, ...]  # pool, environment, commit
    numerics: tuple[tuple[str, str], ...]
    cells: list[Cell] = field(default_factory=list)

    @cached_property
    def curves(self) -> dict[int, NDArray[np.float64]]:
        """As a reference has them: of trainings that came to their end."""
        return _curves(self.cells, Outcome.OK)

    @cached_property
    def diverged(self) -> set[int]:
        """Seeds of which a training diverged."""
        return {*_curves(self.cells, Outcome.DIVERGED)}

    @property
    def trains(self) -> bool:
        return all(cell.trains for cell in self.cells)

    @cached_property
    def kind(self) -> int:
        """Its place in REFERENCES if it may be a reference; else their number."""
        found = (kind for kind, precision in enumerate(REFERENCES) if "precision" in self.settings and not self.lacks(precision))
        return next(found, len(REFERENCES))

    def lacks(self, precision: str) -> Settings:
        """What a reference of this precision is set to where it is set otherwise."""
        settings = as_reference(self.settings, precision)
        if precision != REFERENCE and "allow_tf32" in settings:  # the few fp32 products that are left there do not matter
            settings["allow_tf32"] = self.settings["allow_tf32"]
        if "compile_cache" in settings:  # which changes no number: early references have it as their cell had
            settings["compile_cache"] = self.settings["compile_cache"]
        return {name: value for name, value in settings.items() if name not in self.settings or value != self.settings[name]}

    @cached_property
    def mathematics(self) -> frozenset[tuple[str, Any]]:
        """Equal for arms that differ in nothing but SAME_MATHEMATICS and the seed."""
        left_out = {*SAME_MATHEMATICS, "seed"}
        return frozenset((name, _hashable(value)) for name, value in self.settings.items() if name not in left_out and value is not None)

    def differs(self, other: _Arm) -> set[str]:
        """Settings in which the two differ, without the seed."""
        mine, theirs = self.settings, other.settings
        return {name for name in {*mine, *theirs} - {"seed"} if mine.get(name) != theirs.get(name)}


def gate_on_parity(cells: Sequence[Cell]) -> None:
    """Set `numerics`, `parity`, `parity_note` and `reference` of each cell. `parity` stays None for what is itself the reference, and where
    neither the baseline nor anything that learns the same computes otherwise: of the sweep's other cells that then says nothing."""
    arms = _arms(cells)
    of = {id(cell): arm for arm in arms for cell in arm.cells}
    alike: dict[frozenset[tuple[str, Any]], list[_Arm]] = {}
    for arm in arms:
        alike.setdefault(arm.mathematics, []).append(arm)
    for cell in cells:
        cell.numerics = of[id(cell)].numerics
    known: dict[tuple[str, int], Parity] = {}  # of each cell, or of cells that differ in their seed alone
    for cell in cells:
        arm, baseline = of[id(cell)], of[id(cell.baseline)] if cell.baseline else None
        if not cell.measured or _undisputed(arm, baseline, alike[arm.mathematics]):
            continue
        reference = _reference(arm, baseline, alike[arm.mathematics])
        if reference is arm:
            cell.reference = str(arm.settings["precision"])
            continue
        if reference is None:
            cell.parity = Parity(ParityStatus.UNPROVEN, _why_none(arm, arms))
        else:
            at = (_without_seed(cell), id(reference))
            known[at] = known.get(at) or _compared([other for other in arm.cells if _without_seed(other) == at[0]], arm, reference)
            cell.parity = known[at]
        cell.parity_note = parity_note(cell.parity, str(reference.settings["precision"]) if reference else "", trains=arm.trains)


def _arms(cells: Sequence[Cell]) -> list[_Arm]:
    arms: dict[str, _Arm] = {}
    for cell in cells:
        settings = _settings(cell)
        numerics = numerics_of(settings, cell.trial.device)
        learnt = sorted((name, repr(value)) for name, value in settings.items() if name not in SAME_MATHEMATICS and name != "seed")
        key = repr((_place(cell), numerics, learnt))
        arms.setdefault(key, _Arm(settings, _place(cell), numerics)).cells.append(cell)
    return list(arms.values())


def _undisputed(arm: _Arm, baseline: _Arm | None, alike: Sequence[_Arm]) -> bool:
    """Whether neither its baseline nor anything that learns the same computes otherwise. Without a baseline a reference is meant."""
    if any(other.numerics != arm.numerics for other in alike):
        return False
    plain = arm.kind < len(REFERENCES) or "precision" not in arm.settings
    return plain if baseline is None else baseline.numerics == arm.numerics


def _reference(arm: _Arm, baseline: _Arm | None, alike: Sequence[_Arm]) -> _Arm | None:
    """What this arm is compared with, of those that learn the same; itself if others are compared with it; None if there is nothing.

    Enough seeds first, then fp32 before TF32 before bf16, then the baseline's place, the baseline's numerics, what is not compiled, and the
    plan's order. Without a baseline it is the arm's place, and no numerics come before others: of cells that are ranked each would else be
    its own reference. An arm is no reference to itself where its baseline computes otherwise, unless it is the more exact of the two, nor
    where another is better.
    """
    able = [other for other in alike if other.kind <= min(arm.kind, len(REFERENCES) - 1)]
    able = [other for other in able if any(cell.measured for cell in other.cells)]
    beside = baseline is not None and baseline.numerics != arm.numerics and arm.kind >= baseline.kind
    if arm in able and (beside or any(other.kind < arm.kind for other in able)):
        able.remove(arm)
    if not able:
        return None
    need, nearest = REFERENCE_SEEDS if arm.trains else 1, baseline or arm  # for its place

    def rank(other: _Arm) -> tuple[bool, int, bool, bool, bool]:
        compiled = other.settings.get("compile", "none") != "none"
        other_numerics = baseline is not None and other.numerics != baseline.numerics
        return len(other.curves) < need, other.kind, other.place != nearest.place, other_numerics, compiled

    return min(able, key=rank)


def _why_none(arm: _Arm, arms: Sequence[_Arm]) -> str:
    kinds = f"{', '.join(REFERENCES[:-1])} or {REFERENCES[-1]}"
    others = [other for other in arms if other is not arm and other.kind < len(REFERENCES)]
    if not others:
        return f"no {kinds} reference in the sweep{_what_lacks(arms)}"
    nearest = min((arm.differs(other) - SAME_MATHEMATICS for other in others), key=len)
    if nearest:
        return f"the nearest {kinds} cell differs in {' and '.join(sorted(nearest))}, so it is no reference"
    ends = {cell.outcome for other in others if arm.differs(other) <= SAME_MATHEMATICS for cell in other.cells if not cell.measured}
    if not ends:
        return f"no {kinds} reference computes otherwise"
    return f"the reference ended without a curve ({', '.join(sorted(ends)).replace('_', ' ')})"


def _what_lacks(arms: Sequence[_Arm]) -> str:
    """With what the cell of fp32, TF32 or bf16 that is nearest to a reference would be one; empty where there is no such cell."""
    plain = [(precision, arm) for arm in arms if (precision := arm.settings.get("precision")) in REFERENCES]
    each = [(precision, arm.lacks(precision)) for precision, arm in plain]
    precision, lacks = min(each, key=lambda one: len(one[1]), default=("", {}))
    settings = [f"{name} {yaml_text(value)}" for name, value in sorted(lacks.items())]
    return f"; a cell in {precision} would be one with {' and '.join(settings)}" if settings else ""


def _hashable(value: Any) -> Any:
    return repr(value) if isinstance(value, list | dict) else value


def _compared(cells: Sequence[Cell], arm: _Arm, reference: _Arm) -> Parity:
    ours, theirs = _curves(cells, Outcome.OK, Outcome.DIVERGED), reference.curves
    ours = {seed: curve for seed, curve in ours.items() if seed in theirs or seed not in reference.diverged}
    if not ours or not theirs:
        whose = "its" if not ours else "its reference's"
        return Parity(ParityStatus.UNPROVEN, f"{whose} trials give no loss to compare")
    try:
        found = loss_parity(ours, theirs, trains=arm.trains)
    except ValueError as error:
        return Parity(ParityStatus.UNPROVEN, str(error))
    alone = [seed for seed, curve in sorted(ours.items()) if seed not in theirs and np.isinf(curve).any()]
    if alone and found.status is not ParityStatus.STRUCK:
        why = f"its training of seed {alone[0]} diverged, and its reference has none of that seed"
        return replace(found, status=ParityStatus.UNPROVEN, why=why)
    return found


def _curves(cells: Sequence[Cell], *outcomes: Outcome) -> dict[int, NDArray[np.float64]]:
    """Losses by seed, of trials with these outcomes: the mean of those of equal seed, over the steps that they have in common; of one that
    diverged the last is infinite. Without trials that have none.

    With those that other work disturbed: it changes a trial's times and not its losses.
    """
    found: dict[int, list[NDArray[np.float64]]] = {}
    for row in (row for cell in cells for row in cell.rows if row.outcome in outcomes):
        if not np.isnan(row.losses).all():
            found.setdefault(int(row.trial.parameters.get("seed", 0)), []).append(row.losses)
    return {seed: _mean(curves) for seed, curves in found.items()}


def _place(cell: Cell) -> tuple[str | None, ...]:
    return cell.trial.pool, cell.trial.environment, cell.trial.commit


def _without_seed(cell: Cell) -> str:
    return repr((_place(cell), sorted((name, repr(value)) for name, value in _settings(cell).items() if name != "seed")))


def _mean(curves: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Infinite where any of them is, whether the others were recorded or not."""
    steps = min(curve.size for curve in curves)
    stack = np.array([curve[:steps] for curve in curves])
    return np.where(np.isinf(stack).any(axis=0), np.inf, stack.mean(axis=0))


def _settings(cell: Cell) -> Settings:
    """The cell's parameters, with the batch that `max` came to."""
    batch_size = next((row.result.summary.get("batch_size") for row in cell.measured if row.result), None)
    settings = dict(cell.trial.parameters)
    return {**settings, "batch_size": batch_size} if batch_size is not None and settings.get("batch_size") == "max" else settings
