"""From the data sheet's peak to what was reached, in drops worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from experiments.trial import Outcome
from tasks.analysis.trial_row import TrialRow
from tasks.analysis.waterfall import DROPS, traced, traced_ranks, waterfall, waterfall_of
from tests.tasks.cell_support import made, row

TERA = 1e12
# A step of 10 s: 4 s of matrix products that do 2,000 TFLOP, 2 s of attention that does 400, so 240 TFLOP/s of a peak of 1,000
RANK = {
    "rank": 0,
    "steps": 3,
    "step_s": 10.0,
    "matrix_s": 4.0,
    "attention_s": 2.0,
    "other_s": 0.75,
    "copies_s": 0.25,
    "communication_s": 0.5,
    "data_wait_s": 1.0,
    "launch_s": 0.8,
    "allocator_s": 0.4,
    "idle_s": 0.3,
    "hidden_s": 0.9,
    "samples": 8.0,
}
PROFILE: dict[str, Any] = {
    "flops_per_sample": 300 * TERA,
    "attention_flops_per_sample": 50 * TERA,
    "peak_flops": 1000 * TERA,
    "peak_clock_mhz": 2000.0,
    "ranks": [RANK],
}


def total(profile: dict[str, Any], clock: float | None = 1600.0) -> float:
    found = waterfall(profile, clock)
    assert found is not None
    return math.fsum(share for share in found.drops.values() if share is not None) + found.reached


def test_each_drop_is_what_its_cause_costs_beside_those_before_it() -> None:
    """At 1600 of 2000 MHz 800 of 1000 TFLOP/s are left; 500 at the products' rate; each tenth of the step costs 50 of these, 2 of
    attention cost 1,000 TFLOP less the 400 that it does."""
    found = waterfall(PROFILE, 1600.0)
    assert found is not None and (found.peak, found.matrix_rate) == (1000 * TERA, pytest.approx(500 * TERA))
    assert found.drops == pytest.approx(
        {
            "clock": 0.2,
            "matrix shapes": None,
            "matrix products": 0.3,
            "attention": 0.06,
            "other kernels": 0.05,
            "idle: launches": 0.04,
            "idle: allocator": 0.02,
            "idle: gaps": 0.015,
            "exposed communication": 0.025,
            "data wait": 0.05,
        }
    )
    assert tuple(found.drops) == DROPS and found.reached == pytest.approx(0.24)
    assert total(PROFILE) == pytest.approx(1.0, abs=1e-12)


def test_of_trials_from_before_it_was_told_the_wait_for_the_allocator_is_within_that_for_launches() -> None:
    before = {name: value for name, value in RANK.items() if name != "allocator_s"} | {"launch_s": 1.2}
    found = waterfall({**PROFILE, "ranks": [before]}, 1600.0)
    assert found is not None and (found.drops["idle: launches"], found.drops["idle: allocator"]) == (pytest.approx(0.06), None)
    assert total({**PROFILE, "ranks": [before]}) == pytest.approx(1.0, abs=1e-12)


def test_the_shapes_attain_less_than_the_clock_allows_and_the_products_ran_below_that() -> None:
    """At the bare loop's rates the 4 s of products would have been 3.2 s: 625 of the 800 TFLOP/s that the clock leaves, of which 500 were
    reached. All after it is as without."""
    profile = {**PROFILE, "ranks": [{**RANK, "covered_s": 3.0, "attainable_s": 3.2, "product_flops": 1900 * TERA}]}
    found, without = waterfall(profile, 1600.0), waterfall(PROFILE, 1600.0)
    assert found is not None and without is not None
    assert (found.drops["clock"], found.drops["matrix shapes"], found.drops["matrix products"]) == pytest.approx((0.2, 0.175, 0.125))
    assert (found.attainable_rate, found.covered) == (pytest.approx(625 * TERA), 0.75)
    assert {name: found.drops[name] for name in DROPS[3:]} == {name: without.drops[name] for name in DROPS[3:]}
    assert total(profile) == pytest.approx(1.0, abs=1e-12) and total(profile, None) == pytest.approx(1.0, abs=1e-12)
    assert found.product_flops == pytest.approx(0.95), "1,900 of the 2,000 TFLOP that the model takes of them have a shape"
    assert (without.attainable_rate, without.covered, without.product_flops) == (None, None, None)


def test_products_faster_than_in_the_bare_loop_are_a_gain() -> None:
    profile = {**PROFILE, "ranks": [{**RANK, "covered_s": 4.0, "attainable_s": 5.0, "product_flops": 1900 * TERA}]}
    found = waterfall(profile, 1600.0)
    assert found is not None and found.attainable_rate == pytest.approx(400 * TERA)
    assert (found.drops["matrix shapes"], found.drops["matrix products"]) == pytest.approx((0.4, -0.1))
    assert total(profile) == pytest.approx(1.0)


@pytest.mark.parametrize(("covered_s", "known"), [(2.0, True), (1.99, False)])
def test_a_rate_of_less_than_half_of_the_products_says_nothing_of_their_shapes(covered_s: float, known: bool) -> None:
    """Of recorded steps whose graphs have no operators the rest, such as one head, would stand for all."""
    profile = {**PROFILE, "ranks": [{**RANK, "covered_s": covered_s, "attainable_s": 3.2, "product_flops": 1900 * TERA}]}
    found = waterfall(profile, 1600.0)
    assert found is not None and found.covered == pytest.approx(covered_s / 4.0)
    assert (found.attainable_rate is not None, found.drops["matrix shapes"] is not None) == (known, known)
    assert total(profile) == pytest.approx(1.0)


def test_where_steps_vary_nothing_is_said_of_work_that_is_done_twice() -> None:
    """The traced steps' FLOPs are then not those of the mean step; the rate is."""
    profile = {**PROFILE, "ranks": [{**RANK, "covered_s": 4.0, "attainable_s": 3.2}]}
    found = waterfall(profile, 1600.0)
    assert found is not None and found.product_flops is None and found.attainable_rate == pytest.approx(625 * TERA)


