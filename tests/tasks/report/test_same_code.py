"""Whether a trial of another tree ran the code of its key: real trees and hashes, of the code here as if it were the commit's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.commits.resolve import CommitError
from cluster.source_tree import source_tree
from experiments.config.paths import REPOSITORY
from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow
from tasks.report import other_code, same_code
from tasks.report.provenance import commit_text, provenance_cautions, strays
from tasks.report.same_code import Told, ran_the_code_of_its_key, told_commit
from tasks.report.whole_sweep import _of_trees
from tasks.sweep.trial_key import code_version
from tests.tasks.cell_support import row, workers
from tests.tasks.plan_support import make_plan

COMMIT, PLANNED = "c" * 40, "a" * 16


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The commits that git is asked for; it has this one alone, with the files of here."""
    commits: list[str] = []

    def resolve(commit: str, root: Path) -> str:
        commits.append(commit)
        if commit != COMMIT:
            raise CommitError(f"no commit {commit} in {root}")
        return commit

    def tree_at(commit: str) -> str | None:
        with suppress(CommitError):
            return source_tree() if resolve(commit, REPOSITORY) else None
        return None

    monkeypatch.setattr(same_code, "resolve", resolve)
    for module in (same_code, other_code):
        monkeypatch.setattr(module, "tree_at", tree_at)
    monkeypatch.setattr(same_code, "tree_of", lambda commit: REPOSITORY)
    same_code._code_at.cache_clear()
    yield commits
    same_code._code_at.cache_clear()


def ran(code: str | None = None, commit: str | None = None, **environment: Any) -> TrialRow:
    one = row(workers(0), environment={"tree": source_tree(), "git_commit": COMMIT, "git_dirty": False, **environment})
    parts = {"code": code or code_version(one.trial.workload, one.trial.device)}
    return replace(one, trial=one.trial.model_copy(update={"key_parts": parts, "commit": commit}))


def test_the_code_of_its_key_ran_where_the_commit_has_that_tree_and_that_code(asked: list[str]) -> None:
    assert ran_the_code_of_its_key(ran()) and ran_the_code_of_its_key(ran())
    assert asked == [COMMIT] * 3, "for the tree each time, which git alone keeps, and once for what the trial imports"


@pytest.mark.parametrize(
    "other",
    [
        {"code": "b" * 16},
        {"tree": "b" * 16},
        {"tree": None},
        {"git_commit": "d" * 40},
        {"git_commit": None},
        {"git_dirty": True},
        {"commit": COMMIT},
    ],
)
def test_else_it_is_not_known(other: dict[str, Any]) -> None:
    assert not ran_the_code_of_its_key(ran(**other))


def test_a_sweep_that_went_on_at_another_commit_is_whole_where_its_trials_import_the_same() -> None:
    same, other = ran(), ran(tree="b" * 16)
    plan = make_plan([same.trial], tree=PLANNED, git={"commit": "e" * 40, "dirty": False})
    alike, strange = (Sweep(Path("nowhere"), plan, [one]) for one in (same, other))
    assert (_of_trees(alike), strays(alike)) == ([], {})
    assert provenance_cautions(alike) == [
        f"1 trial ran at commit {COMMIT[:12]}, where the sweep's plan is of {'e' * 12}: what they import is the same at both."
    ]
    [said] = _of_trees(strange)
    assert said.startswith(f"nowhere: tree {'b' * 16} ran in 1 of 1 trials, and tree {PLANNED} was planned; measure all anew")
    assert provenance_cautions(strange)[-1] == f"1 trial ran at commit {COMMIT[:12]}, where the sweep's plan is of {'e' * 12}."


NO_GIT = "there was no git where the sweep was planned"
CAUTION = f"The commit {COMMIT[:12]} is asserted, not checked: {NO_GIT}"


