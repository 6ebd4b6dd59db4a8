"""Parquet of a sweep: each trial's raw steps, and one row per trial. All of it is derived from the journals, so it can be rebuilt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cluster.journal.journal import Journal
from cluster.journal.lines import Record
from cluster.sampler.state_file import read_records, read_state
from cluster.trial_layout import DEVICE_STATE, JOURNAL, PLAN, RESULTS, SLOTS, STEPS, TRIALS
from experiments.atomic_file import atomic_file
from experiments.config.errors import DamagedFile, UserError
from experiments.device_state import NAMES as STATE
from experiments.device_state import DeviceState
from experiments.journal_mark import JournalMark
from experiments.price import costs
from experiments.step_record import FIELDS, RMS
from experiments.summary import NAMES, Value, rms_names, summarise
from experiments.trial import Outcome, Scalar, Trial, TrialResult
from tasks.analysis.early_records import notes_of_today, summary_of_today, window_of_today
from tasks.analysis.held_time import marks_of
from tasks.analysis.published_steps import CAPPED_BY, parse_published_steps
from tasks.analysis.row_cache import LEAST, RowCache
from tasks.analysis.traced_kinds import with_kinds
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.result_file import read_result
from tasks.sweep.slot_log import flows_of
from tasks.sweep.store import Plan, read_plan
from tasks.sweep.trial_record import journal_of, read_record
from tasks.sweep.whole_records import WholeRecords, record_digest, whole_records

_META = b"sweepbench"
_SUBJECT_TO_STEPS = ("window", "evaluations", "environment", "packages", "notes")
_OF_PROFILE = ("flops_per_sample", "attention_flops_per_sample", "peak_flops", "peak_clock_mhz")


class ResultsError(UserError):
    """What results need is missing, or holds what cannot be: names the file and says how to get it back."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep as it lies on disk: its plan, and its trials in the plan's order.

    `digests`: of the bytes that each row was read from (`record_digest`); None for a trial without a result and for a damaged record.
    `published`: read from a results page, whose reader may not have the sweep itself.
    """

    dir: Path
    plan: Plan
    rows: Sequence[TrialRow]
    digests: Sequence[str | None] = ()
    published: bool = False

    @property
    def sweep_id(self) -> str:
        return self.plan.sweep_id

    @property
    def problems(self) -> list[str]:
        """What is wrong with files of its trials, which no figure has then."""
        return [row.problem for row in self.rows if row.problem]

    @property
    def ended(self) -> bool:
        """Whether it has trials, and each has a result."""
        return bool(self.rows) and all(row.result is not None for row in self.rows)


def write_steps(trial_dir: Path) -> Path:
    """steps.parquet: every step of the attempt that the trial's result is of (see `journal_of`), warm-up included, and in its metadata what
    else a summary needs.

    Whole or not at all. Raises DamagedFile for a damaged journal or result, ResultsError for a trial without a journal.
    """
    path = trial_dir / STEPS
    _write(steps_table(trial_dir), path)
    return path


def renew_steps(sweep_dir: Path, plan: Plan) -> None:
    """Write steps.parquet of every trial anew that is not what its journal gives. Damaged journals are left to those who tell of them."""
    whole = whole_records(sweep_dir)
    for trial in plan.trials:
        folder, name = sweep_dir / TRIALS / trial.key, f"{trial.key}/{STEPS}"
        if not (folder / JOURNAL).exists():
            continue
        both = _with_steps(folder)
        if both is not None and whole.has(name, both):
            continue
        with suppress(DamagedFile):
            write_steps(folder)
            if (both := _with_steps(folder)) is not None:
                whole.add(name, both)
    if len(plan.trials) >= LEAST:
        whole.save()


def _with_steps(trial_dir: Path) -> str | None:
    """A digest of a trial's record and its steps.parquet; None without one of them."""
    record = record_digest(trial_dir)
    try:
        return None if record is None else hashlib.sha256(record.encode() + (trial_dir / STEPS).read_bytes()).hexdigest()
    except OSError:
        return None


