"""What makes a sweep a race: which metric, which limits, how long, how sure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from experiments.config.strict import Strict
from experiments.stats.interim_looks import RACE_CHANCE
from tasks.sweep.constraints import Constraint


class RaceSettings(Strict):
    """Of a sweep that looks for the best setting and drops others on the way: tasks/rounds/race_plan.py, tasks/analysis/race.py."""

    metric: str
    direction: Literal["maximise", "minimise"]
    where: list[Constraint] = Field(default_factory=list)
    parity: bool = Field(False, description="settings whose loss differs from their reference's drop out")
    budget_s: float = Field(gt=0, description="no round starts that would not end before trials have run for so long, s")
    chance: float = Field(RACE_CHANCE, gt=0, lt=0.5, description="of dropping the best, or of a wrong winner, over the whole race")
    minimum: float = Field(gt=0, description="settings that are surely less than this apart are level: 0.02 is 2 %")
    references: list[str] = Field(default_factory=list, description="cells that loss parity needs: they run a round for each of its seeds")
    seeds: int = Field(0, ge=0, description="of the references")

    @property
    def better(self) -> int:
        """1 where more is better, else -1."""
        return 1 if self.direction == "maximise" else -1
