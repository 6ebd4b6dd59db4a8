"""How the comparisons of a sweep with a budget stand, and what it would take to decide the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from experiments.config import duration
from experiments.stats.verdict import Verdict
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import APART, DISTURBED, ONE_BESIDE
from tasks.analysis.looks import given_up, undecided_cells
from tasks.analysis.results import Sweep
from tasks.analysis.round_cells import running_cells
from tasks.analysis.rounds_left import SENSIBLE, rounds_left
from tasks.analysis.row_times import row_times
from tasks.report.next_step import NextStep, outlook_of
from tasks.report.text_format import plural
from tasks.sweep.store import Plan

_FAILING = "the last two trials of the cell, or of its baseline, failed"


@dataclass(frozen=True)
class Standing:
    """`line`: of all comparisons, in one sentence without its stop. `step`: what would decide more; None where nothing would.

    `left`: an undecided cell's name -> about how many more rounds would decide it; None where no sensible number does.
    """

    line: str
    step: NextStep | None = None
    left: Mapping[str, int | None] = field(default_factory=dict)


def standing_of(sweep: Sweep, cells: Sequence[Cell]) -> Standing | None:
    """None for a sweep whose trials were all planned at the start, and for one that compares nothing."""
    settings = sweep.plan.decide
    compared = [cell for cell in cells if cell.verdict is not None]
    if settings is None or not compared:
        return None
    outlook = outlook_of(sweep)
    unfinished = any(row.result is None or not row.result.outcome.final for row in sweep.rows)
    if not settings.looks:
        missing = max(1, settings.least - max(row.trial.repeat for row in sweep.rows))
        only_a_look = unfinished or sweep.plan.has_all_rounds
        first = outlook.rest() if only_a_look else outlook.more(_rounds_s(sweep, _allowed(sweep.plan, missing), compared))
        when = f"after {plural(settings.least, 'round')}" if settings.until_decided else "once no other round fits the sweep's time"
        return Standing(f"No comparison is decided yet: verdicts come {when}", first)
    undecided = undecided_cells(compared)
    disturbed = [cell for cell in undecided if cell.disturbed or (cell.baseline is not None and cell.baseline.disturbed)]
    elsewhere = [cell for cell in undecided if cell.why_undecided in (APART, ONE_BESIDE)]
    few = [cell for cell in undecided if cell not in (*disturbed, *elsewhere) and _tells_nothing(cell)]
    minimum = sweep.plan.suite.report.minimum_effect
    left = {
        cell.short: None if cell in (*disturbed, *elsewhere, *few) else rounds_left(cell.speedup, cell.metric, settings.looks, minimum)
        for cell in undecided
    }
    takes = [rounds for rounds in left.values() if rounds is not None]
    said, least = [_decided(compared)], _allowed(sweep.plan, settings.least)
    step = outlook.rest() if unfinished else None
    if undecided and takes:
        pursued = [cell for cell in undecided if left[cell.short] is not None]
        about = f"{_first_and_all(takes)}, {duration.about(_rounds_s(sweep, max(takes), pursued))}"
        said.append(about if len(compared) == 1 else f"{len(takes)} undecided: {about}")
        step = outlook.more(_rounds_s(sweep, _allowed(sweep.plan, max(takes)), pursued))
    if disturbed:
        which = "it was" if len(compared) == 1 else f"{len(disturbed)} were"
        said.append(f"{which} disturbed by other work: repeat them while nothing else runs there")
        step = step or outlook.more(_rounds_s(sweep, least, disturbed))
    if elsewhere:
        which = "it was" if len(compared) == 1 else f"{len(elsewhere)} were"
        said.append(f"{which} not measured on one host in one sitting: {plural(settings.least, 'more round')} there would compare them")
        step = step or outlook.more(_rounds_s(sweep, least, elsewhere))
    if few:
        which = "it has" if len(compared) == 1 else f"{len(few)} {'has' if len(few) == 1 else 'have'}"
        said.append(
            f"{which} too few trials that count, as others were disturbed or failed: {plural(settings.least, 'more round')} would tell"
        )
        step = step or outlook.more(_rounds_s(sweep, least, few))
    begun = max(0, sweep.plan.last_round - settings.looks[-1].round)  # since the last look: there was no time for all of it
    needed = [*(max(0, rounds - begun) for rounds in takes), *([settings.least] if disturbed or elsewhere or few else [])]
    said += _beyond_the_campaign(sweep.plan, min(needed, default=0))
    if hopeless := len(undecided) - len(takes) - len(disturbed) - len(elsewhere) - len(few):
        which = "it" if len(compared) == 1 else str(hopeless)
        said.append(f"{which} cannot be decided with a sensible number of repeats: more than {SENSIBLE} rounds as it looks now")
    if stopped := sum(cell.verdict is Verdict.UNDECIDED and not cell.struck and given_up(cell) for cell in compared):
        which = "it is" if len(compared) == 1 else f"{stopped} {'is' if stopped == 1 else 'are'}"
        said.append(f"{which} not pursued: {_FAILING}")
    if sweep.plan.has_all_rounds:
        step = outlook.rest() if unfinished else None
    return Standing("; ".join(said), step, left)


def _first_and_all(takes: Sequence[int]) -> str:
    """`about 3 more rounds for the first, 41 for all`; of comparisons that take as many, `about 3 more rounds`."""
    first, last = min(takes), max(takes)
    return f"about {plural(first, 'more round')}{f' for the first, {last} for all' if last > first else ''}"


def _allowed(plan: Plan, rounds: int) -> int:
    """So many more rounds, or as many as a campaign gives its sweep."""
    return rounds if plan.rounds_allowed is None else min(rounds, plan.rounds_allowed)


def _beyond_the_campaign(plan: Plan, rounds: int) -> list[str]:
    """Of a campaign's sweep that needs so many more rounds: where these come from, if the campaign gives it fewer. Told of the fewest that
    decide a comparison: after these the rest is known better, and what takes dozens is not worth a campaign's time."""
    if (left := plan.rounds_allowed) is None or rounds <= left:
        return []
    gives = f"gives it {left} of these" if left else "gives it no other"
    return [f"campaign {plan.campaign} {gives}: raise its rounds.most there to {plan.last_round + rounds}, and run the campaign again"]


