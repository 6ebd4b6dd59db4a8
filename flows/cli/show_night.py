"""What the commands about nights print: the plan, the verdicts, the list; for people and as plain data for --json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.config.errors import UserError
from experiments.regression.definition import METRICS, NightFile
from tasks.nightly.cell_counts import cell_counts
from tasks.nightly.plan import round_seconds
from tasks.nightly.recording import judged, recorded, records_only, uncounted
from tasks.nightly.report import headline, remarks, verdict_table
from tasks.nightly.store import AA_CONTROL, SLOWED_CONTROL, Night, NightStore, night_names
from tasks.report.text_format import clock, listed, plural
from tasks.sweep.store import Plan, SweepStore

_RECORDED = "recorded"  # the state of a night of which nothing could be judged
_STYLES = {
    "worse": "red",
    "better": "green",
    "slower": "red",
    "more": "red",
    "higher": "red",
    "faster": "green",
    "less": "green",
    "lower": "green",
    "undecided": "dim",
}

_WORD, _CHANGE = 2, 3  # columns of the verdicts


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, no_wrap=number == 0, overflow="ignore" if number == 0 else "fold")
    return table


def plan_json(definition: NightFile, plan: Plan, night: Night) -> dict[str, Any]:
    """The night's cells with what they are expected to take, and what was dropped."""
    return {
        "nightly": definition.nightly,
        "date": night.date,
        "budget_s": night.budget_s,
        "expected_s": definition.repeats * round_seconds(night.cells),
        "without_history": [cell.name for cell in night.cells if cell.expected_s is None],
        "trials": len(plan.trials),
        "cells": [cell.model_dump() for cell in night.cells],
        "dropped": [entry.model_dump() for entry in night.dropped],
    }


def plan(out: Console, definition: NightFile, plan: Plan, night: Night) -> None:
    """What the night would measure, in order, and what does not fit."""
    table = _table("cell", "what for", "value", "repeats", "one trial", "judged by")
    for cell in night.cells:
        took = clock(cell.expected_s) if cell.expected_s is not None else "unknown"
        what = {"history": "verdict", "canary": "the node", AA_CONTROL: "A/A", SLOWED_CONTROL: "must be found"}[cell.role]
        table.add_row(Text(cell.name), what, f"{cell.value:g}", str(definition.repeats), took, listed(cell.metrics, 3))
    out.print(table)
    for entry in night.dropped:
        out.print(f"dropped: {entry.name}: {entry.why}", highlight=False, soft_wrap=True)
    expected = definition.repeats * round_seconds(night.cells)
    unknown = sum(cell.expected_s is None for cell in night.cells)
    besides = f", and {unknown} cells without history" if unknown else ""
    out.print(f"{plural(len(plan.trials), 'trial')}; expected: {clock(expected)}{besides}; budget {clock(night.budget_s)}", highlight=False)
    repeats = f"up to {definition.interim_repeats[-1]} repeats"
    if definition.pairs:
        pairs = f"in up to {definition.pairs[-1]} pairs of tonight's commit and a good one; what cannot be paired, {repeats}"
        out.print(f"cells that look changed are measured again {pairs}, as far as the budget goes", highlight=False, soft_wrap=True)
    else:
        out.print(f"undecided cells are measured again, {repeats}, as far as the budget goes", highlight=False)


def show_night(out: Console, store: NightStore, night: Night) -> None:
    """A night's verdicts, and where its report is; of a first night, which has none, only what it is."""
    if records_only(night):
        out.print(f"{headline(night)}.", highlight=False, markup=False, soft_wrap=True)
    else:
        _print_verdicts(out, night)
    nights = [other for other in store.all() if other.date <= night.date]
    for line in remarks(night, nights, store.changes()):
        out.print(line, highlight=False, markup=False, soft_wrap=True)
    page = store.folder(night.date) / "report.html"
    if page.exists():
        out.print(f"report:    {page}", highlight=False, soft_wrap=True)


