"""What makes a sweep an A/B sweep: the same cells twice, as side A and as side B, and what the two differ by."""

from __future__ import annotations

from typing import Literal

from experiments.config.strict import Strict

Kind = Literal["commits", "environments", "settings"]


class AbSettings(Strict):
    """Of an A/B sweep (tasks/rounds/ab_plan.py). `a`, `b`: the sides as the user wrote them."""

    kind: Kind
    a: str
    b: str

    @property
    def labels(self) -> tuple[str, str]:
        """The values of the axis `side`: different also where the user wrote the same twice."""
        return f"A: {self.a}", f"B: {self.b}"
