"""What the projection sends to MLflow of one attempt of a trial, on a client without MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.journal.journal import JournalWriter, read_journal
from experiments.trial import Outcome, Trial, TrialResult
from tasks.tracking import values
from tasks.tracking.log_trial import finish_trial, step_metrics
from tasks.tracking.runs import SweepRuns
from tests.mlflow_support import write_journal
from tests.tasks.fake_mlflow import Client, client
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved

__all__ = ["client"]  # a fixture

STEPS = 6


def finished(client: Client, result: TrialResult, trial: Trial, **given: Any) -> tuple[Any, str]:
    plan = make_plan([trial])
    store = saved(plan)
    folder = store.trial_dir(trial.key)
    runs = SweepRuns(client, plan)  # type: ignore[arg-type]
    run_id = finish_trial(runs, trial, read_journal(folder / "journal.jsonl", result.attempt), result, folder, **given)
    return client.runs[run_id], run_id


def journalled(trial: Trial, *attempts: int) -> Path:
    folder = saved(make_plan([trial])).trial_dir(trial.key)
    for attempt in attempts:
        write_journal(folder, attempt, STEPS)
    return folder


def steps_of(client: Client, run_id: str, name: str = "loss") -> list[int]:
    return [step for metric, _, _, step in client.metrics[run_id] if metric == name]


def test_a_trial_is_sent_with_each_step_once_its_summary_and_its_end(client: Client) -> None:
    trial = make_trial(1, labels={"night": "n"}, parameters={"compile": False, "dataset": None})
    journalled(trial, 1)
    run, run_id = finished(client, make_result(trial), trial)
    assert steps_of(client, run_id) == [1, 2, 3, 4, 5, 6]
    assert client.last(run_id)["throughput"] == pytest.approx(160)
    assert (run.info.status, run.info.end_time, run.info.run_name) == ("FINISHED", 1_700_000_060_000, trial.name)
    assert run.info.start_time == 1_700_000_000_000
    parts = {f"trial.key.{name}": value for name, value in trial.key_parts.items()}
    said = {"trial.key": trial.key, "trial.cell": trial.cell, "trial.attempt": "1", "trial.repeat": "1", "trial.outcome": "ok"}
    assert {**said, **parts, "night": "n", "emulated": "false", "env.host": "none"}.items() <= run.data.tags.items()
    assert not {"reason", "disturbed", "not_judged"} & set(run.data.tags)
    assert client.params[run_id] == {
        **{name: str(value) for name, value in trial.parameters.items()},
        "compile": "false",
        "dataset": "null",
        "pool": "cpu",
        "number": "1",
        "repeat": "1",
    }


def test_the_devices_state_and_what_disturbed_it_are_there(client: Client) -> None:
    """The journal, which the other figures are computed from again, has none of it."""
    trial = make_trial(1)
    journalled(trial, 1)
    result = make_result(trial, summary={"throughput": 1.0, "clock_mean_mhz": 1500.0, "capped_share": None})
    disturbed = result.model_copy(update={"disturbed": "another process was on the device", "not_judged": "no records"})
    run, run_id = finished(client, disturbed, trial)
    shown = client.last(run_id)
    assert (shown["throughput"], shown["clock_mean_mhz"]) == (pytest.approx(160), 1500.0) and "capped_share" not in shown
    assert (run.data.tags["disturbed"], run.data.tags["not_judged"]) == ("another process was on the device", "no records")


def test_another_attempts_journal_is_not_this_ones(client: Client) -> None:
    """The second attempt could not be started: what the journal has is the first one's."""
    trial = make_trial(1)
    journalled(trial, 1)
    result = make_result(trial, Outcome.INFRA, attempt=2, summary={"throughput": 3.0}, environment={"host": "own"})
    run, run_id = finished(client, result, trial)
    assert steps_of(client, run_id) == []
    assert client.last(run_id) == {"throughput": 3.0}
    assert (run.info.run_name, run.data.tags["env.host"]) == (f"{trial.name} · attempt 2", "own")
    assert (run.info.status, run.data.tags["reason"], run.data.tags["trial.attempt"]) == ("FAILED", "made up", "2")


@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_the_attempt_that_the_result_is_of_counts(client: Client, attempt: int) -> None:
    """Also where a later one, which was to measure the trial again, was lost."""
    trial = make_trial(1)
    journalled(trial, 1, 2)
    _, run_id = finished(client, make_result(trial, attempt=attempt), trial)
    assert steps_of(client, run_id) == ([1, 2, 3, 4, 5, 6] if attempt < 3 else [])


