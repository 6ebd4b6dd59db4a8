"""A cell's past nights, from MLflow: every trial of every night of a definition, by cell, date and round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from experiments.config.error_text import first_line
from experiments.config.scalar_text import yaml_text
from experiments.trial import Outcome, Trial, TrialResult
from tasks.analysis.reported_values import about_equal
from tasks.nightly.store import PAIRED, SLOWED_CONTROL
from tasks.sweep.store import Plan, StoreError, SweepStore
from tasks.tracking.client import connect
from tasks.tracking.runs import search

if TYPE_CHECKING:
    from mlflow.entities import Run

# They change of themselves; the part `code` of a trial's key tells a change of its own code from one elsewhere in the tree
_VOLATILE = frozenset({"host", "host_id", "threads", "clock", "device_count", "tree", "git_checked"})
_NOT_FACTS = ("suite", "probe")  # they tell cells and controls apart, and say nothing of what a trial ran on


@dataclass(frozen=True)
class Measured:
    """One trial that ended ok: its summary metrics (`values`, each in its unit), and what it ran on (`facts`).

    `disturbed`: what else was on its device or host; None: nothing, or it is not known, as of early runs in MLflow.
    """

    cell: str
    role: str
    date: str
    round: int
    host: str
    values: Mapping[str, float]
    facts: Mapping[str, str]
    disturbed: str | None = None


@dataclass
class History:
    """Trials by (cell, role), then by date."""

    cells: dict[tuple[str, str], dict[str, list[Measured]]] = field(default_factory=dict)

    def add(self, trials: Iterable[Measured]) -> None:
        for trial in trials:
            self.cells.setdefault((trial.cell, trial.role), {}).setdefault(trial.date, []).append(trial)

    def of(self, cell: str, role: str = "history") -> dict[str, list[Measured]]:
        """Date -> its trials: dates oldest first, trials in order of their rounds. Empty for an unknown cell."""
        dates = self.cells.get((cell, role), {})
        return {date: sorted(trials, key=lambda trial: trial.round) for date, trials in sorted(dates.items())}


class HistoryError(StoreError):
    """MLflow did not answer for the past nights. Nothing is lost: the same command gives the verdicts once it does."""


def past_nights(name: str, experiment: str, before: str) -> History:
    """Every trial of the definition's nights before a date, the newest of each round. Left out are trials slowed on purpose and those of
    pairs, which ran other commits.

    `experiment`: its name in MLflow; an unknown one has no history. Raises HistoryError where MLflow does not answer.
    """
    history = History()
    try:
        client = connect()
        known = client.get_experiment_by_name(experiment)
        if known is None:
            return history
        query = f"tags.`night.name` = '{name}' and tags.`sweep.role` = 'trial' and tags.`trial.outcome` = 'ok' and tags.emulated = 'false'"
        runs = search(client, str(known.experiment_id), query, ["attributes.start_time DESC"])
    except Exception as error:
        raise HistoryError(f"the past nights could not be read from MLflow ({type(error).__name__}: {first_line(error)})") from error
    seen: set[tuple[str, str, str, int]] = set()
    for run in runs:
        trial = _measured(run)
        key = (trial.cell, trial.role, trial.date, trial.round)
        if trial.date < before and trial.role not in (SLOWED_CONTROL, PAIRED) and key not in seen:
            seen.add(key)
            history.add([trial])
    return history


def tonight(store: SweepStore, plan: Plan) -> History:
    """What the night's own sweep has measured so far, from its results on disk; without its pairs."""
    history = History()
    for trial in plan.trials:
        result = store.result(trial.key) if trial.labels["night.role"] != PAIRED else None
        if result is not None and result.outcome is Outcome.OK and not trial.emulated:
            history.add([_of_result(trial, result)])
    return history


def what_changed(before: Iterable[Measured], now: Iterable[Measured]) -> list[str]:
    """Facts of tonight's trials that earlier ones did not have: `torch 2.12.0 → 2.13.0`.

    Clocks, power limits and sizes of memory within 1 % count as equal.
    """
    old, new = _facts(before), _facts(now)
    changes = []
    for name in sorted({*old, *new}):
        left, right = old.get(name, {"none"}), new.get(name, {"none"})
        if right - left and not about_equal(name, left | right):
            changes.append(f"{name.replace('_', ' ')} {_short(left)} → {_short(right)}")
    return changes


def _facts(trials: Iterable[Measured]) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for trial in trials:
        for name, value in trial.facts.items():
            values.setdefault(name, set()).add(value)
    return values


def _short(values: set[str]) -> str:
    return " / ".join(value[:12] if len(value) in (16, 40) and _is_hex(value) else value[:60] for value in sorted(values))


def _is_hex(text: str) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)


def _measured(run: Run) -> Measured:
    tags, parameters = run.data.tags, run.data.params
    facts = {name.removeprefix("env."): value for name, value in tags.items() if name.startswith("env.")}
    facts |= {part: tags[f"trial.key.{part}"] for part in ("code", "libraries") if f"trial.key.{part}" in tags}
    facts |= {name: value for name, value in parameters.items() if name not in ("repeat", *_NOT_FACTS)}
    return Measured(
        cell=tags["night.cell"],
        role=tags["night.role"],
        date=tags["night.date"],
        round=int(tags["trial.repeat"]),
        host=tags.get("env.host", "unknown"),
        values={name: value for name, value in run.data.metrics.items() if math.isfinite(value)},
        facts={name: value for name, value in facts.items() if name not in _VOLATILE},
        disturbed=tags.get("disturbed"),
    )


def _of_result(trial: Trial, result: TrialResult) -> Measured:
    facts = {name: yaml_text(value) for name, value in result.environment.items() if value is not None}
    facts |= {part: trial.key_parts[part] for part in ("code", "libraries") if part in trial.key_parts}
    facts |= {name: yaml_text(value) for name, value in {**trial.parameters, **trial.axes}.items() if name not in _NOT_FACTS}
    values = {name: float(value) for name, value in result.summary.items() if value is not None and math.isfinite(float(value))}
    return Measured(
        cell=trial.labels["night.cell"],
        role=trial.labels["night.role"],
        date=trial.labels["night.date"],
        round=trial.repeat,
        host=str(result.environment.get("host", "unknown")),
        values=values,
        facts={name: value for name, value in facts.items() if name not in _VOLATILE},
        disturbed=result.disturbed,
    )
