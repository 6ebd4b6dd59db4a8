"""The registry of summary metrics: its values, its patterns, and that nothing is missing from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from experiments import device_state
from experiments.config.errors import ConfigError
from experiments.config.yaml_document import load
from experiments.literature.reader import OURS
from experiments.metric import Direction, Kind, Scale
from experiments.metrics import REGISTRY, metric_of, names
from experiments.price import Price, costs
from experiments.regression.definition import METRICS
from experiments.summary import NAMES, summarise
from tasks.tracking.views import _CHARTS, _COLUMNS, _LINES

ROOT = Path(__file__).resolve().parents[2]
HIGHER, LOWER, NEITHER = Direction.HIGHER, Direction.LOWER, Direction.NEITHER
LOG, LINEAR, COUNT = Scale.LOG, Scale.LINEAR, Scale.COUNT


@pytest.mark.parametrize(
    ("name", "unit", "direction", "scale", "kind", "effect", "of_the_node"),
    [
        ("throughput", "samples/s", HIGHER, LOG, Kind.RATE, 0.03, True),
        ("throughput_settled", "samples/s", HIGHER, LOG, Kind.RATE, 0.03, True),
        ("tflops_per_device", "TFLOP/s", HIGHER, LOG, Kind.RATE, 0.03, True),
        ("step_time_p90_s", "s", LOWER, LOG, Kind.SECONDS, 0.05, True),
        ("latency_p50_s", "s", LOWER, LOG, Kind.SECONDS, 0.03, True),
        ("latency_p99_s", "s", LOWER, LOG, Kind.SECONDS, 0.10, True),
        ("service_time_p50_s", "s", LOWER, LOG, Kind.SECONDS, 0.03, True),
        ("service_time_p90_s", "s", LOWER, LOG, Kind.SECONDS, 0.05, True),
        ("time_to_first_step_s", "s", LOWER, LOG, Kind.SECONDS, 0.20, True),
        ("compile_seconds", "s", LOWER, LOG, Kind.SECONDS, 0.20, True),
        ("compile_cached_seconds", "s", LOWER, LOG, Kind.SECONDS, 0.20, True),
        ("trace_seconds", "s", NEITHER, LOG, Kind.NUMBER, 0.20, False),
        ("batch_search_seconds", "s", NEITHER, LOG, Kind.NUMBER, 0.20, False),
        ("communication_exposed_s", "s", LOWER, LINEAR, Kind.SECONDS, 0.001, True),
        ("peak_memory_bytes", "B", LOWER, LOG, Kind.BYTES, 0.03, False),
        ("energy_j_per_sample", "J", LOWER, LOG, Kind.NUMBER, 0.05, False),
        ("mean_power_w", "W", NEITHER, LOG, Kind.NUMBER, 0.05, False),
        ("clock_mean_mhz", "MHz", NEITHER, LOG, Kind.NUMBER, 0.01, False),
        ("capped_share", "", NEITHER, LINEAR, Kind.SHARE, 0.02, False),
        ("other_processes", "processes", NEITHER, COUNT, Kind.COUNT, 1, False),
        ("neighbour_gpus", "GPUs", NEITHER, COUNT, Kind.COUNT, 1, False),
        ("alloc_retries", "", LOWER, COUNT, Kind.COUNT, 1, False),
        ("loss_spikes", "", LOWER, COUNT, Kind.COUNT, 1, False),
        ("rms_spikes", "", LOWER, COUNT, Kind.COUNT, 1, False),
        ("settled_at_step", "", NEITHER, COUNT, Kind.COUNT, 1, False),
        ("data_wait_share", "", LOWER, LINEAR, Kind.SHARE, 0.02, True),
        ("forward_backward_share", "", NEITHER, LINEAR, Kind.SHARE, 0.02, True),
        ("mfu", "", HIGHER, LOG, Kind.SHARE, 0.03, True),
        ("batch_size", "samples", HIGHER, LOG, Kind.COUNT, 0.02, False),
        ("final_loss", "", LOWER, LOG, Kind.NUMBER, 0.03, False),
        ("eval_loss_after", "", LOWER, LOG, Kind.NUMBER, 0.03, False),
        ("eval_chance_loss_before", "", NEITHER, LOG, Kind.NUMBER, 0.03, False),
        ("eval_accuracy_before", "", HIGHER, LINEAR, Kind.NUMBER, 0.02, False),
        ("eval_recall_at_5_after", "", HIGHER, LINEAR, Kind.NUMBER, 0.02, False),
        ("eval_winoground_group_before", "", HIGHER, LINEAR, Kind.NUMBER, 0.02, False),
        ("eval_chance_winoground_text_before", "", NEITHER, LINEAR, Kind.NUMBER, 0.02, False),
        ("eval_corrupt_rows_after", "", LOWER, COUNT, Kind.COUNT, 1, False),
        ("eval_quantise_share_after", "", LOWER, LINEAR, Kind.SHARE, 0.02, True),
        ("eval_magnitude_12_after", "", NEITHER, LOG, Kind.NUMBER, 0.03, False),
        ("eval_magnitude_*_after", "", NEITHER, LOG, Kind.NUMBER, 0.03, False),
        ("rms.visual.patch_embed.weight", "", NEITHER, LOG, Kind.NUMBER, 0.03, False),
    ],
)
def test_what_a_metric_is(name: str, unit: str, direction: Direction, scale: Scale, kind: Kind, effect: float, of_the_node: bool) -> None:
    metric = metric_of(name, unlisted=False)
    assert metric.name == name
    assert (metric.unit, metric.direction, metric.scale, metric.kind) == (unit, direction, scale, kind)
    assert (metric.minimum_effect, metric.depends_on_node) == (effect, of_the_node)
    assert (metric.higher_is_better, metric.lower_is_better) == (direction is HIGHER, direction is LOWER)


@pytest.mark.parametrize(
    ("name", "label", "title", "words"),
    [
        ("throughput", "throughput", "throughput (samples/s)", ("slower", "faster")),
        ("tflops_per_device", "TFLOP/s per device", "TFLOP/s per device", ("slower", "faster")),
        ("latency_p50_s", "latency p50", "latency p50 (s)", ("slower", "faster")),
        ("service_time_per_sample_s", "service time per sample", "service time per sample (s)", ("slower", "faster")),
        ("peak_memory_bytes", "peak memory", "peak memory (B)", ("more", "less")),
        ("energy_j_per_sample", "energy per sample", "energy per sample (J)", ("more", "less")),
        ("final_loss", "final loss", "final loss", ("higher", "lower")),
        ("loss_spikes", "loss spikes", "loss spikes", ("more", "less")),
        ("eval_winoground_group_before", "eval winoground group before", "eval winoground group before", ("lower", "higher")),
        ("batch_size", "batch size", "batch size (samples)", ("lower", "higher")),
    ],
)
def test_words(name: str, label: str, title: str, words: tuple[str, str]) -> None:
    metric = metric_of(name)
    assert (metric.label, metric.title, (metric.worse, metric.better)) == (label, title, words)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("thruput", "did you mean 'throughput'"),
        ("latency_p55_s", "did you mean 'latency_p50_s'"),
        ("eval_winoground_gruop_before", "did you mean 'eval_winoground_group_before'"),
        ("eval_magnitude_x_after", "did you mean 'eval_magnitude_1_after'"),
        ("eval_loss_during", "did you mean 'eval_loss_after'"),
        ("throughputs", "did you mean 'throughput'"),
        ("loss", "did you mean 'final_loss'"),  # sooner than first_loss, which is better neither high nor low, and loss_spikes
        ("memory", "did you mean 'peak_memory_bytes'"),
        ("zebra", "docs/metrics.md lists them all"),
        ("rms.", "docs/metrics.md lists them all"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown metric.*{near}") as refused:
        metric_of(name, unlisted=False)
    assert refused.value.key == name


def test_what_a_workload_elsewhere_evaluates_is_a_number_without_direction() -> None:
    metric = metric_of("eval_bleu_after")
    assert (metric.name, metric.direction, metric.scale, metric.kind) == ("eval_bleu_after", NEITHER, LINEAR, Kind.NUMBER)
    for name in ("bleu", "eval_bleu", "eval_Bleu_after", "eval_bleu_after_all"):
        with pytest.raises(ConfigError, match="unknown metric"):
            metric_of(name)


def test_every_output_of_summarise_is_registered() -> None:
    window = {"wall_s": 1.0, "samples": 8, "spikes_after": 1, "trains": False, "execution": "synchronous"}
    step = {"measured": True, "loss": 1.0, "samples": 8, "data_wait_s": 0.01, "total_s": 0.1, "rms.patch": 1.0}
    evaluations = [{"when": when, "metrics": {"loss": 1.0, "chance_loss": 1.0, "recall_at_1": 0.5}} for when in ("before", "after")]
    made = summarise([{"step": number, **step} for number in range(1, 6)], window, evaluations)
    missing = []
    for name in {*made, *NAMES, *device_state.NAMES, *METRICS, *{*_CHARTS} - {*_LINES}, *_COLUMNS, *(name for name, _ in OURS.values())}:
        try:
            metric_of(name, unlisted=False)
        except ConfigError:
            missing.append(name)
    assert missing == [] and {"rms_spikes", "latency_p90_s"} <= {name for name, value in made.items() if value is not None}
    plain = {metric.name for metric in REGISTRY if "<" not in metric.name}
    cost = costs(Price(per_hour=1, per="node", units=1), {"throughput": 2.0, "throughput_low": 1.0, "throughput_high": 3.0})
    # nothing registered that nobody makes
    assert plain == {name for name in (*NAMES, *device_state.NAMES, *cost) if not name.startswith("eval_")}


def _asked_for(sections: dict) -> list[str]:  # type: ignore[type-arg]
    report = sections.get("report") or {}
    return [report.get("metric", "throughput"), *(figure["metric"] for figure in report.get("figures", []))]


@pytest.mark.parametrize("path", sorted((ROOT / "experiments" / "suites").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_metric_of_a_suite_is_registered(path: Path) -> None:
    suite = load(path).data
    for sections in (suite, *suite.get("profiles", {}).values()):
        asked = _asked_for(sections)
        assert all(metric_of(name, unlisted=False).name == name for name in asked)
        assert metric_of(asked[0]).direction is not NEITHER


@pytest.mark.parametrize("path", sorted((ROOT / "experiments" / "nightly").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_metric_of_a_night_is_registered(path: Path) -> None:
    night = load(path).data
    for entry in [*night["cells"], *filter(None, [night.get("canary")])]:
        for name in [*entry.get("metrics", []), *entry.get("minimum_effect", {})]:
            assert metric_of(name, unlisted=False).direction is not NEITHER


def test_nights_judge_what_has_a_direction_and_a_relative_effect() -> None:
    assert all(metric is metric_of(name) for name, metric in METRICS.items())
    assert all(metric.scale is LOG and metric.direction is not NEITHER for metric in METRICS.values())


def test_what_the_model_has_learnt_depends_on_the_seed_and_what_it_costs_does_not() -> None:
    learnt = (
        "final_loss",
        "eval_loss_after",
        "eval_accuracy_after",
        "eval_recall_at_5_after",
        "eval_magnitude_3_after",
        "eval_my_own_after",
    )
    assert all(metric_of(name).depends_on_seed for name in (*learnt, "loss_spikes", "rms_spikes", "loss_spikes_explained"))
    costs = ("throughput", "latency_p50_s", "peak_memory_bytes", "eval_corrupt_rows_after", "eval_quantise_share_after", "mean_power_w")
    assert not any(metric_of(name).depends_on_seed for name in costs)


def test_every_entry_is_whole_and_stands_once() -> None:
    assert len({metric.name for metric in REGISTRY}) == len(REGISTRY)
    for metric in REGISTRY:
        assert "\n" not in metric.description and "|" not in metric.description and metric.description
        assert 0 < metric.minimum_effect < 1 if metric.scale is not COUNT else metric.minimum_effect == 1
        assert (metric.scale is COUNT) <= (metric.kind is Kind.COUNT)
    assert len(set(names())) == len(names()) and all(metric_of(name, unlisted=False).name == name for name in names())


def test_the_registry_imports_nothing_slow() -> None:
    slow = ("numpy", "scipy", "torch", "pydantic", "yaml")
    code = f"import sys, experiments.metrics; print([name for name in {slow!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout == "[]\n"
