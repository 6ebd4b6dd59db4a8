"""`sweep logs`: every attempt of a trial, one of them, and a trial that runs."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from cluster import launchers
from cluster.attempt_log import heading
from cluster.launchers import Launch
from experiments.trial import Outcome, Trial
from flows.cli import logs
from flows.cli.commands import app
from tasks.sweep.store import SweepStore
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved

ONE, TWO = heading(1, 0.0) + "first [x]\n", heading(2, 60.0) + "second\n"


@pytest.fixture
def trial() -> Trial:
    """Of a sweep of two; it ended ok at its second attempt."""
    plan = make_plan([make_trial(1), make_trial(2)])
    store = saved(plan)
    store.save_result(make_result(plan.trials[0], attempt=2))
    (store.trial_dir(plan.trials[0].key) / "log.txt").write_text(ONE + TWO)
    return plan.trials[0]


def said(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["logs", *words], env={"COLUMNS": "300"})
    return done.exit_code, done.output


def test_all_attempts_or_one(trial: Trial) -> None:
    assert said("number 1") == (0, ONE + TWO)
    assert said(trial.key, "--attempt", "1") == (0, ONE)
    assert said("number 1", "--follow") == (0, ONE + TWO), "it has ended"


def test_what_there_is_not_is_said(trial: Trial) -> None:
    status, text = said("number 1", "--attempt", "3")
    assert status == 1 and "--attempt: 3: is no attempt of this trial; there is 1, 2" in text
    status, text = said("number 2")
    assert status == 1 and f"has not begun; `sweep resume {trial.sweep_id}` runs it" in text
    status, text = said("number 3")
    assert status == 1 and "TRIAL: number 3: is no trial of the sweep" in text


def test_a_trial_that_runs_is_followed_to_its_end(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SweepStore(trial.sweep_id)
    log = store.trial_dir(trial.key) / "log.txt"
    store.save_result(make_result(trial, Outcome.INFRA))
    log.write_text(ONE)

    def next_attempt(_: float) -> None:
        if "second" not in log.read_text():
            log.write_text(ONE + TWO)
        else:
            store.save_result(make_result(trial, attempt=2))

    monkeypatch.setattr(logs.time, "sleep", next_attempt)
    with store.lease():
        logs.print_log(store, trial, None, follow=True)
    assert capsys.readouterr().out == ONE + TWO, "each part once"


def test_a_ray_job_of_which_it_is_not_known_whether_it_began_has_no_log_yet(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SweepStore(trial.sweep_id)
    (store.trial_dir(trial.key) / "log.txt").write_text(ONE)
    store.save_result(make_result(trial, Outcome.INFRA))
    launch = Launch(launcher="ray_job", key=trial.key, attempt=2, id=f"{trial.key}-a2", starting=True)
    launchers.save(launch, store.trial_dir(trial.key))
    monkeypatch.setattr(launchers, "for_pool", lambda pool: pytest.fail("its pool is asked"))
    assert said("number 1") == (0, ONE)


def test_the_log_of_a_ray_job_that_runs_is_asked_of_its_pool(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SweepStore(trial.sweep_id)
    (store.trial_dir(trial.key) / "log.txt").write_text(ONE)
    store.save_result(make_result(trial, Outcome.INFRA))
    launchers.save(Launch(launcher="ray_job", key=trial.key, attempt=2, id=f"{trial.key}-a2"), store.trial_dir(trial.key))

    class Ray:
        def log(self, launch: Launch, folder: Any) -> str:
            return f"of {launch.id}\n"

    monkeypatch.setattr(launchers, "for_pool", lambda pool: Ray())
    status, text = said("number 1")
    assert status == 0 and text.startswith(ONE + "--- attempt 2 at ") and text.endswith(f"of {trial.key}-a2\n")
