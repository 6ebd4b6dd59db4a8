"""One trial on its pool: its slots, its files, its end."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import launchers
from cluster.journal.errors import JournalError
from cluster.launchers import Launch
from cluster.pools.node_locks import NodeLocks
from cluster.pools.pool import load_pools
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep import pool_trials
from tasks.sweep.failure_policy import Policy
from tasks.sweep.pool_slots import PoolSlots
from tasks.sweep.pool_trials import PoolTrials
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.slot_log import SlotLog, read_holds
from tasks.sweep.slot_waits import SlotWaits
from tasks.sweep.store import SweepStore
from tasks.sweep.sweep_stop import SweepStop
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved

LOG = logging.getLogger("trial")
PARTS: list[Any] = []  # what the last runner was made with
BEGUN: list[Any] = []  # what each runner was given to go on with


class Events:
    """Notes what it is told, by name and trial number."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def waiting(self, trial: Trial, reason: str, others: Sequence[str] = ()) -> None:
        self.told.append(("waiting", int(trial.key, 16), reason, others))

    def started(self, trial: Trial) -> None:
        self.told.append(("started", int(trial.key, 16)))

    def observed(self, trial: Trial, attempt: int, records: Any, log: Any) -> None:
        self.told.append(("observed", int(trial.key, 16), log))

    def finished(self, trial: Trial, result: TrialResult, log: Any) -> None:
        self.told.append(("finished", int(trial.key, 16), result.outcome))

    def damaged(self, trial: Trial, result: TrialResult, log: Any) -> None:
        self.told.append(("damaged", int(trial.key, 16), result.outcome, result.reason))


class Launcher:
    """Keeps results: notes how many files of the trial there were."""

    def __init__(self) -> None:
        self.kept: list[list[str]] = []

    def keep(self, launch: Launch, folder: Path) -> None:
        self.kept.append(sorted(path.name for path in folder.iterdir()))


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., PoolTrials]:
    """Makes the pool's trials with a runner that does `body`."""

    def make(store: SweepStore, trial: Trial, body: Callable[[Trial], TrialResult]) -> PoolTrials:
        class Runner:
            def __init__(self, *arguments: Any) -> None:
                PARTS[:] = arguments

            def run(self, trial: Trial, begun: Any = None) -> TrialResult:
                BEGUN.append(begun)
                return body(trial)

        def write_steps(folder: Path) -> Path:
            (folder / "steps.parquet").touch()
            return folder / "steps.parquet"

        BEGUN.clear()
        monkeypatch.setattr(pool_trials, "TrialRunner", Runner)
        slots = PoolSlots(load_pools()["cpu"], [trial])
        watch, stop, events = PoolWatch("cpu", 0.0), SweepStop(store), Events()
        launcher: Any = Launcher()
        return PoolTrials(store, slots, launcher, Policy(), watch, stop, events, write_steps, SlotLog(store.dir / "slots.jsonl"))

    return make


def test_a_trial_holds_its_slots_while_it_runs_and_no_longer(cpu: Callable[..., PoolTrials]) -> None:
    trial, named = make_trial(1), list[list[str]]()
    pool = load_pools()["cpu"]

    def body(trial: Trial) -> TrialResult:
        stop = threading.Event()
        busy = list[bool]()
        with (waiting := NodeLocks(pool, 1, 1, stop, lambda: (busy.append(True), stop.set())[1])):
            assert busy == [True]
        named.append(waiting.others)
        assert trials.events.told == [("started", 1)]  # type: ignore[attr-defined]
        return make_result(trial)

    trials = cpu(saved(make_plan([trial])), trial, body)
    assert trials.run(trial, LOG).outcome is Outcome.OK
    assert named == [[f"sweep {trial.sweep_id}"]], "who waits learns whose trial it is"
    with NodeLocks(pool, 1, 1, threading.Event(), lambda: pytest.fail("it still holds its slot")):
        pass
    [hold] = read_holds(trials.store.dir / "slots.jsonl")
    assert (hold.trial, hold.pool, len(hold.slots)) == (trial.key, "cpu", 1)
    assert hold.given_back is not None and hold.asked <= hold.taken <= hold.given_back


