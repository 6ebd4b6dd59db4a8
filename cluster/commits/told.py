"""A trial as the code of its commit reads it: that code may not know every field and parameter of today."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cluster.commits.resolve import CommitError
from cluster.python_path import environment_of
from experiments import workloads
from experiments.non_default_parameters import default_values, non_default
from experiments.trial import Trial

_TIMEOUT_S = 120.0
_SCHEMA = """
import json, os, sys
import cluster, experiments
from experiments import workloads
from experiments.trial import Trial
for package in (cluster, experiments):
    if not str(package.__file__).startswith(sys.argv[2]):
        raise SystemExit(f"python takes {package.__name__} from {package.__file__}, not from the commit")
schema = workloads.load(sys.argv[1]).Parameters
tree = None
if os.path.exists(os.path.join(sys.argv[2], "cluster", "source_tree.py")):  # else an editable installation would give its own
    from cluster.source_tree import source_tree
    tree = source_tree()
print(json.dumps({"trial": list(Trial.model_fields), "parameters": list(schema.model_fields), "tree": tree}))
"""
_VALIDATE = """
import json, sys
from experiments import workloads
from experiments.trial import Trial
for text in json.load(sys.stdin):
    trial = Trial.model_validate_json(text)
    workloads.load(trial.workload).Parameters.model_validate(trial.parameters)
"""


@dataclass(frozen=True)
class Schema:
    """What a commit's code knows: fields of a trial, parameters of a workload. `tree`: its source_tree; None before there was one."""

    trial: frozenset[str]
    parameters: frozenset[str]
    tree: str | None


@cache
def schema_of(tree: Path, workload: str) -> Schema:
    """What the code in `tree` knows of the workload. Asks a process of that code, once. Raises CommitError for one that is too old."""
    found = json.loads(_ask(tree, _SCHEMA, workload, str(tree), why=f"is too old for the workload {workload}"))
    return Schema(frozenset(found["trial"]), frozenset(found["parameters"]), found["tree"])


def told(trial: Trial, tree: Path) -> str:
    """trial.json for the code in `tree`: without the fields and parameters that it does not know.

    They must have the values that mean nothing special. Raises CommitError, naming them, for others, which that code would ignore.
    """
    schema = schema_of(tree, trial.workload)
    plain = default_values(workloads.load(trial.workload).Parameters)
    new = {name: value for name, value in trial.parameters.items() if name not in schema.parameters}
    wanted = [f"{name}: {value}" for name, value in non_default(new, plain).items()]
    if wanted:
        raise CommitError(f"commit {tree.name[:12]} is too old: its {trial.workload} does not know {', '.join(sorted(wanted))}")
    fields = trial.model_dump(mode="json", include=set(schema.trial))
    return json.dumps({**fields, "parameters": {name: value for name, value in trial.parameters.items() if name not in new}}, indent=1)


def check(trials: Sequence[Trial], tree: Path) -> None:
    """Raise CommitError if the code in `tree` cannot read these trials, or refuses a value that they have."""
    _validate(tree, json.dumps([told(trial, tree) for trial in trials]))


@cache
def _validate(tree: Path, texts: str) -> None:
    _ask(tree, _VALIDATE, why="cannot run these trials", given=texts)


def _ask(tree: Path, code: str, *arguments: str, why: str, given: str = "") -> str:
    command: list[Any] = [sys.executable, "-P", "-c", code, *arguments]
    variables = {**os.environ, **environment_of(tree, os.environ)}
    try:
        done = subprocess.run(
            command, cwd=tree, env=variables, input=given, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CommitError(f"commit {tree.name[:12]} {why}: {error}") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip() and "errors.pydantic.dev" not in line]
        raise CommitError(f"commit {tree.name[:12]} {why}: {' '.join(lines[-3:])[:500]}")
    return done.stdout
