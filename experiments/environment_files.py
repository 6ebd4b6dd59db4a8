"""The files that describe environments: sets of library versions in which trials can run. cluster/environments builds them."""

from __future__ import annotations

from pathlib import Path

from experiments.config.errors import ConfigError
from experiments.config.named_files import named_files
from experiments.trial import DEFAULT_ENVIRONMENT

_HERE = Path(__file__).resolve().parent / "environments"


def environment_files() -> dict[str, Path]:
    """Name -> file, sorted, of experiments/environments here and of environments/ in each $SWEEPBENCH_EXTRA folder.

    Raises ConfigError if two files have one name, or one has the name that means no environment.
    """
    files = named_files(_HERE, "environment", "*.txt")
    if reserved := files.get(DEFAULT_ENVIRONMENT):
        raise ConfigError.one(reserved, None, "", f"`{DEFAULT_ENVIRONMENT}` means the pool's own Python", "choose another name")
    return dict(sorted(files.items()))
