"""A trial as the worker gets it, for tests that run a session in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.trial import DataSource, Trial


def cpu_trial(workload: str, parameters: Mapping[str, Any], data: DataSource | None = None) -> Trial:
    """The only trial of a sweep on the CPU. `parameters`: as JSON."""
    names = {"key": "0" * 16, "sweep_id": "s", "suite": "s", "pool": "cpu", "device": "cpu", "cell": "c"}
    return Trial(**names, key_parts={}, workload=workload, repeat=1, index=0, axes={}, parameters=dict(parameters), data=data)
