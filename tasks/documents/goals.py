"""How far the published sweeps are from what we aim at (goals.yaml), and where the device's peak went in the cell that is nearest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from experiments.config.strict import Strict
from experiments.config.validate import validate
from experiments.config.yaml_document import load
from experiments.literature.reader import same_device
from experiments.metric import Kind, Metric, Scale
from experiments.metrics import metric_of, names
from experiments.stats.estimate import Estimate
from experiments.stats.loss_parity import ParityStatus
from experiments.trial import Scalar
from tasks.analysis.cell import Cell
from tasks.analysis.costs import estimate
from tasks.analysis.judge_cells import told_ratio
from tasks.analysis.waterfall import slower, waterfall_of, why_left_out
from tasks.report.markdown import grid, md
from tasks.report.model import Report
from tasks.report.published_beside import ENOUGH
from tasks.report.published_pages import Page, SweepOnPage
from tasks.report.sections.device_state import CLOCKS_DIFFER
from tasks.report.text_format import change_text, devices_told, listed, number, percent, plural, quantity, spread

PATH = Path(__file__).with_name("goals.yaml")
REACHED = ["what", "goal, and where from", "best measured", "how far", "page"]
PEAK = ["what", "where the peak went", "page"]
DROPS = 3  # the largest that are named
BEYOND, SHORT, OPEN = "beyond it", "short of it", "open: the interval holds the goal"
_ALONE = "its loss was compared with none"
_NAMED = 0.01  # of the peak; a smaller drop is not worth a word

Value = Scalar | list[Scalar]


class Goal(Strict):
    """One goal: the value `goal` of `metric`, or `times` the value of a cell that has the parameters `over`.

    `card`: of the goal, as experiments/literature/published.csv writes it, such as `h100`; None where it is of none.
    """

    what: str
    suite: str
    where: Mapping[str, Value]
    source: str
    metric: str | None = None
    goal: float | None = Field(None, gt=0)
    times: float | None = Field(None, gt=0)
    over: Mapping[str, Value] = {}
    card: str | None = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if (self.metric is None) != (self.goal is None) or (self.metric is None) == (self.times is None):
            raise ValueError("a goal has metric and goal, or times and over")
        if (self.times is None) != (not self.over):
            raise ValueError("over says what `times` is over; give both or neither")
        if self.metric is not None and self.metric not in names():
            raise ValueError(f"{self.metric} is no metric; docs/metrics.md has them")
        return self


class Goals(Strict):
    """goals.yaml."""

    goals: list[Goal]


@dataclass(frozen=True)
class Near:
    """A cell that a goal is about. `value`: of its metric, or how many times that of the cell `over` it is (`ratio`).

    `differs`: parameters in which the two differ beside what the goal says, and beside what a ladder's rung or the kernels imply.
    """

    page: Page
    sweep: SweepOnPage
    cell: Cell
    value: float
    over: Cell | None = None
    ratio: Estimate | None = None
    differs: Sequence[str] = ()

    @property
    def device(self) -> str:
        """Its name, as the trials told it; empty where they did not."""
        return str(next((row.environment.get("device_name") or "" for row in self.cell.measured), ""))

    @property
    def trials(self) -> int:
        """Of the cell that has fewer."""
        return min(len(cell.measured) for cell in (self.cell, self.over) if cell is not None)

    @property
    def disturbed(self) -> bool:
        """Whether other work disturbed every trial of it, or of what it is over."""
        return any(cell.disturbed for cell in (self.cell, self.over) if cell is not None)


def read_goals(path: Path = PATH) -> Sequence[Goal]:
    """Raises ConfigError, OSError."""
    return validate(Goals, load(path)).goals


@dataclass(frozen=True)
class GoalTables:
    """Markdown, a row for each goal: how far the best cell is from it, and where its device's peak went."""

    reached: str
    peak: str


