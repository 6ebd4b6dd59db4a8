"""What a trial ran on: everything that could explain a difference between two trials with equal parameters."""

from __future__ import annotations

import os
import platform
import socket
from importlib import metadata
from typing import Any

from cluster.devices import Device
from cluster.devices._processor import model_name
from cluster.git_state import git_state
from cluster.packages import installed
from cluster.source_tree import running_tree
from cluster.worker.host_identity import host_id
from cluster.worker.torch_internals import alloc_conf
from experiments.trial import digest

LIBRARIES = (
    "torch",
    "torch-optimi",
    "transformers",
    "diffusers",
    "ray",
    "torchvision",
    "numpy",
    "pillow",
    "pyarrow",
    "tokenizers",
    "triton",
)


def environment(device: Device, world_size: int, threads: int | None) -> dict[str, Any]:
    """Hardware, versions and code state as plain scalars; None where unknown. Contains host names, but no paths and no secrets."""
    git = git_state()
    return {
        **device.describe(),
        "emulated": device.emulated,
        "world_size": world_size,
        "threads": threads,
        "start": os.environ.get("SWEEPBENCH_START", "fresh"),  # warm: forked from a process that had made the imports
        "alloc_conf": alloc_conf(),
        **{name: _version(name) for name in LIBRARIES},
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "host_id": host_id(device.accelerator_ids()),
        "os": platform.platform(),
        "cpu": model_name(),
        "cores": len(os.sched_getaffinity(0)),
        "image": os.environ.get("SWEEPBENCH_IMAGE"),
        "git_commit": git.get("commit"),
        "git_dirty": git.get("dirty"),
        "git_checked": git.get("checked"),
        "tree": running_tree(),
        "packages": packages_digest(),
    }


def packages_digest() -> str:
    """16 hex digits for the versions of all installed packages, which the journal lists beside the environment."""
    return digest(installed())


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
