"""Whether a trial of another tree ran the code of its key: real trees and hashes, of the code here as if it were the commit's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.commits.resolve import CommitError
from cluster.source_tree import source_tree
from experiments.config.paths import REPOSITORY
from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow
from tasks.report import same_code
from tasks.report.provenance import commit_text, provenance_cautions, strays
from tasks.report.same_code import Told, ran_the_code_of_its_key, told_commit
from tasks.report.whole_sweep import _of_trees
from tasks.sweep.trial_key import code_version
from tests.tasks.cell_support import row, workers
from tests.tasks.plan_support import make_plan

COMMIT, PLANNED = "c" * 40, "a" * 16


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The commits that git is asked for; it has this one alone."""
    commits: list[str] = []

    def tree_of(commit: str) -> Path:
        commits.append(commit)
        if commit != COMMIT:
            raise CommitError(f"no commit {commit}")
        return REPOSITORY

    monkeypatch.setattr(same_code, "tree_of", tree_of)
    for known in (same_code.tree_at, same_code._code_at):
        known.cache_clear()
    yield commits
    for known in (same_code.tree_at, same_code._code_at):
        known.cache_clear()


def ran(code: str | None = None, commit: str | None = None, **environment: Any) -> TrialRow:
    one = row(workers(0), environment={"tree": source_tree(), "git_commit": COMMIT, "git_dirty": False, **environment})
    parts = {"code": code or code_version(one.trial.workload, one.trial.device)}
    return replace(one, trial=one.trial.model_copy(update={"key_parts": parts, "commit": commit}))


def test_the_code_of_its_key_ran_where_the_commit_has_that_tree_and_that_code(asked: list[str]) -> None:
    assert ran_the_code_of_its_key(ran()) and ran_the_code_of_its_key(ran())
    assert asked == [COMMIT, COMMIT], "for the tree and for what the trial imports, once each"


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
    assert _of_trees(strange) == [f"nowhere: tree {'b' * 16} ran in 1 of 1 trials, and tree {PLANNED} was planned"]
    assert provenance_cautions(strange)[-1] == f"1 trial ran at commit {COMMIT[:12]}, where the sweep's plan is of {'e' * 12}."


NO_GIT = "there was no git where the sweep was planned"
CAUTION = f"The commit {COMMIT[:12]} is asserted, not checked: {NO_GIT}"


@pytest.mark.parametrize(
    ("git", "tree", "told", "note", "cautions"),
    [
        ({"checked": False}, None, Told.FOUND, " (checked by its tree)", []),
        (
            {"checked": False},
            "b" * 16,
            Told.OTHER,
            " (asserted, and its tree is another)",
            [f"{CAUTION}, and git here has it with another tree than was planned."],
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
    assert asked == [COMMIT] * (told in (Told.FOUND, Told.OTHER)), "only of one that was asserted"


def test_nothing_is_known_of_a_commit_that_git_does_not_have() -> None:
    plan = make_plan([ran().trial], tree=source_tree(), git={"commit": "d" * 40, "dirty": False, "checked": False})
    assert (told_commit(plan), commit_text(plan)) == (Told.ASSERTED, f"{'d' * 12} (asserted, not checked)")
