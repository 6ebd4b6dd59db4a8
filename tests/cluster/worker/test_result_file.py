"""result.json: what the device's state adds to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster import attempt_result
from cluster.journal.journal import JournalWriter
from cluster.worker.main import write_result
from cluster.worker.outcome import Termination
from experiments.json_file import parse_model
from experiments.trial import Outcome, TrialResult
from tests.contracts import make_trial

KEY = "ab34000000000001"
OTHERS = [{"pid": 71, "user": "nobody", "memory_bytes": 1}]


def write(folder: Path, attempt: int, others: list[dict[str, Any]]) -> None:
    """An attempt of ten steps of 0.1 s, and its device's state."""
    with JournalWriter(folder / "journal.jsonl", attempt) as journal:
        for step in range(1, 11):
            journal.append("step", t=100 + step / 10, step=step, samples=4, total_s=0.1, loss=1.0, measured=step > 5)
        journal.append("window", wall_s=0.5, samples=20)
    with JournalWriter(folder / "device_state.jsonl", attempt) as journal:
        journal.append("sampler", attempt=attempt, device="cuda", hz=10.0, user="ada")
        for tick in range(1, 13):
            device = {"index": 0, "sm_mhz": 1000 if tick <= 5 else 1800, "capped_by": ["power"], "others": others}
            journal.append("state", t=100 + tick / 10, devices=[device])


def result_of(folder: Path, attempt: int, ending: Termination) -> TrialResult:
    write_result(make_trial(folder, KEY), folder, attempt, 0.0, ending)
    return parse_model((folder / "result.json").read_bytes(), TrialResult, folder, "")


def test_the_state_of_the_measured_window_is_in_the_result(tmp_path: Path) -> None:
    write(tmp_path, 1, OTHERS)
    write(tmp_path, 2, [])
    result = result_of(tmp_path, 2, Termination(Outcome.OK))
    assert result.disturbed is None and result.summary["clock_min_mhz"] == 1800, "the warm-up's clock does not count"
    assert result.not_judged == "the window was under 1 s"
    assert (result.summary["capped_share"], result.summary["other_processes"]) == (1.0, 0)
    assert result.summary["throughput"] == pytest.approx(40.0) and result.summary["state_coverage"] == pytest.approx(1.0)


def test_what_disturbed_it_is_said(tmp_path: Path) -> None:
    write(tmp_path, 1, OTHERS)
    assert result_of(tmp_path, 1, Termination(Outcome.OK)).disturbed == "another process (pid 71, user nobody) was on the device"


def test_a_trial_that_failed_has_neither(tmp_path: Path) -> None:
    write(tmp_path, 1, OTHERS)
    result = result_of(tmp_path, 1, Termination(Outcome.CRASHED, "ValueError: no"))
    assert (result.disturbed, result.not_judged) == (None, None) and "clock_mean_mhz" not in result.summary


def test_a_damaged_file_leaves_the_state_unknown_and_the_result_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 1, OTHERS)
    path = tmp_path / "device_state.jsonl"
    path.write_text(path.read_text().replace("nobody", "somebody", 1))
    result = result_of(tmp_path, 1, Termination(Outcome.OK))
    assert (result.outcome, result.disturbed) == (Outcome.OK, None) and result.summary["throughput"] is not None
    assert "clock_mean_mhz" not in result.summary
    assert "the device's state is unknown: " in capsys.readouterr().err


def test_results_of_earlier_versions_have_no_state() -> None:
    text = '{"key": "x", "attempt": 1, "outcome": "ok", "started_at": 0, "finished_at": 1}'
    old = TrialResult.model_validate_json(text)
    assert (old.disturbed, old.not_judged) == (None, None)


def test_a_state_that_is_still_written_is_unknown_and_one_whose_sampler_ends_meanwhile_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed worker's sampler writes a last record: the result must not count fewer than there are."""
    write(tmp_path, 1, OTHERS)
    sampler = JournalWriter(tmp_path / "device_state.jsonl", 1)
    monkeypatch.setattr(attempt_result, "SAMPLER_END_S", 0.0)
    assert result_of(tmp_path, 1, Termination(Outcome.OK)).device_state is None
    monkeypatch.setattr(attempt_result, "writer_ended", lambda *_: sampler.close() or True)
    result = result_of(tmp_path, 1, Termination(Outcome.OK))
    assert result.outcome is Outcome.OK and result.device_state is not None and result.device_state.closed
