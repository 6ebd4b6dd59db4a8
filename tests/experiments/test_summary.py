from __future__ import annotations

import math
from typing import Any

import pytest

from experiments.literature.reader import LiteratureValue, literature_for, read_published, same_device
from experiments.summary import NAMES, summarise


def step(number: int, **changes: Any) -> dict[str, Any]:
    parts = {"data_wait_s": 0.02, "h2d_s": 0.01, "forward_backward_s": 0.06, "optimizer_s": 0.01}
    return {"step": number, "measured": number > 2, "loss": 3.0 - 0.01 * number, "samples": 16, "total_s": 0.1, **parts, **changes}


def window(**changes: Any) -> dict[str, Any]:
    ranks = [{"rank": 0, "samples": 160, "wall_s": 2.1}, {"rank": 1, "samples": 160, "wall_s": 2.0}]
    return {"wall_s": 2.1, "samples": 320, "ranks": ranks, "energy_j": 640.0, "flops_per_sample": 1e9, "peak_flops": 1e12, **changes}


def test_throughput_is_all_ranks_samples_over_the_longest_wall() -> None:
    found = summarise([step(n) for n in range(1, 23)], window(), [{"when": "after", "metrics": {"loss": 1.5, "recall_at_1": 0.4}}])
    rate = 320 / 2.1  # the second rank waited for the first
    assert found["throughput"] == pytest.approx(rate)
    assert found["throughput_settled"] == pytest.approx(rate)
    assert (found["settled"], found["settled_at_step"], found["measured_steps"], found["samples"]) == (True, 3, 20, 320)
    assert found["first_measured_step"] == 3
    assert found["data_wait_share"] == pytest.approx(0.2)
    assert found["optimizer_share"] == pytest.approx(0.1)
    assert found["mfu"] == pytest.approx(1e9 * rate / (2 * 1e12))
    assert (found["first_loss"], found["final_loss"]) == (pytest.approx(2.99), pytest.approx(2.78))
    assert (found["eval_loss_after"], found["eval_recall_at_1_after"], found["eval_loss_before"]) == (1.5, 0.4, None)


def test_a_transient_inside_the_window_is_told_and_left_out_of_throughput_settled() -> None:
    steps = [step(n, total_s=0.3 if n <= 22 else 0.1) for n in range(1, 103)]
    found = summarise(steps, None)
    assert found["settled_at_step"] == 23
    assert found["throughput_settled"] == pytest.approx(160)
    assert found["throughput"] == pytest.approx(16 * 100 / (20 * 0.3 + 80 * 0.1))


def test_unknown_is_null_never_a_guess() -> None:
    found = summarise([step(n, h2d_s=None) for n in range(1, 13)], window(peak_flops=None, energy_j=None))
    assert found["mfu"] is None
    assert found["h2d_share"] is None
    assert found["energy_j_per_sample"] is None
    nothing = summarise([], None)
    assert set(nothing) == set(NAMES)
    assert all(value is None for name, value in nothing.items() if name != "measured_steps")
    diverged = summarise([step(1), step(2, loss=math.nan)], None)
    assert (diverged["first_loss"], diverged["final_loss"], diverged["throughput"]) == (pytest.approx(2.99), None, None)


def test_communication_is_what_the_all_reduce_adds_to_a_step_never_less_than_nothing() -> None:
    cost = {"alone_s": 0.018, "with_s": 0.27, "without_s": 0.257, "step_s": 0.278}
    found = summarise([step(n) for n in range(1, 13)], window(communication=cost))
    assert (found["communication_s"], found["communication_exposed_s"]) == (0.018, pytest.approx(0.013))
    assert found["communication_share"] == pytest.approx(0.013 / 0.278)
    noise = summarise([step(n) for n in range(1, 13)], window(communication={**cost, "without_s": 0.28}))
    assert (noise["communication_exposed_s"], noise["communication_share"]) == (0, 0)


