"""Which trial goes when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.trial import DataSource, Trial
from flows.runtime import schedule
from flows.runtime.schedule import make_datasets, run_trials
from tests.tasks.plan_support import make_plan, make_trial


@dataclass
class Pools:
    """In place of a session, of Prefect's task and of the queue that hears of ends. Places and needs are by pool and by trial's number.

    A trial ends, the first begun first, when the scheduler waits; `on_wait` is called before.
    """

    trials: list[Trial]
    free: dict[str, int]
    needs: dict[int, int] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    begun: list[int] = field(default_factory=list)
    at_work: list[tuple[Trial, Callable[[Any], None]]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    ended: list[Trial] = field(default_factory=list)
    on_wait: Callable[[Pools], object] = lambda pools: None
    waits: int = 0
    late: set[int] = field(default_factory=set)  # for which there is no time
    nodes: dict[str, str] = field(default_factory=dict)  # of pools that share theirs
    down: set[str] = field(default_factory=set)  # pools that a trial which has begun waits for, without slots

    def in_time(self, trial: Trial) -> bool:
        return int(trial.key, 16) not in self.late

    def to_do(self) -> list[Trial]:
        return self.trials

    @property
    def pools(self) -> dict[str, Any]:
        return {
            name: SimpleNamespace(name=name, slots=SimpleNamespace(total=total, **self.slots(name))) for name, total in self.free.items()
        }

    def slots(self, pool: str) -> dict[str, Any]:
        is_down = pool in self.down and any(trial.pool == pool for trial, _ in self.at_work)
        taken_by = (lambda trial: 0) if is_down else self.needed
        return {"nodes": self.nodes.get(pool, pool), "needed": self.needed, "taken_by": taken_by, "pool_is_down": is_down}

    def needed(self, trial: Trial) -> int:
        return self.needs.get(int(trial.key, 16), 1)

    def submit(self, pool: Any, trial: Any, name: str) -> Any:
        trial = trial.unquote()
        assert (pool.unquote().name, name) == (trial.pool, trial.name)
        self.begun.append(int(trial.key, 16))
        busy = sum(self.needed(other) for other, _ in self.at_work if other.pool == trial.pool)
        assert busy + self.needed(trial) <= self.free[trial.pool]
        return SimpleNamespace(add_done_callback=lambda call: self.at_work.append((trial, call)))

    def queue(self) -> Any:
        return SimpleNamespace(put=self.ended.append, get=self._get)

    def _get(self, timeout: float) -> Trial:
        self.waits += 1
        assert self.waits < 100, "it waits for ever"
        self.log.append(" ".join(str(int(trial.key, 16)) for trial, _ in self.at_work))
        self.on_wait(self)
        if not self.at_work:
            raise Empty
        trial, call = self.at_work.pop(0)
        call(None)
        assert self.ended.pop() is trial
        return trial


def scheduled(monkeypatch: pytest.MonkeyPatch, pools: Pools, *, in_turns: bool = False) -> list[str]:
    """The trials at work each time the scheduler waits for one to end."""
    monkeypatch.setattr(schedule, "queue", SimpleNamespace(SimpleQueue=pools.queue, Empty=Empty))
    monkeypatch.setattr(schedule, "run_trial", pools)
    run_trials(pools, in_turns=in_turns)  # type: ignore[arg-type]
    assert pools.at_work == []
    return pools.log


def trials(*pools: str) -> list[Trial]:
    return [make_trial(number, pool=pool) for number, pool in enumerate(pools, 1)]


def test_one_slot_takes_one_trial_at_a_time_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scheduled(monkeypatch, Pools(trials("a", "a", "a"), {"a": 1})) == ["1", "2", "3"]


def test_as_many_at_once_as_there_are_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scheduled(monkeypatch, Pools(trials(*"aaaa"), {"a": 2})) == ["1 2", "2 3", "3 4", "4"]


def test_in_turns_one_runs_at_a_time_whatever_slots_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scheduled(monkeypatch, Pools(trials(*"aab"), {"a": 4, "b": 4}), in_turns=True) == ["1", "2", "3"]


def test_pools_work_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scheduled(monkeypatch, Pools(trials(*"aabb"), {"a": 1, "b": 1})) == ["1 3", "3 2", "2 4", "4"]


def test_a_wide_trial_waits_for_its_slots_and_is_not_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scheduled(monkeypatch, Pools(trials(*"aaaa"), {"a": 2}, needs={2: 2})) == ["1", "2", "3 4", "4"]


def test_a_trial_without_time_is_not_begun_and_holds_up_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = Pools(trials(*"aaa"), {"a": 1}, late={1, 3})
    assert scheduled(monkeypatch, pools) == ["2"] and pools.begun == [2]


def test_nothing_to_do_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scheduled(monkeypatch, Pools([], {})) == []


def test_a_stop_starts_nothing_more_and_waits_for_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = Pools(trials(*"aaaa"), {"a": 2}, on_wait=lambda pools: pools.stop.set())
    assert scheduled(monkeypatch, pools) == ["1 2", "2"]
    assert pools.begun == [1, 2]


def test_a_sweep_that_is_stopped_already_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = Pools(trials("a"), {"a": 1})
    pools.stop.set()
    assert scheduled(monkeypatch, pools) == [] and pools.begun == []


def test_while_nothing_ends_it_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []

    def nothing_yet(pools: Pools) -> None:
        if pools.waits <= 2:
            held.extend(pools.at_work)
            pools.at_work.clear()
        elif held:
            pools.at_work.extend(held)
            held.clear()

    assert scheduled(monkeypatch, Pools(trials("a", "a"), {"a": 1}, on_wait=nothing_yet)) == ["1", "", "", "2"]


def test_each_data_set_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, str]] = []
    sources = [DataSource(uri="a", fingerprint="1"), None, DataSource(uri="b", fingerprint="2"), DataSource(uri="a", fingerprint="1")]
    plan = make_plan([make_trial(number, data=source) for number, source in enumerate(sources, 1)])
    session: Any = SimpleNamespace(plan=plan, progress=SimpleNamespace(note="before"))
    monkeypatch.setattr(schedule, "make_dataset", lambda trial: drawn.append((trial.value.parameters["number"], session.progress.note)))
    make_datasets(session)
    assert drawn == [(4, "making the data set"), (3, "making the data set")]
    assert session.progress.note == ""


def test_pools_that_are_the_same_nodes_take_turns_in_the_order_of_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = Pools(trials("cpu", "local", "local", "cpu", "far"), {"cpu": 1, "local": 1, "far": 1}, nodes={"cpu": "here", "local": "here"})
    assert scheduled(monkeypatch, pools) == ["1 5", "5 2", "2", "3", "4"]
    assert pools.begun == [1, 5, 2, 3, 4]


def test_nodes_have_as_many_slots_as_the_pool_of_them_that_uses_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whichever order the sweep names the pools."""
    wide = {"one": 1, "two": 2, "few": 1}
    pools = Pools(trials("one", "two", "one", "two"), wide, nodes=dict.fromkeys(wide, "far"))
    assert scheduled(monkeypatch, pools) == ["1 2", "2 3", "3 4", "4"]
    pools = Pools(trials("two", "one", "few"), wide, nodes=dict.fromkeys(wide, "far"))
    assert scheduled(monkeypatch, pools) == ["1 2", "2 3", "3"]


HERE = {"cpu": "here", "local": "here"}


def test_a_pool_that_is_down_keeps_no_other_of_its_nodes_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first trial waits for it, and none of its others begins; the nodes are taken by who can use them."""

    def back(pools: Pools) -> None:
        if pools.log[-1] == "1 4":  # the cpu's first has ended, its second begun
            pools.down.clear()
        if pools.at_work[0][0].pool in pools.down:
            pools.at_work.append(pools.at_work.pop(0))  # what waits does not end

    pools = Pools(trials("local", "local", "cpu", "cpu", "cpu"), {"cpu": 1, "local": 1}, nodes=HERE, down={"local"}, on_wait=back)
    assert scheduled(monkeypatch, pools) == ["1 3", "1 4", "4", "2", "5"]
    assert pools.begun == [1, 3, 4, 2, 5], "once it is back the order is the sweep's"


def test_a_pool_that_stays_down_ends_its_trials_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = Pools(trials("local", "local", "cpu"), {"cpu": 1, "local": 1}, nodes=HERE, down={"local"})
    assert scheduled(monkeypatch, pools) == ["1 3", "3", "2"] and pools.begun == [1, 3, 2]
