"""What a report says, as plain data: Markdown and HTML are two ways to write the same."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from experiments import workloads
from experiments.config.errors import ConfigError
from experiments.config.scalar_text import table_text, yaml_text
from experiments.metrics import Direction, Kind, metric_of
from experiments.summary import LATENCIES, PARTS
from experiments.trial import Trial
from tasks.analysis.cell import Cell
from tasks.analysis.compare_cells import make_cells
from tasks.analysis.confounders import confounders
from tasks.analysis.named_settings import settings_rows
from tasks.analysis.results import Sweep, TrialRow
from tasks.report.comparison_table import ComparisonTable, TextTable, build_table
from tasks.report.sections.findings import Missing, Saturation, Winner, comparable, find_missing, find_winner, saturation, winners_apart
from tasks.report.sections.literature_table import published_table
from tasks.report.sections.loss_spikes import spike_table
from tasks.report.sections.nearest_literature import nearest_published
from tasks.report.sections.scaling import profile, scaling
from tasks.report.text_format import OUTCOMES, count, listed, number, percent, plural, quantity
from tasks.sweep.store import Plan

SCALING = (
    "Over the fewest devices of cells that differ in nothing else. Exposed: how much longer a step's forward and backward take with the "
    "all-reduce of gradients than without it; its part of the step is the communication share."
)
APART = "Cells that do not do the same work are not compared with each other."
PROFILE = "Steps after the measured window, traced by torch.profiler, which slows the host. What ran side by side counts in full."
PART_NAMES = ("data wait", "copy to device", "forward + backward", "optimiser", "other")
PART_SHARES = tuple(f"{part}_share" for part in PARTS)


@dataclass(frozen=True)
class TrialLine:
    """One trial in the last table: `link` is its MLflow run, `command` runs its cell again."""

    name: str
    outcome: str
    reason: str
    value: str
    loss: str
    command: str
    link: str | None
    emulated: bool


@dataclass(frozen=True)
class Report:
    """Everything that report.md and report.html say."""

    title: str
    description: str
    sweep_id: str
    facts: Sequence[tuple[str, str]]
    cells: Sequence[Cell]
    table: ComparisonTable
    winner: Winner | None
    winners: Sequence[str]  # of each group of cells, where they do not all do the same work; then `winner` is None
    nothing: str  # why there is no winner
    missing: Sequence[Missing]
    saturation: Sequence[Saturation]
    cautions: Sequence[str]
    scaling: TextTable
    decomposition: TextTable
    profile: TextTable
    evaluation: TextTable
    spikes: TextTable
    outcomes: TextTable
    confounders: TextTable
    settings: TextTable  # what a ladder's rungs, or named strategies, stand for
    environment: Sequence[tuple[str, str]]
    published: TextTable
    published_table: TextTable
    trials: Sequence[TrialLine]
    notes: Sequence[str]
    watermark: str | None = None
    figures: Sequence[tuple[str, str]] = field(default_factory=tuple)  # (title, file name)


def make_report(sweep: Sweep, *, mlflow_links: Mapping[str, str] | None = None, emulated: bool = False) -> Report:
    """Derive the report of a sweep, finished or not: of the trials that measured, or with `emulated` of the others alone."""
    plan, suite = sweep.plan, sweep.plan.suite
    rows = [row for row in sweep.rows if row.emulated == emulated]
    cells = make_cells(rows, suite, emulated=emulated)
    table = build_table(cells, suite)
    cells = [place.cell for _, places in table.rows for place in places if place.cell is not None]  # in the table's order
    groups = comparable(cells)
    winner = None if len(groups) > 1 else find_winner(cells)
    return Report(
        title=f"{sweep.rows[0].trial.suite if sweep.rows else suite.suite} · {plan.profile}",
        description=suite.description,
        sweep_id=sweep.sweep_id,
        facts=_facts(sweep),
        cells=cells,
        table=table,
        winner=winner,
        winners=winners_apart(groups) if len(groups) > 1 else [],
        nothing=APART if len(groups) > 1 else "" if winner else _nothing(sweep.rows, cells, emulated=emulated),
        missing=find_missing(cells),
        saturation=saturation(cells),
        cautions=_cautions(sweep.rows, cells, emulated=emulated),
        scaling=scaling(cells),
        decomposition=_decomposition(cells),
        profile=profile(cells),
        evaluation=_evaluation(cells),
        spikes=spike_table(cells),
        outcomes=_outcomes(rows),
        confounders=_confounders(cells),
        settings=_settings(cells),
        environment=_environment(rows),
        published=nearest_published(sweep.rows, cells),
        published_table=published_table(cells, suite),
        trials=[
            _trial_line(row, plan, (mlflow_links or {}).get(row.trial.key), shown=emulated) for row in (rows if emulated else sweep.rows)
        ],
        notes=_notes(rows),
        watermark="emulated: not a measurement" if emulated else None,
    )


def _facts(sweep: Sweep) -> list[tuple[str, str]]:
    plan = sweep.plan
    ended = sum(row.result is not None for row in sweep.rows)
    commit = str(plan.git.get("commit") or "")
    facts = [
        ("Sweep", sweep.sweep_id),
        ("Planned", _date(plan.created_at)),
        ("Trials", f"{ended} of {len(sweep.rows)} ended" if ended < len(sweep.rows) else f"{ended}, all ended"),
        ("Commit", f"{commit[:12]}{' with uncommitted changes' if plan.git.get('dirty') else ''}" if commit else ""),
        ("Command", plan.command),
    ]
    return [(name, value) for name, value in facts if value]


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _nothing(rows: Sequence[TrialRow], cells: Sequence[Cell], *, emulated: bool) -> str:
    if not rows:
        return "The sweep has no trials."
    if emulated:
        return "No trial of this sweep is emulated." if not cells else "No emulated trial has ended ok."
    if not cells:
        return "Every trial is emulated: nothing here is a measurement, so nothing is compared."
    if all(cell.outcome == "to do" for cell in cells):
        return "No trial has ended yet."
    if cells[0].metric.direction is Direction.NEITHER:
        return f"{cells[0].metric.label} is better neither high nor low, so no cell wins."
    return "No cell has a result that can be claimed."


def _cautions(rows: Sequence[TrialRow], cells: Sequence[Cell], *, emulated: bool) -> list[str]:
    """What a reader must know before believing the numbers."""
    found = []
    done = [cell for cell in cells if cell.estimate]
    if done and max(len(cell.measured) for cell in done) == 1:
        found.append("Each cell ran once: the intervals hold what varies between steps, not between trials; --repeats 3 measures that too.")
    unsettled = [cell.name for cell in done if not all(row.summary.get("settled") for row in cell.measured)]
    if unsettled:
        found.append(f"Step times never settled in {plural(len(unsettled), 'cell')}: {'; '.join(unsettled)}.")
    late = [
        row.trial.name
        for cell in done
        for row in cell.measured
        if (at := row.summary.get("settled_at_step")) is not None
        and row.steps.size
        and at > int(row.trial.parameters.get("warmup_steps", 0)) + 1
    ]
    if late:
        found.append(f"Step times settled only inside the measured window in {'; '.join(late)}: a longer warm-up would cut that off.")
    found += [f"{cell.name}: {cell.parity_note}." for cell in cells if cell.parity_note and not cell.claimed]
    ungated = Counter(cell.parity_note for cell in cells if cell.parity_note and cell.claimed)
    found += [f"Loss parity could not be checked for {plural(count, 'cell')}: {note}." for note, count in ungated.items()]
    fallen = [row.trial.name for cell in cells for row in cell.rows if str(row.environment.get("media_pipe", "")).startswith("fallback")]
    if fallen:
        found.append(f"The media pipe could not be used, and the DataLoader decoded the images, in {'; '.join(fallen)}.")
    found += [caveat for name in dict.fromkeys(row.trial.workload for row in rows) if (caveat := _caveat(name))]
    hidden = sum(row.emulated for row in rows)
    if hidden:
        found.append(
            f"{plural(hidden, 'trial')} ran on an emulated device, which measures nothing: "
            + (
                "shown here alone, because it was asked for."
                if emulated
                else "left out; `sweep report --emulated` shows them by themselves."
            )
        )
    return found


def _caveat(workload: str) -> str:
    """What a workload says of all its results (CAVEAT in its file); nothing where it is gone."""
    try:
        return str(getattr(workloads.load(workload), "CAVEAT", ""))
    except ConfigError:
        return ""


def _decomposition(cells: Sequence[Cell]) -> TextTable:
    header = [
        "cell",
        "step, median",
        "step, p90",
        *(f"latency, {name.split('_')[1]}" for name in LATENCIES),
        *PART_NAMES,
        "peak memory",
        "alloc. retries",
        "TFLOP/s / device",
        "MFU",
        "J / sample",
        "power",
        "first step",
        "compile",
        "epoch",
    ]
    rows = []
    for cell in cells:
        if not cell.measured:
            continue
        shares = [cell.mean(name) for name in PART_SHARES]
        rows.append(
            [
                cell.name,
                *(_mean(cell, name) for name in ("step_time_median_s", "step_time_p90_s", *LATENCIES)),
                *(percent(share) for share in shares),
                percent(other_share(shares)),
                _mean(cell, "peak_memory_bytes"),
                count(cell.mean("alloc_retries")),
                number(cell.mean("tflops_per_device"), 4),
                _mean(cell, "mfu"),
                number(cell.mean("energy_j_per_sample"), 3),
                f"{number(power, 3)} W" if (power := cell.mean("mean_power_w")) is not None else "–",
                *(_mean(cell, name) for name in ("time_to_first_step_s", "compile_seconds")),
                f"{number(epoch / 3600, 3)} h" if (epoch := cell.mean("epoch_time_s")) is not None else "–",
            ]
        )
    return _without_empty(TextTable(header, rows, numeric=True))


def _mean(cell: Cell, name: str) -> str:
    """The cell's mean of a metric as the registry has it printed."""
    return quantity(cell.mean(name), metric_of(name))


