"""BridgeTower that writes down each rank's weights."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from experiments.components.workload import Batch, Context
from experiments.workloads import bridgetower
from experiments.workloads.bridgetower.workload import BridgeTower


class Parameters(bridgetower.Parameters):
    """BridgeTower's, and where to write."""

    record_dir: str | None = Field(None)


def build(context: Context) -> Watched:
    return Watched(context)


class Watched(BridgeTower):
    """See _watched.py."""

    def loss(self, model: Any, batch: Batch) -> Any:
        from experiments.workloads._watched import record

        record(self.context, model)
        return super().loss(model, batch)
