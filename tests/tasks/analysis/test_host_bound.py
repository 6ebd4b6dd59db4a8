"""Which cells the host bounds, of traced steps beside the rate of the window."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.parameters import QUEUED, SYNCHRONOUS
from tasks.analysis.host_bound import LEAST_FREE, LEAST_FREE_ALONE, LEAST_WAIT, share_without_work
from tests.tasks.analysis.test_waterfall import PROFILE, RANK
from tests.tasks.cell_support import made, row, workers


def share(*ranks: dict[str, float], rate: float = 80.0, profile: dict[str, Any] | None = None, **parameters: str | int) -> float | None:
    """At 80 samples a second 8 samples take 0.1 s."""
    traced = {**PROFILE, "ranks": [rank(**one) for one in ranks]} if profile is None else profile
    [cell] = made([row(workers(0), rate, profile=traced, device="cuda", parameters=parameters)])
    return share_without_work(cell)


def rank(launch: float = 0.0, works: float = 0.025, **waits: float) -> dict[str, float]:
    """A rank that computes for `works` s of a step of 8 samples, waits `launch` s for launches, and as long as `waits` say for others."""
    parts = dict.fromkeys((name for name in RANK if name.endswith("_s")), 0.0) | {"matrix_s": works, "launch_s": launch, **waits}
    return {**RANK, **parts, "step_s": sum(parts.values())}


def test_the_busy_time_of_traced_steps_is_of_the_untraced_step() -> None:
    """The profiler made a step of 0.1 s one of 0.225 s: the waits were stretched, and the work was not."""
    assert share({"launch": 0.2}) == pytest.approx(0.75)
    assert share({"launch": 0.2, "idle_s": 0.01, "data_wait_s": 0.01, "allocator_s": 0.01}) == pytest.approx(0.75), "none of these is work"
    assert share({"launch": 0.2, "communication_s": 0.01, "copies_s": 0.005}) == pytest.approx(0.6), "these are"


def test_a_step_that_is_nearly_full_is_not_called_bound_by_the_host() -> None:
    assert share({"launch": 0.2, "works": 0.1 * (1 - LEAST_FREE) - 1e-6}) == pytest.approx(LEAST_FREE, abs=1e-4)
    assert share({"launch": 0.2, "works": 0.1 * (1 - LEAST_FREE) + 1e-6}) is None
    assert share({"launch": 0.2, "works": 0.13}) is None, "the traced steps did more than the window's"


def test_one_batch_at_a_time_waits_between_batches_in_any_case() -> None:
    """A recorded batch of BERT on one H200 is bound by its kernels, and the GPU has nothing to do for 44 to 47 % of a step."""
    over = {"launch": 0.2, "works": 0.1 * (1 - LEAST_FREE_ALONE) - 1e-6}
    under = {"launch": 0.2, "works": 0.1 * (1 - LEAST_FREE_ALONE) + 1e-6}
    assert share(over, execution=SYNCHRONOUS) == pytest.approx(LEAST_FREE_ALONE, abs=1e-4)
    assert share(under, execution=SYNCHRONOUS) is None and share(under, execution=QUEUED) is not None


def test_other_waits_are_not_blamed_on_launches() -> None:
    for other in ("data_wait_s", "allocator_s", "idle_s"):
        assert share({"launch": 0.03, other: 0.031}) is None and share({"launch": 0.031, other: 0.03}) is not None, other
    least = 0.025 * LEAST_WAIT / (1 - LEAST_WAIT)
    assert share({"launch": least + 1e-6}) == pytest.approx(0.75) and share({"launch": least - 1e-6}) is None


def test_of_several_ranks_the_one_that_waits_counts_and_not_who_waits_for_it() -> None:
    """Both do 160 samples a second; the second rank's communication is its wait for the first one's launches."""
    late, waits = {"launch": 0.2, "works": 0.04}, {"works": 0.04, "communication_s": 0.2}
    assert share(late, waits, rate=160.0, devices=2) == share(waits, late, rate=160.0, devices=2) == pytest.approx(0.6)
    assert share(late, rate=160.0, devices=2) == pytest.approx(0.6), "the rate is of both, also where the other one's trace is missing"


def test_nothing_is_said_where_nothing_tells() -> None:
    assert share(profile={"ranks": []}) is None and share(profile={"ranks": None}) is None
    [cell] = made([row(workers(0), 0.1, metric="step_time_median_s", profile={**PROFILE, "ranks": [rank(0.2)]}, device="cuda")])
    assert share_without_work(cell) is None, "without a rate an untraced step is not known"
