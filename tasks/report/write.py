"""Write a sweep's report: report.md, report.html and figures/, derived from the journals and the raw steps each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cluster.trial_layout import FIGURES, REPORT, REPORT_PAGE, for_emulated
from experiments.atomic_file import atomic_write
from tasks.analysis.certificates import keep_certificates, write_certificate
from tasks.analysis.held_files import keep_held
from tasks.analysis.known_spread import keep_known
from tasks.analysis.results import Sweep, load_sweep, write_results
from tasks.analysis.spread_store import write_spread
from tasks.report.answer import Answer
from tasks.report.figures.draw import draw_figures
from tasks.report.headline import headline_of
from tasks.report.html import render_html
from tasks.report.make_shown import keep_settled, made_shown, settled_inputs
from tasks.report.markdown import headline_markdown, render_markdown
from tasks.report.model import Report, answers_of, report_of, report_source, watermark
from tasks.report.section import ReportSource

Drawn = Sequence[tuple[str, Path]]  # (title, SVG path) of each figure


@dataclass(frozen=True)
class ReportPaths:
    """What `write_report` wrote."""

    markdown: Path
    html: Path
    drawn: Drawn
    results: Path
    headline: str  # what the sweep found, as report.md says it first
    line: str  # the same in one line, for a chat
    damage: Sequence[str] = ()  # what is wrong with each trial that is left out, named in the report
    made: tuple[ReportSource, Report] | None = field(default=None, repr=False, compare=False)  # what was rendered, for who prints it too

    @property
    def figures(self) -> list[Path]:
        return [path for _, path in self.drawn]

    @property
    def all(self) -> list[Path]:
        """Files and the figures' folder: what goes with the parent run."""
        return [self.results, self.markdown, self.html, *([self.figures[0].parent] if self.figures else [])]


def write_report(
    sweep_dir: Path, *, mlflow_links: Mapping[str, str] | None = None, drawn: Drawn | None = None, emulated: bool = False
) -> ReportPaths:
    """Write what `render_report` writes, of a sweep finished or not; what later sweeps learn from it, beside its folder: its spread, and
    of an A/A sweep its certificate; and into its folder what it learned from earlier ones, and what `sweep show` shows of it.

    Raises ResultsError where plan.json is missing or damaged; a trial that cannot be read is a line of the report.
    """
    sweep = load_sweep(sweep_dir)
    write_certificate(sweep)
    write_spread(sweep)
    keep_knowledge(sweep)
    inputs = None if emulated else settled_inputs(sweep)
    paths = render_report(sweep, mlflow_links=mlflow_links, drawn=drawn, emulated=emulated)
    if inputs is not None and paths.made is not None:
        keep_settled(sweep, made_shown(sweep, paths.made), inputs)
    return paths


def keep_knowledge(sweep: Sweep) -> None:
    """Keep in the folder of a sweep that has ended what its report knows from other sweeps: known_spread.json and certificates.json; and
    what published results do not tell: held_time.json."""
    keep_certificates(sweep)
    keep_known(sweep)
    keep_held(sweep)


def render_report(
    sweep: Sweep, *, mlflow_links: Mapping[str, str] | None = None, drawn: Drawn | None = None, emulated: bool = False
) -> ReportPaths:
    """Write results.parquet, the figures, report.md and report.html into the sweep's folder, and nothing beside it.

    `mlflow_links`: trial key -> address of its run. `drawn`: the figures, where they were drawn from the same trials. With `emulated`, the
    report is of the emulated trials alone, marked all over, and goes into files of its own: report-emulated.md,
    report-emulated.html, figures-emulated/.
    """
    sweep_dir = sweep.dir
    results = write_results(sweep_dir, sweep)
    source = report_source(sweep, mlflow_links=mlflow_links, emulated=emulated)
    answers = answers_of(source)
    if drawn is None:
        drawn = _draw(sweep, source, answers, sweep_dir / _name(FIGURES, emulated))
    source = replace(source, figures=drawn)
    report = report_of(source, answers)
    markdown, html = sweep_dir / _name(REPORT, emulated), sweep_dir / _name(REPORT_PAGE, emulated)
    atomic_write(markdown, render_markdown(report))
    atomic_write(html, render_html(report))
    damage = sweep.problems
    headline = headline_of(report)
    return ReportPaths(markdown, html, drawn, results, headline_markdown(headline), headline.line, damage, (source, report))


def _draw(sweep: Sweep, source: ReportSource, answers: Sequence[Answer], folder: Path) -> Drawn:
    return draw_figures(
        source.cells,
        folder,
        watermark(source),
        own=sweep.plan.suite.report.figures,
        winners=[answer.winner for answer in answers if answer.winner is not None],
        aa=source.aa,
        race=source.race,
        held=source.held,
        names=_trial_names(sweep, source),
    )


def _trial_names(sweep: Sweep, source: ReportSource) -> dict[str, str]:
    """Key of a trial -> what it is called beside the others: also of references of loss parity and of trials that were cut, which may have
    held a slot too."""
    told = {axis for cell in source.cells for axis in cell.told}
    planned = [*sweep.plan.trials, *sweep.plan.cut]
    names = {one.key: " · ".join([*labels, f"#{one.repeat}"]) if (labels := one.labels_of(told)) else one.name for one in planned}
    return names | {row.trial.key: cell.called(row) for cell in source.cells for row in cell.rows}


def _name(name: str, emulated: bool) -> str:
    return for_emulated(name) if emulated else name
