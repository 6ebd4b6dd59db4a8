"""The files that describe environments: sets of library versions in which trials can run. cluster/environments builds them."""

from __future__ import annotations

from pathlib import Path

from experiments.config.errors import ConfigError
from experiments.config.paths import extra_folders
from experiments.trial import DEFAULT_ENVIRONMENT

_HERE = Path(__file__).resolve().parent / "environments"


def environment_files() -> dict[str, Path]:
    """Name -> file, sorted, of experiments/environments here and of environments/ in each $SWEEPBENCH_EXTRA folder.

    Raises ConfigError if two files have one name, or one has the name that means no environment.
    """
    files: dict[str, Path] = {}
    for folder in [_HERE, *(extra / "environments" for extra in extra_folders())]:
        for path in sorted(folder.glob("*.txt")):
            if path.stem == DEFAULT_ENVIRONMENT:
                raise ConfigError.one(path, None, "", f"`{DEFAULT_ENVIRONMENT}` means the pool's own Python", "choose another name")
            if path.stem in files:
                raise ConfigError.one(path, None, "", f"the environment {path.stem} is already in {files[path.stem]}", "rename one of them")
            files[path.stem] = path
    return dict(sorted(files.items()))
