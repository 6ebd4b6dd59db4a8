"""What a trial ran on: everything that could explain why two trials differ though their parameters do not."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from cluster.devices import Device
from cluster.devices.cpu import model_name
from experiments.config.paths import REPOSITORY

LIBRARIES = ("torch", "torch-optimi", "transformers", "diffusers", "ray", "torchvision", "numpy", "pillow", "pyarrow", "tokenizers")


def environment(device: Device, world_size: int, threads: int | None) -> dict[str, Any]:
    """Plain scalars; null where unknown. Host names and versions, no paths and no secrets."""
    commit, dirty = git_state(REPOSITORY)
    return {
        **device.describe(),
        "emulated": device.emulated,
        "world_size": world_size,
        "threads": threads,
        **{name: _version(name) for name in LIBRARIES},
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "os": platform.platform(),
        "cpu": model_name(),
        "cores": len(os.sched_getaffinity(0)),
        "image": os.environ.get("SWEEPBENCH_IMAGE"),
        "git_commit": commit,
        "git_dirty": dirty,
    }


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """(commit, whether tracked files differ from it). SWEEPBENCH_GIT_COMMIT says so where the code was copied without git."""
    given = os.environ.get("SWEEPBENCH_GIT_COMMIT")
    if given:
        return given, os.environ.get("SWEEPBENCH_GIT_DIRTY") == "1"
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return commit, bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