def test_waiting_for_another_sweeps_slots_is_told_and_timed(cpu: Callable[..., PoolTrials]) -> None:
    trial = make_trial(1)
    trials = cpu(saved(make_plan([trial])), trial, make_result)
    other = NodeLocks(load_pools()["cpu"], 1, 1, threading.Event(), holder="sweep another")
    assert other.take()
    told: list[Any] = trials.events.told  # type: ignore[attr-defined]

    log: list[str] = []

    class Looks(SlotWaits):
        def waits(self, key: str, others: Any) -> None:
            super().waits(key, others)
            log.append(f"{key} waits")
            other.give_back()

        def runs(self, key: str) -> None:
            super().runs(key)
            log.append(f"{key} runs")

        def over(self, key: str) -> None:
            super().over(key)
            log.append(f"{key} over")

    trials = replace(trials, waits=Looks())
    assert trials.run(trial, LOG).outcome is Outcome.OK
    assert told[:2] == [("waiting", 1, "pool in use", ["sweep another"]), ("started", 1)]
    assert log == [f"{trial.key} waits", f"{trial.key} runs", f"{trial.key} over"]
    assert trials.waits.holders == {"sweep another"}
    waited = trials.waits.seconds
    assert waited > 0.0 and trials.waits.seconds == waited, "it is over"


@pytest.mark.parametrize("journal", [True, False])
def test_what_is_kept_on_the_pool_has_the_steps_of_a_trial_that_began(cpu: Callable[..., PoolTrials], journal: bool) -> None:
    trial = make_trial(1)
    store = saved(make_plan([trial]))
    folder = store.trial_dir(trial.key)
    launchers.save(Launch(launcher="local", key=trial.key, attempt=1, id="1"), folder)
    if journal:
        (folder / "journal.jsonl").touch()
    trials = cpu(store, trial, make_result)
    trials.run(trial, LOG)
    assert ("steps.parquet" in trials.launcher.kept[0]) == journal  # type: ignore[attr-defined]
    assert trials.events.told == [("started", 1), ("finished", 1, Outcome.OK)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("measured", [True, False])
def test_what_was_measured_is_kept_also_where_the_attempt_after_it_could_not_be_started(
    cpu: Callable[..., PoolTrials], measured: bool
) -> None:
    """A disturbed measurement, say, that was to be measured again. Where nothing was, there is nothing of it on the storage."""
    trial = make_trial(1)
    store = saved(make_plan([trial]))
    launchers.save(Launch(launcher="ray_job", key=trial.key, attempt=2, id="2", starting=True), store.trial_dir(trial.key))
    if measured:
        (store.trial_dir(trial.key) / "journal.jsonl").touch()
    trials = cpu(store, trial, make_result)
    trials.run(trial, LOG)
    assert ["steps.parquet" in names for names in trials.launcher.kept] == [True] * measured  # type: ignore[attr-defined]


def test_a_trial_that_was_never_started_has_nothing_to_keep(cpu: Callable[..., PoolTrials]) -> None:
    trial = make_trial(1)
    trials = cpu(saved(make_plan([trial])), trial, lambda trial: make_result(trial, Outcome.CANCELLED))
    trials.run(trial, LOG)
    assert trials.launcher.kept == []  # type: ignore[attr-defined]
    assert trials.events.told[-1] == ("finished", 1, Outcome.CANCELLED)  # type: ignore[attr-defined]


def test_a_journal_that_others_changed_is_an_infra_result_that_nobody_publishes(cpu: Callable[..., PoolTrials]) -> None:
    trial = make_trial(1, emulated=True)
    store = saved(make_plan([trial]))
    error = JournalError(Path("journal.jsonl"), 3, "checksum is x")

    def body(trial: Trial) -> TrialResult:
        raise error

    trials = cpu(store, trial, body)
    result = trials.run(trial, LOG)
    assert (result.outcome, result.reason, result.emulated, result.attempt) == (Outcome.INFRA, str(error), True, 1)
    assert result.started_at == result.finished_at
    assert trials.events.told == [("started", 1), ("damaged", 1, Outcome.INFRA, str(error))]  # type: ignore[attr-defined]
    assert store.result(trial.key) is None


def test_a_trial_that_began_before_its_flow_is_run_with_the_slots_and_the_attempt_it_has(cpu: Callable[..., PoolTrials]) -> None:
    trial, other = make_trial(1), make_trial(2)
    pool, asked = load_pools()["cpu"], list[Trial]()
    slots = NodeLocks(pool, 1, 1, threading.Event(), lambda: pytest.fail("it holds its slot"))
    assert slots.take()

    class Head:
        def take_over(self, trial: Trial) -> Any:
            asked.append(trial)
            return SimpleNamespace(slots=slots, attempt="its attempt") if len(asked) == 1 else None

    trials = cpu(saved(make_plan([trial, other])), trial, make_result)
    head: Any = Head()
    trials = replace(trials, head_start=head)
    assert trials.run(trial, LOG).outcome is Outcome.OK
    assert trials.run(other, LOG).outcome is Outcome.OK  # the slot is free again
    assert asked == [trial, other] and BEGUN == ["its attempt", None]


@pytest.mark.parametrize(
    ("number", "kind", "remedy"),
    [
        (errno.ENOSPC, "disk_full", "free some"),
        (errno.EROFS, "disk_lost", "mount it for writing; the kernel's log (dmesg) says what happened to it"),
    ],
)
def test_a_disk_under_the_sweep_that_cannot_be_written_is_told_and_stops_it(
    cpu: Callable[..., PoolTrials], number: int, kind: str, remedy: str
) -> None:
    trial = make_trial(1)
    store = saved(make_plan([trial]))

    def body(trial: Trial) -> TrialResult:
        raise OSError(number, os.strerror(number), str(store.trial_dir(trial.key) / "launch.json"))

    trials = cpu(store, trial, body)
    result = trials.run(trial, LOG)
    said = f"{kind}: the sweep's folder {store.dir} cannot be written ({os.strerror(number)}); {remedy}"
    assert (result.outcome, result.reason) == (Outcome.INFRA, said)
    assert trials.events.told == [("started", 1), ("damaged", 1, Outcome.INFRA, said)]  # type: ignore[attr-defined]
    assert trials.stop.is_set() and store.stop_reason() is None, "nothing could be written"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "disk_full: [Errno 28] No space left on device: '/elsewhere/code'; free some"),
        (errno.EIO, "data_lost: [Errno 5] Input/output error: '/elsewhere/code'; it is not in the trial's own folder; check its disk"),
    ],
)
def test_a_disk_other_than_the_sweeps_is_not_taken_for_it(cpu: Callable[..., PoolTrials], number: int, said: str) -> None:
    trial = make_trial(1)

    def body(trial: Trial) -> TrialResult:
        raise OSError(number, os.strerror(number), "/elsewhere/code")

    trials = cpu(saved(make_plan([trial])), trial, body)
    result = trials.run(trial, LOG)
    assert result.outcome is Outcome.INFRA and result.reason is not None and result.reason.startswith(said), result.reason
    assert trials.stop.is_set()


