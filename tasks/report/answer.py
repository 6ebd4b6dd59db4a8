"""The answer of a sweep: for the cells of one group of work, which setting wins, by how much, and how sure that is, or why none does.

A cell wins only if a verdict of at least two trials a cell puts it before every other cell of its group, and its loss parity is proven or
needs no proof. Nothing else is called faster.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from experiments.metric import Direction, Kind, Metric, Scale
from experiments.parameters import REFERENCE_SEEDS
from experiments.stats.interim_looks import only_look
from experiments.stats.verdict import Verdict
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import LEFT_OPEN, OF_MANY, TOO_WIDE, Comparison, judge_best, judge_pairs, smallest_effect, table_comparison
from tasks.analysis.looks import NOT_LOOKED, undecided_cells
from tasks.analysis.rounds_left import SENSIBLE, rounds_left
from tasks.analysis.same_work import groups_to_rank
from tasks.analysis.trial_row import keep_failing
from tasks.report.cell_names import as_baseline, names_among, without_labels
from tasks.report.next_step import NextStep, Outlook
from tasks.report.text_format import change, change_interval, change_text, difference, ended, listed, percent, plural, quantity, spread

MOST_NAMES = 4
NOT_CLAIMED = "not claimed: loss parity unproven"
_FEW = 3  # repeats; with fewer the spread is not known well enough to say how many more it takes
HOPELESS = f"No sensible number of repeats would decide it: more than {SENSIBLE} rounds as it looks now."


@dataclass(frozen=True, eq=False)
class Duel:
    """The best cell against another one."""

    other: Cell
    found: Comparison

    @property
    def won(self) -> bool:
        return self.found.verdict is Verdict.FASTER


@dataclass(frozen=True, eq=False)
class Answer:
    """What the cells of one group of work say. `best` has the best value of those that are not struck; `winner` only where it is proven.

    `work` tells the group from the others, empty for the only one. `figures`: (number, what it is). `next_step`: what would decide what
    is open; None where nothing is, or no command does.
    """

    headline: str
    best: Cell
    compared: int
    winner: Cell | None = None
    figures: Sequence[tuple[str, str]] = ()
    certainty: Sequence[str] = ()
    next_step: NextStep | None = None
    work: str = field(default="", kw_only=True)
    brief: str = field(default="", kw_only=True)  # in place of headline and value in `line`, where it tells more than both
    ahead_of: Duel | None = field(default=None, kw_only=True)  # the next cell, where `best` is ahead of every other one, proven or not
    level: Sequence[Cell] = field(default=(), kw_only=True)  # those that `best` was compared with and is not ahead of
    same_within: str = field(default="", kw_only=True)  # where all `level` are the same as `best`: the smallest effect that counts
    early: bool = field(default=False, kw_only=True)  # nothing was judged yet: then `level` are all others

    @property
    def label(self) -> str:
        """How many cells it is of: `3 cells compared`."""
        return f"{plural(self.compared, 'cell')} compared"

    @property
    def lead(self) -> str:
        """Over the next cell, with its interval: `x1.25 (1.23–1.28)`; empty where `best` is not ahead of all others."""
        return _by(self.best, self.ahead_of) if self.ahead_of else ""

    @property
    def sentences(self) -> list[str]:
        """By how much and how sure."""
        figures = (f"{value} {what}." if what.startswith("(") else f"{value}, {what}." for value, what in self.figures)
        return [*figures, *self.certainty]

    @property
    def line(self) -> str:
        """The whole answer in one sentence, beside those of other groups of work."""
        value, what = value_of(self.best)
        if self.brief:
            said = self.brief
        elif self.winner:
            said = f"{self.headline}: {value}, {what}; {self.certainty[0][:1].lower()}{self.certainty[0][1:].rstrip('.')}"
        elif self.compared == 1:
            said = self.headline
        else:
            measured = ", ".join(filter(None, [self.best.short, value, what, over_baseline(self.best)]))
            said = f"{self.headline}; best measured: {measured}"
        named = self.compared == 1 and set(self.work.split(" · ")) <= set(self.best.short.split(" · "))  # its name tells its work
        return f"{self.work}: {without_labels(said, self.work)}" if self.work and not named else said


def superlative(metric: Metric) -> str:
    """`fastest` for a rate, else `best`."""
    return "fastest" if metric.kind is Kind.RATE else "best"


def _better(metric: Metric) -> str:
    """`faster` for a rate or a time, else `better`."""
    return metric.better if metric.kind in (Kind.RATE, Kind.SECONDS) else "better"


@dataclass(frozen=True)
class _Asked:
    """What the answers of a sweep share: what the next step is made of, and the suite's smallest effect."""

    outlook: Outlook
    minimum: float | None = None
    in_rounds: bool = False  # the sweep goes on in rounds by itself, and what it says of them stands elsewhere
    lost: Sequence[Cell] = ()  # cells of the group that have no value
    told: Sequence[Cell] = ()  # those that the answer counts: of groups without an answer too, where it is the only one


