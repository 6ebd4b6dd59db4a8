"""What the trials of a cell did, in whatever sweep: what the store of spreads keeps of it, and by what it is found again."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field

from experiments import workloads
from experiments.config.errors import ConfigError
from experiments.config.paths import extra_folders
from experiments.config.strict import Strict
from experiments.non_default_parameters import default_values, non_default
from experiments.trial import digest
from tasks.analysis.trial_row import TrialRow


class PastCell(Strict):
    """The work of a trial. Not where it ran, and not its seed: the repeats of a cell may each have their own."""

    workload: str
    parameters: dict[str, Any] = Field(description="all but the seed, with the batch that `max` came to")
    lock_clocks_mhz: int | None = None
    environment: str | None = None
    commit: str | None = None

    @property
    def identity(self) -> str:
        """16 hex digits of the work, by the parameters that are not at their default.

        By the defaults of the code that asks, so it is kept nowhere: one by the defaults of another day might be that of other work.
        """
        values = non_default(self.parameters, _defaults(self.workload, tuple(extra_folders())))
        return digest([self.workload, self.lock_clocks_mhz, values, self.environment, self.commit])


def past_cell(row: TrialRow) -> PastCell:
    """The work that a trial did."""
    trial = row.trial
    parameters = {name: value for name, value in trial.parameters.items() if name != "seed"}
    if parameters.get("batch_size") == "max":
        parameters["batch_size"] = row.summary.get("batch_size")
    return PastCell(
        workload=trial.workload,
        parameters=parameters,
        lock_clocks_mhz=trial.lock_clocks_mhz,
        environment=trial.environment,
        commit=trial.commit,
    )


@lru_cache(maxsize=64)  # a store has thousands of cells
def _defaults(workload: str, folders: tuple[Path, ...]) -> dict[str, Any]:
    """The defaults of a workload's parameters. `folders`: the user's, in which it may lie. One that is no longer there has none."""
    try:
        return default_values(workloads.load(workload).Parameters)
    except ConfigError:
        return {}
