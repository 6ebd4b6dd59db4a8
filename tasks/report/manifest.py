"""The manifest of a published folder: a checksum for each of its files, and whether they still are what `sweep publish` wrote."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from cluster.trial_layout import PLAN
from experiments.atomic_file import atomic_write
from tasks.analysis.results import ResultsError, load_sweep
from tasks.sweep.seal import why_unsealed

MANIFEST = "manifest.json"


def write_manifest(folder: Path) -> None:
    """The checksums (SHA-256) of all files below `folder`. Raises OSError."""
    content = {
        "schema_version": 1,
        "written_by": "sweep publish",
        "files": {name: _checksum(folder / name) for name in files_below(folder)},
    }
    atomic_write(folder / MANIFEST, json.dumps(content, indent=1) + "\n")


def files_below(folder: Path) -> list[str]:
    """Names of all files below `folder` but its manifest, sorted."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if name != MANIFEST)


def listed_files(folder: Path) -> dict[str, str]:
    """Name -> SHA-256, as the manifest says. Raises ResultsError for a folder without a readable manifest."""
    path = folder / MANIFEST
    try:
        content: Any = json.loads(path.read_text())
        return {str(name): str(checksum) for name, checksum in content["files"].items()}
    except (FileNotFoundError, NotADirectoryError):
        raise ResultsError(f"{path} does not exist: {folder} was not written by `sweep publish`") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{path} is no manifest: {error}") from error


def check_published(folder: Path) -> list[str]:
    """What is wrong with a published folder, a sentence for each file; [] if it is as it was written. Raises ResultsError."""
    listed, there = listed_files(folder), set(files_below(folder))
    problems = [f"{folder / name} is missing" for name in listed if name not in there]
    problems += [f"{folder / name} is not in the manifest" for name in sorted(there - set(listed))]
    problems += [
        f"{folder / name} was changed" for name, checksum in listed.items() if name in there and _checksum(folder / name) != checksum
    ]
    for plan in sorted(folder.rglob(PLAN)):
        if why := why_unsealed(plan):
            problems.append(why)
            continue
        sweep = load_sweep(plan.parent)
        problems += [row.problem or f"{plan}: trial {row.trial.key} has no result" for row in sweep.rows if row.problem or not row.result]
    return problems


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
