"""What a commit and "dirty" mean: decided in a small repository of the test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cluster import git_state as module
from cluster.git_state import as_environment, git_branch, git_state
from experiments.config.errors import UserError


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean repository with a file of code, a document and a .gitignore."""
    for name in ("SWEEPBENCH_GIT_COMMIT", "SWEEPBENCH_GIT_DIRTY", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "checkout"
    for name, text in (("cluster/code.py", "x = 1\n"), ("README.md", "read\n"), (".gitignore", "*.log\n")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    assert git_state(checkout) == {"commit": git(checkout, "rev-parse", "HEAD"), "dirty": False, "checked": True}


@pytest.mark.parametrize(
    ("name", "dirty"),
    [
        ("cluster/code.py", True),  # differs from the commit
        ("cluster/new.py", True),  # untracked, and imported all the same
        ("experiments/workloads/new.py", True),
        ("tasks/new.py", True),
        ("flows/new.py", True),
        ("cluster/out.log", False),  # ignored
        ("README.md", False),  # no code
        ("runs/plan.json", False),
        ("notes.txt", False),
    ],
)
def test_what_makes_the_code_dirty(checkout: Path, name: str, dirty: bool) -> None:
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text("changed\n")
    assert git_state(checkout) == {"commit": git(checkout, "rev-parse", "HEAD"), "dirty": dirty, "checked": True}


def test_a_file_that_was_removed_or_only_staged_makes_it_dirty(checkout: Path) -> None:
    (checkout / "cluster/code.py").unlink()
    assert git_state(checkout)["dirty"] is True
    (checkout / "cluster/code.py").write_text("x = 2\n")
    git(checkout, "add", "-A")
    assert git_state(checkout)["dirty"] is True
    git(checkout, "commit", "-q", "-m", "second")
    assert git_state(checkout) == {"commit": git(checkout, "rev-parse", "HEAD"), "dirty": False, "checked": True}


def test_code_that_git_ignores_is_not_of_the_commit(checkout: Path) -> None:
    (checkout / ".gitignore").write_text("*.log\n/runs/\ncluster/secret.py\n")
    git(checkout, "commit", "-q", "-a", "-m", "ignore")
    assert git_state(checkout)["dirty"] is False
    copy = checkout / "runs" / "copy"
    (copy / "cluster").mkdir(parents=True)
    (copy / "cluster" / "code.py").write_text("x = 3\n")
    assert git_state(copy) == {}, "git would call it clean, and the commit of the checkout around it is not its commit"
    (checkout / "cluster" / "secret.py").write_text("")
    assert git_state(checkout)["dirty"] is True, "Python imports it all the same"


def test_outside_a_checkout_and_before_the_first_commit_nothing_is_known(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    assert git_state(tmp_path / "bare") == {}
    git(tmp_path / "bare", "init", "-q")
    assert git_state(tmp_path / "bare") == {}


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 20)])
def test_without_a_git_that_answers_nothing_is_known(checkout: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(module.subprocess, "run", fail)
    assert git_state(checkout) == {}


@pytest.mark.parametrize("dirty", [True, False])
def test_code_that_travelled_without_its_history_keeps_its_state(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dirty: bool
) -> None:
    if dirty:
        (checkout / "cluster/code.py").write_text("x = 2\n")
    state = git_state(checkout)
    assert state["dirty"] is dirty
    for name, value in as_environment(state).items():
        monkeypatch.setenv(name, value)
    assert git_state(tmp_path) == {**state, "checked": False}, "told, and nobody looked"


def test_an_unknown_state_sets_no_variable() -> None:
    assert as_environment({}) == {}


def test_the_branch_is_what_is_checked_out_or_told(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEPBENCH_GIT_BRANCH", raising=False)
    git(checkout, "checkout", "-q", "-b", "topic/a")
    assert git_branch(checkout) == "topic/a"
    git(checkout, "checkout", "-q", "--detach")
    assert git_branch(checkout) is None, "a commit alone"
    monkeypatch.setenv("SWEEPBENCH_GIT_BRANCH", " main ")
    assert git_branch(checkout) == "main" == git_branch(tmp_path)


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 20)])
def test_without_a_git_that_answers_no_branch_is_known(checkout: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.delenv("SWEEPBENCH_GIT_BRANCH", raising=False)
    monkeypatch.setattr(module.subprocess, "run", fail)
    assert git_branch(checkout) is None


@pytest.mark.parametrize("told", ["unknown", "c" * 39, "c" * 41, "g" * 40, "7f6b9ab", "C" * 40])
def test_what_cannot_be_a_commit_is_an_error_that_names_the_variable(checkout: Path, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv("SWEEPBENCH_GIT_COMMIT", told)
    with pytest.raises(UserError, match=rf"SWEEPBENCH_GIT_COMMIT: '{told}' is no commit; expected the 40 or 64 hex digits"):
        git_state(checkout)


@pytest.mark.parametrize("length", [40, 64])
def test_a_commit_that_is_told_is_asserted_and_not_checked(checkout: Path, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setenv("SWEEPBENCH_GIT_COMMIT", "c" * length)
    assert git_state(checkout) == {"commit": "c" * length, "dirty": False, "checked": False}
