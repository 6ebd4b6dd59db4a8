"""What a report says, as plain data: a head with the answer, and an ordered list of sections. Markdown and HTML render the same data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.metric import Direction
from experiments.spec.suite_files import title_of
from experiments.trial import Outcome
from tasks.analysis.aa import analyse
from tasks.analysis.ab import ab_pairs
from tasks.analysis.cell import Cell
from tasks.analysis.certificates import known_of
from tasks.analysis.held_files import held_of
from tasks.analysis.known_spread import NOTHING, known_for
from tasks.analysis.looks import cells_of_plan
from tasks.analysis.race import race_of
from tasks.analysis.results import Sweep
from tasks.report.ab_answer import ab_headline
from tasks.report.answer import Answer, find_answers
from tasks.report.cautions import CautionGroup, caution_groups
from tasks.report.cell_counts import besides
from tasks.report.certificate_text import aa_headline
from tasks.report.comparison_table import table_of_plan
from tasks.report.continued import ran_again
from tasks.report.filters import constant_labels
from tasks.report.group_answers import headline_of_groups, why_apart
from tasks.report.largest_fit import fit_sentence
from tasks.report.method import method_of
from tasks.report.missing import Missing, find_missing
from tasks.report.next_step import NextStep, outlook_of, worth_measuring
from tasks.report.not_measured import not_measured
from tasks.report.provenance import provenance_cautions
from tasks.report.race_answer import no_race_answer, race_answer, race_next_step
from tasks.report.section import ReportSource, Section
from tasks.report.sections import outcomes
from tasks.report.sections.data_loading import saturation
from tasks.report.sections.loss_spikes import spikes_sentence
from tasks.report.sections.order import SECTIONS
from tasks.report.sections.scaling import scaling_sentences
from tasks.report.sections.sweep_facts import origin_of
from tasks.report.standing import Standing, standing_of
from tasks.report.text_format import ended, listed, plural
from tasks.sweep.request_text import set_and_chosen
from tasks.sweep.store import Plan


@dataclass(frozen=True)
class Report:
    """Everything that report.md and report.html say: the head, then `sections` in order."""

    heading: str  # the suite's title; empty of a suite without one
    title: str  # the suite's name, the profile, and the kind of sweep
    description: str
    sweep_id: str
    origin: Sequence[str]  # when, of which commit, on what machine
    constant: Sequence[str]  # what all cells have, such as `h200`; said once
    watermark: str | None
    standing: Standing | None  # of a sweep with a budget: how its comparisons stand
    answers: Sequence[Answer]  # one for each group of cells that do the same work on as many devices
    no_answer: str  # why there is none
    apart: str  # the headline of several answers; empty where they are not several
    why_apart: str  # why they are several, unless the headline is that
    scaling: Sequence[str]  # how rates grow with the number of devices, where that varies
    fits: str  # the largest model that fits, where some do not
    spikes: str  # loss spikes of each cell; empty where none looks for them
    loading: Sequence[str]  # how many loader processes are enough, in the rows of the best cell; empty for several groups
    missing: Sequence[Missing]
    left_out: NextStep | None  # of a sweep with trials for which there was no time: with which time they are measured
    published: Plan | None  # of a sweep on a results page, which its reader may lack: what measures it from the beginning
    unfinished: NextStep | None  # of a sweep without an answer: the trials that are to do, or that crashed
    caution_groups: Sequence[CautionGroup]
    method: str  # how intervals and verdicts come about
    cells: Sequence[Cell]
    sections: Sequence[Section]

    def section(self, name: str) -> Section:
        """The section of this name. Raises KeyError where the report has none."""
        for section in self.sections:
            if section.name == name:
                return section
        raise KeyError(f"no section {name}: there is {', '.join(self.section_names)}")

    @property
    def cautions(self) -> list[str]:
        """What a reader must know before believing the numbers, of all groups."""
        return [line for group in self.caution_groups for line in group.lines]

    @property
    def answer(self) -> Answer | None:
        """The one answer, where all cells do the same work."""
        return self.answers[0] if len(self.answers) == 1 else None

    @property
    def label(self) -> str:
        """What stands above the headline on the page: how many cells are compared, and how many beside them are unsupported."""
        unsupported = sum(len(one.cells) for one in self.missing if one.outcome == Outcome.UNSUPPORTED)
        return f"{self.answer.label}{besides(unsupported)}" if self.answer else ""

    @property
    def headline(self) -> str:
        """The answer's, why there is none, or that there are several; of sizes that each stand alone, which are the largest that fit."""
        if not self.no_answer and self.fits and all(answer.compared == 1 for answer in self.answers):
            return self.fits
        return self.no_answer or (self.answer.headline if self.answer else self.apart)

    @property
    def of_all(self) -> list[str]:
        """What is said of all groups of work together, without stops: the largest that fits, how rates grow with the devices, and how often
        losses spiked."""
        return [line.removesuffix(".") for line in (self.fits, *self.scaling, self.spikes) if line]

    @property
    def winners(self) -> list[Cell]:
        """The cells that are shown to be the best of their group of work."""
        return [answer.winner for answer in self.answers if answer.winner is not None]

    @property
    def next_step(self) -> NextStep | None:
        """What would decide what is open; None where nothing is."""
        if self.standing is not None and (self.standing.step or self.standing.left):
            return self.standing.step or self.left_out  # more repeats would not decide what rounds do not
        return next((answer.next_step for answer in self.answers if answer.next_step), self.unfinished) or self.left_out

    @property
    def section_names(self) -> list[str]:
        return [section.name for section in self.sections]

    @property
    def repeats_failed(self) -> bool:
        """Whether every cell has a value, but some repeat ended otherwise."""
        return not self.missing and outcomes.NAME in self.section_names


