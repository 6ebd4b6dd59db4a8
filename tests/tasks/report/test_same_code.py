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
from tasks.report.provenance import provenance_cautions, strays
from tasks.report.same_code import ran_the_code_of_its_key
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
    same_code._at.cache_clear()
    yield commits
    same_code._at.cache_clear()


def ran(code: str | None = None, commit: str | None = None, **environment: Any) -> TrialRow:
    one = row(workers(0), environment={"tree": source_tree(), "git_commit": COMMIT, "git_dirty": False, **environment})
    parts = {"code": code or code_version(one.trial.workload, one.trial.device)}
    return replace(one, trial=one.trial.model_copy(update={"key_parts": parts, "commit": commit}))


def test_the_code_of_its_key_ran_where_the_commit_has_that_tree_and_that_code(asked: list[str]) -> None:
    assert ran_the_code_of_its_key(ran()) and ran_the_code_of_its_key(ran())
    assert asked == [COMMIT], "once"


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
