"""What a sweep found, in the words that every place uses: report.md, report.html, the terminal, MLflow's note and Prefect's artifact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.report.commands import anew_command
from tasks.report.model import Report
from tasks.report.next_step import MARGIN, NextStep


@dataclass(frozen=True)
class Headline:
    """`said`: the finding in one sentence without its stop, a winner only where a verdict says so. `details`: by how much and how sure.

    `groups`: a line for each group of work, where there are several. `step`: what would decide more; None where nothing would.
    """

    said: str
    details: Sequence[str]
    groups: Sequence[str]
    step: NextStep | None
    found: str  # all that was found in one sentence without its stop: `MP-1 is fastest: 581 samples/s, ...`
    line: str  # the same for a chat: `training · h200: MP-1 is fastest: 581 samples/s, ... (sweep training-...)`

    @property
    def lines(self) -> list[str]:
        """As plain text, from the top: the finding with its details, the groups, the next step."""
        first = " ".join([self.said if self.said.endswith(".") else f"{self.said}.", *self.details])
        return [first, *self.groups, *([self.step.text] if self.step else [])]


def headline_of(report: Report) -> Headline:
    """The headline of a report. Every place that tells what a sweep found takes its words from here."""
    answer, standing = report.answer, report.standing
    fits = [report.fits] if report.fits and report.fits != report.headline else []
    apart = [report.why_apart] if report.why_apart else []
    of_all = [*fits, *report.scaling, *([report.spikes] if report.spikes else [])]
    details = [*(answer.sentences if answer else apart), *of_all, *([f"{standing.line}."] if standing else [])]
    lines = [one.line for one in report.answers]
    found = "; ".join([*report.of_all, *lines]) if lines else report.headline.removesuffix(".")
    line = f"{report.title}: {found} (sweep {report.sweep_id})"
    step = report.next_step
    if step is not None and report.published is not None:
        step = replace(step, anew=anew_command(report.published, MARGIN * (step.seconds or 0.0)))
    return Headline(report.headline, details, lines if len(lines) > 1 else [], step, found, line)
