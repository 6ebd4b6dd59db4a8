"""Section: every trial with its outcome, its throughput, its MLflow run and the command that runs its cell again."""

from __future__ import annotations

from experiments.metrics import metric_of
from experiments.stats.step_interval import TOO_SHORT
from tasks.analysis.trial_row import TrialRow
from tasks.report.commands import reproduce
from tasks.report.section import ReportSource, Section, TrialLine, TrialTable
from tasks.report.text_format import OUTCOMES, number, quantity

MOST = 500  # with more a page takes seconds to open; those that did not end ok stand under Outcomes in any case


def section(source: ReportSource) -> Section:
    rows = source.rows if source.emulated else source.sweep.rows
    first = {row.trial.cell: row.trial.key for row in reversed(rows)}
    shown = rows[:MOST]
    lines = [_line(row, source, with_command=first[row.trial.cell] == row.trial.key) for row in shown]
    table = TrialTable(lines, rest=len(rows) - len(shown))
    text = "In the order they were planned to run; repeats are interleaved. The command stands at a cell's first trial."
    return Section("trials", "Trials", [table], page_text=text, folded=True)


def _line(row: TrialRow, source: ReportSource, *, with_command: bool) -> TrialLine:
    """Throughput of an emulated trial is shown only in the report of emulated trials."""
    throughput, first, last = (row.summary.get(name) for name in ("throughput", "first_loss", "final_loss"))
    link = source.mlflow_links.get(row.trial.key)
    why = f" (no interval: its window was {TOO_SHORT} how sure that is)" if row.too_short else ""
    shown = f"{quantity(float(throughput or 0), metric_of('throughput'))}{why}"
    return TrialLine(
        row.trial.name,
        OUTCOMES.get(row.outcome, row.outcome),
        row.reason or "",
        shown if throughput and (source.emulated or not row.emulated) else "–",
        f"{number(float(first))} → {number(float(last))}" if row.trains and first is not None and last is not None else "–",
        reproduce(row.trial, source.sweep.plan.command) if with_command else "",
        link if link and link.startswith(("http://", "https://")) else None,
        row.emulated,
    )