def find_answers(
    cells: Sequence[Cell], outlook: Outlook | None = None, *, minimum: float | None = None, in_rounds: bool = False
) -> list[Answer]:
    """An answer for each group of cells that do the same work on as many devices; none for a group without a value that may be claimed.

    `outlook`: of the sweep. `minimum`: the smallest effect, as in `smallest_effect`. `in_rounds`: the sweep has a budget for rounds.
    """
    asked = _Asked(outlook or Outlook(), minimum, in_rounds)
    with_value = [cell for cell in cells if cell.estimate and cell.metric.direction is not Direction.NEITHER]
    lost = [cell for cell in cells if not cell.estimate]
    groups = {work: group for work, group in groups_to_rank(with_value).items() if not all(cell.struck for cell in group)}
    answers = []
    for work, group in groups.items():
        alike = [cell for cell in lost if cell.work == group[0].work and cell.devices == group[0].devices]
        answers.append(_answer(group, work, replace(asked, lost=alike, told=alike if len(groups) > 1 else lost)))
    return answers


def _answer(cells: Sequence[Cell], work: str, asked: _Asked) -> Answer:
    """The answer of cells with a value, of which one at least is not struck."""
    standing = sorted((cell for cell in cells if not cell.struck), key=_goodness, reverse=True)
    best, others = standing[0], standing[1:]
    if not others:
        certainty = ["There is nothing to compare it with.", *_struck(cells, best), *_lost(asked.told)]
        return Answer(_alone(best), best, 1, certainty=certainty, work=work)
    if headline := _too_early(standing):
        certainty = [_measured(best), *_struck(cells, best), *_lost(asked.told)]
        step = _more(standing, standing, asked)
        return Answer(headline, best, len(standing), certainty=certainty, next_step=step, work=work, level=others, early=True)
    best, found = _duels(standing, asked.minimum)
    struck = [*_struck(cells, best), *_lost(asked.told)]
    if not all(duel.won for duel in found):
        return _no_clear_winner(best, found, struck, asked, work)
    if not all(best.may_lead(duel.other) for duel in found):
        return _unproven(best, found, standing, struck, asked, work)
    so_far = " so far" if any(cell.outcome == "to do" for cell in asked.lost) else ""
    headline, certainty = f"{best.short} is {superlative(best.metric)}{so_far}", [_lead(best, found, asked.lost), *struck]
    figures = figures_of(best)
    return Answer(headline, best, len(standing), winner=best, figures=figures, certainty=certainty, work=work, ahead_of=_next(found))


def _too_early(standing: Sequence[Cell]) -> str:
    """The headline where nothing can be decided yet; empty where comparisons were judged. When they are is told of the whole sweep."""
    if max(len(cell.measured) for cell in standing) < 2:
        once = "Each cell ran once" if all(cell.ran_once for cell in standing) else "No cell has two trials that count"
        return f"{once}: no setting is called {_better(standing[0].metric)}"
    if {cell.why_undecided for cell in standing if cell.verdict is not None} == {NOT_LOOKED}:
        return "Not decided yet"
    return ""