def make_report(sweep: Sweep, *, mlflow_links: Mapping[str, str] | None = None, emulated: bool = False) -> Report:
    """Derive the report of a sweep, finished or not: of the trials that measured, or with `emulated` of the others alone.

    It has no figures: `report_of` takes a source whose figures were drawn.
    """
    return report_of(report_source(sweep, mlflow_links=mlflow_links, emulated=emulated))


def report_source(sweep: Sweep, *, mlflow_links: Mapping[str, str] | None = None, emulated: bool = False) -> ReportSource:
    """What the report is made of: the sweep's rows of one kind, their cells in the table's order, and the table."""
    rows = [row for row in sweep.rows if row.emulated == emulated]
    knowledge = NOTHING if emulated else known_for(sweep)
    judged = cells_of_plan(rows, sweep.plan, emulated=emulated, known=knowledge.spreads.trial, folder=sweep.dir)
    table = table_of_plan(judged, sweep.plan)
    cells = [place.cell for _, places in table.rows for place in places if place.cell is not None]
    aa = analyse(rows, sweep.plan.suite) if sweep.plan.aa and not emulated else None
    race = race_of(sweep.plan, rows) if sweep.plan.race and rows else None
    held = held_of(sweep, emulated=emulated)
    return ReportSource(
        sweep,
        rows,
        cells,
        table,
        emulated,
        mlflow_links or {},
        known_of(sweep),
        aa,
        race=race,
        held=held,
        known=knowledge,
    )


def report_of(source: ReportSource, answers: list[Answer] | None = None, *, head: bool = False) -> Report:
    """The head, and every section that has something to say. `answers`: `answers_of` the source, where they are known.

    `head`: what the headline needs alone, without cautions and sections, which take longer than all the rest in a sweep of thousands.
    """
    sweep, cells, emulated = source.sweep, source.cells, source.emulated
    suite = sweep.plan.suite
    answers = answers_of(source) if answers is None else answers
    best = answers[0].best if len(answers) == 1 else None
    apart = headline_of_groups(answers) if len(answers) > 1 else ""
    return Report(
        heading=heading if (heading := title_of(suite)) != suite.suite else "",
        title=" · ".join([source.suite_name, sweep.plan.profile, *kind_of(sweep.plan)]),
        description=_described(sweep.plan),
        sweep_id=sweep.sweep_id,
        origin=origin_of(sweep),
        constant=constant_labels(cells),
        watermark=watermark(source),
        standing=None if emulated else standing_of(sweep, cells),
        answers=answers,
        no_answer="" if answers else _special(source) or _no_answer(source),
        apart=apart,
        why_apart=why_apart(answers) if apart and any(answer.compared > 1 for answer in answers) else "",
        scaling=scaling_sentences(cells) if answers and source.race is None else [],
        fits="" if emulated else fit_sentence(cells),
        spikes=spikes_sentence(cells),
        loading=[row.sentence for row in saturation(cells, of=best)] if best is not None and not head else [],
        missing=find_missing(cells),
        left_out=outlook_of(sweep).more(0.0) if worth_measuring(sweep) and not emulated else None,
        published=sweep.plan if sweep.published else None,
        unfinished=None if answers or emulated else _unfinished(source, cells),
        caution_groups=[] if head else _cautions(source),
        method=method_of(cells[0].metric if cells and source.race is None else None, suite.report.minimum_effect),
        cells=cells,
        sections=[] if head else [section for make in SECTIONS if (section := make(source)) is not None],
    )


