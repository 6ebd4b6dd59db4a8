"""The first trial of a sweep before its flow: when it may begin, who holds what, and that it is ended or taken over, never both."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from filelock import FileLock, Timeout

from cluster import launchers
from cluster.launchers import Launch, LaunchError, Status, template
from cluster.launchers.local import LocalLauncher
from cluster.launchers.template import shared_templates, templates_of_launcher
from cluster.pools.node_locks import NodeLocks
from cluster.pools.pool import Pool, load_pools
from experiments.trial import Outcome, Trial
from tasks.sweep import head_start as module
from tasks.sweep.head_start import HeadStart, head_start, is_disturbed_by_a_start, template_ahead
from tasks.sweep.slot_log import read_holds
from tasks.sweep.store import Plan, Superseded, SweepStore
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved


@dataclass
class Fake:
    """In place of LocalLauncher: notes what it is told. `on_start` is called before a start succeeds."""

    calls: list[str] = field(default_factory=list)
    template: Any = None
    on_start: Callable[[Trial, Path], object] = lambda trial, folder: None

    def prepare(self, trial: Trial, folder: Path) -> Any:
        self.calls.append("prepare")
        return self.template

    free_number, starting, end_earlier = LocalLauncher.free_number, LocalLauncher.starting, lambda self, trial: None

    def start(self, trial: Trial, folder: Path, attempt: int) -> Launch:
        self.on_start(trial, folder)
        self.calls.append(f"start {int(trial.key, 16)} a{attempt}")
        return Launch(launcher="local", key=trial.key, attempt=attempt, id="1")

    def status(self, launch: Launch) -> Status:
        return Status(running=False)

    def stop(self, launch: Launch, grace_s: float = 5.0) -> None:
        self.calls.append("stop")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake()
    monkeypatch.setattr(module, "LocalLauncher", lambda pool: fake)
    return fake


def is_free() -> bool:
    """Whether the pool's one slot can be had."""
    stop = threading.Event()
    with NodeLocks(load_pools()["cpu"], 1, 1, stop, stop.set):
        return not stop.is_set()


def is_held(store: SweepStore, trial: Trial) -> bool:
    """Whether the trial would wait, as its process finds out."""
    try:
        with FileLock(store.trial_dir(trial.key) / ".hold").acquire(timeout=0):
            return False
    except Timeout:
        return True


def begun(head: HeadStart | None) -> HeadStart:
    assert head is not None
    assert head._tried.wait(60)
    return head


PLAN = make_plan([make_trial(1), make_trial(2)])


def test_the_first_trials_template_is_begun_ahead_and_shared_by_what_follows(launcher: Fake) -> None:
    with template_ahead(PLAN):
        assert launcher.calls == ["prepare"]
        shared, is_shared = templates_of_launcher()
        assert is_shared
        with shared_templates() as inner:  # a campaign's sweeps
            assert inner is shared
        assert templates_of_launcher() == (shared, True), "the outermost block ends them"
    assert template._shared is None


