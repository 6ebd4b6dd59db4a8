"""What was derived from trials' journals, kept beside the sweep: a journal is parsed once, however often its sweep is looked at.

.rows.parquet has a row for each trial that has ended, by the checksum of what it was derived from: the bytes of the trial's files, the
trial in the plan, and the code. Whoever loads a sweep reads these bytes, so that a file that was damaged since is found, and parses them
only where they are others than before. The file can be removed at any time; one that is damaged, or of other code, counts as none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cluster.trial_layout import ROWS
from experiments.atomic_file import atomic_file
from experiments.device_state import DeviceState
from experiments.trial import Trial, TrialResult
from tasks.analysis.held_time import AttemptMarks
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.kept_file import keeps
from tasks.sweep.whole_records import code_digest

LEAST = 50  # trials; fewer are read at once
_SHARE = 0.05  # of new rows, from which on the file is written again: written after each trial it would cost the square of their number
_OWN, _SHARED = ("source", "result", "small"), ("environment", "packages")  # texts: most trials of a sweep have the same of the latter
_SCHEMA = pa.schema(
    [(name, pa.string()) for name in _OWN]
    + [(name, pa.dictionary(pa.int32(), pa.string())) for name in _SHARED]
    + [("steps", pa.list_(pa.int64())), ("losses", pa.list_(pa.float64())), ("rms", pa.list_(pa.float64()))]
)
_CODE = b"code"


class RowCache:
    """The kept rows of one sweep. `save` writes those that were added."""

    def __init__(self, sweep_dir: Path, trials: int) -> None:
        """`trials`: how many the sweep has."""
        self._path, self._used = sweep_dir / ROWS, trials >= LEAST and keeps(sweep_dir)
        self._table = _read(self._path) if self._used else None
        self._columns = _Columns(self._table) if self._table is not None else None
        self._new: dict[str, Mapping[str, Any]] = {}
        self._parsed = cache(json.loads)

    def get(self, trial: Trial, digest: str) -> TrialRow | None:
        """The row of a trial whose record's files have this digest; None where it is not kept."""
        if self._columns is None or (place := self._columns.places.get(_source(trial, digest))) is None:
            return None
        text = {name: values[place] for name, values in self._columns.texts.items()}
        steps, losses, rms = (self._columns.series(name, place) for name in ("steps", "losses", "rms"))
        small = json.loads(text["small"])
        return TrialRow(
            trial,
            TrialResult.model_validate_json(text["result"]),
            small["summary"],
            self._parsed(text["environment"]),
            small["notes"],
            steps,
            losses,
            small["profile"],
            rms=dict(zip(small["rms"], rms.reshape(len(small["rms"]), -1), strict=True)) if small["rms"] else {},
            packages=self._parsed(text["packages"]),
            state=_state(small["state"]),
            marks={int(number): AttemptMarks([(at, part) for at, part in marks], last) for number, (marks, last) in small["marks"].items()},
        )

    def add(self, row: TrialRow, digest: str) -> None:
        """Keep a row that was derived from a record whose files have this digest."""
        if self._used and row.result is not None and row.problem is None:
            source = _source(row.trial, digest)
            self._new[source] = _fields(source, row)

    def save(self) -> None:
        """Write what was added, once it is worth it. A folder that cannot be written keeps nothing."""
        known = len(self._columns.places) if self._columns else 0
        if len(self._new) <= _SHARE * known:
            return
        table = pa.Table.from_pylist(list(self._new.values()), _SCHEMA)
        whole = pa.concat_tables([self._table, table]) if self._table is not None else table
        whole = whole.replace_schema_metadata({_CODE: code_digest().encode()})
        with suppress(OSError):
            atomic_file(self._path, lambda path: pq.write_table(whole, path, compression="zstd", write_page_checksum=True))


class _Columns:
    """The table's values. `places`: the row of each source."""

    def __init__(self, table: Any) -> None:
        self.texts: dict[str, list[str]] = {name: table.column(name).to_pylist() for name in _OWN}
        for name in _SHARED:
            column = table.column(name).unify_dictionaries().combine_chunks()
            texts = column.dictionary.to_pylist()
            self.texts[name] = [texts[place] for place in column.indices.to_pylist()]
        self.places = {source: place for place, source in enumerate(self.texts["source"])}
        self._series = {}
        for name in ("steps", "losses", "rms"):
            lists = table.column(name).combine_chunks()
            self._series[name] = np.from_dlpack(lists.offsets), np.from_dlpack(lists.values)  # `to_numpy` would import pandas

    def series(self, name: str, place: int) -> NDArray[Any]:
        offsets, values = self._series[name]
        return np.asarray(values[offsets[place] : offsets[place + 1]])


def _source(trial: Trial, digest: str) -> str:
    return hashlib.sha256(f"{digest}\n{trial.model_dump_json()}".encode()).hexdigest()


def _fields(source: str, row: TrialRow) -> dict[str, Any]:
    assert row.result is not None
    small = {
        "summary": dict(row.summary),
        "notes": list(row.notes),
        "profile": row.profile,
        "rms": list(row.rms),
        "state": asdict(row.state) if row.state else None,
        "marks": {number: (list(one.marks), one.last) for number, one in row.marks.items()},
    }
    return {
        "source": source,
        "result": row.result.model_dump_json(),
        "environment": json.dumps(dict(row.environment)),
        "packages": json.dumps(dict(row.packages)),
        "small": json.dumps(small),
        "steps": row.steps,
        "losses": row.losses,
        "rms": np.concatenate([*row.rms.values()]) if row.rms else np.empty(0),
    }


def _state(kept: Mapping[str, Any] | None) -> DeviceState | None:
    return DeviceState(**{**kept, "caps": tuple((str(word), share) for word, share in kept["caps"])}) if kept else None


def _read(path: Path) -> Any:
    """The table in the file; None where there is none that this code wrote, and of a damaged one."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read() if (file.schema_arrow.metadata or {}).get(_CODE) == code_digest().encode() else None
    except (OSError, pa.ArrowException):
        return None
