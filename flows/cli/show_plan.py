"""What `sweep plan` prints, and `sweep resume` before it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from cluster.pools.lanes import together_s
from experiments.config import duration
from experiments.config.scalar_text import table_text
from experiments.spec.schema import MOST_ROUNDS
from flows.cli.tables import print_rows
from tasks.report.text_format import clock, plural
from tasks.sweep.budget import rounds_that_fit
from tasks.sweep.plan import TrialState
from tasks.sweep.store import Plan

_STATES = {"done": "green", "again": "yellow", "to do": "cyan"}


def plan_json(
    plan: Plan, states: Sequence[TrialState], expected: Mapping[str, float], against: str | None, lacking: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    """The plan with each trial's state and expected seconds (null without history), and what pools lack to run it from here."""
    trials = [
        {
            "key": entry.trial.key,
            "name": entry.trial.name,
            "pool": entry.trial.pool,
            "repeat": entry.trial.repeat,
            "reference": entry.trial.reference,
            "values": entry.trial.axes,
            "parameters": entry.trial.parameters,
            "state": entry.state,
            "why": entry.why,
            "expected_s": expected.get(entry.trial.cell),
        }
        for entry in states
    ]
    suite = plan.trials[0].suite if plan.trials else None
    return {
        "suite": suite,
        "profile": plan.profile,
        "compared_with": against,
        "budget": _budget_json(plan),
        "expected_s": _expected_total(plan, states, expected, against),
        "pool_problems": {name: "; ".join(problem) for name, problem in lacking.items()},
        "trials": trials,
    }


def _budget_json(plan: Plan) -> dict[str, Any] | None:
    """The plan's budget; `round_s` and `rounds` are null without history."""
    if plan.decide is None:
        return None
    round_s, rounds = rounds_that_fit(plan) or (None, None)
    settings = plan.decide.model_dump(include={"budget_s", "until_decided", "least", "most"})
    return {**settings, "round_s": round_s, "rounds": rounds}


def print_plan(
    out: Console, plan: Plan, states: Sequence[TrialState], expected: Mapping[str, float], against: str | None, *, auto: bool
) -> None:
    """The matrix in the order in which it would run."""
    axes = list(plan.trials[0].axes)
    references = sum(entry.trial.reference for entry in states)  # by its axes one looks like the cell whose reference it is
    rows: list[list[str | Text]] = []
    for entry in states:
        seconds = expected.get(entry.trial.cell)
        state = Text(entry.state, style=_STATES[entry.state])
        if entry.why:
            state.append(f" ({entry.why})", style="dim")
        values = [table_text(entry.trial.axes[axis], missing="") for axis in axes]
        if references:
            values.append(str(entry.trial.parameters["precision"]) if entry.trial.reference else "")
        rows.append([str(entry.trial.index + 1), *values, str(entry.trial.repeat), state, clock(seconds) if seconds else ""])
    print_rows(out, ["", *axes, *(["reference"] if references else []), "repeat", "state", "expected"], rows)
    counts = Counter(entry.state for entry in states)
    chosen = " (chosen by auto)" if auto else ""
    cells = len({trial.cell for trial in plan.trials})
    total_text = f"{plural(cells, 'cell')}, {plural(len(states), 'trial')}"
    if references:
        total_text += f", {references} of them of references: for loss parity alone"
    out.print(f"{plan.trials[0].suite}, profile {plan.profile}{chosen}: {total_text}", highlight=False)
    if against:
        tally = ", ".join(f"{count} {state}" for state, count in counts.items())
        left = "" if set(counts) == {"done"} else f"; `sweep resume {against}` goes on"
        out.print(f"against {against}: {tally}. `sweep run` measures all anew{left}", highlight=False)
    if plan.decide is not None:
        out.print(_rounds(plan), highlight=False)
        return
    total = _expected_total(plan, states, expected, against)
    out.print("expected: " + (clock(total) if total is not None else "unknown, no history yet for some cells"), highlight=False)


def print_lacking(out: Console, lacking: Mapping[str, tuple[str, str]]) -> None:
    """Which pools cannot run their trials from this machine: `sweep run` would end with that as an error."""
    for name, (problem, hint) in lacking.items():
        out.print(f"pool {name}: {problem}; {hint}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def _rounds(plan: Plan) -> str:
    """What a plan with a budget grows to."""
    assert plan.decide is not None
    settings, found = plan.decide, rounds_that_fit(plan)
    budget = duration.text(settings.budget_s)
    if found is None:
        fit = f"budget {budget}: how many rounds fit is not known, since some cells have no history yet"
    else:
        fit = f"a round takes about {duration.text(found[0])}: {plural(found[1], 'round')} of all cells fit in {budget}"
    if not settings.until_decided:
        return f"{fit}; the comparisons are judged after the last one"
    if settings.least >= settings.most:
        return f"{fit}; {plural(settings.most, 'round')} at the most, after which the comparisons are judged"
    most = f", in up to {settings.most} rounds" if settings.most < MOST_ROUNDS else ""
    return f"{fit}; from round {settings.least} on what is decided takes part in no more, and the rest has the time{most}"


def _expected_total(plan: Plan, states: Sequence[TrialState], expected: Mapping[str, float], against: str | None) -> float | None:
    """Seconds until all trials are done (of a sweep that exists, the rest), as `together_s`; None where a cell has no history."""
    rest = [entry.trial for entry in states if plan.sweep_id != against or entry.state != "done"]
    if any(trial.cell not in expected for trial in rest):
        return None
    return together_s((trial.pool, expected[trial.cell]) for trial in rest)


def print_why_again(err: Console, states: Sequence[TrialState]) -> None:
    """Before a resume: how much is done, and for each trial that is not, why it runs."""
    counts = Counter(entry.state for entry in states)
    err.print(f"{counts['done']} of {plural(len(states), 'trial')} {'is' if len(states) == 1 else 'are'} done", highlight=False)
    for entry in states:
        if entry.state == "again":
            err.print(f"  again: {entry.trial.name}: {entry.why}", highlight=False, soft_wrap=True)
    if counts["to do"]:
        err.print(f"  to do: {counts['to do']}", highlight=False)