def other_share(shares: Sequence[float | None]) -> float | None:
    """The part of a step that no timer saw; None where a part is unknown."""
    known = [share for share in shares if share is not None]
    return max(0.0, 1 - sum(known)) if len(known) == len(shares) else None


def _without_empty(table: TextTable) -> TextTable:
    """Leave out columns that hold nothing but dashes."""
    keep = [i for i in range(len(table.header)) if i < table.names or any(row[i] != "–" for row in table.rows)]
    return TextTable([table.header[i] for i in keep], [[row[i] for i in keep] for row in table.rows], table.names, table.numeric)


def _evaluation(cells: Sequence[Cell]) -> TextTable:
    """Held-out metrics before and after training, mean over repeats."""
    names = dict.fromkeys(key for cell in cells for row in cell.rows for key in row.summary if key.startswith("eval_"))
    metrics = list(dict.fromkeys(name.removeprefix("eval_").rsplit("_", 1)[0] for name in names))
    known = [m for m in metrics if any(cell.mean(f"eval_{m}_{when}") is not None for cell in cells for when in ("before", "after"))]
    header = ["cell", *(f"{metric.replace('_', ' ')}, {when}" for metric in known for when in ("before", "after"))]
    values = [
        [cell.name, *(_evaluated(cell, f"eval_{metric}_{when}") for metric in known for when in ("before", "after"))]
        for cell in cells
        if cell.measured
    ]
    return _without_empty(TextTable(header, values if known else [], numeric=True))


