"""Cells against numbers worked out by hand: spreads, speed-ups, intervals, q-values, margins, confounders, baselines."""

from __future__ import annotations

import math

import pytest

from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from tasks.analysis.cell import is_number, numbers
from tasks.analysis.confounders import confounders
from tasks.analysis.judge_cells import ratio_of
from tasks.analysis.results import TrialRow
from tests.tasks.cell_support import EVEN, T2, T4, Z95, baseline_of, by_name, laid_out, made, repeats, row, settings, workers

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


def test_the_spread_is_pooled_over_the_cells_of_each_pool_alone() -> None:
    cells = by_name(made(two_pools()))
    for name, pooled in (("cpu", math.sqrt((0.01**2 + 0.02**2) / 2)), ("gpu", math.sqrt((0.03**2 + 0.06**2) / 2))):
        for count in (0, 1):
            assert cells[f"{name} · MP-{count}"].spread == (pytest.approx(pooled), 4)
    one = cells["cpu · MP-0"].estimate
    half = T4 * math.sqrt((0.01**2 + 0.02**2) / 2) / ROOT3
    assert one is not None and one.n == 3 and one.df == 4
    assert (one.value, one.low, one.high) == pytest.approx((100, 100 * math.exp(-half), 100 * math.exp(half)), rel=1e-6)


def test_speedups_pair_the_repeats_and_have_their_interval() -> None:
    cells = by_name(made(two_pools()))
    for name, ratio, spread in (("cpu", 1.1, 0.01), ("gpu", 1.3, 0.03)):  # of the pairs' ratios
        found = cells[f"{name} · MP-1"].speedup
        half = T2 * spread / ROOT3
        assert found is not None and (found.df, found.n) == (2, 3)
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
    """t = 4.5 with 2 degrees of freedom: p is 0.046, beneath 5 % alone; of four such comparisons with three of no effect it is not."""
    log = 4.5 * 0.01 / ROOT3
    shifted = [*repeats(workers(0), 100.0), *repeats(workers(1), 100 * math.exp(log), ROUGH)]
    alone = by_name(made(shifted))["cpu · MP-1"]
    assert alone.speedup is not None and 0.045 < alone.speedup.p_value < 0.05 and alone.verdict is Verdict.FASTER
    rest = [one for pool in ("b", "c", "d") for count in (0, 1) for one in repeats(workers(count, pool), 100.0, (EVEN, ROUGH)[count])]
    among = by_name(made([*shifted, *rest]))["cpu · MP-1"]
    assert among.speedup == alone.speedup
    assert among.verdict is Verdict.UNDECIDED, "q is 4 x 0.046"


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
    """2 %, or what the suite says; the error of each side is 0.01 %."""
    suite = settings() if minimum is None else settings(minimum_effect=minimum)
    cells = by_name(made([row(workers(0), 100.0, within=1e-4), row(workers(1), 100 * ratio, within=1e-4)], suite))
    assert cells["cpu · MP-1"].verdict is expected


def test_one_trial_has_the_error_that_its_steps_show() -> None:
    cells = by_name(made([row(workers(0), 100.0, within=0.01), row(workers(1), 120.0, within=0.02)]))
    one = cells["cpu · MP-0"].estimate
    assert one is not None and one.se == pytest.approx(0.01, rel=1e-6) and one.df == math.inf
    assert (one.low, one.high) == pytest.approx((100 * math.exp(-Z95 * 0.01), 100 * math.exp(Z95 * 0.01)))
    ratio = cells["cpu · MP-1"].speedup
    half = Z95 * math.hypot(0.01, 0.02)
    assert ratio is not None and ratio.se == pytest.approx(math.hypot(0.01, 0.02), rel=1e-6)
    assert (ratio.low, ratio.high) == pytest.approx((1.2 * math.exp(-half), 1.2 * math.exp(half)), rel=1e-6)
    assert cells["cpu · MP-0"].spread is None, "no cell has two repeats"


def test_a_value_without_bounds_has_no_interval() -> None:
    for bounds in ({}, {"throughput_low": 90.0}, {"throughput_high": 110.0}, {"throughput_low": 0.0, "throughput_high": 110.0}):
        [cell] = made([row(workers(0), 100.0, summary=bounds)])
        assert cell.estimate is not None and cell.estimate.value == 100.0
        assert (cell.estimate.low, cell.estimate.high, cell.estimate.se, cell.estimate.df) == (0.0, math.inf, math.inf, 1)


