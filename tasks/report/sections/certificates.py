"""Section: how often the intervals of each device were right on A/A pairs; of an A/A sweep, what its own pairs show."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.analysis.aa import AaResult
from tasks.report.certificate_text import certificate_lines, with_interval
from tasks.report.comparison_table import TextTable
from tasks.report.section import Block, Bullets, ReportSource, Section
from tasks.report.text_format import plural

ABOUT = (
    "Of pairs of trials between which nothing differs, a 95 % interval should cover the ratio 1 in 95 of 100, "
    "and no verdict should be faster or slower."
)


def section(source: ReportSource) -> Section | None:
    """None where no trial measured anything, and in reports of emulated trials."""
    lines = [] if source.emulated else certificate_lines(source.certificates, source.suite_name)
    blocks: list[Block] = [Bullets(lines)] if lines else []
    if source.aa is not None:
        blocks += [coverage_table(source.aa), Bullets(remarks(source.aa))]
    return Section("aa", "A/A", blocks, ABOUT) if blocks else None


def coverage_table(result: AaResult) -> TextTable:
    """A row for each size of the small sweeps that were made of the pairs."""
    rows = [["1 pair, the spread between trials known from the others", str(result.single.of), with_interval(result.single), "–"]]
    for group in result.groups:
        share = group.false_verdicts
        false = f"{share.hits}: {with_interval(share)}" if share.of else "–"
        rows.append([f"{group.size} pairs", str(group.covered.of), with_interval(group.covered), false])
    return TextTable(["a sweep of", "sweeps", "95 % interval covered", "false verdicts"], rows, numeric=True)


def remarks(result: AaResult) -> Sequence[str]:
    """What the table leaves out."""
    lines = [f"{plural(result.pairs, 'pair')}, in turns A B B A; shares with exact 95 % intervals."]
    for why, count in result.left_out.items():
        lines.append(f"{plural(count, 'pair')} left out: {why}.")
    if result.with_disturbed is not None and result.with_disturbed.of:
        lines.append(f"With the disturbed pairs among them, the interval of one pair covered {with_interval(result.with_disturbed)}.")
    if not result.pairs:
        lines.append("No pair counts, so there is no certificate.")
    if result.times_apart is not None:
        covered = f"an interval of steps alone would have covered {with_interval(result.steps)}" if result.steps.of else ""
        lines.append(f"Trials lie {result.times_apart:.1f} times as far apart as the steps within them suggest: {covered}.")
    return lines
