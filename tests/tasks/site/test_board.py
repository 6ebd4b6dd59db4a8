"""What the index says of a branch first."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from experiments.stats.verdict import Verdict
from tasks.nightly.store import NodeState
from tasks.site.board import Board, Stand, board_of
from tasks.site.state import cell_state
from tasks.site.words import Commits
from tests.tasks.site.site_support import ONE, TWO, alarm, commit, day, only_track, save, verdict


def board(root: Path, today: str) -> Board:
    track = only_track(root)
    stands = [Stand(track, cell, state) for cell in track.history.cells.values() if (state := cell_state(track, cell))]
    return board_of(track, stands, Commits(), date.fromisoformat(today))


def test_a_quiet_night_says_so_with_its_commit_and_controls(tmp_path: Path) -> None:
    save(tmp_path, 1, cells=[ONE, TWO], probes={"twin": Verdict.SAME, "injected": Verdict.SLOWER})
    found = board(tmp_path, day(3))
    assert (found.said, found.worse, found.counts, found.moved) == (f"None of 2 cells is worse on {day(1)}", False, [(2, "same")], [])
    assert [str(line) for line in found.lines] == [
        f"Commit <code>{commit(1)[:10]}</code>; A/A control same, slowed control slower",
        "There is no definition made-up any more: it was renamed or removed.",
    ]


def test_what_got_worse_is_before_what_got_better_and_newest_first(tmp_path: Path) -> None:
    save(tmp_path, 1, cells=[ONE, TWO])
    more = verdict(metric="peak_memory_bytes", said=Verdict.SLOWER, ratio=0.9, alarm_since=day(2))
    save(tmp_path, 2, [alarm(2), more, alarm(2, 1.1, of=TWO)], cells=[ONE, TWO])
    save(tmp_path, 3, [alarm(3, since=2), more.model_copy(update={"alarm_since": day(3)}), alarm(3, 1.1, of=TWO)], cells=[ONE, TWO])
    found = board(tmp_path, day(3))
    assert (found.said, found.worse) == (f"1 of 2 cells is worse on {day(3)}", True)
    assert [(row["name"], row["what"], row["since"]) for row in found.moved] == [
        ("one", "peak memory more", day(3)),
        ("one", "throughput slower", day(2)),
        ("two", "throughput faster", day(3)),
    ]
    assert found.moved[1]["commits"] == f"<code>{commit(1)[:10]}</code>..<code>{commit(2)[:10]}</code>" and found.more_moved == 0


def test_more_changes_than_the_table_holds_are_counted(tmp_path: Path) -> None:
    cells = [ONE.model_copy(update={"cell": f"id-{number}", "name": str(number)}) for number in range(45)]
    save(tmp_path, 1, [alarm(1, of=cell) for cell in cells], cells=cells)
    found = board(tmp_path, day(1))
    assert (len(found.moved), found.more_moved, found.said) == (40, 5, f"45 of 45 cells are worse on {day(1)}")


def test_later_nights_without_verdicts_an_old_night_and_nodes_are_said(tmp_path: Path) -> None:
    slow = NodeState(pool="cpu", host="node-1", verdict=Verdict.FASTER, ratio=1.042, low=1.03, high=1.05)
    unknown = NodeState(pool="cpu", host="node-2", verdict=Verdict.UNDECIDED)
    save(tmp_path, 1, nodes=[slow, unknown])
    save(tmp_path, 2, [])
    save(tmp_path, 3, [], closed=False)
    lines = [str(line) for line in board(tmp_path, day(6)).lines]
    assert lines[1:5] == [
        "Node node-1 (cpu) is 4.2 % faster",
        f"Night {day(2)} ended without verdicts.",
        f"Night {day(3)} is not judged yet: it runs, or was interrupted.",
        "The last night is 3 days old.",
    ]
    assert not [line for line in board(tmp_path, day(5)).lines if "old" in str(line)]


def test_a_night_without_verdicts_says_whether_they_begin_by_themselves(tmp_path: Path) -> None:
    """More nights bring none to a cell of which other work disturbs every trial."""
    new = [verdict(of=of, said=Verdict.UNDECIDED, ratio=None) for of in (ONE, TWO)]
    busy = [one.model_copy(update={"disturbed": "another process used 80 % of a core"}) for one in new]
    for number, verdicts, said in (
        (1, new, f"2 cells recorded on {day(1)}: verdicts begin once there are nights to compare with"),
        (2, [busy[0], new[1]], f"Not counted on {day(2)}: 1 of 2 cells, since other work disturbed every trial"),
        (3, busy, f"Not counted on {day(3)}: 2 cells, since other work disturbed every trial"),
    ):
        save(tmp_path, number, verdicts, cells=[ONE, TWO])
        assert board(tmp_path, day(number)).said == said


def test_before_a_night_was_judged_there_is_nothing_to_count(tmp_path: Path) -> None:
    save(tmp_path, 1, [], closed=False)
    found = board(tmp_path, day(1))
    assert (found.said, found.counts, found.moved) == ("No night was judged yet", [], [])
    assert "is not judged yet" in str(found.lines[0])
