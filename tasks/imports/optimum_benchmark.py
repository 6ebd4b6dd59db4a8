"""JSON of optimum-benchmark (github.com/huggingface/optimum-benchmark) 0.5 to 0.x: benchmark.json, or benchmark_report.json alone.

benchmark.json has `config` (name, backend, scenario, launcher, environment) and `report`. A report has an object for each target (load,
prefill, decode, per_token, train, ...), with memory, latency, throughput, energy and efficiency, each with its unit, or null.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, FiniteFloat

from experiments.config.errors import ConfigError
from tasks.imports.checked import checked, scalars
from tasks.imports.model import Origin, OthersResult, Read, Value

GROUPS = ("memory", "latency", "throughput", "energy", "efficiency")
_LEAST = (0, 5)
_UNITS = {"count": "", "stdev_": "%"}  # of fields whose unit is not their group's


class _Group(BaseModel, extra="allow"):
    """What was measured of one kind. Every field besides these is a number, or null."""

    __pydantic_extra__: dict[str, FiniteFloat | None] = Field(init=False)
    unit: str
    values: list[FiniteFloat] = Field(default_factory=list)


class _Target(BaseModel):
    memory: _Group | None = None
    latency: _Group | None = None
    throughput: _Group | None = None
    energy: _Group | None = None
    efficiency: _Group | None = None


class _Config(BaseModel):
    name: str
    backend: dict[str, Any] = Field(default_factory=dict)
    scenario: dict[str, Any] = Field(default_factory=dict)
    launcher: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, Any] = Field(default_factory=dict)


class _Benchmark(BaseModel):
    report: dict[str, _Target]
    config: _Config


def is_optimum(content: dict[str, Any]) -> bool:
    """Whether an object looks like one of the two files."""
    if set(content) >= {"config", "report"}:
        return True
    return bool(content) and all(isinstance(target, dict) and set(target) & {*GROUPS} for target in content.values())


def read_optimum(path: Path, content: dict[str, Any]) -> Read:
    """What a file holds. Raises ConfigError for keys that are wrong, a version before 0.5 or after 0.x, and where nothing was measured."""
    whole = "report" in content and "config" in content
    told = content if whole else {"report": content, "config": {"name": path.resolve().parent.name}}
    benchmark = checked(_Benchmark, told, path)
    version = benchmark.config.environment.get("optimum_benchmark_version")
    if version is not None:
        _check_version(path, str(version))
    parts = {"backend": benchmark.config.backend, "scenario": benchmark.config.scenario, "launcher": benchmark.config.launcher}
    settings = scalars(parts)
    results = [
        OthersResult(name=f"{benchmark.config.name} · {name}", file=path.name, settings=settings, values=values, samples=_samples(target))
        for name, target in benchmark.report.items()
        if (values := _values(target))
    ]
    if not results:
        raise ConfigError.one(path, None, "report", "holds no measurement", "give the file of a run that ended")
    names = {name: ", ".join(map(str, value)) for name, value in benchmark.config.environment.items() if isinstance(value, list)}  # `gpu`
    environment = {name: str(value).strip() for name, value in scalars(benchmark.config.environment | names).items()}
    return Read(Origin.OPTIMUM_BENCHMARK, results, environment, str(version) if version else None)


def _check_version(path: Path, version: str) -> None:
    found = re.match(r"(\d+)\.(\d+)", version)
    if not found or not (_LEAST <= (int(found[1]), int(found[2])) < (1, 0)):
        key = "config.environment.optimum_benchmark_version"
        raise ConfigError.one(path, None, key, f"is {version!r}, whose files are not known here", "files of 0.5 and later 0.x are read")


def _values(target: _Target) -> list[Value]:
    values = []
    for group in GROUPS:
        measured: _Group | None = getattr(target, group)
        for name, value in (measured.__pydantic_extra__ if measured else {}).items():
            if measured and value is not None:
                unit = _UNITS.get(name, measured.unit)
                values.append(Value(name=group if name == "value" else f"{group}_{name}", value=value, unit=unit))
    return values


def _samples(target: _Target) -> dict[str, list[float]]:
    groups = {group: getattr(target, group) for group in GROUPS}
    return {f"{group}_mean": measured.values for group, measured in groups.items() if measured and measured.values}
