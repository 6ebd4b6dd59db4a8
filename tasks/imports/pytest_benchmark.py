"""JSON of pytest-benchmark (github.com/ionelmc/pytest-benchmark) 3 to 5, by --benchmark-json or --benchmark-save. Times are s a call."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, FiniteFloat

from experiments.config.errors import ConfigError
from tasks.imports.checked import checked, scalars
from tasks.imports.model import Origin, OthersResult, Read, Value

_VERSIONS = ("3", "4", "5")
_MACHINE = ("node", "processor", "machine", "system", "release", "python_implementation", "python_version", "cpu.brand_raw", "cpu.brand")


class _Stats(BaseModel):
    mean: FiniteFloat
    median: FiniteFloat
    stddev: FiniteFloat
    min: FiniteFloat
    max: FiniteFloat
    rounds: int
    iterations: int
    ops: FiniteFloat | None = None
    data: list[FiniteFloat] = Field(default_factory=list)  # a round each; only with --benchmark-json or --benchmark-save-data


class _Test(BaseModel):
    fullname: str
    group: str | None = None
    params: dict[str, Any] | None = None
    extra_info: dict[str, Any] = Field(default_factory=dict)
    stats: _Stats


class _File(BaseModel):
    benchmarks: list[_Test]
    machine_info: dict[str, Any]
    commit_info: dict[str, Any] | None = None
    datetime: str
    version: str


def is_pytest(content: dict[str, Any]) -> bool:
    """Whether an object looks like such a file."""
    return {"benchmarks", "machine_info"} <= set(content)


def read_pytest(path: Path, content: dict[str, Any]) -> Read:
    """What a file holds. Raises ConfigError for keys that are wrong, another version, and where there is no benchmark."""
    file = checked(_File, content, path)
    if file.version.partition(".")[0] not in _VERSIONS:
        raise ConfigError.one(path, None, "version", f"is {file.version!r}, whose files are not known here", "files of 3, 4 and 5 are read")
    if not file.benchmarks:
        raise ConfigError.one(path, None, "benchmarks", "is empty: no test of that run used the fixture `benchmark`", "give another file")
    try:
        measured = datetime.fromisoformat(file.datetime)
    except ValueError:
        raise ConfigError.one(
            path, None, "datetime", f"is {file.datetime!r}", "should be a date and time such as 2026-11-22T10:00:00"
        ) from None
    if measured.tzinfo is None:
        measured = measured.replace(tzinfo=UTC)  # versions before 5 write UTC without saying so
    machine, commit = scalars(file.machine_info), scalars(file.commit_info or {})
    environment = {name: str(machine[name]) for name in _MACHINE if machine.get(name)}
    environment |= {f"commit.{name}": str(commit[name]) for name in ("id", "branch", "dirty", "project") if name in commit}
    results = [_result(path, test) for test in file.benchmarks]
    return Read(Origin.PYTEST_BENCHMARK, results, environment, file.version, measured.timestamp())


def _result(path: Path, test: _Test) -> OthersResult:
    stats = test.stats
    values = [Value(name=name, value=getattr(stats, name), unit="s") for name in ("mean", "median", "stddev", "min", "max")]
    values += [Value(name="ops", value=stats.ops, unit="1/s")] if stats.ops is not None else []
    values += [Value(name=name, value=getattr(stats, name)) for name in ("rounds", "iterations")]
    settings = {**({"group": test.group} if test.group else {}), **scalars(test.params or {}), **scalars(test.extra_info, "extra_info.")}
    return OthersResult(
        name=test.fullname, file=path.name, settings=settings, values=values, samples={"mean": stats.data} if stats.data else {}
    )