def steps_table(trial_dir: Path) -> Any:
    """What `write_steps` writes, as an Arrow table. Raises as it does."""
    journal_path = trial_dir / JOURNAL
    if not journal_path.exists():
        raise ResultsError(f"{journal_path} does not exist: the trial has not started")
    size = journal_path.stat().st_size
    journal = journal_of(trial_dir, read_result(trial_dir))
    meta = {
        "schema_version": 1,
        "attempt": journal.attempt,
        "journal_bytes": size,
        "journal_checksum": journal.checksum,
        **{name: getattr(journal, name) for name in _SUBJECT_TO_STEPS},
    }
    columns = {name: [step.get(name) for step in journal.steps] for name in _columns(journal.steps)}
    arrays = {name: _array(values, _TYPES.get(name)) for name, values in columns.items()}
    return pa.table(arrays).replace_schema_metadata({_META: json.dumps(meta).encode()})


def meta_of(table: Any) -> dict[str, Any]:
    """What the metadata of steps.parquet says beside the steps; {} where there is none."""
    meta: dict[str, Any] = json.loads((table.schema.metadata or {}).get(_META, b"{}"))
    return meta


_TYPES: dict[str, Any] = {field.name: pa.type_for_alias(field.kind) for field in FIELDS}


def _columns(steps: Sequence[Record]) -> list[str]:
    """The known columns always, then whatever else a step says."""
    seen = dict.fromkeys(_TYPES) | dict.fromkeys(name for step in steps for name in step)
    return [name for name in seen if name not in ("kind", "crc")]


def _load(trial: Trial, trial_dir: Path) -> TrialRow:
    """One trial from result.json and its journal, or from steps.parquet where no journal came with it, as in early published results.

    The summary is computed again from the steps. Raises DamagedFile for damaged files, ResultsError for what they cannot hold.
    """
    record = read_record(trial.key, trial_dir)
    steps, meta = _steps(trial_dir, record.journal)
    mark = record.result.device_state if record.result else None
    row = _row(trial, record.result, steps, meta, trial_dir / JOURNAL, mark)
    if row.state is None and record.result is not None:  # then nobody has read them yet, and `damage_of` would name what is wrong with them
        read_records(trial_dir / DEVICE_STATE, record.result.attempt, mark)
    return replace(row, marks=marks_of(record.journal.file))


def _row(
    trial: Trial,
    result: TrialResult | None,
    steps: list[Record],
    meta: Mapping[str, Any],
    source: Path,
    state_mark: JournalMark | None = None,
) -> TrialRow:
    """The row of a trial. `source`: the file that its steps are from, for an error's message, in the folder of the sampler's records.

    `state_mark`: what must be there of these. Raises ResultsError, JournalError.
    """
    if result is not None and meta.get("attempt") not in (None, 0, result.attempt):
        steps, meta = [], {}  # another attempt than the one the result is of, which left no steps
    environment = {**(result.environment if result else {}), **meta.get("environment", {})}
    summary: dict[str, Value] = {}
    try:
        if result is None or result.outcome is Outcome.OK:  # a rate of a trial that failed is not a result
            window = window_of_today(meta.get("window"), trial.parameters)
            summary = dict(summarise(steps, window, meta.get("evaluations", ())))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{source} holds what cannot be: {error}") from error
    state = _state(source.parent, meta.get("attempt"), steps, state_mark)
    if result is not None and not steps:
        summary |= summary_of_today(result.summary, result.environment)
    elif summary:
        summary |= state.metrics() if state else {name: result.summary.get(name) for name in STATE if result}
    emulated = trial.emulated or (result is not None and result.emulated) or environment.get("emulated")
    summary |= costs(None if emulated else trial.price, summary)
    window = meta.get("window") or {}
    learning = [step for step in steps if step["step"] <= window.get("last_learning_step", step["step"])]
    return TrialRow(
        trial,
        result,
        summary,
        environment,
        notes_of_today([str(note["text"]) for note in meta.get("notes", ())], window, trial.workload),
        np.array([step["step"] for step in learning], np.int64),
        _series(learning, "loss"),
        _profile(trial, window, steps),
        rms={name: _series(learning, RMS + name) for name in rms_names(learning)},
        packages=meta.get("packages") or {},
        state=state,
        kept_caps=tuple(meta.get(CAPPED_BY) or ()),
    )


