"""Files that register themselves by their names (suites, nightly definitions, campaigns, environments): ours and the user's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from experiments.config.errors import ConfigError, Problem, choose
from experiments.config.paths import extra_folders
from experiments.config.yaml_document import Document


def named_files(ours: Path, kind: str, pattern: str = "*.yaml") -> dict[str, Path]:
    """Name -> file of the folder `ours`, and of those of its name in the $SWEEPBENCH_EXTRA folders.

    Raises ConfigError if two files have one name.
    """
    files: dict[str, Path] = {}
    for folder in [ours, *(extra / ours.name for extra in extra_folders())]:
        for path in sorted(folder.glob(pattern)):
            if path.stem in files:
                raise ConfigError.one(path, None, "", f"the {kind} {path.stem} is already in {files[path.stem]}", "rename one of them")
            files[path.stem] = path
    return files


def chosen_file(name_or_path: str, files: Callable[[], Mapping[str, Path]], key: str, what: str) -> Path:
    """The YAML file that is named, or given as a path. `key` and `what` it is stand in the ConfigError for an unknown name."""
    if name_or_path.endswith((".yaml", ".yml")) or os.sep in name_or_path:
        return Path(name_or_path)
    found = files()
    if name_or_path not in found:
        raise ConfigError.one(key, None, name_or_path, f"unknown {what}", choose(name_or_path, sorted(found)))
    return found[name_or_path]


def misnamed(document: Document, key: str, value: str, path: Path) -> list[Problem]:
    """The problem of a file that calls itself otherwise than it is named; none where it does not."""
    if value == path.stem:
        return []
    return [document.problem((key,), f"is {value!r}, the file is {path.name}", f"write `{key}: {path.stem}`")]
