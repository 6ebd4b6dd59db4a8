"""Section: throughput by devices, with the communication share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.stats.loss_parity import Parity, ParityStatus
from tasks.analysis.results import load_sweep
from tasks.analysis.trial_row import LEFT_OUT
from tasks.report.model import make_report
from tasks.report.section import Section
from tasks.report.sections.scaling import ABOUT, scaling, scaling_sentences, section
from tests.tasks.cell_support import column, made, repeats, row, settings, source_of
from tests.tasks.fake_sweep import SUITE, Fake, make_sweep


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cost = {"alone_s": 0.018, "with_s": 0.27, "without_s": 0.257, "step_s": 0.26}
    fakes = [
        Fake({"pool": "cpu", "precision": "fp32", "devices": 4}, rate=380.0, window={"communication": cost}),
        Fake({"pool": "cpu", "precision": "fp32", "devices": 1}),
        Fake({"pool": "cpu", "precision": "bf16", "devices": 1}, rate=150.0),
    ]
    return make_sweep(tmp_path_factory.mktemp("scaling"), fakes, suite={**SUITE, "baseline": {"devices": 1}})


def test_scaling_is_over_the_fewest_devices_and_cells_on_one_alone_have_no_row(folder: Path) -> None:
    table = make_report(load_sweep(folder)).section("scaling").table
    assert [row[:2] for row in table.rows] == [["fp32 · devices 1", "1"], ["fp32 · devices 4", "4"]]
    one, four = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert one["speed-up"] == one["efficiency"] == one["communication share"] == "–"
    assert four["speed-up"].startswith("x3.8") and float(four["efficiency"].split()[0]) == pytest.approx(95, abs=0.5)
    assert (four["all-reduce alone"], four["exposed"], four["communication share"]) == ("18.0 ms", "13.0 ms", "5.0 %")


def test_a_rate_of_each_device_scales_by_their_number(tmp_path: Path) -> None:
    window = {"flops_per_sample": 1e12}  # the made-up window is of one rank: its rate is a device's
    fakes = [Fake({"pool": "cpu", "devices": n}, rate=rate, window=window) for n, rate in ((1, 100.0), (2, 98.0), (4, 95.0))]
    suite = {**SUITE, "baseline": {"devices": 1}, "report": {**SUITE["report"], "columns": "devices", "metric": "tflops_per_device"}}
    table = make_report(load_sweep(make_sweep(tmp_path, fakes, suite=suite))).section("scaling").table
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [row["rate"].split()[1] for row in rows] == ["TFLOP/s"] * 3
    assert [float(row["speed-up"].split()[0].removeprefix("x")) for row in rows[1:]] == pytest.approx([1.96, 3.8], abs=0.02)
    assert [float(row["efficiency"].split()[0]) for row in rows[1:]] == pytest.approx([98, 95], abs=0.5)


def grown(rates: dict[int, float], metric: str = "throughput", **more: float) -> list[Any]:
    suite = settings(columns="devices", baseline={}, metric=metric)
    rows = [one for n, rate in rates.items() for one in repeats({"pool": "cpu", "devices": n}, rate, metric=metric, summary=more)]
    return made(rows, suite)


def test_efficiency_is_over_the_fewest_devices_there_are() -> None:
    table = scaling(grown({8: 560.0, 2: 200.0, 4: 360.0}))
    assert column(table, "devices") == ["2", "4", "8"]
    assert column(table, "rate") == ["200.0 samples/s", "360.0 samples/s", "560.0 samples/s"]
    assert column(table, "speed-up") == ["–", "x1.800 (1.800–1.800)", "x2.800 (2.800–2.800)"]
    assert column(table, "efficiency") == ["–", "90.0 %", "70.0 %"]


def test_a_devices_own_rate_is_multiplied_by_their_number_with_its_interval() -> None:
    rows = [row({"pool": "cpu", "devices": n}, rate, metric="tflops_per_device", within=0.01) for n, rate in ((1, 100.0), (4, 90.0))]
    single = scaling(made(rows, settings(columns="devices", baseline={}, metric="tflops_per_device")))
    assert column(single, "speed-up")[1] == "x3.60 (interval unknown) undecided: one trial"
    rows = [
        one
        for n, rate in ((1, 100.0), (4, 90.0))
        for one in repeats({"pool": "cpu", "devices": n}, rate, (-0.01, 0.0, 0.01)[:: 1 if n == 1 else -1], metric="tflops_per_device")
    ]
    table = scaling(made(rows, settings(columns="devices", baseline={}, metric="tflops_per_device")))
    assert column(table, "speed-up")[1] == "x3.60 (3.43–3.78)"
    assert column(table, "efficiency")[1] == "90.0 %"


def test_a_cell_on_several_devices_alone_has_a_row_where_its_communication_is_known() -> None:
    assert scaling(grown({4: 100.0})).rows == []
    [alone] = scaling(grown({4: 104.0}, communication_s=0.018, communication_exposed_s=0.013, communication_share=0.05)).rows
    assert alone == ["cpu · devices 4", "4", "104.0 samples/s", "–", "–", "18.0 ms", "13.0 ms", "5.0 %"]


def sharded(**profile: Any) -> list[Any]:
    rows = [row({"pool": "cpu", "devices": 1}, 100.0, summary={"epoch_time_s": 12812.0})]
    rows += [row({"pool": "cpu", "devices": 2}, 190.0, summary={"epoch_time_s": 6743.0}, **profile)]
    return made(rows, settings(columns="devices", baseline={}))


TRACED = [{"rank": rank, "communication_s": communication_s, "step_s": 0.2} for rank, communication_s in enumerate((0.02, 0.04))]


def test_of_shards_the_traced_steps_tell_what_communication_is_exposed() -> None:
    """The mean over the ranks; nothing could be left out of such a step to compare with."""
    table = scaling(sharded(profile={"ranks": TRACED}))
    assert column(table, "exposed") == ["–", "30.0 ms of 200 ms, traced"]
    assert column(table, "communication share") == ["–", "15.0 %, traced"]
    assert column(table, "all-reduce alone") == ["–", "–"]


def test_a_single_device_has_no_communication_that_its_traced_steps_could_tell() -> None:
    alone = row({"pool": "cpu", "devices": 1}, 100.0, profile={"ranks": [{"rank": 0, "communication_s": 0.0, "step_s": 0.2}]})
    [one, _] = scaling(made([alone, *sharded()[1].rows], settings(columns="devices", baseline={}))).rows
    assert one[5:8] == ["–", "–", "–"]


def test_what_was_measured_without_a_trace_is_shown_before_what_a_trace_tells() -> None:
    traced = {"ranks": TRACED}
    measured = {"communication_s": 0.018, "communication_exposed_s": 0.013, "communication_share": 0.05}
    [_, two] = scaling(made([*sharded()[0].rows, row({"pool": "cpu", "devices": 2}, 190.0, summary=measured, profile=traced)])).rows
    assert two[5:8] == ["18.0 ms", "13.0 ms", "5.0 %"]


def test_ranks_that_a_mean_of_traced_steps_lacks_are_named() -> None:
    """And only there: what was measured without a trace is of all of them."""

    def text(ranks: list[Any], **more: Any) -> str:
        shards = row({"pool": "cpu", "devices": 2}, 190.0, profile={"ranks": ranks, "missing_ranks": [{"rank": 1, "why": "a"}]}, **more)
        found = section(source_of([row({"pool": "cpu", "devices": 1}, 100.0), shards], settings(columns="devices", baseline={})))
        assert found is not None and isinstance(found.text, str)
        return found.text.removeprefix(ABOUT)

    assert text(TRACED[:1]) == " devices 2: the trace of rank 1 is missing (a), so all means are of the other ranks."
    assert text(TRACED) == text(TRACED[:1], summary={"communication_exposed_s": 0.013}) == ""


def test_what_traced_steps_of_another_mix_than_all_would_tell_is_not_shown_and_that_is_said() -> None:
    def shown(**more: Any) -> Section:
        shards = row({"pool": "cpu", "devices": 2}, 190.0, profile={LEFT_OUT: "not shown, since why"}, **more)
        found = section(source_of([row({"pool": "cpu", "devices": 1}, 100.0), shards], settings(columns="devices", baseline={})))
        assert found is not None
        return found

    left = shown()
    assert column(left.table, "exposed") == column(left.table, "communication share") == ["–", "–"]
    said = "What was traced of devices 2 is not shown: those steps are not as many of each kind, or their kinds are not known."
    assert left.text == f"{ABOUT} {said}"
    assert shown(summary={"communication_exposed_s": 0.013}).text == ABOUT, "measured without a trace"


def test_epoch_times_stand_beside_the_rates_where_the_workload_has_an_epoch() -> None:
    assert column(scaling(sharded()), "epoch time") == ["12,812 s", "6,743 s"]
    assert "epoch time" not in scaling(grown({1: 100.0, 2: 190.0})).header


def test_only_rates_scale_and_only_cells_that_measured() -> None:
    assert scaling(grown({1: 1.0, 2: 1.0}, "step_time_median_s")).rows == []
    rows = [row({"pool": "cpu", "devices": 1}), row({"pool": "cpu", "devices": 2}, None)]
    assert scaling(made(rows, settings(columns="devices", baseline={}))).rows == []
    unequal = [row({"pool": "cpu", "model": "a", "devices": 1}), row({"pool": "cpu", "model": "b", "devices": 2})]
    assert scaling(made(unequal, settings(columns="devices", baseline={}))).rows == [], "they differ in more than devices"


def test_a_cell_that_says_nothing_of_devices_is_on_one() -> None:
    rows = [row({"pool": "cpu"}, 100.0, within=1e-4), row({"pool": "cpu", "devices": 2}, 190.0, within=1e-4)]
    table = scaling(made(rows, settings(columns="devices", baseline={})))
    assert column(table, "devices") == ["1", "2"] and column(table, "efficiency") == ["–", "95.0 %"]


def test_the_sentence_is_of_the_best_setting_on_the_most_devices() -> None:
    rates = {("slow", 1): 90.0, ("slow", 4): 300.0, ("fast", 1): 100.0, ("fast", 2): 196.0, ("fast", 4): 360.0, ("alone", 4): 999.0}
    rows = [one for (name, n), rate in rates.items() for one in repeats({"pool": "cpu", "rung": name, "devices": n}, rate, (-1e-3, 1e-3))]
    [said] = scaling_sentences(made(rows, settings(columns="devices", baseline={})))
    assert said.startswith("fast: from 1 to 4 devices the rate of all together grows x3.600 (3.") and said.endswith("), 90.0 % of linear.")


def test_a_rate_of_each_device_grows_by_their_number_and_one_trial_is_undecided() -> None:
    assert scaling_sentences(grown({2: 100.0, 4: 95.0}, "tflops_per_device")) == [
        "From 2 to 4 devices the rate of all together grows x1.900 (1.900–1.900), 95.0 % of linear."
    ]
    once = [row({"pool": "cpu", "devices": n}, rate, within=0.01) for n, rate in ((1, 100.0), (2, 180.0))]
    assert scaling_sentences(made(once, settings(columns="devices", baseline={}))) == [
        "From 1 to 2 devices the rate of all together grows x1.80 (interval unknown), 90.0 % of linear; undecided: one trial."
    ]


@pytest.mark.parametrize(
    ("rate", "noise", "said"),
    [
        (144.0, 0.5, "is not shown to grow: x1.44 ("),
        (144.0, 0.01, "grows x1.44 ("),
        (80.0, 0.01, "falls to x0.80 ("),
    ],
)
def test_a_rate_is_said_to_grow_where_its_interval_shows_it(rate: float, noise: float, said: str) -> None:
    """FLAVA's page said of x1.44 (0.64–3.21) that the rate grows."""
    logs = {1: (-noise, 0.0, noise), 2: (noise, -noise, 0.0)}
    rows = [one for n, value in ((1, 100.0), (2, rate)) for one in repeats({"pool": "cpu", "devices": n}, value, logs[n])]
    [line] = scaling_sentences(made(rows, settings(columns="devices", baseline={})))
    assert line.startswith(f"From 1 to 2 devices the rate of all together {said}")
    once = [row({"pool": "cpu", "devices": n}, value, within=0.01) for n, value in ((1, 100.0), (2, 80.0))]
    [line] = scaling_sentences(made(once, settings(columns="devices", baseline={})))
    assert line.startswith("From 1 to 2 devices the rate of all together does not grow: x0.80 (interval unknown)")


def test_without_two_numbers_of_devices_or_a_rate_there_is_no_sentence() -> None:
    assert scaling_sentences(grown({4: 100.0})) == scaling_sentences([]) == []
    assert scaling_sentences(grown({1: 1.0, 2: 2.0}, "step_time_median_s")) == []


def test_what_is_struck_or_disturbed_is_not_boasted_of() -> None:
    """Of two settings the one whose loss is its reference's is told of, though slower; where there is no other, the sentence says so."""
    cells = grown({1: 100.0, 4: 380.0})
    cells[-1].parity = Parity(ParityStatus.STRUCK)
    [line] = scaling_sentences(cells)
    assert line.endswith(" of linear; not claimed, since the loss differs from its reference's.")
    rows = [one for n, rate in ((1, 100.0), (4, 380.0)) for one in repeats({"pool": "cpu", "devices": n}, rate)]
    rows = [replace(one, result=one.result.model_copy(update={"disturbed": "a process"})) for one in rows if one.result]
    [line] = scaling_sentences(made(rows, settings(columns="devices", baseline={})))
    assert line.endswith(" of linear; undecided: disturbed by other work.")
