"""Section: where the device's peak goes, from the data sheet down to what the traced steps reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.metrics import metric_of
from tasks.analysis.cell import Cell
from tasks.analysis.host_bound import LEAST_WAIT
from tasks.analysis.waterfall import (
    ALLOCATOR,
    ATTENTION,
    CLOCK,
    COMMUNICATION,
    DATA,
    DROPS,
    IDLE,
    LAUNCHES,
    SHAPES,
    Waterfall,
    slower,
    traced,
    traced_ranks,
    waterfall_of,
    why_left_out,
)
from tasks.report.comparison_table import TextTable
from tasks.report.missing_ranks import missing_rank_sentences
from tasks.report.section import Block, Bullets, ReportSource, Section
from tasks.report.tables import turned, without_empty
from tasks.report.text_format import listed, number, percent, quantity

NAME = "waterfall"
ABOUT = (
    "Shares of the data sheet's peak for the precisions that compute: 100 %, less each drop (−) and with each gain (+), is what was "
    "reached. Each is what its cause costs beside all that stand before it: the clock at its mean in the measured window; the matrix "
    "shapes, which in a bare loop on this device attain less than its peak; the matrix products, which ran below that or above; then time "
    "in which none ran."
)
MORE = (
    "From steps after the measured window of one trial a cell, the first that nothing disturbed, traced by torch.profiler, which slows the "
    "host: launches cost more here than without it, so MFU, a mean over repeats, may be above what these steps reached. Of several ranks "
    "the mean. Communication is exposed where nothing computes beside it, and includes the wait for the slowest rank. What was recomputed "
    "is time without FLOPs, so it lowers the rate of the matrix products and that of their shapes."
)
HOW = "Traced steps tell: run the sweep again with --set profile_steps=4."
WITHIN = {
    CLOCK: "the clock is within the next drop, since it was not sampled or the data sheet's is not known",
    SHAPES: "what the matrix shapes cost is within the matrix products, since the rates that they attain were not measured, or of less "
    "than half of their time",
    ATTENTION: "attention is within the matrix products, since the workload does not say how many FLOPs are attention's",
}
_HEADER = ["cell", "peak", *DROPS, "reached", "MFU, not traced", "rate of matrix products", "attainable"]
_BESIDE = 4  # cells beside each other: as many have room at 800 px
_FEW = 2  # cells that are named in place of all others
_PRODUCTS = 6  # rows of a cell
_REPEATED = 1.02  # times the model's FLOPs, from which on it is said
_COVERED = 0.995  # share of the matrix products' time from which on their shapes count as all known


def section(source: ReportSource) -> Section | None:
    """The table, for ranks apart where there are several; of a sweep without traced steps on GPUs of known peak, how to get it."""
    found, problems = waterfalls(source.cells)
    if not found and not problems:
        could = any(cell.trial.device == "cuda" and cell.mean("mfu") is not None for cell in source.cells)
        return Section(NAME, "Where the peak goes", [Bullets([HOW])], only_how=True) if could else None
    notes = [
        *problems,
        *_disturbed(found),
        *missing_rank_sentences(cell for cell, _ in found),
        *_not_apart(found),
        *_slower(found),
        *_of_launches(found),
        *_not_covered(found),
        *_repeated(found),
    ]
    products = products_table([cell for cell, _ in found])
    ranks = ranks_table([cell for cell, _ in found])
    blocks: list[Block] = list(waterfall_tables(found))
    blocks += [Bullets(notes)] if notes else []
    blocks += [products] if products.rows else []
    blocks += turned(ranks, "share of the step", _BESIDE)
    return Section(NAME, "Where the peak goes", blocks, ABOUT, f"{ABOUT} {MORE}")


def waterfalls(cells: Sequence[Cell]) -> tuple[list[tuple[Cell, Waterfall]], list[str]]:
    """The waterfall of each cell that has one, and why one has none that should."""
    found, problems = [], []
    for cell in cells:
        try:
            one = waterfall_of(cell)
        except ValueError as error:
            problems.append(f"{cell.short}: {error}.")
            continue
        if one is not None:
            found.append((cell, one))
        elif (why := why_left_out(cell)) is not None:
            problems.append(f"{cell.short}: {why}.")
    return found, problems


def waterfall_tables(found: Sequence[tuple[Cell, Waterfall]]) -> list[TextTable]:
    """A row for each drop, from the peak down to what was reached, and a column for each cell; in several tables where there are many."""
    return turned(_table(found), "share of the peak", _BESIDE)


def _table(found: Sequence[tuple[Cell, Waterfall]]) -> TextTable:
    rows = [
        [
            cell.short,
            f"{number(one.peak / 1e12)} TFLOP/s",
            *(_drop(one.drops[name]) for name in DROPS),
            percent(one.reached),
            quantity(cell.mean("mfu"), metric_of("mfu")),
            f"{number(one.matrix_rate / 1e12)} TFLOP/s",
            "–" if one.attainable_rate is None else f"{number(one.attainable_rate / 1e12)} TFLOP/s",
        ]
        for cell, one in found
    ]
    return without_empty(TextTable(_HEADER, rows, numeric=True))


def ranks_table(cells: Sequence[Cell]) -> TextTable:
    """A row for each rank of the cells with several: its traced step, and the shares of it. They add up to the step."""
    header = ["cell", "rank", "step", "matrix products", "attention", "other kernels", "copies"]
    header += [LAUNCHES, ALLOCATOR, IDLE, COMMUNICATION, DATA, "hidden communication"]
    parts = ["matrix_s", "attention_s", "other_s", "copies_s", "launch_s", "allocator_s", "idle_s"]
    parts += ["communication_s", "data_wait_s", "hidden_s"]
    rows = []
    for cell in cells:
        ranks = traced_ranks(cell)
        for rank in ranks if len(ranks) > 1 else ():
            shares = [percent(rank[part] / rank["step_s"]) if part in rank else "–" for part in parts]
            rows.append([cell.short, f"rank {int(rank['rank'])}", f"{number(rank['step_s'] * 1000, 4)} ms", *shares])
    return without_empty(TextTable(header, rows, names=2, numeric=True))


def products_table(cells: Sequence[Cell]) -> TextTable:
    """The matrix products of each cell whose kernels took longest: how fast they ran, and how fast they run in a bare loop."""
    header = ["cell", "matrix product", "calls in a step", "time in a step", "rate", "attainable"]
    rows = []
    for cell in cells:
        row = traced(cell)
        for one in (row.profile.get("products") or [])[:_PRODUCTS] if row is not None and row.profile else []:
            flops, would = one["calls"] * one["flops"], one["attainable_s"]
            rates = [f"{number(flops / seconds / 1e12)} TFLOP/s" if seconds else "–" for seconds in (one["seconds"], would)]
            rows.append([cell.short, one["product"], f"{one['calls']:g}", f"{number(one['seconds'] * 1000)} ms", *rates])
    return TextTable(header, rows, names=2, numeric=True)


def _drop(share: float | None) -> str:
    """−12.3 %; +8.2 % for a gain."""
    if share is None:
        return "–"
    sign = "−" if share > 0 else "+" if share < 0 else ""
    return f"{sign}{percent(abs(share))}"


def _not_apart(found: Sequence[tuple[Cell, Waterfall]]) -> list[str]:
    """Which drops are within another one, and in which cells."""
    within = {name: [cell.short for cell, one in found if one.drops[name] is None] for name in WITHIN}
    return [f"{_cells(names, found)}: {WITHIN[name]}." for name, names in within.items() if names]


def _disturbed(found: Sequence[tuple[Cell, Waterfall]]) -> list[str]:
    """Whose traced trial was disturbed, since every one of the cell was."""
    names = [cell.short for cell, _ in found if (row := traced(cell)) is not None and row.disturbed]
    return [f"{_cells(names, found)}: other work disturbed the trial that was traced."] if names else []


def _slower(found: Sequence[tuple[Cell, Waterfall]]) -> list[str]:
    """Of which cells traced steps were so much slower than the window's that these need not have the same shares, and by how much."""
    times = {cell.short: many for cell, one in found if (many := slower(cell, one)) is not None}
    if not times:
        return []
    took = f"traced steps took {_range([*times.values()], lambda one: number(one, 3))} times as long as measured ones"
    lines = [f"{_cells([*times], found)}: {took} by their MFU, so these shares hold for traced steps."]
    waits = [cell.short for cell, _ in found if (many := times.get(cell.short)) and _launch_share(cell) * many > 1]
    if waits:
        lines.append(f"{_cells(waits, found)}: waits for launches alone were longer in a traced step than a whole measured step.")
    return lines


