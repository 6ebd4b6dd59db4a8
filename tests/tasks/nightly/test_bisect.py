"""Commits, their files in worktrees, and what is said of a trial that leaves no value."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tasks.nightly.bisect import BisectError, commits_between, run_once, subject, worktrees
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
    with pytest.raises(BisectError, match="'nowhere' is no commit"):
        commits_between("nowhere", "main", repository)
    with pytest.raises(BisectError, match="main is no ancestor of HEAD~1: name the older commit"):
        commits_between("main", "HEAD~1", repository)
    with pytest.raises(BisectError, match="is no commit"):
        commits_between("--all", "main", repository)


def test_each_commit_has_its_files_and_no_worktree_is_left(repository: Path, tmp_path: Path) -> None:
    good, commits = commits_between("HEAD~2", "main", repository)
    with worktrees(tmp_path / "trees", repository) as tree:
        assert [(tree(commit) / "file").read_text() for commit in (good, *commits)] == ["1", "2", "3"]
        assert tree(good) == tree(good)
        assert len(git(repository, "worktree", "list").splitlines()) == 4
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert not any((tmp_path / "trees").iterdir())


def test_a_commit_that_cannot_run_a_trial_does_not_run_another_ones_code(repository: Path, tmp_path: Path) -> None:
    trial = make_trial(tmp_path / "trial", "aaaa0000000000ff")
    with pytest.raises(BisectError, match=r"repository has no cluster/worker/main\.py"):
        run_once(repository, trial, tmp_path / "out", "throughput")
    (repository / "cluster" / "worker").mkdir(parents=True)
    for path in (repository / "cluster" / "__init__.py", repository / "cluster" / "worker" / "__init__.py"):
        path.touch()
    (repository / "cluster" / "worker" / "main.py").write_text("raise SystemExit('too old')")
    with pytest.raises(BisectError, match=r"left no result; its log is .*log\.txt"):
        run_once(repository, trial, tmp_path / "out", "throughput")
    assert "too old" in (tmp_path / "out" / "log.txt").read_text()
