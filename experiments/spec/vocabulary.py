"""The names and values that a suite may use: the workload's parameters, the pools, and what each takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from experiments import workloads
from experiments.config.credentials import HINT, credentials_in
from experiments.config.errors import ConfigError, choose
from experiments.config.validate import say
from experiments.environment_files import environment_files
from experiments.metric import Metric
from experiments.metrics import metric_of
from experiments.parameters import TrainingParameters
from experiments.spec.matrix import PlannedCell
from experiments.spec.schema import PoolFacts, Suite
from experiments.trial import DEFAULT_ENVIRONMENT, RUN_AXES

BASE = "full"  # the name of the suite without a profile
BAD = object()  # stands for a value that was complained about


class Vocabulary:
    """The names a suite may use. Checks values and converts them to the types of the workload's schema."""

    def __init__(self, workload: str, schema: type[TrainingParameters], pools: Mapping[str, PoolFacts]) -> None:
        self.workload, self.schema, self.pools = workload, schema, pools

    def unknown(self, name: str, others: Iterable[str] = RUN_AXES) -> tuple[str, str] | None:
        """Problem and hint if `name` is neither a parameter nor one of `others`."""
        known = [*others, *self.schema.model_fields]
        return None if name in known else (f"the workload {self.workload} has no such parameter", choose(name, known))

    def unknown_metric(self, name: str) -> tuple[str, str] | None:
        """Problem and hint if no trial can have the metric. A workload outside this repository may evaluate what is not in the registry."""
        try:
            metric = self._metric(name)
        except ConfigError as error:
            return f"unknown metric {name!r}", error.hint
        return (f"{name} is a field of each step, not of the summary", "name a summary metric") if metric.of_steps else None

    def _metric(self, name: str) -> Metric:
        """Raises ConfigError. Where the workload lies is asked only for a metric that is not listed: that looks through all folders."""
        try:
            return metric_of(name, unlisted=False)
        except ConfigError:
            if not workloads.is_extra(self.workload):
                raise
            return metric_of(name)

    def value(self, name: str, value: Any) -> tuple[Any, tuple[str, str] | None]:
        """The value as the workload takes it, or problem and hint. `name` must be known."""
        if name == "commit":
            good = isinstance(value, str) and value.strip() == value != "" and not value.startswith("-")
            return value, None if good else (
                f"is {value!r}, which names no commit",
                "write a branch, tag or hash as text, in quotes",
            )
        if name in (*RUN_AXES, "device"):
            known = self._known(name)
            return value, None if value in known else (f"unknown {name} {value!r}", choose(value, known))
        if isinstance(value, str) and (problem := credentials_in(value)):
            return BAD, (problem, HINT)
        try:
            return _adapter(self.schema, name).validate_python(value), None
        except ValidationError as error:
            return BAD, say(error.errors(include_url=False))

    def _known(self, name: str) -> list[str]:
        """The values that the axis `name`, or `device`, may have. Raises ConfigError for two environments of one name."""
        if name == "environment":
            return [DEFAULT_ENVIRONMENT, *environment_files()]
        return list(self.pools) if name == "pool" else sorted({pool.device for pool in self.pools.values()})


@lru_cache(maxsize=1024)
def _adapter(schema: type[TrainingParameters], name: str) -> TypeAdapter[Any]:
    """What checks one parameter. Each profile of a suite has a vocabulary, and to make these anew took most of the time of reading one."""
    field = schema.model_fields[name]
    kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    nested = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    return TypeAdapter(kind, config=None if nested else ConfigDict(strict=True))


def too_large(cells: Iterable[PlannedCell], pools: Mapping[str, PoolFacts]) -> set[tuple[str, int]]:
    """(pool, devices) of the cells that need more devices than their pool has."""
    needs = {(cell.pool, int(cell.parameters["devices"])) for cell in cells}
    return {(pool, devices) for pool, devices in needs if devices > (pools[pool].capacity or devices)}


def with_pools(suite: Suite, pools: Mapping[str, PoolFacts]) -> Suite:
    """The suite with the device kind of every pool that a cell can be on."""
    names = [*suite.axes.get("pool", []), *(pool for group in suite.linked for pool in group.get("pool", []))]
    names += [entry["pool"] for entry in suite.include if "pool" in entry]
    return suite.model_copy(update={"pools": {str(name): pools[str(name)].device for name in dict.fromkeys(names)}})
