"""A trial as another commit's code reads it. The code of a commit is a small tree here, whose processes are real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.commits.resolve import CommitError
from cluster.commits.told import check, schema_of, told
from experiments import workloads
from experiments.non_default_parameters import default_values
from experiments.trial import Trial
from tests.tasks.plan_support import make_trial

FILES = {
    "cluster/__init__.py": "",
    "experiments/__init__.py": "",
    "experiments/trial.py": """
from pydantic import BaseModel
class Trial(BaseModel, extra="forbid"):
    key: str
    workload: str
    parameters: dict
""",
    "experiments/workloads.py": """
from types import SimpleNamespace
from typing import Literal
from pydantic import BaseModel
class Parameters(BaseModel, extra="forbid"):
    steps: int = 7
    precision: Literal["fp32", "bf16"] = "fp32"
def load(name):
    if name != "synthetic":
        raise SystemExit(f"unknown workload {name}")
    return SimpleNamespace(Parameters=Parameters)
""",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / ("c" * 40) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / ("c" * 40)


def trial_of(**parameters: Any) -> Trial:
    plain = default_values(workloads.load("synthetic").Parameters)
    return make_trial().model_copy(update={"parameters": {**plain, **parameters}, "commit": "c" * 40, "environment": "other"})


def test_it_gets_the_fields_and_parameters_that_it_knows(tree: Path) -> None:
    trial = trial_of(steps=200)
    assert json.loads(told(trial, tree)) == {
        "key": trial.key,
        "workload": "synthetic",
        "parameters": {"steps": 200, "precision": "fp32"},  # also what is a default here: there it may be another one
    }
    assert schema_of(tree, "synthetic").tree is None, "from before there were trees"
    check([trial], tree)


def test_a_parameter_that_it_would_ignore_is_named(tree: Path) -> None:
    with pytest.raises(CommitError, match="commit cccccccccccc is too old: its synthetic does not know optimizer: lion, seed: 5"):
        told(trial_of(optimizer="lion", seed=5), tree)


def test_a_value_that_it_refuses_is_told(tree: Path) -> None:
    with pytest.raises(CommitError, match=r"commit cccccccccccc cannot run these trials: .*'fp32' or 'bf16'"):
        check([trial_of(), trial_of(precision="fp16")], tree)


def test_a_workload_that_it_does_not_have_is_told(tree: Path) -> None:
    with pytest.raises(CommitError, match="is too old for the workload bert: unknown workload bert"):
        schema_of(tree, "bert")


def test_code_that_python_would_take_from_elsewhere_is_not_taken_for_the_commits(tree: Path) -> None:
    (tree / "cluster" / "__init__.py").unlink()
    with pytest.raises(CommitError, match=r"is too old for the workload synthetic: python takes cluster from .*, not from the commit"):
        schema_of(tree, "synthetic")