def _duels(standing: Sequence[Cell], minimum: float | None) -> tuple[Cell, list[Duel]]:
    """The best cell and what it is to each other one, from the best value down. A cell that another one beats is not the best, whatever its
    value: where trials are missing, or ran on another host, values and comparisons may say different things."""
    best = standing[0]
    for _ in standing:
        others = [cell for cell in standing if cell is not best]
        found = [Duel(other, comparison) for other, comparison in zip(others, judge_best(best, others, minimum), strict=True)]
        beaten_by = [duel for duel in found if duel.found.verdict is Verdict.SLOWER]
        if not beaten_by:
            break
        best = min(beaten_by, key=lambda duel: duel.found.ratio.value).other
    return best, found


def _no_clear_winner(best: Cell, found: Sequence[Duel], struck: Sequence[str], asked: _Asked, work: str) -> Answer:
    level = [duel for duel in found if not duel.won]
    beaten = [duel for duel in found if duel.won and best.may_lead(duel.other)]
    same = all(duel.found.verdict is Verdict.SAME for duel in level)
    margin = _margin(best.metric, asked.minimum) if same else None
    in_table = [duel.other for duel in level if _decided_in_table(best, duel.other)]
    alike = [duel.other for duel in level if duel.other not in in_table] or in_table
    headline = f"No clear winner: {_level(best, alike, margin, asked.minimum, work)}"
    certainty = [_measured(best)]
    if in_table and alike is not in_table:
        names = listed([cell.short for cell in in_table], MOST_NAMES)
        certainty.append(f"The table's verdict on it and {names} does not allow for its having been picked as the best.")
    if beaten:
        certainty.append(f"It beats {plural(len(beaten), 'other')}.")
    if ahead := [duel for duel in found if duel.won and duel not in beaten]:
        measured = f"It was measured {_better(best.metric)} than {plural(len(ahead), 'other')}"
        certainty.append(f"{measured}: not claimed, since loss parity is unproven.")
    certainty += [*_why_open(level, len(found)), *struck]
    first = [best, *(duel.other for duel in level)]
    unproven = [cell.short for cell in first if not all(cell.may_lead(other) for other in first if other is not cell)]
    if unproven:
        certainty.append(f"Loss parity is unproven: {listed(unproven, MOST_NAMES)}.")
    cells = [best, *(duel.other for duel in found)]
    takes = _rounds_to_decide(level, max(len(cell.rows) for cell in cells), asked)
    hopeless = takes is not None and not takes and not asked.outlook.waiting
    step = None if same or hopeless else _more(cells, first, asked, min(takes) if takes else None)
    if hopeless and not asked.in_rounds:
        certainty.append(HOPELESS)
    others = [duel.other for duel in level]
    within = margin or ""
    return Answer(headline, best, len(cells), certainty=certainty, next_step=step, work=work, level=others, same_within=within)


def _decided_in_table(best: Cell, other: Cell) -> bool:
    """Whether one is the other's baseline, and called faster or slower: by its own comparison, not as the best of several."""
    found = table_comparison(best, other)
    return found is not None and found.verdict in (Verdict.FASTER, Verdict.SLOWER)


def _level(best: Cell, others: Sequence[Cell], margin: str | None, minimum: float | None, work: str) -> str:
    """What shares the first place. `margin`: all are same. The best was compared with each; that the others are not shown to differ among
    each other either is said only where they were compared too, as few are."""
    common, (first, *names) = names_among([best, *others])
    said = set(common.split(" · ")) <= set(work.split(" · "))  # the work stands before the headline
    where = f"with {common}, " if common and not said else ""
    if margin is not None:
        return f"{where}{listed(names, MOST_NAMES)} {'is' if len(names) == 1 else 'are each'} the same as {first} to within {margin}"
    if len(others) < MOST_NAMES and _none_apart(others, minimum):
        return f"{where}{listed([first, *names], MOST_NAMES)} are not shown to differ"
    return f"{where}{first} is not shown to differ from {listed(names, MOST_NAMES)}"


def _none_apart(cells: Sequence[Cell], minimum: float | None) -> bool:
    """Whether no two of these cells are faster and slower."""
    found = judge_pairs(list(combinations(cells, 2)), minimum)
    return all(one.verdict in (Verdict.SAME, Verdict.UNDECIDED) for one in found)


