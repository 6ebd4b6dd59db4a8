"""What is printed of a sweep's comparison, and of two sweeps beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from cluster.trial_layout import REPORT_PAGE
from flows.cli.show_certificates import print_of_sweep
from flows.cli.tables import make_table
from tasks.sweep.store import SweepStore

if TYPE_CHECKING:
    from tasks.analysis.results import Sweep
    from tasks.report.comparison_table import ComparisonTable
    from tasks.report.model import Report
    from tasks.report.section import ReportSource


_COLOURS = {"faster": "green", "slower": "red", "same": "dim", "undecided": "dim"}  # of verdicts
_PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}


def print_comparison(
    out: Console, store: SweepStore, *, emulated: bool = False, sweep: Sweep | None = None, made: tuple[ReportSource, Report] | None = None
) -> None:
    """The suite's comparison table and the report's answer; with `emulated`, those of the emulated trials, which say so.

    `sweep`: as it was loaded. `made`: what a report was made of, and the report.
    """
    from tasks.analysis.results import load_sweep
    from tasks.report.model import report_of, report_source

    source = made[0] if made else report_source(sweep or load_sweep(store.dir), emulated=emulated)
    if not source.table.rows:
        return
    if emulated:
        out.print("EMULATED: NOT A MEASUREMENT", style="bold red")
    out.print()
    _print_table(out, source.table)
    out.print()
    report = made[1] if made else report_of(source)
    out.print(f"{report.headline}. {' '.join(report.answer.sentences)}" if report.answer else report.headline, **_PLAIN)
    for answer in report.answers if len(report.answers) > 1 else []:
        out.print(f"  {answer.line}", **_PLAIN)
    if report.standing:
        out.print(f"{report.standing.line}.", **_PLAIN)
    if report.next_step:
        out.print(f"to decide more: {report.next_step}", **_PLAIN)
    if not emulated:
        print_of_sweep(out, store)


def _print_table(out: Console, table: ComparisonTable) -> None:
    """As a table where the terminal is wide enough, else with a line for each cell."""
    rich_table = table.rich()
    if Measurement.get(out, out.options.update(max_width=10_000), rich_table).maximum <= out.width:
        out.print(rich_table)
        return
    out.print(table.title, style="italic", highlight=False)  # too wide for this terminal: a line for each cell
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


def print_two_sweeps(out: Console, a: SweepStore, b: SweepStore) -> None:
    """`sweep compare`: every cell that both have, and how B stands to A."""
    from tasks.report.compare_sweeps import compare, write_comparison

    comparison = compare(a.dir, b.dir)
    out.print(comparison.headline, highlight=False)
    if comparison.pairs:
        table = make_table(*comparison.table.header)
        for row in comparison.table.rows:
            table.add_row(*(Text(text, style=_COLOURS.get(text, "")) for text in row))
        out.print(table)
    for remark in comparison.remarks:
        out.print(remark, highlight=False, markup=False, soft_wrap=True)
    _, html = write_comparison(comparison, b.dir)
    out.print(f"report: {html}", highlight=False, soft_wrap=True)
