"""Trials of two commits and of the code here, in turns on an embedded pool and as Ray jobs: each runs the code that it is a trial of."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.commits import trees
from cluster.journal.journal import read_journal
from cluster.launchers import Launcher, processes
from cluster.launchers.local import LocalLauncher
from cluster.launchers.ray_job import RayJobLauncher
from cluster.packages import installed
from cluster.pools.pool import Pool
from cluster.source_tree import source_tree
from experiments.config.paths import REPOSITORY, runs_root
from experiments.trial import digest
from tests.contracts import make_trial, result_of, wait
from tests.stack_support import Stack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
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
    monkeypatch.setattr(trees, "_WAIT_S", 60.0)  # templates end slowly where the machine is busy
    monkeypatch.setitem(trees._mine, folder, trees.Worktrees(folder, root))
    return made


Ran = tuple[object, object, object]  # commit, hash of the code, how the process was started


def in_turns(launcher: Launcher, turns: Sequence[str | None], folder: Path) -> list[Ran]:
    """What trials of these commits, None for the code here, say that they ran, one after the other."""
    ran: list[Ran] = []
    for number, commit in enumerate(turns):
        trial_dir = folder / str(number)
        key = digest(str(trial_dir))  # all that has it is ended, also trials of another test that runs beside this one
        trial = make_trial(trial_dir, key).model_copy(update={"commit": commit})
        launch = launcher.start(trial, trial_dir, 1)
        wait(launcher, launch)
        result = result_of(trial_dir)
        assert result.outcome == "ok", launcher.log(launch, trial_dir)
        assert read_journal(trial_dir / "journal.jsonl").packages == installed()
        ran.append((result.environment["git_commit"], result.environment["tree"], result.environment["start"]))
        launcher.stop(launch)
        processes.end_all(key)
    assert [commit for commit, *_ in ran][1:] == turns[1:]
    assert ran[0][1] == source_tree() and len({tree for _, tree, _ in ran}) == 3 and ran[1][1] == ran[3][1]
    assert {start for *_, start in ran} == {"warm"}
    return ran


def no_worktree_is_left(root: Path) -> None:
    trees.worktrees().release()
    assert [path.name for path in (runs_root() / trees.NAME).iterdir()] == [".lock"]
    assert len(git(root, "worktree", "list").splitlines()) == 1


def test_each_trial_runs_the_code_of_its_commit(commits: list[str], tmp_path: Path) -> None:
    launcher = LocalLauncher(POOL)
    in_turns(launcher, [None, commits[0], commits[1], commits[0]], tmp_path)
    launcher.close()
    no_worktree_is_left(tmp_path / "repository")


def test_so_does_each_job_of_a_ray_cluster(stack: Stack, commits: list[str], tmp_path: Path) -> None:
    values = {"name": "local", "device": "cpu", "address": stack.settings.ray_url, "token_file": str(stack.settings.token)}
    in_turns(RayJobLauncher(Pool.model_validate(values)), [None, commits[0], commits[1], commits[0]], tmp_path)
    no_worktree_is_left(tmp_path / "repository")
