"""What a trial's key depends on besides its configuration: the code and the libraries that run it."""

from __future__ import annotations

import hashlib
import importlib
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from cluster.pools.pool import Pool
from experiments import workloads
from experiments.config.paths import REPOSITORY
from experiments.trial import digest

_LIBRARIES = (
    "torch",
    "transformers",
    "diffusers",
    "ray",
    "numpy",
    "pillow",
    "tokenizers",
    "pyarrow",
    "torchao",
    "torch-optimi",
    "optimum-habana",
)


@cache
def code_version(workload: str, device: str) -> str:
    """16 hex digits over the source files whose change can change a trial's result: its workload, its device, the measured loop."""
    module = workloads.load(workload)
    source = Path(str(module.__file__))
    files = [
        source,
        *(Path(str(importlib.import_module(name).__file__)) for name in getattr(module, "BUILDS_ON", ())),  # of which it takes parts
        *sorted(source.parent.glob("_*.py")),
        *sorted((REPOSITORY / "experiments" / "workloads").glob("_*.py")),
        *sorted((REPOSITORY / "experiments" / "workloads" / "layers").glob("*.py")),
        *sorted((REPOSITORY / "cluster" / "worker").glob("*.py")),
        REPOSITORY / "cluster" / "devices" / f"{device}.py",
        *sorted((REPOSITORY / "cluster" / "devices").glob(f"_{device}_*.py")),
    ]
    parts = {str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else path.name: path.read_bytes() for path in files}
    return digest({name: hashlib.sha256(text).hexdigest() for name, text in sorted(parts.items())})


def libraries_version(pool: Pool) -> str:
    """The pool's software: library versions here for an embedded pool, else the pool's declared image and Python."""
    if not pool.embedded or pool.python:
        return digest({"image": pool.image, "python": pool.python})
    return digest({"python": platform.python_version(), **{name: _version(name) for name in _LIBRARIES}})


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@cache
def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the code, {} outside a git checkout."""
    try:
        commit = _git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {}


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()
