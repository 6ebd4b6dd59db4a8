"""A sweep as pandas frames."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from flows.api.frames import frame_of
from flows.api.pairs import pair_records
from flows.cli.show_sweeps import sweep_rows
from tasks.analysis.cell_records import cell_records
from tasks.analysis.looks import judged_cells
from tasks.analysis.results import Sweep as Loaded
from tasks.analysis.results import load_sweep
from tasks.analysis.step_tables import steps_of
from tasks.export.tables import trial_rows
from tasks.export.write import Format, export_sweep
from tasks.report.compare_sweeps import compare as compare_folders
from tasks.report.model import make_report
from tasks.sweep.find_sweep import find_sweep
from tasks.sweep.find_trial import find_trial


class Sweep:
    """One sweep as it was when it was loaded, finished or not. `load` makes one.

    `folder`: where its files are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._loaded: Loaded = load_sweep(folder)

    @property
    def id(self) -> str:
        """Such as `bridgetower-20261120-231502-4f1a`."""
        return self._loaded.sweep_id

    @property
    def suite(self) -> str:
        return self._loaded.plan.name

    @property
    def profile(self) -> str:
        return self._loaded.plan.profile

    @property
    def command(self) -> str:
        """The command line that runs the same sweep again."""
        return self._loaded.plan.command

    @property
    def ended(self) -> bool:
        """Whether each of its trials has a result."""
        return self._loaded.ended

    @cached_property
    def headline(self) -> str:
        """What its report says first: the winner, or that there is none."""
        return make_report(self._loaded).headline

    def __repr__(self) -> str:
        done = sum(row.result is not None for row in self._loaded.rows)
        return f"<sweep {self.id}: {done} of {len(self._loaded.rows)} trials ended>"

    def trials(self) -> pd.DataFrame:
        """A row for each planned trial, run or not, in the plan's order.

        The axes, then trial_key, name, workload, repeat, outcome (null: not run yet), reason, the summary metrics (docs/metrics.md; times
        in s, sizes in B, rates in samples/s), `parameters` (JSON) and `env.<name>`. `emulated`: nothing in the row is a measurement.
        """
        return frame_of(trial_rows(self._loaded))

    def cells(self, *, emulated: bool = False) -> pd.DataFrame:
        """A row for each cell: the axes, estimate with its 95 % interval (low, high) in `unit`, ratio to the baseline (> 1 is better) with
        ratio_low and ratio_high, verdict, decided_after, and what limits them. tasks/analysis/cell_records.py explains each column.

        `emulated`: those of the trials on emulated devices instead, which are no measurements and are compared among themselves.
        """
        return frame_of(cell_records(self.id, judged_cells(self._loaded, emulated=emulated)))

    def steps(self, trial: str) -> pd.DataFrame:
        """Every step of a trial, warm-up included: step, measured, loss, samples, the parts of its time and total_s, s.

        `trial`: its key or its name, as in `trials()`, or what `sweep logs` takes for it. Raises ConfigError where no trial or several fit,
        DamagedFile where its journal is damaged.
        """
        frame: pd.DataFrame = steps_of(self._loaded, find_trial(self._loaded.plan.trials, trial)).to_pandas()
        return frame

    def export(self, form: str, folder: str | os.PathLike[str]) -> list[Path]:
        """Write it as `csv`, `parquet`, `hf` or `pytorch-hud` into `folder`, as `sweep export` does. Returns the files.

        Warns of trials that are left out since their files are damaged. Raises ConfigError, ExportError.
        """
        exported = export_sweep(self.folder, Format(form) if form in list(Format) else form, Path(folder))
        _warn(exported.damage)
        return exported.files


def load(sweep: str | os.PathLike[str] = "last") -> Sweep:
    """A sweep by its id, `last` for the newest, or its folder, such as one of a results page under docs/results.

    Warns of trials that no figure has since their files are damaged. Raises UserError where there is none, or its plan cannot be read.
    """
    found = Sweep(find_sweep(sweep))
    _warn(found._loaded.problems)
    return found


def _warn(problems: Sequence[str]) -> None:
    """Name what is left out, at the line of who called the function that calls this."""
    for problem in problems:
        warnings.warn(f"left out: {problem}", stacklevel=3)


def sweeps() -> pd.DataFrame:
    """A row for each sweep on this machine, newest first: sweep_id, suite, profile, created_at, state, trials, outcomes, measured_share,
    command."""
    columns = ["sweep_id", "suite", "profile", "created_at", "state", "trials", "outcomes", "measured_share", "command"]
    rows = sweep_rows()
    more = ["problem"] if any("problem" in row for row in rows) else []
    frame = pd.DataFrame(rows, columns=[*columns, *more])
    return frame.assign(created_at=pd.to_datetime(frame["created_at"], unit="s", utc=True))


def compare(a: Sweep | str, b: Sweep | str) -> pd.DataFrame:
    """The cells that both sweeps have, as `sweep compare`: B over A with its interval, and the verdict.

    Warns of trials that are left out since their files are damaged. Raises UserError for one sweep on both sides, or one that cannot be
    read.
    """
    left, right = (side.folder if isinstance(side, Sweep) else find_sweep(side) for side in (a, b))
    comparison = compare_folders(left, right)
    _warn(comparison.damage)
    return frame_of(pair_records(comparison))
