"""BridgeTower inference: nothing is trained, the output is the golden one, and a trial through the measured loop has its latencies."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from cluster.journal.journal import Journal, JournalWriter, read_journal
from cluster.pools.pool import load_pools
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.set_up import SessionContext
from cluster.worker.trial_session import TrialSession
from experiments.components.layers.projections import BatchProjection
from experiments.components.workload import Context
from experiments.datasets import scenes
from experiments.metric import Direction
from experiments.metrics import metric_of
from experiments.spec.load import load_suite
from experiments.spec.matrix import expand
from experiments.summary import summarise
from experiments.trial import DataSource
from experiments.workloads import bridgetower, bridgetower_inference
from tests.trial_support import cpu_trial

pytestmark = pytest.mark.usefixtures("one_thread")

SHORT: dict[str, Any] = {"model": "tiny", "text_length": 24, "batch_size": 8, "steps": 20, "warmup_steps": 2, "threads": 1}
GOLDEN = [0.11165, 0.11584, 0.10906, 0.11023]  # mean projection of the embeddings of the first batches, fp32


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=64, validation_rows=32, seed=0, max_size=160)
    return DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))


def run(folder: Path, data: DataSource, **parameters: Any) -> tuple[SessionContext, Journal]:
    values = bridgetower_inference.Parameters(**{**SHORT, **parameters}).model_dump(mode="json")
    trial = cpu_trial("bridgetower_inference", values, data)
    folder.mkdir(exist_ok=True)
    with Recorder(JournalWriter(folder / "journal.jsonl", 1)) as recorder:
        context = TrialSession(trial, Ranks(), recorder, folder).run()
    return context, read_journal(folder / "journal.jsonl")


def test_a_trial_infers_and_does_not_train(tmp_path: Path, data: DataSource) -> None:
    context, journal = run(tmp_path, data, evaluate=True, evaluation_samples=32)
    train_step = context.train_step
    assert train_step.optimizer is None and not train_step.plain.training
    assert all(parameter.grad is None for parameter in train_step.plain.parameters())
    untouched = bridgetower.build(Context(bridgetower.Parameters(model="tiny"), data, "cpu", 0, 1, 8)).model()
    for name, value in untouched.state_dict().items():
        assert torch.equal(train_step.plain.state_dict()[name], value), name
    assert [evaluation["when"] for evaluation in journal.evaluations] == ["before"], "nothing was learnt in between"

    losses = [step["loss"] for step in journal.steps]
    assert losses[:4] == pytest.approx(GOLDEN, abs=1e-4)
    steps = [step for step in journal.steps if step["measured"]]
    assert len(steps) == 20 and statistics.median(step["optimizer_s"] / step["total_s"] for step in steps) < 0.01, "there is no update"

    window = journal.window
    assert window is not None and window["trains"] is False
    trained = bridgetower.build(Context(bridgetower.Parameters(model="tiny", text_length=24), data, "cpu", 0, 1, 8)).flops_per_sample()
    assert trained is not None and window["flops_per_sample"] == pytest.approx(trained / 3)
    summary = summarise(journal.steps, window, journal.evaluations)
    waited = sorted(step["h2d_s"] + step["forward_backward_s"] + step["optimizer_s"] for step in steps)
    p50, p90 = (float(summary[f"service_time_p{rank}_s"] or 0) for rank in (50, 90))
    assert waited[0] <= p50 <= p90 <= waited[-1] * (1 + 1e-6)
    assert summary["latency_p50_s"] is None, "batches follow each other"
    assert p50 == pytest.approx((waited[9] + waited[10]) / 2, rel=1e-6)
    assert summary["throughput"] == pytest.approx(20 * 8 / window["wall_s"])
    metric = metric_of("latency_p99_s")
    assert (metric.unit, metric.direction, metric.depends_on_batch) == ("s", Direction.LOWER, True)


def test_the_output_has_the_golden_shape_and_no_gradient(data: DataSource) -> None:
    parameters = bridgetower_inference.Parameters(**SHORT)
    one = bridgetower_inference.build(Context(parameters, data, "cpu", 0, 1, 8))
    model = one.model()
    seen: list[Any] = []
    model.register_forward_hook(lambda module, arguments, output: seen.append(output))
    batch = next(one.batches())
    with torch.inference_mode():
        first, second = one.loss(model, batch), one.loss(model, batch)
    assert not model.training and first == second, "no dropout"
    assert seen[0].loss is None and not seen[0].text_embeds.requires_grad
    assert seen[0].text_embeds.shape == seen[0].image_embeds.shape == seen[0].cross_embeds.shape == (8, 64)
    assert seen[0].text_embeds.norm(dim=-1) == pytest.approx(torch.ones(8))
    three = torch.cat([seen[0].text_embeds, seen[0].image_embeds, seen[0].cross_embeds], dim=-1)
    assert float(first) == pytest.approx(float(BatchProjection()(three)), abs=1e-6)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_bf16_weights_give_nearly_what_fp32_gives(tmp_path: Path, data: DataSource, attention: str) -> None:
    few: dict[str, Any] = {"steps": 2, "warmup_steps": 1, "attention": attention}
    losses = {}
    for name, changes in {
        "fp32": {},
        "cast": {"precision": "bf16"},
        "autocast": {"precision": "bf16", "cast_weights": False},
    }.items():
        context, journal = run(tmp_path / name, data, **few, **changes)
        kinds = {parameter.dtype for parameter in context.train_step.plain.parameters()}
        assert kinds == {torch.bfloat16 if name == "cast" else torch.float32}
        losses[name] = [step["loss"] for step in journal.steps]
    for name in ("cast", "autocast"):
        assert losses[name] != losses["fp32"] and losses[name] == pytest.approx(losses["fp32"], rel=0.01)


def test_compiled_layers_run_in_inference_mode(tmp_path: Path, data: DataSource) -> None:
    with torch.compiler.set_stance("force_eager"):  # what matters here is the path, not the compiler
        _, journal = run(tmp_path, data, compile="layer", steps=2, warmup_steps=1)
    assert len(journal.steps) == 3


def test_a_latency_is_of_one_batch_at_a_time(tmp_path: Path, data: DataSource) -> None:
    _, journal = run(tmp_path, data, execution="synchronous", steps=3, warmup_steps=1)
    window = journal.window
    assert window is not None and window["execution"] == "synchronous"
    assert journal.environment["clock"] == "host perf_counter, one batch at a time"
    summary = summarise(journal.steps, window)
    steps = sorted(step["total_s"] - step["data_wait_s"] for step in journal.steps if step["measured"])
    assert summary["latency_p50_s"] == pytest.approx(steps[1]) and summary["service_time_p50_s"] is None
    assert [step["loss"] for step in journal.steps] == pytest.approx(GOLDEN, abs=1e-4), "the same batches, computed the same"
    with pytest.raises(ValidationError, match="prefetch_to_device has no effect where execution is synchronous"):
        bridgetower_inference.Parameters(execution="synchronous", prefetch_to_device=True)


@pytest.mark.parametrize(
    ("changes", "default"),
    [
        ({"optimizer": "fused"}, "foreach"),
        ({"update_rule": "stable_adamw"}, "adamw"),
        ({"learning_rate": 0.1}, "1e-05"),
        ({"learning_rate_warmup": 1}, "0"),
        ({"adam_eps": 1e-6}, "1e-08"),
        ({"clip_grad_norm": 1.0}, "null"),
        ({"rms_tensors": "*"}, "null"),
        ({"activation_checkpointing": True}, "false"),
        ({"accumulation_steps": 2}, "1"),
        ({"dropout": 0.5}, "null"),
        ({"parallel": "fsdp2"}, "ddp"),
        ({"ddp": "fast"}, "stock"),
        ({"ddp_bucket_view": False}, "true"),
        ({"ddp_static_graph": True}, "false"),
    ],
)
def test_settings_of_training_are_refused(changes: dict[str, Any], default: str) -> None:
    with pytest.raises(ValidationError, match=f"{next(iter(changes))} has no effect: nothing is trained here; leave it at {default}"):
        bridgetower_inference.Parameters(**changes)
    with pytest.raises(ValidationError, match="40 hex digits"):
        bridgetower_inference.Parameters(weights="BridgeTower/bridgetower-base")


@pytest.mark.parametrize(("profile", "pool", "count"), [("full", None, 64), ("smoke", None, 4), ("gpu", "cuda", 24)])
def test_the_suite_is_valid_in_every_profile(profile: str, pool: str | None, count: int) -> None:
    suite = load_suite("bridgetower_inference", profile=profile, pools=load_pools(), pool_names=[pool] if pool else None)
    assert len(expand(suite)) == count
    assert suite.report.metric == "latency_p50_s"
    assert {(cell.parameters["execution"], cell.parameters["steps"]) for cell in expand(suite)} == {
        ("synchronous", 40 if profile == "smoke" else 1000)
    }
    graphed = [cell.parameters["batch_size"] for cell in expand(suite) if cell.parameters["compile_mode"] == "reduce-overhead"]
    assert graphed == ([1, 8] if profile == "gpu" else [])
