"""What of an attempt counts that ended badly after its window: see cluster/journal/after_window.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.journal import after_window
from cluster.journal.after_window import TO_COME, complete_measured
from cluster.journal.journal import JournalWriter, read_journal
from experiments.trial import Outcome
from tests.measured_support import KEY, write_measured


@pytest.mark.parametrize("end", [None, Outcome.CANCELLED])
@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.INFRA, Outcome.DOES_NOT_FIT, Outcome.DIVERGED, Outcome.HANG])
def test_what_was_measured_before_the_traces_counts_and_the_journal_is_whole(tmp_path: Path, outcome: Outcome, end: Outcome | None) -> None:
    path = tmp_path / "journal.jsonl"
    write_measured(path, end=end)
    assert complete_measured(path, 1, KEY, outcome, "rank 1: gone,\n for ever")
    journal = read_journal(path, 1, KEY)
    assert journal.mark is not None and journal.mark.closed and journal.trial == KEY
    assert [(step["step"], step["t"], step["measured"]) for step in journal.steps] == [
        (1, 101.0, False),
        (2, 102.0, False),
        (3, 103.0, True),
        (4, 104.0, True),
    ]
    assert journal.window is not None and journal.window["samples"] == 8 and "traces" not in journal.window
    assert [note["text"] for note in journal.notes] == [
        "something",
        "no steps were traced: the trial ended in its traces, after all else was measured: rank 1: gone, for ever",
    ]
    assert journal.end is not None and (journal.end["outcome"], journal.end["reason"]) == ("ok", None)


def test_what_ends_a_trial_after_its_last_record_of_the_window_is_not_said_of_its_traces(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_measured(path, traces_to_come=False)
    assert complete_measured(path, 1, KEY, Outcome.INFRA, "worker_lost: rank 1 was killed by SIGKILL")
    assert read_journal(path, 1, KEY).notes[-1]["text"] == (
        "the trial ended after all else was measured: worker_lost: rank 1 was killed by SIGKILL"
    )


def test_a_journal_that_its_writer_closed_as_ok_is_not_written_again(tmp_path: Path) -> None:
    """Rank 0 had ended; another rank or the supervisor was killed then."""
    path = tmp_path / "journal.jsonl"
    write_measured(path, traces_to_come=False, end=Outcome.OK)
    before = path.read_bytes()
    assert complete_measured(path, 1, KEY, Outcome.INFRA, "worker lost: gone") and path.read_bytes() == before


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.CANCELLED])
def test_a_trial_that_was_told_to_end_stays_cancelled(tmp_path: Path, outcome: Outcome) -> None:
    path = tmp_path / "journal.jsonl"
    write_measured(path)
    before = path.read_bytes()
    assert not complete_measured(path, 1, KEY, outcome, "told to end (SIGTERM)") and path.read_bytes() == before


@pytest.mark.parametrize(("window", "attempt"), [(False, 1), (True, 2)], ids=["in its window", "in another attempt"])
def test_a_trial_that_failed_before_its_window_was_recorded_stays_what_it_is(tmp_path: Path, window: bool, attempt: int) -> None:
    path = tmp_path / "journal.jsonl"
    write_measured(path, window=window)
    before = path.read_bytes()
    assert not complete_measured(path, attempt, KEY, Outcome.CRASHED, "a bug") and path.read_bytes() == before
    assert not complete_measured(tmp_path / "none.jsonl", 1, KEY, Outcome.CRASHED, "it has no journal")


def test_nobody_writes_into_a_journal_whose_writer_may_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(after_window, "ENDED_S", 0.0)
    path = tmp_path / "journal.jsonl"
    journal = JournalWriter(path, 1, trial=KEY)
    journal.append("window", wall_s=0.2, samples=8, **TO_COME)
    journal.flush()
    before = path.read_bytes()
    with pytest.raises(TimeoutError, match=rf"{path}: a process of the trial may still write into it, so nobody else may$"):
        complete_measured(path, 1, KEY, Outcome.INFRA, "gone")
    assert path.read_bytes() == before
    journal.close()
    assert complete_measured(path, 1, KEY, Outcome.INFRA, "gone")


def test_what_a_writer_adds_until_it_has_ended_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    journal = JournalWriter(path, 1, trial=KEY)
    journal.append("window", wall_s=0.2, samples=8, **TO_COME)
    journal.flush()

    def it_ends(*_: object) -> bool:
        journal.append("note", text="a last word")
        journal.close()
        return True

    monkeypatch.setattr(after_window, "writer_ended", it_ends)
    assert complete_measured(path, 1, KEY, Outcome.INFRA, "gone")
    assert [note["text"].partition(":")[0] for note in read_journal(path, 1, KEY).notes] == ["a last word", "no steps were traced"]


def test_on_a_file_system_without_locks_nobody_writes_into_a_journal_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(after_window, "writer_ended", lambda *_: None)
    write_measured(tmp_path / "journal.jsonl")
    with pytest.raises(TimeoutError, match="may still write into it"):
        complete_measured(tmp_path / "journal.jsonl", 1, KEY, Outcome.INFRA, "gone")
