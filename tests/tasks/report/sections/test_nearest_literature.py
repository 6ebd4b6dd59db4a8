"""What others published beside ours: per device where their number differs, ratios beside ratios, the nearest first, and only a few."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from experiments.stats.loss_parity import Parity, ParityStatus
from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import told_ratio
from tasks.analysis.trial_row import TrialRow
from tasks.report.published_beside import Beside, published_beside
from tasks.report.section import Bullets
from tasks.report.sections.nearest_literature import HEADER, MOST, nearest_published, section
from tasks.report.text_format import interval, times
from tests.tasks.cell_support import disturbed, made, repeats, row, settings, source_of, steady

H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


def trials(workload: str, value: float, card: str = H200, **parameters: Any) -> list[TrialRow]:
    """Two trials of a cell whose only axes are what `parameters` has apart from its model, devices and batch."""
    axes = {"pool": "gpu", **{name: setting for name, setting in parameters.items() if name not in ("model", "devices", "batch_size")}}
    return steady(axes, value, workload=workload, parameters=parameters, environment={"device_name": card})


def beside(rows: list[TrialRow], **suite: Any) -> list[Beside]:
    return published_beside(made(rows, settings(**{"rows": ("pool",), "columns": "precision", "baseline": {}, **suite})))


def bridgetower(value: float, workers: int, card: str = H200, **more: Any) -> list[TrialRow]:
    parameters = {"model": "large", "devices": 2, "batch_size": 48, "precision": "bf16", "dataloader_workers": workers}
    return trials("bridgetower", value, card, **{**parameters, **more})


def test_a_total_of_another_number_of_devices_is_told_for_one() -> None:
    lines = {line.theirs: line for line in beside(bridgetower(300.0, 1))}
    line = lines["72.51 samples/s a device: 580.1 samples/s by 8 devices"]
    assert line.ours.startswith("150.0 samples/s a device"), "half of 300"
    assert line.entry.accelerator == "h100" and list(line.differs) == ["device h100, ours NVIDIA H200", "devices 8, ours 2"]


def test_a_total_of_as_many_devices_stays_as_published() -> None:
    lines = {line.theirs: line for line in beside(bridgetower(600.0, 1, H100, devices=8))}
    line = lines["580.1 samples/s"]
    assert line.ours.startswith("600.0 samples/s") and "a device" not in line.ours and not line.differs
    assert nearest_published([line]).rows[0][HEADER.index("what differs")] == "nothing that the line names"


def test_every_line_with_a_difference_says_that_it_is_not_like_for_like() -> None:
    told = [line[HEADER.index("what differs")] for line in nearest_published(beside(bridgetower(300.0, 1))).rows]
    assert told and all(text.startswith("not like for like: device ") for text in told)


def test_the_time_of_an_epoch_is_told_for_all_devices_together() -> None:
    rows = trials("vit", 100.0, model="h16", devices=2, batch_size=70, rung="baseline", precision="fp16")
    for one in rows:
        one.summary["epoch_time_s"] = 3600.0  # type: ignore[index]
    (line,) = beside(rows)
    assert line.theirs == "5.200 device-h: 0.6500 h of 8 devices" and line.ours == "2.000 device-h"


def test_a_latency_of_another_number_of_devices_has_no_counterpart() -> None:
    def lines(devices: int) -> list[Beside]:
        fast = {"compile": "model", "cuda_graph": True}
        rows = trials("stable_diffusion", 1.0, model="v1-4", devices=devices, batch_size=1, precision="fp16", **fast)
        rows = [one for one in rows if one.summary.update(latency_per_sample_s=1.5) is None]  # type: ignore[attr-defined]
        return beside(rows)

    found = {line.theirs: line for line in lines(1)}
    assert {"1.066 s/image", "0.8190 s/image", "2.630 s/image"} <= found.keys() and lines(2) == []
    assert found["1.066 s/image"].ours == "1.500 s/image" and "weights of v1-5" in found["1.066 s/image"].differs[-1]


def clip(value: float, precision: str, **more: Any) -> list[TrialRow]:
    return trials("clip", value, **{"model": "h14", "devices": 1, "batch_size": 128, "precision": precision, "kernels": "fused", **more})


def test_a_ratio_stands_beside_ours_with_its_interval() -> None:
    cells = made([*clip(100.0, "bf16"), *clip(120.0, "int8_switchback")], settings(columns="precision", baseline={"precision": "bf16"}))
    low, high = published_beside(cells)
    assert (low.theirs, high.theirs) == ("x1.13", "x1.25") and low.cell == "int8_switchback over bf16"
    bf16, int8 = sorted(cells, key=lambda cell: cell.estimate.value if cell.estimate else 0.0)
    ratio = told_ratio(int8, bf16)
    assert times(ratio.value) == "x1.20" and low.ours.startswith(f"x1.200 {interval(ratio)}")
    assert list(low.differs)[:3] == ["device a100-40, ours NVIDIA H200", "devices 4, ours 1", "batch per device 256, ours 128"]


@pytest.mark.parametrize(("status", "claimed"), [(ParityStatus.PROVEN, True), (ParityStatus.STRUCK, False), (ParityStatus.UNPROVEN, False)])
def test_our_ratio_says_where_its_loss_keeps_it_from_being_claimed(status: ParityStatus, claimed: bool) -> None:
    cells = made([*clip(100.0, "bf16"), *clip(120.0, "int8_switchback")], settings(columns="precision", baseline={"precision": "bf16"}))
    for cell in cells:
        if cell.trial.parameters["precision"] != "bf16":
            cell.parity, cell.numerics = Parity(status), (("precision", "int8_switchback"),)
    assert ("not claimed: loss parity" not in published_beside(cells)[0].ours) == claimed


def test_another_8_bit_precision_stands_in_where_the_published_one_was_not_measured() -> None:
    (low, _) = beside([*clip(100.0, "bf16"), *clip(120.0, "fp8")])
    assert low.cell == "fp8 over bf16" and "precision int8_switchback, ours fp8" in low.differs and low.stand_in
    both = beside([*clip(100.0, "bf16"), *clip(120.0, "fp8"), *clip(90.0, "int8_switchback")])
    assert {(line.cell, line.stand_in) for line in both} == {("int8_switchback over bf16", False)}
    assert beside([*clip(100.0, "bf16"), *clip(120.0, "tf32")]) == [] == beside(clip(120.0, "fp8")), "no such pair"


def test_of_ratios_as_near_the_plainer_cells_stand_there() -> None:
    rows = [row for attention, fast in (("eager", 140.0), ("sdpa", 150.0)) for row in loaders(attention, 100.0, fast)]
    (line, *_) = [line for line in beside(rows) if line.entry.over]
    assert "sdpa" not in line.cell and line.ours.startswith("x1.40") and line.ours_with == []


def loaders(attention: str, none: float, one: float) -> list[TrialRow]:
    return [*bridgetower(none, 0, attention=attention), *bridgetower(one, 1, attention=attention)]


def test_a_ratio_has_as_many_trials_as_the_cell_that_has_fewer() -> None:
    rows = [*clip(100.0, "bf16"), *clip(120.0, "int8_switchback")]
    assert [line.trials for line in beside(rows)] == [2, 2]
    assert [line.trials for line in beside(rows[:-1])] == [line.trials for line in beside(rows[1:])] == [1, 1]


def test_the_two_cells_of_a_ratio_differ_in_the_least() -> None:
    rows = [
        *clip(100.0, "bf16", optimizer="fused"),
        *clip(110.0, "bf16", optimizer="states_bf16"),
        *clip(132.0, "int8_switchback", optimizer="states_bf16"),
    ]
    (low, _) = beside(rows)
    assert low.ours.startswith("x1.20") and not any("our two cells" in text for text in low.differs)
    (low, _) = beside([*rows[:2], *rows[-2:]])
    assert low.ours.startswith("x1.32") and "our two cells differ in optimizer too" in low.differs


def test_cells_on_other_numbers_of_devices_or_on_other_pools_make_no_ratio() -> None:
    assert beside([*clip(100.0, "bf16"), *clip(240.0, "int8_switchback", devices=2)]) == []
    other = steady(
        {"pool": "other", "precision": "bf16"}, 100.0, workload="clip", parameters={"model": "h14", "devices": 1, "batch_size": 128}
    )
    assert beside([*other, *clip(120.0, "int8_switchback")]) == []
    line, *_ = beside([*other, *clip(110.0, "bf16"), *clip(121.0, "int8_switchback")])
    assert line.ours.startswith("x1.10"), "over the cell of its own pool"


def test_what_was_disturbed_says_so() -> None:
    cells = [disturbed(one) for one in clip(120.0, "int8_switchback")]
    assert all(line.ours.endswith("disturbed by other work") for line in beside([*clip(100.0, "bf16"), *cells]))
    values = beside([disturbed(one) for one in bridgetower(300.0, 1)])
    assert values and all(line.ours.endswith(", disturbed by other work") for line in values)


def test_each_workload_has_its_own_lines() -> None:
    lines = beside(
        [*trials("t5", 8.0, model="3b", devices=1, batch_size=16, precision="tf32", activation_checkpointing=True), *bridgetower(300.0, 1)]
    )
    assert {line.entry.workload for line in lines} == {"t5", "bridgetower"}
    (a100,) = [line for line in lines if line.theirs.startswith("1.009 samples/s a device")]
    assert a100.ours.startswith("8.000 samples/s a device")


def test_what_is_better_when_it_is_less_makes_no_published_speed_up() -> None:
    rows = [*clip(100.0, "bf16"), *clip(50.0, "int8_switchback")]
    for one in rows:
        one.summary["peak_memory_bytes"] = one.summary["throughput"]  # type: ignore[index]
    assert beside(rows, metric="peak_memory_bytes") == []


def test_loader_processes_are_a_ratio_of_two_published_totals() -> None:
    rows = [*bridgetower(200.0, 0), *bridgetower(300.0, 1)]
    lines = [line for line in beside(rows) if line.entry.quotient]
    assert lines[0].theirs == "x1.72" and lines[0].entry.quotient == "over MP-0, of 580.1 and 336.5 samples/s"
    assert lines[0].ours.startswith("x1.50") and list(lines[0].differs) == ["device h100, ours NVIDIA H200", "devices 8, ours 2"]
    assert not [line for line in beside(bridgetower(300.0, 1)) if line.entry.quotient], "one cell is no pair"


def test_the_nearest_come_first_and_a_ratio_before_values_as_near() -> None:
    lines = beside([*bridgetower(200.0, 0, H100, devices=8), *bridgetower(300.0, 1, H100, devices=8)])
    assert [line.distance for line in lines] == sorted(line.distance for line in lines)
    assert [(line.theirs, len(line.differs)) for line in lines[:3]] == [("x1.72", 0), ("336.5 samples/s", 0), ("580.1 samples/s", 0)]
    hopper = [line.entry.accelerator for line in beside([*bridgetower(200.0, 0), *bridgetower(300.0, 1)])]
    assert hopper[:3] == ["h100"] * 3 and hopper[3] == "gaudi2", "an H200 is nearer to an H100 than to a Gaudi2"


def test_no_more_lines_than_a_page_has_room_for() -> None:
    suite = settings(columns="dataloader_workers", baseline={})
    rows = [*bridgetower(200.0, 0), *bridgetower(300.0, 1)]
    found = section(source_of(rows, suite))
    assert found is not None and len(found.table.rows) == MOST == 8
    lines = published_beside(made(rows, suite))
    assert list(found.block(Bullets).lines) == [f"{len(lines) - 8} lines more, no nearer than these, left out."]
    few = section(source_of([*clip(100.0, "bf16"), *clip(120.0, "int8_switchback")], settings(columns="precision", baseline={})))
    assert few is not None and len(few.table.rows) == 2 and len(few.blocks) == 1


def test_lines_of_another_workload_or_model_and_emulated_cells_are_left_out() -> None:
    assert beside(trials("bert", 100.0, model="tiny", devices=8, batch_size=32, precision="bf16")) == []
    assert beside(trials("t5_inference", 100.0, model="3b", devices=8, batch_size=16, precision="fp32")) == []
    emulated = [row({"pool": "gpu"}, 9.0, workload="t5", parameters={"model": "3b", "devices": 8}, emulated=True)]
    assert published_beside(made(emulated, emulated=True)) == []
    stored = trials("t5", 8.0, model="3b", devices=1, batch_size=16, precision="tf32", activation_checkpointing=False)
    assert beside(stored) == [], "theirs has checkpointing"


def test_of_cells_that_are_as_near_the_best_is_shown_with_how_it_is_set() -> None:
    rows = [*bridgetower(300.0, 1, compile="none"), *bridgetower(360.0, 1, compile="layer", attention="sdpa")]
    line = next(line for line in beside(rows) if line.entry.value == 580.1)
    assert line.ours.startswith("180.0 samples/s a device") and line.ours_with == ["compile layer", "attention sdpa"]
    told = nearest_published([line]).rows[0][HEADER.index("what differs")]
    assert told == "not like for like: device h100, ours NVIDIA H200; devices 8, ours 2; ours with compile layer, attention sdpa"
    fast = {"model": "v1-4", "devices": 1, "batch_size": 1, "precision": "fp16", "compile": "model", "cuda_graph": True}
    images = [
        replace(one, summary={**one.summary, "latency_per_sample_s": seconds})
        for seconds, attention in ((0.4, "sdpa"), (0.3, "fused_qkv"))
        for one in trials("stable_diffusion", 1.0, **fast, attention=attention)
    ]
    assert {line.ours for line in beside(images)} == {"0.3000 s/image"}, "less is better"


def test_a_value_says_where_its_loss_keeps_it_from_being_claimed() -> None:
    cells = made([*bridgetower(200.0, 1), *bridgetower(300.0, 1, precision="fp8")], settings(columns="precision", baseline={}))
    fp8 = next(cell for cell in cells if cell.trial.parameters["precision"] == "fp8")
    fp8.numerics = (("precision", "fp8"),)
    for status, more in (
        (ParityStatus.STRUCK, "loss parity struck"),
        (ParityStatus.UNPROVEN, "loss parity unproven"),
        (ParityStatus.PROVEN, ""),
    ):
        fp8.parity = Parity(status)
        (line,) = [line for line in published_beside([fp8]) if line.entry.value == 580.1]
        assert line.ours.partition(", ")[2] == more


def test_cells_of_other_commits_or_environments_make_no_ratio() -> None:
    def of(**run: Any) -> list[Beside]:
        other = [replace(one, trial=one.trial.model_copy(update=run)) for one in clip(120.0, "int8_switchback")]
        return beside([*clip(100.0, "bf16"), *other])

    assert len(of()) == 2 and of(commit="c" * 40) == of(environment="newer") == of(lock_clocks_mhz=1500) == []


def flava(model: str, strategy: str, outcome: Outcome = Outcome.OK, optimizer: str = "fused") -> list[TrialRow]:
    parameters = {"model": model, "devices": 2, "batch_size": 8, "precision": "bf16", "strategy": strategy, "optimizer": optimizer}
    axes = {"pool": "gpu", "model": model, "strategy": strategy, "optimizer": optimizer}
    value = 50.0 if outcome is Outcome.OK else None
    return [row(axes, value, workload="flava", parameters=parameters, environment={"device_name": H200}, outcome=outcome)]


def test_a_ratio_of_model_sizes_is_bounded_by_the_sizes_that_were_tried() -> None:
    fits_not = Outcome.DOES_NOT_FIT
    ddp, sharded = [*flava("6b", "ddp"), *flava("6.5b", "ddp", fits_not)], [*flava("11b", "fsdp2"), *flava("12b", "fsdp2", fits_not)]

    def ours(rows: list[TrialRow]) -> list[tuple[str, str]]:
        return [(line.theirs, line.ours) for line in beside(rows, columns="strategy")]

    assert ours([*ddp, *sharded]) == [("x3", "x1.83 (more than x1.69, less than x2.00)")]
    assert ours([*ddp, *sharded[:1]]) == [("x3", "more than x1.69")] and ours([*ddp[:1], *sharded]) == [("x3", "less than x2.00")]
    assert ours([*ddp[:1], *sharded[:1]]) == [], "neither end is known"
    assert ours([*flava("6b", "ddp", fits_not), *sharded]) == [], "nothing fits"
    lean = [one for size in ("13b", "14b") for one in flava(size, "fsdp2", optimizer="states_8bit")]
    assert ours([*ddp, *sharded, *lean]) == ours([*ddp, *sharded]), "of settings that differ in the least"
    assert ours([*ddp, *lean, *sharded[1:]]) == [("x3", "more than x2.15")], "what one setting does not hold bounds no other"


def test_a_ratio_of_the_largest_batches_stands_beside_ours() -> None:
    def largest(strategy: str, batch: int) -> list[TrialRow]:
        parameters = {"model": "350m", "devices": 2, "batch_size": "max", "precision": "bf16", "strategy": strategy}
        return repeats({"pool": "gpu", "strategy": strategy}, 50.0, workload="flava", parameters=parameters, summary={"batch_size": batch})

    (line,) = beside([*largest("ddp", 200), *largest("fsdp2+ac", 1100)], columns="strategy")
    assert line.theirs == "x3" and line.ours == "x5.50: 1,100 and 200 samples"


def test_cells_without_a_value_have_nothing_beside_them() -> None:
    cells: list[Cell] = made([row({"pool": "gpu"}, None, workload="t5", parameters={"model": "3b"}, outcome=None)])
    assert published_beside(cells) == [] == published_beside([])
