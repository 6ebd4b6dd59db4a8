"""Section: what trials noted."""

from __future__ import annotations

from tasks.report.section import Bullets
from tests.tasks.cell_support import report_of, row, workers


def test_notes_are_said_once_with_who_said_them() -> None:
    def noted(said: dict[int, list[str]], ended: int) -> list[str]:
        rows = [row(workers(count), notes=said.get(count, [])) for count in range(ended)]
        return list(report_of([*rows, row(workers(99), None, outcome=None)]).section("notes").block(Bullets).lines)

    assert noted({0: ["a", "a", "b"], 1: ["b"]}, 3) == ["cpu · MP-0 · #1: a", "cpu · MP-0 · #1 and cpu · MP-1 · #1: b"]
    assert noted({count: ["all"] for count in range(3)}, 3) == ["Every trial: all"]
    four = {count: ["four"] for count in range(4)}
    assert noted(four, 6) == ["cpu · MP-0 · #1, cpu · MP-1 · #1, cpu · MP-2 · #1 and cpu · MP-3 · #1: four"]
    assert noted({**four, 4: ["four"]}, 6) == ["5 trials: four"]
    assert "notes" not in report_of([row(workers(0))]).section_names
