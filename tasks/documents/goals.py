"""How far the published sweeps are from what we aim at (goals.yaml), and where the device's peak went in the cell that is nearest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from experiments.config.strict import Strict
from experiments.config.validate import validate
from experiments.config.yaml_document import load
from experiments.metrics import metric_of, names
from experiments.stats.loss_parity import ParityStatus
from experiments.trial import Scalar
from tasks.analysis.cell import Cell
from tasks.analysis.results import load_sweep
from tasks.analysis.waterfall import waterfall_of
from tasks.documents.published import Page, SweepOnPage
from tasks.report.markdown import md
from tasks.report.model import report_of, report_source
from tasks.report.text_format import change, change_interval, listed, percent, plural, quantity, spread

PATH = Path(__file__).with_name("goals.yaml")
HEADER = ["what", "goal, and where from", "nearest", "reached", "where the peak went", "page"]
ENOUGH = 3  # trials of a cell; one with fewer stands for a goal only where no cell has them
DROPS = 3  # the largest that are named
_NAMED = 0.01  # of the peak; a smaller drop is not worth a word

Value = Scalar | list[Scalar]


class Goal(Strict):
    """One goal: the value `goal` of `metric`, or `times` a baseline that has the parameters `over`."""

    what: str
    suite: str
    where: Mapping[str, Value]
    source: str
    metric: str | None = None
    goal: float | None = Field(None, gt=0)
    times: float | None = Field(None, gt=0)
    over: Mapping[str, Value] = {}

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
    """A cell that a goal is about. `value`: of its metric, or how many times its baseline it is."""

    page: Page
    sweep: SweepOnPage
    cell: Cell
    value: float


def read_goals(path: Path = PATH) -> Sequence[Goal]:
    """Raises ConfigError, OSError."""
    return validate(Goals, load(path)).goals


def goals_table(goals: Sequence[Goal], pages: Sequence[Page]) -> str:
    """A row for each goal, as Markdown; links are from docs/results. Raises ResultsError, DamagedFile."""
    suites = {goal.suite for goal in goals}
    sweeps = [(page, sweep) for page in pages for sweep in page.sweeps if sweep.plan.suite.suite in suites and not sweep.kind]
    cells = [(page, sweep, report_of(report_source(load_sweep(sweep.folder)), head=True).cells) for page, sweep in sweeps]
    rows = [_row(goal, nearest(goal, _cells_of(goal, cells))) for goal in goals]
    return "\n".join(f"| {' | '.join(row)} |" for row in (HEADER, ["---"] * len(HEADER), *rows))


def nearest(goal: Goal, found: Iterable[Near]) -> Near | None:
    """The one with the best value, of those with three trials where there are such; None of none."""
    higher = goal.metric is None or metric_of(goal.metric).higher_is_better
    return max(found, key=lambda one: (min(len(one.cell.measured), ENOUGH), one.value if higher else -one.value), default=None)


def _cells_of(goal: Goal, cells: Iterable[tuple[Page, SweepOnPage, Sequence[Cell]]]) -> Iterable[Near]:
    """The published cells that have what the goal is about."""
    for page, sweep, of_sweep in cells:
        if sweep.plan.suite.suite != goal.suite:
            continue
        for cell in of_sweep:
            value = _value(goal, cell)
            if value is not None and not cell.emulated and _has(cell, goal.where):
                yield Near(page, sweep, cell, value)


def _value(goal: Goal, cell: Cell) -> float | None:
    if goal.metric is not None:
        own = cell.estimate if cell.metric.name == goal.metric else None
        return own.value if own else cell.mean(goal.metric)
    if cell.speedup is None or cell.baseline is None or not _has(cell.baseline, goal.over):
        return None
    return cell.speedup.value


def _has(cell: Cell, where: Mapping[str, Value]) -> bool:
    parameters = {**cell.trial.parameters, **cell.axes}
    return all(parameters.get(name) in (wanted if isinstance(wanted, list) else [wanted]) for name, wanted in where.items())


def _row(goal: Goal, near: Near | None) -> list[str]:
    aim = f"{_aim(goal)}: {goal.source}"
    if near is None:
        return [goal.what, md(aim), "not measured", "–", "–", "–"]
    link = f"[{md(near.page.name)}]({near.page.name}/README.md)"
    return [goal.what, md(aim), md(_reached(goal, near)), _is_reached(goal, near), md(where_the_peak_went(near.cell)), link]


def _aim(goal: Goal) -> str:
    if goal.metric is None:
        return f"x{goal.times:g}"
    metric = metric_of(goal.metric)
    return f"{'' if metric.higher_is_better else 'at most '}{quantity(goal.goal, metric)}"


def _is_reached(goal: Goal, near: Near) -> str:
    """Whether the whole interval is beyond the goal, or before it; by the value alone where there is no interval. And what is unproven."""
    aim = goal.goal or goal.times or 0.0
    own = near.cell.estimate if goal.metric == near.cell.metric.name else None
    known = own if goal.metric is not None else near.cell.speedup
    low, high = (known.low, known.high) if known is not None else (near.value, near.value)
    if goal.metric is not None and not metric_of(goal.metric).higher_is_better:
        aim, low, high = -aim, -high, -low
    said = "yes" if low >= aim else "no" if high < aim else "open: the interval holds the goal"
    told = said if known is not None else f"{said}, by the mean"
    parity = near.cell.parity
    return told if parity is None or said == "no" or parity.status is ParityStatus.PROVEN else f"{told}; its loss parity is {parity.status}"


def _reached(goal: Goal, near: Near) -> str:
    """The value with its interval, and what it is of: device, trials, the cell."""
    cell = near.cell
    if goal.metric is None:
        assert cell.speedup is not None
        value = f"{change(cell.speedup, cell.metric)} {change_interval(cell.speedup, cell.metric)}, {cell.verdict or 'undecided'}"
    elif cell.metric.name == goal.metric and cell.estimate is not None:
        value = f"{quantity(near.value, cell.metric)} {spread(cell.estimate, cell.metric)}".strip()
    else:
        value = quantity(near.value, metric_of(goal.metric))
    return ", ".join([value, near.sweep.devices, plural(len(cell.measured), "trial"), cell.short])


def where_the_peak_went(cell: Cell) -> str:
    """The largest drops of its waterfall, in words; or that no steps were traced."""
    try:
        found = waterfall_of(cell)
    except ValueError as error:
        return f"not known: {error}"
    if found is None:
        return "not traced"
    named = [(share, name) for name, share in found.drops.items() if share is not None and share >= _NAMED]
    lost = listed([f"{percent(share)} to {name}" for share, name in sorted(named, reverse=True)[:DROPS]]) or "nothing above 1 %"
    return f"{percent(found.reached)} of {quantity(found.peak / 1e12, metric_of('tflops_per_device'))} reached; of the peak lost: {lost}"
