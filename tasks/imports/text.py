"""What others measured, in words: the same in the terminal, in Markdown and on the page."""

from __future__ import annotations

import time

from tasks.imports.model import TITLES, Imported, OthersResult
from tasks.report.comparison_table import TextTable
from tasks.report.section import Bullets, Facts, Section, table_section
from tasks.report.text_format import amount, listed, number, plural

NOT_OURS = (
    "Measured by others. Nothing here has been measured by sweepbench: its conditions are not known, no interval is given, and it takes "
    "part in no comparison, night or certificate."
)


def headline(imported: Imported) -> str:
    """`3 results of MLPerf logs, measured by others on 2026-11-20`."""
    when = f" on {_date(imported.measured_at)}" if imported.measured_at is not None else ""
    return f"{plural(len(imported.results), 'result')} of {TITLES[imported.origin]}, measured by others{when}"


def results_table(imported: Imported) -> TextTable:
    """A row for each result and a column for each figure, or the other way where that is narrower; figures by their program's names."""
    names = list(dict.fromkeys(value.name for result in imported.results for value in result.values))
    columns = [("outcome", [result.outcome or "–" for result in imported.results])] if any(_outcomes(imported)) else []
    columns += [(name, [_shown(result, name) for result in imported.results]) for name in names]
    if len(columns) > len(imported.results):
        header = ["figure", *(result.name for result in imported.results)]
        return TextTable(header, [[name, *shown] for name, shown in columns])
    rows = [[result.name, *(shown[place] for _, shown in columns)] for place, result in enumerate(imported.results)]
    return TextTable(["result", *(name for name, _ in columns)], rows)


def sections(imported: Imported) -> list[Section]:
    """What the report shows below its head."""
    settings = {name: sorted({str(one.settings[name]) for one in imported.results if name in one.settings}) for name in _settings(imported)}
    kept = [f"{one.name}: read from {one.read_from}, {one.size:,} bytes, SHA-256 {one.sha256}" for one in imported.originals]
    programs = [("program", f"{TITLES[imported.origin]} {listed(imported.versions)}".strip())]
    facts = [*programs, ("imported", _date(imported.imported_at)), *imported.environment.items()]
    found = [
        table_section("results", "Results", results_table(imported), "Figures have the names that their program gives them."),
        Section("settings", "Settings", [Facts([(name, listed(values)) for name, values in settings.items()])]) if settings else None,
        Section("environment", "Environment", [Facts(facts)], "As the files say."),
        Section("originals", "Files", [Bullets(kept)], "Kept as they were, in the folder originals."),
    ]
    return [section for section in found if section is not None]


def _shown(result: OthersResult, name: str) -> str:
    found = next((value for value in result.values if value.name == name), None)
    if found is None:
        return "–"
    if found.unit:
        return amount(found.value, found.unit)
    return f"{int(found.value):,}" if found.value == int(found.value) else number(found.value)


def _outcomes(imported: Imported) -> list[str | None]:
    return [result.outcome for result in imported.results]


def _settings(imported: Imported) -> list[str]:
    return list(dict.fromkeys(name for result in imported.results for name in result.settings))


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
