"""What git knows of the code that ran elsewhere: of a commit that was told where there was no git, and of trials that ran another tree than
was planned, since a sweep may go on at a later commit.

A tree is all that trials may import. Most commits change nothing of what the trials of one workload do import, of which a trial's key has a
hash. So git is asked for the commit at which the trial says that it ran.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache

from cluster.commits.resolve import CommitError
from cluster.commits.told import schema_of
from experiments.config.errors import ConfigError
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.store import Plan
from tasks.sweep.trial_key import code_version
from tasks.sweep.variants import tree_of


class Told(StrEnum):
    """What a plan's commit rests on."""

    CHECKED = "checked"  # git said so where the sweep was planned
    FOUND = "found"  # it was asserted there, and here git has the commit, with the plan's tree
    OTHER = "other"  # git has it here with another tree
    ASSERTED = "asserted"  # nobody can tell


def told_commit(plan: Plan) -> Told:
    """What is known of the commit that a plan names. Asks git only of one that was asserted."""
    commit = str(plan.git.get("commit") or "")
    if plan.git.get("checked") is not False:
        return Told.CHECKED
    workload = next((trial.workload for trial in plan.trials if not trial.commit), None)
    if not commit or plan.git.get("dirty") or plan.tree is None or workload is None:
        return Told.ASSERTED
    tree = tree_at(commit, workload)
    return Told.ASSERTED if tree is None else Told.FOUND if tree == plan.tree else Told.OTHER


def ran_the_code_of_its_key(row: TrialRow) -> bool:
    """Whether the tree that ran is that of the commit which the trial names, and what the trial imports there is what its key says.

    False where that cannot be known: no commit, changes that were not committed, a commit that is not in this repository.
    """
    told = row.environment
    commit, tree = str(told.get("git_commit") or ""), str(told.get("tree") or "")
    if not (commit and tree) or told.get("git_dirty") or row.trial.commit:
        return False
    workload, code = row.trial.workload, row.trial.key_parts.get("code")
    return tree_at(commit, workload) == tree and _code_at(commit, workload, row.trial.device) == code


@cache
def tree_at(commit: str, workload: str) -> str | None:
    """The tree of a commit as its own code computes it; None where git does not have it, or it is from before there were trees."""
    try:
        return schema_of(tree_of(commit), workload).tree
    except (CommitError, ConfigError, OSError):
        return None


@cache
def _code_at(commit: str, workload: str, device: str) -> str | None:
    """Hash of what a trial imports there; None where git does not have the commit."""
    try:
        return code_version(workload, device, tree_of(commit))
    except (CommitError, ConfigError, OSError):
        return None