def test_the_pools_spread_is_used_where_repeats_are_too_few_to_pair() -> None:
    """Two repeats: the error of each side is the pool's, 4 degrees of freedom, in quadrature."""
    cells = by_name(
        made(
            [
                *repeats(workers(0), 100.0, (-0.01, 0.01)),
                *repeats(workers(1), 110.0, (-0.01, 0.01)),
                *repeats(workers(2), 100.0, (-0.03, 0.0, 0.03)),
            ]
        )
    )
    spread = math.sqrt((2e-4 + 2e-4 + 18e-4) / 4)
    one = cells["cpu · MP-1"]
    assert one.spread == (pytest.approx(spread), 4)
    assert one.speedup is not None and one.speedup.df == 4
    half = T4 * spread  # twice spread / sqrt(2), in quadrature
    assert (one.speedup.low, one.speedup.high) == pytest.approx((1.1 * math.exp(-half), 1.1 * math.exp(half)), rel=1e-5)


def test_across_pools_the_spread_of_neither_is_taken() -> None:
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
    given = ratio_of(fast, slow, spread=(0.05, 9))
    assert (given.se, given.df) == (pytest.approx(0.05), 9), "a spread that is given counts"
    same_pool = ratio_of(cells["gpu · MP-1"], fast)
    assert same_pool.df == 2 and same_pool.se == pytest.approx(cells["gpu · MP-1"].spread[0])  # type: ignore[index]


def test_repeats_of_two_sweeps_are_not_paired() -> None:
    cells = by_name(made([*repeats(workers(0), 100.0, ROUGH), *repeats(workers(1), 100.0, ROUGH)]))
    paired = ratio_of(cells["cpu · MP-1"], cells["cpu · MP-0"])
    apart = ratio_of(cells["cpu · MP-1"], cells["cpu · MP-0"], paired=False)
    assert paired.se == pytest.approx(0.0, abs=1e-12) and paired.df == 2
    assert apart.se == pytest.approx(0.02 * math.sqrt(2 / 3)) and apart.df == 4


# --- repeats of a cell


def test_the_mean_is_over_the_repeats_that_ended_ok() -> None:
    values = [(1, 10.0, Outcome.OK), (2, 20.0, Outcome.OK), (3, 999.0, Outcome.CRASHED), (4, 60.0, Outcome.OK)]
    [cell] = made(
        [row(workers(0), repeat=repeat, outcome=outcome, summary={"data_wait_share": value}) for repeat, value, outcome in values]
    )
    assert cell.mean("data_wait_share") == pytest.approx(30.0)
    assert cell.mean("never_heard_of") is None
    assert [measured.trial.repeat for measured in cell.measured] == [1, 2, 4]


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


def test_the_baseline_has_the_cells_other_axes() -> None:
    rows = [row(workers(count, pool, precision=precision)) for pool in "ab" for precision in ("fp32", "bf16") for count in (0, 1)]
    suite = settings(rows=("pool", "precision"), baseline={"precision": "fp32", "dataloader_workers": 0})
    cells = made(rows, suite)
    assert {cell.name: cell.baseline.name for cell in cells if cell.baseline} == {
        cell.name: f"{cell.trial.pool} · MP-0 · fp32" for cell in cells
    }


def test_a_baseline_axis_that_a_cell_has_not_is_ignored() -> None:
    cells = made([row({"pool": "cpu", "model": "a"}), row(workers(0, model="b")), row(workers(1, model="b"))], settings(rows=("model",)))
    assert [cell.baseline is other for cell, other in zip(cells, (cells[0], cells[1], cells[1]), strict=True)] == [True] * 3


def test_a_baseline_that_did_not_run_is_none() -> None:
    [cell] = made([row(workers(1))])
    assert cell.baseline is None and cell.speedup is None
    assert baseline_of(cell, [cell], settings(baseline={"dataloader_workers": 1})) is cell
    assert baseline_of(cell, [cell], settings(baseline={"dataloader_workers": 0})) is None


def test_without_a_baseline_it_is_the_first_of_the_table_row() -> None:
    rows = [row(workers(count, pool)) for pool in "ab" for count in (4, 2, 0)]
    cells = made(rows, settings(baseline={}))
    assert {cell.name: cell.baseline.name for cell in cells if cell.baseline} == {cell.name: f"{cell.trial.pool} · MP-4" for cell in cells}
    columnless = made(rows, settings(baseline={}, columns="precision"))
    assert all(cell.baseline is None for cell in columnless)


def test_axes_become_rows_and_columns_and_others_that_vary_more_rows() -> None:
    rows = [row(workers(count, model=model, precision="fp32", seed=seed)) for count in (0, 1) for model in ("a", "b") for seed in (1, True)]
    suite = settings(rows=("model", "pool", "unheard_of", "dataloader_workers"))
    cells = made(rows, suite)
    assert laid_out(cells, suite) == (["model", "pool", "seed"], ["dataloader_workers"]), "1 and true are two values; precision has one"
    assert laid_out(cells, settings(columns="precision")) == (["pool", "dataloader_workers", "model", "seed"], ["precision"])
    assert laid_out(cells, settings(columns="gone")) == (["pool", "dataloader_workers", "model", "seed"], [])
    assert laid_out(cells[:1], suite) == (["model", "pool"], ["dataloader_workers"])


