"""What a trial's end looks like in Prefect, and how its steps are declared."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import StateType

from experiments.trial import Outcome
from tasks.report.prefect_tasks import report
from tasks.sweep import prefect_tasks
from tasks.sweep.prefect_tasks import make_dataset, run_trial, state_of
from tasks.tracking.prefect_tasks import publish
from tests.tasks.plan_support import make_result, make_trial


@pytest.mark.parametrize(
    ("outcome", "kind", "name"),
    [
        (Outcome.OK, StateType.COMPLETED, "Completed"),
        (Outcome.DOES_NOT_FIT, StateType.COMPLETED, "does_not_fit"),
        (Outcome.UNSUPPORTED, StateType.COMPLETED, "unsupported"),
        (Outcome.DIVERGED, StateType.FAILED, "diverged"),
        (Outcome.HANG, StateType.FAILED, "hang"),
        (Outcome.CRASHED, StateType.FAILED, "crashed"),
        (Outcome.INFRA, StateType.FAILED, "infra"),
        (Outcome.CANCELLED, StateType.CANCELLED, "Cancelled"),
    ],
)
def test_a_trials_outcome_is_its_task_runs_state(outcome: Outcome, kind: StateType, name: str) -> None:
    trial = make_trial(1)
    state = state_of(make_result(trial, outcome))
    assert (state.type, state.name, state.message) == (kind, name, None if outcome is Outcome.OK else "made up")


def test_a_trial_is_run_on_its_pool_with_the_log_of_its_task_run(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("task run")
    monkeypatch.setattr(prefect_tasks, "get_run_logger", lambda: log)
    trial = make_trial(1)
    ran: list[Any] = []
    pool: Any = SimpleNamespace(run=lambda *arguments: (ran.append(arguments), make_result(trial))[1])
    assert run_trial.fn(pool, trial, trial.name).type is StateType.COMPLETED
    assert ran == [(trial, log)]


@pytest.mark.parametrize(
    ("task", "name", "run_name"),
    [(make_dataset, "dataset", "dataset"), (run_trial, "trial", "{name}"), (report, "report", "report"), (publish, "publish", "publish")],
)
def test_prefect_neither_caches_nor_keeps_what_a_step_gives(task: Any, name: str, run_name: str) -> None:
    assert (task.name, task.task_run_name, task.cache_policy, task.persist_result) == (name, run_name, NO_CACHE, False)
