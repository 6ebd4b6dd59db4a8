"""Cells against numbers worked out by hand: spreads, speed-ups, intervals, q-values, margins, confounders, baselines."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from experiments.stats.spread import Spread
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from tasks.analysis.cell import Cell, is_number, numbers
from tasks.analysis.compare_cells import make_cells
from tasks.analysis.judge_cells import ratio_of
from tasks.analysis.trial_row import TrialRow
from tests.tasks.cell_support import EVEN, T2, T8, by_name, laid_out, made, repeats, row, settings, steady, workers
from tests.tasks.fake_sweep import as_suite

ROUGH = (-0.02, 0.0, 0.02)  # standard deviation 0.02
ROOT3 = math.sqrt(3)


def two_pools() -> list[TrialRow]:
    """cpu: a baseline and a cell with spreads of 0.01 and 0.02; gpu: with 0.03 and 0.06; the speed-ups are 1.1 and 1.3."""
    return [
        *repeats(workers(0, "cpu"), 100.0, EVEN),
        *repeats(workers(1, "cpu"), 110.0, ROUGH),
        *repeats(workers(0, "gpu"), 1000.0, (-0.03, 0.0, 0.03)),
        *repeats(workers(1, "gpu"), 1300.0, (-0.06, 0.0, 0.06)),
    ]


def test_a_cells_own_interval_rests_on_its_own_repeats() -> None:
    cells = by_name(made(two_pools()))
    for name, own in (("cpu · MP-0", 0.01), ("cpu · MP-1", 0.02), ("gpu · MP-0", 0.03), ("gpu · MP-1", 0.06)):
        found = cells[name].estimate
        half = T2 * own / ROOT3
        assert found is not None and (found.n, found.df) == (3, 2)
        assert (found.low, found.high) == pytest.approx((found.value * math.exp(-half), found.value * math.exp(half)), rel=1e-6)


def test_what_is_known_of_a_pool_and_device_is_asked_for_and_used() -> None:
    asked = []

    def known(pool: str, device: str | None, workload: str, metric: str) -> Spread | None:
        asked.append((pool, device, workload, metric))
        return Spread(0.02, 8) if pool == "gpu" else None

    rows = [row(workers(0, "gpu"), 100.0, within=0.01, environment={"device_name": "X"}), row(workers(0, "cpu"), 100.0)]
    gpu, cpu = make_cells(rows, as_suite(settings()), known=known)
    assert asked == [("gpu", "X", "synthetic", "throughput"), ("cpu", None, "synthetic", "throughput")]
    assert gpu.estimate is not None and (gpu.estimate.se, gpu.estimate.df) == (0.02, 8)
    assert gpu.estimate.high == pytest.approx(100 * math.exp(T8 * 0.02), rel=1e-6)
    assert cpu.estimate is not None and math.isinf(cpu.estimate.high)


def test_each_workload_of_a_pool_has_its_own_spread_also_in_its_ratios() -> None:
    spreads = {"quiet": Spread(0.003, 8), "noisy": Spread(0.1, 8)}
    rows = [row({"suite": name, **workers(n)}, 100.0 + n, workload=name) for name in (*spreads, "new") for n in (0, 1)]
    cells = make_cells(rows, as_suite(settings(rows=["suite"])), known=lambda pool, device, workload, metric: spreads.get(workload))
    found = {(cell.trial.workload, cell.axes["dataloader_workers"]): cell for cell in cells}
    for name, spread in spreads.items():
        cell = found[name, 1]
        assert cell.known == spread and cell.speedup is not None
        assert cell.speedup.se == pytest.approx(spread.sd * math.sqrt(2)) and cell.speedup.df == pytest.approx(8)
    new = found["new", 1].speedup
    assert new is not None and math.isinf(new.se)


def test_what_is_known_of_ratios_says_nothing_of_differences() -> None:
    """A value of 0 puts the metric on the linear scale, which the known spread is not on."""
    rows = [row(workers(count), value) for count, value in enumerate((0.0, 5.0))]
    cells = make_cells(rows, as_suite(settings()), known=lambda *place: Spread(0.02, 8))
    assert [cell.known for cell in cells] == [None, None]


def test_one_trial_has_no_verdict_even_where_its_spread_is_known() -> None:
    rows = [row(workers(0), 100.0, within=1e-4), row(workers(1), 200.0, within=1e-4)]
    bare = made(rows)[1]
    assert bare.speedup is not None and (bare.speedup.low, bare.speedup.high) == (0.0, math.inf)
    assert (bare.verdict, bare.why_undecided) == (Verdict.UNDECIDED, "one trial")
    known = make_cells(rows, as_suite(settings()), known=lambda *place: Spread(0.02, 8))[1]
    assert known.speedup is not None and known.speedup.se == pytest.approx(0.02 * math.sqrt(2)) and known.speedup.df == pytest.approx(8)
    assert (known.verdict, known.why_undecided) == (Verdict.UNDECIDED, "one trial")
    against_one = made([row(workers(0), 100.0), *steady(workers(1), 200.0)])[1]
    assert (against_one.verdict, against_one.why_undecided) == (Verdict.UNDECIDED, "one trial")


def test_two_trials_decide_unless_their_spreads_differ() -> None:
    """0.1 % and 0.4 % between two trials pass, 0.1 % and 1 % do not; three trials need no such test."""
    base = [*repeats(workers(0), 100.0, (-5e-4, 5e-4)), *repeats(workers(2), 100.0, (5e-4, -5e-4))]
    for apart, expected, why in (
        (0.004, Verdict.FASTER, None),
        (0.01, Verdict.UNDECIDED, "compared over two trials, whose spreads differ"),
    ):
        two = by_name(made([*base, *repeats(workers(1), 200.0, (-apart / 2, apart / 2))]))["cpu · MP-1"]
        assert (two.verdict, two.why_undecided) == (expected, why)
    three = [*repeats(workers(0), 100.0, (-5e-4, 5e-4, 0.0)), *repeats(workers(2), 100.0, (5e-4, -5e-4, 0.0))]
    noisy = by_name(made([*three, *repeats(workers(1), 200.0, (0.02, 0.0, -0.02))]))["cpu · MP-1"]
    assert (noisy.verdict, noisy.why_undecided) == (Verdict.FASTER, None)


def in_order(metric: str) -> dict[str, Cell]:
    """Rounds A B C D D C B A A B C D, each value 0.1 % lower than the one before, by the times at which the trials started."""
    values = (100.0, 110.0, 100.0, 120.0)
    when = {(count, repeat): 4 * (repeat - 1) + (3 - count if repeat == 2 else count) for count in range(4) for repeat in (1, 2, 3)}
    rows = []
    for (count, repeat), place in when.items():
        one = row(workers(count), values[count] * math.exp(-0.001 * place), metric=metric, repeat=repeat)
        assert one.result is not None
        rows.append(replace(one, result=one.result.model_copy(update={"started_at": 60.0 * place})))
    return by_name(made(rows, settings(metric=metric)))


def test_the_order_in_which_trials_ran_takes_a_drift_out() -> None:
    found = in_order("throughput")
    for count, ratio in ((1, 1.1), (2, 1.0), (3, 1.2)):
        speedup = found[f"cpu · MP-{count}"].speedup
        assert speedup is not None and speedup.value == pytest.approx(ratio, rel=1e-9)


def test_a_loss_has_no_drift_along_the_sweep() -> None:
    """What is left of the order in three rounds stays: cell 3 runs a third of a round later on average than cell 0."""
    speedup = in_order("eval_loss_after")["cpu · MP-3"].speedup
    assert speedup is not None and speedup.value == pytest.approx(1 / (1.2 * math.exp(-0.001)), rel=1e-9)


def test_speedups_pair_the_repeats_and_have_their_interval() -> None:
    cells = by_name(made(two_pools()))
    for name, ratio, spread in (("cpu", 1.1, 0.01), ("gpu", 1.3, 0.03)):  # of the pairs' ratios
        found = cells[f"{name} · MP-1"].speedup
        half = T2 * spread / ROOT3
        assert found is not None and (found.df, found.n) == (pytest.approx(2), 3)
        assert (found.value, found.low, found.high) == pytest.approx((ratio, ratio * math.exp(-half), ratio * math.exp(half)), rel=1e-6)
        t = math.log(ratio) / (spread / ROOT3)
        assert found.p_value == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-6), "closed form of Student's t with 2 degrees"
        assert cells[f"{name} · MP-1"].verdict is Verdict.FASTER
        base = cells[f"{name} · MP-0"]
        assert base.baseline is base and base.speedup is None and base.verdict is None
        assert cells[f"{name} · MP-1"].baseline is base


def test_a_metric_of_which_less_is_better_has_the_inverse_ratio() -> None:
    rows = [*repeats(workers(0), 0.2, metric="step_time_median_s"), *repeats(workers(1), 0.16, ROUGH, metric="step_time_median_s")]
    found = by_name(made(rows, settings(metric="step_time_median_s")))["cpu · MP-1"]
    half = T2 * 0.01 / ROOT3
    assert found.speedup is not None and found.verdict is Verdict.FASTER
    assert (found.speedup.value, found.speedup.low) == pytest.approx((1.25, 1.25 * math.exp(-half)), rel=1e-6)


def test_verdicts_control_the_false_discovery_rate_over_all_pools() -> None:
    """t = 16 with 2 degrees of freedom: p is 0.0039, enough alone; of eight such comparisons with seven of no effect it is not."""
    log = 16 * 0.01 / ROOT3
    shifted = [*repeats(workers(0), 100.0), *repeats(workers(1), 100 * math.exp(log), ROUGH)]
    alone = by_name(made(shifted))["cpu · MP-1"]
    assert alone.speedup is not None and 0.0038 < alone.speedup.p_value < 0.0040 and alone.verdict is Verdict.FASTER
    rest = [one for pool in "bcdefgh" for count in (0, 1) for one in repeats(workers(count, pool), 100.0, (EVEN, ROUGH)[count])]
    among = by_name(made([*shifted, *rest]))["cpu · MP-1"]
    assert among.speedup == alone.speedup
    assert (among.verdict, among.why_undecided) == (Verdict.UNDECIDED, "one of many comparisons"), "q is 8 x 0.0039"
    single = [one for pool in "bcdefgh" for count in (0, 1) for one in [row(workers(count, pool))]]
    assert by_name(made([*shifted, *single]))["cpu · MP-1"].verdict is Verdict.FASTER, "cells of one trial are not tested"


@pytest.mark.parametrize(
    ("ratio", "minimum", "expected"),
    [
        (1.019, None, Verdict.SAME),
        (1.021, None, Verdict.FASTER),
        (1 / 1.019, None, Verdict.SAME),
        (1 / 1.021, None, Verdict.SLOWER),
        (1.039, None, Verdict.FASTER),
        (1.049, 0.05, Verdict.SAME),
        (1.051, 0.05, Verdict.FASTER),
        (1.006, 0.005, Verdict.FASTER),
    ],
)
def test_the_smallest_effect_that_counts(ratio: float, minimum: float | None, expected: Verdict) -> None:
    """2 %, or what the suite says; repeats agree."""
    suite = settings() if minimum is None else settings(minimum_effect=minimum)
    cells = by_name(made([*steady(workers(0), 100.0), *steady(workers(1), 100 * ratio)], suite))
    assert cells["cpu · MP-1"].verdict is expected


def test_a_value_without_bounds_has_no_interval() -> None:
    for bounds in ({}, {"throughput_low": 90.0}, {"throughput_high": 110.0}, {"throughput_low": 0.0, "throughput_high": 110.0}):
        [cell] = made([row(workers(0), 100.0, summary=bounds)])
        assert cell.estimate is not None and cell.estimate.value == pytest.approx(100.0)
        assert (cell.estimate.low, cell.estimate.high, cell.estimate.se, cell.estimate.df) == (0.0, math.inf, math.inf, 1)


def test_across_pools_rounds_have_nothing_in_common() -> None:
    rows = [
        *repeats(workers(0, "cpu"), 100.0, (-0.01, 0.01)),
        *repeats(workers(0, "gpu"), 200.0, (-0.02, 0.02)),
        *repeats(workers(1, "gpu"), 200.0, (-0.08, 0.08)),
    ]
    cells = by_name(made(rows, settings(baseline={"pool": "cpu"})))
    slow, fast = cells["cpu · MP-0"], cells["gpu · MP-0"]
    assert fast.baseline is slow and fast.speedup is not None
    own = math.hypot(0.01, 0.02)  # standard deviations 0.01 and 0.02 x sqrt(2), over sqrt(2)
    assert fast.speedup.se == pytest.approx(own, rel=1e-6)
    welch = own**4 / (0.01**4 + 0.02**4)
    assert fast.speedup.df == pytest.approx(welch, rel=1e-6)
    same_pool = ratio_of(cells["gpu · MP-1"], fast)
    assert same_pool.df == pytest.approx(1) and same_pool.se == pytest.approx(0.06), "in pairs"


def test_repeats_of_two_sweeps_are_not_paired() -> None:
    cells = by_name(made([*repeats(workers(0), 100.0, ROUGH), *repeats(workers(1), 100.0, ROUGH)]))
    paired = ratio_of(cells["cpu · MP-1"], cells["cpu · MP-0"])
    apart = ratio_of(cells["cpu · MP-1"], cells["cpu · MP-0"], paired=False)
    assert paired.se == 0.0
    assert apart.se == pytest.approx(0.02 * math.sqrt(2 / 3)) and apart.df == pytest.approx(4)


# --- repeats of a cell


def test_the_mean_is_over_the_repeats_that_ended_ok() -> None:
    values = [(1, 10.0, Outcome.OK), (2, 20.0, Outcome.OK), (3, 999.0, Outcome.CRASHED), (4, 60.0, Outcome.OK)]
    [cell] = made(
        [row(workers(0), repeat=repeat, outcome=outcome, summary={"data_wait_share": value}) for repeat, value, outcome in values]
    )
    assert cell.mean("data_wait_share") == pytest.approx(30.0)
    assert cell.mean("never_heard_of") is None
    assert [measured.trial.repeat for measured in cell.measured] == [1, 2, 4]


def test_the_mean_leaves_out_disturbed_repeats_where_others_were_not() -> None:
    """As the figures do, of which the page says so."""
    one, two = repeats(workers(0), 100.0, (0.0, 0.0), summary={"data_wait_share": 0.1})
    assert two.result is not None
    told = replace(two, result=two.result.model_copy(update={"disturbed": "a process"}), summary={**two.summary, "data_wait_share": 0.5})
    assert made([one, told])[0].mean("data_wait_share") == pytest.approx(0.1)
    assert made([told])[0].mean("data_wait_share") == pytest.approx(0.5)


@pytest.mark.parametrize(("metric", "counted", "alone"), [("eval_loss_after", [1, 2], None), ("peak_memory_bytes", [1], "a process")])
def test_what_else_ran_changes_nothing_that_is_learnt(metric: str, counted: list[int], alone: str | None) -> None:
    one, two = repeats(workers(0), 100.0, (0.0, 0.0), summary={"eval_loss_after": 2.0, "peak_memory_bytes": 7e9})
    assert two.result is not None
    told = replace(two, result=two.result.model_copy(update={"disturbed": "a process"}))
    suite = settings(metric=metric)
    [cell] = made([one, told], suite)
    assert ([measured.trial.repeat for measured in cell.measured], cell.disturbed) == (counted, None)
    assert made([told], suite)[0].disturbed == alone


def test_the_mean_leaves_out_what_a_repeat_does_not_know() -> None:
    shares = (0.1, None, math.nan, 0.3)
    [cell] = made([row(workers(0), repeat=place, summary={"mfu": share}) for place, share in enumerate(shares, 1)])
    assert cell.mean("mfu") == pytest.approx(0.2)


def test_repeats_stand_in_their_order_however_they_come() -> None:
    rows = repeats(workers(0), 100.0, (-0.02, 0.0, 0.02))
    [cell] = made([rows[2], rows[0], rows[1]])
    assert [one.trial.repeat for one in cell.rows] == [1, 2, 3]
    assert [estimate.value for estimate in cell.estimates] == pytest.approx([100 * math.exp(d) for d in (-0.02, 0.0, 0.02)])
    assert cell.trial.repeat == 1 and cell.name == "cpu · MP-0"


def test_cells_keep_the_plans_order_and_one_kind_of_device() -> None:
    rows = [row(workers(2)), row(workers(0)), row(workers(1), emulated=True), row(workers(2), repeat=2)]
    assert [cell.name for cell in made(rows)] == ["cpu · MP-2", "cpu · MP-0"]
    assert [len(cell.rows) for cell in made(rows)] == [2, 1]
    assert not any(cell.emulated for cell in made(rows))
    [other] = made(rows, emulated=True)
    assert other.name == "cpu · MP-1" and other.emulated


@pytest.mark.parametrize(
    ("outcomes", "expected", "reason"),
    [
        ([Outcome.CRASHED, Outcome.OK], "ok", None),
        ([None, Outcome.HANG, Outcome.CRASHED], "hang", "why 2"),
        ([Outcome.CRASHED, Outcome.CRASHED], "crashed", "why 1"),
        ([None, None], "to do", None),
    ],
)
def test_a_cells_outcome_is_ok_or_that_of_the_first_repeat_that_ended(
    outcomes: list[Outcome | None], expected: str, reason: str | None
) -> None:
    rows = [
        row(workers(0), None, repeat=place, outcome=outcome, reason=None if outcome is Outcome.OK else f"why {place}")
        for place, outcome in enumerate(outcomes, 1)
    ]
    [cell] = made(rows)
    assert (cell.outcome, cell.reason) == (expected, reason)
    assert cell.estimate is None and cell.measured == []


def test_cells_without_a_value_are_not_compared() -> None:
    cells = by_name(made([row(workers(0), None, outcome=Outcome.CRASHED), row(workers(1)), row(workers(2), None)]))
    assert cells["cpu · MP-1"].baseline is cells["cpu · MP-0"]
    assert all(cell.speedup is None and cell.verdict is None for cell in cells.values())


def test_what_counts_as_a_number() -> None:
    assert [is_number(value) for value in (1, 1.5, 0, True, False, None, "1", math.nan, math.inf)] == [True] * 3 + [False] * 6
    assert numbers([1, None, True, math.nan, 2.5]) == [1.0, 2.5]


# --- baselines and layout


def test_axes_become_rows_and_columns_and_others_that_vary_more_rows() -> None:
    rows = [row(workers(count, model=model, precision="fp32", seed=seed)) for count in (0, 1) for model in ("a", "b") for seed in (1, True)]
    suite = settings(rows=("model", "pool", "unheard_of", "dataloader_workers"))
    cells = made(rows, suite)
    assert laid_out(cells, suite) == (["model", "pool", "seed"], ["dataloader_workers"]), "1 and true are two values; precision has one"
    assert laid_out(cells, settings(columns="precision")) == (["pool", "dataloader_workers", "model", "seed"], ["precision"])
    assert laid_out(cells, settings(columns="gone")) == (["pool", "dataloader_workers", "model", "seed"], [])
    assert laid_out(cells[:1], suite) == (["model", "pool"], ["dataloader_workers"])
