"""What is printed of a sweep's comparison, and where its report is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from cluster.trial_layout import REPORT_PAGE
from flows.cli.show_cost import print_costs
from flows.cli.tables import MANY
from tasks.report.kept_shown import read_shown
from tasks.report.shown import Shown, ShownComparison, ShownTable
from tasks.sweep.store import SweepStore

if TYPE_CHECKING:
    from tasks.report.make_shown import Made

_PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}


def shown_of(store: SweepStore) -> Shown:
    """What is shown of a sweep: as it is kept, else put together. Raises ResultsError, DamagedFile."""
    shown = read_shown(store.dir)
    if shown is None:
        from tasks.analysis.results import load_sweep  # which imports NumPy, SciPy and Arrow
        from tasks.report.make_shown import shown_of_loaded

        shown = shown_of_loaded(load_sweep(store.dir))
    return shown


def print_comparison(out: Console, store: SweepStore, *, emulated: bool = False, made: Made | None = None) -> str:
    """The suite's comparison table and the report's answer; with `emulated`, those of the emulated trials, which say so.

    `made`: what a report was made of, and the report. Returns what it found in one line, for a chat; empty where nothing is compared.
    """
    if made is None:
        return print_shown(out, shown_of(store).comparison)
    from tasks.report.make_shown import shown_comparison

    return print_shown(out, shown_comparison(made), emulated=emulated)


def print_shown(out: Console, comparison: ShownComparison | None, *, emulated: bool = False) -> str:
    """As `print_comparison`."""
    if comparison is None:
        return ""
    if emulated:
        out.print("EMULATED: NOT A MEASUREMENT", style="bold red")
    out.print()
    _print_table(out, comparison.table)
    print_costs(out, comparison.costs.header, comparison.costs.rows, comparison.costs.prices)
    out.print()
    for line in (*comparison.crashes, *comparison.disturbed, *comparison.headline, *comparison.certificates):
        out.print(line, **_PLAIN)
    return comparison.line


def _print_table(out: Console, table: ShownTable) -> None:
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
    from tasks.tracking.client import no_answer, shown, tracking_uri

    report = store.dir / REPORT_PAGE
    if report.exists():
        out.print(f"report:    {report}", highlight=False, soft_wrap=True)
    uri = environment().get("MLFLOW_TRACKING_URI") or tracking_uri()  # the stack's, if it is up
    where = "sweep ui"
    if uri.startswith("http"):
        problem = no_answer(uri)
        where = f"{shown(uri)} does not answer ({problem})" if problem else shown(uri)
    out.print(f"MLflow UI: {where}", highlight=False, markup=False, soft_wrap=True)
