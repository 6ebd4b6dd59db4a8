"""By what a sweep was run, in Markdown: its command, that `sweep resume` gave it more time, and in how many runs it was measured."""

from __future__ import annotations

from tasks.analysis.held_time import HeldTime
from tasks.report.continued import RESUME, continued_to, in_all
from tasks.report.markdown import code
from tasks.sweep.store import Plan


def given_command(plan: Plan, held: HeldTime | None = None) -> str:
    """`sweep run x`, continued by `sweep resume --budget ...`, up to 5 min of trials in all; in 2 runs.

    `held`: the sweep's held time, which tells in how many runs it was measured; more than one are said.
    """
    budget_s = continued_to(plan)
    runs = held.runs if held else None
    said = code(plan.command) if budget_s is None else f"{code(plan.command)}, continued by {code(RESUME)}, {in_all(budget_s)}"
    return f"{said}{',' if budget_s is None else ';'} in {runs} runs" if runs and runs > 1 else said
