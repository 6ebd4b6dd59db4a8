"""A section of a report, what it holds, and what it is made of. Markdown and HTML render the same sections in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from tasks.analysis.aa import AaResult
from tasks.analysis.cell import Cell
from tasks.analysis.certificates import KnownOfDevice
from tasks.analysis.held_time import HeldTime
from tasks.analysis.known_spread import NOTHING, SweepKnowledge
from tasks.analysis.race import Race
from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow
from tasks.report.comparison_table import ComparisonTable, TextTable


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    kind: ClassVar[str] = "bullets"
    lines: Sequence[str]


@dataclass(frozen=True)
class Facts:
    """Names with a value each. `code`: the names whose value is a command."""

    kind: ClassVar[str] = "facts"
    pairs: Sequence[tuple[str, str]]
    code: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Figures:
    """(title, SVG file) of each figure. Markdown links to the file by its folder's name, the page holds its content.

    `elsewhere`: names of files that the page shows otherwise.
    """

    kind: ClassVar[str] = "figures"
    figures: Sequence[tuple[str, Path]]
    elsewhere: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RankedCell:
    """A cell in its place among those that do the same work. `bar`: where its interval begins, its value lies and its interval ends, in
    percent of the bar's width; begin and end are None where no interval is known. `base`: the same of its baseline's value. `hover`: all
    that is known of its value, in one line. `beyond`: whether its interval goes on beyond the left and the right end of the bars;
    `beyond_top`: the same of the part that the first cells lie in, of these alone."""

    place: int
    cell: Cell
    name: str  # what tells it from the others of its group
    value: str
    plus_minus: str
    change: str  # x1.17 (1.15–1.19), `baseline`, or empty
    words: str  # `faster`, `undecided, unproven`
    claimed: bool  # whether `words` is a verdict that may be claimed
    bar: tuple[float | None, float, float | None]
    base: float | None
    hover: str
    beyond: tuple[bool, bool]
    beyond_top: tuple[bool, bool]


@dataclass(frozen=True)
class Ranking:
    """The cells of one group of work, the best first. `ends`: the values at both ends of the bars. `top`: the part of the
    bars, from and to in percent, that the first cells lie in, and `top_ends` its values; None where it is most of them. `rest`: how many
    cells were left out."""

    kind: ClassVar[str] = "ranking"
    work: str
    cells: Sequence[RankedCell]
    ends: tuple[str, str]
    top: tuple[float, float] | None = None
    top_ends: tuple[str, str] | None = None
    rest: int = 0


@dataclass(frozen=True)
class TrialLine:
    """One trial: `link` is its MLflow run, `command` runs its cell again and stands at the cell's first trial."""

    name: str
    outcome: str
    reason: str
    value: str
    loss: str
    command: str
    link: str | None
    emulated: bool


@dataclass(frozen=True)
class TrialTable:
    """A line for each trial, with its link and its command. `rest`: how many trials were left out."""

    kind: ClassVar[str] = "trials"
    lines: Sequence[TrialLine]
    rest: int = 0

    @property
    def has_commands(self) -> bool:
        return any(line.command for line in self.lines)


Block = TextTable | ComparisonTable | Ranking | Bullets | Facts | Figures | TrialTable
B = TypeVar("B", TextTable, ComparisonTable, Ranking, Bullets, Facts, Figures, TrialTable)


@dataclass(frozen=True)
class Section:
    """One section. `name` finds it in a report. templates/blocks.md.jinja and templates/blocks.html write each kind of block.

    `text` and `page_text` explain the section. They are constants of the section's file and hold no value from a trial or a suite, since
    the Markdown template does not escape them.
    """

    name: str
    title: str
    blocks: Sequence[Block]
    text: str = ""
    page_text: str | None = None  # in place of `text` on the HTML page, which has room for more
    part_of_previous: bool = False  # a smaller heading inside the section before
    on_page: bool = True  # False: the page says it at its head
    only_how: bool = False  # it says how to get what it would hold, and no more: nothing links to it
    folded: bool = False  # on the page, what few readers need is closed until asked for

    def block(self, kind: type[B]) -> B:
        """The section's first block of this kind. Raises KeyError where it has none."""
        for block in self.blocks:
            if isinstance(block, kind):
                return block
        raise KeyError(f"section {self.name} has no {kind.__name__}")

    @property
    def table(self) -> TextTable:
        """The section's first plain table. Raises KeyError where it has none."""
        return self.block(TextTable)


@dataclass(frozen=True)
class ReportSource:
    """What sections are made of. `rows` and `cells` are of one kind: the trials that measured or, with `emulated`, the others alone."""

    sweep: Sweep
    rows: Sequence[TrialRow]
    cells: Sequence[Cell]  # in the comparison table's order
    table: ComparisonTable
    emulated: bool
    mlflow_links: Mapping[str, str]  # trial key -> address of its run
    certificates: Sequence[KnownOfDevice] = ()  # what A/A pairs had shown of the sweep's devices when it ended
    aa: AaResult | None = None  # of an A/A sweep: what its pairs show
    race: Race | None = None  # of a race
    figures: Sequence[tuple[str, Path]] = ()  # (title, SVG file), once they are drawn
    held: HeldTime | None = None  # where the time went that the pools were held; None where no slot's time was recorded
    known: SweepKnowledge = NOTHING  # what past sweeps said of the spread

    @property
    def suite_name(self) -> str:
        """The suite that the trials are of; of a night, the first of several."""
        return self.sweep.rows[0].trial.suite if self.sweep.rows else self.sweep.plan.suite.suite


def table_section(name: str, title: str, table: TextTable, text: str, page_text: str | None = None) -> Section | None:
    """A section of one table; None for a table without rows."""
    return Section(name, title, [table], text, page_text) if table.rows else None
