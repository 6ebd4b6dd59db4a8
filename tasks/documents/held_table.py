"""The tables of docs/measuring.md on held time: of every published sweep what was measured of it, and what its trials took beside that."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tasks.analysis.held_time import MEASURED, HeldTime, HeldTrial
from tasks.report.held_text import grouped, share_told
from tasks.report.markdown import grid, md
from tasks.report.published_pages import Page, SweepOnPage
from tasks.report.text_format import devices_told, number, plural

GOAL = 0.6  # of the time that a sweep holds its devices, measured
LARGEST = 3  # groups beside what was measured that are named
_HEADER = ["page", "suite", "ran on", "commit", "windows", "measured", "largest other parts", "a trial beside its window"]
_BESIDE = ["devices", "trials", "median", "medians of sweeps", "longest"]


def held_tables(pages: Sequence[Page]) -> str:
    """How many sweeps reach the goal, and two tables, as Markdown; links are from docs. Sweeps without held_time.json and trials on an
    emulated device are in none."""
    known = [(page, sweep, held) for page in pages for sweep in page.sweeps if (held := _measured(sweep)) is not None]
    told = grid(_HEADER, [_row(page, sweep, held) for page, sweep, held in known])
    return (
        f"{_reached([held for *_, held in known])}\n\n{told}\n\n{grid(_BESIDE, _by_devices([(sweep, held) for _, sweep, held in known]))}"
    )


def _reached(known: Sequence[HeldTime]) -> str:
    shares = [held.measured_share or 0.0 for held in known]
    reach = sum(share >= GOAL for share in shares)
    below = f"; the median is {share_told(median(shares))}" if shares else ""
    reach_it = f"{'reaches' if len(shares) == 1 else 'reach'} it"
    return f"Goal: {share_told(GOAL)} of the held time is measured. {reach} of {plural(len(shares), 'sweep')} {reach_it}{below}."


def beside_s(trials: Sequence[HeldTrial]) -> list[float]:
    """What each of these that has a measured window held its slots for beside it, slot-seconds."""
    return [trial.seconds - trial.parts[MEASURED] for trial in trials if trial.parts.get(MEASURED)]


def _measured(sweep: SweepOnPage) -> HeldTime | None:
    trials = [trial for trial in sweep.held.trials if not trial.emulated] if sweep.held else []
    return HeldTime(trials, sweep.held.slots) if sweep.held and any(trial.parts.get(MEASURED) for trial in trials) else None


def _row(page: Page, sweep: SweepOnPage, held: HeldTime) -> list[str]:
    windows = [trial.parts[MEASURED] for trial in held.trials if trial.parts.get(MEASURED)]
    shares = {group: seconds / held.seconds for group, seconds in grouped(held.parts).items()}
    measured = shares.pop(MEASURED)
    largest = sorted(shares, key=lambda group: shares[group], reverse=True)[:LARGEST]
    runs = f", in {plural(held.runs, 'run')}" if held.runs and held.runs > 1 else ""
    kind = [sweep.kind] if sweep.kind else []
    return [
        f"[{md(page.name)}](results/{page.name}/README.md)",
        md(" · ".join([sweep.plan.suite.suite, sweep.plan.profile, *kind])),
        f"{md(sweep.devices)}, {sweep.date}{runs}",
        f"`{sweep.commit[:7]}`",
        f"{len(windows)} of {_from_to(windows)}",
        f"{share_told(measured)} of {number(held.seconds, 3)} {'s' if held.slots == 1 else 'slot-seconds'}",
        ", ".join(f"{share_told(shares[group])} {group}" for group in largest),
        f"{_s(median(beside_s(held.trials)))} s (up to {_s(max(beside_s(held.trials)))})",
    ]


def _by_devices(known: Sequence[tuple[SweepOnPage, HeldTime]]) -> list[list[str]]:
    """A row for each kind and number of devices that trials ran on."""
    found: dict[tuple[str, int], list[list[float]]] = {}
    for sweep, held in known:
        of_sweep: dict[tuple[str, int], list[HeldTrial]] = {}
        for trial in held.trials:
            if trial.trial in sweep.ran_on:
                of_sweep.setdefault(sweep.ran_on[trial.trial], []).append(trial)
        for kind, trials in of_sweep.items():
            if beside := beside_s(trials):
                found.setdefault(kind, []).append(beside)
    rows = []
    for kind, sweeps in sorted(found.items()):
        every = [seconds for sweep in sweeps for seconds in sweep]
        medians = _from_to([median(sweep) for sweep in sweeps])
        of = f"{medians} ({plural(len(sweeps), 'sweep')})"
        rows.append([md(devices_told([kind])), str(len(every)), f"{_s(median(every))} s", of, f"{_s(max(every))} s"])
    return rows


def _from_to(values: Sequence[float]) -> str:
    low, high = _s(min(values)), _s(max(values))
    return f"{low} s" if low == high else f"{low} to {high} s"


def _s(seconds: float) -> str:
    return f"{seconds:.1f}"