# --- confounders


@pytest.mark.parametrize(("clock", "expected"), [(1009, []), (1010, []), (1011, ["sm_clock"]), (991, []), (989, ["sm_clock"])])
def test_numbers_within_one_percent_are_no_difference(clock: float, expected: list[str]) -> None:
    cells = made([row(workers(0), environment={"sm_clock": 1000}), row(workers(1), environment={"sm_clock": clock})])
    assert cells[1].differs == expected
    assert cells[0].differs == []


def test_every_repeat_counts_for_what_differs() -> None:
    cells = made(
        [
            *repeats(workers(0), 100.0, environment={"torch": "2.12", "clock": 1000, "driver": "1"}),
            row(workers(1), repeat=1, environment={"torch": "2.12", "clock": 1000, "driver": "1"}),
            row(workers(1), repeat=2, environment={"torch": "2.13", "clock": 1005}),
            row(workers(1), repeat=3, outcome=Outcome.CRASHED, environment={"torch": "9", "clock": 9, "driver": "9"}),
        ]
    )
    found = {name: {value: [cell.name for cell in members] for value, members in groups} for name, groups in confounders(cells)}
    assert found == {
        "torch": {"2.12": ["cpu · MP-0", "cpu · MP-1"], "2.13": ["cpu · MP-1"]},
        "driver": {"1": ["cpu · MP-0", "cpu · MP-1"], "unknown": ["cpu · MP-1"]},
    }


def test_a_number_that_one_cell_does_not_know_differs() -> None:
    cells = made([row(workers(0), environment={"clock": 1000}), row(workers(1), environment={"other": 1})])
    assert cells[1].differs == ["clock", "other"]


def test_what_an_axis_says_is_no_confounder() -> None:
    facts = [{"device_name": name, "device_kind": name, "device_count": count, "pool": name} for name, count in (("x", 1), ("y", 8))]
    pools = made([row(workers(0, "x"), environment=facts[0]), row(workers(0, "y"), environment=facts[1])], settings(baseline={"pool": "x"}))
    assert pools[1].differs == []
    same = made([row(workers(0), environment=facts[0]), row(workers(1), environment=facts[1])])
    assert same[1].differs == ["device_name", "device_kind", "device_count", "pool"]
    worlds = [{"world_size": count, "device_count": count} for count in (1, 8)]
    grown = made(
        [row({"pool": "x", "devices": count}, environment=facts) for count, facts in zip((1, 8), worlds, strict=True)],
        settings(baseline={"devices": 1}, columns="devices"),
    )
    assert grown[1].differs == []
    assert made([row(workers(place), environment=facts) for place, facts in enumerate(worlds)])[1].differs == ["world_size", "device_count"]


def test_parameters_set_without_an_axis_are_confounders() -> None:
    cells = made(
        [
            row(workers(0), parameters={"batch_size": 8, "seed": 1}),
            row(workers(1), parameters={"batch_size": 16, "seed": 1}),
            row(workers(2), parameters={"seed": 1}),
        ]
    )
    assert [cell.differs for cell in cells] == [[], ["batch_size"], ["batch_size"]]
    [(name, groups)] = confounders(cells)
    assert (name, [(value, [cell.name for cell in members]) for value, members in groups]) == (
        "batch_size",
        [("8", ["cpu · MP-0"]), ("16", ["cpu · MP-1"]), ("None", ["cpu · MP-2"])],
    )


def test_what_a_rung_stands_for_is_no_confounder_and_the_rest_is() -> None:
    suite = settings(
        baseline={"rung": "a"},
        columns="rung",
        conditions=[{"when": {"rung": "b"}, "set": {"compile": "layer"}}, {"when": {"pool": "cpu"}, "set": {"batch_size": 8}}],
    )
    rungs = {"a": {"compile": "none", "batch_size": 8}, "b": {"compile": "layer", "batch_size": 16}}
    cells = made([row({"pool": "cpu", "rung": rung}, parameters=chosen) for rung, chosen in rungs.items()], suite)
    assert cells[1].named == {"compile"}
    assert cells[1].differs == ["batch_size"]
    one_rung = made(
        [row(workers(count, rung="b"), parameters={"compile": compiled}) for count, compiled in enumerate(("none", "layer"))], suite
    )
    assert [name for name, _ in confounders(one_rung)] == ["compile"], "of cells on one rung it is a confounder"
