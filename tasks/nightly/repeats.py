"""More repeats of the cells that are undecided, as far as the night's budget goes."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.nightly.night_run import NightRun
from tasks.nightly.plan import round_seconds, templates, with_repeats
from tasks.nightly.store import NightCell
from tasks.sweep.store import Plan


def more_repeats(run: NightRun, repeats: int) -> Plan | None:
    """The plan with so many repeats of each undecided cell and of its canary; None if nothing is undecided or there is no time for it.

    An interim analysis: the verdicts are those of what the sweep has measured so far. Cells that must go without are named in a remark.
    """
    verdicts = run.verdicts()
    undecided = set(verdicts.undecided(verdicts.judgements(run.tonight())[0]))
    if not undecided:
        return None
    open_pools = {cell.pool for cell in run.night.cells if (cell.cell, cell.role) in undecided}
    cells = [cell for cell in run.night.cells if (cell.cell, cell.role) in undecided or (cell.role == "canary" and cell.pool in open_pools)]
    first = templates(run.plan)
    chosen = [first[cell.cell, cell.role] for cell in cells if (cell.cell, cell.role) in first]
    have = max((trial.repeat for trial in run.plan.trials if trial.cell in {template.cell for template in chosen}), default=0)
    needed_s, left_s = round_seconds(_as_tonight(run, cells)) * (repeats - have), run.left_s
    if needed_s > left_s:
        names = ", ".join(cell.name for cell in cells if cell.role == "history")
        if names:
            run.remark(f"No time for more repeats of {names}: {needed_s:.0f} s wanted, {max(left_s, 0):.0f} s left.")
        return None
    return with_repeats(run.plan, chosen, repeats)


def _as_tonight(run: NightRun, cells: Sequence[NightCell]) -> list[NightCell]:
    """The cells, expected to take what their last trial took tonight."""
    took: dict[tuple[str, str], float] = {}
    for trial in run.plan.trials:
        result = run.sweep.result(trial.key)
        if result is not None:
            took[trial.labels["night.cell"], trial.labels["night.role"]] = result.finished_at - result.started_at
    return [cell.model_copy(update={"expected_s": took.get((cell.cell, cell.role), cell.expected_s)}) for cell in cells]
