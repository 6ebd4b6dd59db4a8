"""What a flow records of its trials: on the terminal, in Prefect's log, in MLflow."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.journal.errors import JournalError
from cluster.launchers import LaunchError
from experiments.trial import Outcome, Trial, TrialResult
from flows.runtime import trial_records
from tests.flows.flow_support import LOG, Stage, begun, calls, run_trial, stage
from tests.mlflow_support import write_journal
from tests.tasks.plan_support import make_plan, make_result, make_trial

__all__ = ["stage"]  # a fixture


def test_a_trial_that_ended_is_shown_published_and_kept(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    trial = make_trial(1)
    plan = make_plan([trial])
    session = stage.session(plan)
    begun(plan, 1)
    folder = session.store.trial_dir(trial.key)
    write_journal(folder, 1, 3)
    (folder / "log.txt").write_text("\x1b[31mred\x1b[0m")
    stage.runner.result = lambda trial: make_result(trial, summary={"throughput": 33248.4})
    with caplog.at_level(logging.INFO):
        result = run_trial(session, trial)
    assert result.outcome is Outcome.OK
    assert (folder / "steps.parquet").exists()
    assert stage.launcher.kept == [trial.key]
    assert calls(session) == [("finish", trial.key, Outcome.OK, folder)]
    assert session.progress.rows[trial.key].outcome is Outcome.OK
    assert stage.artifacts.made == ["trial", "progress"]
    assert f"{trial.name}: ok, 33,248 samples/s" in caplog.messages
    assert f"log of {trial.name}:\nred" in caplog.messages


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_unexpected_ending_is_an_error_in_the_log(stage: Stage, caplog: pytest.LogCaptureFixture, outcome: Outcome) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial]))
    (session.store.trial_dir(trial.key) / "log.txt").write_text("text")
    stage.runner.result = lambda trial: make_result(trial, outcome)
    with caplog.at_level(logging.INFO):
        run_trial(session, trial)
    (said,) = [record for record in caplog.records if record.getMessage().startswith(f"{trial.name}: {outcome}")]
    assert said.levelno == (logging.INFO if outcome in ("ok", "does_not_fit", "unsupported") else logging.ERROR)
    assert said.getMessage().endswith("" if outcome == "ok" else " (made up)")
    assert any("log of" in message for message in caplog.messages) == (outcome != "cancelled")


def test_results_that_cannot_be_kept_on_the_pool_are_said_and_counted(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    trial = make_trial(1)
    plan = make_plan([trial])
    session = stage.session(plan)
    begun(plan, 1)
    stage.launcher.problem = LaunchError("storage is away")
    stage.runner.result = make_result
    assert run_trial(session, trial).outcome is Outcome.OK
    assert "results are here and not on the pool's storage: storage is away" in caplog.text
    assert calls(session)[-1][:3] == ("finish", trial.key, Outcome.OK)


def test_a_journal_that_others_changed_ends_as_infra_and_is_never_published(stage: Stage) -> None:
    trial = make_trial(1, emulated=True)
    session = stage.session(make_plan([trial]))
    error = JournalError(Path("journal.jsonl"), 3, "checksum is x")

    def fail(trial: Trial) -> TrialResult:
        raise error

    stage.runner.result = fail
    result = run_trial(session, trial)
    assert (result.outcome, result.reason, result.emulated) == (Outcome.INFRA, str(error), True)
    assert session._records.damage == [str(error)] and calls(session) == []
    assert session.store.result(trial.key) is None
    assert session.progress.rows[trial.key].outcome is Outcome.INFRA


def test_records_go_to_the_progress_and_to_mlflow_with_the_time_of_the_attempts_first(stage: Stage) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial]))
    step = {"kind": "step", "step": 1, "loss": 0.5}
    session._records.observed(trial, 1, [{**step, "t": 10.0}, {**step, "t": 11.0}], LOG)
    session._records.observed(trial, 1, [{**step, "t": 12.0}], LOG)
    session._records.observed(trial, 2, [{**step, "t": 20.0}], LOG)
    fed = [("feed", trial.key, 1, 10.0, 2), ("feed", trial.key, 1, 10.0, 1), ("feed", trial.key, 2, 20.0, 1)]
    assert calls(session) == fed
    assert (session.progress.rows[trial.key].attempt, session.progress.rows[trial.key].step) == (2, 1)


def test_each_size_that_the_search_for_the_largest_batch_has_tried_is_a_line_of_the_trials_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """`prefect deployment run` shows no live table; without a terminal that has the same lines."""
    trial = make_trial(1)
    session = stage.session(make_plan([trial]))

    def tried(fits: int, too_large: int | None) -> dict[str, object]:
        return {"kind": "note", "text": "batch size ...", "batch_search": {"fits": fits, "too_large": too_large}, "t": 2.0}

    log = logging.getLogger("its task run")
    phase = {"kind": "phase", "t": 1.0}
    told = [
        [{**phase, "name": "max_batch"}],
        [tried(1, None), tried(8, None)],
        [tried(8, None)],
        [tried(8, 57)],
        [{**phase, "name": "start"}],
    ]
    with caplog.at_level(logging.INFO):
        for records in told:
            session._records.observed(trial, 1, records, log)
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("its task run", f"{trial.name}: searching the largest batch{known}") for known in ("", ": 8 fits", ": 8 fits, 57 does not")
    ]


def test_a_pool_that_is_down_shows_with_what_becomes_of_its_trials(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        trial_records, "time", SimpleNamespace(time=lambda: 100.0, localtime=lambda t: t, strftime=lambda _, t: f"at {t:g}")
    )
    session = stage.session(make_plan([make_trial(1)]))
    records = session._records
    records.pool_changed("cpu", "pool cpu does not answer", 60.0)
    assert session.progress.pools == {"cpu": "does not answer; its trials wait until at 160 and then end as infra"}
    records.pool_changed("cpu", "pool cpu refuses the token", 0.0)
    assert session.progress.pools == {"cpu": "refuses the token; its trials end as infra"}
    records.pool_changed("cpu", "pool cpu: the token file x cannot be read", 0.0)
    assert session.progress.pools == {"cpu": "the token file x cannot be read; its trials end as infra"}
    records.pool_changed("cpu", None, 60.0)
    assert session.progress.pools == {}


def test_without_prefect_a_trial_is_recorded_and_no_picture_is_asked_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_trial(1)
    session = stage.session(make_plan([trial]))
    answers: list[str | None] = ["http://x does not answer", None]
    monkeypatch.setattr(trial_records.prefect_api, "problem", lambda: answers.pop(0))
    session._records.finished(trial, make_result(trial), logging.getLogger())
    assert stage.artifacts.made == []
    assert session.progress.problems() == {"Prefect": "http://x does not answer; trials go on and are recorded without it"}
    assert session.progress.rows[trial.key].outcome is Outcome.OK and calls(session)[-1][0] == "finish"
    session._records.finished(trial, make_result(trial), logging.getLogger())
    assert (stage.artifacts.made, session.progress.problems()) == (["trial", "progress"], {})
