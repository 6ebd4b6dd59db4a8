"""Which code a sweep's numbers are of: the commit, who checked it, and the hash of what ran in each trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow
from tasks.report.same_code import Told, history_is_cut, ran_the_code_of_its_key, told_commit
from tasks.report.text_format import listed, plural
from tasks.sweep.store import Plan

ASSERTED = "asserted, not checked"
_NOTES = {
    Told.FOUND: " (git has it with this tree)",
    Told.ASSERTED: f" ({ASSERTED})",
    Told.OTHER: " (asserted, and its tree is another)",
}


def trees_of(rows: Sequence[TrialRow]) -> Mapping[str, list[TrialRow]]:
    """Tree -> the trials that ran it, of those that told their environment; `unknown` where they did not tell their tree."""
    trees: dict[str, list[TrialRow]] = {}
    for row in rows:
        if row.environment:
            trees.setdefault(str(row.environment.get("tree") or "unknown"), []).append(row)
    return trees


def strays(sweep: Sweep) -> Mapping[tuple[str, str], list[TrialRow]]:
    """(tree that ran, tree that was planned) -> trials, where the two differ, and not only in what the trial does not import: a sweep may
    have gone on at another commit. A trial's plan is its commit's tree, where it has a commit.

    A commit from before there were trees tells none, neither in the plan nor in its trials: there nothing differs.
    """
    found: dict[tuple[str, str], list[TrialRow]] = {}
    for tree, rows in trees_of(sweep.rows).items():
        for row in rows:
            commit = row.trial.commit
            planned = (sweep.plan.trees.get(commit) if commit else sweep.plan.tree) or "unknown"
            if tree != planned and not ran_the_code_of_its_key(row):
                found.setdefault((tree, planned), []).append(row)
    return found


def commit_text(plan: Plan) -> str:
    """The plan's commit, and what is known of it; empty where there is none."""
    commit = str(plan.git.get("commit") or "")
    dirty = " with uncommitted changes" if plan.git.get("dirty") else ""
    return f"{commit[:12]}{dirty}{_NOTES.get(told_commit(plan), '')}" if commit else ""


def other_commits(sweep: Sweep) -> Mapping[str, list[TrialRow]]:
    """Commit -> the trials that told that they ran at it, where that is not the plan's: the sweep went on at another. Without the trials
    that have a commit of their own."""
    planned = str(sweep.plan.git.get("commit") or "")
    told: dict[str, list[TrialRow]] = {}
    for row in sweep.rows:
        commit = str(row.environment.get("git_commit") or "")
        if commit and planned and commit != planned and not row.trial.commit:
            told.setdefault(commit, []).append(row)
    return told


def ran_at(sweep: Sweep) -> str:
    """The plan's commit and, where the sweep went on at others, how many trials ran at which: `0123456789ab; 3 trials at fedcba987654`."""
    others = [f"{plural(len(rows), 'trial')} at {commit[:12]}" for commit, rows in other_commits(sweep).items()]
    return "; ".join([commit_text(sweep.plan), *others])


def commits_text(plan: Plan) -> str:
    """The commits that trials run instead of the code here: `main: 0123456789ab, tree fedcba9876543210`; empty without any."""
    commits = {trial.commit: trial.axes.get("commit") for trial in plan.trials if trial.commit}
    named = {commit: f"{name}: {commit[:12]}" if name else commit[:12] for commit, name in commits.items()}
    return "; ".join(f"{name}, tree {plan.trees.get(commit, 'unknown')}" for commit, name in named.items())


def tree_text(sweep: Sweep) -> str:
    """The planned tree, and how many trials ran it, of the trials without a commit of their own; empty for a plan that has none."""
    mine = [row for row in sweep.rows if not row.trial.commit]
    planned, trees = sweep.plan.tree, trees_of(mine)
    if planned is None or (sweep.rows and not mine):
        return ""
    if set(trees) <= {planned}:
        every = "every trial" if len(mine) == len(sweep.rows) else f"the {plural(len(mine), 'trial')} without a commit"
        return f"{planned} in {every}" if trees else planned
    parts = [f"{tree} in {plural(len(rows), 'trial')}" for tree, rows in trees.items()]
    return f"{planned} planned; {listed(parts)}"


def provenance_cautions(sweep: Sweep) -> list[str]:
    """What a reader must know of the code and of the plan. Nothing of plans that know no tree, which say nothing that could be checked."""
    plan = sweep.plan
    lines: list[str] = []
    if plan.tree is None:
        return lines
    for (tree, planned), rows in strays(sweep).items():
        count, names = plural(len(rows), "trial"), listed([row.trial.name for row in rows], 8)
        if tree == "unknown":
            lines.append(f"Which code ran in {count} is not known: {names}.")
        else:
            lines.append(f"{count} ran other code (tree {tree}) than was planned (tree {planned}): {names}.")
    for commit, rows in other_commits(sweep).items():
        at = str(plan.git["commit"])[:12]
        same = ": what they import is the same at both" if all(ran_the_code_of_its_key(row) for row in rows) else ""
        lines.append(f"{plural(len(rows), 'trial')} ran at commit {commit[:12]}, where the sweep's plan is of {at}{same}.")
    if plan.git.get("commit") and (told := told_commit(plan)) in (Told.ASSERTED, Told.OTHER):
        where = "there was no git where the sweep was planned"
        found = "" if plan.git.get("dirty") else ", and git here does not show it"
        if found and history_is_cut():
            found += ", a shallow clone: after `git fetch --unshallow` it may"
        if told is Told.OTHER:
            found = ", and git here has it with another tree, as changed files or workloads of one's own make it"
        lines.append(f"The commit {str(plan.git['commit'])[:12]} is {ASSERTED}: {where}{found}.")
    return lines