def test_a_trial_that_did_not_end_ok_has_the_summary_of_its_result(client: Client) -> None:
    trial = make_trial(1)
    journalled(trial, 1)
    result = make_result(trial, Outcome.DIVERGED, summary={"measured_steps": 4, "throughput": None, "final_loss": float("nan")})
    _, run_id = finished(client, result, trial)
    assert {"measured_steps": 4.0}.items() <= client.last(run_id).items()
    assert not {"throughput", "final_loss"} & set(client.last(run_id))


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(outcome, {"ok": "FINISHED", "cancelled": "KILLED"}.get(str(outcome), "FAILED")) for outcome in Outcome],
)
def test_how_a_trial_ended(client: Client, outcome: Outcome, status: str) -> None:
    trial = make_trial(1)
    run, _ = finished(client, make_result(trial, outcome, reason=None), trial)
    assert (run.info.status, run.data.tags["trial.outcome"]) == (status, str(outcome))
    assert run.data.tags.get("reason") == (None if outcome is Outcome.OK else str(outcome))


@pytest.mark.parametrize(("planned", "found"), [(True, False), (False, True)])
def test_emulation_is_told_from_the_plan_or_from_the_device(client: Client, planned: bool, found: bool) -> None:
    trial = make_trial(1, emulated=planned)
    run, _ = finished(client, make_result(trial, emulated=found), trial)
    assert run.data.tags["emulated"] == "true"


def test_steps_that_were_taken_are_not_sent_again(client: Client) -> None:
    trial = make_trial(1)
    journalled(trial, 1)
    _, run_id = finished(client, make_result(trial), trial, sent_steps={1, 2, 4})
    assert steps_of(client, run_id) == [3, 5, 6]


def test_what_was_published_is_not_published_again_until_it_changes(client: Client) -> None:
    trial = make_trial(1)
    folder = journalled(trial, 1)
    run, run_id = finished(client, make_result(trial), trial)
    finished(client, make_result(trial), trial)
    assert len(steps_of(client, run_id)) == STEPS
    finished(client, make_result(trial, Outcome.CRASHED), trial)  # another outcome
    assert (run.info.status, len(steps_of(client, run_id))) == ("FAILED", 2 * STEPS)
    run.info.status = "RUNNING"  # left open
    finished(client, make_result(trial, Outcome.CRASHED), trial)
    assert (run.info.status, len(steps_of(client, run_id))) == ("FAILED", 3 * STEPS)
    with JournalWriter(folder / "journal.jsonl", 1) as journal:
        journal.append("note", text="x")
    finished(client, make_result(trial, Outcome.CRASHED), trial)
    assert run.data.tags["trial.published"] == f"{read_journal(folder / 'journal.jsonl').checksum}-crashed"


def test_a_trials_files_are_sent(client: Client) -> None:
    trial = make_trial(1)
    folder = saved(make_plan([trial])).trial_dir(trial.key)
    for name in ("steps.parquet", "log.txt", "trace.json.gz", "other"):
        (folder / name).write_text("")
    _, run_id = finished(client, make_result(trial), trial)
    assert client.artifacts[run_id] == ["steps.parquet", "log.txt", "profile/trace.json.gz"]


def test_metrics_go_in_calls_that_mlflow_takes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert values._METRICS <= 1000 and values._PARAMS <= 100  # MLflow's own limits
    monkeypatch.setattr(values, "_METRICS", 10)
    trial = make_trial(1)
    journalled(trial, 1)
    finished(client, make_result(trial), trial)
    assert client.batches[:3] == [10, 10, 4]  # 6 steps of 4 metrics
    assert max(client.batches) == 10


def test_long_values_are_cut(client: Client) -> None:
    trial = make_trial(1)
    run, _ = finished(client, make_result(trial, environment={"long": "x" * 9000, "none": None}), trial)
    assert len(run.data.tags["env.long"]) == 5000 and "env.none" not in run.data.tags


def test_a_steps_metrics_are_those_that_can_be_drawn() -> None:
    step = {"kind": "step", "t": 1.5, "step": 3, "loss": float("nan"), "samples": 16, "total_s": 0.5, "data_wait_s": 0.1, "rms.patch": 2.0}
    found = [(one.key, one.value, one.timestamp, one.step) for one in step_metrics([{"kind": "note", "t": 1.0}, step])]
    assert found == [
        ("data_wait_s", 0.1, 1500, 3),
        ("step_time_s", 0.5, 1500, 3),
        ("samples_per_s", 32.0, 1500, 3),
        ("rms.patch", 2.0, 1500, 3),
    ]
    assert [one.key for one in step_metrics([{"kind": "step", "t": 1.5, "step": 3, "samples": 16, "loss": 1.0, "total_s": 0.0}])] == [
        "loss",
        "step_time_s",
    ]
