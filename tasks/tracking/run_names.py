"""What MLflow's runs of trials are called: its lists show some thirty letters, so a name begins with what tells its cell apart."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from experiments.trial import Trial
from tasks.sweep.store import Plan


def telling_axes(plan: Plan) -> list[str]:
    """As few axes as tell the plan's cells apart, as far as axes do; the one that parts the most cells first, of equal ones the suite's
    first. What goes with another axis, such as kernels with a precision, is not among them. Empty of a single cell."""
    cells = list({trial.cell: trial for trial in [*plan.trials, *plan.cut]}.values())
    rest = list(dict.fromkeys(axis for trial in cells for axis in trial.axes))
    chosen: list[str] = []
    while rest:
        best = max(rest, key=lambda axis: _apart(cells, [*chosen, axis]))  # the first of equal ones
        if _apart(cells, [*chosen, best]) == _apart(cells, chosen):
            break
        chosen.append(best)
        rest.remove(best)
    return chosen


def _apart(cells: Sequence[Trial], axes: Sequence[str]) -> int:
    """How many cells differ in these axes."""
    kinds: set[Hashable] = {tuple((axis in trial.axes, repr(trial.axes.get(axis))) for axis in axes) for trial in cells}
    return len(kinds)


def run_name(trial: Trial, attempt: int, axes: Sequence[str]) -> str:
    """`MP-2 · fp32 · #1`, `MP-2 · fp32 · #1 · attempt 2`. `axes`: those of `telling_axes`; without any it is the trial's whole name."""
    words = [*(text for axis in axes for text in trial.axis_labels((axis,)).values()), *trial.labels_of(())]
    name = " · ".join([*words, f"#{trial.repeat}"]) if words else trial.name
    return name if attempt == 1 else f"{name} · attempt {attempt}"
