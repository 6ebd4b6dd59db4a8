"""What `sweep data check` finds: how a workload would read a folder, without a suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from experiments import workloads
from experiments.config.errors import ConfigError, Problem, choose
from experiments.config.validate import say
from experiments.spec.vocabulary import Vocabulary
from tasks.sweep.dataset import DatasetError
from tasks.sweep.own_data import Folders, Look, columns_of, is_local

IMAGES = 256  # of each split that are decoded


def check_data(path: str, workload: str, sets: Mapping[str, Any]) -> Look:
    """How `workload`, with these parameters, would read the folder. Raises ConfigError, and DatasetError where it is no data set at all."""
    if not is_local(path):
        raise DatasetError(f"dataset {path} is not on this machine: `sweep data check` looks into a folder; copy some of its files")
    schema = workloads.load(workload).Parameters
    if not columns_of(schema):
        reading = [name for name in workloads.names() if columns_of(workloads.load(name).Parameters)]
        raise ConfigError.one("--workload", None, workload, "reads no data set of your choice", f"these do: {', '.join(reading)}")
    return Folders().look(schema, _parameters(path, workload, sets), IMAGES)


def _parameters(path: str, workload: str, sets: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of the workload. Raises ConfigError, which lists every wrong one."""
    schema = workloads.load(workload).Parameters
    words, values, problems = Vocabulary(workload, schema, {}), dict[str, Any](), list[Problem]()
    for name, value in sets.items():
        if name not in schema.model_fields:
            wrong: tuple[str, str] | None = ("the workload has no such parameter", choose(name, schema.model_fields))
        else:
            values[name], wrong = words.value(name, value)
        if wrong:
            problems.append(Problem("--set", None, name, *wrong))
    if problems:
        raise ConfigError(problems)
    try:
        checked: dict[str, Any] = schema.model_validate({**values, "dataset": path}).model_dump()
    except ValidationError as error:
        raise ConfigError.one("--set", None, "", *say(error.errors(include_url=False)[:1])) from None
    return checked
