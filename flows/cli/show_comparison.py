"""What is printed of a sweep's comparison, and where its report is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from cluster.trial_layout import REPORT_PAGE
from flows.cli.show_certificates import print_of_sweep
from flows.cli.show_cost import print_cost
from flows.cli.tables import MANY
from tasks.sweep.store import SweepStore

if TYPE_CHECKING:
    from tasks.analysis.results import Sweep
    from tasks.report.comparison_table import ComparisonTable
    from tasks.report.model import Report
    from tasks.report.section import ReportSource


_PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}


def print_comparison(
    out: Console, store: SweepStore, *, emulated: bool = False, sweep: Sweep | None = None, made: tuple[ReportSource, Report] | None = None
) -> str:
    """The suite's comparison table and the report's answer; with `emulated`, those of the emulated trials, which say so.

    `sweep`: as it was loaded. `made`: what a report was made of, and the report.
    Returns what it found in one line, for a chat; empty where there is nothing to compare.
    """
    from tasks.analysis.results import load_sweep
    from tasks.report.headline import headline_of
    from tasks.report.model import report_of, report_source

    source = made[0] if made else report_source(sweep or load_sweep(store.dir), emulated=emulated)
    if not source.table.rows:
        return ""
    if emulated:
        out.print("EMULATED: NOT A MEASUREMENT", style="bold red")
    out.print()
    _print_table(out, source.table)
    print_cost(out, source.cells)
    out.print()
    report = made[1] if made else report_of(source, head=True)
    headline = headline_of(report)
    for line in [*_crashes(report), *headline.lines]:
        out.print(line, **_PLAIN)
    if not emulated:
        print_of_sweep(out, store)
    return headline.line


def _crashes(report: Report) -> list[str]:
    """Why cells crashed, beside others that have a value: the table has no room for it. Where none has one the headline says it."""
    if not any(cell.estimate for cell in report.cells):
        return []
    return [f"{one.sentence}." for one in report.missing if one.outcome == "crashed"]


def _print_table(out: Console, table: ComparisonTable) -> None:
    """As a table where the terminal is wide enough, else with a line for each cell; of more than MANY cells likewise."""
    if len(table.rows) * len(table.columns) <= MANY:
        rich_table = table.rich()
        if Measurement.get(out, out.options.update(max_width=10_000), rich_table).maximum <= out.width:
            out.print(rich_table)
            return
    out.print(table.title, style="italic", highlight=False)  # too wide for this terminal, or too long: a line for each cell
    for names, cells in table.rows:
        row = " · ".join(f"{axis.replace('_', ' ')} {name}" for axis, name in zip(table.row_axes, names, strict=True))
        out.print(row, style="bold", soft_wrap=True)
        width = max(8, *map(len, table.columns))
        for head, cell in zip(table.columns, cells, strict=True):
            if cell.plain:
                out.print(Text.assemble(f"  {head:>{width}}  ", cell.rich()), soft_wrap=True)
    if table.signs:
        out.print(table.signs, style="dim", **_PLAIN)


def print_where(out: Console, store: SweepStore) -> None:
    """Where the report is and how to see the curves."""
    from cluster.stack.settings import environment
    from tasks.tracking.client import tracking_uri

    report = store.dir / REPORT_PAGE
    if report.exists():
        out.print(f"report:    {report}", highlight=False, soft_wrap=True)
    uri = environment().get("MLFLOW_TRACKING_URI") or tracking_uri()  # the stack's, if it is up
    out.print(f"MLflow UI: {uri if uri.startswith('http') else 'sweep ui'}", highlight=False, soft_wrap=True)
