"""Section: where a step's time goes, with what else a step costs (memory, energy, compilation)."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.metrics import metric_of
from experiments.summary import BATCH_TIMES, P99_BATCHES, PARTS, PERCENTILES
from tasks.analysis.cell import Cell
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.tables import without_empty
from tasks.report.text_format import count, number, percent, quantity

ABOUT = (
    "Mean over repeats. Shares are of the measured window. The device waits for the host while that loads a batch, runs Python or "
    "writes the journal; where it waits for launches between a pass's own kernels, that is time of the pass, of which the traced steps "
    "tell. The host's time in the loader stands by itself, since the device may compute meanwhile."
)
OTHER = "other"  # the part that no timer saw
_WORDS = {"data_wait": "waits for host", "h2d": "copy to device", "forward_backward": "forward + backward", "optimizer": "optimiser"}
PART_SHARES = tuple(f"{part}_share" for part in PARTS)
PART_NAMES = (*(_WORDS.get(part, part.replace("_", " ")) for part in PARTS), OTHER)
_OF_TRAINING = "optimizer_share"
_BEFORE = [
    "cell",
    "step, median",
    "step, p90",
    *(f"{name.replace('_', ' ')}, {rank}" for name in BATCH_TIMES.values() for rank in PERCENTILES),
]
_AFTER = [
    "host in loader",
    "waits for host, worst rank",
    "peak memory",
    "alloc. retries",
    "TFLOP/s / device",
    "MFU",
    "J / sample",
    "power",
    "first step",
    "compile",
    "compile, cached",
    "epoch",
]


def part_names(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The parts of a step, then the rest. Where no cell trains there is no backward pass."""
    trains = any(cell.trains for cell in cells)
    return PART_NAMES if trains else tuple("forward" if name == _WORDS["forward_backward"] else name for name in PART_NAMES)


def section(source: ReportSource) -> Section | None:
    return table_section(
        "step_decomposition",
        "Where a step's time goes",
        decomposition_table(source.cells),
        ABOUT,
        f"{ABOUT} Compilation and the first step are never inside throughput.",
    )


def decomposition_table(cells: Sequence[Cell]) -> TextTable:
    """A row for each cell that measured, mean over repeats; columns that nothing is known of are left out."""
    measured = [cell for cell in cells if cell.measured]
    header = [*_BEFORE, *part_names(measured), *_AFTER]
    return without_empty(TextTable(header, [_row(cell) for cell in measured], numeric=True))


def _row(cell: Cell) -> list[str]:
    shares = [cell.mean(name) for name in PART_SHARES]
    return [
        cell.short,
        *(_mean(cell, name) for name in ("step_time_median_s", "step_time_p90_s")),
        *(_batch_time(cell, name, rank) for name in BATCH_TIMES.values() for rank in PERCENTILES),
        *("–" if name == _OF_TRAINING and not cell.trains else percent(share) for name, share in zip(PART_SHARES, shares, strict=True)),
        percent(other_share(shares)),
        percent(cell.mean("loader_wait_share")),
        percent(cell.mean("data_wait_worst_share")),
        _mean(cell, "peak_memory_bytes"),
        count(cell.mean("alloc_retries")),
        number(cell.mean("tflops_per_device"), 4),
        _mean(cell, "mfu"),
        number(cell.mean("energy_j_per_sample"), 3),
        f"{number(power, 3)} W" if (power := cell.mean("mean_power_w")) is not None else "–",
        *(_mean(cell, name) for name in ("time_to_first_step_s", "compile_seconds", "compile_cached_seconds")),
        f"{number(epoch / 3600, 3)} h" if (epoch := cell.mean("epoch_time_s")) is not None else "–",
    ]


def _mean(cell: Cell, name: str) -> str:
    """The cell's mean of a metric, printed by the metric's kind."""
    return quantity(cell.mean(name), metric_of(name))


def _batch_time(cell: Cell, name: str, rank: str) -> str:
    """A percentile of a batch's time; where there were too few batches for it, that."""
    if rank == "p99" and cell.mean(f"{name}_p99_s") is None and cell.mean(f"{name}_p50_s") is not None:
        return f"needs {P99_BATCHES:,} batches"
    return _mean(cell, f"{name}_{rank}_s")


def other_share(shares: Sequence[float | None]) -> float | None:
    """The part of a step that no timer saw; None where a part is unknown."""
    known = [share for share in shares if share is not None]
    return max(0.0, 1 - sum(known)) if len(known) == len(shares) else None
