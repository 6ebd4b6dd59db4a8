"""What a reader must know before believing the numbers of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments import workloads
from experiments.config.errors import ConfigError
from experiments.stats.step_interval import LEAST_STEPS, TOO_SHORT
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import OF_MANY, SPREADS_DIFFER
from tasks.analysis.trial_row import TrialRow
from tasks.report.launch_caution import of_host_bound
from tasks.report.places import caution_of_places
from tasks.report.sections.device_state import clock_cautions, work_cautions
from tasks.report.settling import TOO_FEW_STEPS, step_counts
from tasks.report.spread_caution import of_far_trials, of_known_spread, of_rounds, of_unknown_spread
from tasks.report.text_format import listed, percent, plural

NAMED = 4  # trials that are named one by one
WORTH_NAMING = 0.02  # a drift of step times that never settled


@dataclass(frozen=True)
class CautionGroup:
    """Sentences about one subject."""

    title: str
    lines: Sequence[str]


def caution_groups(
    rows: Sequence[TrialRow],
    cells: Sequence[Cell],
    *,
    emulated: bool,
    of_plan: Sequence[str] = (),
    of_code: Sequence[str] = (),
    of_crashes: Sequence[str] = (),
) -> list[CautionGroup]:
    """In the order of how much they concern all numbers, groups without a sentence left out.

    `rows`: of the whole sweep; `cells`: those that the report shows; `of_plan`, `of_code`, `of_crashes`: what is to be said of what was
    planned and is not there, of the code that ran, and of trials that ran again.
    """
    measured = [cell for cell in cells if cell.estimate]
    workloads_ = dict.fromkeys(row.trial.workload for row in rows)
    groups = [
        CautionGroup("Files", _of_damage(rows)),
        CautionGroup("Plan", of_plan),
        CautionGroup("Earlier attempts", of_crashes),
        CautionGroup("Interference", work_cautions(measured, emulated=emulated)),
        CautionGroup(
            "Repeats and intervals",
            [
                *_of_repeats(measured),
                *([] if emulated else of_unknown_spread(measured)),
                *([] if emulated else of_known_spread(measured)),
                *of_far_trials(measured),
                *of_rounds(measured),
                *_of_undecided(measured),
                *_of_length(measured),
            ],
        ),
        CautionGroup("Hosts and sittings", caution_of_places(measured)),
        CautionGroup("Clocks", [] if emulated else clock_cautions([cell for cell in measured if cell.metric.depends_on_node])),
        CautionGroup("Settling", _of_settling([cell for cell in measured if cell.metric.depends_on_node])),
        CautionGroup("Launches", of_host_bound([cell for cell in measured if cell.metric.depends_on_node])),
        CautionGroup("Compilation", _of_compilation(measured)),
        CautionGroup("Allocator", _of_allocator(measured)),
        CautionGroup("Loss parity", _of_loss_parity(cells)),
        CautionGroup("Data and workload", [*_of_media_pipe(cells), *(caveat for name in workloads_ if (caveat := _caveat(name)))]),
        CautionGroup("Code", of_code),
        CautionGroup("Emulation", _of_emulation(sum(row.emulated for row in rows), emulated=emulated)),
    ]
    return [group for group in groups if group.lines]


def _of_damage(rows: Sequence[TrialRow]) -> list[str]:
    """Trials that are left out of all figures."""
    damaged = [row for row in rows if row.problem]
    if not damaged:
        return []
    which = "; ".join(f"{row.trial.name}: {row.problem}" for row in damaged[:NAMED]) + ("; ..." if len(damaged) > NAMED else "")
    return [f"{plural(len(damaged), 'trial')} of {len(rows)} left out of every figure, since files are damaged ({which})."]


def _of_repeats(cells: Sequence[Cell]) -> list[str]:
    """Cells with a value that ran once, and why speed-ups are undecided beyond that."""
    once = [cell for cell in cells if len(cell.measured) < 2]
    if not once:
        return []
    if len(once) == len(cells):
        who = "Each cell" if len(cells) > 1 else "The cell"
    else:
        who = f"{plural(len(once), 'cell')} of {len(cells)} ({listed([cell.short for cell in once], 4)})"
    alone = all(cell.ran_once for cell in once)
    who += " ran once" if alone else f" {'has' if who.startswith(('Each', 'The', '1 ')) else 'have'} one trial that counts"
    return [f"{who}: one trial does not show what varies between trials, so it gets no verdict; three repeats do."]


def _of_undecided(cells: Sequence[Cell]) -> list[str]:
    """Why speed-ups over the baseline are undecided although both sides have two trials, as far as no other group tells."""
    names: dict[str, list[str]] = {}
    for cell in cells:
        if cell.why_undecided:
            names.setdefault(cell.why_undecided, []).append(cell.short)
    compared = sum(cell.speedup is not None for cell in cells)
    lines = []
    for why, of in names.items():
        who = f"Undecided against the baseline in {plural(len(of), 'cell')} ({listed(of, 4)})"
        if why == OF_MANY:
            among = f"among {plural(compared, 'comparison')}, whose false discovery rate is controlled, it is not"
            lines.append(f"{who}: alone it would be decided; {among}.")
        elif why == SPREADS_DIFFER:
            lines.append(f"{who}: {why}; a third round would tell.")
    return lines


def _of_length(cells: Sequence[Cell]) -> list[str]:
    """Names the cells whose only trial says nothing of how sure its rate is, so that their interval is what past sweeps say alone.

    Where these do not say it either there is no interval, however long the window: see `of_unknown_spread`.
    """
    rated = [cell for cell in cells if len(cell.measured) == 1 and f"{cell.metric.name}_low" in cell.measured[0].summary]
    short = [cell.short for cell in rated if cell.known is not None and cell.measured[0].too_short]
    if not short:
        return []
    why = f"fewer than {LEAST_STEPS} steps, or steps that follow each other too closely (effective_steps)"
    alone = "The interval is what past sweeps say alone; --set measure_s=30 makes the window longer."
    return [f"The window was {TOO_SHORT} how sure the rate is, in {listed(short)}: {why}. {alone}"]


def _of_settling(cells: Sequence[Cell]) -> list[str]:
    lines = []
    rows = [(cell.called(row), row) for cell in cells for row in cell.measured]
    of = plural(len(rows), "trial")
    unsettled = [name for name, row in rows if row.settled is False]
    if unsettled:
        lines.append(f"Step times never settled in {len(unsettled)} of {of} ({listed(unsettled, NAMED)}).")
    few = [(name, row) for name, row in rows if row.too_few_steps]
    if few:
        names = listed([name for name, _ in few], NAMED)
        lines.append(f"{TOO_FEW_STEPS.capitalize()} in {len(few)} of {of} ({step_counts([row for _, row in few])}: {names}).")
    lines += _of_drift(rows)
    late = [(name, row.trial) for name, row in rows if _settled_late(row)]
    if late:
        longer = max(2.0, *(2 * float(trial.parameters.get("warmup_s") or 0.0) for _, trial in late))
        hint = f"a longer warm-up would cut that off, such as `--set warmup_s={longer:g}`"
        lines.append(f"Step times settled only inside the measured window in {listed([name for name, _ in late], NAMED)}: {hint}.")
    return lines


def _of_compilation(cells: Sequence[Cell]) -> list[str]:
    """Trials in whose window torch compiled, as for batches of another shape, and whether their rates have that time."""
    rows = [(cell.called(row), row) for cell in cells for row in cell.measured if row.summary.get("compiled_steps")]
    lines = []
    for left_out, told in ((True, "no rate or time has these steps"), (False, "without them none would be left, so rates have that time")):
        steps = {name: int(row.summary["compiled_steps"] or 0) for name, row in rows if bool(row.summary.get("left_out_steps")) is left_out}
        if steps:
            least, most = min(steps.values()), max(steps.values())
            count = f"{least} to {plural(most, 'step')}" if least < most else plural(most, "step")
            where = f"{count} of the window of {listed([*steps], NAMED)}"
            lines.append(f"torch compiled in {where}, as it does for batches of another shape: {told}, and energy is not told.")
    return lines


def _of_allocator(cells: Sequence[Cell]) -> list[str]:
    """Cells whose allocator had to give memory back to CUDA within the window, for which the device waits."""
    short = {cell.short: (count, cell) for cell in cells if (count := cell.mean("alloc_retries") or 0.0) >= 1}
    if not short:
        return []
    least, *_, most = sorted(round(count) for count, _ in (*short.values(), *short.values()))
    times = f"{least if least == most else f'{least} to {most}'} {'time' if most == 1 else 'times'} a trial"
    name = "expandable_segments"
    tried = any(name in cell.axes for cell in cells) or all(cell.trial.parameters.get(name) for _, cell in short.values())
    other = "A smaller batch or checkpointing does without." if tried else f"With --set {name}=true memory fragments less."
    together = ", on all its devices together," if any(cell.devices > 1 for _, cell in short.values()) else ""
    what = f"torch's allocator emptied its cache {times}{together} in the window of {listed([*short], NAMED)}"
    return [f"Memory was so short that {what}: the device waits for that. {other}"]


def _of_drift(rows: Sequence[tuple[str, TrialRow]]) -> list[str]:
    """Names the trials whose step times drifted over the window; of many how many, and the worst. `rows`: each with what it is called."""
    unsettled = {name: row.summary.get("drift") or 0.0 for name, row in rows if row.settled is False}
    drifts = {name: drift for name, drift in unsettled.items() if abs(drift) >= WORTH_NAMING}
    if len(drifts) > NAMED:
        worst = max(drifts, key=lambda name: abs(drifts[name]))
        return [f"Step times drifted over the window in {len(drifts)} trials; most in {worst}, where they {_drifted(drifts[worst])}."]
    if len(drifts) == 1:
        return [f"Step times {_drifted(drift)} over the window in {name}." for name, drift in drifts.items()]
    said = listed([f"{_drifted(drift)} in {name}" for name, drift in drifts.items()], NAMED)
    return [f"Step times drifted over the window: they {said}."] if said else []


def _drifted(drift: float) -> str:
    return f"{'rose' if drift > 0 else 'fell'} by {percent(abs(drift))}"


def _settled_late(row: TrialRow) -> bool:
    """Whether step times settled after the window's first step. False where the steps are gone."""
    settled_at, first = row.summary.get("settled_at_step"), row.summary.get("first_measured_step")
    return settled_at is not None and first is not None and row.steps.size > 0 and settled_at > first


