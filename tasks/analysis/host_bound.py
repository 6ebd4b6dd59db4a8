"""How much of an untraced step a GPU had nothing to do, where its traced steps show that it waited for the host's launches."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.parameters import SYNCHRONOUS
from tasks.analysis.cell import Cell
from tasks.analysis.waterfall import traced, traced_ranks

LEAST_WAIT = 0.25  # of a traced step: below it the waits for launches are not what bounds it
LEAST_FREE = 0.25  # of an untraced step: below it traced and untraced steps differ as much for other reasons
LEAST_FREE_ALONE = 0.5  # of one batch at a time: between two of them the GPU waits in any case
_WAITS = ("launch_s", "allocator_s", "data_wait_s", "idle_s")  # of StepParts in cluster/worker/measure/trace_parts.py: nothing runs


def share_without_work(cell: Cell) -> float | None:
    """About the share of the mean untraced step for which the GPU that was idle longest had nothing to do.

    None where it is less than LEAST_FREE (LEAST_FREE_ALONE); where GPUs waited for launches less than LEAST_WAIT of a traced step, or for
    all else longer; and where nothing tells.

    The profiler slows the host and hardly the kernels. So what a GPU did in a traced step, communication with its wait for other ranks
    among it, is set beside the step of the same trial's window. Of several ranks one counts: a step ends when the slowest has launched its
    work, and the others' communication has their wait for it.
    """
    row = traced(cell)
    rate = row.summary.get("throughput") if row is not None else None
    if row is None or not rate:
        return None
    each = float(rate) / cell.devices  # also where some ranks have no trace
    shares = [1 - _busy_s(rank) * each / rank["samples"] for rank in traced_ranks(cell) if _waits_for_launches(rank)]
    share = max(shares, default=0.0)
    alone = row.trial.parameters.get("execution") == SYNCHRONOUS
    return share if share >= (LEAST_FREE_ALONE if alone else LEAST_FREE) else None


def _busy_s(rank: Mapping[str, float]) -> float:
    return rank["step_s"] - sum(rank.get(part, 0.0) for part in _WAITS)


def _waits_for_launches(rank: Mapping[str, float]) -> bool:
    others = sum(rank.get(part, 0.0) for part in _WAITS[1:])
    return rank["launch_s"] >= max(LEAST_WAIT * rank["step_s"], others)
