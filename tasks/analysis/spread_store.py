"""What each finished sweep says of the spread between trials: one small file a sweep, in a folder beside the sweeps.

The files are derived from the sweeps and can be made again (`sweep spread --rebuild`). They are kept so that what thousands of past sweeps
say can be read in one pass, without their journals, and stays when a sweep's folder is removed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from cluster.trial_layout import SPREAD
from experiments.atomic_file import atomic_write
from experiments.config.errors import ConfigError
from experiments.config.strict import Strict
from experiments.metric import Direction
from experiments.metrics import metric_of
from experiments.trial import Outcome, digest
from tasks.analysis.cell import is_number
from tasks.analysis.past_cell import PastCell, past_cell
from tasks.analysis.results import Sweep, load_sweep
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.store import list_sweeps


class PastTrial(Strict):
    """One undisturbed trial that measured: where, what, and its metrics in their own units.

    Trials with equal `cell` did the same work with the same parameters but their seed, on whatever pool: see `PastCell.identity`.
    `version`: its code, libraries and data, as in the trial's key. Sweeps, or hosts, are compared within one version only: what a change of
    code did is not how far two days lie apart, and an old slow-down would widen every later interval and so hide the next.
    """

    cell: str
    version: str
    workload: str | None = Field(default=None, description="null in files of schema 1, which do not say it")
    pool: str
    device: str | None = Field(description="the device's own name; null where the trial did not know it")
    host: str | None = Field(description="the host's opaque id; null in trials from before there was one")
    started_at: float = Field(description="Unix time, s")
    values: dict[str, float]


class SweepSpread(Strict):
    """A file of the store: one sweep's trials. `cells`: what each `cell` of its trials did; {} in files of schema 1."""

    schema_version: int = 2
    sweep_id: str
    cells: dict[str, PastCell] = Field(default_factory=dict)
    trials: list[PastTrial]


@dataclass(frozen=True)
class PastSweeps:
    """What was read: sweep -> its trials, and which files could not be read."""

    trials: dict[str, Sequence[PastTrial]]
    damaged: Sequence[Path] = ()

    @property
    def early(self) -> int:
        """How many sweeps do not say what workload their trials are of: they tell how far hosts lie apart, not trials or sweeps."""
        return sum(any(trial.workload is None for trial in trials) for trials in self.trials.values())


def write_spread(sweep: Sweep) -> Path | None:
    """The sweep's file, whole or not at all; the same again gives the same file. None, and no file, where no trial may count."""
    rows = [row for row in sweep.rows if counts(row)]
    trials = past_trials(rows)
    path = spread_folder(sweep.dir.parent) / f"{sweep.sweep_id}.json"
    if not trials:
        path.unlink(missing_ok=True)
        return None
    path.parent.mkdir(exist_ok=True)
    cells = {cell.identity: cell for cell in map(past_cell, rows)}
    atomic_write(path, SweepSpread(sweep_id=sweep.sweep_id, cells=cells, trials=trials).model_dump_json() + "\n")
    return path


def rebuild(root: Path) -> tuple[int, list[str]]:
    """Write the file of every sweep under `root` anew. Returns how many were written, and what could not be read.

    Files of sweeps that are no longer there stay: nothing else knows what is in them.
    """
    written, problems = 0, []
    for sweep_id in list_sweeps(root):
        try:
            written += write_spread(load_sweep(root / sweep_id)) is not None
        except Exception as error:  # a sweep of an older version, or a damaged one: the others still count
            problems.append(f"{sweep_id}: {error}")
    return written, problems


def read_spreads(root: Path, *, devices: Collection[str | None] | None = None, without: Collection[str] = ()) -> PastSweeps:
    """The trials of all sweeps under `root` but those named in `without`; with `devices`, only of these devices.

    A file that cannot be read is named in `damaged` and skipped.
    """
    marks = None if devices is None else [f'"device":{json.dumps(device, ensure_ascii=False)}' for device in devices]
    trials: dict[str, Sequence[PastTrial]] = {}
    damaged: list[Path] = []
    for path in sorted(spread_folder(root).glob("*.json")):
        if path.stem in without:
            continue
        try:
            text = path.read_text()
            if marks is not None and text.endswith("]}\n") and not any(mark in text for mark in marks):
                continue  # whole, and of other devices: not worth parsing
            sweep = SweepSpread.model_validate_json(text)
            today = {name: cell.identity for name, cell in sweep.cells.items()}
        except (OSError, ValueError):
            damaged.append(path)
            continue
        if wanted := [trial for trial in sweep.trials if devices is None or trial.device in devices]:
            trials[sweep.sweep_id] = [trial.model_copy(update={"cell": today.get(trial.cell, trial.cell)}) for trial in wanted]
    return PastSweeps(trials, damaged)


def spread_folder(root: Path) -> Path:
    """Where the files lie: `root` is the folder of the sweeps."""
    return root / SPREAD


def past_trials(rows: Iterable[TrialRow]) -> list[PastTrial]:
    """The trials that count: ended ok, on a device that is not emulated, not disturbed."""
    return [trial for row in rows if counts(row) and (trial := _past_trial(row)).values]


def counts(row: TrialRow) -> bool:
    """Whether a trial says something of the spread: it measured, and nothing is known to have disturbed it."""
    return row.result is not None and row.result.outcome is Outcome.OK and not row.emulated and not row.disturbed


def _past_trial(row: TrialRow) -> PastTrial:
    assert row.result is not None
    values = {name: float(value) for name, value in row.summary.items() if value is not None and is_number(value) and _is_kept(name)}
    return PastTrial(
        cell=past_cell(row).identity,
        version=version_of(row),
        workload=row.trial.workload,
        pool=row.trial.pool,
        device=device_of(row),
        host=host_of(row),
        started_at=row.result.started_at,
        values=values,
    )


def version_of(row: TrialRow) -> str:
    """16 hex digits of the code, the libraries and the data that it ran with."""
    return digest([row.trial.key_parts.get(part) for part in ("code", "libraries", "data")])


def device_of(row: TrialRow) -> str | None:
    name = row.environment.get("device_name")
    return None if name is None else str(name)


def host_of(row: TrialRow) -> str | None:
    """The host's opaque id. Never its name: a machine with trials from before and after it had an id would count as two."""
    host = row.environment.get("host_id")
    return str(host) if host else None


@lru_cache(maxsize=1024)
def _is_kept(name: str) -> bool:
    """Whether a metric is better one way, so that it is compared and its spread is asked for."""
    try:
        return metric_of(name).direction is not Direction.NEITHER
    except ConfigError:  # a field of a step, or of a later version
        return False