def test_no_template_is_begun_here_for_a_cluster(launcher: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = load_pools()["cpu"].model_copy(update={"address": "http://127.0.0.1:1"})
    monkeypatch.setattr(module, "find_pool", lambda pools, name: pool)
    with template_ahead(PLAN):
        assert launcher.calls == []


def test_the_first_trial_begins_and_is_taken_over_with_all_that_it_holds(launcher: Fake) -> None:
    store, trial = saved(PLAN), PLAN.trials[0]
    with head_start(store, PLAN) as made:
        head = begun(made)
        assert launcher.calls == ["prepare", "start 1 a1"]
        assert launchers.load(store.trial_dir(trial.key)) == Launch(launcher="local", key=trial.key, attempt=1, id="1")
        assert is_held(store, trial) and not is_free()
        assert head.settle(PLAN) == trial
        assert head.take_over(PLAN.trials[1]) is None and is_held(store, trial)
        taken = head.take_over(trial)
        assert taken is not None and (taken.attempt.launch.attempt, taken.attempt.started_here) == (1, True)
        assert not is_held(store, trial) and not is_free()  # it goes on; its slots are the flow's
        assert head.take_over(trial) is None and head.settle(PLAN) is None  # once
        with taken.slots:
            assert not is_free()
        assert is_free()
    (hold,) = read_holds(store.dir / "slots.jsonl")
    assert (hold.trial, hold.pool, [number for _, number in hold.starts], hold.given_back) == (trial.key, "cpu", [1], None)
    assert len(hold.slots) == 1 and hold.asked <= hold.taken <= hold.starts[0][0]  # the flow writes when it gives them back
    assert launcher.calls == ["prepare", "start 1 a1"] and store.result(trial.key) is None  # nobody ended it


def test_slots_are_handed_from_thread_to_thread(launcher: Fake) -> None:
    with head_start(saved(PLAN), PLAN) as made:
        head, seen = begun(made), list[bool]()

        def run() -> None:
            taken = head.take_over(PLAN.trials[0])
            assert taken is not None
            with taken.slots:
                seen.append(is_free())
            seen.append(is_free())

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert seen == [False, True]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("no Prefect")])
def test_what_no_flow_takes_over_is_ended_and_recorded(launcher: Fake, error: BaseException) -> None:
    store, trial = saved(PLAN), PLAN.trials[0]
    with pytest.raises(type(error)), head_start(store, PLAN) as made:
        begun(made)
        raise error
    assert launcher.calls == ["prepare", "start 1 a1", "stop", "close"]
    result = store.result(trial.key)
    assert result is not None and (result.outcome, result.attempt) == (Outcome.CANCELLED, 1)
    assert result.reason == "the sweep's flow did not begin"
    assert is_free() and not is_held(store, trial)
    (hold,) = read_holds(store.dir / "slots.jsonl")
    assert hold.given_back is not None and hold.given_back >= hold.starts[0][0]


def test_a_result_that_its_process_wrote_is_kept_when_it_is_ended(launcher: Fake) -> None:
    store, trial = saved(PLAN), PLAN.trials[0]
    with head_start(store, PLAN) as made:
        head = begun(made)
        store.save_result(make_result(trial))
        head.end("enough")
        assert head.settle(PLAN) is None and head.take_over(trial) is None
    result = store.result(trial.key)
    assert launcher.calls[-2:] == ["stop", "close"] and result is not None and result.outcome is Outcome.OK


def test_one_that_is_interrupted_while_it_is_started_is_ended_once_it_has_started(launcher: Fake) -> None:
    starting, go_on = threading.Event(), threading.Event()
    launcher.on_start = lambda trial, folder: (starting.set(), go_on.wait(60))
    store = saved(PLAN)
    with head_start(store, PLAN) as head:
        assert head is not None and starting.wait(60)
        ender = threading.Thread(target=head.end, args=("Ctrl-C",))
        ender.start()
        assert head._stop.wait(60)
        go_on.set()
        ender.join(60)
    assert launcher.calls == ["prepare", "start 1 a1", "stop", "close"]
    assert store.states(PLAN)[PLAN.trials[0].key] is Outcome.CANCELLED and is_free()