def _described(plan: Plan) -> str:
    """What the suite, or its profile, says of itself, and what was set or chosen beside it: that may be otherwise than it says."""
    text = " ".join(plan.suite.description.split())
    given = listed([f"{name} {value}" for name, value in set_and_chosen(plan.request.set, plan.request.only).items()])
    return f"{text.removesuffix('.')}; here with {given}." if text and given else plan.suite.description


def answers_of(source: ReportSource) -> list[Answer]:
    """An answer for each group of cells that do the same work; none for an A/A sweep, whose cells are one and the same, and for an
    A/B sweep, whose headline is about its sides."""
    plan = source.sweep.plan
    if source.race is not None:
        answer = race_answer(source.race, source.cells, outlook_of(source.sweep))
        return [answer] if answer else []
    if plan.aa or plan.ab:
        return []
    minimum = plan.suite.report.minimum_effect
    return find_answers(source.cells, outlook_of(source.sweep), minimum=minimum, in_rounds=plan.decide is not None)


def _cautions(source: ReportSource) -> list[CautionGroup]:
    sweep = source.sweep
    of_plan = [f"{line[0].upper()}{line[1:]}." for line in not_measured(sweep.plan, sweep.plan.cut)]
    of_code = provenance_cautions(sweep)
    again = ran_again(sweep.plan)
    return caution_groups(sweep.rows, source.cells, emulated=source.emulated, of_plan=of_plan, of_code=of_code, of_crashes=again)


def _unfinished(source: ReportSource, cells: Sequence[Cell]) -> NextStep | None:
    """What is next of a sweep without an answer; None where all has ended, and not because its code is wrong or a race had no more time."""
    outlook = outlook_of(source.sweep)
    if source.race is not None and (step := race_next_step(source.race, cells, outlook)) is not None:
        return step
    ended = {cell.outcome for cell in cells}
    if "crashed" in ended and not any(cell.measured for cell in cells):
        return outlook.mended()
    return outlook.rest() if "to do" in ended else None


def kind_of(plan: Plan) -> list[str]:
    """What it is called beside its suite and profile, where it is no plain sweep."""
    return [name for name, settings in (("A/A", plan.aa), ("A/B", plan.ab), ("race", plan.race)) if settings is not None]


def watermark(source: ReportSource) -> str | None:
    """What stands all over a report and its figures whose numbers are no measurements."""
    return "emulated: not a measurement" if source.emulated else None


def _special(source: ReportSource) -> str:
    """The headline of a sweep without answers that is no plain one; empty of any other, and where nothing has ended yet."""
    plan, cells = source.sweep.plan, source.cells
    if plan.aa:
        return aa_headline(source.aa)
    if source.race:
        return no_race_answer(source.race)
    return ab_headline(ab_pairs(cells, plan.ab), plan.ab) if plan.ab and any(cell.outcome != "to do" for cell in cells) else ""


def _no_answer(source: ReportSource) -> str:
    cells = source.cells
    if not source.sweep.rows:
        return "The sweep has no trials."
    if source.emulated:
        return "No trial of this sweep is emulated." if not cells else "No emulated trial has ended ok."
    if not cells:
        return "Every trial is emulated: nothing here is a measurement, so nothing is compared."
    if all(cell.outcome == "to do" for cell in cells):
        return "No trial has ended yet."
    if cells[0].metric.direction is Direction.NEITHER:
        return f"{cells[0].metric.label} is better neither high nor low, so no cell wins."
    return "No cell has a result that can be claimed." if any(cell.measured for cell in cells) else _no_value(cells)


def _no_value(cells: Sequence[Cell]) -> str:
    """How cells ended, none of which has a value; of those that crashed or are unsupported, why."""
    counts = Counter(cell.outcome for cell in cells)
    told = [one for one in find_missing(cells) if one.outcome in ("crashed", "unsupported") and one.reasons]
    why = {outcome: "".join(f" ({_first(one.reasons)})" for one in told if one.outcome == outcome) for outcome in counts}
    said = [f"{ended(count, outcome)}{why[outcome]}" for outcome, count in counts.items()]
    return f"No cell has a value: {', '.join(said)}."


def _first(reasons: Sequence[str]) -> str:
    """The first of the reasons, and that there are others."""
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]}; and {plural(len(reasons) - 1, 'other reason')}"
