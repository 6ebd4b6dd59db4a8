"""What an A/B sweep found: of each pair of cells, how side B stands to side A, and the exit status that says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.parameters import SIDE
from experiments.stats.verdict import Verdict
from experiments.trial import Scalar
from tasks.analysis.cell import Cell
from tasks.sweep.ab_settings import AbSettings

SLOWER, UNDECIDED = 3, 4  # exit statuses; 1 and 2 are about trials, as for every sweep
_NO_RESULT = ("does_not_fit", "unsupported", "diverged", "hang", "crashed")  # endings that are the cell's own


@dataclass(frozen=True, eq=False)
class AbPair:
    """One cell as side A and as side B."""

    a: Cell
    b: Cell

    @property
    def axes(self) -> Mapping[str, Scalar]:
        """What both share."""
        return {axis: value for axis, value in self.a.axes.items() if axis != SIDE}

    @property
    def name(self) -> str:
        return " · ".join(self.a.trial.axis_labels(self.axes).values())

    @property
    def lost(self) -> bool:
        """Whether B has no value for a reason of its own, such as memory, where A has one."""
        return self.a.estimate is not None and self.b.estimate is None and self.b.outcome in _NO_RESULT

    @property
    def worse(self) -> bool:
        return self.b.verdict is Verdict.SLOWER or self.b.struck or self.lost

    @property
    def undecided(self) -> bool:
        """Also where nothing could be compared."""
        return not self.worse and self.b.verdict not in (Verdict.SAME, Verdict.FASTER)


def ab_pairs(cells: Sequence[Cell], settings: AbSettings) -> list[AbPair]:
    """The pairs, in the plan's order. `cells`: judged, of one kind (measured, or emulated)."""
    a_label, b_label = settings.labels
    sides = [{_rest(cell): cell for cell in cells if cell.axes.get(SIDE) == side} for side in (a_label, b_label)]
    return [AbPair(a, sides[1][rest]) for rest, a in sides[0].items() if rest in sides[1]]


def ab_status(pairs: Sequence[AbPair]) -> int:
    """3 where any cell of B is worse; else 4 where any is undecided, or there is none; else 0."""
    if any(pair.worse for pair in pairs):
        return SLOWER
    return UNDECIDED if not pairs or any(pair.undecided for pair in pairs) else 0


def _rest(cell: Cell) -> str:
    return repr([(axis, value) for axis, value in cell.axes.items() if axis != SIDE])
