"""What a trial's process runs in: which Python, which code, and the file that this code reads its trial from."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from cluster.commits.resolve import CommitError
from cluster.commits.told import told
from cluster.commits.trees import worktrees
from cluster.environments import build
from cluster.launchers import LaunchRefused
from cluster.pools.pool import Pool
from cluster.trial_layout import TOLD, TRIAL
from experiments.atomic_file import atomic_write
from experiments.trial import Trial


@dataclass(frozen=True)
class Variant:
    """`python`: the executable. `tree`: the files of its commit, None for the code here. `inherited`: descriptors that it must inherit."""

    python: str
    tree: Path | None = None
    inherited: tuple[int, ...] = ()

    def has(self, entry: str) -> bool:
        """Whether its code has this module of cluster.worker to start with. Where an early commit has it not, Python might take the one
        of what is installed."""
        return self.tree is None or (self.tree / "cluster" / "worker" / f"{entry}.py").exists()

    def write(self, trial: Trial, trial_dir: Path) -> str:
        """The name of the file in `trial_dir` that the process is to read; written for the code of a commit. Raises LaunchRefused."""
        if self.tree is None:
            return TRIAL
        atomic_write(trial_dir / TOLD, self.text(trial))
        return TOLD

    def text(self, trial: Trial) -> str:
        """The content of that file. Raises LaunchRefused."""
        try:
            return trial.model_dump_json(indent=1) if self.tree is None else told(trial, self.tree)
        except CommitError as error:
            raise LaunchRefused(str(error)) from error


def variant_of(trial: Trial, pool: Pool) -> Variant:
    """Of a trial on this pool. Raises LaunchRefused if its environment or its commit is not there any more."""
    python = pool.python or sys.executable
    if trial.environment_digest:
        found = build.find(trial.environment_digest)
        if found is None:
            where = build.folder_of(trial.environment_digest)
            raise LaunchRefused(f"environment {trial.environment} is not in {where} any more; `sweep resume` builds it again")
        python = found.python
    if trial.commit is None:
        return Variant(python)
    try:
        tree = worktrees().tree(trial.commit)
    except CommitError as error:
        raise LaunchRefused(str(error)) from error
    return Variant(python, tree, (worktrees().descriptor(trial.commit),))
