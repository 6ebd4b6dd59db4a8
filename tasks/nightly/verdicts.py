"""A night's verdicts: each metric of each cell against its own history, relative to its node. Composition only."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.regression.definition import METRICS, NightFile
from experiments.regression.history_segments import Change, baseline_nights, open_alarm, reference_nights
from experiments.stats.verdict import Verdict
from tasks.nightly.cell_verdict import cell_verdicts
from tasks.nightly.comparison import Comparison, counted, counted_nights, counted_tonight, nights_with
from tasks.nightly.creep import creep, is_due
from tasks.nightly.good_commit import GoodNight, good_night
from tasks.nightly.history import History
from tasks.nightly.node_state import node_states
from tasks.nightly.store import AA_CONTROL, CONTROLS, CellVerdict, Night, NightCell, NodeState, verdicts_of

_ALL_NIGHTS = 10_000


class NightVerdicts:
    """The verdicts of one night. `past`: MLflow's history before it; `nights`: other nights, whose verdicts say where alarms are open."""

    def __init__(self, definition: NightFile, night: Night, past: History, nights: Sequence[Night], changes: Sequence[Change]) -> None:
        self.definition, self.night, self.past = definition, night, past
        self.nights, self.changes = [other for other in nights if other.date < night.date], changes
        self._canaries = {cell.pool: cell.cell for cell in night.cells if cell.role == "canary"}

    def judgements(self, now: History) -> tuple[list[CellVerdict], list[NodeState]]:
        """The verdicts on all cells and controls, in the night's order, and those on the nodes, from what `now` holds of tonight.

        Each metric of the cells is a family of its own for the false discovery rate, and so is each control: the slow-down that is there on
        purpose would else loosen what holds for the cells. A metric besides a cell's first is left out where it is missing.
        """
        nodes = node_states(self.definition, self.night, self.past, now)
        verdicts: list[CellVerdict] = []
        for metric in dict.fromkeys(metric for cell in self.night.cells for metric in cell.metrics):
            cells = [cell for cell in self.night.cells if metric in cell.metrics and cell.role != "canary"]
            family = [self._comparison(cell, metric, now, self.definition.baseline_nights) for cell in cells]
            family = [each for each in family if metric == each.cell.metrics[0] or any(metric in trial.values for trial in each.now)]
            for role in dict.fromkeys(each.cell.role for each in family):
                verdicts += cell_verdicts(self.definition, [each for each in family if each.cell.role == role], nodes, self.night.date)
        segments = self._segments(now) if self.definition.pairs else {}
        verdicts = [self._with_creep(item, segments.get(item.cell)) for item in verdicts]
        order = {(cell.cell, cell.role): index for index, cell in enumerate(self.night.cells)}
        return sorted(verdicts, key=lambda item: order[item.cell, item.role]), nodes

    def undecided(self, verdicts: Sequence[CellVerdict]) -> list[tuple[str, str]]:
        """(identity, role) of the cells that more repeats may decide: those whose first metric has a baseline and is undecided.

        Where nights measure pairs, these decide; repeats are left for the controls and for what looked changed and cannot be paired.
        """
        first = {(cell.cell, cell.role): cell.metrics[0] for cell in self.night.cells}
        return [
            (item.cell, item.role)
            for item in verdicts
            if item.verdict is Verdict.UNDECIDED
            and item.metric == first[item.cell, item.role]
            and item.ratio is not None
            and (not self.definition.pairs or item.role in CONTROLS or item.not_paired is not None)
        ]

    def good_night(self, item: CellVerdict, now: History) -> GoodNight | None:
        """The night whose commit tonight's is measured against in pairs; None without one."""
        past = self.past.of(item.cell, "history")
        measured = nights_with(past, item.metric)
        verdicts = verdicts_of(self.nights, item.cell, item.metric)
        changes = [change for change in self.changes if (change.cell, change.metric) == (item.cell, item.metric)]
        if item.crept:
            dates = baseline_nights(measured, verdicts, changes, self.night.date, _ALL_NIGHTS)
        else:
            dates = reference_nights(measured, verdicts, changes, self.night.date)
        return good_night(dates, past, now.of(item.cell, "history").get(self.night.date, []))

    def creep(self, now: History) -> list[str]:
        """A sentence about each cell that got worse little by little over its segment, though no single night shows it."""
        sentences = [creep(segment, self.night.date, self.definition.alpha) for segment in self._segments(now).values()]
        return [sentence for sentence in sentences if sentence]

    def _with_creep(self, item: CellVerdict, segment: Comparison | None) -> CellVerdict:
        """The verdict, marked for pairs against the first commit of its segment where it is suspected of creep, one night in some."""
        told = item.looked is not None or item.ratio is None or item.role != "history"
        if segment is None or told or item.metric != segment.metric or not is_due(segment, self.night.date):
            return item
        return item.model_copy(update={"looked": Verdict.SLOWER, "crept": True})

    def _segments(self, now: History) -> dict[str, Comparison]:
        """Cell -> its first metric beside all nights of its segment; without cells of which every trial was disturbed tonight."""
        cells = [cell for cell in self.night.cells if cell.role == "history"]
        segments = [self._comparison(cell, cell.metrics[0], now, _ALL_NIGHTS) for cell in cells]
        return {each.cell.cell: each for each in segments if not each.disturbed}

    def _comparison(self, cell: NightCell, metric: str, now: History, most_nights: int) -> Comparison:
        control = cell.role in CONTROLS  # both are compared with the A/A control's own nights, which nobody slowed down
        every = self.past.of(cell.cell, AA_CONTROL if control else "history")
        past = counted_nights(every, metric)
        verdicts = {} if control else verdicts_of(self.nights, cell.cell, metric)
        changes = [change for change in self.changes if (change.cell, change.metric) == (cell.cell, metric)]
        measured = nights_with(past, metric)
        canary = self._canaries.get(cell.pool) if METRICS[metric].depends_on_node else None
        return Comparison(
            cell=cell,
            metric=metric,
            baseline=baseline_nights(measured, verdicts, changes, self.night.date, most_nights),
            past=past,
            now=counted_tonight(now.of(cell.cell, cell.role).get(self.night.date, []), metric),
            canary_past=counted_nights(self.past.of(canary, "canary"), metric) if canary else {},
            canary_now=counted(now.of(canary, "canary").get(self.night.date, []), metric) if canary else [],
            alarm=open_alarm(verdicts, changes, self.night.date),
            uncounted=len(nights_with(every, metric)) - len(measured),
        )
