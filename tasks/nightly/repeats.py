"""More trials of what a night has not decided, as far as its budget goes: pairs of two commits, or repeats of tonight's code."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.nightly.night_run import NightRun
from tasks.nightly.pair_trials import with_pairs
from tasks.nightly.plan import round_seconds, templates, with_repeats
from tasks.nightly.store import PAIRED, NightCell
from tasks.sweep.store import Plan


def more_pairs(run: NightRun) -> Plan | None:
    """The plan with the pairs up to the next look of each cell that looked changed and is not decided; None where there are none.

    What looks worst comes first. Cells whose pairs do not fit what is left of the budget go without, and their verdict says so.
    """
    items, _ = run.judged()
    took, left_s = run.trial_seconds(), run.left_s
    chosen, trees = [], dict(run.plan.trees)
    for item, partners, count in run.pairing.wanted(items, run.plan):
        planned = sum(trial.cell == partners.good.cell for trial in run.plan.trials)
        trial_s = took.get((item.cell, PAIRED), took.get((item.cell, "history"), 0.0))
        left_s -= 2 * (count - planned) * trial_s
        if left_s < 0:
            left_s += 2 * (count - planned) * trial_s
            run.pairing.out_of_time.add(item.cell)
            continue
        chosen.append((partners.good, partners.tonight, count))
        trees |= partners.trees
    return with_pairs(run.plan, chosen).model_copy(update={"trees": trees}) if chosen else None


def more_repeats(run: NightRun, repeats: int) -> Plan | None:
    """The plan with so many repeats of each undecided cell and of its canary; None if nothing is undecided or there is no time for it.

    An interim analysis: the verdicts are those of what the sweep has measured so far. Cells that must go without are named in a remark.
    """
    undecided = set(run.verdicts().undecided(run.judged()[0]))
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
    took = run.trial_seconds()
    return [cell.model_copy(update={"expected_s": took.get((cell.cell, cell.role), cell.expected_s)}) for cell in cells]
