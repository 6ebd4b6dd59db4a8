"""The answer of a sweep: which setting wins, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.metrics import Direction, Kind
from experiments.stats.estimate import Estimate
from experiments.stats.verdict import Verdict
from experiments.trial import label
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import judge_best
from tasks.report.text_format import change, change_interval, listed, plural, quantity, spread


@dataclass(frozen=True)
class Winner:
    """The best cell whose loss stayed in its band, the cells that it cannot be told from (`level`), and the best cell that it beats."""

    cell: Cell
    estimate: Estimate
    level: Sequence[Cell]
    next: Cell | None
    lead: Estimate | None
    compared: int

    @property
    def word(self) -> str:
        """`fastest` for a rate, else `best`."""
        return "fastest" if self.cell.metric.kind is Kind.RATE else "best"

    @property
    def headline(self) -> str:
        """Which cell wins. It may share the first place: see `certainty`."""
        return f"{self.cell.name} is {self.word}"

    @property
    def figures(self) -> list[tuple[str, str]]:
        """(number, what it is): the value and, unless it is the baseline itself, the speed-up."""
        cell = self.cell
        plus = spread(self.estimate, cell.metric)
        figures = [(quantity(self.estimate.value, cell.metric), f"{plus}, 95 % interval" if plus else "no interval: it needs repeats")]
        if cell.speedup and cell.baseline:
            sure = {Verdict.SAME: "the same as", Verdict.UNDECIDED: "undecided against"}.get(cell.verdict or Verdict.FASTER, "over")
            over = change_interval(cell.speedup, cell.metric)
            figures.append((change(cell.speedup, cell.metric), f"{over} {sure} the baseline {cell.baseline.name}"))
        return figures

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
    level: list[Cell] = []
    beaten: list[tuple[Cell, Estimate]] = []
    for other, found in zip(others, judge_best(best, others), strict=True):
        if found.verdict is Verdict.FASTER:
            beaten.append((other, found.ratio))
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
    sentences = []
    for cells in groups.values():
        winner = find_winner(cells)
        if winner is None:
            continue
        value, what = winner.figures[0]
        metric = winner.cell.metric
        before = f"{change(winner.lead, metric)} {change_interval(winner.lead, metric)}" if winner.lead else ""
        lead = f", {before} before the next" if before and not winner.level else ""
        level = f", not told apart from {plural(len(winner.level), 'other')}" if winner.level else ""
        sentences.append(f"{winner.headline}: {value}, {what}{lead}{level}")
    return sentences
