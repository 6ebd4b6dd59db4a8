"""What git knows of the code that ran elsewhere: of a commit that was told where there was no git, and of trials that ran another tree than
was planned, since a sweep may go on at a later commit.

A tree is all that trials may import. Most commits change nothing of what the trials of one workload do import, of which a trial's key has a
hash. So git is asked for the commit at which the trial says that it ran.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.commits.resolve import TIMEOUT_S, CommitError, git, resolve
from cluster.source_tree import DIGITS, PARTS
from experiments.config.errors import ConfigError
from experiments.config.paths import EXTRA, REPOSITORY
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.store import Plan
from tasks.sweep.trial_key import code_version
from tasks.sweep.variants import tree_of

_TREE = re.compile(f"[0-9a-f]{{{DIGITS}}}")


class Told(StrEnum):
    """What a plan's commit rests on."""

    CHECKED = "checked"  # git said so where the sweep was planned, or the plan is from before that was noted
    FOUND = "found"  # it was asserted there, and here git has the commit, with the plan's tree
    OTHER = "other"  # git has it here with another tree
    ASSERTED = "asserted"  # nobody can tell


def told_commit(plan: Plan) -> Told:
    """What is known of the commit that a plan names. Asks git only of one that was asserted."""
    commit = str(plan.git.get("commit") or "")
    if plan.git.get("checked") is not False:
        return Told.CHECKED
    if not commit or plan.git.get("dirty") or plan.tree is None:
        return Told.ASSERTED
    tree = tree_at(commit)
    return Told.ASSERTED if tree is None else Told.FOUND if tree == plan.tree else Told.OTHER


@cache
def history_is_cut() -> bool:
    """Whether the checkout here is a shallow clone, which does not have the commits from before some date."""
    with suppress(OSError, subprocess.SubprocessError):
        return git(REPOSITORY, "rev-parse", "--is-shallow-repository") == "true"
    return False


def ran_the_code_of_its_key(row: TrialRow) -> bool:
    """Whether the tree that ran is that of the commit which the trial names, and what the trial imports there is what its key says.

    False where that cannot be known: no commit, changes that were not committed, a commit that is not in this repository.
    """
    told = row.environment
    commit, tree = str(told.get("git_commit") or ""), str(told.get("tree") or "")
    if not (commit and tree) or told.get("git_dirty") or row.trial.commit:
        return False
    return tree_at(commit) == tree and _code_at(commit, row.trial.workload, row.trial.device) == row.trial.key_parts.get("code")


@cache
def tree_at(commit: str) -> str | None:
    """The tree of a commit as its own code computes it, without workloads of the user's own; None where git does not have the commit, or it
    is from before there were trees. Of its files only those that count, in a folder that is gone afterwards: a page asks for many commits.
    """
    with suppress(CommitError, OSError, subprocess.SubprocessError), TemporaryDirectory(prefix="sweepbench-") as folder:
        files = ["git", "-C", str(REPOSITORY), "archive", "--format=tar", resolve(commit, REPOSITORY), *PARTS]
        packed = subprocess.run(files, capture_output=True, check=True, timeout=TIMEOUT_S).stdout
        subprocess.run(["tar", "--extract", "--directory", folder], input=packed, capture_output=True, check=True, timeout=TIMEOUT_S)
        if not Path(folder, "cluster", "source_tree.py").is_file():
            return None  # python would take that module from an editable installation
        environment = {name: value for name, value in os.environ.items() if name != EXTRA} | {"PYTHONPATH": folder}
        ask = [sys.executable, "-m", "cluster.source_tree"]
        answer = subprocess.run(ask, cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
        told = answer.stdout.split()
        return told[-1] if told and _TREE.fullmatch(told[-1]) else None
    return None


@cache
def _code_at(commit: str, workload: str, device: str) -> str | None:
    """Hash of what a trial imports there; None where git does not have the commit."""
    try:
        return code_version(workload, device, tree_of(resolve(commit, REPOSITORY)))
    except (CommitError, ConfigError, OSError):
        return None
