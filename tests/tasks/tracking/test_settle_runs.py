"""Which runs of a sweep are ended, and as what: decided on made-up runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from experiments.trial import Outcome
from tasks.sweep.store import Superseded
from tasks.tracking.finish_sweep import is_complete, sweep_status
from tasks.tracking.runs import PUBLISHED, rank
from tasks.tracking.settle_runs import Settlement, latest_attempts, settlement_of

GONE = {"b": Superseded(key="b", by="a", why="code changed (1 -> 2)")}


def run(key: str = "a", attempt: int = 1, status: str = "RUNNING", **fields: Any) -> Any:
    tags = {"trial.key": key, "trial.attempt": str(attempt), **fields.pop("tags", {})}
    return SimpleNamespace(data=SimpleNamespace(tags=tags), info=SimpleNamespace(status=status, **fields))


@pytest.mark.parametrize(
    ("of", "settlement"),
    [
        (run("a", 1), Settlement("attempt 1 was followed by 10", "FAILED", discarded=True)),
        (run("a", 10), Settlement("its flow died", "KILLED")),
        (run("a", 1, "FINISHED"), None),
        (run("a", 10, "FAILED"), None),
        (run("b", 1), Settlement("superseded by a: code changed (1 -> 2)", "KILLED", delete=True)),
        (run("b", 1, "FINISHED"), Settlement("superseded by a: code changed (1 -> 2)", None, delete=True)),
    ],
)
def test_what_becomes_of_a_run(of: Any, settlement: Settlement | None) -> None:
    assert settlement_of(of, {"a": 10, "b": 1}, GONE, "its flow died") == settlement


def test_the_last_attempt_is_the_highest_number_and_not_the_last_text() -> None:
    assert latest_attempts([run("a", 2), run("a", 10), run("a", 9), run("b", 1)]) == {"a": 10, "b": 1}


def test_of_several_runs_for_one_thing_a_whole_one_stays_then_an_ended_one_then_the_first() -> None:
    whole = run(status="RUNNING", start_time=9, run_id="d", tags={PUBLISHED: "x"})
    ended = run(status="FAILED", start_time=8, run_id="c")
    first, second = run(start_time=1, run_id="z"), run(start_time=2, run_id="a")
    twin = run(start_time=2, run_id="b")
    assert sorted([twin, second, first, ended, whole], key=rank) == [whole, ended, first, second, twin]


@pytest.mark.parametrize(
    ("states", "status", "complete"),
    [
        ([Outcome.OK, Outcome.DOES_NOT_FIT, Outcome.UNSUPPORTED], "FINISHED", True),
        ([Outcome.OK, Outcome.CRASHED], "FAILED", True),
        ([Outcome.OK, Outcome.INFRA], "FAILED", True),
        ([Outcome.OK, Outcome.CANCELLED], "KILLED", False),
        ([Outcome.CRASHED, None], "KILLED", False),
        ([], "FINISHED", True),
    ],
)
def test_how_a_sweep_ended(states: list[Outcome | None], status: str, complete: bool) -> None:
    found = {str(number): outcome for number, outcome in enumerate(states)}
    assert (sweep_status(found), is_complete(found)) == (status, complete)
