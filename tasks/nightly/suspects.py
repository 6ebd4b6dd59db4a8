"""Which commits between a good and a bad one can have changed a cell: those that touch the code that its trials run."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from cluster.commits.resolve import TIMEOUT_S
from cluster.commits.trees import worktrees
from experiments.config.paths import REPOSITORY
from experiments.trial import Trial
from tasks.sweep.trial_key import code_files


def suspects(commits: Sequence[str], good: str, trial: Trial) -> list[str]:
    """Those of `commits` (oldest first, the last one is bad) that change a file which trials of the cell import, at `good` or at the last.

    What both ends import is enough: a file that only commits between them import is of no effect at the end. All commits where none
    touches such a file, as where user's workloads changed. Raises CommitError, ConfigError.
    """
    files: set[str] = set()
    for end in (good, commits[-1]):
        tree = worktrees().tree(end)
        paths = code_files(trial.workload, trial.device, tree).values()
        files |= {path.relative_to(tree).as_posix() for path in paths if path.is_relative_to(tree)}
    touching = [commit for commit in commits if _touches(commit, sorted(files))]
    return touching or list(commits)


def _touches(commit: str, files: Sequence[str]) -> bool:
    """Whether a commit changes one of these files against its first parent."""
    command = ["git", "-C", str(REPOSITORY), "diff", "--quiet", f"{commit}^1", commit, "--", *files]
    return subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT_S).returncode != 0
