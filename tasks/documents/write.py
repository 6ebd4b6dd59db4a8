"""Write the documents' blocks and the index of docs/results anew, or tell what is not as it would be written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.atomic_file import atomic_write
from experiments.spec.load import list_suites
from tasks.documents.finding import finding, head_of
from tasks.documents.first_table import first_table
from tasks.documents.goals import goal_tables, read_goals
from tasks.documents.held_table import held_tables
from tasks.documents.in_short import in_short
from tasks.documents.index import index_of
from tasks.documents.marked_block import with_block
from tasks.documents.metrics_table import metrics_table
from tasks.documents.ratios_of_others import ratios_table
from tasks.documents.suites_table import suites_table
from tasks.report.lacks import README
from tasks.report.published_pages import pages_in

COMMAND = "python -m tasks.documents"
FIRST = Path("docs/results/bridgetower-smoke-two-sizes-cpu/bridgetower-20261122-185509-ed66")  # the sweep of README's first table


def documents_of(root: Path) -> Mapping[Path, str]:
    """Document -> its text as the data would have it, below the repository's `root`.

    Raises BlockError, ConfigError, ResultsError, DamagedFile, OSError.
    """
    results, readme = root / "docs" / "results", root / README
    table, measuring = root / "docs" / "metrics.md", root / "docs" / "measuring.md"
    pages = pages_in(results)
    suites = [suite for suite in list_suites() if not Path(suite.file).is_absolute()]  # those of other folders are not ours
    sweeps = [sweep for page in pages for sweep in page.sweeps]
    heads = {sweep.folder: head_of(sweep) for sweep in sweeps}
    found = {sweep.folder: finding(sweep, heads[sweep.folder]) for sweep in sweeps}
    short = {sweep.folder: in_short(sweep, heads[sweep.folder]) for sweep in sweeps}
    text = with_block(readme.read_text(), "results", COMMAND, first_table(root / FIRST, root), README)
    return {
        readme: with_block(text, "suites", COMMAND, suites_table(suites, pages, short, root, root / FIRST), README),
        results / README: index_of(pages, found, goal_tables(read_goals(), pages, heads), ratios_table(pages, heads)),
        measuring: with_block(measuring.read_text(), "held", COMMAND, held_tables(pages), "docs/measuring.md"),
        table: with_block(table.read_text(), "metrics", COMMAND, metrics_table(), "docs/metrics.md"),
    }


def write_documents(root: Path) -> list[Path]:
    """Write those that are not as they should be; returns them. Raises as `documents_of` does."""
    changed = stale(documents_of(root))
    for path, text in changed.items():
        atomic_write(path, text)
    return list(changed)


def stale(documents: Mapping[Path, str]) -> dict[Path, str]:
    """The documents whose file is not what it should be."""
    return {path: text for path, text in documents.items() if not path.is_file() or path.read_text() != text}
