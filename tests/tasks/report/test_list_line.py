"""What a sweep found in a line of a list, for each way in which its answer may come out. Numbers are made up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from experiments.trial import Outcome
from tasks.analysis.trial_row import TrialRow
from tasks.report.answer import NOT_CLAIMED
from tasks.report.list_line import list_line
from tasks.report.model import make_report
from tests.tasks.cell_support import EVEN, ROUGH, repeats, report_of, row, settings, workers
from tests.tasks.race_support import race_rows, race_sweep

EXACT = (-0.0001, 0.0, 0.0001)


def turned(noise: Sequence[float], at: int) -> Sequence[float]:
    """So that no two cells' repeats go up and down together."""
    return [*noise[at % 3 :], *noise[: at % 3]]


def of_rates(rates: Sequence[float], noise: Sequence[float] = EVEN) -> str:
    """Of cells MP-0, MP-1, ..., each with three repeats."""
    return list_line(report_of([one for at, rate in enumerate(rates) for one in repeats(workers(at), rate, turned(noise, at))]))


def test_a_winner_has_its_value_and_by_how_much() -> None:
    assert of_rates([100.0, 150.0]) == "MP-1 is fastest: 150.0 samples/s ±2.5 %, x1.50 (1.44–1.57) over MP-0."
    assert of_rates([100.0, 150.0, 50.0], EXACT).endswith(" samples/s ±<0.1 %, x1.500 (1.500–1.500) over the next, MP-0.")


def test_what_is_not_claimed_is_said_without_the_reason() -> None:
    """Which may be a sentence of its own length: it stands in the sweep's section."""
    rows = [one for name, rate in (("fp32", 100.0), ("bf16", 150.0)) for one in repeats(workers(0, precision=name), rate, EXACT)]
    report = report_of(rows, settings(columns="precision", baseline={"precision": "fp32"}))
    assert list_line(report) == f"bf16 was measured fastest: 150.0 samples/s ±<0.1 %, x1.500 (1.500–1.500) over fp32; {NOT_CLAIMED}."
    assert report.answer is not None and report.answer.certainty[1].startswith("Its loss parity is unproven against fp32: ")


def test_cells_that_share_the_first_place_are_named_while_they_are_few() -> None:
    level = "No clear winner: MP-0, 100.0 samples/s (interval too wide to use), is not shown to differ from"
    assert of_rates([100.0, 99.0, 98.0], ROUGH) == f"{level} MP-1 and MP-2."
    assert of_rates([100.0, 99.0, 98.0, 97.0, 96.0], ROUGH) == f"{level} MP-1, MP-2, MP-3 and MP-4."
    assert of_rates([100.0, 99.0, 98.0, 97.0, 96.0, 95.0], ROUGH) == f"{level} 5 others."
    assert of_rates([100.0, 100.01], EXACT) == "No clear winner: MP-1, 100.0 samples/s ±<0.1 %, is the same to within 2.0 % as MP-0."


def test_what_the_best_cell_has_in_common_with_the_others_is_not_said_again() -> None:
    rows = [one for at in (0, 1) for one in repeats(workers(at, precision="bf16"), 100.0 - at, turned(ROUGH, at))]
    rows += repeats(workers(0, precision="fp32"), 10.0, EXACT)
    assert list_line(report_of(rows)).endswith(
        "MP-0 · bf16, 100.0 samples/s (interval too wide to use), is not shown to differ from the same with MP-1."
    )


@pytest.mark.parametrize(("length", "told"), [(30, f"{'b' * 30} and {'c' * 30}"), (31, "2 others")])
def test_several_with_long_names_are_counted(length: int, told: str) -> None:
    names = ["a", "b" * 30, "c" * length]
    rows = [one for at, name in enumerate(names) for one in repeats(workers(0, model=name), 100.0 - at, turned(ROUGH, at))]
    assert list_line(report_of(rows, settings(columns="model", baseline={"model": "a"}))).endswith(f" is not shown to differ from {told}.")


def test_a_lead_over_the_baseline_is_told_beside_cells_that_share_the_first_place() -> None:
    loose = (-0.02, 0.0, 0.02)
    rows = [*repeats(workers(0), 100.0, EVEN), *repeats(workers(1), 150.0, loose), *repeats(workers(2), 151.0, loose[::-1])]
    assert list_line(report_of(rows)).endswith(
        "MP-2, 151.0 samples/s ±5.0 %, is not shown to differ from MP-1; x1.51 (1.40–1.63) over the baseline."
    )


