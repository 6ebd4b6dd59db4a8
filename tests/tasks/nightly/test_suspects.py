"""Commits that can have changed a cell: those that touch what its trials import, at the good commit or at the bad one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks.nightly import suspects as module
from tasks.nightly.suspects import suspects
from tests.contracts import make_trial
from tests.tasks.nightly.test_bisect import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    return root


def commit(root: Path, **files: str | None) -> str:
    for name, text in files.items():
        (root / f"{name}.py").unlink() if text is None else (root / f"{name}.py").write_text(text)
    git(root, "add", "-A")
    git(root, "-c", "user.name=n", "-c", "user.email=n@localhost", "commit", "-q", "-m", "made up")
    return git(root, "rev-parse", "HEAD")


def of(root: Path, commits: list[str], imported: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The suspects after the first commit. `imported`: commit -> names of the files that trials import there."""
    folders = {name: tmp_path / name for name in commits}
    monkeypatch.setattr(module, "worktrees", lambda: SimpleNamespace(tree=folders.__getitem__))
    monkeypatch.setattr(module, "code_files", lambda workload, device, tree: {n: tree / f"{n}.py" for n in imported[tree.name]})
    monkeypatch.setattr(module, "REPOSITORY", root)
    return suspects(commits[1:], commits[0], make_trial(tmp_path / "trial", "aaaa0000000000ff"))


def test_only_commits_that_touch_what_is_imported_are_suspects(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = [
        commit(repository, used="1", old="1", other="1"),
        commit(repository, other="2"),
        commit(repository, used="2"),
        commit(repository, old=None),
        commit(repository, new="1"),
        commit(repository, other="3"),
    ]
    imported = {commits[0]: ["used", "old"], commits[-1]: ["used", "new"]}
    assert of(repository, commits, imported, tmp_path, monkeypatch) == commits[2:5]


def test_where_none_touches_it_all_are(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = [commit(repository, used="1", other="1"), commit(repository, other="2"), commit(repository, other="3")]
    imported = {commits[0]: ["used"], commits[-1]: ["used"]}
    assert of(repository, commits, imported, tmp_path, monkeypatch) == commits[1:]
