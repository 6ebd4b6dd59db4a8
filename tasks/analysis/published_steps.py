"""steps.parquet of a published sweep: the steps of all its trials, and in its metadata what else each trial's row is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.journal.lines import Record
from experiments.atomic_file import atomic_file
from experiments.trial import digest

CAPPED_BY = "capped_by"  # among a trial's plain data: what capped its clock, since the samples that tell it are not published
TRIAL_KEY = "trial_key"  # the column that tells whose step it is
_META = b"sweepbench"


def write_published_steps(path: Path, trials: Mapping[str, tuple[Any, Mapping[str, Any]]]) -> None:
    """Trial key -> (Arrow table of its steps, plain data beside them), into one file, whole or not at all. Raises OSError.

    A column that only some trials have, such as a tensor's RMS_t, is null in the others.
    """
    tables = [table.add_column(0, TRIAL_KEY, pa.array([key] * table.num_rows, pa.string())) for key, (table, _) in trials.items()]
    whole = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({TRIAL_KEY: pa.array([], pa.string())})
    kept, lists = {}, dict[str, Any]()
    for key, (_, beside) in trials.items():
        packages = digest(beside.get("packages") or {})  # mostly the same for all trials: each list is kept once
        lists[packages] = beside.get("packages") or {}
        kept[key] = {**beside, "packages": packages}
    meta = json.dumps({"schema_version": 1, "trials": kept, "packages": lists})
    table = whole.replace_schema_metadata({_META: meta.encode()})
    atomic_file(path, lambda temporary: pq.write_table(table, temporary, compression="zstd", write_page_checksum=True))


def parse_published_steps(table: Any) -> dict[str, tuple[list[Record], Mapping[str, Any]]]:
    """What was written: trial key -> (its steps, as its journal has them, and the plain data). Raises ValueError for another table."""
    meta = json.loads((table.schema.metadata or {}).get(_META, b"{}"))
    if "trials" not in meta or TRIAL_KEY not in table.column_names:
        raise ValueError("it holds the steps of no published sweep")
    steps: dict[str, list[Record]] = {key: [] for key in meta["trials"]}
    for record in table.to_pylist():
        steps[record.pop(TRIAL_KEY)].append({name: value for name, value in record.items() if value is not None})
    lists = meta.get("packages", {})  # pages of early versions have none
    return {key: (steps[key], {**beside, "packages": lists.get(beside.get("packages"), {})}) for key, beside in meta["trials"].items()}
