"""A trial that was measured before it failed in its traces counts; and ranks that did not end ok say so by their status."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.journal.journal import JournalWriter, read_journal
from cluster.worker import main
from cluster.worker.before_traces import TO_COME, in_spite_of_traces
from cluster.worker.outcome import Termination
from experiments.json_file import parse_model
from experiments.trial import Outcome, TrialResult
from tests.contracts import make_trial

KEY = "ab34000000000002"
FAILED = Termination(Outcome.CRASHED, "rank 1: ValueError: a bug", "a traceback")


def write(path: Path, attempt: int = 1, *, traces_to_come: bool = True, end: Outcome | None = None) -> None:
    """An attempt of four steps, of which two are measured. Its writer was killed, unless it has an `end`."""
    journal = JournalWriter(path, attempt, trial=KEY)
    for step in range(1, 5):
        journal.append("step", t=100.0 + step, step=step, samples=4, total_s=0.1, loss=1.0, measured=step > 2)
    journal.append("note", text="something")
    journal.append("window", wall_s=0.2, samples=8, **(TO_COME if traces_to_come else {}))
    if end is not None:
        journal.append("end", outcome=str(end), reason="told to end (SIGTERM)")
        journal.close()
        return
    journal.flush()
    journal._file.close()  # as a SIGKILL leaves it


@pytest.mark.parametrize("end", [None, Outcome.CANCELLED])
@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.INFRA, Outcome.DOES_NOT_FIT, Outcome.DIVERGED])
def test_what_was_measured_before_the_traces_counts_and_the_journal_is_whole(tmp_path: Path, outcome: Outcome, end: Outcome | None) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, end=end)
    assert in_spite_of_traces(Termination(outcome, "rank 1: gone"), path, 1, KEY) == Termination(Outcome.OK)
    journal = read_journal(path, 1, KEY)
    assert journal.mark is not None and journal.mark.closed and journal.trial == KEY
    assert [(step["step"], step["t"], step["measured"]) for step in journal.steps] == [
        (1, 101.0, False),
        (2, 102.0, False),
        (3, 103.0, True),
        (4, 104.0, True),
    ]
    assert journal.window is not None and journal.window["samples"] == 8 and "traces" not in journal.window
    assert [note["text"] for note in journal.notes] == [
        "something",
        "no steps were traced: the trial ended in its traces, after all else was measured: rank 1: gone",
    ]
    assert journal.end is not None and (journal.end["outcome"], journal.end["reason"]) == ("ok", None)


@pytest.mark.parametrize("ending", [Termination(Outcome.OK), Termination(Outcome.CANCELLED, "told to end (SIGTERM)")])
def test_a_trial_that_was_told_to_end_stays_cancelled(tmp_path: Path, ending: Termination) -> None:
    path = tmp_path / "journal.jsonl"
    write(path)
    before = path.read_bytes()
    assert in_spite_of_traces(ending, path, 1, KEY) is ending and path.read_bytes() == before


@pytest.mark.parametrize(("traces_to_come", "attempt"), [(False, 1), (True, 2)], ids=["in its window", "in another attempt"])
def test_a_trial_that_failed_before_its_traces_stays_what_it_is(tmp_path: Path, traces_to_come: bool, attempt: int) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, traces_to_come=traces_to_come)
    before = path.read_bytes()
    assert in_spite_of_traces(FAILED, path, attempt, KEY) is FAILED and path.read_bytes() == before
    assert in_spite_of_traces(FAILED, tmp_path / "none.jsonl", 1, KEY) is FAILED, "it has no journal"


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


def test_a_supervisor_counts_what_was_measured_and_a_rank_and_a_probe_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    for name in ("supervisor", "probe", "rank", "job", "damaged"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "journal.jsonl")
    status, result = attempt(tmp_path / "supervisor", monkeypatch)
    assert (status, result.outcome, result.reason) == (0, Outcome.OK, None) and result.summary["throughput"] == pytest.approx(40.0)
    status, result = attempt(tmp_path / "probe", monkeypatch, "--probe", "null")
    assert (status, result.outcome) == (0, Outcome.CRASHED), "a probe measures nothing"
    status, result = attempt(tmp_path / "job", monkeypatch, "--placement", "{}")
    assert (status, result.outcome) == (0, Outcome.CRASHED), "its ranks may still write into the journal"
    monkeypatch.setenv("RANK", "0")
    status, result = attempt(tmp_path / "rank", monkeypatch)
    assert (status, result.outcome, result.reason) == (1, Outcome.CRASHED, FAILED.reason), "so its supervisor ends the others"
    monkeypatch.delenv("RANK")
    path = tmp_path / "damaged" / "journal.jsonl"
    path.write_text(path.read_text().replace("something", "nothing at all"))
    status, result = attempt(tmp_path / "damaged", monkeypatch)
    assert (status, result.outcome, result.reason) == (0, Outcome.CRASHED, FAILED.reason)


@pytest.mark.parametrize(
    ("rank", "ending", "status"), [("0", Termination(Outcome.OK), 0), ("0", FAILED, 1), ("1", FAILED, 1), (None, FAILED, 0)]
)
def test_the_status_of_a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str | None, ending: Termination, status: int) -> None:
    monkeypatch.setattr(main, "_run", lambda *_: ending)
    monkeypatch.setenv("RANK", rank) if rank else monkeypatch.delenv("RANK", raising=False)
    make_trial(tmp_path, KEY)
    assert main.main(["--trial", str(tmp_path / "trial.json"), "--out", str(tmp_path), "--attempt", "1"]) == status
