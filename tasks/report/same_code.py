"""Whether a trial that ran another tree than was planned ran the code that its key says: a sweep may go on at a later commit.

A tree is all that trials may import. Most commits change nothing of what the trials of one workload do import, of which a trial's key has a
hash. So git is asked for the commit at which the trial says that it ran.
"""

from __future__ import annotations

from functools import cache

from cluster.commits.resolve import CommitError
from cluster.commits.told import schema_of
from experiments.config.errors import ConfigError
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.trial_key import code_version
from tasks.sweep.variants import tree_of


def ran_the_code_of_its_key(row: TrialRow) -> bool:
    """Whether the tree that ran is that of the commit which the trial names, and what the trial imports there is what its key says.

    False where that cannot be known: no commit, changes that were not committed, a commit that is not in this repository.
    """
    told = row.environment
    commit, tree = str(told.get("git_commit") or ""), str(told.get("tree") or "")
    if not (commit and tree) or told.get("git_dirty") or row.trial.commit:
        return False
    return _at(commit, row.trial.workload, row.trial.device) == (tree, row.trial.key_parts.get("code"))


@cache
def _at(commit: str, workload: str, device: str) -> tuple[str | None, str] | None:
    """(tree, hash of the code that a trial imports) of a commit; None where git does not have it, or it is too old."""
    try:
        folder = tree_of(commit)
        return schema_of(folder, workload).tree, code_version(workload, device, folder)
    except (CommitError, ConfigError, OSError):
        return None