def test_attention_among_the_products_counts_at_the_rate_that_it_had() -> None:
    """2,400 TFLOP in 6 s, of which 4 s would have been 3.2 s: 461.5 TFLOP/s."""
    profile = {
        **PROFILE,
        "attention_flops_per_sample": None,
        "ranks": [{**RANK, "covered_s": 3.0, "attainable_s": 3.2, "product_flops": 1900 * TERA}],
    }
    found = waterfall(profile, 1600.0)
    assert found is not None and (found.attainable_rate, found.covered) == (pytest.approx(2400 / 5.2 * TERA), 0.5)
    assert total(profile) == pytest.approx(1.0)


def test_shapes_are_known_of_every_rank_or_of_none() -> None:
    known = {**RANK, "covered_s": 4.0, "attainable_s": 3.2, "product_flops": 1900 * TERA}
    found = waterfall({**PROFILE, "ranks": [known, {**known, "rank": 1, "attainable_s": 4.0, "product_flops": 1900 * TERA}]}, 1600.0)
    assert found is not None and found.attainable_rate == pytest.approx((625 + 500) / 2 * TERA)
    found = waterfall({**PROFILE, "ranks": [known, RANK]}, 1600.0)
    assert found is not None and found.drops["matrix shapes"] is None and found.drops["matrix products"] == pytest.approx(0.3)


def test_a_clock_above_the_data_sheets_is_a_gain() -> None:
    found = waterfall(PROFILE, 2200.0)
    assert found is not None and found.drops["clock"] == pytest.approx(-0.1) and found.drops["matrix products"] == pytest.approx(0.6)
    assert total(PROFILE, 2200.0) == pytest.approx(1.0)


@pytest.mark.parametrize(("clock", "base"), [(None, 2000.0), (1600.0, None)])
def test_where_the_clock_is_not_known_it_is_within_the_products(clock: float | None, base: float | None) -> None:
    found = waterfall({**PROFILE, "peak_clock_mhz": base}, clock)
    assert found is not None and found.drops["clock"] is None and found.drops["matrix products"] == pytest.approx(0.5)
    assert total({**PROFILE, "peak_clock_mhz": base}, clock) == pytest.approx(1.0)


def test_where_attentions_flops_are_not_known_it_is_within_the_products() -> None:
    """2,400 TFLOP in 6 s: 400 TFLOP/s while either runs, and each tenth of the step costs 40 of them."""
    profile = {**PROFILE, "attention_flops_per_sample": None}
    found = waterfall(profile, 1600.0)
    assert found is not None and found.drops["attention"] is None and found.matrix_rate == pytest.approx(400 * TERA)
    assert found.drops["matrix products"] == pytest.approx(0.4) and found.drops["other kernels"] == pytest.approx(0.04)
    assert total(profile) == pytest.approx(1.0)