def _why_open(level: Sequence[Duel], comparisons: int) -> list[str]:
    """Why the best cell could not be told from each of `level`, one sentence for each reason. A reason of all names none."""
    reasons: dict[str, list[Cell]] = {}
    for duel in level:
        if duel.found.why_undecided:
            reasons.setdefault(duel.found.why_undecided, []).append(duel.other)
    lines = []
    for why, cells in reasons.items():
        names = listed(names_among(cells)[1] if len(cells) > 1 else [cells[0].short], MOST_NAMES)
        if why == OF_MANY:
            among = f"the best of {comparisons + 1} cells is ahead of others by chance too, so by itself that is not enough"
            lines.append(f"Alone, the lead over {names} would be decided; {among}.")
        else:
            lines.append(f"Undecided: {why}." if len(cells) == len(level) > 1 else f"Undecided against {names}: {why}.")
    return lines


def _unproven(best: Cell, found: Sequence[Duel], standing: Sequence[Cell], struck: Sequence[str], asked: _Asked, work: str) -> Answer:
    """The best cell is ahead of all others, but nothing shows that it learns the same."""
    note = best.parity_note or _not_compared([duel.other for duel in found if not best.may_lead(duel.other)])
    measured = f"{best.short} was measured {superlative(best.metric)}"
    headline = f"{measured}; {NOT_CLAIMED}"
    value, what = value_of(best)
    lead = f"{_by(best, _next(found))} over the next, {_next(found).other.short}"
    brief = f"{measured}: {value}, {what}; {lead}: not claimed, since its loss parity is {note.partition(':')[0]}"
    rest = [cell for cell in standing if all(cell.may_lead(other) for other in standing if other is not cell)]
    proven = _answer(rest, "", asked) if len(rest) > 1 else None
    without = [f"Without the unproven: {proven.headline}."] if proven else []
    certainty = [f"{value}, {what}; {lead}.", f"Its loss parity is {note}.", *without, *struck]
    lacks = best.parity is None or min(best.parity.seeds, best.parity.pairs) < REFERENCE_SEEDS  # else it takes steps, which its note tells
    step = asked.outlook.proof() if lacks else None
    ahead_of = _next(found)
    return Answer(headline, best, len(standing), certainty=certainty, next_step=step, work=work, brief=brief, ahead_of=ahead_of)


def _not_compared(others: Sequence[Cell]) -> str:
    """Why a cell that has nothing to prove to its baseline leads none of these, which compute otherwise."""
    names = listed([cell.short for cell in others], MOST_NAMES)
    return f"unproven against {names}: its loss was compared with no reference, since none in the sweep learns the same"


def _struck(cells: Sequence[Cell], best: Cell) -> list[str]:
    """The cells that measured better than `best` and are struck: never a winner."""
    ahead = [cell for cell in cells if cell.struck and _goodness(cell) > _goodness(best)]
    better, rest = _better(best.metric), len(ahead) - MOST_NAMES
    said = [f"{cell.short} was measured {better} ({quantity(_of(cell), cell.metric)}) and is {cell.parity_note}." for cell in ahead]
    return said if rest <= 0 else [*said[:MOST_NAMES], f"{rest} more {'was' if rest == 1 else 'were'} measured {better} and struck."]


def _lost(cells: Sequence[Cell]) -> list[str]:
    """How many cells were not compared since they have no value, by how they ended."""
    counts = Counter("without the metric" if cell.outcome == "ok" else cell.outcome for cell in cells)
    said = ", ".join(ended(count, outcome) for outcome, count in counts.items())
    return [f"{plural(len(cells), 'cell')} {'has' if len(cells) == 1 else 'have'} no value: {said}."] if cells else []


def figures_of(cell: Cell) -> list[tuple[str, str]]:
    """(number, what it is): the value and, unless it is the baseline itself, the speed-up."""
    figures = [value_of(cell)]
    if cell.speedup and cell.baseline:
        sure = {Verdict.SAME: "the same as", Verdict.UNDECIDED: "undecided against"}.get(cell.verdict or Verdict.FASTER, "over")
        over = change_interval(cell.speedup, cell.metric)
        figures.append((change(cell.speedup, cell.metric), f"{over} {sure} the {as_baseline(cell.baseline)}"))
    return figures


