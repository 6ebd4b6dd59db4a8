"""The commit of the code here, and whether the code differs from it. Plans, code packages and trial environments all ask here."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from cluster.source_tree import source_files
from experiments.config.errors import UserError
from experiments.config.paths import REPOSITORY

CODE = ("cluster", "experiments", "flows", "tasks")  # the folders that Python imports from
COMMIT_VARIABLE, DIRTY_VARIABLE, BRANCH_VARIABLE = "SWEEPBENCH_GIT_COMMIT", "SWEEPBENCH_GIT_DIRTY", "SWEEPBENCH_GIT_BRANCH"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # 64 in a repository of git's newer hash
_TIMEOUT_S = 20.0


def git_state(folder: Path = REPOSITORY) -> dict[str, Any]:
    """{"commit": 40 hex digits, "dirty": bool, "checked": bool} of the checkout in `folder`; {} without a commit or without git.

    Dirty means that a file in the folders of code differs from the commit, or is untracked and not ignored: Python would import it all
    the same. So does a source file that is ignored. Files elsewhere in the checkout, such as notes and results, do not count. Code of which
    git tracks nothing, such as a copy in an ignored folder of a checkout, is of no commit: {}.

    On the nodes of a Ray cluster the code has no git history. There SWEEPBENCH_GIT_COMMIT and SWEEPBENCH_GIT_DIRTY carry the state of the
    checkout that the code came from (`as_environment`): there the commit is asserted, and `checked` is False. Raises UserError for a
    SWEEPBENCH_GIT_COMMIT that cannot be one: it would stand on every page of what is measured.
    """
    commit = os.environ.get(COMMIT_VARIABLE)
    if commit:
        if not _COMMIT.fullmatch(commit):
            raise UserError(
                f"{COMMIT_VARIABLE}: {commit!r} is no commit; expected the 40 or 64 hex digits of `git rev-parse HEAD`, or no such variable"
            )
        return {"commit": commit, "dirty": os.environ.get(DIRTY_VARIABLE) == "1", "checked": False}
    try:
        commit, changed = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--", *CODE)
        tracked = set(_git(folder, "ls-files", "-z", "--", *CODE).split("\0"))
    except (OSError, subprocess.SubprocessError):
        return {}
    if not any(tracked):
        return {}
    files = {name for name in source_files(folder) if name.startswith(CODE)}
    return {"commit": commit, "dirty": bool(changed) or not files <= tracked, "checked": True}


def as_environment(state: dict[str, Any]) -> dict[str, str]:
    """The environment variables that tell this state to a process without a checkout; {} for an unknown state."""
    return {COMMIT_VARIABLE: state["commit"], DIRTY_VARIABLE: "1" if state["dirty"] else "0"} if state else {}


def git_branch(folder: Path = REPOSITORY) -> str | None:
    """The branch that is checked out in `folder`; None without git, and on a commit that no branch was checked out for.

    SWEEPBENCH_GIT_BRANCH goes before: CI often checks out a commit alone, and knows the branch by itself.
    """
    told = os.environ.get(BRANCH_VARIABLE, "").strip()
    if told:
        return told
    try:
        return _git(folder, "symbolic-ref", "--short", "-q", "HEAD") or None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    process = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    return process.stdout.strip()
