"""Which code a sweep's numbers are of: the commit, who checked it, and the hash of what ran in each trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.analysis.results import Sweep, TrialRow
from tasks.report.text_format import listed, plural
from tasks.sweep.store import Plan

ASSERTED = "asserted, not checked"


def trees_of(rows: Sequence[TrialRow]) -> Mapping[str, list[TrialRow]]:
    """Tree -> the trials that ran it, of those that told their environment; `unknown` where they did not tell their tree."""
    trees: dict[str, list[TrialRow]] = {}
    for row in rows:
        if row.environment:
            trees.setdefault(str(row.environment.get("tree") or "unknown"), []).append(row)
    return trees


def commit_text(plan: Plan) -> str:
    """The plan's commit, and what is known of it; empty where there is none."""
    commit = str(plan.git.get("commit") or "")
    dirty = " with uncommitted changes" if plan.git.get("dirty") else ""
    return f"{commit[:12]}{dirty}{f' ({ASSERTED})' if plan.git.get('checked') is False else ''}" if commit else ""


def tree_text(sweep: Sweep) -> str:
    """The planned tree, and how many trials ran it; empty for a plan that has none."""
    planned, trees = sweep.plan.tree, trees_of(sweep.rows)
    if planned is None:
        return ""
    if set(trees) <= {planned}:
        return f"{planned} in every trial" if trees else planned
    parts = [f"{tree} in {plural(len(rows), 'trial')}" for tree, rows in trees.items()]
    return f"{planned} planned; {listed(parts)}"


def provenance_cautions(sweep: Sweep) -> list[str]:
    """What a reader must know of the code and of the plan. Nothing of plans that know no tree, which say nothing that could be checked."""
    plan = sweep.plan
    lines: list[str] = []
    if plan.tree is None:
        return lines
    for tree, rows in trees_of(sweep.rows).items():
        count, names = plural(len(rows), "trial"), listed([row.trial.name for row in rows], 8)
        if tree == "unknown":
            lines.append(f"Which code ran in {count} is not known: {names}.")
        elif tree != plan.tree:
            lines.append(f"{count} ran other code (tree {tree}) than was planned (tree {plan.tree}): {names}.")
    if plan.git.get("commit") and plan.git.get("checked") is False:
        lines.append(f"The commit {str(plan.git['commit'])[:12]} is {ASSERTED}: there was no git where the sweep was planned.")
    return lines
