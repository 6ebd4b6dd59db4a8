"""Published values: ratios say what they are over, lines of one setting make quotients, and each names its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.literature.reader import OURS, RATIOS, literature_for, loader_ratios, read_published

HEAD = "workload,model,accelerator,devices,precision,batch_per_device,dataloader_workers,extra,metric,value,unit,source,cell,over\n"


def test_each_line_has_a_source_and_a_metric_that_a_report_can_show() -> None:
    for entry in read_published():
        assert entry.source and entry.value > 0 and entry.metric in OURS.keys() | RATIOS
        assert bool(entry.over) == (entry.metric in RATIOS)


@pytest.mark.parametrize(
    ("workload", "metric", "value"),
    [
        ("stable_diffusion", "latency", 1.066),
        ("stable_diffusion", "latency", 0.819),
        ("causal_lm", "tokens_per_s_per_device", 6667),
        ("causal_lm", "tokens_per_s_per_device", 8532),
    ],
)
def test_what_our_goals_are_held_against_is_there(workload: str, metric: str, value: float) -> None:
    assert [entry.value for entry in literature_for(workload, metric=metric) if entry.value == value] == [value]


def test_a_cell_may_be_named_by_several_parameters() -> None:
    (line,) = [entry for entry in literature_for("linear_layer", metric="speedup") if entry.value == 1.27]
    mine = {"width": 1280, "precision": "int8_switchback", "kernels": "fused"}
    assert line.is_of(mine) and not line.is_of({**mine, "width": 1024}) and not line.is_of({**mine, "precision": "fp8"})
    assert line.is_of({**mine, "precision": "fp8"}, but=("precision",))
    assert line.is_over({**mine, "precision": "bf16"}) and not line.is_over({**mine, "width": 1024, "precision": "bf16"})
    assert line.is_of_model({}) and "theirs over fp16" in line.differences(mine, "NVIDIA H200")


def test_quotients_are_of_lines_that_differ_in_their_loader_processes_alone() -> None:
    entries = literature_for("bridgetower")
    ratios = loader_ratios(entries)
    hopper = {entry.dataloader_workers: entry for entry in ratios if entry.accelerator == "h100"}
    assert hopper.keys() == {1, 2} and hopper[1].value == pytest.approx(580.1 / 336.5) and hopper[1].unit == "x"
    assert hopper[1].is_of({"dataloader_workers": 1}) and hopper[1].is_over({"dataloader_workers": 0})
    drafted = [entry for entry in ratios if entry.source.endswith("(draft)")]
    assert [entry.accelerator for entry in drafted] == ["gaudi2"], "the draft has no MP-0 of its A100"
    assert loader_ratios([entry for entry in entries if entry.dataloader_workers != 0]) == []


def test_how_far_apart_orders_devices_and_numbers() -> None:
    (line,) = [entry for entry in literature_for("bridgetower") if entry.value == 580.1]
    same = {"devices": 8, "batch_size": 48, "dataloader_workers": 1}
    gaps = [line.gap(same, card) for card in ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Gaudi2 HL-225H")]
    assert gaps == [0, 1, 2, 3]
    assert 0 < line.gap({**same, "devices": 4}, "H100") < line.gap({**same, "devices": 1}, "H100")
    assert line.gap({**same, "batch_size": "max"}, "H100") == 0


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("w,m,a,8,bf16,1,0,,speedup,2,x,s,rung=a,", "over says what a ratio is over"),
        ("w,m,a,8,bf16,1,0,,throughput,2,x,s,,rung=a", "over says what a ratio is over"),
        ("w,m,a,8,bf16,1,0,,speedup,2,x,s,rung,rung=a", "cell is 'rung', wanted parameter=value or nothing"),
    ],
)
def test_a_line_whose_cells_are_not_told_right_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "published.csv"
    path.write_text(f"{HEAD}{line}\n")
    with pytest.raises(ValueError, match=problem):
        read_published(path)


def test_what_a_source_does_not_state_is_listed_but_for_the_loader_processes() -> None:
    (line,) = [entry for entry in literature_for("linear_layer", metric="speedup") if entry.value == 1.27]
    ours = {"devices": 1, "batch_size": 32768, "precision": "int8_switchback", "dataloader_workers": 2}
    assert line.differences(ours, "NVIDIA A100") == ["devices not said", "batch per device not said", "theirs over fp16"]
    (h100,) = [entry for entry in literature_for("bridgetower") if entry.value == 580.1]
    assert "dataloader workers 1, ours 2" in h100.differences({**ours, "devices": 8}, "NVIDIA H100")
