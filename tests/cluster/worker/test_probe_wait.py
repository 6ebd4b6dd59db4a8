"""How long a probe of the largest batch is waited for, in virtual time."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from cluster.worker import max_batch
from cluster.worker.max_batch import PROBE_POLL_S, PROBE_TIMEOUT_S, Answer


class Child:
    """A probe that answers at these times, s, and ends with status 7 at `ends`, if at all. It stands for a Popen."""

    def __init__(self, answers_at: list[float], ends: float | None = None) -> None:
        self.answers_at, self.ends, self.now = answers_at, ends, 0.0
        self.received: dict[int, Answer] = {}

    def wait(self, timeout: float) -> int:
        if self.ends is not None and self.ends <= self.now + timeout:
            self.now = max(self.now, self.ends)
            return 7
        assert self.now < 10_000, "it is waited for without end"
        self.now += timeout
        raise subprocess.TimeoutExpired("probe", timeout)

    def listen(self) -> None:
        self.received |= {size: Answer(True) for size, at in enumerate(self.answers_at, 1) if at <= self.now}


def waited(monkeypatch: pytest.MonkeyPatch, child: Child) -> int:
    monkeypatch.setattr(max_batch, "time", SimpleNamespace(monotonic=lambda: child.now))
    return max_batch._wait(child, child.received, child.listen)  # type: ignore[arg-type]


def test_each_answer_gives_a_probe_the_whole_time_again(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child([800.0, 1600.0, 2400.0], ends=3200.0)
    assert PROBE_TIMEOUT_S == 900 and waited(monkeypatch, child) == 7
    assert (child.now, sorted(child.received)) == (3200.0, [1, 2, 3])


@pytest.mark.parametrize("answers_at", [[], [800.0], [800.0, 1600.0]])
def test_a_probe_that_answers_no_more_is_given_up_once_the_time_is_over(monkeypatch: pytest.MonkeyPatch, answers_at: list[float]) -> None:
    child = Child(answers_at)
    with pytest.raises(subprocess.TimeoutExpired):
        waited(monkeypatch, child)
    assert child.now == max(answers_at, default=0.0) + PROBE_TIMEOUT_S + PROBE_POLL_S


def test_answers_that_were_known_before_give_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child([])
    child.received |= {1: Answer(True), 8: Answer(True)}
    with pytest.raises(subprocess.TimeoutExpired):
        waited(monkeypatch, child)
    assert child.now == PROBE_TIMEOUT_S + PROBE_POLL_S
