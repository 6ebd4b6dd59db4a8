"""What `sweep campaign` prints: what is to run and how long that is expected to take, and what is left in the end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from experiments.config import duration
from flows.cli.tables import make_table
from tasks.campaign.entries import Entry
from tasks.campaign.pages import WrittenPage
from tasks.report.text_format import listed, plural


def print_entries(out: Console, entries: Sequence[Entry], time_s: float) -> None:
    """A line for each sweep in the order in which they run. `time_s`: for all of them in this run of the command, s."""
    table = make_table("", "sweep", "cells", "rounds", "trials to run", "expected to take", "may take", "page")
    for number, entry in enumerate(entries, 1):
        decide = entry.plan.decide
        cells = len({trial.cell for trial in entry.plan.trials})
        last = entry.plan.last_round
        rounds = f"up to {decide.most}" if decide else "1"
        to_do = f"{len(entry.to_do)}{'' if entry.is_new else f' of {len(entry.plan.trials)}'}" + (
            ", then more rounds" if entry.grows else ""
        )
        row = (str(number), entry.name, str(cells), rounds if entry.is_new else f"{last} of {rounds}", to_do)
        table.add_row(*(Text(cell) for cell in (*row, _expected(entry), _may_take(entry), entry.spec.to)))
    out.print(table)
    out.print(f"{duration.text(time_s)} for trials in this run; a trial that is not expected to end by then is not begun", highlight=False)


def _may_take(entry: Entry) -> str:
    """Its time in all runs of the command, and in each; of what has nothing left to run, none."""
    if not (entry.to_do or entry.grows or entry.short_of):
        return "–"
    parts = [*([entry.spec.budget] if entry.spec.budget else []), *([f"{entry.spec.per_run} a run"] if entry.spec.per_run else [])]
    return ", ".join(parts) or "what is left"


def _expected(entry: Entry) -> str:
    """What its trials that are to run are expected to take, and a round after them; of what no past sweep tells, that it is not known."""
    if entry.short_of:
        return "no time left"
    more = f"up to {duration.about(entry.next_round_s)} a round" if entry.grows else ""
    if not entry.to_do:
        return more or ("all is measured, not reported" if entry.unreported else "all is measured")
    unknown = sum(trial.cell not in entry.expected for trial in entry.to_do)
    least = f"{duration.about(sum(entry.times().values()))}"
    if unknown == len(entry.to_do):
        return f"unknown: no past sweep has them (at least {least})"
    known = f"{least}" if not unknown else f"unknown for {plural(unknown, 'trial')}, at least {least}"
    return f"{known}, then {more}" if more else known


def print_in_vain(err: Console, file: str, own: list[str]) -> None:
    """Why a run measured nothing: its time, or those that the campaign's `file` gives its sweeps. `own`: what to write there instead."""
    whose, then = (f"the time that {file} gives its sweeps", f"; give more there, such as {listed(own, 3)}") if own else ("its time", "")
    err.print(
        f"this run measured nothing: {whose} was too short for a trial once it had started{then}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def print_left(err: Console, entries: Sequence[Entry], asked: str, go_on: str, *, told_to_end: bool) -> None:
    """After a run: what the same command, with the words `go_on`, would go on with, else that all that fits is measured; which sweeps
    have fewer rounds than they are to have for want of time (see Entry); and how pages are written of what has ended, if anything has."""
    open_ones = [entry.name for entry in entries if entry.fits(float("inf"))]
    unreported = [entry.name for entry in entries if entry.unreported and entry.name not in open_ones]
    if told_to_end:
        err.print("told to end: no other sweep was begun", highlight=False)
    if open_ones or unreported:
        parts = [(open_ones, "not all is measured"), (unreported, "not all is reported and in MLflow")]
        said = ", ".join(f"{what} ({', '.join(names)})" for names, what in parts if names)
        err.print(
            f"{said}; go on with it: sweep campaign {go_on}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    else:
        err.print("all that fits in the sweeps' budgets is measured", highlight=False)
    for entry in entries:
        if entry.short_of and (decide := entry.plan.decide):
            has = f"{entry.name} has {plural(entry.plan.last_round, 'round')} of at least {decide.least}"
            err.print(f"{has}: no other fits in {entry.short_of}; a longer one lets it go on", highlight=False, soft_wrap=True)
    if any(len(entry.to_do) < len(entry.plan.trials) for entry in entries):
        err.print(f"write its pages: sweep campaign {asked} --publish", highlight=False, markup=False, soft_wrap=True)


def print_page(out: Console, err: Console, page: WrittenPage) -> None:
    """A page that was written, with what is not on it; or why none was."""
    if page.readme is None:
        why = (
            f"[red]no page[/] {page.folder}: {escape(page.refused)}"
            if page.refused
            else f"[yellow]no page[/] {page.folder}: nothing of it was measured"
        )
        err.print(why, highlight=False, soft_wrap=True)
        return
    out.print(f"published: {page.readme}", highlight=False, soft_wrap=True)
    lacks = (f"{'not on it' if one.sweep_id is None else 'not whole on it'}: {one.sentence}" for one in page.missing)
    for line in [*(f"replaced: {one}" for one in page.replaced), *lacks]:
        err.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
