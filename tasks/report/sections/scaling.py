"""Section: how throughput grows with the number of devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from experiments.metrics import metric_of
from experiments.stats.estimate import Estimate
from experiments.summary import COMMUNICATION
from tasks.analysis.cell import DEVICES, Cell
from tasks.analysis.judge_cells import APART, DISTURBED, ONE_BESIDE, ONE_IN_COMMON, ONE_TRIAL, SPREADS_DIFFER, judge_pairs
from tasks.analysis.same_work import groups_of_work
from tasks.analysis.waterfall import traced_ranks, why_left_out
from tasks.report.comparison_table import TextTable
from tasks.report.missing_ranks import missing_rank_sentences
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.text_format import listed, percent, quantity, ratio_with_interval, seconds

PER_DEVICE = "tflops_per_device"
EPOCH = "epoch time"
_DOUBT = (DISTURBED, APART, ONE_TRIAL, ONE_BESIDE, ONE_IN_COMMON, SPREADS_DIFFER)  # of a metric itself: why more repeats are needed
ABOUT = (
    "Over the fewest devices of cells that differ in nothing else. Exposed: how much longer a step's forward and backward take with the "
    "all-reduce of gradients than without it; its part of the step is the communication share. Traced: of traced steps, the mean of the "
    "ranks' time in which communication ran and nothing computed, and its part of the traced step. The profiler slows the host: where a "
    "traced step takes longer than the median step, ranks that wait for another one's launches count too, and the part may be too high."
)


def section(source: ReportSource) -> Section | None:
    return table_section("scaling", "Scaling", scaling(source.cells), " ".join(filter(None, [ABOUT, *_not_told(source.cells)])))


def scaling(cells: Sequence[Cell]) -> TextTable:
    """A row for each cell on several devices, and for those with fewer that differ from one in nothing else.

    Efficiency: throughput over that of the fewest devices, divided by how many times more devices there are.
    """
    header = ["cell", "devices", "rate", "speed-up", "efficiency", "all-reduce alone", "exposed", "communication share", EPOCH]
    rows = []
    for ordered in _alike_but_for_devices(cells):
        if ordered[0].devices == ordered[-1].devices and not any(text != "–" for text in _communication(ordered[0])):
            continue  # nothing to compare, and nothing known of what several devices cost
        for cell in ordered:
            ratio, why = _ratio(cell, ordered[0]) if cell is not ordered[0] else (None, "")
            assert cell.estimate is not None
            rows.append(
                [
                    cell.short,
                    str(cell.devices),
                    quantity(cell.estimate.value, cell.metric),
                    _with_doubt(ratio, why) if ratio else "–",
                    percent(ratio.value / _more(cell, ordered[0])) if ratio else "–",
                    *_communication(cell),
                    quantity(cell.mean("epoch_time_s"), metric_of("epoch_time_s")),
                ]
            )
    known = any(row[-1] != "–" for row in rows)
    return TextTable(header if known else header[:-1], rows if known else [row[:-1] for row in rows], numeric=True)


def _communication(cell: Cell) -> tuple[str, str, str]:
    """The all-reduce alone, what is exposed of a step's communication, and its share. Shards have none that could be left out: of them
    the traced steps tell."""
    alone, exposed, share = (cell.mean(name) for name in COMMUNICATION)
    if not _is_traced(cell):
        return seconds(alone), seconds(exposed), percent(share)
    ranks = traced_ranks(cell)
    found, step = (sum(rank[part] for rank in ranks) / len(ranks) for part in ("communication_s", "step_s"))
    return seconds(alone), f"{seconds(found)} of {seconds(step)}, traced", f"{percent(found / step)}, traced"


def _is_traced(cell: Cell) -> bool:
    """Whether its traced steps are what tells of its communication."""
    return cell.devices > 1 and cell.mean(COMMUNICATION[1]) is None and bool(traced_ranks(cell))


def _not_told(cells: Sequence[Cell]) -> list[str]:
    """Of which cells and ranks the traced steps would tell of communication, and do not; empty for none."""
    names = [cell.short for cell in cells if cell.devices > 1 and cell.mean(COMMUNICATION[1]) is None and why_left_out(cell)]
    why = "those steps are not as many of each kind, or their kinds are not known"
    left_out = [f"What was traced of {listed(names)} is not shown: {why}."] if names else []
    return left_out + missing_rank_sentences(cell for cell in cells if _is_traced(cell))


def scaling_sentences(cells: Sequence[Cell]) -> list[str]:
    """For each work, how its best setting on the most devices grows from the fewest: what a rate on more devices is worth."""
    found = []
    for group in groups_of_work(cells).values():
        several = [alike for alike in _alike_but_for_devices(group) if alike[-1].devices > alike[0].devices]
        if several:
            most = max(alike[-1].devices for alike in several)
            on_most = [alike for alike in several if alike[-1].devices == most]
            best = max(on_most, key=lambda alike: (not (alike[-1].struck or alike[0].struck), _rate(alike[-1])))
            found.append(_sentence(best[-1], best[0]))
    return found


def _rate(cell: Cell) -> float:
    return cell.estimate.value if cell.estimate else 0.0


def _sentence(cell: Cell, fewest: Cell) -> str:
    """`sdpa: from 1 to 4 devices the rate of all together grows x3.80 (3.71–3.89), 95.0 % of linear.`"""
    ratio, why = _ratio(cell, fewest)
    name = " · ".join(text for axis, text in cell.told.items() if axis != DEVICES)
    grows = f"from {fewest.devices} to {cell.devices} devices the rate of all together {_growth(ratio)} {ratio_with_interval(ratio)}"
    linear = f"{percent(ratio.value / _more(cell, fewest))} of linear"
    doubt = [f"undecided: {why}"] if why in _DOUBT else []
    doubt += ["not claimed, since the loss differs from its reference's"] if cell.struck or fewest.struck else []
    said = f"{'; '.join([f'{grows}, {linear}', *doubt])}."
    return f"{name}: {said}" if name else f"{said[:1].upper()}{said[1:]}"


def _growth(ratio: Estimate) -> str:
    """What its interval shows; of one that is not known the value alone, beside which stands why it is undecided."""
    if not math.isfinite(ratio.se):
        return "grows" if ratio.value > 1 else "does not grow:"
    return "grows" if ratio.low > 1 else "falls to" if ratio.high < 1 else "is not shown to grow:"


def _alike_but_for_devices(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells with a rate that differ in nothing but devices, each group from the fewest up."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if cell.measured and cell.metric.name in ("throughput", PER_DEVICE):
            rest = tuple((axis, repr(value)) for axis, value in cell.axes.items() if axis != DEVICES)
            groups.setdefault((*rest, repr(cell.work)), []).append(cell)
    return [sorted(group, key=lambda cell: cell.devices) for group in groups.values()]


def _with_doubt(ratio: Estimate, why: str) -> str:
    """x3.80 (3.71–3.89), with why that is undecided where nothing can be judged. `why` is of the metric itself."""
    return f"{ratio_with_interval(ratio)}{f' undecided: {why}' if why in _DOUBT else ''}"


def _ratio(cell: Cell, fewest: Cell) -> tuple[Estimate, str]:
    """Of what all devices do together, whether the metric is of one device or of all; and why more repeats are needed, if they are."""
    [found] = judge_pairs([(cell, fewest)])
    more = _more(cell, fewest) if cell.metric.name == PER_DEVICE else 1.0
    ratio = found.ratio
    return replace(ratio, value=ratio.value * more, low=ratio.low * more, high=ratio.high * more), found.why_undecided or ""


def _more(cell: Cell, fewest: Cell) -> float:
    """How many times as many devices."""
    return cell.devices / fewest.devices
