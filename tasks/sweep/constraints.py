"""Limits that a setting must keep, as `sweep tune --where` takes them: latency_p99_s<=50ms, peak_memory_bytes<=70GB."""

from __future__ import annotations

import math
import re
from typing import Literal

from pydantic import Field

from experiments.config.errors import ConfigError
from experiments.config.strict import Strict
from experiments.metric import Kind, Metric, Scale
from experiments.metrics import metric_of

OPTION = "--where"
_CONSTRAINT = re.compile(r"^\s*([^<>=!\s]+)\s*([<>=!]+)\s*(\S.*?)\s*$")
_VALUE = re.compile(r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµ%/°]*)$")
_BYTES = {f"{prefix}{unit}": base**power for unit, base in (("B", 1000), ("iB", 1024)) for power, prefix in enumerate(("", *"KMGT"))}
_UNITS: dict[Kind, dict[str, float]] = {
    Kind.BYTES: {name: size for name, size in _BYTES.items() if name != "iB"},
    Kind.SECONDS: {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0},
    Kind.SHARE: {"%": 0.01},
}


class Constraint(Strict):
    """A metric that is to be at most, or at least, a limit in the metric's unit."""

    metric: str
    sign: Literal["<=", ">="]
    limit: float = Field(allow_inf_nan=False)

    @property
    def text(self) -> str:
        """As `--where` takes it, in the metric's unit."""
        return f"{self.metric}{self.sign}{self.limit:.12g}"

    def keeps(self, value: float) -> bool:
        """Whether a value, in the metric's unit, is within the limit."""
        return value <= self.limit if self.sign == "<=" else value >= self.limit


def parse_constraint(text: str) -> Constraint:
    """A constraint as the command line has it. Raises ConfigError for an unknown metric, another sign, or a value of another unit."""
    parts = _CONSTRAINT.match(text)
    if not parts:
        raise ConfigError.one(OPTION, None, text, "is no constraint", f"write it as {OPTION} 'peak_memory_bytes<=70GB'")
    name, sign, value = parts.groups()
    if sign not in ("<=", ">="):
        raise ConfigError.one(OPTION, None, text, f"{sign} is no sign of a constraint", "use <= or >=, in quotes")
    metric = _metric(name)
    return Constraint(metric=name, sign="<=" if sign == "<=" else ">=", limit=_limit(text, value, metric))


def _metric(name: str) -> Metric:
    try:
        metric = metric_of(name, unlisted=False)
    except ConfigError as error:
        hint = error.problems[0].hint
        raise ConfigError.one(OPTION, None, name, "unknown metric", hint) from None
    if metric.of_steps or "*" in name:
        raise ConfigError.one(OPTION, None, name, "is no single figure of a trial", "docs/metrics.md lists those that are")
    return metric


def _limit(text: str, value: str, metric: Metric) -> float:
    found = _VALUE.match(value)
    own = {metric.unit: 1.0} if metric.unit else {}
    units = {"": 1.0, **own, **_UNITS.get(metric.kind, {})}
    if not found or found[2] not in units:
        known = ", ".join(unit for unit in units if unit) or "no unit"
        raise ConfigError.one(OPTION, None, text, f"{value!r} is no value of {metric.name}", f"a number, without a unit or in {known}")
    limit = float(found[1]) * units[found[2]]
    if not math.isfinite(limit) or (metric.scale is Scale.LOG and limit <= 0):
        raise ConfigError.one(OPTION, None, text, f"{metric.name} is always more than 0 and finite", "give such a limit")
    return limit
