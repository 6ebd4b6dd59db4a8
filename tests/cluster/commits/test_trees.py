"""Commits of a small repository: what their names mean, their files, and that no worktree stays that nobody uses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.commits import resolve as module
from cluster.commits.resolve import CommitError, differing, resolve, resolve_clean
from cluster.commits.trees import Worktrees


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits with a worker; the oldest is before it."""
    root = tmp_path / "repository"
    worker = root / "cluster" / "worker" / "main.py"
    worker.parent.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    for number in (1, 2, 3):
        (root / "file").write_text(str(number))
        if number > 1:
            worker.write_text(f"NUMBER = {number}\n")
        git(root, "add", "-A")
        git(root, "-c", "user.name=n", "-c", "user.email=n@localhost", "commit", "-q", "-m", f"number {number}")
    return root


@pytest.fixture
def trees(tmp_path: Path, repository: Path) -> Iterator[Worktrees]:
    made = Worktrees(tmp_path / "runs" / ".worktrees", repository)
    yield made
    made.release()


@pytest.fixture(autouse=True)
def asked_anew() -> None:
    module._state.cache_clear()


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout.strip()


def listed(root: Path) -> int:
    return len(git(root, "worktree", "list").splitlines())


def test_names_mean_commits(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert [resolve(name, repository) for name in ("main", "HEAD", head, head[:7])] == [head] * 4
    assert resolve("main~1", repository) == git(repository, "rev-parse", "HEAD~1")
    for wrong in ("nowhere", "--all", ""):
        with pytest.raises(CommitError, match=f"{wrong!r} is no commit of {repository}"):
            resolve(wrong, repository)
    with pytest.raises(CommitError, match="is no commit of"):
        resolve("main", repository.parent)


def test_what_is_checked_out_must_be_clean_unless_its_hash_is_given(repository: Path) -> None:
    head = resolve("HEAD", repository)
    assert resolve_clean("HEAD", repository) == head
    (repository / "cluster" / "worker" / "main.py").write_text("NUMBER = 4\n")
    module._state.cache_clear()
    for name in ("HEAD", "main", "@"):
        with pytest.raises(CommitError, match=f"{name} is the commit that is checked out, and the code here has uncommitted .*`worktree`"):
            resolve_clean(name, repository)
    assert [resolve_clean(name, repository) for name in (head, head[:12])] == [head, head]
    assert resolve_clean("HEAD~1", repository) == resolve("HEAD~1", repository), "it is not what lies here"


def test_files_that_differ_are_named(repository: Path) -> None:
    older, head = resolve("HEAD~2", repository), resolve("HEAD", repository)
    assert differing(older, head, repository) == differing(head, older, repository) == ["cluster/worker/main.py", "file"]
    assert differing(head, head, repository) == differing(None, None, repository) == differing(head, None, repository) == []
    (repository / "file").write_text("other")
    assert differing(None, head, repository) == ["file"] and differing(head, None, repository) == ["file"]
    with pytest.raises(CommitError, match="git cannot compare 000000"):
        differing("0" * 40, head, repository)


def test_each_commit_has_its_files_and_no_worktree_is_left(repository: Path, trees: Worktrees) -> None:
    commits = [resolve(name, repository) for name in ("HEAD~1", "HEAD")]
    assert [(trees.tree(commit) / "file").read_text() for commit in commits] == ["2", "3"]
    assert trees.tree(commits[0]) == trees.tree(commits[0]) == trees.folder / commits[0]
    assert git(trees.tree(commits[0]), "rev-parse", "HEAD") == commits[0]
    assert listed(repository) == 3
    trees.release()
    assert listed(repository) == 1
    assert [path.name for path in trees.folder.iterdir()] == [".lock"]
    assert not list((repository / ".git").glob("worktrees/*"))


def test_a_commit_without_a_worker_is_too_old(repository: Path, trees: Worktrees) -> None:
    with pytest.raises(CommitError, match=r"is too old: it has no cluster/worker/main\.py"):
        trees.tree(resolve("HEAD~2", repository))


def test_a_commit_that_git_does_not_have_is_told_with_what_git_says(trees: Worktrees) -> None:
    with pytest.raises(CommitError, match=r"commit 000000000000 cannot be checked out into .*: fatal:"):
        trees.tree("0" * 40)


@pytest.mark.parametrize("left", ["folder", "entry", "changed"])
def test_what_a_killed_process_left_is_made_anew(repository: Path, trees: Worktrees, left: str) -> None:
    commit = resolve("HEAD", repository)
    path = trees.folder / commit
    if left == "folder":
        (path / "cluster").mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True)
        git(repository, "worktree", "add", "-q", "--detach", "--lock", str(path), commit)
        if left == "entry":
            subprocess.run(["rm", "-r", str(path)], check=True)
        else:
            (path / "file").write_text("changed by hand")
    assert (trees.tree(commit) / "file").read_text() == "3"
    assert listed(repository) == 2


def test_a_worktree_stays_while_another_process_uses_it(repository: Path, trees: Worktrees) -> None:
    """A trial inherits the lock: it stays held when the flow that started it is gone."""
    commit = resolve("HEAD", repository)
    path = trees.tree(commit)
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    trial = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[trees.descriptor(commit)])
    other = Worktrees(trees.folder, repository)
    os.close(trees._held.pop(commit))  # the flow has died
    other.tree(resolve("HEAD~1", repository))  # another's, which looks for what is left
    assert path.exists() and listed(repository) == 3
    trial.communicate()
    other.release()
    assert not path.exists() and listed(repository) == 1


def test_worktrees_of_the_user_are_left_alone(repository: Path, trees: Worktrees, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", "--detach", str(tmp_path / "theirs"), "HEAD")
    subprocess.run(["mv", str(tmp_path / "theirs"), str(tmp_path / "on a disk that is not mounted")], check=True)
    trees.tree(resolve("HEAD", repository))
    trees.release()
    assert str(tmp_path / "theirs") in git(repository, "worktree", "list")