def test_what_is_not_decided_has_the_best_value_only_with_repeats() -> None:
    once = report_of([row(workers(0), 100.0), row(workers(1), 150.0)])
    assert list_line(once) == "Each cell ran once: no setting is called faster."
    suite = {**settings(rows=("model",)), "same_work": ["model"]}
    once = report_of([row(workers(count, model=name), 100.0 + count) for name in "ab" for count in (0, 1)], suite)
    assert list_line(once) == "Each cell ran once: no setting is called faster.", "of each group"


def groups(rates: Sequence[float]) -> list[TrialRow]:
    return [one for name, rate in zip("abcdefgh", rates, strict=False) for one in repeats(workers(0, model=name), rate)]


def test_cells_of_other_work_have_their_values_up_to_four() -> None:
    suite = {**settings(rows=("model",)), "same_work": ["model"]}
    told = "Compared with nothing: a: 100.0 samples/s ±2.5 %; b: 200.0 samples/s ±2.5 %."
    assert list_line(report_of(groups([100.0, 200.0]), suite)) == told
    assert list_line(report_of(groups([1.0] * 6), suite)).endswith("; d: 1.000 samples/s ±2.5 %; and 2 more.")


@pytest.mark.parametrize(("size", "several"), [(1, False), (16, True)])
def test_a_time_by_sample_of_several_in_a_batch_is_told_from_that_of_one(size: int, several: bool) -> None:
    """The overview showed `322 ms` for `seconds a summary` of a batch that took 5.2 s."""
    metric = "latency_per_sample_s"
    of = [repeats({"pool": "cpu", "batch_size": batch}, 0.3, metric=metric) for batch in (1, size, 2)[: 1 + several]]
    line = list_line(report_of([one for rows in of for one in rows], settings(columns="batch_size", metric=metric, baseline={})))
    told = "latency per sample is the latency of a batch divided by its samples, of which none is done before the batch."
    assert line.endswith(f"; {told}") is several and ("300 ms ±2.5 %" in line)


def test_what_is_said_of_several_groups_goes_on_with_what_a_time_by_sample_is() -> None:
    """The index of results had a stop within the sentence: `Undecided: batch_size 1 and batch_size 4.; latency per sample is`."""
    metric, precisions = "latency_per_sample_s", ("fp16", "bf16")
    cells = [{"pool": "cpu", "batch_size": batch, "precision": name} for batch in (1, 4) for name in precisions]
    rows = [one for at, cell in enumerate(cells) for one in repeats(cell, 0.3, turned(ROUGH, at), metric=metric)]
    suite = settings(metric=metric, rows=("batch_size",), columns="precision", baseline={"precision": "fp16"})
    assert list_line(report_of(rows, suite | {"same_work": ["batch_size"]})) == (
        "Undecided: batch_size 1 and batch_size 4; "
        "latency per sample is the latency of a batch divided by its samples, of which none is done before the batch."
    )


def test_behind_how_the_rate_grows_what_is_undecided_goes_on_in_the_same_sentence() -> None:
    suite = settings(metric="throughput", rows=("devices",))
    places = [(devices, count) for devices in (1, 2) for count in (0, 1)]
    rows = [one for at, (devices, count) in enumerate(places) for one in repeats(workers(count, devices=devices), 100.0, turned(EVEN, at))]
    line = list_line(report_of(rows, suite))
    assert ": from 1 to 2 devices the rate of all together is not shown to grow: x1.00" in line and line.endswith(
        "; undecided: devices 1 and devices 2."
    )


def test_values_of_single_trials_are_said_to_be_such() -> None:
    assert list_line(report_of([row(workers(0), 100.0)])) == "Compared with nothing, each of one trial: cpu · MP-0: 100.0 samples/s."


def test_without_an_answer_it_is_the_headline() -> None:
    report = report_of([row(workers(0), None, outcome=Outcome.DOES_NOT_FIT), row(workers(1), None, outcome=Outcome.DOES_NOT_FIT)])
    assert list_line(report) == report.headline == "No cell has a value: 2 do not fit."


def test_a_races_winner_has_its_value() -> None:
    everyone = (0, 1, 2, 3)
    said = list_line(make_report(race_sweep(race_rows([100, 50, 80, 40], [everyone] * 3))))
    assert said == "MP-0 is fastest: 100.2 samples/s ±0.3 %."
    open_ = list_line(make_report(race_sweep(race_rows([100, 99.5, 99, 40], [everyone] * 2, sd=0.01))))
    assert open_.startswith("Not decided: MP-") and open_.endswith(" not shown to differ from it.")