def goal_tables(goals: Sequence[Goal], pages: Sequence[Page], heads: Mapping[Path, Report | None]) -> GoalTables:
    """Links are from docs/results; what is not measured has no row of the peak. `heads`: each sweep's head_of, by its folder."""
    plain = [(page, sweep, heads[sweep.folder]) for page in pages for sweep in page.sweeps if not sweep.kind]
    cells = [(page, sweep, head.cells) for page, sweep, head in plain if head is not None]
    found = [list(_found(goal, cells)) for goal in goals]
    best = [_best(goal, near) for goal, near in zip(goals, found, strict=True)]
    rows = list(zip(goals, best, found, strict=True))
    peaks = [_peak(goal, near, others) for goal, near, others in rows if near is not None]
    return GoalTables(grid(REACHED, [_row(*one) for one in rows]), grid(PEAK, peaks))


def _best(goal: Goal, found: Sequence[Near]) -> Near | None:
    """The nearest, or one as good of whose loss more is shown; None where none is measured."""
    near = nearest(goal, found)
    return near and (nearest(goal, [one for one in found if _as_good_and_shown(goal, one, near)]) or near)


def nearest(goal: Goal, found: Iterable[Near]) -> Near | None:
    """The one with the best value, of those with a trial that nothing disturbed and of those with three trials where there are such; of
    ratios, of those whose cells differ in the least. None of none."""
    higher = goal.metric is None or metric_of(goal.metric).higher_is_better
    return max(
        found,
        key=lambda one: (not one.disturbed, min(one.trials, ENOUGH), -len(one.differs), one.value if higher else -one.value),
        default=None,
    )


def _found(goal: Goal, cells: Iterable[tuple[Page, SweepOnPage, Sequence[Cell]]]) -> Iterable[Near]:
    """The published cells that have what the goal is about; for a ratio, with each cell of their sweep that it can be over."""
    for page, sweep, of_sweep in cells:
        if sweep.plan.suite.suite != goal.suite:
            continue
        for cell in of_sweep:
            if cell.emulated or not _has(cell, goal.where):
                continue
            if goal.metric is None:
                alike = {name: value for name, value in goal.where.items() if name not in goal.over} | dict(goal.over)
                others = [other for other in of_sweep if _has(other, alike) and _comparable(cell, other)]
                pairs = [_over(goal, page, sweep, cell, other) for other in others]
                yield from sorted(pairs, key=lambda one: len(one.differs))[:1]
            elif (value := _value(goal, cell)) is not None:
                yield Near(page, sweep, cell, value)


def _comparable(cell: Cell, other: Cell) -> bool:
    return cell is not other and cell.devices == other.devices and bool(cell.estimates and other.estimates)


def _over(goal: Goal, page: Page, sweep: SweepOnPage, cell: Cell, other: Cell) -> Near:
    ratio = told_ratio(cell, other)
    ours, theirs = cell.trial.parameters, other.trial.parameters
    implied = {*goal.over, *cell.named, "kernels", "seed"}  # a rung names what it sets, and kernels come with the precision
    differs = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name) and name not in implied)
    return Near(page, sweep, cell, ratio.value, other, ratio, differs)


def _value(goal: Goal, cell: Cell) -> float | None:
    own = _estimate(goal, cell)
    return own.value if own else cell.mean(goal.metric or "")


def _has(cell: Cell, where: Mapping[str, Value]) -> bool:
    parameters = {**cell.trial.parameters, **cell.axes}
    return all(parameters.get(name) in (wanted if isinstance(wanted, list) else [wanted]) for name, wanted in where.items())


def _row(goal: Goal, near: Near | None, found: Sequence[Near]) -> list[str]:
    aim = f"{_aim(goal)}; {goal.source}"
    if near is None:
        return [goal.what, md(aim), "not measured", "–", "–"]
    far = how_far(goal, near)
    if _elsewhere(goal, near) and (own := nearest(goal, [one for one in found if not _elsewhere(goal, one)])):
        far += f". On {_card(goal)}: {md(_measured(goal, own))}: {how_far(goal, own)} ({_link(own)})"
    if _unclaimed(goal, near) and (sure := nearest(goal, [one for one in found if not of_the_loss(one)])):
        far += f". The best that is proven, or a reference itself: {md(_measured(goal, sure))}: {how_far(goal, sure)} ({_link(sure)})"
    return [goal.what, md(aim), md(_measured(goal, near)), far, _link(near)]


