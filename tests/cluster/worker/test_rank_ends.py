"""How ranks end, as their supervisor sees it: those that are processes of their own, and those that were forked from it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from cluster.worker import ranks
from cluster.worker.forked_ranks import ForkedRank
from cluster.worker.ranks import Rank

Start = Callable[[str], Rank]
RUNS_ON = "exec cat"  # until its input ends


@pytest.fixture(params=["fresh", "forked"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts a rank's process, which runs a line of a shell, and returns once it does."""
    started: list[subprocess.Popen[bytes]] = []

    def rank(text: str) -> Rank:
        child = subprocess.Popen(["/bin/sh", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(child)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        return child if request.param == "fresh" else ForkedRank(child.pid, [])  # it has the pid alone, and waits for it itself

    yield rank
    for child in started:
        child.kill()
        child.communicate()


@pytest.mark.parametrize(
    ("end", "code"),
    [("exit 1", 1), ("exit 74", 74), ("kill -KILL $$", -9), ("kill -SEGV $$", -11)],
    ids=["fails", "disk full", "killed", "crashes"],
)
def test_a_rank_that_fails_is_told_by_its_status_and_the_others_are_ended(
    start: Start, end: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "GRACE_S", 60.0)  # on a busy machine it may take long to end
    children = [start(f"echo ready; {RUNS_ON}"), start(f"echo ready; {end}")]
    assert ranks._wait(children) == {1: code}
    ranks._end(children)
    assert [child.poll() for child in children] == [-15, code]


def test_ranks_that_all_end_well_leave_nothing_to_explain(start: Start) -> None:
    children = [start("echo ready"), start("echo ready; exit 0")]
    assert ranks._wait(children) == {}
    ranks._end(children)
    assert [child.poll() for child in children] == [0, 0]


def test_a_rank_that_is_stuck_is_killed_after_the_grace(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "GRACE_S", 0.0)
    stuck = start(f"trap '' TERM; echo ready; {RUNS_ON}")
    ranks._end([stuck])
    assert stuck.poll() == -9
