"""Trials of two commits and of the code here, in turns on an embedded pool: each runs the code that it is a trial of."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from cluster.commits import trees
from cluster.journal.journal import read_journal
from cluster.launchers import processes
from cluster.launchers.local import LocalLauncher
from cluster.packages import installed
from cluster.pools.pool import Pool
from cluster.source_tree import source_tree
from experiments.config.paths import REPOSITORY, runs_root
from tests.contracts import make_trial, result_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
POOL = Pool(name="cpu", device="cpu", address="embedded")


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two commits of a repository with the code as it lies here; the second has one more line."""
    root = tmp_path / "repository"
    for part in ("cluster", "experiments"):
        shutil.copytree(REPOSITORY / part, root / part, ignore=shutil.ignore_patterns("__pycache__", "kuberay"))
    (root / ".gitignore").write_text("__pycache__/\n")
    git(root, "init", "-q", "-b", "main")
    made = []
    for number in (1, 2):
        with open(root / "experiments" / "workloads" / "synthetic.py", "a") as file:
            file.write(f"# commit {number}\n")
        git(root, "add", "-A")
        git(root, "-c", "user.name=n", "-c", "user.email=n@localhost", "commit", "-q", "-m", f"number {number}")
        made.append(git(root, "rev-parse", "HEAD"))
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    folder = runs_root() / trees.NAME
    monkeypatch.setitem(trees._mine, folder, trees.Worktrees(folder, root))
    return made


def test_each_trial_runs_the_code_of_its_commit(commits: list[str], tmp_path: Path) -> None:
    launcher, ran = LocalLauncher(POOL), []
    turns = [None, commits[0], commits[1], commits[0]]
    for number, commit in enumerate(turns):
        key, folder = f"c0a1{number:012x}", tmp_path / str(number)
        trial = make_trial(folder, key).model_copy(update={"commit": commit})
        launch = launcher.start(trial, folder, 1)
        deadline = time.monotonic() + 240
        while launcher.status(launch).running:
            assert time.monotonic() < deadline, launcher.log(launch, folder)
            time.sleep(0.02)
        result = result_of(folder)
        assert result.outcome == "ok", launcher.log(launch, folder)
        assert read_journal(folder / "journal.jsonl").packages == installed()
        ran.append((result.environment["git_commit"], result.environment["tree"], result.environment["start"]))
        launcher.stop(launch)
        processes.end_all(key)
    assert [commit for commit, *_ in ran][1:] == turns[1:]
    assert ran[0][1] == source_tree() and len({tree for _, tree, _ in ran}) == 3 and ran[1][1] == ran[3][1]
    assert {start for *_, start in ran} == {"warm"}
    launcher.close()
    trees.worktrees().release()
    assert [path.name for path in (runs_root() / trees.NAME).iterdir()] == [".lock"]
    assert len(git(tmp_path / "repository", "worktree", "list").splitlines()) == 1