def _of_loss_parity(cells: Sequence[Cell]) -> list[str]:
    struck = [f"{cell.short}: {cell.parity_note}." for cell in cells if cell.struck]
    unproven: dict[str, list[str]] = {}  # `unproven against bf16` -> what each cell's note says after it
    for cell in cells:
        if cell.parity_note and not (cell.claimed or cell.struck):
            found, _, why = cell.parity_note.partition(":")
            unproven.setdefault(found, []).append(why)
    return [*struck, *(_no_claim(found, reasons) for found, reasons in unproven.items())]


def _no_claim(found: str, reasons: Sequence[str]) -> str:
    """Of the cells whose notes begin alike. Figures that differ between them stand at each cell of the table."""
    whose = "its" if len(reasons) == 1 else "their"
    why = f":{reasons[0]}" if len({*reasons}) == 1 and reasons[0] else "; the notes in the table say why" if reasons[0] else ""
    return f"No speed-up of {plural(len(reasons), 'cell')} is claimed, since {whose} loss parity is {found}{why}."


def _of_media_pipe(cells: Sequence[Cell]) -> list[str]:
    fallen = [cell.called(row) for cell in cells for row in cell.rows if str(row.environment.get("media_pipe", "")).startswith("fallback")]
    return [f"The media pipe could not be used, and the DataLoader decoded the images, in {'; '.join(fallen)}."] if fallen else []


def _caveat(workload: str) -> str:
    """What a workload says of all its results (CAVEAT in its file); nothing where the workload no longer exists."""
    try:
        return str(getattr(workloads.load(workload), "CAVEAT", ""))
    except ConfigError:
        return ""


def _of_emulation(count: int, *, emulated: bool) -> list[str]:
    if not count:
        return []
    alone = "shown here alone, because it was asked for."
    hidden = "left out; `sweep report --emulated` shows them by themselves."
    return [f"{plural(count, 'trial')} ran on an emulated device, which measures nothing: {alone if emulated else hidden}"]