def _print_verdicts(out: Console, night: Night) -> None:
    """The table, where the verdict and the change have its colour, the cells that are recorded only, and the nodes."""
    verdicts = verdict_table(night)
    table = _table(*verdicts.header)
    for row in verdicts.rows:
        style = _STYLES.get(row[_WORD], "")
        table.add_row(*(Text(value, style=style if index in (_WORD, _CHANGE) else "") for index, value in enumerate(row)))
    if verdicts.rows:
        out.print(table)
    for line in recorded(night):
        out.print(f"{line}.", highlight=False, markup=False, soft_wrap=True)
    for node in night.nodes:
        out.print(f"node {node.host} ({node.pool}): {node.verdict}{f'; {node.note}' if node.note else ''}", highlight=False, soft_wrap=True)


def night_rows(name: str | None = None) -> list[dict[str, Any]]:
    """Every night here, newest first. One that cannot be read says so and hides no other.

    `verdicts`: how many cells are worse, better, undecided, the same, only recorded yet, or not
    even counted since other work disturbed all their trials; `metrics`: in which. `worse` has each metric.
    """
    rows: list[dict[str, Any]] = []
    for known in [name] if name else night_names():
        store = NightStore(known)
        for date in store.dates():
            try:
                night = store.load(date)
            except UserError as error:
                rows.append({"nightly": known, "date": date, "state": "unreadable", "problem": str(error)})
                continue
            counts = cell_counts(night)
            verdicts = {count.word: count.cells for count in counts}
            disturbed = {item.cell for item in uncounted(night)}
            waiting = {item.cell for item in night.cell_verdicts} - {item.cell for item in judged(night)}
            kinds = (("recorded", waiting - disturbed), ("not counted", disturbed))
            verdicts |= {word: len(cells) for word, cells in kinds if cells}
            rows.append(
                {
                    "nightly": known,
                    "date": date,
                    "sweep_id": night.sweep_id,
                    "state": _state(night),
                    "verdicts": verdicts,
                    "metrics": {count.word: list(count.metrics) for count in counts if count.metrics},
                    "worse": [item.model_dump(mode="json") for item in night.worse()],
                    "probes": {role: str(verdict) for role, verdict in night.probes.items()},
                    "nodes": [node.model_dump(mode="json") for node in night.nodes],
                    "missed": [entry.name for entry in night.missed],
                    "dropped": [entry.name for entry in night.dropped],
                    "report": str(store.folder(date) / "report.html"),
                }
            )
    return sorted(rows, key=lambda row: (row["date"], row["nightly"]), reverse=True)


def _state(night: Night) -> str:
    if SweepStore(night.sweep_id).is_held():
        return "running"
    if records_only(night):
        return _RECORDED
    return "judged" if night.judgements else "interrupted" if night.closed else "incomplete"


def nights(out: Console, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        out.print("no night yet; `sweep nightly` runs one", highlight=False)
        return
    table = _table("date (UTC)", "nightly", "state", "cells", "A/A", "injected", "missed")
    for row in rows:
        if "problem" in row:
            table.add_row(row["date"], row["nightly"], row["state"], "", "", "", "")
            continue
        verdicts = Text()
        for index, (word, count) in enumerate(row["verdicts"].items()):
            metrics = [METRICS[metric].label for metric in row["metrics"].get(word, [])] if word != "undecided" else []
            verdicts.append(f"{', ' if index else ''}{count} ").append(word, style=_STYLES.get(word, ""))
            verdicts.append(f" ({', '.join(metrics)})" if metrics else "")
        controls = {} if row["state"] == _RECORDED else row["probes"]  # which have no baseline either
        table.add_row(
            row["date"],
            row["nightly"],
            row["state"],
            verdicts,
            controls.get(AA_CONTROL, ""),
            controls.get(SLOWED_CONTROL, ""),
            str(len(row["missed"]) or ""),
        )
    out.print(table)
    for row in rows:  # below it: a table would break the name of the file
        if "problem" in row:
            out.print(row["problem"], style="red", highlight=False, markup=False, soft_wrap=True)
