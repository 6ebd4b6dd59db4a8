"""Section: what share of the time that the pools were held was measured, and where the rest went."""

from __future__ import annotations

import statistics

from tasks.analysis.held_time import MEASURED, PARTS, HeldTime
from tasks.report.comparison_table import TextTable
from tasks.report.held_text import held_sentence
from tasks.report.section import Bullets, ReportSource, Section
from tasks.report.text_format import percent, seconds


def section(source: ReportSource) -> Section | None:
    held = source.held
    if held is None or not held.seconds:
        return None
    sentence = held_sentence(held)
    text = (
        "From when the first trial took a slot of its pool to when the last one gave it back, without the time between two flows over the "
        "sweep. Of a trial that did not fit, is unsupported or failed nothing counts as measured. Discarded are attempts after which a "
        "trial was run again, since they were disturbed or failed. Beside the window: traces, the rates that matrix shapes attain, what "
        "communication costs, counting FLOPs, and ranks that wait for each other."
    )
    return Section("held_time", "Where the held time went", [Bullets([f"{sentence[0].upper()}{sentence[1:]}."]), _table(held)], text)


def _table(held: HeldTime) -> TextTable:
    """A row for each part, the measured one first, then from large to small."""
    order = sorted(held.parts, key=lambda part: (part != MEASURED, -held.parts[part]))
    return TextTable(["part", "time", "share", "median of a trial"], [[PARTS[part], *_row(held, part)] for part in order], numeric=True)


def _row(held: HeldTime, part: str) -> list[str]:
    whole = held.parts[part]
    typical = statistics.median(trial.parts.get(part, 0.0) for trial in held.trials)
    return [seconds(whole), percent(whole / held.seconds), seconds(typical)]