class CtrlC:
    """One Ctrl-C for the main thread while it waits for another thread inside the function `within`."""

    def __init__(self, within: Callable[..., object]) -> None:
        self.within, self.main, self.came = within, threading.get_ident(), threading.Event()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of SIGINT: of the signals that `press` sends, one interrupts."""
        if not self.came.is_set() and self._is_inside(frame):
            self.came.set()
            raise KeyboardInterrupt

    def press(self) -> None:
        """Called in another thread. Sends the signal until it has interrupted: one that comes just before a wait begins does not end it."""
        deadline = time.monotonic() + 60
        while not self.came.wait(0.001) and time.monotonic() < deadline:
            frame = sys._current_frames()[self.main]
            if self._is_inside(frame) and frame.f_code.co_filename == threading.__file__:
                signal.pthread_kill(self.main, signal.SIGINT)

    def _is_inside(self, frame: FrameType | None) -> bool:
        while frame is not None and frame.f_code is not self.within.__code__:
            frame = frame.f_back
        return frame is not None


@pytest.fixture
def ctrl_c() -> Iterator[CtrlC]:
    """Also where this process was started in the background, which ignores SIGINT."""
    one = CtrlC(HeadStart.settle)
    before = signal.signal(signal.SIGINT, one.handle)
    yield one
    signal.signal(signal.SIGINT, before)


def test_a_flow_interrupted_while_it_waits_for_the_start_still_waits_for_it_at_the_end(launcher: Fake, ctrl_c: CtrlC) -> None:
    """The template answers late, and what it was asked for comes then: it must be ended, under the slots that it holds."""
    asked, answer = threading.Event(), threading.Event()
    launcher.on_start = lambda trial, folder: (asked.set(), ctrl_c.press(), answer.wait(60))
    store = saved(PLAN)
    with head_start(store, PLAN) as head:
        assert head is not None
        with pytest.raises(KeyboardInterrupt):
            head.settle(PLAN)
        assert asked.is_set() and not answer.is_set(), "it was interrupted before the answer"
        ender = threading.Thread(target=head.end, args=("Ctrl-C",))
        ender.start()
        ender.join(0.2)
        assert ender.is_alive() and not is_free(), "the trial is still to come"
        answer.set()
        ender.join(60)
    assert launcher.calls == ["prepare", "start 1 a1", "stop", "close"]
    assert store.states(PLAN)[PLAN.trials[0].key] is Outcome.CANCELLED and is_free()


def test_one_that_is_ended_before_its_thread_comes_to_it_does_not_begin(launcher: Fake) -> None:
    head = module._hold_first(saved(PLAN), PLAN)
    assert head is not None and not is_free()
    head.end("Ctrl-C")
    head.begin()
    begun(head)
    assert launcher.calls == ["close"] and is_free()


def test_one_that_cannot_begin_is_the_flows_and_its_slots_are_free(launcher: Fake) -> None:
    def refuse(trial: Trial, folder: Path) -> None:
        raise LaunchError("cannot start /nowhere/python")

    launcher.on_start = refuse
    store = saved(PLAN)
    with head_start(store, PLAN) as made:
        head = begun(made)
        assert head.settle(PLAN) is None and head.take_over(PLAN.trials[0]) is None
        assert is_free() and not is_held(store, PLAN.trials[0])
    assert launcher.calls == ["prepare"] and store.result(PLAN.trials[0].key) is None


def test_one_that_is_planned_no_more_is_ended_before_others_need_its_slots(launcher: Fake) -> None:
    store = saved(PLAN)
    with head_start(store, PLAN) as made:
        assert begun(made).settle(make_plan([make_trial(3)])) is None
        assert launcher.calls[-2:] == ["stop", "close"] and is_free()


def left_running(plan: Plan) -> Plan:
    """Its second trial was begun by a flow that died."""
    folder = saved(plan).trial_dir(plan.trials[1].key)
    launchers.save(Launch(launcher="local", key=plan.trials[1].key, attempt=1, id="1"), folder)
    return plan


def superseded(plan: Plan) -> Plan:
    return plan.model_copy(update={"superseded": [Superseded(key="f" * 16, by=plan.trials[0].key, why="code changed")]})


def all_done(plan: Plan) -> Plan:
    saved(plan, t1=Outcome.OK, t2=Outcome.CRASHED)
    return plan


def of_a_commit(plan: Plan) -> Plan:
    """Its code may not know that it is to wait."""
    first, *rest = plan.trials
    return plan.model_copy(update={"trials": [first.model_copy(update={"commit": "c" * 40}), *rest]})


@pytest.mark.parametrize("change", [left_running, superseded, all_done, of_a_commit])
def test_a_flow_that_has_something_else_to_do_first_does_all_itself(launcher: Fake, change: Callable[[Plan], Plan]) -> None:
    plan = make_plan([make_trial(1), make_trial(2)])
    saved(plan)
    plan = change(plan)
    with head_start(SweepStore(plan.sweep_id), plan) as head:
        assert head is None and is_free()
    assert launcher.calls == []


def test_the_first_that_is_left_begins_after_its_last_attempt(launcher: Fake) -> None:
    store = saved(PLAN, t1=Outcome.OK, t2=Outcome.CANCELLED)
    launchers.save(Launch(launcher="local", key=PLAN.trials[1].key, attempt=1, id="1"), store.trial_dir(PLAN.trials[1].key))
    with head_start(store, PLAN) as made:
        begun(made)
        assert launcher.calls == ["prepare", "start 2 a2"]


def test_another_sweeps_pool_is_left_alone(launcher: Fake) -> None:
    with NodeLocks(load_pools()["cpu"], 1, 1, threading.Event()), head_start(saved(PLAN), PLAN) as head:
        assert head is None
    assert launcher.calls == []


def test_a_clusters_trials_are_the_flows(launcher: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Pool(name="lab", device="cpu", address="http://127.0.0.1:1")
    monkeypatch.setattr(module, "load_pools", lambda: {"lab": lab})
    plan = make_plan([make_trial(1, pool="lab")])
    with head_start(saved(plan), plan) as head:
        assert head is None


@pytest.mark.parametrize(("device", "cores", "held"), [("cpu", 64, True), ("cuda", 7, True), ("cuda", 8, False), ("hpu", 64, False)])
def test_a_trial_waits_where_the_start_would_show(device: str, cores: int, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    pool = Pool(name=device, device=device, address="embedded")
    assert is_disturbed_by_a_start(pool) is held


def test_one_that_need_not_wait_does_not(launcher: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_disturbed_by_a_start", lambda pool: False)
    store: Any = saved(PLAN)
    with head_start(store, PLAN) as made:
        begun(made)
        assert not (store.trial_dir(PLAN.trials[0].key) / ".hold").exists()


@dataclass
class Importing:
    """In place of a template that makes its imports until it may go on, and that then fails with `error`, if any."""

    error: Exception | None = None
    asked: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def wait_until_ready(self) -> None:
        self.asked.set()
        assert self.go_on.wait(60)
        if self.error:
            raise self.error


@pytest.fixture
def importing(launcher: Fake, monkeypatch: pytest.MonkeyPatch) -> Importing:
    monkeypatch.setattr(module, "is_disturbed_by_a_start", lambda pool: False)
    launcher.template = Importing()
    return launcher.template


@pytest.mark.parametrize("error", [None, template.TemplateError("it has ended with exit status 1")])
def test_others_may_use_the_device_while_the_template_makes_its_imports(
    launcher: Fake, importing: Importing, error: Exception | None
) -> None:
    importing.error, store = error, saved(PLAN)
    launcher.on_start = lambda trial, folder: launcher.calls.append("slot is free" if is_free() else "slot is held")
    with head_start(store, PLAN) as made:
        assert importing.asked.wait(60) and is_free() and not (store.dir / "slots.jsonl").exists()
        let_go = time.time()
        importing.go_on.set()
        assert begun(made).settle(PLAN) == PLAN.trials[0]
        assert launcher.calls == ["prepare", "slot is held", "start 1 a1"] and not is_free()
    (hold,) = read_holds(store.dir / "slots.jsonl")
    assert hold.given_back is not None
    assert let_go <= hold.asked <= hold.taken <= hold.starts[0][0] <= hold.given_back and is_free()


def test_a_slot_that_another_sweep_took_during_the_imports_is_left_to_it(launcher: Fake, importing: Importing) -> None:
    store = saved(PLAN)
    with head_start(store, PLAN) as made:
        assert importing.asked.wait(60)
        with NodeLocks(load_pools()["cpu"], 1, 1, threading.Event()):
            importing.go_on.set()
            head = begun(made)
            assert head.settle(PLAN) is None and head.take_over(PLAN.trials[0]) is None
            assert not is_free(), "its slot stays its own"
        assert is_free()
    assert launcher.calls == ["prepare"] and not (store.dir / "slots.jsonl").exists()


def test_where_a_start_disturbs_the_template_makes_its_imports_in_the_slot(launcher: Fake) -> None:
    launcher.template = Importing()
    with head_start(saved(PLAN), PLAN) as made:
        begun(made)
        assert not launcher.template.asked.is_set() and launcher.calls == ["prepare", "start 1 a1"] and not is_free()
