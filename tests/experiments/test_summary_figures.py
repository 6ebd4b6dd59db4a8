"""Each figure of a trial's summary, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from experiments.stats.steady_state import steady_state
from experiments.stats.step_interval import step_interval
from experiments.summary import rms_names, summarise, throughput_of

TIMES = 0.1 + 0.02 * np.random.default_rng(0).permutation(20) / 20
LONG = 0.1 + 0.02 * np.random.default_rng(0).permutation(60) / 60  # enough steps for an interval


def step(number: int, **changes: Any) -> dict[str, Any]:
    parts = {"data_wait_s": 0.02, "h2d_s": 0.01, "forward_backward_s": 0.06, "optimizer_s": 0.01}
    return {"step": number, "measured": True, "loss": 3.0 - 0.01 * number, "samples": 16, "total_s": 0.1, **parts, **changes}


def steps_of(times: Any, **changes: Any) -> list[dict[str, Any]]:
    return [step(number, total_s=float(seconds), **changes) for number, seconds in enumerate(times, 1)]


def window(**changes: Any) -> dict[str, Any]:
    ranks = [{"rank": 0, "samples": 160, "wall_s": 2.0}, {"rank": 1, "samples": 160, "wall_s": 2.5}]
    return {"wall_s": 2.5, "samples": 320, "ranks": ranks, "flops_per_sample": 1e12, "peak_flops": 4e14, **changes}


def test_the_interval_of_the_steps_is_carried_over_to_the_window() -> None:
    found = summarise(steps_of(LONG), window())
    interval = step_interval(np.full(60, 16.0), LONG)
    steps = interval.estimate
    rate = 320 / 2.5
    scale = rate / (960 / LONG.sum())
    assert abs(scale - 1) > 0.01
    assert found["throughput"] == pytest.approx(rate)
    assert found["throughput_low"] == pytest.approx(steps.low * scale)
    assert found["throughput_high"] == pytest.approx(steps.high * scale)
    assert found["throughput_low"] < rate < found["throughput_high"]  # type: ignore[operator]
    assert found["effective_steps"] == interval.effective_steps
    alone = summarise(steps_of(LONG), None)
    assert (alone["throughput_low"], alone["throughput_high"]) == pytest.approx((steps.low, steps.high))


def test_steps_in_which_torch_compiled_are_in_no_rate() -> None:
    """Of one rank: 60 steps of 16 samples, of which two took 30 s longer; the window has 0.5 s between steps."""
    slow = LONG.copy()
    slow[[9, 30]] += 30.0
    left = np.delete(LONG, [9, 30])
    ranks = [{"rank": 0, "samples": 960, "wall_s": slow.sum() + 0.5, "left_out_s": slow[[9, 30]].sum()}]
    told = window(ranks=ranks, samples=960, wall_s=slow.sum() + 0.5, energy_j=5000.0)
    found = summarise(steps_of(slow), {**told, "compiled_steps": [10, 31], "left_out_steps": [10, 31]})
    assert found["throughput"] == pytest.approx(58 * 16 / (left.sum() + 0.5))
    assert [found[name] for name in ("measured_steps", "compiled_steps", "left_out_steps", "samples")] == [58, 2, 2, 58 * 16]
    assert found["step_time_median_s"] == pytest.approx(np.median(left)) and found["step_time_p90_s"] < 0.13  # type: ignore[operator]
    interval = step_interval(np.full(58, 16.0), left).estimate
    scale = found["throughput"] / (58 * 16 / left.sum())  # type: ignore[operator]
    assert (found["throughput_low"], found["throughput_high"]) == pytest.approx((interval.low * scale, interval.high * scale))
    assert (found["energy_j_per_sample"], found["mean_power_w"]) == (None, None), "what compiling took of it is not known"
    assert found["final_loss"] == pytest.approx(3.0 - 0.6), "they taught as the others did"
    whole = summarise(steps_of(slow), {**told, "compiled_steps": [], "left_out_steps": []})
    assert whole["throughput"] == pytest.approx(960 / (slow.sum() + 0.5))
    assert (whole["compiled_steps"], whole["left_out_steps"], whole["energy_j_per_sample"]) == (0, 0, pytest.approx(5000 / 960))
    early = summarise(steps_of(slow), told)
    assert (early["compiled_steps"], early["left_out_steps"]) == (None, None), "an early trial did not note them"


def test_each_ranks_own_time_is_taken_off_its_wall_time() -> None:
    """Two that do not wait for each other: the second compiled for 30 s, while the first went on."""
    ranks = [{"rank": 0, "samples": 160, "wall_s": 2.0, "left_out_s": 0.1}, {"rank": 1, "samples": 160, "wall_s": 32.0, "left_out_s": 30.1}]
    found = summarise(steps_of(TIMES), window(ranks=ranks, compiled_steps=[3], left_out_steps=[3]))
    assert found["throughput"] == pytest.approx((320 - 16) / 1.9)


def test_of_a_round_that_is_left_out_one_step_compiled() -> None:
    steps = [{**one, "step_kind": kind} for one, kind in zip(steps_of(LONG[:12]), ["image", "text", "pair"] * 4, strict=True)]
    ranks = [{"rank": 0, "samples": 192, "wall_s": LONG[:12].sum(), "left_out_s": LONG[3:6].sum()}]
    found = summarise(steps, window(ranks=ranks, compiled_steps=[5], left_out_steps=[4, 5, 6]))
    assert (found["measured_steps"], found["compiled_steps"], found["left_out_steps"]) == (9, 1, 3)
    assert found["throughput"] == pytest.approx(9 * 16 / (LONG[:12].sum() - LONG[3:6].sum()))


def test_a_window_of_nothing_but_compilation_counts_as_it_is() -> None:
    found = summarise(steps_of(TIMES[:2]), window(compiled_steps=[1, 2], left_out_steps=[1, 2], energy_j=9.0, wall_s=12.5))
    assert (found["throughput"], found["measured_steps"]) == (pytest.approx(320 / 2.5), 2)
    assert (found["compiled_steps"], found["left_out_steps"], found["energy_j_per_sample"]) == (2, 0, None)


def test_compilation_that_took_longer_than_the_window_is_named() -> None:
    told = window(ranks=[{"rank": 0, "samples": 320, "wall_s": 1.0, "left_out_s": 30.1}], compiled_steps=[3], left_out_steps=[3])
    with pytest.raises(ValueError, match=r"1 steps in which torch compiled leave 304 samples in -29\.1 s of the window"):
        summarise([step(number, total_s=30.1 if number == 3 else 0.1) for number in range(1, 21)], told)


def test_too_few_steps_have_a_rate_and_no_interval() -> None:
    few = summarise(steps_of(LONG[:39]), window())
    assert few["throughput"] == pytest.approx(320 / 2.5), "of all ranks, over the longest wall time"
    names = ("throughput_low", "throughput_high", "tflops_per_device_low", "effective_steps")
    assert [few[name] for name in names] == [None] * 4
    walk = 0.1 * np.exp(0.01 * np.cumsum(np.random.default_rng(3).normal(size=100)))
    slow = summarise(steps_of(walk), window())
    assert (slow["throughput_low"], slow["throughput_high"]) == (None, None)
    assert slow["effective_steps"] == pytest.approx(0.68, abs=0.01), "it says why"


def test_kinds_of_steps_are_told_apart() -> None:
    kinds = ["image", "text", "text"] * 20
    times = LONG * np.tile([3.0, 1.0, 1.0], 20)
    apart = summarise([{**one, "step_kind": kind} for one, kind in zip(steps_of(times), kinds, strict=True)], None)
    found = step_interval(np.full(60, 16.0), times, kinds=kinds).estimate
    assert (apart["throughput_low"], apart["throughput_high"]) == (found.low, found.high)
    assert apart["drift"] == pytest.approx(steady_state(times, kinds=kinds).drift) != pytest.approx(steady_state(times).drift)
    as_noise = summarise(steps_of(times), None)
    assert as_noise["throughput_high"] - as_noise["throughput_low"] > 3 * (found.high - found.low)  # type: ignore[operator]


def test_drift_is_that_of_the_step_times() -> None:
    times = 0.1 * np.linspace(1, 1.08, 200) * (1 + 0.005 * np.random.default_rng(1).normal(size=200))
    found = summarise(steps_of(times), None)
    assert found["settled"] is False and found["throughput_settled"] is None
    assert found["drift"] == pytest.approx(steady_state(times).drift) == pytest.approx(0.08, abs=0.003)


def test_steps_that_only_lengthen_the_window_count_for_its_rate_and_not_for_what_was_learnt() -> None:
    steps = steps_of(LONG)
    steps[29]["loss"], steps[59]["loss"] = 1.25, 1.0
    found = summarise(steps, window(last_learning_step=30))
    assert (found["final_loss"], found["measured_steps"]) == (1.25, 60)
    assert summarise(steps, window())["final_loss"] == 1.0


def test_a_window_without_ranks_is_one_ranks() -> None:
    found = summarise(steps_of(TIMES), window(ranks=None, samples=320, wall_s=2.5))
    assert found["throughput"] == pytest.approx(128)
    assert found["mfu"] == pytest.approx(128 * 1e12 / 4e14)


def test_percentiles_of_step_times() -> None:
    found = summarise(steps_of(np.random.default_rng(1).permutation(np.arange(1, 102)) / 1000), None)
    told = [found[f"step_time_{name}_s"] for name in ("p05", "median", "p90")]
    assert told == pytest.approx([0.006, 0.051, 0.091])


def test_throughput_settled_is_scaled_as_the_window_is() -> None:
    steps = steps_of([0.3] * 20 + [0.1] * 80)
    found = summarise(steps, window(ranks=None, samples=1600, wall_s=16.0))  # 14 s of steps
    assert found["settled_at_step"] == 21
    assert found["throughput_settled"] == pytest.approx(160 * 14 / 16)
    level = summarise(steps_of([0.125] * 100), window(ranks=None, samples=1600, wall_s=16.0))
    assert (level["settled"], level["settled_at_step"], level["throughput_settled"]) == (True, 1, 100.0)
    odd = summarise(steps_of(TIMES), window())
    assert odd["settled_at_step"] == 1 and odd["throughput_settled"] == odd["throughput"], "to the last digit"
    short = summarise(steps_of([0.1] * 7), None)
    assert (short["settled"], short["settled_at_step"], short["throughput_settled"]) == (None, None, None), "too few to tell"
    assert throughput_of([8, 4], [1, 2]) == 4


def test_shares_are_of_the_measured_time_only() -> None:
    steps = [
        step(1, measured=False, total_s=9.0, data_wait_s=9.0),
        step(2, total_s=0.2, data_wait_s=0.02),
        step(3, total_s=0.3, data_wait_s=0.08),
    ]
    found = summarise(steps, None)
    assert found["data_wait_share"] == pytest.approx(0.2)
    assert found["h2d_share"] == pytest.approx(0.04)
    assert found["forward_backward_share"] == pytest.approx(0.24)
    assert (found["measured_steps"], found["samples"], found["throughput"]) == (2, 32, pytest.approx(64))
    partly = summarise([step(1), step(2, h2d_s=None)], None)
    assert (partly["h2d_share"], partly["optimizer_share"]) == (None, pytest.approx(0.1))


def test_without_training_the_wait_for_the_output_is_the_forward_passs() -> None:
    """Where a batch is recorded as a CUDA graph, the host is through with the forward pass long before the device is."""
    steps = [step(n, total_s=0.2, forward_backward_s=0.02, optimizer_s=0.15) for n in (1, 2, 3)]
    trained, read = summarise(steps, window()), summarise(steps, window(trains=False))
    assert (trained["forward_backward_share"], trained["optimizer_share"]) == (pytest.approx(0.1), pytest.approx(0.75))
    assert (read["forward_backward_share"], read["optimizer_share"]) == (pytest.approx(0.85), 0.0)
    unknown = summarise([step(1), step(2, optimizer_s=None)], window(trains=False))
    assert (unknown["forward_backward_share"], unknown["optimizer_share"]) == (
        summarise([step(1), step(2)], window())["forward_backward_share"],
        None,
    )


def test_work_and_time_of_an_epoch_by_hand() -> None:
    found = summarise(steps_of(LONG), window(epoch_samples=1280, batch_size=16, samples=640, energy_j=960.0, wall_s=20.0))
    assert found["mfu"] == pytest.approx(128 * 1e12 / (2 * 4e14))
    assert found["tflops_per_device"] == pytest.approx(128 / 2)
    for end in ("low", "high"):
        assert found[f"tflops_per_device_{end}"] == pytest.approx(found[f"throughput_{end}"] / 2)  # type: ignore[operator]
    assert (found["epoch_time_s"], found["batch_size"], found["energy_j_per_sample"]) == (pytest.approx(10), 16, 1.5)
    unknown = summarise(steps_of(TIMES), window(flops_per_sample=None, samples=160, energy_j=0.0, wall_s=20.0))
    assert [unknown[name] for name in ("mfu", "tflops_per_device", "epoch_time_s", "batch_size")] == [None] * 4
    assert unknown["energy_j_per_sample"] == 0, "no energy is a figure, none told is not"
    no_step = summarise([], window(epoch_samples=1440))
    assert (no_step["mfu"], no_step["epoch_time_s"], no_step["throughput"]) == (None, None, None)


def test_rates_of_tokens_are_throughput_times_the_tokens_of_a_sample() -> None:
    found = summarise(steps_of(LONG), window(tokens_per_sample=2048))
    assert found["tokens_per_s"] == pytest.approx(128 * 2048)
    assert found["tokens_per_s_per_device"] == pytest.approx(128 * 2048 / 2)
    for end in ("low", "high"):
        assert found[f"tokens_per_s_{end}"] == pytest.approx(found[f"throughput_{end}"] * 2048)  # type: ignore[operator]
        assert found[f"tokens_per_s_per_device_{end}"] == pytest.approx(found[f"throughput_{end}"] * 1024)  # type: ignore[operator]
    few = summarise(steps_of(TIMES), window(tokens_per_sample=2048))
    assert (few["tokens_per_s"], few["tokens_per_s_low"]) == (pytest.approx(128 * 2048), None)
    none = summarise(steps_of(LONG), window(tokens_per_sample=None))
    assert [value for name, value in none.items() if name.startswith("tokens_per_s")] == [None] * 6


def test_the_latency_of_a_token_is_a_batchs_median_by_the_tokens_of_a_sample() -> None:
    steps = [step(n, samples=16, total_s=0.02 + seconds) for n, seconds in enumerate((0.5, 0.1, 0.2), 1)]
    found = summarise(steps, window(trains=False, execution="synchronous", tokens_per_sample=50))
    assert found["latency_per_token_s"] == pytest.approx(0.2 / 50), "whatever the batch: each of its samples gets a token at a time"
    assert found["service_time_per_token_s"] is None
    assert summarise(steps, window(trains=False, execution="synchronous"))["latency_per_token_s"] is None
    assert summarise(steps, window(tokens_per_sample=50))["latency_per_token_s"] is None, "of inference only"


def test_what_the_window_tells_is_passed_on() -> None:
    told = {"peak_memory_bytes": 1, "alloc_retries": 2, "time_to_first_step_s": 3.0, "compile_seconds": 4.0, "compile_cached_seconds": 5.0}
    told |= {"trace_seconds": 6.0, "batch_search_seconds": 7.0}
    found = summarise(steps_of(TIMES), window(**told))
    assert {name: found[name] for name in told} == told
    assert all(summarise(steps_of(TIMES), window())[name] is None for name in told)


def test_communication_in_its_own_order() -> None:
    cost = {"alone_s": 0.018, "with_s": 0.27, "without_s": 0.25, "step_s": 0.4}
    found = summarise(steps_of(TIMES), window(communication=cost))
    told = [found[f"communication_{name}"] for name in ("s", "exposed_s", "share")]
    assert told == pytest.approx([0.018, 0.02, 0.05])


def test_a_batchs_time_by_sample_is_the_median_over_batches() -> None:
    steps = [step(n, samples=n, total_s=0.02 + 0.3 / n) for n in (1, 2, 3, 10, 20)]  # 0.3 / n ** 2 s to a sample
    found = summarise(steps, window(trains=False))
    assert found["service_time_per_sample_s"] == pytest.approx(0.3 / 9)
    assert found["service_time_p50_s"] == pytest.approx(0.1)
    assert found["service_time_p90_s"] == pytest.approx(0.3 - 0.4 * 0.15)
    assert summarise([step(1, measured=False)], window(trains=False))["service_time_p50_s"] is None


@pytest.mark.parametrize("first", [math.nan, math.inf, None])
def test_the_first_loss_is_the_first_steps_and_the_last_the_last_steps(first: float | None) -> None:
    """A first loss that is not finite is not hidden by the second."""
    for loss, told in ((3.0, 3.0), (first, None)):
        found = summarise([step(n, loss=loss, measured=n > 3) for n, loss in enumerate([loss, 2.5, 2.0, 1.5], 1)], None)
        assert (found["first_loss"], found["final_loss"]) == (told, 1.5)
    found = summarise([step(1, loss=2), step(2, loss=math.inf)], None)
    assert (found["first_loss"], found["final_loss"]) == (2.0, None)
    assert summarise([step(1, loss=None)], None)["first_loss"] is None


def test_evaluations_are_named_by_metric_and_time() -> None:
    evaluations = [{"when": "before", "metrics": {"loss": 3.5}}, {"when": "after", "metrics": {"loss": math.nan, "accuracy": 0.5}}]
    found = summarise([], None, evaluations)
    assert (found["eval_loss_before"], found["eval_loss_after"], found["eval_accuracy_after"]) == (3.5, None, 0.5)


def test_a_step_of_nothing_is_allowed_where_it_takes_time() -> None:
    zero = step(1, data_wait_s=0.0, h2d_s=0, optimizer_s=None)
    assert summarise([zero], None)["data_wait_share"] == 0
    for wrong, message in (
        ({"step": 0}, "step 0 follows step 0"),
        ({"total_s": -0.1}, "total_s is -0.1"),
        ({"total_s": math.nan}, "total_s is nan"),
        ({"samples": -1}, "samples is -1"),
        ({"h2d_s": -1e-9}, "h2d_s is -1e-09"),
        ({"forward_backward_s": math.nan}, "forward_backward_s is nan"),
    ):
        with pytest.raises(ValueError, match=message):
            summarise([step(1) | wrong], None)
    for ranks, message in (
        ([{"rank": 3, "samples": 0, "wall_s": 2}], "rank 3: 0 samples"),
        ([{"rank": 4, "samples": 1, "wall_s": -2}], "rank 4: 1 samples in -2 s"),
    ):
        with pytest.raises(ValueError, match=message):
            summarise([step(1)], window(ranks=ranks))


def test_spikes_are_counted_of_the_first_tensor_and_beyond_the_step_asked() -> None:
    level = np.tile([0.9, 1.1], 150)
    steps = [step(n, loss=float(loss)) | {"rms.b": 1.0, "rms.a": 1.0} for n, loss in enumerate(level, 1)]
    for at in (201, 202):
        steps[at - 1]["loss"] = 3.0
    steps[198]["rms.b"] = steps[250]["rms.b"] = steps[210]["rms.a"] = 2.5  # of b: steps 199 and 251
    assert rms_names(steps) == ["b", "a"]
    for after, expected in ((150, (1, 2, 1)), (198, (1, 2, 1)), (199, (1, 1, 0)), (201, (0, 1, 0))):
        found = summarise(steps, window(spikes_after=after))
        assert tuple(found[name] for name in ("loss_spikes", "rms_spikes", "loss_spikes_explained")) == expected, after
    assert summarise(steps, window(spikes_after=0))["loss_spikes"] == 1
