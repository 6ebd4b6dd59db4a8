"""Commits, and what is said of a trial that leaves no value."""

from __future__ import annotations

import secrets
import signal
import subprocess
from pathlib import Path

import pytest

from cluster.commits.resolve import CommitError
from cluster.launchers import processes
from experiments.regression.bisection_test import difference
from experiments.trial import Trial
from tasks.nightly import bisect
from tasks.nightly.bisect import BisectError, commits_between, run_once, search, subject
from tests.contracts import make_trial


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits, one file."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for number in (1, 2, 3):
        (root / "file").write_text(str(number))
        git(root, "add", "file")
        git(root, "-c", "user.name=n", "-c", "user.email=n@localhost", "commit", "-q", "-m", f"number {number}")
    return root


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_commits_are_listed_oldest_first_without_the_good_one(repository: Path) -> None:
    good, commits = commits_between("HEAD~2", "main", repository)
    assert good == git(repository, "rev-parse", "HEAD~2")
    assert [subject(commit, repository) for commit in commits] == ["number 2", "number 3"]


def test_commits_that_cannot_be_compared_are_named(repository: Path) -> None:
    with pytest.raises(CommitError, match="'nowhere' is no commit"):
        commits_between("nowhere", "main", repository)
    with pytest.raises(BisectError, match="main is no ancestor of HEAD~1: name the older commit"):
        commits_between("main", "HEAD~1", repository)
    with pytest.raises(CommitError, match="is no commit"):
        commits_between("--all", "main", repository)


def trial_of(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Trial:
    """A trial whose worker, in this repository, is a program of the test's own. Its key is no other process's."""
    monkeypatch.setattr(bisect, "told", lambda trial, tree: trial.model_dump_json())
    (repository / "cluster" / "worker").mkdir(parents=True)
    for path in (repository / "cluster" / "__init__.py", repository / "cluster" / "worker" / "__init__.py"):
        path.touch()
    (repository / "cluster" / "worker" / "main.py").write_text(program)
    return make_trial(tmp_path / "trial", secrets.token_hex(8))


def test_a_trial_that_leaves_no_result_is_told_with_its_log(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of(repository, tmp_path, monkeypatch, "raise SystemExit('too old')")
    with pytest.raises(BisectError, match=r"left no result; its log is .*log\.txt"):
        run_once(repository, trial, tmp_path / "out", "throughput")
    assert "too old" in (tmp_path / "out" / "log.txt").read_text()


STARTS_ANOTHER = """
import subprocess
print(subprocess.Popen(["sleep", "77.25"], start_new_session=True).pid)
"""


def test_no_process_of_a_trial_is_left_beside_the_next_one(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of(repository, tmp_path, monkeypatch, STARTS_ANOTHER)
    with pytest.raises(BisectError, match="left no result"):
        run_once(repository, trial, tmp_path / "out", "throughput")
    assert not processes.alive(int((tmp_path / "out" / "log.txt").read_text()), None)


def test_a_trial_that_takes_too_long_leaves_no_process_either(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of(repository, tmp_path, monkeypatch, "")
    left: list[subprocess.Popen[bytes]] = []

    def too_long(command: list[str], *, env: dict[str, str], timeout: float, **more: object) -> None:
        left.append(subprocess.Popen(["sleep", "77.25"], env=env, start_new_session=True))
        raise subprocess.TimeoutExpired(command, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", too_long)
        with pytest.raises(BisectError, match=r"took more than 3600 s; its log is .*log\.txt"):
            run_once(repository, trial, tmp_path / "out", "throughput")
    try:
        assert left[0].wait(timeout=10) == -signal.SIGKILL
    finally:
        left[0].kill()
        left[0].wait()


# --- a search that begins with what is known, and has a time

SIX = [f"{number}" * 40 for number in range(1, 7)]
BASE = "0" * 40


def rates(commit: str) -> float:
    """Of a slow-down by 8 % with the fourth commit."""
    return -0.08 if commit >= SIX[3] else 0.0


def test_a_known_difference_is_not_measured_again() -> None:
    order: list[str] = []

    def measure(commit: str) -> float:
        order.append(commit[0])
        return rates(commit)

    found = search(SIX, BASE, measure, 12, 0.03, whole=difference([-0.08, -0.081, -0.079], 0.95))
    assert found.commit == SIX[3] and "6" not in order
    assert found.trials == len(order) == 12 and "-7.7 %" in found.sentence and "after 3 pairs" in found.sentence


@pytest.mark.parametrize(("pairs", "between"), [(3, (BASE, SIX[5])), (5, (BASE, SIX[5])), (6, (SIX[2], SIX[5])), (8, (SIX[2], SIX[5]))])
def test_time_that_ends_leaves_the_range_that_is_known(pairs: int, between: tuple[str, str]) -> None:
    left = iter([True] * pairs)
    found = search(SIX, BASE, rates, 12, 0.03, go_on=lambda: next(left, False))
    assert (found.commit, found.between) == (None, between)
    assert "no time to go on" in found.sentence and found.trials == 2 * pairs


def test_without_time_for_a_pair_nothing_is_said_of_the_commits() -> None:
    found = search(SIX, BASE, rates, 12, 0.03, go_on=lambda: False)
    assert (found.commit, found.between, found.trials) == (None, None, 0) and "No time was left" in found.sentence
