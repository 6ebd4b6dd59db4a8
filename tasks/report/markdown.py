"""The report of a sweep as Markdown. Templates pass every value from a trial through the filter `md`: Jinja2 escapes only HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tasks.report.comparison_table import ComparisonTable, TableCell, TextTable
from tasks.report.headline import Headline, headline_of
from tasks.report.model import Report
from tasks.report.section import Ranking
from tasks.report.sections.ranking import TOP
from tasks.report.text_format import code_spans

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def render_markdown(report: Report) -> str:
    """The report as Markdown. Every value from a trial is escaped."""
    return render_text("report.md.jinja", report=report, headline=headline_of(report))


def headline_markdown(headline: Headline) -> str:
    """What a report says first, as report.md has it."""
    return render_text("headline.md.jinja", headline=headline)


def render_text(template: str, **values: Any) -> str:
    """A Markdown document from a template beside this file; one newline at its end."""
    return _environment().get_template(template).render(**values).rstrip("\n") + "\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=False,  # noqa: S701 - it would write HTML's escapes; `md` writes Markdown's
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        md=md, prose=prose, code=code, table=table_markdown, comparison=comparison_markdown, ranking=ranking_markdown, address=_address
    )
    return environment


def md(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def prose(text: str) -> str:
    """As `md`, but what stands in backquotes in it is shown as code."""
    return "".join(code(part) if is_code else _escaped(part) for part, is_code in code_spans(" ".join(text.split())))


def code(text: str) -> str:
    """Inline code; fenced by more backticks than it holds."""
    line = " ".join(text.split())
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    return f"{fence}{line}{fence}" if "`" not in line else f"{fence} {line} {fence}"


def _address(link: str) -> str:
    """An address inside the parentheses of a link."""
    return link.replace(")", "%29").replace(" ", "%20")


def table_markdown(table: TextTable) -> str:
    return _grid(
        [md(name) for name in table.header],
        [[md(value) for value in row] for row in table.rows],
        table.names if table.numeric else len(table.header),
    )


def ranking_markdown(ranking: Ranking) -> str:
    """The first of a ranking; the comparison's table has them all."""
    rows = [
        [str(one.place), md(one.name), f"**{md(one.value)}**", md(one.plus_minus), md(one.change), md(one.words)]
        for one in ranking.cells[:TOP]
    ]
    left = len(ranking.cells) - len(rows) + ranking.rest
    grid = _grid(["", "cell", "value", "interval", "over the baseline", "verdict"], rows, 2)
    return f"{grid}\n\nThe other {left} stand in the comparison." if left else grid


def comparison_markdown(table: ComparisonTable) -> str:
    """The comparison table; what needs more words than a cell holds follows as numbered notes. A speed-up without a mark has its verdict
    beside it, for a reader who does not know that it is decided then."""
    notes: list[str] = []

    def show(cell: TableCell) -> str:
        if cell.outcome:
            return f"*{md(cell.outcome)}*{_mark(cell.reason, notes)}"
        speedup = f"~~{md(cell.speedup)}~~" if cell.struck else md(cell.speedup)
        value = " ".join(filter(None, (f"**{md(cell.value)}**" if cell.value else "", md(cell.plus_minus))))
        change = " ".join(filter(None, (speedup, md(cell.verdict))))
        further = [md(one) for one in cell.further]  # between commas: what follows is not of them
        text = ", ".join(filter(None, (value, *further, change))) if further else f"{value} {change}".strip()
        return text + "".join(sorted((_mark(note, notes) for note in cell.notes), key=_numeral))

    axes = table.telling_axes
    rows = [[*(md(names[at]) for at in axes), *(show(cell) for cell in cells)] for names, cells in table.rows]
    text = _grid([md(table.header[at]) for at in axes] + [md(name) for name in table.columns], rows, len(axes))
    return "\n\n".join([text, *([f"{md(table.legend)}."] if table.legend else []), *_numbered(notes)])


def _mark(note: str, notes: list[str]) -> str:
    if not note:
        return ""
    if note not in notes:
        notes.append(note)
    return f" ({notes.index(note) + 1})"


def _numeral(mark: str) -> int:
    return int(mark.strip(" ()"))


def _numbered(notes: Sequence[str]) -> list[str]:
    return ["\n".join(f"{index}. {md(note)}" for index, note in enumerate(notes, 1))] if notes else []


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> str:
    return grid(header, rows, [":--" if index < names else "--:" for index in range(len(header))])


def grid(header: Sequence[str], rows: Sequence[Sequence[str]], rule: Sequence[str] | None = None) -> str:
    """A table of texts that are Markdown already. `rule`: how each column is aligned; the reader's own way where not given."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule or ["---"] * len(header), *rows))
