"""Which cells of a night do not fit its budget.

A cell that has been measured is expected to take as long again. One without history takes as long as a trial of the pool's others on
average, and where nothing is known of the pool as long as its window and LEAST_S at least: a first night learns what its cells take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from cluster.pools.lanes import lanes
from experiments.config.errors import ConfigError
from experiments.regression.definition import NightFile, drop_to_fit
from tasks.nightly.store import Dropped, NightCell

LEAST_S = 1.0  # no trial is shorter: its process, its warm-up, its window


@dataclass(frozen=True)
class _Time:
    """What one trial of a cell takes, s. `how`: after the number, where it is not known from the cell's own history."""

    seconds: float
    how: str = ""


def drop(cells: Sequence[NightCell], windows_s: Sequence[float], definition: NightFile, budget_s: float) -> list[Dropped]:
    """The cells to leave out. Pools, or those of one machine together, that take longer than the budget lose their cells
    of lowest value.

    `windows_s`: of each cell, how long its window is at least, s; 0 where that is not known. Raises ConfigError where no cell is left.
    """
    dropped = []
    own_s = 0.0  # what the night measures itself with
    lane_of = lanes(cell.pool for cell in cells)
    timed: dict[str, list[tuple[NightCell, _Time]]] = {}
    for pool in dict.fromkeys(cell.pool for cell in cells):
        mine = [(cell, window_s) for cell, window_s in zip(cells, windows_s, strict=True) if cell.pool == pool]
        times = _times(mine, definition.repeats)
        timed.setdefault(lane_of[pool], []).extend((cell, time) for (cell, _), time in zip(mine, times, strict=True))
    for in_turns in timed.values():
        fixed = sum(time.seconds for cell, time in in_turns if cell.role != "history")
        history = {cell.cell: (cell, time) for cell, time in in_turns if cell.role == "history"}
        costs = {identity: time.seconds for identity, (_, time) in history.items()}
        own_s = max(own_s, fixed)
        for identity in drop_to_fit(costs, {identity: cell.value for identity, (cell, _) in history.items()}, budget_s, fixed):
            cell, time = history[identity]
            why = f"value {cell.value:g}, {time.seconds:.0f} s{time.how}: does not fit the budget of {budget_s:.0f} s"
            dropped.append(Dropped(cell=identity, name=cell.name, why=why))
    if len(dropped) == sum(cell.role == "history" for cell in cells):
        problem = f"{budget_s:.0f} s leave no time for a cell; what the night measures itself with takes {own_s:.0f} s"
        raise ConfigError.one(f"nightly {definition.nightly}", None, "budget", problem, "give it more")
    return dropped


def _times(cells: Sequence[tuple[NightCell, float]], repeats: int) -> list[_Time]:
    """What so many trials take of each of these cells of one pool, with the length of its window."""
    known = [cell.expected_s for cell, _ in cells if cell.expected_s is not None]
    times = []
    for cell, window_s in cells:
        if cell.expected_s is not None:
            times.append(_Time(repeats * cell.expected_s))
        elif known:
            times.append(_Time(repeats * max(window_s, fmean(known)), " without history, as the pool's other cells"))
        else:
            times.append(_Time(repeats * max(window_s, LEAST_S), " at least, without history"))
    return times
