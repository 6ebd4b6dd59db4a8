"""What a sweep says, in sentences: which setting wins, by how much, how sure, how many loader processes are enough, what did not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.metrics import Direction, Kind
from experiments.stats.estimate import Estimate
from experiments.stats.verdict import Verdict, benjamini_hochberg, verdict
from experiments.trial import label
from tasks.analysis.cell import Cell
from tasks.analysis.compare_cells import ratio_of, smallest_effect
from tasks.report.text_format import change, change_interval, change_with_verdict, listed, percent, plural, quantity, spread, times

WORKERS = "dataloader_workers"


@dataclass(frozen=True)
class Winner:
    """The best cell whose loss kept to its band, the cells it cannot be told from, and the next that it beats."""

    cell: Cell
    estimate: Estimate
    level: Sequence[Cell]
    next: Cell | None
    lead: Estimate | None
    compared: int

    @property
    def word(self) -> str:
        """`fastest` of what is a rate, else `best`."""
        return "fastest" if self.cell.metric.kind is Kind.RATE else "best"

    @property
    def headline(self) -> str:
        """Who wins; shares the place with what it cannot be told from."""
        return f"{self.cell.name} is {self.word}"

    @property
    def figures(self) -> list[tuple[str, str]]:
        """(number, what it is): the value and, unless it is the baseline itself, the speed-up."""
        cell = self.cell
        plus = spread(self.estimate, cell.metric)
        found = [(quantity(self.estimate.value, cell.metric), f"{plus}, 95 % interval" if plus else "no interval: it needs repeats")]
        if cell.speedup and cell.baseline:
            sure = {Verdict.SAME: "the same as", Verdict.UNDECIDED: "undecided against"}.get(cell.verdict or Verdict.FASTER, "over")
            over = change_interval(cell.speedup, cell.metric)
            found.append((change(cell.speedup, cell.metric), f"{over} {sure} the baseline {cell.baseline.name}"))
        return found

    @property
    def certainty(self) -> str:
        """How sure it is that no other cell is as good."""
        own = "It is the baseline. " if self.cell.baseline is self.cell else ""
        if self.level:
            return f"{own}Not told apart from it with these repeats: {listed([other.name for other in self.level], 4)}."
        if self.next and self.lead:
            by = f"{change(self.lead, self.cell.metric)} {change_interval(self.lead, self.cell.metric)}"
            return f"{own}It beats every other cell; the next, {self.next.name}, by {by}."
        return f"{own}There is nothing to compare it with."

    @property
    def sentences(self) -> list[str]:
        """By how much and how sure."""
        return [*(f"{value}, {what}." for value, what in self.figures), self.certainty]


def find_winner(cells: Sequence[Cell]) -> Winner | None:
    """None where no cell has a value that may be claimed, or the metric is better neither high nor low."""
    able = [cell for cell in cells if cell.estimate and cell.claimed and cell.metric.direction is not Direction.NEITHER]
    if not able:
        return None
    best = max(able, key=lambda cell: (cell.estimate.value if cell.estimate else 0) * (-1 if cell.metric.lower_is_better else 1))
    others = [cell for cell in able if cell is not best]
    ratios = [ratio_of(best, other) for other in others]
    q_values = benjamini_hochberg([ratio.p_value for ratio in ratios])
    level: list[Cell] = []
    beaten: list[tuple[Cell, Estimate]] = []
    for other, ratio, q in zip(others, ratios, q_values, strict=True):
        won = verdict(ratio, minimum=smallest_effect(best.metric), q_value=q) is Verdict.FASTER
        if won:
            beaten.append((other, ratio))
        else:
            level.append(other)
    second, lead = min(beaten, key=lambda pair: pair[1].value) if beaten else (None, None)
    assert best.estimate is not None
    return Winner(best, best.estimate, level, second, lead, len(able))


def comparable(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Cells with a value that do the same work, by what names it: those of one model; of one batch, for times of a batch."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        if not (cell.estimate and cell.claimed):
            continue
        values = [cell.trial.parameters.get("model"), *([cell.trial.parameters.get("batch_size")] if cell.metric.depends_on_batch else [])]
        names = [label(axis, value) for axis, value in zip(("model", "batch_size"), values, strict=False) if value is not None]
        groups.setdefault(" · ".join(names), []).append(cell)
    return groups


def winners_apart(groups: Mapping[str, Sequence[Cell]]) -> list[str]:
    """The winner of each group in a sentence."""
    said = []
    for cells in groups.values():
        winner = find_winner(cells)
        if winner is None:
            continue
        value, what = winner.figures[0]
        metric = winner.cell.metric
        before = f"{change(winner.lead, metric)} {change_interval(winner.lead, metric)}" if winner.lead else ""
        lead = f", {before} before the next" if before and not winner.level else ""
        level = f", not told apart from {plural(len(winner.level), 'other')}" if winner.level else ""
        said.append(f"{winner.headline}: {value}, {what}{lead}{level}")
    return said


@dataclass(frozen=True)
class Saturation:
    """The fewest DataLoader processes that saturate the device, for cells that differ in nothing else."""

    cells: Sequence[Cell]
    sentence: str


def saturation(cells: Sequence[Cell]) -> list[Saturation]:
    """One for each row that varies the DataLoader processes; none of a metric that is better neither high nor low."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if cell.estimate and cell.metric.direction is not Direction.NEITHER and isinstance(cell.axes.get(WORKERS), int):
            rest = tuple((axis, repr(value)) for axis, value in cell.axes.items() if axis != WORKERS)
            groups.setdefault(rest, []).append(cell)
    rows = [sorted(group, key=_workers) for group in groups.values() if len(group) > 1]
    return [Saturation(row, _saturated(row)) for row in rows]


