"""Nights as the site reads them: branches, damage, early records, cells that come, go and change their name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.nightly.store import Dropped, NightCode, NightStore
from tasks.site.history import UNKNOWN, tracks
from tests.tasks.site.site_support import NAME, ONE, TWO, alarm, commit, day, only_track, read, save, verdict


def test_no_night_is_no_history(tmp_path: Path) -> None:
    history = read(tmp_path)
    assert (history.nights, history.cells, history.changes, history.problems) == ([], {}, [], [])
    assert tracks(history) == []


def test_a_nights_facts_are_kept_and_its_verdicts_are_columns(tmp_path: Path) -> None:
    save(tmp_path, 1, [alarm(1)], facts={"torch": "2.13.0"})
    history = read(tmp_path)
    [facts] = history.nights
    assert (facts.date, facts.judged, facts.worse, facts.closed, facts.headline) == (day(1), True, True, True, "1 cell worse in throughput")
    assert facts.code == NightCode(commit=commit(1), dirty=False, branch="main") and facts.environments == {"cpu": {"torch": "2.13.0"}}
    assert facts.night.judgements == [] and facts.night.cells == []
    assert history.cells[ONE.cell].series["throughput"].value.tolist() == [95.0]


def test_only_the_last_nights_are_read(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        save(tmp_path, number)
    assert [facts.date for facts in read(tmp_path, 2).nights] == [day(2), day(3)]


def test_a_damaged_night_is_named_and_hides_no_other(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        save(tmp_path, number)
    path = NightStore(NAME, tmp_path).folder(day(2)) / "night.json"
    path.write_text(path.read_text().replace("100.0", "101.0", 1))
    (tmp_path / "nightly" / NAME / "changes.jsonl").write_text("{}\n")
    history = read(tmp_path)
    assert [facts.date for facts in history.nights] == [day(1), day(3)]
    assert len(history.problems) == 2
    assert str(path) in history.problems[0] and "its seal does not hold" in history.problems[0]
    assert "changes.jsonl, line 1" in history.problems[1]


def test_each_branch_has_nights_of_its_own_the_one_of_the_last_night_first(tmp_path: Path) -> None:
    for number, branch in enumerate(("main", "next", "main", "next"), 1):
        save(tmp_path, number, branch=branch)
    found = tracks(read(tmp_path))
    assert [(track.branch, track.nights, track.title) for track in found] == [
        ("next", (1, 3), "made-up on next"),
        ("main", (0, 2), "made-up on main"),
    ]


def test_early_nights_belong_to_the_only_branch_there_is_else_to_none(tmp_path: Path) -> None:
    save(tmp_path, 1, early=True)
    assert (only_track(tmp_path).branch, only_track(tmp_path).title) == (UNKNOWN, "made-up")
    assert read(tmp_path).nights[0].code == NightCode(), "its sweep is not here"
    save(tmp_path, 2)
    assert (only_track(tmp_path).branch, only_track(tmp_path).nights) == ("main", (0, 1))
    save(tmp_path, 3, branch="next")
    assert [(track.branch, track.nights) for track in tracks(read(tmp_path))] == [("next", (2,)), ("main", (1,)), (UNKNOWN, (0,))]


def test_a_cell_has_its_last_name_and_the_nights_that_planned_it(tmp_path: Path) -> None:
    save(tmp_path, 1, cells=[ONE, TWO])
    save(tmp_path, 2, cells=[ONE])
    renamed = ONE.model_copy(update={"name": "one, renamed"})
    save(tmp_path, 3, [verdict(renamed)], cells=[renamed], dropped=[Dropped(cell=TWO.cell, name="two", why="over the budget")])
    cells = read(tmp_path).cells
    assert cells[ONE.cell].cell.name == "one, renamed" and cells[ONE.cell].planned == [0, 1, 2]
    assert (cells[TWO.cell].planned, cells[TWO.cell].absent) == ([0], {2: "dropped: over the budget"})


@pytest.mark.parametrize(("closed", "verdicts", "last"), [(False, [], 0), (True, [], 0), (True, None, 1)])
def test_the_last_judged_night_is_the_last_with_verdicts(tmp_path: Path, closed: bool, verdicts: list[object] | None, last: int) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2, verdicts, closed=closed)  # type: ignore[arg-type]
    assert only_track(tmp_path).last_judged == last


def test_a_definition_that_is_no_longer_there_is_known_as_such(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 1, name="regression")
    assert (read(tmp_path).known, read(tmp_path, name="regression").known) == (False, True)