def _of_launches(found: Sequence[tuple[Cell, Waterfall]]) -> list[str]:
    """In which cells waits for launches took LEAST_WAIT of a traced step or more: where shapes leave little their drop does not show it."""
    shares = {cell.short: share for cell, _ in found if (share := _launch_share(cell)) >= LEAST_WAIT}
    told = listed([f"{percent(share)} in {name}" for name, share in shares.items()], _BESIDE)
    small = "their drop is what the matrix products would have done in that time, which is little where their shapes attain little"
    return [f"Waits for launches took of the traced step {told}: {small}."] if shares else []


def _launch_share(cell: Cell) -> float:
    """Of the traced steps, the mean of the ranks."""
    ranks = traced_ranks(cell)
    return sum(rank["launch_s"] / rank["step_s"] for rank in ranks) / len(ranks) if ranks else 0.0


def _cells(names: list[str], found: Sequence[tuple[Cell, Waterfall]]) -> str:
    """These of the cells; where few others are left, all but those: `Every cell but MP-1 and MP-2`."""
    others = [cell.short for cell, _ in found if cell.short not in names]
    if len(found) == 1 or len(others) > _FEW or 2 * len(others) >= len(names):
        return listed(names)
    return f"Every cell but {listed(others)}" if others else f"All {len(found)} cells" if len(found) > 2 else "Both cells"


