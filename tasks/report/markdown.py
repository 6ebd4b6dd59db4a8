"""The report of a sweep as Markdown. Every value from a trial is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.report.comparison_table import ComparisonTable, TableCell, TextTable
from tasks.report.model import PROFILE, SCALING, Report
from tasks.report.sections.literature_table import PUBLISHED_ABOUT, PUBLISHED_TITLE
from tasks.report.sections.loss_spikes import ABOUT as SPIKES

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def render_markdown(report: Report) -> str:
    """The report as Markdown. Every value from a trial is escaped."""
    blocks = [f"# {md(report.title)}"]
    if report.watermark:
        blocks.append(f"> **{report.watermark.upper()}**")
    if report.description:
        blocks.append(md(report.description))
    blocks.append("\n".join(_answer(report)))
    blocks += ["## Comparison", comparison_markdown(report.table)]
    if report.saturation:
        blocks += ["### Data loading", _bullets([row.sentence for row in report.saturation])]
    if report.settings.rows:
        title = f"## What each {md(report.settings.header[0])} sets"
        blocks += [title, "The first in full; of the others what differs from it.", table_markdown(report.settings)]
    if report.figures:
        blocks += ["## Figures", *(f"![{md(title)}]({name})" for title, name in report.figures)]
    for title, text, table in (
        ("Scaling", SCALING, report.scaling),
        ("Where a step's time goes", "Mean over repeats. Shares are of the measured window.", report.decomposition),
        ("What ran in the traced steps", PROFILE, report.profile),
        ("Before and after training", "On held-out data, outside the measured window.", report.evaluation),
        ("Spikes", SPIKES, report.spikes),
        ("Outcomes", "Every trial that did not end ok.", report.outcomes),
        ("Confounders", "What differs between these cells and is not an axis.", report.confounders),
        (PUBLISHED_TITLE, PUBLISHED_ABOUT, report.published_table),
        ("Published by others", "Not our measurements. Beside each stands our nearest cell and what differs from it.", report.published),
    ):
        if table.rows:
            blocks += [f"## {title}", text, table_markdown(table)]
    if report.environment:
        blocks += ["## Environment", "The same in every trial.", _bullets([f"{name}: {value}" for name, value in report.environment])]
    if report.notes:
        blocks += ["## Notes", _bullets(report.notes)]
    blocks += ["## Trials", _trials(report)]
    blocks += ["## Sweep", "\n".join(f"- {md(name)}: {_code(value) if name == 'Command' else md(value)}" for name, value in report.facts)]
    return "\n\n".join(blocks) + "\n"


def md(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def comparison_markdown(table: ComparisonTable) -> str:
    """The comparison table; what needs more words than a cell holds follows as numbered notes."""
    notes: list[str] = []

    def show(cell: TableCell) -> str:
        if cell.outcome:
            return f"*{md(cell.outcome)}*{_mark(cell.reason, notes)}"
        speedup = f"~~{md(cell.speedup)}~~" if cell.struck and cell.speedup else md(cell.speedup)
        text = " ".join(part for part in (f"**{md(cell.value)}**" if cell.value else "", md(cell.plus_minus), speedup) if part)
        return text + "".join(_mark(note, notes) for note in cell.notes)

    rows = [[*(md(name) for name in names), *(show(cell) for cell in cells)] for names, cells in table.rows]
    text = _grid([md(name) for name in table.header], rows, len(table.row_axes))
    return "\n\n".join([f"{md(table.title)}; {table.ratio} the baseline, with its 95 % interval.", text, *_numbered(notes)])


def _mark(note: str, notes: list[str]) -> str:
    if not note:
        return ""
    if note not in notes:
        notes.append(note)
    return f" ({notes.index(note) + 1})"


def _numbered(notes: Sequence[str]) -> list[str]:
    return ["\n".join(f"{index}. {md(note)}" for index, note in enumerate(notes, 1))] if notes else []


def table_markdown(table: TextTable) -> str:
    return _grid(
        [md(name) for name in table.header],
        [[md(value) for value in row] for row in table.rows],
        table.names if table.numeric else len(table.header),
    )


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> str:
    rule = [":--" if index < names else "--:" for index in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def _answer(report: Report) -> list[str]:
    winner = report.winner
    lines = [f"**{md(winner.headline)}**: {md(' '.join(winner.sentences))}"] if winner else [f"**{md(report.nothing)}**"]
    if report.winners:
        lines += ["", _bullets(report.winners)]
    if report.missing:
        lines += ["", "Without a value:", "", _bullets([missing.sentence for missing in report.missing])]
    if report.cautions:
        lines += ["", "Read with care:", "", _bullets(report.cautions)]
    return lines


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {md(line)}" for line in lines)


def _trials(report: Report) -> str:
    rows = []
    for trial in report.trials:
        name = f"[{md(trial.name)}]({trial.link.replace(')', '%29').replace(' ', '%20')})" if trial.link else md(trial.name)
        outcome = md(trial.outcome) + (" (emulated)" if trial.emulated else "")
        rows.append([name, outcome, md(trial.value), md(trial.loss), _code(trial.command).replace("|", "\\|")])
    return _grid(["trial", "outcome", "throughput", "loss", "run its cell again"], rows, 2)


def _code(text: str) -> str:
    """Inline code; fenced by more backticks than it holds."""
    line = " ".join(text.split())
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    return f"{fence}{line}{fence}" if "`" not in line else f"{fence} {line} {fence}"
