"""One rank of a trial as Ray Train calls it: its journal's first and last words, whatever happens in between."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cluster.journal.earlier_attempt import NO_LOCKS
from cluster.journal.journal import read_journal
from cluster.worker import trial_session
from cluster.worker.device_sampler import Sampling
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.trial_session import run_rank
from experiments.components.workload import Unsupported
from experiments.step_record import StepTiming
from experiments.trial import Outcome, Trial
from tests.contracts import make_trial


class Short:
    """In place of a session: ends at once, as told."""

    error: BaseException | None = None
    made: ClassVar[list[Any]] = []
    sampled: ClassVar[list[Any]] = []

    def __init__(
        self, trial: Trial, ranks: Ranks, recorder: Recorder, out: Path, probe: str | None, started_at: float, facts: Mapping[str, Any]
    ) -> None:
        self.trial, self.ranks, self.recorder, self.out, self.probe, self.started_at = trial, ranks, recorder, out, probe, started_at
        self.facts = facts
        Short.made.append(self)

    def run(self) -> None:
        self.recorder.note("it ran")
        self.recorder.step(StepTiming(1, 8, 0.5, 1e9, 0.0, 0.0, 1.0, 0.0, 1.0), measured=True)
        if self.error:
            raise self.error


@contextmanager
def no_sampler(trial: Trial, ranks: Ranks, out: Path, attempt: int) -> Iterator[Sampling]:
    """In place of a process: says on the journal's way when it begins and ends."""
    Short.sampled.append((ranks.rank, out, attempt))
    yield Sampling({"locked_clocks_mhz": None}, ("clocks are not locked: no permission",))
    Short.sampled.append("ended")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> type[Short]:
    Short.error, Short.made, Short.sampled = None, [], []
    monkeypatch.setattr(trial_session, "TrialSession", Short)
    monkeypatch.setattr(trial_session, "process_started_at", lambda: 50.0)
    monkeypatch.setattr(trial_session.leftovers, "end", lambda: ["ended process 7"])
    monkeypatch.setattr(trial_session.device_sampler, "sampling", no_sampler)
    return Short


def rank_of(monkeypatch: pytest.MonkeyPatch, folder: Path, ranks: Ranks, **changes: Any) -> None:
    monkeypatch.setattr(Ranks, "from_ray", classmethod(lambda cls: ranks))
    trial = make_trial(folder, "0123456789abcdef")
    config = {"trial": trial.model_dump_json(), "out": str(folder), "attempt": 2, "notes": ["found 8"]}
    run_rank({**config, "probe": None, "store": None, "not_before": 0.0, **changes})


def test_a_rank_that_ends_well_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: type[Short]) -> None:
    rank_of(monkeypatch, tmp_path, Ranks(0, 2, 0, 2), probe="{}", not_before=60.0)
    journal = read_journal(tmp_path / "journal.jsonl")
    assert journal.attempt == 2 and [(phase["name"], phase["t"]) for phase in journal.phases][:1] == [("imports", 50.0)]
    assert [phase["name"] for phase in journal.phases] == ["imports", "done"]
    assert [note["text"] for note in journal.notes] == ["ended process 7", "found 8", "it ran"]
    assert journal.end is not None and (journal.end["outcome"], journal.end["reason"]) == (Outcome.OK, None)
    assert [step["samples"] for step in journal.steps] == [16], "of both ranks"
    (made,) = short.made
    assert (made.out, made.probe, made.started_at, made.trial.key) == (tmp_path, "{}", 60.0, "0123456789abcdef")
    assert short.sampled == [] and made.facts == {}, "a probe measures nothing"


def test_a_rank_is_sampled_while_its_session_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: type[Short]) -> None:
    rank_of(monkeypatch, tmp_path, Ranks(0, 2, 0, 2))
    assert short.sampled == [(0, tmp_path, 2), "ended"] and short.made[0].facts == {"locked_clocks_mhz": None}
    notes = [note["text"] for note in read_journal(tmp_path / "journal.jsonl").notes]
    assert notes == ["ended process 7", "found 8", "clocks are not locked: no permission", "it ran"]


def test_a_rank_that_fails_says_why_and_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: type[Short]) -> None:
    short.error = Unsupported("no bf16")
    with pytest.raises(Unsupported, match="no bf16"):
        rank_of(monkeypatch, tmp_path, Ranks())
    journal = read_journal(tmp_path / "journal.jsonl")
    assert journal.end is not None and journal.end["outcome"] == Outcome.UNSUPPORTED and "no bf16" in journal.end["reason"]
    assert [phase["name"] for phase in journal.phases] == ["imports"] and short.made[0].started_at == 50.0


def test_other_ranks_write_no_journal_and_end_no_leftovers_but_on_their_own_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: type[Short]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(trial_session.leftovers, "end", lambda: asked.append("processes") or [])
    monkeypatch.setattr(trial_session.trial_files, "remove_half_traces", lambda config: asked.append(f"traces beside {config['out']}"))
    rank_of(monkeypatch, tmp_path, Ranks(1, 2, 1, 2))
    assert asked == [] and not (tmp_path / "journal.jsonl").exists()
    rank_of(monkeypatch, tmp_path, Ranks(1, 2, 0, 1))
    assert asked == ["processes", f"traces beside {tmp_path}"] and not (tmp_path / "journal.jsonl").exists()


def test_what_a_trial_was_held_for_is_not_its_own_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: type[Short]) -> None:
    """Nor is what it did before: only the wait is taken off, so that its first step counts like any other trial's."""

    def held(folder: Path, recorder: Recorder) -> float:
        assert folder == tmp_path
        recorder.phase("hold")
        return 4.0

    monkeypatch.setattr(trial_session.hold, "wait", held)
    rank_of(monkeypatch, tmp_path, Ranks())
    assert short.made[0].started_at == 54.0
    assert [phase["name"] for phase in read_journal(tmp_path / "journal.jsonl").phases] == ["imports", "hold", "done"]


def test_a_wait_for_an_earlier_attempt_is_noted_and_is_not_the_trials_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: type[Short]
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(trial_session, "await_end", lambda path: asked.append(path) or (["waited for process 8"], 12.5))
    rank_of(monkeypatch, tmp_path, Ranks())
    assert asked == [tmp_path / "journal.jsonl"] and short.made[0].started_at == 62.5
    assert [note["text"] for note in read_journal(tmp_path / "journal.jsonl").notes][:2] == ["ended process 7", "waited for process 8"]
    rank_of(monkeypatch, tmp_path, Ranks(1, 2, 1, 2))
    assert len(asked) == 1, "other ranks write no journal"


def test_a_journal_without_file_locks_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: type[Short]) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    rank_of(monkeypatch, tmp_path, Ranks())
    texts = [note["text"] for note in read_journal(tmp_path / "journal.jsonl").notes]
    assert texts.count(NO_LOCKS) == 1 and "it ran" in texts


def test_a_rank_whose_folder_is_lost_names_it_to_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: type[Short]) -> None:
    asked: list[tuple[BaseException, Path]] = []
    monkeypatch.setattr(trial_session, "name_lost_folder", lambda error, folder: asked.append((error, folder)))
    read, short.error = OSError(errno.EIO, "Input/output error"), RuntimeError("a batch is missing")
    short.error.__cause__ = read
    with pytest.raises(RuntimeError, match="a batch is missing"):
        rank_of(monkeypatch, tmp_path, Ranks(1, 2, 1, 2))
    assert asked == [(short.error, tmp_path), (read, tmp_path)]