def _tells_nothing(cell: Cell) -> bool:
    """Whether so few of its trials and its baseline's count that nobody knows how far they lie apart."""
    return cell.speedup is None or not math.isfinite(cell.speedup.se)


def stands(cell: Cell, standing: Standing) -> str:
    """Of one comparison: `decided after 3 rounds`, `about 6 more rounds`."""
    if cell.verdict is not Verdict.UNDECIDED:
        return f"decided after {plural(cell.decided_after, 'round')}" if cell.decided_after else "decided"
    if cell.struck:
        return "not pursued: the loss is not its reference's"
    if given_up(cell):
        return f"not pursued: {_FAILING}"
    if cell.why_undecided in (DISTURBED, APART, ONE_BESIDE):
        return f"not compared yet: {cell.why_undecided}"
    if standing.left and _tells_nothing(cell):
        return "not known yet: too few trials that count"
    rounds = standing.left.get(cell.short)
    return f"about {plural(rounds, 'more round')}" if rounds else f"more than {SENSIBLE} more rounds" if standing.left else "no look yet"


def _decided(compared: Sequence[Cell]) -> str:
    rounds = sorted({cell.decided_after for cell in compared if cell.decided_after is not None})
    count = sum(cell.decided_after is not None for cell in compared)
    which = "all" if count == len(compared) else str(count)
    of = "" if count == len(compared) else f" of {len(compared)}"
    many = (
        f"{which}{of} comparisons with the baseline {'is' if count == 1 else 'are'} decided"
        if len(compared) > 1
        else f"the comparison with the baseline is {'decided' if count else 'undecided'}"
    )
    after = f" after {rounds[0]}{f' to {rounds[-1]}' if len(rounds) > 1 else ''} rounds" if rounds else ""
    return f"{many[:1].upper()}{many[1:]}{after}"


def _rounds_s(sweep: Sweep, count: int, undecided: Sequence[Cell]) -> float:
    """What `count` more rounds take, s: of these cells and their baselines, or of all cells where the sweep's rounds are of all."""
    times = row_times(sweep.rows)
    trials = {row.trial.cell: row.trial for row in sweep.rows}
    both = {one.trial.cell for cell in undecided for one in (cell, cell.baseline) if one is not None}
    ofs = (
        [cell for cell in trials if cell in both]
        if sweep.plan.decide is not None and sweep.plan.decide.until_decided
        else running_cells(sweep.plan, sweep.rows, number)
        for number in range(sweep.plan.last_round, sweep.plan.last_round + count)
    )
    return sum(times.of_round([trials[cell] for cell in of]) or 0.0 for of in ofs)
