"""What the progress of a sweep keeps of each trial that has ended: thousands of results stay in the flow's memory."""

from __future__ import annotations

import pytest

from flows.runtime.progress import SweepProgress
from tests.tasks.plan_support import make_result, make_trial

SUMMARY = {"throughput": 4.75, "throughput_low": 4.5, "throughput_high": 5.0, "step_time_median_s": 0.2, "final_loss": 1.5}


@pytest.mark.parametrize(
    ("metric", "kept"),
    [
        (None, {}),
        ("throughput", {"throughput": 4.75, "throughput_low": 4.5, "throughput_high": 5.0}),
        ("final_loss", {"final_loss": 1.5}),
    ],
)
def test_of_a_result_no_more_is_kept_than_is_drawn(metric: str | None, kept: dict[str, float]) -> None:
    trial = make_trial(1)
    progress = SweepProgress([trial], metric=metric)
    whole = make_result(trial, summary=SUMMARY, environment={"host": "box"}, detail="a log")
    progress.finish(trial, whole)
    row = progress.rows[trial.key]
    assert row.result is not None and row.result.summary == kept
    assert (row.result.environment, row.result.detail) == ({}, None)
    assert (row.outcome, row.elapsed_s, row.samples_per_s) == (whole.outcome, whole.finished_at - whole.started_at, 4.75)
    assert whole.summary == SUMMARY, "its own is as it was"


def test_a_trial_that_waits_for_slots_does_not_run_also_if_it_had_them_before() -> None:
    """It waited for its pool without them."""
    trial = make_trial(1)
    progress = SweepProgress([trial])
    progress.start(trial)
    progress.wait(trial, "pending")
    assert progress.running() == [trial]
    progress.wait(trial, "pool in use", ["sweep another"])
    assert progress.running() == []
    progress.start(trial)
    assert progress.running() == [trial] and progress.rows[trial.key].state == "starting"


def test_an_attempt_that_stands_in_its_journal_again_is_counted_once() -> None:
    trial = make_trial(1, parameters={"steps": 4, "warmup_steps": 0, "measure_s": 8.0})
    progress = SweepProgress([trial])
    step = {"kind": "step", "loss": 0.5, "measured": True, "samples": 10, "total_s": 1.0}
    section = [{"kind": "attempt"}, {**step, "step": 1}, {**step, "step": 2}]
    for _ in range(2):
        progress.observe(trial, 1, section)
        row = progress.rows[trial.key]
        assert (row.step, row.share, row.samples_per_s) == (2, 0.25, 10.0)
