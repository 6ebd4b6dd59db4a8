"""Two sweeps against each other: the same cells, the ratio of their rates, and a three-way verdict on each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.trial_layout import IMPORTED
from experiments.atomic_file import atomic_write
from experiments.config.errors import UserError
from experiments.metric import Direction
from experiments.metrics import metric_of
from experiments.stats.between_sweeps import unbounded, with_spread
from experiments.stats.estimate import Estimate
from experiments.stats.verdict import DISCOVERY, Verdict
from experiments.trial import WORKTREE
from tasks.analysis.between_sweeps import NOT_KNOWN, known_beside, spread_between
from tasks.analysis.cell import Cell
from tasks.analysis.compare_cells import make_cells
from tasks.analysis.confounders import confounders
from tasks.analysis.judge_cells import MINIMUM_EFFECT, judge_ratios, ratio_of, smallest_effect
from tasks.analysis.results import load_sweep
from tasks.analysis.spread_history import KnownSpreads
from tasks.report.commands import with_repeats
from tasks.report.comparison_table import TextTable
from tasks.report.costs_beside import OF_COSTS, costs_beside
from tasks.report.html import render_page
from tasks.report.markdown import render_text
from tasks.report.section import Section, table_section
from tasks.report.sections.device_state import disturbance_cautions
from tasks.report.text_format import OUTCOMES, change_text, difference, listed, percent, plural, quantity, size_of, spread

_SHOWN = 4  # parameters that keep two sweeps apart


class CompareError(UserError):
    """The two sweeps cannot be compared. The message says why."""


@dataclass(frozen=True, eq=False)
class Pair:
    """One cell in both sweeps. `ratio` is B over A, > 1 is faster; None where a side has no value."""

    a: Cell
    b: Cell
    ratio: Estimate | None
    verdict: Verdict | None
    differs: Sequence[str]
    why_undecided: str | None = None  # a fragment, such as "one trial"

    @property
    def word(self) -> str:
        """The verdict, or how the outcomes changed."""
        if self.verdict is Verdict.FASTER and self.b.struck:
            return "not claimed: the loss differs from its reference's"
        if self.why_undecided:
            return f"{Verdict.UNDECIDED}: {self.why_undecided}"
        if self.verdict is not None:
            return str(self.verdict)
        words = [OUTCOMES.get(cell.outcome, cell.outcome) for cell in (self.a, self.b)]
        return f"{words[0]} in both" if words[0] == words[1] else f"{words[0]} → {words[1]}"


@dataclass(frozen=True, eq=False)
class Comparison:
    """B against A. `only_a` and `only_b` are cells that the other sweep does not have."""

    a: str
    b: str
    pairs: Sequence[Pair]
    only_a: Sequence[Cell]
    only_b: Sequence[Cell]
    minimum: float
    across_pools: bool  # no cell was in both on the same pool, so pools were left out of the match
    confirm: str  # how to measure both sides in turns
    known: Sequence[str] = ()  # what the spread between sweeps rests on
    apart: Sequence[str] = ()  # of sweeps without a common cell: what differs between all cells of A and all of B
    damage: Sequence[str] = ()  # a sentence for each trial of A or B that is in no figure, since its files are damaged

    @property
    def counts(self) -> dict[str, int]:
        """How many cells have each verdict; cells without one by how their outcomes changed."""
        return dict(Counter(pair.word for pair in self.pairs))

    @property
    def headline(self) -> str:
        if not self.pairs:
            return "The two sweeps have no cell in common."
        return ", ".join(f"{plural(count, 'cell')} {word}" for word, count in self.counts.items())

    @property
    def table(self) -> TextTable:
        rows = []
        in_headline = len(self.counts) == 1  # of all cells alike: the reason is not said again in each row
        for pair in self.pairs:
            metric = pair.b.metric
            ratio = change_text(pair.ratio, metric) if pair.ratio else "–"
            word = str(Verdict.UNDECIDED) if in_headline and pair.why_undecided else pair.word
            rows.append([pair.a.name, _value(pair.a), _value(pair.b), ratio, word, ", ".join(pair.differs) or "–"])
        compared = "B less A" if self.differences else "B over A"
        return TextTable(["cell", "A", "B", f"{compared}, 95 % interval", "verdict", "also differs"], rows, verdicts=4)

    @property
    def differences(self) -> bool:
        """Whether cells are compared by differences: their metric has no ratio."""
        return any(pair.ratio is not None and pair.ratio.linear for pair in self.pairs)

    @property
    def confounders(self) -> TextTable:
        """Each difference that is not an axis, with its values in A and in B."""
        rows: dict[tuple[str, str, str], list[str]] = {}
        for pair in self.pairs:
            for name, groups in _differences(pair.a, pair.b):
                in_a, in_b = ("; ".join(value for value, members in groups if side in members) for side in (pair.a, pair.b))
                rows.setdefault((name, in_a, in_b), []).append(pair.a.name)
        return TextTable(["differs", "A", "B", "cells"], [[*key, listed(names, 4)] for key, names in rows.items()])

    @property
    def costs(self) -> TextTable:
        """What a million samples cost in A and in B, where prices or the energy are known; no row where none is."""
        return costs_beside([(pair.a, pair.b, pair.ratio) for pair in self.pairs])

    @property
    def sections(self) -> list[Section]:
        """What Markdown and HTML show below the head, in order."""
        sections = (
            table_section("cells", "Cells", self.table, ""),
            table_section("cost", "Cost of a million samples", self.costs, OF_COSTS),
            table_section(
                "confounders",
                "Confounders",
                self.confounders,
                "What differs between the two sides and is not an axis.",
                "What differs between the two sides and is not an axis: it may be part of any difference between them.",
            ),
        )
        return [section for section in sections if section is not None]

    @property
    def remarks(self) -> list[str]:
        """What limits the verdicts: disturbed trials, different times, damaged trials, pools left out, what the intervals rest on, cells
        of one side.

        Without a common cell why there is none, and what would have one.
        """
        sides = {"A": [pair.a for pair in self.pairs], "B": [pair.b for pair in self.pairs]}
        lines = [
            f"{side}: {line[0].lower()}{line[1:]}"
            for side, cells in sides.items()
            for line in disturbance_cautions([cell for cell in cells if cell.estimate])
        ]
        lines += [f"Measured at different times; confirm with repeats in turns: {self.confirm}."] if self.pairs else self.apart
        if self.damage:
            lines.append(
                f"{plural(len(self.damage), 'trial')} left out of every figure, since files are damaged ({'; '.join(self.damage)})."
            )
        if self.across_pools:
            lines.append("No cell ran on the same pool in both sweeps: cells are matched on everything but the pool.")
        lines += self.known
        for side, cells in (("A", self.only_a), ("B", self.only_b)):
            if cells:
                lines.append(f"Only in {side}: {listed([cell.name for cell in cells])}.")
        return lines


def compare(sweep_dir_a: Path, sweep_dir_b: Path, *, minimum: float = MINIMUM_EFFECT) -> Comparison:
    """Cells of B against the same cells (pool and parameters) of A. Verdicts control the false discovery rate over all cells.

    Repeats of two sweeps are not interleaved, so they are not paired: Welch's interval, each cell with the spread of its own repeats, and
    with the spread between sweeps that other sweeps of the workload there show. Where that is not known, or a side has a single trial,
    there is no verdict. Emulated trials are left out. Raises ResultsError where a plan cannot be read, CompareError for one sweep on both
    sides.
    """
    for folder in (sweep_dir_a, sweep_dir_b):
        if (folder / IMPORTED).exists():
            problem = "others measured it, under conditions that nobody here knows, and no interval covers how far that lies from ours"
            raise CompareError(f"{folder.name} was imported: {problem}; `sweep show {folder.name}` shows its figures")
    sweeps = [load_sweep(folder) for folder in (sweep_dir_a, sweep_dir_b)]
    if sweeps[0].sweep_id == sweeps[1].sweep_id:
        raise CompareError(f"both sides are sweep {sweeps[0].sweep_id}: name two different ones; `sweep list` shows them")
    known = known_beside(sweeps)
    a, b = (make_cells(sweep.rows, sweep.plan.suite, known=known.trial) for sweep in sweeps)
    pool_blind = not {_identity(cell, True) for cell in a} & {_identity(cell, True) for cell in b}
    left, right = ({_identity(cell, not pool_blind): cell for cell in side} for side in (a, b))
    if pool_blind and (len(left) < len(a) or len(right) < len(b)):  # several pools in one sweep: no telling which to match
        left, right, pool_blind = {}, {}, False
    both = [key for key in left if key in right]
    pairs = _decide([(left[key], right[key]) for key in both], minimum, known)
    matched = {id(cell) for pair in pairs for cell in (pair.a, pair.b)}
    rest = [[cell for cell in side if id(cell) not in matched] for side in (a, b)]
    return Comparison(
        sweeps[0].sweep_id,
        sweeps[1].sweep_id,
        pairs,
        rest[0],
        rest[1],
        minimum,
        pool_blind and bool(pairs),
        in_turns(sweeps[0].plan.command, sweeps[1].plan.command),
        _known_lines(known) if pairs else [],
        [] if pairs else _apart(a, b),
        [problem for sweep in sweeps for problem in sweep.problems],
    )


def _apart(a: Sequence[Cell], b: Sequence[Cell]) -> list[str]:
    """Why no cell of A is one of B: what has one set of values there and another here, the workload first."""
    lines = []
    sides = [[{"workload": cell.trial.workload, "pool": cell.trial.pool, **cell.trial.parameters} for cell in side] for side in (a, b)]
    for name in dict.fromkeys(name for side in sides for values in side for name in values):
        values = [list(dict.fromkeys(json.dumps(cell.get(name)) for cell in side)) for side in sides]
        if all(values) and not {*values[0]} & {*values[1]} and name != "pool":
            lines.append(f"{name} is {listed(values[0], 3)} in A and {listed(values[1], 3)} in B")
            if name == "workload":
                break
    why = f"{'; '.join(lines[:_SHOWN])}{f', and {len(lines) - _SHOWN} more differ' if len(lines) > _SHOWN else ''}. " if lines else ""
    same = "Cells are the same where workload, environment, commit and every parameter are."
    return [f"{why}{same} Two sweeps of one suite and profile have common cells; `sweep ab` measures two settings or commits in turns."]


def _identity(cell: Cell, with_pool: bool) -> str:
    run = [cell.trial.environment, cell.axes.get("commit", WORKTREE)]  # `main` against what it was
    return json.dumps([cell.trial.workload, cell.trial.pool if with_pool else None, *run, cell.trial.parameters], sort_keys=True)


def _decide(cells: Sequence[tuple[Cell, Cell]], minimum: float, known: KnownSpreads) -> list[Pair]:
    both = [(b, a) for a, b in cells if a.estimates and b.estimates]
    ratios: list[Estimate] = []
    missing: list[str | None] = []
    for b, a in both:
        spreads, why = spread_between(a, b, known)
        ratio = ratio_of(b, a, paired=False)
        ratios.append(unbounded(ratio) if why else with_spread(ratio, spreads))
        missing.append(why)
    found = {id(b): comparison for (b, _), comparison in zip(both, judge_ratios(both, ratios, minimum, missing=missing), strict=True)}
    pairs = []
    for a, b in cells:
        comparison = found.get(id(b))
        differs = [name for name, *_ in _differences(a, b, between=True)]
        if comparison is None:
            pairs.append(Pair(a, b, None, None, differs))
        elif b.metric.direction is Direction.NEITHER:
            pairs.append(Pair(a, b, comparison.ratio, None, differs))
        else:
            pairs.append(Pair(a, b, comparison.ratio, comparison.verdict, differs, comparison.why_undecided))
    return pairs


def _differences(a: Cell, b: Cell, *, between: bool = False) -> list[tuple[str, list[tuple[str, list[Cell]]]]]:
    """The confounders of a pair, after its pools where these differ: an axis of both sweeps, and not one that the pair is compared by."""
    pools = [("pool", [(cell.trial.pool, [cell]) for cell in (a, b)])] if a.trial.pool != b.trial.pool else []
    return [*pools, *(one for one in confounders([a, b], between=between) if one[0] != "pool")]


def _known_lines(known: KnownSpreads) -> list[str]:
    """What is known of the spread between sweeps at each place that was compared."""
    lines = []
    for (pool, device, workload, metric), there in known.places.items():
        where = f"of {workload} on pool {pool} ({device})" if device else f"of {workload} on pool {pool}"
        if there.sweep is None:
            needs = "it takes four other sweeps that measured a cell with one code, libraries and data on one host"
            lines.append(f"How much sweeps {where} differ is not known: {needs}.")
        else:
            by = size_of(there.sweep, metric_of(metric))
            lines.append(f"Sweeps {where} differ by {by} (one standard deviation), as {plural(there.sweeps, 'other sweep')} there show.")
    return lines


def in_turns(command_a: str, command_b: str) -> str:
    """How to measure both sides in turns: `sweep run` with repeats, and with what differs as an axis where it is in the commands."""
    command = with_repeats(command_b, 3)
    if not command:
        return "`sweep run SUITE --repeats 3`, with what differs as an axis"
    return f"`{command}`" if command_a == command_b else f"`{command}`, with what differs as an axis"


def _value(cell: Cell) -> str:
    if cell.estimate is None:
        return OUTCOMES.get(cell.outcome, cell.outcome)
    return f"{quantity(cell.estimate.value, cell.metric)} {spread(cell.estimate, cell.metric)}".strip()


def render_markdown(comparison: Comparison) -> str:
    """The comparison as Markdown, every value escaped."""
    return render_text("comparison.md.jinja", comparison=comparison, explained=_explained(comparison))


def _asks(comparison: Comparison) -> str:
    """What repeats can do. Where the spread between sweeps is not known they decide nothing: the remarks say what that takes."""
    undecided = {pair.why_undecided for pair in comparison.pairs if pair.verdict is Verdict.UNDECIDED}
    return "; undecided asks for more repeats" if undecided - {NOT_KNOWN} or not undecided else ""


def _explained(comparison: Comparison) -> str:
    if not comparison.pairs:
        return ""
    if comparison.differences:
        metric = next(pair.b.metric for pair in comparison.pairs if pair.ratio is not None)
        least = difference(smallest_effect(metric, comparison.minimum), metric)
        explanation = f"{metric.label} may be 0, so B is compared with A by their difference: {metric.direction} is better."
        return f"{explanation} Differences under {least} count as the same{_asks(comparison)}."
    return (
        f"The ratio is B over A: above 1 is faster. Differences under {percent(comparison.minimum)} count as the same{_asks(comparison)}. "
        f"The false discovery rate over all cells is {percent(DISCOVERY)}."
    )


def write_comparison(comparison: Comparison, folder: Path) -> tuple[Path, Path]:
    """Write comparison.md and comparison.html into `folder`, each whole or not at all. Returns both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    markdown, html = folder / "comparison.md", folder / "comparison.html"
    atomic_write(markdown, render_markdown(comparison))
    atomic_write(html, render_page("comparison.html", comparison=comparison, explained=_explained(comparison)))
    return markdown, html
