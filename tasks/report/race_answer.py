"""The answer of a race: who won, or who is level, by how much, and who dropped out why. What tasks/report/answer.py is for other sweeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from experiments.config import duration
from tasks.analysis.cell import Cell
from tasks.analysis.race import Dropout, Race, State, Why
from tasks.analysis.row_times import row_times
from tasks.report.answer import MOST_NAMES, NOT_CLAIMED, Answer, superlative, value_of
from tasks.report.next_step import NextStep, Outlook
from tasks.report.text_format import OUTCOMES, listed, percent, plural, times

_DID = {Why.NO_VALUE: "without {what}", Why.LIMIT: "surely not {what}", Why.STRUCK: "loss struck", Why.BEHIND: "surely behind"}
_AGAIN = "dropped by a trial that ran again since"


def race_answer(race: Race, cells: Sequence[Cell], outlook: Outlook) -> Answer | None:
    """None where no setting leads. `cells`: the report's; `outlook`: of the sweep."""
    by_hash = {cell.trial.cell: cell for cell in cells}
    leader = race.leader
    best = by_hash.get(race.trials[leader].cell) if leader is not None else None
    if leader is None or best is None or best.estimate is None:
        return None
    others = [by_hash[race.trials[racer].cell].short for racer in race.level_with(leader)]
    tail = [*_open_limits(race), *_next(race), *_counts(race)]
    count, margin = len(race.trials), percent(race.settings.minimum)
    value, what = value_of(best)
    if race.state is State.OPEN:
        headline = f"Not decided: {best.short} leads" + (f", and {_apart(others)}" if others else "")
        more = _more(race, cells, outlook)
        return Answer(headline, best, count, certainty=[f"{value}, {what}.", *tail], next_step=more)
    if best.disturbed:
        headline = f"{best.short} leads, but all of its trials were disturbed by other work: nothing is claimed"
        return Answer(headline, best, count, certainty=[f"{value}, {what}.", *tail])
    tail += _disturbed(race, by_hash)
    unproven = not all(best.may_lead(cell) for cell in cells if cell is not best and cell.measured and not cell.struck)
    won = f"The chance of a wrong winner is meant to be at most {percent(race.settings.chance)} (docs/verdicts.md, Races)."
    if race.state is State.LEVEL:
        headline = f"No clear winner: {best.short} is within {margin} of the {superlative(best.metric)}, and {_apart(others)}"
        return Answer(headline, best, count, certainty=[f"{value}, {what}.", *_parity(best, unproven=unproven), won, *tail])
    alone = all(one.why not in (Why.BEHIND, Why.LIMIT) for one in race.dropouts)
    if alone or unproven:
        only = f"{best.short} is the only setting left: none was shown to be worse"
        measured = f"{best.short} was measured {superlative(best.metric)}; {NOT_CLAIMED}"
        certainty = [f"{value}, {what}.", *_parity(best, unproven=unproven), *tail]
        return Answer(only if alone else measured, best, count, certainty=certainty)
    headline = f"{best.short} is {superlative(best.metric)}"
    return Answer(headline, best, count, winner=best, figures=[(value, what)], certainty=[won, *tail])


def no_race_answer(race: Race) -> str:
    """Why no setting leads."""
    if race.state is State.NOBODY:
        return " ".join(["No setting is left.", *_counts(race)])
    open_limits = " ".join(_open_limits(race))
    return (
        f"No setting can be judged before {'it keeps all limits for sure. ' if open_limits else 'two whole rounds.'}{open_limits}".strip()
    )


def race_next_step(race: Race, cells: Sequence[Cell], outlook: Outlook) -> NextStep | None:
    """What goes on with a race that is not decided, whether or not a setting leads; None of any other."""
    return _more(race, cells, outlook) if race.state is State.OPEN else None


