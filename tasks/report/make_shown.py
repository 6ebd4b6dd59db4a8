"""Put together what is shown of a sweep, from its trials or from a report that was made of them."""

from __future__ import annotations

from pathlib import Path

from cluster.trial_layout import HELD_TIME, PLAN, SLOTS, TRIALS
from experiments.config.errors import DamagedFile
from experiments.metrics import metric_of
from experiments.trial import TrialResult
from tasks.analysis.certificates import certificates_are_kept
from tasks.analysis.held_files import held_of
from tasks.analysis.known_spread import spread_is_kept
from tasks.analysis.results import Sweep
from tasks.analysis.row_cache import LEAST
from tasks.analysis.trial_row import TrialRow
from tasks.report.certificate_text import lines_of_sweep
from tasks.report.continued import whole_command
from tasks.report.headline import headline_of
from tasks.report.held_text import NOT_KNOWN, held_sentence
from tasks.report.kept_shown import inputs_of, keep_shown
from tasks.report.model import Report, report_of, report_source
from tasks.report.section import ReportSource
from tasks.report.sections.cost import cost_table, price_lines
from tasks.report.sections.device_state import work_cautions
from tasks.report.shown import UNREADABLE, Shown, ShownComparison, ShownCosts
from tasks.sweep.result_file import read_result
from tasks.sweep.store import read_plan

Made = tuple[ReportSource, Report]


def shown_of_loaded(sweep: Sweep) -> Shown:
    """What is shown of a sweep, as it was loaded; kept beside a large one that has ended."""
    inputs = settled_inputs(sweep)
    source = report_source(sweep)
    shown = made_shown(sweep, (source, report_of(source, head=True)))
    keep_settled(sweep, shown, inputs)
    return shown


def made_shown(sweep: Sweep, made: Made) -> Shown:
    """What is shown of a sweep. `made`: what a report of its measured trials was made of, and the report or its head."""
    held = [held_of(sweep, emulated=emulated) for emulated in (False, True)]
    return Shown(
        headings=["trial", "outcome", metric_of("throughput").unit, "step, ms", "waits for host", "loss", "s", "reason"],
        trials=[[row.trial.name, *_cells(*ended_as(sweep.dir, row))] for row in sweep.rows],
        superseded=[f"{entry.key} was run again as {entry.by}: {entry.why}" for entry in sweep.plan.superseded],
        damaged=sweep.problems,
        comparison=shown_comparison(made),
        held=[held_sentence(one) for one in held if one is not None and one.seconds] or [NOT_KNOWN],
        command=whole_command(sweep.plan),
    )


def shown_comparison(made: Made) -> ShownComparison | None:
    """What a report's source and the report give; None where there is nothing to compare."""
    source, report = made
    if not source.table.rows:
        return None
    costs, headline = cost_table(source.cells), headline_of(report)
    return ShownComparison(
        table=source.table.shown(),
        costs=ShownCosts(header=list(costs.header), rows=[list(row) for row in costs.rows], prices=price_lines(source.cells)),
        crashes=crashes_beside_values(report),
        disturbed=work_cautions([cell for cell in report.cells if cell.estimate], emulated=source.emulated),
        headline=headline.lines,
        step=headline.step.text if headline.step else "",
        line=headline.line,
        certificates=[] if source.emulated else lines_of_sweep(source.sweep.dir, source.sweep.plan),
    )


def crashes_beside_values(report: Report) -> list[str]:
    """Why cells crashed, beside others that have a value: the table has no room for it. Where none has one the headline says it."""
    if not any(cell.estimate for cell in report.cells):
        return []
    return [f"{one.sentence}." for one in report.missing if one.outcome == "crashed"]


# --- what is kept


def settled_inputs(sweep: Sweep) -> str | None:
    """`inputs_of` a sweep of which nothing more is to come: it is large, all trials ended and are whole, and what it knows of others is in
    its own folder, undamaged. None for any other: what is shown of it may follow from more than its own files, or have a warning."""
    digests = [digest for digest in sweep.digests if digest is not None]
    if len(sweep.rows) < LEAST or len(digests) < len(sweep.rows) or not _is_settled(sweep):
        return None
    return inputs_of(sweep.dir, digests)


def keep_settled(sweep: Sweep, shown: Shown, inputs: str | None) -> None:
    """Keep what is shown of a sweep. `inputs`: `settled_inputs` before it was put together; where they are others now nothing is kept."""
    if inputs is not None and inputs == settled_inputs(sweep):
        keep_shown(sweep.dir, [trial.key for trial in sweep.plan.trials], inputs, shown)


def _is_settled(sweep: Sweep) -> bool:
    try:
        same_plan = read_plan(sweep.dir / PLAN) == sweep.plan
    except DamagedFile:
        return False
    held = (sweep.dir / SLOTS).exists() or not (sweep.dir / HELD_TIME).exists()
    return same_plan and held and spread_is_kept(sweep) and certificates_are_kept(sweep)


# --- the line of a trial


def ended_as(sweep_dir: Path, row: TrialRow) -> tuple[str, TrialResult | None, str | None]:
    """(the outcome's word, `to do` or `unreadable`; a trial's result; what is wrong with that file). A damaged trial may still have a
    result that can be read."""
    if row.problem is None:
        return row.outcome, row.result, None
    try:
        result = read_result(sweep_dir / TRIALS / row.trial.key, row.trial.key)
    except DamagedFile as error:
        return UNREADABLE, None, str(error)
    return str(result.outcome) if result else "to do", result, row.problem if result else None


def _cells(word: str, result: TrialResult | None, damage: str | None) -> tuple[str, ...]:
    """A trial's line behind its name."""
    if result is None:
        return word, "", "", "", "", "", damage or ""
    summary = result.summary
    return (
        str(result.outcome) + (" (emulated)" if result.emulated else "") + (f" (attempt {result.attempt})" if result.attempt > 1 else ""),
        _number(summary.get("throughput"), "{:.1f}"),
        _number(summary.get("step_time_median_s"), "{:.1f}", 1000),
        _number(summary.get("data_wait_share"), "{:.1f} %", 100),
        _number(summary.get("final_loss"), "{:.4f}"),
        f"{result.finished_at - result.started_at:.1f}",
        "left out: a file of it is damaged" if damage else result.remark or "",
    )


def _number(value: float | None, form: str, scale: float = 1.0) -> str:
    return "" if value is None else form.format(value * scale)