def _not_covered(found: Sequence[tuple[Cell, Waterfall]]) -> list[str]:
    """In which cells the attainable rate is not of all matrix products, and why."""
    alike: dict[tuple[str, ...], dict[str, tuple[float, list[int]]]] = {}  # reasons -> cell -> what is covered, how many are not
    for cell, one in found:
        if one.attainable_rate is None or one.covered is None or one.covered >= _COVERED:
            continue
        row = traced(cell)
        missing = (row.profile.get("not_measured") or {}) if row is not None and row.profile else {}
        alike.setdefault(tuple(missing), {})[cell.short] = (one.covered, list(missing.values()))
    rest = "The rest, such as convolutions, Triton kernels and CUDA graphs, counts at the rate that it had."
    lines = []
    for reasons, of in alike.items():
        shares, counts = zip(*of.values(), strict=True)
        took = f"products that took {_range(shares, percent)} of the matrix products' time"
        told = [f"{_range(each, str)} ({why})" for why, each in zip(reasons, zip(*counts, strict=True), strict=True)]
        missing = f"; not measured: {', '.join(told)}" if told else ""
        lines.append(f"{_cells([*of], found)}: the attainable rate is of {took}{missing}. {rest}")
    return lines


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    """`82.2 to 88.9 %`, of equal ones `82.2 %`."""
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def _repeated(found: Sequence[tuple[Cell, Waterfall]]) -> list[str]:
    """In which cells matrix products did more than the model's FLOPs, so that both rates are below those of the device."""
    many = {cell.short: one.product_flops for cell, one in found if one.product_flops is not None and one.product_flops > _REPEATED}
    if not many:
        return []
    did = f"{'its' if len(many) == 1 else 'their'} matrix products did {_range(list(many.values()), lambda one: number(one, 3))} times"
    return [
        f"{_cells([*many], found)}: {did} the model's FLOPs, such as by recomputing in checkpointed layers. What is beyond them lowers "
        "both rates, so it is within the drop of the matrix shapes."
    ]