def _profile(trial: Trial, window: Mapping[str, Any], steps: Sequence[Record]) -> dict[str, Any] | None:
    """Where the traced steps' time went, with what the window's record says of FLOPs and the peak."""
    profile = window.get("profile")
    return {**{name: window.get(name) for name in _OF_PROFILE}, **with_kinds(profile, trial, window, steps)} if profile else None


def _state(trial_dir: Path, attempt: int | None, steps: Sequence[Record], mark: JournalMark | None) -> DeviceState | None:
    """The state of the device in the measured window; unknown where its records hold what cannot be. Raises JournalError."""
    try:
        return read_state(trial_dir, attempt, steps, mark) if attempt else None
    except (ValueError, KeyError, TypeError):
        return None


def _series(steps: Sequence[Record], name: str) -> NDArray[np.float64]:
    """Values of a field, (n,): NaN for null. What is not finite, of which the journal has the text beside null, is infinite."""

    def value(step: Record) -> float:
        if step.get(name) is not None:
            return float(step[name])
        return np.inf if step.get(f"{name}_text") else np.nan

    return np.array([value(step) for step in steps], np.float64)


def _steps(trial_dir: Path, journal: Journal) -> tuple[list[Record], Mapping[str, Any]]:
    path = trial_dir / STEPS
    if journal.attempt:
        return journal.steps, {"attempt": journal.attempt, **{name: getattr(journal, name) for name in _SUBJECT_TO_STEPS}}
    if not path.exists():
        return [], {}
    table = read_parquet(path, "put back the journal that it was made from, or run the trial again")
    try:
        return table.to_pylist(), meta_of(table)
    except (ValueError, RecursionError) as error:
        raise ResultsError(f"{path} holds what cannot be: {error}") from error


def read_parquet(path: Path, remedy: str) -> Any:
    """The table of a Parquet file, its checksums verified. Raises ResultsError that names the file and gives the remedy."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read()
    except (OSError, pa.ArrowException) as error:
        raise ResultsError(f"{path} is not whole ({' '.join(str(error).split())}); {remedy}") from error


def load_sweep(sweep_dir: Path, plan: Plan | None = None) -> Sweep:
    """The plan and every trial in it, run or not; of a sweep under runs/, or of a published one. `plan`: in place of the folder's.

    A trial that cannot be read becomes a row with its problem, not an error. What was derived from the same bytes before is not derived
    again (row_cache.py). Raises ResultsError without a plan, DamagedFile for a damaged one.
    """
    plan = plan or read_plan(sweep_dir / PLAN)
    if plan is None:
        raise ResultsError(f"{sweep_dir / PLAN} does not exist: {sweep_dir} is not a sweep; `sweep list` shows those that are")
    if (sweep_dir / STEPS).exists():
        return Sweep(sweep_dir, plan, _published(plan, sweep_dir / STEPS), published=True)
    kept, whole = RowCache(sweep_dir, len(plan.trials)), whole_records(sweep_dir)
    found = [_kept_or_read(trial, sweep_dir / TRIALS / trial.key, kept, whole) for trial in plan.trials]
    kept.save()
    if len(found) >= LEAST:
        whole.save()
    flows = flows_of(sweep_dir / SLOTS)
    rows = [replace(row, flow=flows.get(row.trial.key)) for row, _ in found]
    return Sweep(sweep_dir, plan, rows, [digest for _, digest in found])


def _kept_or_read(trial: Trial, trial_dir: Path, kept: RowCache, whole: WholeRecords) -> tuple[TrialRow, str | None]:
    """The row of one trial: kept, where its files have the bytes that it was derived from; else read in full. And the digest of a whole
    record's bytes."""
    digest = record_digest(trial_dir)
    if digest is not None and (row := kept.get(trial, digest)) is not None:
        return row, digest
    row = _tolerant(trial, trial_dir)
    if digest is None or row.problem is not None or digest != record_digest(trial_dir):  # somebody wrote meanwhile
        return row, None
    kept.add(row, digest)
    whole.add(trial.key, digest)
    return row, digest


