"""What a published sweep found, in README's few words: a value, and what may be said of it, for each group of cells that are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from experiments.metric import Kind
from tasks.report.answer import Answer
from tasks.report.cell_names import names_among
from tasks.report.markdown import md
from tasks.report.model import Report
from tasks.report.published_pages import SweepOnPage
from tasks.report.text_format import quantity, spread

MOST_LINES = 3


@dataclass(frozen=True)
class InShort:
    """`lines`: Markdown, at most MOST_LINES and one that counts the rest. Of the groups of two cells or more, from 0 to 1: `won`, the share
    that has a winner, and `gained`, the share whose winner is none that others are compared with, so that a setting was worth it."""

    lines: Sequence[str] = ()
    won: float = 0.0
    gained: float = 0.0


def in_short(sweep: SweepOnPage, report: Report | None) -> InShort:
    """`report`: the sweep's head_of.

    No lines of one cell against itself; of a sweep whose cells ran once what it says of sizes that fit, or none.
    """
    if report is None:
        return InShort()
    if not sweep.repeated:
        return InShort((md(report.fits.removesuffix(".")),) if report.fits else ())
    compared = [answer for answer in report.answers if answer.compared > 1]
    told = compared or ([] if report.of_all else report.answers)
    lines = [*map(md, report.of_all), *map(line_of, told)]
    if len(lines) > MOST_LINES + 1:
        lines = [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES} more"]
    winners = [answer.winner for answer in compared]
    return InShort(
        lines, _share(winner is not None for winner in winners), _share(winner and not winner.is_compared_with for winner in winners)
    )


def _share(hold: Iterable[object]) -> float:
    """Of those that hold; 0 of none."""
    return fmean([bool(one) for one in hold] or [False])


def line_of(answer: Answer) -> str:
    """`batch_size 8: latency p50 **17.4 ms** ±2.6 %, cuda_graph: the best of 3, no clear winner`. A rate's unit says what it is."""
    best = answer.best
    assert best.estimate is not None
    name = "" if best.metric.kind is Kind.RATE else f"{md(best.metric.label)} "
    value = f"{name}**{quantity(best.estimate.value, best.metric)}** {spread(best.estimate, best.metric)}".rstrip()
    disturbed = ", disturbed by other work" if best.disturbed else ""
    return f"{f'{md(answer.work)}: ' if answer.work else ''}{value}{_said(answer)}{disturbed}"


def _said(answer: Answer) -> str:
    if answer.compared == 1:
        return ""
    beside = [answer.ahead_of.other] if answer.ahead_of else list(answer.level)
    name = md(names_among([answer.best, *beside])[1][0])
    proven = all(answer.best.may_lead(other) for other in beside)
    if answer.ahead_of is None:
        found = "not decided yet" if answer.early else "no clear winner"
        return f", {name}: the best of {answer.compared}, {found}{'' if proven else '; loss parity unproven'}"
    claim = "" if answer.winner else "; not claimed: loss parity unproven"
    return f", {name}: {answer.lead} over the next, {answer.compared} compared{claim}"
