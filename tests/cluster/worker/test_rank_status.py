"""What an attempt's process makes of an ending after all was measured; and ranks that did not end ok say so by their status."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.journal import after_window
from cluster.journal.journal import JournalWriter
from cluster.worker import main
from cluster.worker.outcome import Termination
from experiments.json_file import parse_model
from experiments.trial import Outcome, TrialResult
from tests.contracts import make_trial
from tests.measured_support import KEY, write_measured

FAILED = Termination(Outcome.CRASHED, "rank 1: ValueError: a bug", "a traceback")


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's process keeps its signals and its environment."""
    monkeypatch.setattr(main.signal, "signal", lambda *_: None)
    monkeypatch.setattr(main, "_set_defaults", lambda trial: None)


def attempt(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> tuple[int, TrialResult]:
    """An attempt that ends as FAILED. Returns its exit status and its result."""

    def fail(*_: object) -> Termination:
        return FAILED

    monkeypatch.setattr(main, "_run", fail)
    make_trial(folder, KEY)
    status = main.main(["--trial", str(folder / "trial.json"), "--out", str(folder), "--attempt", "1", *more])
    return status, parse_model((folder / "result.json").read_bytes(), TrialResult, folder, "")


@pytest.mark.parametrize("more", [[], ["--placement", "{}"]], ids=["a supervisor of ranks", "a Ray job's driver"])
def test_what_was_measured_before_the_trial_failed_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    monkeypatch.delenv("RANK", raising=False)
    write_measured(tmp_path / "journal.jsonl")
    status, result = attempt(tmp_path, monkeypatch, *more)
    assert (status, result.outcome, result.reason) == (0, Outcome.OK, None) and result.summary["throughput"] == pytest.approx(40.0)


def test_a_rank_and_a_probe_leave_the_journal_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    write_measured(tmp_path / "journal.jsonl")
    before = (tmp_path / "journal.jsonl").read_bytes()
    status, result = attempt(tmp_path, monkeypatch, "--probe", "null")
    assert (status, result.outcome) == (0, Outcome.CRASHED), "a probe measures nothing"
    monkeypatch.setenv("RANK", "0")
    status, result = attempt(tmp_path, monkeypatch)
    assert (status, result.outcome, result.reason) == (1, Outcome.CRASHED, FAILED.reason), "so its supervisor ends the others"
    assert (tmp_path / "journal.jsonl").read_bytes() == before


def test_a_journal_that_is_damaged_or_may_still_be_written_leaves_the_ending_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(after_window, "ENDED_S", 0.0)
    path = tmp_path / "journal.jsonl"
    write_measured(path)
    before = path.read_bytes()
    path.write_bytes(before.replace(b"something", b"nothing at all"))
    status, result = attempt(tmp_path, monkeypatch)
    assert (status, result.outcome, result.reason) == (0, Outcome.CRASHED, FAILED.reason)
    path.write_bytes(before)
    rank_zero = JournalWriter(path, 1, trial=KEY)
    rank_zero.append("window", wall_s=0.2, samples=8, **after_window.TO_COME)
    rank_zero.flush()
    status, result = attempt(tmp_path, monkeypatch, "--placement", "{}")
    assert (status, result.outcome, result.reason) == (0, Outcome.CRASHED, FAILED.reason), "rank 0 has not ended"
    rank_zero.close()
    assert capsys.readouterr().err.count("what was measured before the trial failed cannot be kept: ") == 2


@pytest.mark.parametrize(
    ("rank", "ending", "status"), [("0", Termination(Outcome.OK), 0), ("0", FAILED, 1), ("1", FAILED, 1), (None, FAILED, 0)]
)
def test_the_status_of_a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str | None, ending: Termination, status: int) -> None:
    monkeypatch.setattr(main, "_run", lambda *_: ending)
    monkeypatch.setenv("RANK", rank) if rank else monkeypatch.delenv("RANK", raising=False)
    make_trial(tmp_path, KEY)
    assert main.main(["--trial", str(tmp_path / "trial.json"), "--out", str(tmp_path), "--attempt", "1"]) == status
