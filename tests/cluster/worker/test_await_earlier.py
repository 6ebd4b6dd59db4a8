"""A trial's process begins only once no earlier attempt writes into its folder: who waits, who does not, and what is told of it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.journal import earlier_attempt
from cluster.journal.errors import JournalInUse
from cluster.journal.writer_lock import WriterLock
from cluster.worker import leftovers, ray_train
from cluster.worker import main as worker
from tests.contracts import make_trial

KEY = "ea51000000000001"


class Held:
    """A journal whose lock is held, as by a process of an earlier attempt."""

    def __init__(self, path: Path) -> None:
        path.touch()
        with open(path, "r+b") as file:
            self._lock = WriterLock(file.fileno())
        assert self._lock.hold(0.0)

    def release(self) -> list[str]:
        self._lock.release()
        return ["ended process 7"]


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    monkeypatch.setattr(earlier_attempt, "writer_ended", lambda path, _, ended=earlier_attempt.writer_ended: ended(path, 0.0))
    made = Held(tmp_path / "journal.jsonl")
    yield made
    made.release()


def options(folder: Path, **changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"out": folder, "attempt": 2, "store": None, "placement": None, "probe": None, **changes})


@pytest.fixture
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The notes with which Ray Train was called."""
    calls: list[list[str]] = []
    monkeypatch.setattr(ray_train, "fit", lambda trial, options, notes: calls.append(list(notes)))
    monkeypatch.delenv("RANK", raising=False)
    return calls


def run(folder: Path, **changes: Any) -> None:
    worker._run(make_trial(folder, KEY), options(folder, **changes))


def test_a_trial_that_meets_an_earlier_attempt_gives_up_before_anything_is_set_up(
    tmp_path: Path, held: Held, fitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "end", list)
    with pytest.raises(JournalInUse, match=r"journal\.jsonl: another process or a child of it still writes there after 30 s"):
        run(tmp_path)
    assert fitted == []


def test_what_an_earlier_attempt_left_on_this_node_is_ended_and_told(
    tmp_path: Path, held: Held, fitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "end", held.release)
    run(tmp_path)
    assert fitted == [["ended process 7"]], "nobody was waited for"


def test_a_trial_whose_folder_nobody_writes_ends_nothing_and_tells_nothing(
    tmp_path: Path, held: Held, fitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    held.release()
    monkeypatch.setattr(leftovers, "end", lambda: pytest.fail("nothing is to be ended"))
    run(tmp_path)
    assert fitted == [[]]


@pytest.mark.parametrize("changes", [{"store": "s3://bucket/trial"}, {"placement": "{}"}], ids=["storage", "workers of their own"])
def test_who_writes_no_journal_there_does_not_wait(tmp_path: Path, held: Held, fitted: list[list[str]], changes: dict[str, str]) -> None:
    run(tmp_path, **changes)
    assert fitted == [[]]


def test_a_rank_of_several_leaves_it_to_their_supervisor(
    tmp_path: Path, held: Held, fitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "RANK", "1")
    run(tmp_path)
    assert fitted == [[]]
