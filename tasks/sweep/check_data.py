"""What `sweep data check` finds: how a workload would read a folder, without a suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from experiments import workloads
from experiments.config.errors import ConfigError, Problem, choose
from experiments.config.validate import say
from experiments.spec.vocabulary import Vocabulary
from tasks.sweep.dataset import DatasetError
from tasks.sweep.own_data import Folders, is_local

if TYPE_CHECKING:
    from experiments.datasets.own.findings import Inspection


@dataclass(frozen=True)
class DataCheck:
    """What was found, and `broken`: of `looked` images, what is wrong with those that cannot be decoded."""

    found: Inspection
    looked: int
    broken: list[str]

    @property
    def ready(self) -> bool:
        return not self.found.missing and not self.too_many_broken

    @property
    def too_many_broken(self) -> bool:
        """Whether a trial over all rows would be ended by as many corrupt ones: see CorruptRows."""
        from experiments.components.data.images import CORRUPT_SHARE

        return len(self.broken) > CORRUPT_SHARE * self.looked


def check_data(path: str, workload: str, sets: Mapping[str, Any]) -> DataCheck:
    """How `workload`, with these parameters, would read the folder. Raises ConfigError, and DatasetError where it is no data set at all."""
    from experiments.components.data.sample import broken_images

    if not is_local(path):
        raise DatasetError(f"dataset {path} is not on this machine: `sweep data check` looks into a folder; copy some of its files")
    schema = workloads.load(workload).Parameters
    if not getattr(schema, "columns", None):
        reading = [name for name in workloads.names() if getattr(workloads.load(name).Parameters, "columns", None)]
        raise ConfigError.one("--workload", None, workload, "reads no data of your own", f"these do: {', '.join(reading)}")
    parameters = _parameters(path, workload, sets)
    found = Folders().look(schema, parameters)
    columns = {name: kind for name, kind in schema.columns.items() if kind == "image"}
    looked, broken = 0, list[str]()
    for name in columns:
        column = found.settings.get(name, parameters[name])
        for part in found.table.parts.values():
            if column in part.schema.names and not any(name.replace("_", " ") == finding.what for finding in found.missing):
                some, wrong = broken_images(part, column)
                looked, broken = looked + some, broken + wrong
    return DataCheck(found, looked, broken)


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
        return schema.model_validate({**values, "dataset": path}).model_dump()
    except ValidationError as error:
        raise ConfigError.one("--set", None, "", *say(error.errors(include_url=False)[:1])) from None
