"""Section: where the held time went."""

from __future__ import annotations

from dataclasses import replace

from tasks.analysis.held_time import HeldTime, HeldTrial
from tasks.report.section import Bullets
from tasks.report.sections.held_time import section
from tests.tasks.cell_support import row, source_of, workers


def test_the_measured_part_comes_first_then_from_large_to_small() -> None:
    trials = [{"measured": 3.0, "warmup": 1.0}, {"measured": 1.0, "warmup": 1.0}, {"discarded": 4.0}]
    source = replace(source_of([row(workers(0))]), held=HeldTime([HeldTrial(str(n), "cpu", parts) for n, parts in enumerate(trials)]))
    made = section(source)
    assert made is not None
    sentence = "Measured 40 % of the 10.0 s that the pool was held; the rest: 40 % discarded attempts, 20 % warm-up."
    assert list(made.block(Bullets).lines) == [sentence]
    assert made.table.rows == [
        ["measured", "4.00 s", "40.0 %", "1.00 s"],
        ["discarded attempts", "4.00 s", "40.0 %", "0 ms"],
        ["warm-up", "2.00 s", "20.0 %", "1.00 s"],
    ]


def test_a_sweep_whose_slots_times_are_not_known_has_none() -> None:
    source = source_of([row(workers(0))])
    assert source.held is None and section(source) is None
    assert section(replace(source, held=HeldTime([]))) is None