def _evaluated(cell: Cell, name: str) -> str:
    metric, value = metric_of(name), cell.mean(name)
    return number(value, 3) if metric.kind is Kind.NUMBER else quantity(value, metric)


def _outcomes(rows: Sequence[TrialRow]) -> TextTable:
    """Every trial that is not ok, with its reason."""
    return TextTable(
        ["trial", "outcome", "reason"],
        [
            [
                row.trial.name,
                OUTCOMES.get(row.outcome, row.outcome),
                row.reason or ("has not run" if row.result is None else "no reason given"),
            ]
            for row in rows
            if row.outcome != "ok"
        ],
    )


def _confounders(cells: Sequence[Cell]) -> TextTable:
    compared = [cell for cell in cells if cell.measured]
    rows = [[name, value, _who(members, compared)] for name, groups in confounders(compared) for value, members in groups]
    return TextTable(["differs", "value", "cells"], rows)


def _settings(cells: Sequence[Cell]) -> TextTable:
    axis, rows = settings_rows(cells)
    return TextTable([axis.replace("_", " "), "sets"], rows)


def _who(members: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """Some of the cells, in as few words as name them."""
    if len(members) == len(cells):
        return "every cell, in some of its repeats"
    pools = list(dict.fromkeys(cell.trial.pool for cell in members))
    if len(members) == sum(cell.trial.pool in pools for cell in cells) > 1:
        return f"all cells of {listed([f'pool {pool}' for pool in pools])}"
    rest = len(cells) - len(members)
    return f"the other {len(members)} cells" if len(members) > 4 and rest < len(members) else listed([cell.name for cell in members], 8)


def _environment(rows: Sequence[TrialRow]) -> list[tuple[str, str]]:
    """What was the same in every trial that ran; the rest is among the confounders."""
    ran = [row.environment for row in rows if row.environment]
    names = dict.fromkeys(name for environment in ran for name in environment)
    return [
        (name, table_text(value, missing="unknown"))
        for name in names
        if len({repr(environment.get(name)) for environment in ran}) == 1 and not isinstance(value := ran[0].get(name), dict | list)
    ]


def _notes(rows: Sequence[TrialRow]) -> list[str]:
    """What trials noted, each text once with the trials that said it."""
    said: dict[str, list[str]] = {}
    for row in rows:
        for note in dict.fromkeys(row.notes):
            said.setdefault(note, []).append(row.trial.name)
    ended = sum(row.result is not None for row in rows)
    return [f"{names[0] if len(names) == 1 else _several(names, ended)}: {note}" for note, names in said.items()]


def _several(names: list[str], of: int) -> str:
    return "Every trial" if len(names) == of else listed(names) if len(names) <= 4 else f"{len(names)} trials"


def _trial_line(row: TrialRow, plan: Plan, link: str | None, *, shown: bool) -> TrialLine:
    """`shown`: whether figures of an emulated trial are."""
    throughput, first, last = (row.summary.get(name) for name in ("throughput", "first_loss", "final_loss"))
    return TrialLine(
        row.trial.name,
        OUTCOMES.get(row.outcome, row.outcome),
        row.reason or "",
        quantity(float(throughput), metric_of("throughput")) if throughput and (shown or not row.emulated) else "–",
        f"{number(float(first))} → {number(float(last))}" if first is not None and last is not None else "–",
        reproduce(row.trial, plan.command),
        link if link and link.startswith(("http://", "https://")) else None,
        row.emulated,
    )


def reproduce(trial: Trial, command: str) -> str:
    """The sweep's command narrowed to one cell: `--only axis=value` for each axis, in place of the command's own."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    if words[:2] != ["sweep", "run"]:  # a night: it runs cells of several suites
        return command
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word.startswith("--only="):
            skip = False
        elif word == "--only":
            skip = True
        else:
            kept.append(word)
    for axis, value in trial.axes.items():
        kept += ["--only", f"{axis}={yaml_text(value)}"]
    return shlex.join(kept)
