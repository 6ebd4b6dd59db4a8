"""Cells from made-up numbers, without files: rows of trials, a suite's report settings, and what is made of both. Nothing is measured.

Only this module knows how a suite's settings are written down and which functions take them; tests go through its builders.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.stats.loss_parity import Parity, ParityStatus
from experiments.trial import Outcome, Trial, TrialResult, digest
from tasks.analysis.cell import Cell
from tasks.analysis.compare_cells import baselines, layout, make_cells
from tasks.analysis.results import Sweep, load_sweep
from tasks.analysis.trial_row import TrialRow
from tasks.report import model
from tasks.report.comparison_table import ComparisonTable, TableCell, TextTable, build_table
from tasks.report.model import Report, report_source
from tasks.report.section import ReportSource
from tasks.report.sections.literature_table import published_table
from tests.tasks.fake_sweep import as_suite
from tests.tasks.plan_support import make_plan

Z95 = 1.959964  # 97.5 % quantile of the normal distribution
T1, T2, T4, T8 = 12.706205, 4.302653, 2.776445, 2.306004  # of Student's t with 1, 2, 4 and 8 degrees of freedom
EVEN = (-0.01, 0.0, 0.01)  # logarithms of three repeats over their mean: their standard deviation is 0.01
OTHER = (-0.001, 0.0, 0.001)
ROUGH = (-0.2, 0.0, 0.2)


def settings(
    *,
    rows: Sequence[str] = ("pool",),
    columns: str = "dataloader_workers",
    baseline: Mapping[str, Any] | None = None,
    metric: str = "throughput",
    conditions: Sequence[Mapping[str, Any]] = (),
    **report: Any,
) -> dict[str, Any]:
    """A suite's settings; `report`: more of its report section, such as `minimum_effect`. Baseline: no loader process, unless given."""
    return {
        "description": "Made-up numbers.",
        "baseline": {"dataloader_workers": 0} if baseline is None else dict(baseline),
        "conditions": [dict(condition) for condition in conditions],
        "report": {"rows": list(rows), "columns": columns, "metric": metric, **report},
    }


def row(
    axes: Mapping[str, Any],
    value: float | None = 100.0,
    *,
    metric: str = "throughput",
    repeat: int = 1,
    within: float | None = None,
    outcome: Outcome | None = Outcome.OK,
    reason: str | None = None,
    summary: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    losses: Sequence[float] = (),
    emulated: bool = False,
    workload: str = "synthetic",
    device: str = "cpu",
    result_summary: Mapping[str, Any] | None = None,
    **more: Any,
) -> TrialRow:
    """One trial. `value`: of the metric, none where None; `within`: its standard error within the trial, of the logarithm.

    `more` goes to the row as it is: notes, profile, rms, problem. `outcome` None: it has not ended.
    """
    pool = str(axes.get("pool", "cpu"))
    chosen = {**{name: setting for name, setting in axes.items() if name != "pool"}, **(parameters or {})}
    cell = digest([pool, {name: value for name, value in chosen.items() if name != "seed" or name in axes}, dict(axes)])
    trial = Trial(
        key=digest([cell, repeat]),
        key_parts={},
        sweep_id="made-up",
        suite="made_up",
        workload=workload,
        pool=pool,
        device=device,
        emulated=emulated,
        cell=cell,
        repeat=repeat,
        index=0,
        axes=dict(axes),
        parameters=chosen,
    )
    result = outcome and TrialResult(
        key=trial.key,
        attempt=1,
        outcome=outcome,
        reason=reason,
        started_at=0.0,
        finished_at=1.0,
        emulated=emulated,
        summary=dict(result_summary or {}),
    )
    known: dict[str, Any] = {"settled": True}
    if value is not None:
        known[metric] = value
    if value is not None and within is not None:
        known |= {f"{metric}_low": value * math.exp(-Z95 * within), f"{metric}_high": value * math.exp(Z95 * within)}
    return TrialRow(
        trial,
        result,
        {**known, **(summary or {})},
        environment or {},
        steps=np.arange(1, len(losses) + 1),
        losses=np.asarray(losses, dtype=float),
        **more,
    )


def disturbed(one: TrialRow) -> TrialRow:
    """The row of a trial beside which others worked."""
    assert one.result is not None
    return replace(one, result=one.result.model_copy(update={"disturbed": "others used the CPU"}))


def repeats(axes: Mapping[str, Any], value: float, deviations: Sequence[float] = EVEN, **more: Any) -> list[TrialRow]:
    """A row for each deviation, which is the logarithm of that repeat over `value`."""
    return [row(axes, value * math.exp(deviation), repeat=place, **more) for place, deviation in enumerate(deviations, 1)]


def steady(axes: Mapping[str, Any], value: float, **more: Any) -> list[TrialRow]:
    """Two repeats that agree."""
    return repeats(axes, value, (0.0, 0.0), **more)


def in_threes(rates: Sequence[float], deviations: Sequence[Sequence[float]] = (EVEN, EVEN, EVEN), **more: float) -> list[Cell]:
    """Cells with 0, 1, 2, ... loader processes, three repeats each."""
    summary = {"data_wait_share": 0.05, **more}
    cells = zip(rates, deviations, strict=True)
    return made([one for count, (rate, noise) in enumerate(cells) for one in repeats(workers(count), rate, noise, summary=summary)])


def workers(count: int, pool: str = "cpu", **more: Any) -> dict[str, Any]:
    """Axes of a cell with so many loader processes."""
    return {"pool": pool, "dataloader_workers": count, **more}