@pytest.mark.parametrize(
    ("execution", "name", "other"),
    [("queued", "service_time", "latency"), ("synchronous", "latency", "service_time"), (None, "service_time", "latency")],
)
def test_a_batchs_time_is_without_its_wait_and_named_for_how_batches_follow_each_other(
    execution: str | None, name: str, other: str
) -> None:
    steps = [step(n, total_s=n / 10_000 + 0.02) for n in range(1, 1004)]  # the measured ones: 0.3 to 100.3 ms
    told = window(trains=False, **({"execution": execution} if execution else {}))  # a journal of before there was a choice: queued
    found = summarise(steps, told)
    assert [found[f"{name}_p{rank}_s"] for rank in (50, 90, 99)] == pytest.approx([0.0503, 0.0903, 0.0993])
    assert found[f"{name}_per_sample_s"] == pytest.approx(0.0503 / 16)
    assert all(found[f"{other}_{rank}_s"] is None for rank in ("p50", "p90", "p99", "per_sample"))
    for training in (window(trains=True), window(), None):
        assert summarise(steps, training)[f"{name}_p50_s"] is None
    assert summarise([*steps, step(1004, data_wait_s=None)], told)[f"{name}_p50_s"] is None


@pytest.mark.parametrize(("batches", "known"), [(999, False), (1000, True)])
def test_a_99th_percentile_needs_a_thousand_batches(batches: int, known: bool) -> None:
    for execution, name in (("queued", "service_time"), ("synchronous", "latency")):
        found = summarise([step(n) for n in range(3, batches + 3)], window(trains=False, execution=execution))
        assert found["measured_steps"] == batches and found[f"{name}_p90_s"] == pytest.approx(0.08)
        assert (found[f"{name}_p99_s"] is not None) is known


@pytest.mark.parametrize(("wall_s", "known"), [(9.999, False), (10.0, True)])
def test_energy_needs_a_window_of_ten_seconds(wall_s: float, known: bool) -> None:
    found = summarise([step(n) for n in range(1, 13)], window(wall_s=wall_s))
    if not known:
        assert found["energy_j_per_sample"] is None and found["mean_power_w"] is None
        return
    assert found["energy_j_per_sample"] == 2.0
    assert found["mean_power_w"] == pytest.approx(640 / wall_s), "of all devices together"


def test_the_hosts_time_in_the_loader_is_beside_the_parts() -> None:
    steps = [step(n, loader_wait_s=0.3 if n == 3 else 0.05) for n in range(1, 13)]
    found = summarise(steps, None)
    assert found["loader_wait_share"] == pytest.approx((0.3 + 9 * 0.05) / 1.0), "it may be more than the device waited"
    assert found["data_wait_share"] == pytest.approx(0.2)
    assert summarise([step(n) for n in range(1, 13)], None)["loader_wait_share"] is None, "a journal of before it was measured"