def _workers(cell: Cell) -> int:
    return int(cell.axes[WORKERS] or 0)


def _mp(cell: Cell) -> str:
    return f"MP-{cell.axes[WORKERS]}"


def _saturated(row: Sequence[Cell]) -> str:
    """`row` is sorted by workers. The first count that no larger one is shown to beat is enough."""
    where = " · ".join(part for part in row[0].name.split(" · ") if part != _mp(row[0]))
    head = f"{where}: " if where else ""
    metric = row[0].metric
    for index, cell in enumerate(row):
        later = [(other, ratio := ratio_of(other, cell), verdict(ratio, minimum=smallest_effect(metric))) for other in row[index + 1 :]]
        if not any(word is Verdict.FASTER for *_, word in later):
            break
    lead = ratio_of(cell, row[0])
    gain = f"{change(lead, metric) if lead.linear else f'{times(lead.value)[1:]}x'} over {_mp(row[0])}" if index else ""
    waits = cell.mean("data_wait_share")
    wait = f"; data wait is {percent(waits)} of the step" if waits is not None else ""
    if not later:
        return f"{head}{_mp(cell)} is the fastest measured ({gain}), and no larger count was tried{wait}."
    parts = []
    for word, text in ((Verdict.SAME, "adds nothing"), (Verdict.SLOWER, "is slower"), (Verdict.UNDECIDED, "is undecided")):
        names = [_mp(o) if w is Verdict.SAME else f"{_mp(o)} {change_with_verdict(r, None, metric)}" for o, r, w in later if w is word]
        if names:
            parts.append(f"{listed(names)} {text if len(names) == 1 else text.replace('adds', 'add').replace('is ', 'are ')}")
    doubt = any(word is Verdict.UNDECIDED for *_, word in later)
    return f"{head}{_mp(cell)} {'may be' if doubt else 'is'} enough{f': {gain}' if gain else ''}; {'; '.join(parts)}{wait}."


_DID = {
    "ok": ("ended without the metric",) * 2,
    "does_not_fit": ("does not fit in device memory", "do not fit in device memory"),
    "diverged": ("diverged",) * 2,
    "unsupported": ("is not supported by its device", "are not supported by their devices"),
    "hang": ("hung",) * 2,
    "crashed": ("crashed",) * 2,
    "infra": ("was lost to the infrastructure", "were lost to the infrastructure"),
    "cancelled": ("was cancelled", "were cancelled"),
    "to do": ("has not run yet", "have not run yet"),
    "unreadable": ("has files that cannot be read", "have files that cannot be read"),
}


@dataclass(frozen=True)
class Missing:
    """Cells without a value that ended alike."""

    outcome: str
    cells: Sequence[Cell]

    @property
    def sentence(self) -> str:
        reasons = list(dict.fromkeys(cell.reason for cell in self.cells if cell.reason))
        why = f": {reasons[0]}" if len(reasons) == 1 else f": {len(reasons)} different reasons, see outcomes" if reasons else ""
        words = _DID.get(self.outcome, ("did not end ok", "did not end ok"))
        did = words[len(self.cells) > 1]
        return f"{plural(len(self.cells), 'cell')} {did} ({listed([cell.name for cell in self.cells], 4)}){why}"


def find_missing(cells: Sequence[Cell]) -> list[Missing]:
    """Cells without a value by outcome, in the order met."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.estimate is None:
            groups.setdefault(cell.outcome, []).append(cell)
    return [Missing(outcome, group) for outcome, group in groups.items()]
