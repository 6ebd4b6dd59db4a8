"""Folders that the environment names: where results are written, and where a user keeps suites, workloads and pools of their own."""

from __future__ import annotations

import os
from pathlib import Path

from experiments.config.errors import ConfigError

EXTRA = "SWEEPBENCH_EXTRA"  # the variable
REPOSITORY = Path(__file__).resolve().parents[2]  # where experiments/, cluster/, tasks/ and flows/ lie


def runs_root(root: Path = REPOSITORY) -> Path:
    """Folder of everything that is written, there or not: $SWEEPBENCH_RUNS, else runs/ of `root`, wherever the command is given.

    Raises ConfigError where that is a file, or lies below one.
    """
    folder = Path(os.environ.get("SWEEPBENCH_RUNS") or root / "runs").resolve()
    there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if not there.is_dir():
        raise ConfigError.one("SWEEPBENCH_RUNS", None, "", f"{there} is a file", "move it away, or name a folder: it is made if need be")
    return folder


def extra_folders() -> list[Path]:
    """Folders of $SWEEPBENCH_EXTRA; each may hold suites/, workloads/ and pools.yaml. Raises ConfigError for one that is not there."""
    folders = named_extra_folders()
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError.one(EXTRA, None, "", f"{folder} is not a folder", f"name folders, separated by {os.pathsep!r}")
    return folders


def named_extra_folders() -> list[Path]:
    """As `extra_folders`, whether they are there or not."""
    return [Path(text).resolve() for text in filter(None, os.environ.get(EXTRA, "").split(os.pathsep))]
