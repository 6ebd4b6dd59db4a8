"""Where a process that we start takes Python modules from: ours from one checkout, none from the folder where the user gives a command."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from experiments.config.paths import REPOSITORY


def environment_of(tree: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a process imports from `tree` and from nowhere else in a checkout, whatever its working directory."""
    others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and Path(path).resolve() != REPOSITORY]
    return {"PYTHONPATH": os.pathsep.join([str(tree), *others]), "PYTHONSAFEPATH": "1"}
