"""Which commit the code here is, and whether it differs from it: one answer for plans, packages of code and trials' environments."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from experiments.config.paths import REPOSITORY

CODE = ("cluster", "experiments", "flows", "tasks")  # the folders that Python imports from
COMMIT_VARIABLE, DIRTY_VARIABLE = "SWEEPBENCH_GIT_COMMIT", "SWEEPBENCH_GIT_DIRTY"
_TIMEOUT_S = 20.0


def git_state(folder: Path = REPOSITORY) -> dict[str, Any]:
    """{"commit": 40 hex digits, "dirty": bool} of the checkout in `folder`; {} where there is no commit or no git.

    Dirty: in the folders of code a file differs from the commit, or is there and neither in the commit nor ignored; Python would import
    it all the same. Notes and results elsewhere in the checkout change no code and do not count.

    Where the code was copied without its history, as on the nodes of a Ray cluster, SWEEPBENCH_GIT_COMMIT and SWEEPBENCH_GIT_DIRTY say
    what was known where it came from (`as_environment`).
    """
    given = os.environ.get(COMMIT_VARIABLE)
    if given:
        return {"commit": given, "dirty": os.environ.get(DIRTY_VARIABLE) == "1"}
    try:
        return {"commit": _git(folder, "rev-parse", "HEAD"), "dirty": bool(_git(folder, "status", "--porcelain", "--", *CODE))}
    except (OSError, subprocess.SubprocessError):
        return {}


def as_environment(state: dict[str, Any]) -> dict[str, str]:
    """The environment variables by which a process without a checkout knows this state; {} for an unknown one."""
    return {COMMIT_VARIABLE: state["commit"], DIRTY_VARIABLE: "1" if state["dirty"] else "0"} if state else {}


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    return done.stdout.strip()