def gated_rows(
    *losses: float, rates: Sequence[float] = (), steps: int = 120, pool: str = "cpu", deviations: Sequence[float] = EVEN
) -> list[TrialRow]:
    """Three seeds of an fp32 cell whose loss falls to 2, and of bf16 cells with 0, 1, ... loader processes whose loss falls to these.

    Rates: 100 of fp32, 150 of bf16 unless `rates` has others."""
    cells = [("fp32", 0, 2.0, 100.0)]
    cells += [("bf16", count, loss, rates[count] if rates else 150.0) for count, loss in enumerate(losses)]
    return [
        row(
            workers(count, pool, precision=precision),
            rate * math.exp(deviation),
            repeat=seed + 1,
            losses=[loss * (3.0 if step < 20 else 1.0) for step in range(steps)],
            parameters={"seed": seed},
        )
        for precision, count, loss, rate in cells
        for seed, deviation in enumerate(deviations)
    ]


def judged(rate: float, /, **parities: ParityStatus) -> list[Cell]:
    """A cell in fp32 at 100 samples/s, one in bf16 at `rate`, one in fp16 at 120; `parities`: what loss parity shows of them."""
    rates = {"fp32": 100.0, "bf16": rate, "fp16": 120.0}
    rows = [one for precision, rate in rates.items() for one in repeats(workers(0, precision=precision), rate, OTHER)]
    cells = made(rows, settings(rows=("precision",), baseline={"precision": "fp32", "dataloader_workers": 0}))
    for cell in cells:
        status = parities.get(str(cell.axes["precision"]), ParityStatus.PROVEN)
        cell.parity, cell.parity_note = Parity(status), f"{status}: made up"
    return cells


def watched_row(rule: str = "adamw", *, tensors: tuple[str, ...] = ("patch", "text"), steps: int = 400, **more: Any) -> TrialRow:
    """A trial whose spikes are looked for, with losses of 2 and spikes: 3.5 at 204 to 206, 2.75 at 350.

    RMS spikes of the first tensor are at 200 and 300; other tensors have none.
    """
    losses = np.full(steps, 2.0) + 0.001 * (-1.0) ** np.arange(steps)
    for step, height in ((204, 3.5), (205, 3.0), (206, 3.0), (350, 2.75), (351, 2.5)):
        if step <= steps:
            losses[step - 1] = height
    numbers = np.arange(1, steps + 1)
    rms = {name: np.where(np.isin(numbers, (200, 201, 300)) & (name == "patch"), 4.0, 1.0) for name in tensors}
    axes = {"pool": "gpu", "update_rule": rule}
    return row(axes, losses=list(losses), rms=rms, parameters={"spikes_after": 100}, **more)


def made(rows: Iterable[TrialRow], suite: Any = None, *, emulated: bool = False) -> list[Cell]:
    """The cells of some rows, compared."""
    return make_cells(rows, as_suite(settings() if suite is None else suite), emulated=emulated)


def by_name(cells: Iterable[Cell]) -> dict[str, Cell]:
    return {cell.name: cell for cell in cells}


def laid_out(cells: Sequence[Cell], suite: Any) -> tuple[list[str], list[str]]:
    """Row axes and column axes."""
    return layout(cells, as_suite(suite))


def baseline_of(cell: Cell, cells: Sequence[Cell], suite: Any) -> Cell | None:
    return baselines([*cells, cell], as_suite(suite))[-1]


def table_of(rows: Iterable[TrialRow], suite: Any = None) -> ComparisonTable:
    suite = settings() if suite is None else suite
    return build_table(made(rows, suite), as_suite(suite))


def table_in(sweep_dir: Path, *, emulated: bool = False) -> ComparisonTable:
    """The table of a sweep's folder, as its report shows it."""
    return report_source(load_sweep(sweep_dir), emulated=emulated).table


def places_of(rows: Iterable[TrialRow], suite: Any = None) -> dict[str, TableCell]:
    """The table's places by the name of their cell."""
    return {place.cell.name: place for _, places in table_of(rows, suite).rows for place in places if place.cell}


def published_of(rows: Iterable[TrialRow], suite: Any, *, emulated: bool = False) -> TextTable:
    return published_table(made(rows, suite, emulated=emulated), as_suite(suite))


def source_of(
    rows: Sequence[TrialRow],
    suite: Any = None,
    *,
    emulated: bool = False,
    mlflow_links: Mapping[str, str] | None = None,
    **plan: Any,
) -> ReportSource:
    """What the report of a sweep with these rows is made of; `plan`: more of plan.json."""
    suite = as_suite(settings() if suite is None else suite)
    whole = make_plan([row.trial for row in rows], suite=suite, **{"sweep_id": "made-up", "profile": "smoke", **plan})
    return report_source(Sweep(Path("made-up"), whole, rows), mlflow_links=mlflow_links, emulated=emulated)


def report_of(rows: Sequence[TrialRow], suite: Any = None, **more: Any) -> Report:
    """The report of a sweep that holds these rows; `more` as for `source_of`."""
    return model.report_of(source_of(rows, suite, **more))


def column(table: TextTable, name: str) -> list[str]:
    """The values of one column, from the top."""
    return [line[list(table.header).index(name)] for line in table.rows]


def comparison_in(report: Report) -> ComparisonTable:
    """The report's comparison table."""
    return report.section("comparison").block(ComparisonTable)
