"""An A/B sweep as a comment on a pull request: verdict, a row for each cell, on what it was measured, and how to repeat it."""

from __future__ import annotations

from pathlib import Path

from cluster.trial_layout import PLAN
from experiments.parameters import SIDE
from tasks.analysis.ab import AbPair, ab_pairs, ab_status
from tasks.analysis.results import Sweep, load_sweep
from tasks.report.ab_answer import ab_headline, ab_word, ratio_text, value_text
from tasks.report.comparison_table import TextTable
from tasks.report.given_command import given_command
from tasks.report.markdown import code, md, prose, table_markdown
from tasks.report.marks import rounds_of_ratio
from tasks.report.model import report_of, report_source
from tasks.report.section import ReportSource
from tasks.report.text_format import listed
from tasks.sweep.ab_settings import AbSettings
from tasks.sweep.store import Plan, read_plan


def status_of(sweep_dir: Path) -> int:
    """The exit status that an A/B sweep's verdicts stand for; 0 of any other sweep. Raises ResultsError."""
    plan = read_plan(sweep_dir / PLAN)
    if plan is None or plan.ab is None:
        return 0
    return ab_status(ab_pairs(report_source(load_sweep(sweep_dir)).cells, plan.ab))


def pull_request_comment(sweep_dir: Path) -> str:
    """The comment, in Markdown. Every value from a trial is escaped. Raises ValueError for a sweep that is no A/B sweep, ResultsError."""
    sweep = load_sweep(sweep_dir)
    settings = sweep.plan.ab
    if settings is None:
        raise ValueError(f"{sweep.sweep_id} is no A/B sweep")
    source = report_source(sweep)
    report = report_of(source)
    lines = [f"**{md(ab_headline(ab_pairs(source.cells, settings), settings))}**", "", table_markdown(_table(source, settings)), ""]
    lines += [f"- {md(line)}" for line in _facts(sweep, source, settings)]
    if report.standing:
        lines.append(f"- {md(report.standing.line)}")
    if report.next_step:
        lines.append(f"- {report.next_step.lead}: {code(report.next_step.command)}")
    lines.append(f"- command: {given_command(sweep.plan, source.held)} (sweep {code(sweep.sweep_id)})")
    if report.cautions:
        lines += [
            "",
            "<details><summary>Read with care</summary>",
            "",
            *(f"- {prose(caution)}" for caution in report.cautions),
            "",
            "</details>",
        ]
    return "\n".join(lines) + "\n"


def _table(source: ReportSource, settings: AbSettings) -> TextTable:
    pairs = ab_pairs(source.cells, settings)
    metric = pairs[0].b.metric.label if pairs else source.sweep.plan.suite.report.metric
    rows = [[pair.name, value_text(pair.a), value_text(pair.b), _ratio(pair), ab_word(pair)] for pair in pairs]
    return TextTable([f"{metric} of", *settings.labels, "B over A, its interval", "verdict"], rows)


def _ratio(pair: AbPair) -> str:
    """The ratio, with the rounds that it is of where it is not that of the two values."""
    rounds = rounds_of_ratio(pair.b)
    return f"{ratio_text(pair)}{f', of {rounds} alone' if rounds else ''}"


def _facts(sweep: Sweep, source: ReportSource, settings: AbSettings) -> list[str]:
    """On which devices, of which code, with which libraries, over how many rounds."""
    devices = _told(source, "device_name")
    pools = list(dict.fromkeys(row.trial.pool for row in source.rows))
    facts = [f"on {listed(devices) or 'an unknown device'}, pool {listed(pools)}, torch {listed(_told(source, 'torch')) or 'unknown'}"]
    if settings.kind == "commits":
        facts += [f"{name}: {_commit(sweep.plan, name)}" for name in settings.labels]
    else:
        facts.append(f"code: {_here(sweep.plan)}")
    pairs = ab_pairs(source.cells, settings)
    rounds = sorted({min(len(pair.a.measured), len(pair.b.measured)) for pair in pairs})
    if rounds:
        many = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else str(rounds[0])
        facts.append(f"rounds measured on both sides, in turns: {many}")
    return facts


def _told(source: ReportSource, name: str) -> list[str]:
    return list(dict.fromkeys(str(row.environment[name]) for row in source.rows if row.environment.get(name)))


def _commit(plan: Plan, side: str) -> str:
    commit = next((trial.commit for trial in plan.trials if trial.axes.get(SIDE) == side), None)
    return f"commit {commit[:12]}" if commit else _here(plan)


def _here(plan: Plan) -> str:
    commit = str(plan.git.get("commit") or "unknown")
    return f"commit {commit[:12]}{' with uncommitted changes' if plan.git.get('dirty') else ''}"
