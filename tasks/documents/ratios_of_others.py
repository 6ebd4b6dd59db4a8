"""Each ratio that others published, beside ours from the page where the cells are nearest to theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tasks.report.markdown import grid, md
from tasks.report.model import Report
from tasks.report.published_beside import Beside, published_beside, setting
from tasks.report.published_pages import Page
from tasks.report.text_format import plural

HEADER = ["published by others", "setting", "their value", "ours", "of which cells", "what differs", "page", "source"]

_On = tuple[Page, Beside]


def ratios_table(pages: Sequence[Page], heads: Mapping[Path, Report | None]) -> str:
    """A row for each published ratio beside which some page has one, as Markdown; links are from docs/results. `heads`: of each sweep its
    head_of, by its folder."""
    nearest: dict[tuple[str, ...], _On] = {}
    for page, line in _lines(pages, heads):
        name = (line.entry.workload, line.entry.accelerator, setting(line.entry), line.entry.source, line.theirs)
        nearest[name] = min(nearest.get(name, (page, line)), (page, line), key=_order)
    return grid(HEADER, [_row(*nearest[name]) for name in sorted(nearest)])


def _lines(pages: Sequence[Page], heads: Mapping[Path, Report | None]) -> Iterator[_On]:
    for page in pages:
        for sweep in page.sweeps:
            head = heads[sweep.folder]
            if not sweep.kind and head is not None:
                yield from ((page, line) for line in published_beside(head.cells) if line.entry.over)


def _order(one: _On) -> tuple[int, bool, int, float, int, float]:
    """Those with three trials a cell first, where trials tell it, those of the same precision, then that in which least differs, then the
    nearest, then that of the plainest cells."""
    line = one[1]
    return -line.trials_that_count, line.stand_in, len(line.differs), line.gap, len(line.ours_with), -line.better


def _row(page: Page, line: Beside) -> list[str]:
    differs = "; ".join([*line.differs, *([f"ours with {', '.join(line.ours_with)}"] if line.ours_with else [])])
    ours = f"{line.ours}; {plural(line.trials, 'trial')}"
    told = [line.entry.accelerator, f"{line.entry.workload}: {setting(line.entry)}", line.theirs, ours, line.cell, differs]
    return [*map(md, told), f"[{md(page.name)}]({page.name}/README.md)", md(line.entry.source)]
