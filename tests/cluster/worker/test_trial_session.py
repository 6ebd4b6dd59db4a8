"""The phases of a trial in virtual time: what is inside the measured window, what is not, and which rank does and writes what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from cluster.worker import measured_window, set_up, torch_internals
from cluster.worker.rank_group import Ranks
from cluster.worker.staged_weights import Built, drawn
from experiments.components.workload import Unsupported
from experiments.workloads import synthetic
from tests.clock_support import HOST_LAUNCH
from tests.session_support import BESIDE, COPY, POWER_W, STEP, STEPS, FakeTrainStep, Setting


def test_the_window_ends_when_the_device_has_done_all_it_was_given(setting: Setting) -> None:
    window = setting.run()
    last_copy = HOST_LAUNCH + (STEPS - 1) * STEP + COPY
    assert window["wall_s"] == pytest.approx(last_copy + BESIDE)
    assert window["energy_j"] == pytest.approx(POWER_W * window["wall_s"])
    assert (window["samples"], window["peak_memory_bytes"], window["alloc_retries"]) == (STEPS * 8, 2**30, 3)
    before = ["reset", "synchronize", "energy", "begin"]
    assert setting.world.after("phase measure")[:8] == [*before, "synchronize", "energy", "peak", "retries"]


def test_the_time_to_the_first_step_leaves_the_evaluation_aside(setting: Setting) -> None:
    window = setting.run()
    assert window["time_to_first_step_s"] == pytest.approx(100 + HOST_LAUNCH + STEP)
    assert [record["when"] for record in setting.world.of("evaluation")] == ["before", "after"]
    assert setting.world.of("evaluation")[0]["metrics"] == {"loss": 1.0, "chance_loss": 2.0}


def test_the_time_to_the_first_step_leaves_aside_what_weights_took_that_were_kept_for_later_trials(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(draw: Any, seed: int, place: Any) -> Built:
        return replace(drawn(draw, seed, place), drawn_s=7.0, kept_s=11.0)

    monkeypatch.setattr(set_up, "_weights", lambda *_: build)
    monkeypatch.setattr(setting.train_step, "evaluate", dict)
    window = setting.run()
    assert (window["weights_drawn_s"], window["weights_kept_s"]) == (7.0, 11.0)
    assert window["time_to_first_step_s"] == pytest.approx(100 + HOST_LAUNCH + STEP - 11.0)


def test_steps_are_numbered_through_and_measured_after_the_warm_up(setting: Setting) -> None:
    window = setting.run()
    steps = setting.world.of("step")
    assert [step["step"] for step in steps] == list(range(1, 10)) == setting.train_step.steps
    assert [step["measured"] for step in steps] == [False] * 3 + [True] * STEPS
    assert [step["rms.x"] for step in steps] == [float(step) for step in range(1, 10)]
    phases = [record["name"] for record in setting.world.of("phase")]
    assert phases == ["start", "data", "build", "evaluate", "first_step", "warmup", "measure", "evaluate"]
    assert (window["first_measured_step"], window["batch_size"], window["trains"]) == (4, 8, True)
    assert window["spikes_after"] is None and window["epoch_samples"] is None and "injected_slowdown" not in window
    assert setting.world.log.count("begin") == 2


def test_one_warm_up_step_is_the_first_step(setting: Setting) -> None:
    assert setting.run(warmup_steps=1, evaluate=False)["first_measured_step"] == 2
    assert [step["measured"] for step in setting.world.of("step")] == [False] + [True] * STEPS
    assert not setting.world.of("evaluation")


def test_what_the_suite_asks_for_is_in_the_window(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic.Synthetic, "epoch_samples", 1000, raising=False)
    window = setting.run(spikes_after=5)
    assert (window["spikes_after"], window["epoch_samples"]) == (5, 1000)


def test_a_probe_for_the_largest_batch_evaluates_nothing_and_publishes_what_it_knows(setting: Setting) -> None:
    setting.device.free_share_at_peak = lambda: 0.75  # type: ignore[method-assign]
    window = setting.run(probe="{}", compile="layer", profile_steps=2)
    assert list(window["probes"]) == ["8"] and window["probes"]["8"] == [True, 0.25]
    assert not setting.world.of("evaluation") and setting.train_step.steps == [*range(1, 10), *range(1, 10)], "once more with its states"


def test_where_nothing_is_trained_it_is_evaluated_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic.Synthetic, "trains", False, raising=False)
    assert setting.run()["trains"] is False
    assert [record["when"] for record in setting.world.of("evaluation")] == ["before"]


@pytest.mark.parametrize(
    ("compile", "graphs", "how", "cold", "cached"),
    [
        ("none", (0, 0), "none", None, None),
        ("layer", (0, 2), "cold", 12.5, None),
        ("layer", (2, 0), "cached", None, 12.5),
        ("model", (2, 1), "partly cached", None, 12.5),
        ("layer", (0, 0), "unknown", 12.5, None),
    ],
)
def test_compilation_is_told_where_there_was_any(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, compile: str, graphs: tuple[int, int], how: str, cold: float, cached: float
) -> None:
    monkeypatch.setattr(measured_window, "compile_seconds", lambda: 12.5)
    monkeypatch.setattr(torch_internals, "graph_lookups", lambda: graphs)
    window = setting.run(compile=compile)
    assert (window.get("compile_seconds"), window.get("compile_cached_seconds")) == (cold, cached)
    assert setting.world.of("environment")[-1]["compilation"] == how


@pytest.mark.parametrize("seconds", [None, 12.5])
def test_what_the_search_for_its_batch_took_is_told(setting: Setting, monkeypatch: pytest.MonkeyPatch, seconds: float | None) -> None:
    monkeypatch.setattr("cluster.worker.max_batch.seconds_searched", lambda: seconds)
    setting.run()
    assert setting.world.of("window")[-1]["batch_search_seconds"] == seconds


@pytest.mark.parametrize(("graphs", "left_out", "told"), [(True, 0, False), (True, 2, True), (False, 2, False)])
def test_what_runs_without_its_cuda_graph_is_said(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, graphs: bool, left_out: int, told: bool
) -> None:
    monkeypatch.setattr(measured_window, "records_cuda_graphs", lambda parameters, device: graphs)
    monkeypatch.setattr(measured_window, "cuda_graphs_left_out", lambda: left_out)
    setting.run(compile="model", compile_mode="max-autotune")
    text = "compile_mode max-autotune: no CUDA graph recorded in 2 places; TORCH_LOGS=perf_hints says why"
    assert (text in [note["text"] for note in setting.world.of("note")]) is told


def test_an_injected_slow_down_begins_with_the_window_and_is_said(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FakeTrainStep):
        def __init__(self, inner: FakeTrainStep, share: float) -> None:
            super().__init__(inner.world)
            assert inner is setting.train_step and share == 0.25

        def start(self) -> None:
            self.world.log.append("slow from here")

    monkeypatch.setattr(measured_window, "SlowedTrainStep", Slow)
    window = setting.run(injected_slowdown=0.25)
    assert window["injected_slowdown"] == 0.25
    assert setting.train_step.steps == [], "every step goes through it"
    assert setting.world.after("phase measure")[:2] == ["slow from here", "reset"]
    assert [note["text"] for note in setting.world.of("note")] == [
        "every measured step is made 0.25 times itself longer, on purpose (injected)"
    ]


@pytest.mark.parametrize(("start", "end"), [(None, 5.0), (5.0, None)])
def test_energy_that_is_not_known_at_both_ends_is_unknown(setting: Setting, start: float | None, end: float | None) -> None:
    readings = iter([start, end])
    setting.device.energy_j = lambda: next(readings)  # type: ignore[method-assign]
    window = setting.run()
    assert window["energy_j"] is None


@pytest.mark.usefixtures("two_ranks")
def test_ranks_meet_before_the_window_and_rank_zero_writes_what_all_did(setting: Setting) -> None:
    window = setting.run(Ranks(0, 2, 0, 2), devices=2)
    assert setting.world.after("phase measure")[:2] == ["barrier", "reset"]
    assert window["samples"] == 2 * STEPS * 8 and [rank["rank"] for rank in window["ranks"]] == [0, 1]
    assert setting.world.of("step")[0]["samples"] == 16
    assert setting.world.after("phase evaluate")[:2] == ["evaluation", "barrier"]


@pytest.mark.usefixtures("two_ranks")
def test_sharding_over_two_devices_needs_no_word(setting: Setting) -> None:
    setting.run(Ranks(0, 2, 0, 2), devices=2, parallel="fsdp2")
    assert setting.world.of("note") == []


@pytest.mark.usefixtures("two_ranks")
@pytest.mark.parametrize("sharded", [False, True])
def test_another_rank_evaluates_its_shards_and_publishes_no_window(setting: Setting, sharded: bool) -> None:
    setting.train_step.sharded = sharded
    assert setting.run(Ranks(1, 2, 1, 2), devices=2) == {}
    assert len(setting.world.of("evaluation")) == (2 if sharded else 0)
    assert setting.world.log.count("barrier") == 3


def test_what_the_model_takes_is_completed_after_all(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.device.name = "NVIDIA A100-SXM4-80GB"
    window = setting.run(precision="bf16")
    assert window["flops_per_sample"] == 3 * 2 * (2 * 32 * 32 + 32 * 8)
    assert window["flops_by_precision"] == {"bf16": window["flops_per_sample"]} and window["flop_count"] == 2
    assert window["peak_flops"] == 312e12 and "datasheet" in window["peak_source"]


def test_the_peak_is_of_the_precisions_that_compute(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.device.name = "NVIDIA H200"
    monkeypatch.setattr(synthetic.Synthetic, "linear_flops_per_sample", lambda workload: 3.0)
    monkeypatch.setattr(synthetic.Synthetic, "flops_per_sample", lambda workload: 3.0)
    window = setting.run(precision="int8_switchback")
    assert window["flops_by_precision"] == {"bf16": 1.0, "int8": 2.0}
    assert window["peak_flops"] == pytest.approx(3 / (1 / 989.5e12 + 2 / 1979e12)) and "INT8" in window["peak_source"]
    monkeypatch.delattr(synthetic.Synthetic, "linear_flops_per_sample")
    setting.world.records.clear()
    window = setting.run(precision="int8_switchback")
    assert (window["flops_by_precision"], window["peak_flops"]) == (None, None), "which precision computes them is not known"
    assert window["flops_per_sample"] > 0


def test_flops_that_cannot_be_counted_cost_no_trial_and_an_emulated_device_has_no_peak(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(workload: Any) -> float:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(synthetic.Synthetic, "flops_per_sample", fail)
    setting.device.name, setting.device.emulated = "NVIDIA A100-SXM4-80GB", True
    window = setting.run(precision="bf16")
    assert (window["flops_per_sample"], window["peak_flops"], window["peak_source"]) == (None, None, None)
    assert [note["text"] for note in setting.world.of("note")] == ["FLOPs not counted: RuntimeError: no such operator"]


def test_tf32_beside_autocast_is_a_switch_of_the_process_and_of_cuda(setting: Setting) -> None:
    setting.run(allow_tf32=True, precision="bf16")
    assert [line for line in setting.world.log if line.startswith("set_precision")] == ["set_precision bf16", "set_precision tf32"]
    setting.device.kind = "cpu"
    with pytest.raises(Unsupported, match=r"allow_tf32: only on cuda, and this is cpu"):
        setting.run(allow_tf32=True, precision="bf16")


def test_segments_may_grow_on_cuda_alone(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "let_segments_grow", lambda: setting.world.log.append("let_segments_grow"))
    setting.run()
    assert "let_segments_grow" not in setting.world.log
    setting.run(expandable_segments=True)
    assert setting.world.log.count("let_segments_grow") == 1
    at = setting.world.log.index("let_segments_grow")
    assert setting.world.log[at - 1].startswith("set_precision") and "phase build" in setting.world.log[at:], "before any weight is drawn"
    setting.device.kind = "cpu"
    with pytest.raises(Unsupported, match=r"expandable_segments: only on cuda, and this is cpu"):
        setting.run(expandable_segments=True)


def test_sharding_over_one_device_is_said(setting: Setting) -> None:
    setting.run(parallel="fsdp2")
    assert [note["text"] for note in setting.world.of("note")] == [
        "parallel fsdp2: one device alone has all parameters, nothing is sharded"
    ]


def test_a_size_that_was_not_found_cannot_run(setting: Setting) -> None:
    with pytest.raises(ValueError, match="batch_size max must be replaced"):
        setting.run(batch_size="max")


def test_what_a_workload_finds_out_is_added_to_the_environment(setting: Setting) -> None:
    context = setting.session().run()
    context.workload.context.fact("decoder", "nvjpeg")
    assert [record.get("decoder") for record in setting.world.of("environment")] == [None, "nvjpeg"]
    assert setting.world.of("environment")[-1] == {
        "kind": "environment",
        "host": "h",
        "threads": 1,
        "compilation": "none",
        "decoder": "nvjpeg",
    }


@pytest.mark.parametrize(("build_on", "where"), [("device", "meta"), ("host", "cpu")])
def test_weights_are_the_same_on_every_rank_and_what_is_drawn_later_is_not(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, build_on: str, where: str
) -> None:
    seen: list[Any] = []

    class Workload:
        def __init__(self) -> None:
            self.image_size, self.known_before = 0, 1

        def model(self) -> str:
            seen.append((torch.initial_seed(), torch.empty(1).device.type))
            self.image_size = 224
            return "the model"

    monkeypatch.setattr(set_up, "TrainStep", lambda *given: given)
    parameters, workload = synthetic.Parameters(build_on=build_on, seed=5), Workload()
    setting.device.torch_device = torch.device("meta")
    made, told, built = set_up._train_step(workload, parameters, setting.device, "the engine", 3, drawn)  # type: ignore[arg-type]
    assert seen == [(5, where)] and torch.initial_seed() == 8
    assert made == (workload, "the model", parameters, setting.device, "the engine")
    assert told == {"image_size": 224} and built.read_s is None and built.kept_s == 0


def test_inference_one_batch_at_a_time_is_timed_on_the_host_and_says_so(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic.Parameters, "execution", "synchronous", raising=False)
    window = setting.run()
    assert window["execution"] == "synchronous"
    assert setting.world.of("environment")[-1]["clock"] == "host perf_counter, one batch at a time"
    measured = [step for step in setting.world.of("step") if step["measured"]]
    # the device's other work (BESIDE) belongs to a batch that nothing may follow before all is done
    assert [step["total_s"] - step["data_wait_s"] for step in measured] == pytest.approx([HOST_LAUNCH + COPY + BESIDE] * STEPS)
    assert setting.world.deepest <= STEP