def test_a_full_disk_that_is_not_named_is_the_sweeps(cpu: Callable[..., PoolTrials]) -> None:
    trial = make_trial(1)
    store = saved(make_plan([trial]))

    def body(trial: Trial) -> TrialResult:
        raise OSError(errno.ENOSPC, "No space left on device")

    said = f"disk_full: the sweep's folder {store.dir} cannot be written (No space left on device); free some"
    assert cpu(store, trial, body).run(trial, LOG).reason == said


def test_another_error_of_files_is_raised(cpu: Callable[..., PoolTrials]) -> None:
    trial = make_trial(1)

    def body(trial: Trial) -> TrialResult:
        raise OSError(errno.EACCES, "Permission denied")

    with pytest.raises(OSError, match="Permission denied"):
        cpu(saved(make_plan([trial])), trial, body).run(trial, LOG)


def test_first_trials_that_fail_alike_stop_the_sweep(cpu: Callable[..., PoolTrials]) -> None:
    trials = [make_trial(number) for number in (1, 2, 3)]
    pool = cpu(saved(make_plan(trials)), trials[0], lambda trial: make_result(trial, Outcome.CRASHED))
    for trial in trials[:2]:
        pool.run(trial, LOG)
    assert not pool.stop.is_set()
    pool.run(trials[2], LOG)
    assert pool.stop.is_set() and pool.store.stop_reason() == pool.failures.why
    assert str(pool.failures.why).startswith("stopped: the first 3 trials, of 3 cells, all ended as crashed (")


