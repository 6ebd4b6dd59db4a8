"""Section: the state of the devices and their hosts while the trials measured: clocks, what capped them, and other work."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.device_state import NOT_SAMPLED
from tasks.analysis.cell import Cell
from tasks.report.cell_names import as_baseline
from tasks.report.comparison_table import TextTable
from tasks.report.section import Bullets, ReportSource, Section
from tasks.report.tables import without_empty
from tasks.report.text_format import listed, number, percent, plural

_HEADER = ["cell", "clock, mean", "lowest", "memory clock", "power", "temperature", "capped", "by", "other work on the CPU", "disturbed"]
CLOCKS_DIFFER = 0.01  # from here on a difference of mean clocks is named beside a comparison
_ALWAYS = 0.995  # share of the time that is called "all of the time"
_NAMED = 3  # comparisons whose clocks the cautions tell
NOT_JUDGED = "not judged"
NOT_KEPT = "not kept"  # on a page of before what capped a clock was kept


def section(source: ReportSource) -> Section | None:
    table = state_table(source.cells)
    if not table.rows:
        return None
    sentences = clock_sentences(source.cells)
    return Section(
        "device_state",
        "The state of the devices",
        [table, *([Bullets(sentences)] if sentences else [])],
        f"While the trials measured, sampled ten times a second. Means over repeats{_of_any(table)}.",
    )


def _of_any(table: TextTable) -> str:
    """Which of its columns are no means."""
    columns = [name for name, column in (("lowest clock", "lowest"), ("highest temperature", "temperature")) if column in table.header]
    return f"; {' and '.join(columns)} of any" if columns else ""


def state_table(cells: Sequence[Cell]) -> TextTable:
    """A row for each cell whose state is known; columns that nothing is known of are left out."""
    known = [cell for cell in cells if cell.mean("state_coverage") is not None]
    return without_empty(TextTable(_HEADER, [_row(cell) for cell in known], numeric=True))


def _row(cell: Cell) -> list[str]:
    clocks, temperatures = (_known(cell, name) for name in ("clock_min_mhz", "temperature_max_c"))
    return [
        cell.short,
        _mhz(cell.mean("clock_mean_mhz")),
        _mhz(min(clocks, default=None)),
        _mhz(cell.mean("memory_clock_mhz")),
        _in(cell.mean("sampled_power_w"), "W"),
        _in(max(temperatures, default=None), "°C"),
        percent(cell.mean("capped_share")),
        ", ".join(_caps(cell)) or (NOT_KEPT if cell.mean("capped_share") else "–"),
        percent(cell.mean("cpu_others_share")),
        _disturbed(cell),
    ]


def _disturbed(cell: Cell) -> str:
    """`1 of 3`, `not judged`, `1 of 3, 1 not judged`; a dash where all were judged and none was disturbed."""
    ok = [row for row in cell.rows if row.outcome == "ok"]
    disturbed, unjudged = sum(bool(row.disturbed) for row in ok), sum(bool(row.not_judged) for row in ok)
    if unjudged and unjudged == len(ok):
        return NOT_JUDGED
    parts = [f"{disturbed} of {len(cell.rows)}"] if disturbed else []
    return ", ".join([*parts, *([f"{unjudged} {NOT_JUDGED}"] if unjudged else [])]) or "–"


def _known(cell: Cell, name: str) -> list[float]:
    return [float(value) for row in cell.measured if (value := row.summary.get(name)) is not None]


def _in(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{number(value, 4)} {unit}"


def _mhz(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f} MHz"


def clocks_in_brief(cells: Sequence[Cell]) -> str:
    """`1,771 to 1,959 MHz, capped by power 98.8 to 100 % of the time (means of cells)`; empty where no clock is known."""
    clocks, shares = (
        sorted(value for cell in cells if (value := cell.mean(name)) is not None) for name in ("clock_mean_mhz", "capped_share")
    )
    if not clocks:
        return ""
    parts = [f"{_from_to(f'{clocks[0]:,.0f}', f'{clocks[-1]:,.0f}')} MHz"]
    if any(shares):
        words = listed(list(dict.fromkeys(word for cell in cells for word in _caps(cell))))
        share = _from_to(percent(shares[0]).removesuffix(" %"), percent(shares[-1]).removesuffix(" %"))
        parts.append(f"capped{f' by {words}' if words else ''} {share} % of the time")
    elif shares:
        parts.append("never capped")
    return f"{', '.join(parts)}{' (means of cells)' if len(cells) > 1 else ''}"


def _from_to(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def clock_sentences(cells: Sequence[Cell]) -> list[str]:
    """Each comparison whose sides ran at different clocks, or of which one side was capped: how each ran."""
    return [
        f"{cell.short} ran at {_ran(cell)}; its {as_baseline(other)} at {_ran(other)}: a part of their difference may be the clock."
        for cell, other, _ in _clocks_apart(cells)
    ]


def clock_cautions(cells: Sequence[Cell]) -> list[str]:
    """The same in one sentence for all comparisons: of those with the largest speed-ups the clocks of both sides, and how many others there
    are."""
    apart = sorted(_clocks_apart(cells), key=lambda found: found[2], reverse=True)
    if not apart:
        return []
    sides: dict[Cell, list[Cell]] = {}  # baseline -> what is compared with it
    for cell, other, _ in apart[:_NAMED]:
        sides.setdefault(other, []).append(cell)
    told = []
    for other, beside in sides.items():
        ran = listed([f"{cell.short} {'at' if number else 'ran at'} {_ran(cell)}" for number, cell in enumerate(beside)])
        told.append(f"{ran}; {'their' if len(beside) > 1 else 'its'} {as_baseline(other)} at {_ran(other)}")
    rest = len(apart) - _NAMED
    others = f"; {plural(rest, 'more cell')} {'differs so from its' if rest == 1 else 'differ so from their'} baseline"
    whose = "their difference" if len(apart) == 1 else "the differences"
    return [f"{'; '.join(told)}{others if rest > 0 else ''}: a part of {whose} may be the clock."]


def _clocks_apart(cells: Sequence[Cell]) -> list[tuple[Cell, Cell, float]]:
    """Each comparison whose sides ran at clocks that differ: the cell, its baseline, the speed-up."""
    return [
        (cell, other, cell.speedup.value)
        for cell in cells
        if (other := cell.baseline) is not None and other is not cell and cell.speedup and _is_apart(cell, other)
    ]


def _is_apart(cell: Cell, other: Cell) -> bool:
    a, b = (side.mean("clock_mean_mhz") for side in (cell, other))
    return a is not None and b is not None and abs(a / b - 1) >= CLOCKS_DIFFER


def _ran(cell: Cell) -> str:
    """`1,809 MHz, capped by power all of the time`, `1,950 MHz, never capped`; of a device that does not tell the clock alone."""
    clock, share = cell.mean("clock_mean_mhz"), cell.mean("capped_share")
    if not share:
        return f"{_mhz(clock)}{'' if share is None else ', never capped'}"
    how = "all of the time" if share >= _ALWAYS else f"{percent(share)} of the time"
    words = _caps(cell)
    return f"{_mhz(clock)}, capped {f'by {listed(words)} {how}' if words else f'{how} (by what was {NOT_KEPT})'}"


def _caps(cell: Cell) -> list[str]:
    """The words of what capped the clock of its trials, each once."""
    return list(dict.fromkeys(word for row in cell.measured for word in row.capped_by))


def work_cautions(cells: Sequence[Cell], *, emulated: bool) -> list[str]:
    """Which trials other work disturbed, and of which nothing says that. Of emulated devices the latter is of no interest."""
    return [*disturbance_cautions(cells), *neighbour_cautions(cells), *([] if emulated else unjudged_cautions(cells))]


def neighbour_cautions(cells: Sequence[Cell]) -> list[str]:
    """In how many trials other GPUs of the host were in use: no disturbance by its limits, and still not the host alone."""
    rows = [row for cell in cells for row in cell.measured]
    known = [int(count) for row in rows if (count := row.summary.get("neighbour_gpus")) is not None]
    beside = [count for count in known if count]
    if not beside:
        return []
    which = "all trials" if len(beside) == len(rows) else f"{len(beside)} of {plural(len(known), 'trial')}"
    unknown = f" Of {plural(len(rows) - len(known), 'other trial')} that is not known." if len(known) < len(rows) else ""
    return [
        f"While {which} measured, other processes were on up to {plural(max(beside), 'other GPU')} of the host, and on none of the trials' "
        f"own. They may have shared the host's cores, memory and links.{unknown}"
    ]


def disturbance_cautions(cells: Sequence[Cell]) -> list[str]:
    """Trials that other work disturbed: which were left out, and which cells have no other."""
    lines = []
    only_disturbed = [cell for cell in cells if cell.metric.depends_on_seed and _all_disturbed(cell)]
    left_out = [
        cell.called(row) for cell in cells if cell not in only_disturbed for row in cell.rows if row.disturbed and not cell.disturbed
    ]
    if left_out:
        one = len(left_out) == 1
        without_them = f"{'it is' if one else 'they are'} left out of the figures"
        if cells[0].metric.depends_on_seed:
            without_them = (
                f"{'its' if one else 'their'} times are left out of the figures, and what {'it' if one else 'they'} learnt counts"
            )
        lines.append(f"Other work disturbed {plural(len(left_out), 'trial')} ({listed(left_out, 4)}): {without_them}.")
    if only_disturbed:
        names = listed([cell.short for cell in only_disturbed], 4)
        lines.append(
            f"Other work disturbed every trial of {plural(len(only_disturbed), 'cell')} ({names}): "
            "what they learnt counts, and their times are not the device's alone."
        )
    without = [cell for cell in cells if cell.disturbed]
    if without:
        first = without[0]
        names = listed([cell.short for cell in without], 4)
        lines.append(
            f"Other work disturbed every trial of {plural(len(without), 'cell')} ({names}): nothing is claimed from them. "
            f"{first.name}: {first.disturbed}."
        )
    return lines


def _all_disturbed(cell: Cell) -> bool:
    """Whether other work disturbed each of its trials that ended ok: its mean times are then of these."""
    disturbed = [row.disturbed for row in cell.rows if row.outcome == "ok"]
    return bool(disturbed) and all(disturbed)


def unjudged_cautions(cells: Sequence[Cell]) -> list[str]:
    """Trials of which nothing says whether other work disturbed them, by reason; of a sweep without any samples that alone."""
    rows = [(cell.called(row), row) for cell in cells for row in cell.rows if row.outcome == "ok"]
    if rows and all(row.not_judged == NOT_SAMPLED for _, row in rows):
        return ["The state of the devices was not recorded."]
    names: dict[str, list[str]] = {}
    for name, row in rows:
        if row.not_judged:
            names.setdefault(row.not_judged, []).append(name)
    return [_not_judged(trials, why) for why, trials in names.items()]


def _not_judged(trials: list[str], why: str) -> str:
    were = "was" if len(trials) == 1 else "were"
    return f"{plural(len(trials), 'trial')} ({listed(trials, 4)}) {were} not judged for other work: {why}."
