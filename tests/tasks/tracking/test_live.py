from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from cluster.journal.journal import Journal, read_journal
from cluster.journal.lines import Record
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.store import Plan, SweepStore
from tasks.tracking import live
from tasks.tracking.live import LivePublisher
from tests.mlflow_support import make_store

STEPS = 30


class Runs:
    """Takes what a publisher sends to MLflow; refuses the first `refused` calls that bring steps."""

    def __init__(self, refused: int = 0) -> None:
        self.refused, self.live, self.sent_before = refused, list[int](), set[int]()

    client = None

    def trial_run(self, trial: Trial, attempt: int, started_at: float) -> str:
        return "run"

    def log_records(self, client: None, run_id: str, records: list[Record]) -> None:
        if self.refused:
            self.refused -= 1
            raise ConnectionError("the database is locked")
        self.live += [record["step"] for record in records if record["kind"] == "step"]

    def finish_trial(self, runs: Runs, trial: Trial, journal: Journal, result: TrialResult, folder: Path, sent: Collection[int]) -> str:
        self.sent_before = set(sent)
        return "run"


def publish(monkeypatch: pytest.MonkeyPatch, root: Path, runs: Runs, connect: Callable[[], None] = lambda: None) -> None:
    """One trial of STEPS steps through a publisher, in two halves, each gathered on its own."""
    store, plan = make_store(root, {"one": Outcome.OK}, STEPS)
    given: Any = lambda client, plan: runs  # noqa: E731
    monkeypatch.setattr(live, "SweepRuns", given)
    monkeypatch.setattr(live, "log_records", runs.log_records)
    monkeypatch.setattr(live, "finish_trial", runs.finish_trial)
    monkeypatch.setattr(live, "connect", connect)
    monkeypatch.setattr(live, "_QUIET_S", 0.0)
    _feed(store, plan)


def _feed(store: SweepStore, plan: Plan) -> None:
    publisher = LivePublisher(plan, logging.getLogger("test"))
    trial = plan.trials[0]
    folder = store.trial_dir(trial.key)
    steps = read_journal(folder / "journal.jsonl").steps
    runs_before = publisher.failures
    publisher.start()
    publisher.wait_until_loaded(threading.Event())
    publisher.feed(trial, 1, 0.0, [{"kind": "phase", "t": 0.0, "name": "start"}, *steps[: STEPS // 2]])
    while publisher._queue.qsize() or (not publisher._sent and publisher.failures == runs_before):
        live.time.sleep(0.01)  # until the first half was sent, or refused
    publisher.feed(trial, 1, 0.0, steps[STEPS // 2 :])
    result = store.result(trial.key)
    assert result is not None
    publisher.finish(trial, result, folder)
    publisher.close()


def test_steps_that_were_sent_while_the_trial_ran_are_not_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs()
    publish(monkeypatch, tmp_path, runs)
    assert runs.live == list(range(1, STEPS + 1))
    assert runs.sent_before == set(range(1, STEPS + 1))


def test_steps_that_mlflow_refused_are_sent_at_the_end_of_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(refused=1)
    publish(monkeypatch, tmp_path, runs)
    assert runs.live == list(range(STEPS // 2 + 1, STEPS + 1))
    assert runs.sent_before == set(range(STEPS // 2 + 1, STEPS + 1)), "the refused half is still to be sent"


def test_the_store_is_opened_before_there_are_records_and_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, plan = make_store(tmp_path, {"one": Outcome.OK}, STEPS)
    asked, go_on, stop = threading.Event(), threading.Event(), threading.Event()

    def connect() -> None:
        asked.set()
        assert go_on.wait(60)

    monkeypatch.setattr(live, "connect", connect)
    publisher = LivePublisher(plan, logging.getLogger("test"))
    publisher.start()
    assert asked.wait(60), "without a record"
    waiting = threading.Thread(target=publisher.wait_until_loaded, args=(stop,))
    waiting.start()
    waiting.join(3 * live._LOOK_S)
    assert waiting.is_alive()
    stop.set()
    waiting.join(60)
    assert not waiting.is_alive(), "a stop is not kept waiting"
    go_on.set()
    publisher.wait_until_loaded(threading.Event())
    assert "scipy.optimize" in sys.modules
    publisher.close()


def test_a_store_that_cannot_be_opened_keeps_nobody_waiting_and_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, asked = Runs(), list[int]()

    def connect() -> None:
        asked.append(len(asked))
        if len(asked) == 1:
            raise ConnectionError("the disk is away")

    publish(monkeypatch, tmp_path, runs, connect)
    assert (asked, runs.live) == ([0, 1], list(range(1, STEPS + 1)))