def test_a_trial_that_waits_for_its_pool_keeps_no_other_off_its_nodes(cpu: Callable[..., PoolTrials]) -> None:
    trial, pool = make_trial(1), load_pools()["cpu"]
    seen = list[Any]()

    def slot_is_free() -> bool:
        probe = NodeLocks(pool, 1, 1, threading.Event())
        free = bool(probe.take())
        probe.give_back()
        return free

    def body(trial: Trial) -> TrialResult:
        started, without = PARTS[-3:-1]
        started(trial.key, 1)
        for _ in range(3):
            seen.append((slot_is_free(), trials.slots.pool_is_down, trials.slots.taken_by(trial)))
            with without():
                seen.append((slot_is_free(), trials.slots.pool_is_down, trials.slots.taken_by(trial)))
        started(trial.key, 1)
        seen.append(slot_is_free())
        return make_result(trial)

    trials = cpu(saved(make_plan([trial])), trial, body)
    assert trials.run(trial, LOG).outcome is Outcome.OK
    assert seen == [(False, False, 1), (True, True, 0)] * 3 + [False] and slot_is_free()
    assert trials.events.told == [("started", 1)] * 4 + [("finished", 1, Outcome.OK)]  # type: ignore[attr-defined]
    [hold] = read_holds(trials.store.dir / "slots.jsonl")
    assert [attempt for _, attempt in hold.starts] == [1], "what the pool refused was no hold"
    assert len((trials.store.dir / "slots.jsonl").read_text().splitlines()) == 6, "an outage is two lines"


def test_who_has_taken_the_nodes_meanwhile_is_waited_for(cpu: Callable[..., PoolTrials]) -> None:
    trial = make_trial(1)
    other = NodeLocks(load_pools()["cpu"], 1, 1, threading.Event(), holder="sweep another")
    log = list[str]()

    class Looks(SlotWaits):
        def waits(self, key: str, others: Any) -> None:
            super().waits(key, others)
            log.append("waits")
            other.give_back()

        def runs(self, key: str) -> None:
            super().runs(key)
            log.append("runs")

        def over(self, key: str) -> None:
            super().over(key)
            log.append("over")

    def body(trial: Trial) -> TrialResult:
        with PARTS[-2]():
            assert other.take()
        return make_result(trial)

    trials = replace(cpu(saved(make_plan([trial])), trial, body), waits=Looks())
    assert trials.run(trial, LOG).outcome is Outcome.OK
    assert log == ["runs", "over", "waits", "runs", "over"] and trials.waits.holders == {"sweep another"}
    assert trials.events.told[1] == ("waiting", 1, "pool in use", ["sweep another"])  # type: ignore[attr-defined]


def test_a_stop_while_the_pool_is_down_takes_no_slots(cpu: Callable[..., PoolTrials]) -> None:
    trial = make_trial(1)
    other = NodeLocks(load_pools()["cpu"], 1, 1, threading.Event())

    def body(trial: Trial) -> TrialResult:
        with PARTS[-2]():
            assert other.take()
            trials.stop.event.set()
        return make_result(trial, Outcome.CANCELLED)

    trials = cpu(saved(make_plan([trial])), trial, body)
    assert trials.run(trial, LOG).outcome is Outcome.CANCELLED, "it does not wait for the other"
    assert read_holds(trials.store.dir / "slots.jsonl") == []
    last = (trials.store.dir / "slots.jsonl").read_text().splitlines()[-1]
    assert '"withdrawn"' in last and '"asked_in_vain": 0' in last
    other.give_back()


def test_a_trial_that_cannot_be_told_of_gives_its_slots_back(cpu: Callable[..., PoolTrials]) -> None:
    trial = make_trial(1)
    trials = cpu(saved(make_plan([trial])), trial, lambda trial: pytest.fail("it did not begin"))

    def broken(trial: Trial) -> None:
        raise RuntimeError("no table")

    trials.events.started = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="no table") as kept:  # whose traceback keeps the locks
        trials.run(trial, LOG)
    with NodeLocks(load_pools()["cpu"], 1, 1, threading.Event(), lambda: pytest.fail("it still holds its slot")):
        pass
    [hold] = read_holds(trials.store.dir / "slots.jsonl")
    assert hold.given_back is not None and kept.value.args == ("no table",)
