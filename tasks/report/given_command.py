"""By what a sweep was run, in Markdown: its command and, where `sweep resume` gave it more time, that."""

from __future__ import annotations

from tasks.report.continued import RESUME, continued_to, in_all
from tasks.report.markdown import code
from tasks.sweep.store import Plan


def given_command(plan: Plan) -> str:
    """`sweep run x`, continued by `sweep resume --budget ...`, up to 5 min of trials in all."""
    budget_s = continued_to(plan)
    return code(plan.command) if budget_s is None else f"{code(plan.command)}, continued by {code(RESUME)}, {in_all(budget_s)}"
