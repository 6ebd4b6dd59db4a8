"""README's first table: the comparison of one published sweep, and below it how it was measured and what is open."""

from __future__ import annotations

from pathlib import Path

from tasks.analysis.results import load_sweep
from tasks.report.given_command import given_command
from tasks.report.headline import headline_of
from tasks.report.held_text import held_sentence
from tasks.report.markdown import code, comparison_markdown, md, prose
from tasks.report.model import report_of, report_source
from tasks.report.published_pages import SweepOnPage, sweep_on_page


def first_table(folder: Path, root: Path) -> str:
    """The table and its caption as Markdown, of the sweep that was published to `folder`; links are from `root`, the README's folder.

    Raises ResultsError, DamagedFile.
    """
    sweep = sweep_on_page(folder)
    source = report_source(load_sweep(folder))
    headline = headline_of(report_of(source, head=True))
    where = folder.relative_to(root).as_posix()
    held = f" It {held_sentence(source.held)}." if source.held is not None and source.held.seconds else ""
    page = f"[The page]({folder.parent.relative_to(root).as_posix()}/README.md) was written by `sweep publish`."
    open_ = [prose(" ".join(headline.details)), "\n".join(f"- {md(line)}." for line in headline.groups)]
    return "\n\n".join(
        [
            comparison_markdown(source.table),
            prose(source.table.reading),
            f"{measured(sweep)}{held} {page}",
            *(part for part in open_ if part),
            f"![{md(source.table.title)} by cell with 95 % intervals]({where}/figures/throughput.png)",
        ]
    )


def measured(sweep: SweepOnPage) -> str:
    """By what it was measured, how often, on what and at which commit: a sentence in Markdown."""
    where = f"{md(sweep.devices)}, {sweep.date}, commit {code(sweep.commit)}"
    return f"{given_command(sweep.plan, sweep.held)}: {sweep.trials}, {len(sweep.plan.trials)} in all, {where}."