def _peak(goal: Goal, near: Near, found: Sequence[Near]) -> list[str]:
    peak = md(where_the_peak_went(near.cell))
    if not _is_traced(near.cell) and (traced := nearest(goal, [one for one in found if _is_traced(one.cell)])):
        peak += f". Of the best that was, {md(_measured(goal, traced))}: {md(where_the_peak_went(traced.cell))} ({_link(traced)})"
    return [goal.what, peak, _link(near)]


def _as_good_and_shown(goal: Goal, one: Near, best: Near) -> bool:
    """Whether nothing is open of its loss while something is of the best one's, and it is no worse by what is known: their intervals
    overlap, both stand alike to the goal, and it has no fewer trials, differs in no more, is on no other card and was not disturbed where
    the best one was not."""
    if one.disturbed and not best.disturbed:
        return False
    if of_the_loss(one) or not of_the_loss(best) or _standing(goal, one) != _standing(goal, best) or _elsewhere(goal, one):
        return False
    own, other = _interval_of(goal, one), _interval_of(goal, best)
    overlap = own is not None and other is not None and own.low <= other.high and other.low <= own.high
    return overlap and min(one.trials, ENOUGH) >= min(best.trials, ENOUGH) and len(one.differs) <= len(best.differs)


def _link(near: Near) -> str:
    return f"[{md(near.page.name)}]({near.page.name}/README.md)"


def _aim(goal: Goal) -> str:
    of = f", on {_card(goal)}" if goal.card else ""
    if goal.metric is None:
        return f"x{goal.times:g}{of}"
    metric = metric_of(goal.metric)
    return f"{'' if metric.higher_is_better else 'at most '}{quantity(goal.goal, metric)}{of}"


def _card(goal: Goal) -> str:
    """`H100`; of a card with so much memory `A100-80`."""
    return goal.card.upper() if goal.card else ""


def _elsewhere(goal: Goal, near: Near) -> bool:
    """Whether the cell ran on another card than the goal is of; False where its trials did not tell theirs."""
    return bool(goal.card and near.device) and not same_device(str(goal.card), near.device)


def _unclaimed(goal: Goal, near: Near) -> bool:
    """Whether the cell may reach the goal, and nothing is claimed of it, since its loss is not shown to be its reference's."""
    return _standing(goal, near) != SHORT and of_the_loss(near) not in ("", _ALONE)


def how_far(goal: Goal, near: Near) -> str:
    """Whether the whole interval is beyond the goal, or short of it; by the value alone where there is no interval. That it is of another
    card than the goal. And what of the cell's loss was not shown: without that nothing is claimed."""
    said, loss = _standing(goal, near), of_the_loss(near)
    parts = [said, "" if _interval_of(goal, near) is not None else "by the mean", "on another card" if _elsewhere(goal, near) else ""]
    claim = ", so not claimed" if _unclaimed(goal, near) else ""
    if near.disturbed:
        parts.append("other work disturbed every trial of it, so not claimed")
    return "; ".join(filter(None, [", ".join(filter(None, parts)), f"{loss}{claim}"]))


def _standing(goal: Goal, near: Near) -> str:
    """BEYOND, SHORT or OPEN."""
    aim, own = goal.goal or goal.times or 0.0, _interval_of(goal, near)
    low, high = (own.low, own.high) if own is not None else (near.value, near.value)
    if goal.metric is not None and not metric_of(goal.metric).higher_is_better:
        aim, low, high = -aim, -high, -low
    return BEYOND if low >= aim else SHORT if high < aim else OPEN


def _interval_of(goal: Goal, near: Near) -> Estimate | None:
    """None where there is none, as of single trials of which no past sweep tells how far they lie apart."""
    own = near.ratio if near.over is not None else _estimate(goal, near.cell)
    return own if own is not None and math.isfinite(own.se) else None


