"""The raw steps of a sweep's trials as Arrow tables, whether the sweep lies under runs/ or was published."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cluster.trial_layout import JOURNAL, STEPS, TRIALS
from experiments.trial import Trial
from tasks.analysis.published_steps import TRIAL_KEY
from tasks.analysis.results import Sweep, read_parquet, steps_table

_AGAIN = "`sweep publish` writes it again from the sweep"


def steps_of(sweep: Sweep, trial: Trial) -> Any:
    """Every step of one trial, warm-up included, with the fields that its journal has (experiments/step_record.py); empty before its first.

    Raises DamagedFile, ResultsError for files that cannot be read.
    """
    whole = sweep.dir / STEPS
    if whole.exists():
        table = read_parquet(whole, _AGAIN)
        return table.filter(pc.equal(table[TRIAL_KEY], trial.key)).drop_columns([TRIAL_KEY])
    folder = sweep.dir / TRIALS / trial.key
    if (folder / JOURNAL).exists():
        return steps_table(folder)
    if (folder / STEPS).exists():  # of a page of an early version, which has no journals
        return read_parquet(folder / STEPS, "put back the journal that it was made from, or run the trial again")
    return pa.table({})


def all_steps(sweep: Sweep) -> Any:
    """Every step of every trial that can be read, after its `trial_key`; a column that a trial does not have is null there.

    Raises as `steps_of`.
    """
    if (sweep.dir / STEPS).exists():
        return read_parquet(sweep.dir / STEPS, _AGAIN).replace_schema_metadata(None)
    tables = []
    for row in sweep.rows:
        table = steps_of(sweep, row.trial) if row.problem is None else pa.table({})
        if table.num_rows:
            key = pa.array([row.trial.key] * table.num_rows, pa.string())
            tables.append(table.replace_schema_metadata(None).add_column(0, TRIAL_KEY, key))
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({TRIAL_KEY: pa.array([], pa.string())})
