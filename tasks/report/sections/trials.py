"""Section: every trial with its outcome, its throughput, its MLflow run and the command that runs its cell again."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.metrics import metric_of
from experiments.stats.step_interval import TOO_SHORT
from tasks.analysis.trial_row import TrialRow
from tasks.report.commands import cell_command
from tasks.report.section import Bullets, ReportSource, Section, TrialLine, TrialTable
from tasks.report.text_format import OUTCOMES, listed, number, quantity

_NO_VALUE = "–"
_NAMED = 8  # trials that are named one by one
MOST = 500  # with more a page takes seconds to open; those that did not end ok stand under Outcomes in any case


def section(source: ReportSource) -> Section:
    rows = source.rows if source.emulated else source.sweep.rows
    first = {row.trial.cell: row.trial.key for row in reversed(rows)}
    shown = rows[:MOST]
    lines = [_line(row, source, with_command=first[row.trial.cell] == row.trial.key) for row in shown]
    table = TrialTable(lines, rest=len(rows) - len(shown))
    short = _of_short_windows([row for row, line in zip(shown, lines, strict=True) if line.value != _NO_VALUE])
    text = "In the order they were planned to run; repeats are interleaved."
    if table.has_commands:
        text += " The command stands at a cell's first trial."
    return Section("trials", "Trials", [*([Bullets(short)] if short else []), table], page_text=text, folded=True)


def _of_short_windows(rows: Sequence[TrialRow]) -> list[str]:
    """Which of the trials that have a rate have no interval of it from their own steps; by name whichever are fewer."""
    short, long = ([row.trial.name for row in rows if row.too_short == is_short] for is_short in (True, False))
    if not short:
        return []
    which = "every trial" if not long else listed(short, _NAMED) if len(short) <= len(long) else f"all trials but {listed(long, _NAMED)}"
    return [f"No interval of the rate within a trial: the window was {TOO_SHORT} how sure it is, in {which}."]


def _line(row: TrialRow, source: ReportSource, *, with_command: bool) -> TrialLine:
    """Throughput of an emulated trial is shown only in the report of emulated trials."""
    throughput, first, last = (row.summary.get(name) for name in ("throughput", "first_loss", "final_loss"))
    link = source.mlflow_links.get(row.trial.key)
    shown = quantity(float(throughput or 0), metric_of("throughput"))
    return TrialLine(
        row.trial.name,
        OUTCOMES.get(row.outcome, row.outcome),
        row.reason or "",
        shown if throughput and (source.emulated or not row.emulated) else _NO_VALUE,
        f"{number(float(first))} → {number(float(last))}" if row.trains and first is not None and last is not None else "–",
        cell_command(row.trial, source.sweep.plan) if with_command else "",
        link if link and link.startswith(("http://", "https://")) else None,
        row.emulated,
    )