def _estimate(goal: Goal, cell: Cell) -> Estimate | None:
    """Of the goal's metric; where that is not the cell's own, by its repeats. None where these do not tell."""
    if goal.metric is None or goal.metric == cell.metric.name:
        return cell.estimate
    return estimate(cell, goal.metric) if metric_of(goal.metric).scale is Scale.LOG else None


def of_the_loss(near: Near) -> str:
    """What was not shown of the loss of the cell, and of the one that it is over; empty where all was."""
    open_ = [one.parity.status for one in (near.cell, near.over) if one and one.parity and one.parity.status is not ParityStatus.PROVEN]
    if open_:
        return f"loss parity {open_[0]}"
    return "" if near.cell.parity or near.cell.reference else _ALONE


def _measured(goal: Goal, near: Near) -> str:
    """The value with its interval, and what it is of: device, trials, the cell; for a ratio what it is over, and what differs else, also in
    their clocks."""
    cell = near.cell
    if near.over is not None and near.ratio is not None:
        value = f"{change_text(near.ratio, cell.metric)} over {near.over.short}"
        value += f" ({listed(list(near.differs))} {'differs' if len(near.differs) == 1 else 'differ'} too)" if near.differs else ""
        value += _clocks_told(cell, near.over)
    else:
        metric, own = metric_of(goal.metric or ""), _estimate(goal, cell)
        value = f"{quantity(near.value, metric)} {_interval_told(own, metric) if own is not None else ''}".strip()
    devices = devices_told((str(row.environment.get("device_name")), cell.devices) for row in cell.measured[:1])
    return "; ".join([value, cell.short, f"{devices}, {plural(near.trials, 'trial')}"])


def _clocks_told(cell: Cell, other: Cell) -> str:
    """`, clocks 1,874 and 1,735 MHz (x1.08)` where they differ: a part of a ratio at a power limit. Empty where they do not."""
    ours, theirs = (one.mean("clock_mean_mhz") for one in (cell, other))
    if not ours or not theirs or abs(ours / theirs - 1) < CLOCKS_DIFFER:
        return ""
    return f", clocks {ours:,.0f} and {theirs:,.0f} MHz (x{ours / theirs:.2f})"


def _interval_told(own: Estimate, metric: Metric) -> str:
    """`±1.2 %`; of a share its bounds, since percent of percent would be taken for points. Empty where none is known."""
    if metric.kind is not Kind.SHARE or not math.isfinite(own.se):
        return spread(own, metric)
    return f"({quantity(own.low, metric)} to {quantity(own.high, metric)})"


def _is_traced(cell: Cell) -> bool:
    try:
        return waterfall_of(cell) is not None
    except ValueError:
        return False


def where_the_peak_went(cell: Cell) -> str:
    """The largest drops of its waterfall, in words; or why there is none, such as that no steps were traced."""
    try:
        found = waterfall_of(cell)
    except ValueError as error:
        return f"not known: {error}"
    if found is None:
        return why_left_out(cell) or "not traced"
    named = sorted(((share, name) for name, share in found.drops.items() if share is not None and abs(share) >= _NAMED), reverse=True)
    lost = listed([f"{percent(share)} to {name}" for share, name in named[:DROPS] if share > 0]) or "nothing above 1 %"
    gained = listed([f"{percent(-share)} by {name}" for share, name in reversed(named) if share < 0])
    mfu = quantity(cell.mean("mfu"), metric_of("mfu"))
    peak = quantity(found.peak / 1e12, metric_of("tflops_per_device"))
    told = f"{percent(found.reached)} of {peak} in traced steps (MFU untraced {mfu}); of the peak lost: {lost}"
    many = slower(cell, found)
    much = [] if many is None else [f"they took {number(many, 3)} times as long as measured ones, so these shares hold for traced steps"]
    return "; ".join([told, *([f"gained: {gained}"] if gained else []), *much])