def test_attention_without_kernels_of_its_own_is_among_the_products_and_costs_nothing_more() -> None:
    profile = {**PROFILE, "ranks": [{**RANK, "matrix_s": 6.0, "attention_s": 0.0}]}
    for known in (50 * TERA, None):
        found = waterfall({**profile, "attention_flops_per_sample": known}, 1600.0)
        assert found is not None and found.drops["attention"] == 0.0 and found.matrix_rate == pytest.approx(400 * TERA)
    assert total(profile) == pytest.approx(1.0)


def test_of_several_ranks_it_is_the_mean() -> None:
    """The second is as fast where it multiplies, and waits 10 s for data: 120 TFLOP/s."""
    slow = {**RANK, "rank": 1, "step_s": 20.0, "data_wait_s": 11.0}
    profile = {**PROFILE, "ranks": [RANK, slow]}
    found = waterfall(profile, 1600.0)
    assert found is not None and found.reached == pytest.approx((0.24 + 0.12) / 2)
    assert found.drops["data wait"] == pytest.approx((0.05 + 0.5 * 11 / 20) / 2) and found.matrix_rate == pytest.approx(500 * TERA)
    assert total(profile) == pytest.approx(1.0)


def test_where_one_rank_has_attention_apart_and_it_is_not_known_what_it_did_there_is_no_mean() -> None:
    without = {**RANK, "rank": 1, "matrix_s": 6.0, "attention_s": 0.0}
    profile = {**PROFILE, "attention_flops_per_sample": None, "ranks": [RANK, without]}
    found = waterfall(profile, 1600.0)
    assert found is not None and found.drops["attention"] is None
    assert total(profile) == pytest.approx(1.0)


@pytest.mark.parametrize("absent", ["ranks", "peak_flops", "flops_per_sample"])
def test_without_kernels_flops_or_peak_there_is_none(absent: str) -> None:
    assert waterfall({**PROFILE, absent: None}, 1600.0) is None
    assert waterfall({name: value for name, value in PROFILE.items() if name != absent}, 1600.0) is None


def test_products_faster_than_the_device_are_refused_and_so_is_a_trace_without_any() -> None:
    def faster(seconds: float, clock: float | None) -> Any:
        return waterfall({**PROFILE, "ranks": [{**RANK, "matrix_s": seconds}]}, clock)

    assert faster(2.0, 2000.0) is not None and faster(1.9609, 2000.0) is not None, "1,019.9: a clock is known to 2 %"
    for clock in (2000.0, 1600.0, None):
        with pytest.raises(ValueError, match=r"would have run at 1020 TFLOP/s of"):
            faster(1.9605, clock)
    assert faster(1.9605, 2200.0) is not None, "at this clock it can"
    assert faster(2.0, 1600.0) is not None, "the traced steps may have run at a higher clock than the window"
    with pytest.raises(ValueError, match="no matrix products under names that are known"):
        faster(0.0, 2000.0)


def test_a_cells_waterfall_is_of_its_first_repeat_with_parts_at_its_own_clock() -> None:
    axes = {"pool": "cpu"}
    rows = [
        row(axes, None, outcome=Outcome.CRASHED, profile=PROFILE),
        row(axes, repeat=2, profile={**PROFILE, "ranks": None}),
        row(axes, repeat=3, profile=PROFILE, summary={"clock_mean_mhz": 1600.0}),
        row(axes, repeat=4, profile=PROFILE, summary={"clock_mean_mhz": 2000.0}),
    ]
    [cell] = made(rows)
    assert traced(cell) is rows[2] and traced_ranks(cell) == PROFILE["ranks"]
    found = waterfall_of(cell)
    assert found is not None and found.drops["clock"] == pytest.approx(0.2)
    [untraced] = made(rows[:2])
    assert traced(untraced) is None and not traced_ranks(untraced) and waterfall_of(untraced) is None


def test_a_cells_waterfall_is_of_a_repeat_that_nothing_disturbed_where_there_is_one() -> None:
    def repeat(number: int, *, disturbed: bool) -> TrialRow:
        made_up = row({"pool": "cpu"}, repeat=number, profile=PROFILE)
        assert made_up.result is not None
        why = "a process of another user on its device" if disturbed else None
        return replace(made_up, result=made_up.result.model_copy(update={"disturbed": why}))

    rows = [repeat(1, disturbed=True), repeat(2, disturbed=False), repeat(3, disturbed=True)]
    [cell], [all_disturbed] = made(rows), made([rows[0], rows[2]])
    assert traced(cell) is rows[1] and traced(all_disturbed) is rows[0]