@pytest.mark.parametrize(
    ("git", "tree", "told", "note", "cautions"),
    [
        ({"checked": False}, None, Told.FOUND, " (git has it with this tree)", []),
        (
            {"checked": False},
            "b" * 16,
            Told.OTHER,
            " (asserted, and its tree is another)",
            [f"{CAUTION}, and git here has it with another tree, as changed files or workloads of one's own make it."],
        ),
        ({"checked": False, "dirty": True}, None, Told.ASSERTED, " with uncommitted changes (asserted, not checked)", [f"{CAUTION}."]),
        ({"checked": True}, "b" * 16, Told.CHECKED, "", []),
        ({}, "b" * 16, Told.CHECKED, "", []),
    ],
)
def test_a_commit_that_was_told_is_checked_by_the_tree_that_git_has_of_it(
    git: dict[str, Any], tree: str | None, told: Told, note: str, cautions: list[str], asked: list[str]
) -> None:
    plan = make_plan([ran().trial], tree=tree or source_tree(), git={"commit": COMMIT, "dirty": False, **git})
    assert (told_commit(plan), commit_text(plan)) == (told, f"{COMMIT[:12]}{note}")
    assert provenance_cautions(Sweep(Path("nowhere"), plan, [])) == cautions
    assert set(asked) == ({COMMIT} if told in (Told.FOUND, Told.OTHER) else set()), "only of one that was asserted"


@pytest.mark.parametrize(("cut", "more"), [(False, ""), (True, ", a shallow clone: after `git fetch --unshallow` it may")])
def test_nothing_is_known_of_a_commit_that_git_does_not_have(cut: bool, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.report.provenance.history_is_cut", lambda: cut)
    plan = make_plan([ran().trial], tree=source_tree(), git={"commit": "d" * 40, "dirty": False, "checked": False})
    assert (told_commit(plan), commit_text(plan)) == (Told.ASSERTED, f"{'d' * 12} (asserted, not checked)")
    [caution] = provenance_cautions(Sweep(Path("nowhere"), plan, []))
    assert caution == f"The commit {'d' * 12} is asserted, not checked: {NO_GIT}, and git here does not show it{more}."


def test_a_shallow_clone_is_known_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    of_somebody = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    commands = [
        ["git", "init", "-q", str(whole)],
        *([*of_somebody, "-C", str(whole), "commit", "-q", "--allow-empty", "-m", text] for text in "ab"),
        ["git", "clone", "-q", "--depth=1", whole.as_uri(), str(cut)],
    ]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    found = []
    for folder in (whole, cut, tmp_path):  # the last is no checkout
        monkeypatch.setattr(same_code, "REPOSITORY", folder)
        same_code.history_is_cut.cache_clear()
        found.append(same_code.history_is_cut())
    same_code.history_is_cut.cache_clear()
    assert found == [False, True, False]


def test_gits_tree_of_a_commit_is_what_its_own_code_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a repository of the packages alone, by a whole name and a short one; whatever workloads of the user's own are set here."""
    monkeypatch.undo()
    at = tmp_path / "repository"
    for package in ("cluster", "experiments"):
        shutil.copytree(REPOSITORY / package, at / package, ignore=shutil.ignore_patterns("__pycache__"))

    def git(*words: str) -> str:
        name = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
        return subprocess.run(["git", "-C", str(at), *name, *words], check=True, capture_output=True, text=True).stdout.strip()

    def committed() -> str:
        git("add", "--all")
        git("commit", "--quiet", "--message", "one more")
        return git("rev-parse", "HEAD")

    git("init", "--quiet")
    first = committed()
    (at / "cluster" / "source_tree.py").write_text((at / "cluster" / "source_tree.py").read_text() + "# changed\n")
    second = committed()
    git("rm", "--quiet", "cluster/source_tree.py")
    early = committed()
    (own := tmp_path / "own" / "workloads").mkdir(parents=True)
    (own / "mine.py").write_text("")
    monkeypatch.setenv(same_code.EXTRA, str(own.parent))
    monkeypatch.setattr(same_code, "REPOSITORY", at)
    same_code.tree_at.cache_clear()
    monkeypatch.delenv(same_code.EXTRA)
    here = source_tree()
    monkeypatch.setenv(same_code.EXTRA, str(own.parent))
    assert [same_code.tree_at(commit) for commit in (first, first[:8])] == [here, here]
    other = same_code.tree_at(second)
    assert other is not None and len(other) == 16 and other != here
    assert [same_code.tree_at(commit) for commit in (early, "f" * 40)] == [None, None]
    same_code.tree_at.cache_clear()
