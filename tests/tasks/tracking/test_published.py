"""Whether MLflow has all of a sweep: on a client without MLflow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.trial import Outcome
from tasks.sweep.store import SweepStore
from tasks.tracking import finish_sweep, published
from tasks.tracking.projection import publish_sweep
from tasks.tracking.published import is_published
from tests.mlflow_support import write_journal
from tests.tasks.fake_mlflow import Client, client
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved

__all__ = ["client"]  # a fixture
PLAN = make_plan([make_trial(1), make_trial(2), make_trial(3)])


@pytest.fixture
def store(client: Client, monkeypatch: pytest.MonkeyPatch) -> SweepStore:
    """A published sweep: one trial ok, one crashed without a journal, one never run."""
    monkeypatch.setattr(published, "connect", lambda: client)
    made = saved(PLAN, t1=Outcome.OK, t2=Outcome.CRASHED)
    write_journal(made.trial_dir(PLAN.trials[0].key), 1, 6)
    assert not is_published(made, PLAN)
    publish_sweep(made, PLAN, [], None, wait_s=0)
    return made


def test_what_was_published_is_found_and_left_as_it_is(store: SweepStore) -> None:
    assert is_published(store, PLAN)
    assert is_published(store, PLAN)


def test_a_sweep_whose_note_is_still_to_be_written_is_not_published(store: SweepStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save_result(make_result(PLAN.trials[2], Outcome.CRASHED))
    with monkeypatch.context() as patch:
        patch.setattr(finish_sweep, "describe_sweep", lambda runs, headline: (_ for _ in ()).throw(ConnectionError("the server is gone")))
        with pytest.raises(ConnectionError):
            publish_sweep(store, PLAN, [], None, headline="**A is fastest**.", wait_s=0)
    assert not is_published(store, PLAN)
    publish_sweep(store, PLAN, [], None, headline="**A is fastest**.", wait_s=0)
    assert is_published(store, PLAN)


def journal_of_another_attempt(store: SweepStore, folder: Path) -> None:
    write_journal(folder, 2, 6)
    store.save_result(make_result(PLAN.trials[0], attempt=2))


def another_outcome(store: SweepStore, folder: Path) -> None:
    store.save_result(make_result(PLAN.trials[0], Outcome.DIVERGED))


def one_more_result(store: SweepStore, folder: Path) -> None:
    store.save_result(make_result(PLAN.trials[2], Outcome.CRASHED))


def damaged_journal(store: SweepStore, folder: Path) -> None:
    path = folder / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"loss":', b'"loss":1', 1))


@pytest.mark.parametrize("change", [journal_of_another_attempt, another_outcome, one_more_result, damaged_journal])
def test_what_changed_since_is_not_published(store: SweepStore, change: Callable[[SweepStore, Path], None]) -> None:
    change(store, store.trial_dir(PLAN.trials[0].key))
    assert not is_published(store, PLAN)


def test_a_run_that_was_left_open_is_not_whole(store: SweepStore, client: Client) -> None:
    (parent,) = client.with_role("parent")
    parent.info.status = "RUNNING"
    assert not is_published(store, PLAN)


def test_an_mlflow_that_does_not_answer_has_nothing(store: SweepStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def down() -> None:
        raise ConnectionError("refused")

    monkeypatch.setattr(published, "connect", down)
    assert not is_published(store, PLAN)


@pytest.mark.parametrize("trials", [2, 40])
def test_what_is_asked_of_mlflow_does_not_grow_with_the_trials(client: Client, monkeypatch: pytest.MonkeyPatch, trials: int) -> None:
    plan = make_plan([make_trial(number) for number in range(1, trials + 1)])
    made = saved(plan, **{f"t{number}": Outcome.OK for number in range(1, trials + 1)})
    asked: list[str] = []
    search_runs, get_run = client.search_runs, client.get_run
    monkeypatch.setattr(client, "search_runs", lambda *given, **more: (asked.append("search"), search_runs(*given, **more))[1])
    monkeypatch.setattr(client, "get_run", lambda run_id: (asked.append("get"), get_run(run_id))[1])
    monkeypatch.setattr(published, "connect", lambda: client)
    publish_sweep(made, plan, [], None, wait_s=0)
    assert len(client.with_role("trial")) == trials
    assert (asked.count("search"), asked.count("get")) == (4, 2), "the sweep's run twice, all trials' runs twice, its metrics, and its tags"
    asked.clear()
    assert is_published(made, plan) and asked == ["search"]
    asked.clear()
    publish_sweep(made, plan, [], None, wait_s=0)
    assert len(client.with_role("trial")) == trials and asked.count("search") == 4