def why_out(one: Dropout) -> str:
    """Why a setting dropped out, in a few words: `did not fit`, `surely behind: x1.07 (at least x1.03)`."""
    if one.why is Why.ENDED:
        return f"{OUTCOMES.get(one.what, one.what)}{f': {one.reason}' if one.reason else ''}"
    said = _kind(one)
    if one.ratio is None:
        return said
    value, low, _ = one.ratio
    return f"{said}: the leader is {f'x{value:.3f}, at least {low:.3f}' if low > 1 else times(value)}"


def setting_name(race: Race, racer: int) -> str:
    """For people, by what tells settings apart: `bf16 · MP-1`."""
    one = race.trials[racer]
    varied = [name for name in one.axes if len({repr(trial.axes.get(name)) for trial in race.trials}) > 1]
    return " · ".join((one.axis_labels(varied) or one.axis_labels(one.axes)).values())


def _kind(one: Dropout) -> str:
    if one.why is Why.ENDED:
        return OUTCOMES.get(one.what, one.what)
    return _DID[one.why].format(what=one.what) if one.why in _DID else _AGAIN


def _apart(names: list[str]) -> str:
    return f"{listed(names, MOST_NAMES)} {'is' if len(names) == 1 else 'are'} not shown to differ from it"


def _next(race: Race) -> list[str]:
    """The nearest of those that were dropped for being behind."""
    behind = [one for one in race.dropouts if one.ratio is not None]
    if not behind or len(race.left) > 1:
        return []
    near = min(behind, key=lambda one: one.ratio[0] if one.ratio else 0.0)
    assert near.ratio is not None
    return [f"The next, {setting_name(race, near.racer)}, dropped out after round {near.round}: {why_out(near)}."]


def _counts(race: Race) -> list[str]:
    """How many dropped out for what."""
    kinds: dict[str, int] = {}
    for one in race.dropouts:
        kinds[_kind(one)] = kinds.get(_kind(one), 0) + 1
    rounds = plural(len(race.rounds), "round")
    if not kinds:
        return [f"None of {plural(len(race.trials), 'setting')} dropped out in {rounds}."]
    said = listed([f"{count} {kind}" for kind, count in kinds.items()], len(kinds))
    return [f"Of {plural(len(race.trials), 'setting')}, {len(race.dropouts)} dropped out in {rounds} ({said})."]


def _disturbed(race: Race, by_hash: Mapping[str, Cell]) -> list[str]:
    """The settings that are behind by disturbed trials alone: they may be faster than they seem."""
    behind = [by_hash.get(race.trials[one.racer].cell) for one in race.dropouts if one.why is Why.BEHIND]
    names = [cell.short for cell in behind if cell is not None and cell.disturbed]
    return [f"All trials of {listed(names, MOST_NAMES)} were disturbed by other work: perhaps not that far behind."] if names else []


def _open_limits(race: Race) -> list[str]:
    """Limits of which it is open whether settings that are left keep them: these cannot win."""
    names: dict[str, list[str]] = {}
    for racer, limits in race.open_limits.items():
        for limit in limits:
            names.setdefault(limit.text, []).append(setting_name(race, racer))
    return [f"Whether {listed(each, MOST_NAMES)} keeps {text} is open." for text, each in names.items()]


def _parity(best: Cell, *, unproven: bool) -> list[str]:
    if not unproven:
        return []
    return [f"Loss parity of {best.short}: {best.parity_note or 'unproven, since no reference ran; --parity runs one'}."]


def _more(race: Race, cells: Sequence[Cell], outlook: Outlook) -> NextStep | None:
    """What would decide more: the sweep's rest, where trials are still to do; else as many rounds as there were, of those left."""
    rows = [row for cell in cells for row in cell.rows]
    if any(row.outcome in ("to do", "cancelled") for row in rows):
        return outlook.rest()
    took = row_times(rows)
    round_s = took.of_round(race.trials[racer] for racer in race.left)
    if round_s is None:
        return None
    seconds = max(2, len(race.rounds)) * round_s  # two at least
    return NextStep(f"sweep resume {outlook.sweep_id} --budget {duration.text(math.ceil(seconds))}", seconds)
