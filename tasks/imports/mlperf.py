"""Logs of MLPerf Training: lines `:::MLLOG {json}` among others, as mllog of github.com/mlcommons/logging writes them since v0.7.

A result runs from `run_start` to `run_stop`; that time is MLPerf's metric (training_rules.adoc, "Run results"). `tracked_stats` has the
throughput and `eval_accuracy` the quality, both in units of the benchmark's own, which a log does not name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

from pydantic import BaseModel, Field, FiniteFloat

from experiments.config.errors import ConfigError
from tasks.imports.checked import checked
from tasks.imports.model import Origin, OthersResult, Read, Value

MARK = ":::MLLOG "
EARLY = ":::MLPv0."  # v0.5 and v0.6, another format
_UNREADABLE = "[convert-error:"  # what mllog writes where it cannot write JSON
# Points in time that say what happened or was measured: the last of many losses is no setting
_HAPPENED = ("cache_clear", "weights_initialization", "train_samples", "eval_samples")
_MEASURED = ("tracked_stats", "eval_accuracy", "eval_error", "eval_loss", "train_loss", "throughput")


class _Event(BaseModel):
    """What follows the mark in a line."""

    key: str
    time_ms: FiniteFloat
    event_type: Literal["INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"]
    value: Any = None
    metadata: dict[str, Any] | None = Field(default_factory=dict)
    line: int = 0


def read_mlperf(path: Path, text: str) -> Read:
    """The run of a log. Raises ConfigError, with the line, for a line that is no event, for several runs, and where there is no result."""
    events = _events(path, text)
    starts, stops = _of(events, "run_start"), _of(events, "run_stop")
    for name, found in (("run_start", starts), ("run_stop", stops)):
        if len(found) > 1:
            problem = f"is the second {name}, after that of line {found[0].line}"
            raise ConfigError.one(path, found[1].line, "", problem, "give each run a file of its own")
    values, samples = _values(path, starts, stops, events)
    if not values:
        problem = f"has {len(events)} {MARK.strip()} lines and no result among them"
        raise ConfigError.one(path, None, "", problem, "a log of a run has run_start and run_stop, tracked_stats or eval_accuracy")
    points = {event.key: event.value for event in events if event.event_type == "POINT_IN_TIME" and event.key not in _HAPPENED + _MEASURED}
    settings = {key: value for key, value in points.items() if value is None or isinstance(value, str | int | float | bool)}
    result = OthersResult(
        name=str(settings.get("submission_benchmark") or path.stem),
        file=path.name,
        line=(starts or stops or events)[0].line,
        outcome=str((stops[0].metadata or {}).get("status", "ended")) if stops else "unfinished",
        settings={key: value for key, value in settings.items() if not key.startswith("submission_")},
        values=values,
        samples=samples,
    )
    environment = {key: str(value) for key, value in settings.items() if key.startswith("submission_") and key != "submission_benchmark"}
    return Read(Origin.MLPERF, [result], environment, measured_at=(starts or events)[0].time_ms / 1000)


def _events(path: Path, text: str) -> list[_Event]:
    events = []
    for number, line in enumerate(text.splitlines(), 1):
        _, mark, told = line.partition(MARK)
        if not mark or told.startswith(_UNREADABLE):
            continue
        try:
            content = json.loads(told)
        except ValueError as error:
            raise ConfigError.one(path, number, "", f"what follows {MARK.strip()} is not JSON ({error})", "restore the log") from None
        events.append(checked(_Event, content, path, number).model_copy(update={"line": number}))
    if not events and (early := next((n for n, line in enumerate(text.splitlines(), 1) if EARLY in line), None)):
        problem = f"lines begin with {EARLY.rstrip('.')}, the format of MLPerf v0.5 and v0.6"
        raise ConfigError.one(path, early, "", problem, f"logs of v0.7 and later are read, whose lines begin with {MARK.strip()}")
    return events


def _of(events: Sequence[_Event], key: str) -> list[_Event]:
    return [event for event in events if event.key == key]


def _values(
    path: Path, starts: Sequence[_Event], stops: Sequence[_Event], events: Sequence[_Event]
) -> tuple[list[Value], dict[str, list[float]]]:
    values, samples = [], {}
    if starts and stops:
        seconds = (stops[0].time_ms - starts[0].time_ms) / 1000
        if seconds <= 0:
            problem = f"run_stop is not after the run_start of line {starts[0].line}"
            raise ConfigError.one(path, stops[0].line, "time_ms", problem, "restore the log")
        values.append(Value(name="time_to_train", value=seconds, unit="s"))
    tracked = [event.value for event in _of(events, "tracked_stats") if isinstance(event.value, dict)]
    rates = [float(stats["throughput"]) for stats in tracked if _number(stats.get("throughput"))]
    if rates:
        values.append(Value(name="throughput_median", value=median(rates)))
        samples["throughput_median"] = rates
    quality = [float(event.value) for event in _of(events, "eval_accuracy") if _number(event.value)]
    if quality:
        values.append(Value(name="eval_accuracy_last", value=quality[-1]))
        samples["eval_accuracy_last"] = quality
    return values, samples


def _number(value: Any) -> bool:
    """Whether it is a figure. NaN, which a run that diverged logs, is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
