"""With which confidence the ratios of a sweep have their intervals: 95 %, or more where it is looked at several times."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.stats.estimate import LEVEL
from tasks.analysis.cell import Cell
from tasks.sweep.store import Plan


def level_text(cells: Sequence[Cell], plan: Plan) -> str:
    """Of the intervals of these cells' ratios to their baselines: `95 %`, `96.25 to 97.93 %, because the sweep was looked at 2 times`."""
    if plan.race is not None:
        return f"{_percent(LEVEL)}, as if the sweep had been looked at once: its settings drop out by a rule of their own"
    levels = sorted({cell.levels.confidence for cell in cells if cell.speedup is not None})
    if not levels or levels == [LEVEL]:
        return _percent(LEVEL)
    ends = list(dict.fromkeys(_number(level) for level in (levels[0], levels[-1])))
    looks = len(plan.decide.looks) if plan.decide is not None else 0
    why = f"was looked at {looks} times" if looks > 1 else "may be looked at again after more rounds"
    return f"{' to '.join(ends)} %, because the sweep {why}"


def _percent(level: float) -> str:
    return f"{_number(level)} %"


def _number(level: float) -> str:
    """95, 96.25, 99.7."""
    return f"{100 * level:.2f}".rstrip("0").rstrip(".")