def value_of(cell: Cell) -> tuple[str, str]:
    """The cell's value, and its interval in words."""
    assert cell.estimate is not None
    plus = spread(cell.estimate, cell.metric)
    said = f"{plus}, 95 % interval" if plus.startswith("±") else plus.strip("()") or "no interval: it needs repeats"
    return quantity(cell.estimate.value, cell.metric), f"{said}, disturbed by other work" if cell.disturbed else said


def over_baseline(cell: Cell) -> str:
    """`x8.75 (6.39–11.98) over the baseline no cuda_graph`; empty unless the table calls it faster and that may be claimed."""
    if cell.verdict is not Verdict.FASTER or cell.speedup is None or cell.baseline is None or not cell.may_lead(cell.baseline):
        return ""
    return f"{change_text(cell.speedup, cell.metric)} over the {as_baseline(cell.baseline)}"


def _alone(cell: Cell) -> str:
    value, what = value_of(cell)
    return f"{cell.short}: {value}, {what}"


def _measured(best: Cell) -> str:
    value, what = value_of(best)
    where = "" if best.layout is None or best.layout.one_stretch else ", though not all on one host in one sitting"
    return f"Best measured{where}: {best.short}, {value}, {what}."


def _lead(best: Cell, found: Sequence[Duel], lost: Sequence[Cell]) -> str:
    own = "It is the baseline. " if best.is_compared_with else ""
    next_one = f"{_next(found).other.short}, by {_by(best, _next(found))}"
    if len(found) == 1:
        return f"{own}It beats the {'only other cell with a value' if lost else 'other'}, {next_one}."
    return f"{own}It beats {f'the {len(found)} others with a value' if lost else 'every other cell'}; the next, {next_one}."


def _next(found: Sequence[Duel]) -> Duel:
    """The duel with the best of the others."""
    return min(found, key=lambda duel: duel.found.ratio.value)


def _by(best: Cell, duel: Duel) -> str:
    return change_text(duel.found.ratio, best.metric)


def _margin(metric: Metric, minimum: float | None) -> str:
    """The smallest effect that counts, such as 2.0 %."""
    least = smallest_effect(metric, minimum)
    return percent(least) if metric.scale is Scale.LOG else difference(least, metric)


def _rounds_to_decide(level: Sequence[Duel], count: int, asked: _Asked) -> Sequence[int] | None:
    """How many more rounds each of these would take, of those that take a sensible number. None where the spread is not what keeps one of
    them open, or is not known well enough: with fewer than _FEW rounds, of one trial, of disturbed trials, of other hosts or sittings."""
    wide = [duel for duel in level if duel.found.why_undecided in (TOO_WIDE, OF_MANY, LEFT_OPEN) and math.isfinite(duel.found.ratio.se)]
    if count < _FEW or len(wide) < len(level) or any(duel.other.disturbed for duel in wide):
        return None
    left = [rounds_left(duel.found.ratio, duel.other.metric, [only_look(count)], asked.minimum) for duel in wide]
    return [rounds for rounds in left if rounds is not None]


def _more(cells: Sequence[Cell], level: Sequence[Cell], asked: _Asked, rounds: int | None = None) -> NextStep | None:
    """What would decide more: the sweep's rest, where trials are still to do; else so many rounds, where that is known, else rounds up to
    three, or to twice as many as there were.

    `level`: the cells that are to be told apart. Such rounds are by themselves of the cells alone whose comparison with the baseline is
    open, and of their baselines, which need not be these.
    """
    outlook = asked.outlook
    if outlook.waiting:
        return outlook.rest()
    if sum(not keep_failing(cell.rows) for cell in level) < 2:
        return None  # there is nothing to tell apart
    count = max(len(cell.rows) for cell in cells)
    undecided = undecided_cells(cells)
    run = {id(one) for cell in undecided for one in (cell, cell.baseline)}
    more = max(_FEW, 2 * count) - count if rounds is None else rounds
    return outlook.rounds(more, all_cells=not all(id(cell) in run for cell in level))


def _of(cell: Cell) -> float:
    assert cell.estimate is not None
    return cell.estimate.value


def _goodness(cell: Cell) -> float:
    return -cell.level if cell.metric.lower_is_better else cell.level
