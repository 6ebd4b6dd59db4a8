"""Cells of one axis with losses of their own, as the loss-parity gate sees them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.analysis.trial_row import TrialRow
from tests.tasks.cell_support import made, row, settings

NEEDS = "1 of 3 seeds of the reference; needs 2 more fp32 seeds (parity_reference: 3)"
THREE = (0, 1, 2)
PLAIN: dict[str, Any] = {
    "precision": "fp32",
    "compile": "none",
    "attention": "eager",
    "optimizer": "foreach",
    "parallel": "ddp",
    "kernels": "stock",
    "linear": "plain",  # of earlier sweeps
}
FP8: dict[str, Any] = {"precision": "fp8", "kernels": "fused", "seeds": THREE}
BF16: dict[str, Any] = {"precision": "bf16", "kernels": "stock", "seeds": THREE}


def cell(name: str, loss: float = 2.0, *, seeds: Sequence[int] = (0,), steps: int = 120, **parameters: Any) -> list[TrialRow]:
    """A cell of the axis `name`, a trial for each seed; seeds are a hundredth apart."""
    more = {key: parameters.pop(key) for key in ("device", "outcome", "summary", "result_summary") if key in parameters}
    chosen = {"name": "", **parameters}
    curves = [[loss * (1 + seed / 100) * (3.0 if step < 20 else 1.0) for step in range(steps)] for seed in seeds]
    value = None if "outcome" in more else 100.0
    return [
        row({"pool": "cpu", "name": name}, value, repeat=at, losses=curve, parameters={**chosen, "seed": seed}, **more)
        for at, (seed, curve) in enumerate(zip(seeds, curves, strict=True), 1)
    ]


def gate(*cells: list[TrialRow], baseline: str = "base") -> dict[str, Cell]:
    found = made([one for rows in cells for one in rows], settings(baseline={"name": baseline}, rows=("name",)))
    return {str(one.axes["name"]): one for one in found}


def status(one: Cell) -> str | None:
    return str(one.parity.status) if one.parity else None


def diverging(rows: list[TrialRow], *seeds: int, at: int = 60) -> list[TrialRow]:
    """The rows, of which the trainings of these seeds end at a step whose loss is not finite."""

    def ended(one: TrialRow) -> TrialRow:
        losses = one.losses[:at].copy()
        losses[-1] = math.inf
        assert one.result is not None
        result = one.result.model_copy(update={"outcome": Outcome.DIVERGED, "reason": f"the loss was nan at step {at}"})
        return replace(one, result=result, summary={}, losses=losses)

    return [ended(one) if one.trial.parameters["seed"] in seeds else one for one in rows]
