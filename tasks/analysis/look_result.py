"""What a look at a comparison found."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.stats.verdict import Levels, Verdict
from tasks.analysis.judge_cells import Comparison


@dataclass(frozen=True)
class LookResult:
    """What the last look at a comparison found, and what it was held to."""

    found: Comparison
    levels: Levels
    round: int
    p: float  # `scaled_p`

    @property
    def decided(self) -> bool:
        return self.found.verdict is not Verdict.UNDECIDED
