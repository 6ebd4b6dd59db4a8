"""How a cell stands, by the last night of its branch that has verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.stats.verdict import Verdict
from tasks.nightly.store import CellVerdict, Dropped
from tasks.site.history import tracks
from tasks.site.state import CellState, Kind, cell_state
from tests.tasks.site.site_support import ONE, TWO, alarm, day, only_track, read, save, verdict


def state(root: Path, cell: str = ONE.cell) -> CellState:
    track = only_track(root)
    found = cell_state(track, track.history.cells[cell])
    assert found is not None
    return found


MORE = verdict(metric="peak_memory_bytes", said=Verdict.SLOWER, ratio=0.9, alarm_since=day(2))


@pytest.mark.parametrize(
    ("verdicts", "kind", "word", "moved"),
    [
        ([verdict()], Kind.SAME, "same", []),
        ([verdict(said=Verdict.UNDECIDED)], Kind.UNDECIDED, "undecided", []),
        ([verdict(said=Verdict.UNDECIDED, ratio=None)], Kind.RECORDED, "recorded", []),
        ([alarm(2)], Kind.WORSE, "slower", ["throughput"]),
        ([alarm(2, 1.1)], Kind.BETTER, "faster", ["throughput"]),
        ([verdict(), MORE], Kind.WORSE, "more", ["peak_memory_bytes"]),
        ([alarm(2, 1.1), MORE], Kind.WORSE, "more", ["peak_memory_bytes", "throughput"]),
        ([MORE, alarm(2)], Kind.WORSE, "slower", ["throughput", "peak_memory_bytes"]),
        ([verdict(said=Verdict.UNDECIDED, value=None, ratio=None)], Kind.MISSING, "not measured", []),
    ],
)
def test_what_got_worse_goes_before_what_got_better_and_both_before_the_first_metric(
    tmp_path: Path, verdicts: list[CellVerdict], kind: Kind, word: str, moved: list[str]
) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2, verdicts)
    found = state(tmp_path)
    assert (found.kind, found.word, [item.metric for item in found.moved]) == (kind, word, moved)
    assert found.first is not None and found.first.metric == "throughput"


def test_a_cell_that_was_missed_or_dropped_keeps_its_last_verdict_and_says_when(tmp_path: Path) -> None:
    save(tmp_path, 1, [verdict(), verdict(TWO)], cells=[ONE, TWO])
    unknown = verdict(said=Verdict.UNDECIDED, value=None, ratio=None)
    save(tmp_path, 2, [unknown], missed={ONE.cell: "crashed"}, dropped=[Dropped(cell=TWO.cell, name="two", why="over the budget")])
    one, two = state(tmp_path), state(tmp_path, TWO.cell)
    assert (one.kind, one.word, one.why, one.measured) == (Kind.MISSING, "missed", "missed: crashed", 0)
    assert (two.kind, two.word, two.measured) == (Kind.MISSING, "dropped", 0)
    assert two.first is not None and two.first.value == 100.0


def test_a_cell_that_disappeared_is_gone(tmp_path: Path) -> None:
    save(tmp_path, 1, cells=[ONE, TWO])
    save(tmp_path, 2)
    assert (state(tmp_path, TWO.cell).kind, state(tmp_path, TWO.cell).measured) == (Kind.GONE, 0)


def test_a_night_that_still_runs_changes_no_state(tmp_path: Path) -> None:
    save(tmp_path, 1, [alarm(1)])
    save(tmp_path, 2, [], closed=False)
    assert state(tmp_path).kind is Kind.WORSE


def test_before_a_night_was_judged_no_cell_has_a_state(tmp_path: Path) -> None:
    save(tmp_path, 1, [], closed=False)
    track = only_track(tmp_path)
    assert cell_state(track, track.history.cells[ONE.cell]) is None


def test_a_state_is_that_of_its_branch(tmp_path: Path) -> None:
    save(tmp_path, 1, branch="main")
    save(tmp_path, 2, [alarm(2)], branch="next")
    save(tmp_path, 3, [verdict(TWO)], cells=[TWO], branch="main")
    main, following = tracks(read(tmp_path))
    cells = main.history.cells
    kinds = [[found.kind if (found := cell_state(track, cells[of.cell])) else None for of in (ONE, TWO)] for track in (main, following)]
    assert kinds == [[Kind.GONE, Kind.SAME], [Kind.WORSE, None]]