def test_of_several_ranks_the_one_that_waits_most_for_its_host_is_told() -> None:
    """Rank 0, whose steps these are, waits for nothing: it waits for rank 1 in its backward pass."""
    steps = [step(n, data_wait_s=0.0, forward_backward_s=0.08) for n in range(1, 13)]
    ranks = [{"rank": n, "samples": 160, "wall_s": 2.0, "left_out_s": 0.0, "data_wait_s": wait} for n, wait in enumerate((0.0, 1.5))]
    found = summarise(steps, window(ranks=ranks))
    assert (found["data_wait_share"], found["data_wait_worst_share"]) == (0.0, 0.75)
    compiled = [{**rank, "left_out_s": 0.5} for rank in ranks]
    assert summarise(steps, window(ranks=compiled))["data_wait_worst_share"] == 1.0, "of the steps that count"
    for others in (ranks[:1], [ranks[0], {"rank": 1, "samples": 160, "wall_s": 2.0}]):
        assert summarise(steps, window(ranks=others))["data_wait_worst_share"] is None, "one device, and a journal of before"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_wait_s": -0.1}, "step 3: data_wait_s is -0.1"),
        ({"loader_wait_s": -0.1}, "step 3: loader_wait_s is -0.1"),
        ({"total_s": 0}, "step 3: total_s is 0"),
        ({"total_s": None}, "step 3: total_s is None"),
        ({"optimizer_s": math.inf}, "step 3: optimizer_s is inf"),
        ({"samples": 0}, "step 3: samples is 0"),
        ({"step": 2}, "step 2 follows step 2"),
    ],
)
def test_impossible_data_names_its_step(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        summarise([step(1), step(2), step(3) | changes], None)


def test_an_impossible_window_names_its_rank() -> None:
    with pytest.raises(ValueError, match="rank 1: 160 samples in 0 s"):
        summarise(
            [step(n) for n in range(1, 9)],
            window(ranks=[{"rank": 0, "samples": 160, "wall_s": 2}, {"rank": 1, "samples": 160, "wall_s": 0}]),
        )


def test_published_numbers_are_read_and_say_what_differs() -> None:
    assert len(read_published()) == 55
    found = literature_for("bridgetower")
    assert found
    assert all(entry.workload == "bridgetower" and entry.metric == "throughput" for entry in found)
    first = found[0]
    assert isinstance(first, LiteratureValue)
    ours = {"model": first.model, "devices": 8, "batch_size": first.batch, "precision": "bf16", "dataloader_workers": 0}
    assert first.differences(ours, "Habana Gaudi2 HL-225H") == []
    told = first.differences({**ours, "devices": 1, "batch_size": 32}, "NVIDIA H100 80GB HBM3")
    assert told == ["device gaudi2, ours NVIDIA H100 80GB HBM3", "devices 8, ours 1", f"batch per device {first.batch}, ours 32"]
    loaded = next(entry for entry in found if entry.accelerator == first.accelerator and entry.dataloader_workers)
    by_threads = {**ours, "dataloader_workers": loaded.dataloader_workers, "batch_size": loaded.batch, "loader": "threads"}
    assert "loader processes, ours threads" in loaded.differences(by_threads, "Habana Gaudi2 HL-225H")
    assert "loader processes, ours threads" not in loaded.differences({**by_threads, "loader": "processes"}, "Habana Gaudi2 HL-225H")
    assert first.differences({**ours, "loader": "threads"}, "Habana Gaudi2 HL-225H") == [], "without any worker there is no loader"
    assert same_device("a100-80", "NVIDIA A100-SXM4-80GB")
    assert not same_device("a100-40", "NVIDIA A100-SXM4-80GB")


def test_only_a_rate_per_device_stands_beside_another_number_of_devices() -> None:
    (compiled,) = [entry for entry in literature_for("causal_lm", metric="tokens_per_s_per_device") if entry.value == 6667]
    ours = {"model": "llama3-8b", "devices": 2, "batch_size": 2, "precision": "bf16"}
    assert compiled.may_stand_beside(ours) and not compiled.may_stand_beside({**ours, "model": "llama3-1b"})
    told = compiled.differences(ours, "NVIDIA H200")
    assert told[:2] == ["device h100, ours NVIDIA H200", "devices 8, ours 2"] and "selective checkpointing" in told[-1]
    of_all = literature_for("bert")[0]
    assert of_all.may_stand_beside({"model": "base", "devices": 8}) and not of_all.may_stand_beside({"model": "base", "devices": 2})


def test_a_bad_line_of_published_numbers_is_named(tmp_path: Any) -> None:
    path = tmp_path / "published.csv"
    head = "workload,model,accelerator,devices,precision,batch_per_device,dataloader_workers,extra,metric,value,unit,source\n"
    path.write_text(head + "w,m,a,8,bf16,1,0,,throughput,1,x,s\nw,m,a,eight,bf16,1,0,,throughput,1,x,s\n")
    with pytest.raises(ValueError, match=r"published.csv, line 3: devices is 'eight'"):
        read_published(path)
