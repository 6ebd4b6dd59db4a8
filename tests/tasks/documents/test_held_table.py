"""The tables of held time in docs/measuring.md, from made-up sweeps. Nothing here is a measurement."""

from __future__ import annotations

from pathlib import Path

from tasks.analysis.held_time import HeldTime, HeldTrial
from tasks.documents.held_table import beside_s, held_tables
from tasks.report.published_pages import Page, SweepOnPage
from tests.tasks.plan_support import make_plan, make_suite

FIRST = HeldTrial("a", "gpu", {"launch": 6.0, "build": 2.0, "first_step": 12.0, "warmup": 5.0, "measured": 10.0, "teardown": 0.2})
SECOND = HeldTrial("b", "gpu", {"between": 0.1, "launch": 0.4, "first_step": 2.0, "warmup": 0.5, "measured": 15.5})
AGAIN = HeldTrial("c", "gpu", {"launch": 3.0, "first_step": 1.0, "measured": 12.0})
LOST = HeldTrial("d", "gpu", {"waiting": 0.1, "discarded": 3.0})
FAKE = HeldTrial("e", "gpu", {"measured": 500.0}, emulated=True)


def page(name: str, held: HeldTime | None, *, devices: int = 1) -> Page:
    ran_on = {trial.trial: ("Card", devices) for trial in (held.trials if held else ())}
    plan = make_plan([], suite=make_suite(), git={"commit": "0123456789abcdef"})
    return Page(Path(name), name, [SweepOnPage(Path(name), plan, f"{devices} Card", "2026-01-01", "3 trials", 3, held, ran_on)])


def tables(*pages: Page) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of both tables without their header."""
    _, *both = held_tables(pages).split("\n\n")
    first, second = ([[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()] for text in both)
    assert first[0][0] == "page" and second[0][0] == "devices"
    return first[2:], second[2:]


def test_a_sweeps_row_has_its_windows_what_was_measured_and_the_largest_other_parts() -> None:
    [row], _ = tables(page("some_page", HeldTime([FIRST, SECOND, AGAIN, LOST, FAKE])))
    assert row[0] == "[some\\_page](results/some_page/README.md)"
    assert row[2:5] == ["1 Card, 2026-01-01, in 2 runs", "`0123456`", "3 of 10.0 to 15.5 s"]
    assert row[5] == "52 % of 72.8 s", "37.5 s, without the emulated trial"
    assert row[6] == "21 % first step, 13 % start, 8 % warm-up"
    assert row[7] == "4.0 s (up to 25.2)", "of those that measured: 25.2, 3.0 and 4.0"


def test_windows_that_are_alike_are_one_number_and_one_run_is_not_said() -> None:
    [row], _ = tables(page("x", HeldTime([FIRST])))
    assert row[2] == "1 Card, 2026-01-01" and row[4] == "1 of 10.0 s"
    [wide], _ = tables(page("x", HeldTime([FIRST], slots=2)))
    assert wide[5] == "28 % of 35.2 slot-seconds"


def test_the_goal_is_told_with_how_many_sweeps_reach_it() -> None:
    def sentence(*measured: float) -> str:
        pages = [page("x", HeldTime([HeldTrial("a", "gpu", {"launch": 100.0 - seconds, "measured": seconds})])) for seconds in measured]
        return held_tables(pages).split("\n\n")[0]

    assert sentence(59.9, 60.0, 80.0) == "Goal: 60 % of the held time is measured. 2 of 3 sweeps reach it; the median is 60 %."
    assert sentence(59.9) == "Goal: 60 % of the held time is measured. 0 of 1 sweep reaches it; the median is 60 %."
    assert sentence() == "Goal: 60 % of the held time is measured. 0 of 0 sweeps reach it."


def test_sweeps_without_a_record_or_a_window_have_no_row() -> None:
    assert tables(page("x", None), page("y", HeldTime([LOST])), page("z", HeldTime([FAKE]))) == ([], [])


def test_what_trials_take_beside_their_window_is_told_by_their_devices() -> None:
    one, two, more = page("x", HeldTime([FIRST, SECOND, LOST])), page("y", HeldTime([AGAIN])), page("z", HeldTime([SECOND]), devices=2)
    assert tables(one, two, more)[1] == [
        ["Card", "3", "4.0 s", "4.0 to 14.1 s (2 sweeps)", "25.2 s"],
        ["2 Card", "1", "3.0 s", "3.0 s (1 sweep)", "3.0 s"],
    ]
    assert beside_s([LOST]) == []