def _published(plan: Plan, path: Path) -> list[TrialRow]:
    """The rows of a published sweep, which has the steps of all its trials in one file."""
    try:
        trials = parse_published_steps(read_parquet(path, "`sweep publish` writes it again from the sweep"))
        results = {key: TrialResult.model_validate_json(json.dumps(beside["result"])) for key, (_, beside) in trials.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ResultsError(f"{path} is damaged: {error}") from error
    return [
        _row(trial, results[trial.key], *trials[trial.key], path)
        if trial.key in trials
        else TrialRow(trial, problem=f"{path} does not have trial {trial.key}")
        for trial in plan.trials
    ]


def _tolerant(trial: Trial, trial_dir: Path) -> TrialRow:
    try:
        return _load(trial, trial_dir)
    except (ResultsError, DamagedFile) as error:
        return TrialRow(trial, problem=str(error))


def write_results(sweep_dir: Path, sweep: Sweep | None = None) -> Path:
    """results.parquet: one row per planned trial, run or not (`outcome` is null then).

    Columns: identity, `axis.<name>`, outcome, reason, attempt, times (Unix s), the price of its share of the pool where that has one, the
    summary metrics, `env.<name>`, parameters (JSON).
    A column whose values are of more than one kind is text.
    """
    sweep = sweep or load_sweep(sweep_dir)
    path = sweep_dir / RESULTS
    _write(table_of(trial_records(sweep)), path)
    return path


def trial_records(sweep: Sweep) -> list[dict[str, Scalar]]:
    """The rows of results.parquet as plain data, in the plan's order; not all have all columns."""
    return [_flat(sweep.sweep_id, row) for row in sweep.rows]


def table_of(rows: Sequence[Mapping[str, Scalar]]) -> Any:
    """An Arrow table with a column for each name in any row: those with a dot, such as `axis.precision`, after the others.

    A column whose values are of more than one kind is text.
    """
    order = dict.fromkeys(name for row in rows for name in row)
    groups = [name for name in order if "." not in name], [name for name in order if "." in name]
    columns = {name: _array([row.get(name) for row in rows]) for name in (*groups[0], *groups[1])}
    return pa.table(columns)


def _flat(sweep_id: str, row: TrialRow) -> dict[str, Scalar]:
    trial, result = row.trial, row.result
    return {
        "sweep_id": sweep_id,
        "trial_key": trial.key,
        "name": trial.name,
        "suite": trial.suite,
        "workload": trial.workload,
        "pool": trial.pool,
        "device": trial.device,
        "emulated": row.emulated,
        "cell": trial.cell,
        "repeat": trial.repeat,
        "index": trial.index,
        "outcome": str(result.outcome) if result else None,
        "reason": row.reason,
        "attempt": result.attempt if result else None,
        "disturbed": row.disturbed,
        "capped_by": ", ".join(row.capped_by) or None,
        "started_at": result.started_at if result else None,
        "finished_at": result.finished_at if result else None,
        **({"trial_price_per_hour": trial.price.trial_per_hour, "price_currency": trial.price.currency} if trial.price else {}),
        **{name: row.summary.get(name) for name in dict.fromkeys([*NAMES, *row.summary])},
        "parameters": json.dumps(trial.parameters, sort_keys=True),
        **{f"axis.{name}": value for name, value in trial.axes.items()},
        **{f"env.{name}": _scalar(value) for name, value in row.environment.items()},
    }


def _scalar(value: Any) -> Scalar:
    return value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value, sort_keys=True)


def _array(values: Sequence[Any], kind: Any = None) -> Any:
    """An Arrow array; text where the values are of more than one kind."""
    if kind is not None:
        return pa.array(values, kind)
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and float in kinds:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if len(kinds) > 1:
        return pa.array(
            [None if value is None else value if isinstance(value, str) else json.dumps(value) for value in values], pa.string()
        )
    return pa.array(values)


def _write(table: Any, path: Path) -> None:
    """Whole or not at all."""
    atomic_file(path, lambda temporary: pq.write_table(table, temporary, compression="zstd", write_page_checksum=True))
