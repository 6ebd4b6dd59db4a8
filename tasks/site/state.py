"""How a cell stands on a branch: by its verdicts of the last night that has any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from experiments.stats.verdict import Verdict
from tasks.nightly.store import CellVerdict
from tasks.site.history import CellHistory, Track


class Kind(IntEnum):
    """How a cell stands, what needs a person first."""

    WORSE = 0
    BETTER = 1
    UNDECIDED = 2
    MISSING = 3
    RECORDED = 4  # not judged yet, for want of nights to compare with
    SAME = 5
    GONE = 6  # the last night did not plan it

    @property
    def title(self) -> str:
        """For people, of many cells: `3 worse`."""
        return {Kind.MISSING: "not measured", Kind.RECORDED: "only recorded", Kind.GONE: "no longer planned"}.get(self, self.name.lower())


@dataclass(frozen=True)
class CellState:
    """How a cell stands on a branch.

    `word`: the verdict in the metric's own words. `first`: the last verdict on its first metric that has a value, and the index of that
    night. `moved`: what changed on the branch's last night: what got worse, then what got better; of both the cell's first metric first.
    """

    kind: Kind
    word: str
    first: CellVerdict | None
    measured: int | None
    moved: list[CellVerdict]
    why: str | None = None


def cell_state(track: Track, cell: CellHistory) -> CellState | None:
    """None for a cell that no night of the branch planned, or before a night was judged."""
    last, nights = track.last_judged, frozenset(track.nights)
    if last is None or not nights & {*cell.planned, *cell.absent}:
        return None
    main = cell.cell.metrics[0]
    known = {metric: found for metric, series in cell.series.items() if (found := series.last_of(nights))}
    measured = max((night for series in cell.series.values() for night in series.night if night in nights), default=None)
    first = known[main][1] if main in known else None
    if last in cell.absent:
        return CellState(Kind.MISSING, cell.absent[last].partition(":")[0], first, measured, [], cell.absent[last])
    if last not in cell.planned:
        return CellState(Kind.GONE, "gone", first, measured, [], "the last night did not plan it")
    now = {metric: item for metric, (night, item) in known.items() if night == last}
    return _judged(now, main, first, measured)


def _judged(now: Mapping[str, CellVerdict], main: str, first: CellVerdict | None, measured: int | None) -> CellState:
    """By the last night's verdicts, metric -> verdict; `main` is the cell's first metric."""
    worse, better = ([item for item in now.values() if item.verdict is verdict] for verdict in (Verdict.SLOWER, Verdict.FASTER))
    for kind, moved, others in ((Kind.WORSE, worse, better), (Kind.BETTER, better, [])):
        if moved:
            moved.sort(key=lambda item: item.metric != main)
            return CellState(kind, moved[0].word, first, measured, [*moved, *others])
    item = now.get(main)
    if item is None or item.value is None:
        return CellState(Kind.MISSING, "not measured", first, measured, [], item.why if item else None)
    if item.needs is not None:
        return CellState(Kind.RECORDED, "recorded", first, measured, [], item.why)
    kind = Kind.SAME if item.verdict is Verdict.SAME else Kind.UNDECIDED
    return CellState(kind, str(item.verdict), first, measured, [], item.why)
