"""Replicas, shards and one process alone learn the same: real ranks over gloo, all strategies in one launch of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.worker.train import parallel
from experiments.datasets import scenes, texts
from experiments.workloads import synthetic

ROOT = Path(__file__).parents[4]
EXTRA = ROOT / "tests" / "workloads_for_tests"
STEPS = 6
# Relative, per step. What differs is the order in which fp32 gradients are added; measured here: 1.1e-7 over these steps
TOLERANCE = 1e-5
SYNTHETIC: dict[str, Any] = {"workload": "synthetic", "width": 32, "depth": 3, "batch_size": 8, "learning_rate": 0.01, "weight_decay": 0.1}
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {},
    "fsdp1": {"parallel": "fsdp1"},
    "fsdp1, gathers not limited, kept": {"parallel": "fsdp1", "limit_all_gathers": False, "fsdp_reshard": False},
    "fsdp2": {"parallel": "fsdp2", "build_on": "host"},
    "fsdp2, checkpointing": {"parallel": "fsdp2", "activation_checkpointing": True},
    "fsdp2, one unit, kept": {"parallel": "fsdp2", "fsdp_units": "root", "fsdp_reshard": False},
}
# all three kinds of batch, parameters without gradient, a scalar parameter, a frozen part, one module called twice in a step
FLAVA: dict[str, Any] = {
    "workload": "flava",
    "batch_size": 2,
    "text_length": 16,
    "long_text_length": 24,
    "evaluation_batch_size": 4,
    "evaluation_samples": 4,
    "learning_rate_warmup": 0,
    "seed": 7,
}
FLAVA_STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp, zeros": {"zeros": True},
    "fsdp1": {"parallel": "fsdp1"},
    "fsdp2": {"parallel": "fsdp2"},
    "fsdp1, passes together": {"parallel": "fsdp1", "passes": "together", "attention": "sdpa"},
    "fsdp2, passes together": {"parallel": "fsdp2", "passes": "together", "attention": "sdpa"},
    "fsdp2, passes together, checkpointing": {"parallel": "fsdp2", "passes": "together", "activation_checkpointing": True},
}
# the documents' models against one process that sees both ranks' rows as one batch
VIT: dict[str, Any] = {"workload": "vit", "batch_size": 4}
ALIKE: dict[str, Any] = {**FLAVA, "workload": "flava_alike"}
REAL: dict[str, dict[str, Any]] = {
    "vit, ddp": VIT,
    "vit, fsdp1": {**VIT, "parallel": "fsdp1"},
    "vit, fsdp2": {**VIT, "parallel": "fsdp2"},
    "vit, fsdp2, checkpointing": {**VIT, "parallel": "fsdp2", "activation_checkpointing": True},
    "flava_alike, ddp": ALIKE,
    "flava_alike, fsdp2": {**ALIKE, "parallel": "fsdp2"},
    "flava_alike, fsdp2, checkpointing": {**ALIKE, "parallel": "fsdp2", "activation_checkpointing": True},
    "flava_alike, fsdp2, selective": {**ALIKE, "parallel": "fsdp2", "activation_checkpointing": "selective"},
}
# embeddings shared by encoder, decoder and head; a position bias that the first layer hands to the others
TEXT: dict[str, Any] = {"batch_size": 2, "evaluation_batch_size": 4, "evaluation_samples": 4, "learning_rate": 1e-3}
T5: dict[str, Any] = {"workload": "t5", "source_length": 24, "target_length": 8, **TEXT}
BERT: dict[str, Any] = {"workload": "bert", "sequence_length": 24, **TEXT}
TEXT_CASES: dict[str, dict[str, Any]] = {
    "t5, ddp": T5,
    "t5, fsdp1": {**T5, "parallel": "fsdp1"},
    "t5, fsdp2": {**T5, "parallel": "fsdp2"},
    "t5, fsdp2, checkpointing": {**T5, "parallel": "fsdp2", "activation_checkpointing": True},
    "bert, ddp": BERT,
    "bert, fsdp2, checkpointing": {**BERT, "parallel": "fsdp2", "activation_checkpointing": True},
}
CLIPPED = {"clip_grad_norm": 0.05}
ACCUMULATED: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp, copied buckets": {"ddp_bucket_view": False},
    "fsdp1": {"parallel": "fsdp1"},
    "fsdp2": {"parallel": "fsdp2"},
    "fsdp2, checkpointing, kept": {"parallel": "fsdp2", "activation_checkpointing": True, "fsdp_reshard": False},
}
STABLE = {"update_rule": "stable_adamw", "rms_tensors": "*"}

RANKS = """
import importlib, json, os, sys, threading, traceback
import torch
import torch.distributed as dist
from cluster.devices.cpu import Cpu
from cluster.worker.train.choose_engine import choose_engine
from cluster.worker.train.train_step import TrainStep
from experiments import workloads
from experiments.trial import DataSource
from experiments.components.workload import Context

torch.set_num_threads(1)


def learn(rank, world, steps, store, out, asked):
    if world > 1:
        dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    found = {}
    for name, values in asked.items():
        module = workloads.load(values.pop("workload"))
        folder, zeros = values.pop("data", None), values.pop("zeros", False)
        data = folder and DataSource(uri=folder, fingerprint="f", tokenizer=folder + "/tokenizer")
        parameters = module.Parameters.model_validate({"warmup_steps": 1, "steps": steps, **values})
        workload = module.build(Context(parameters, data, "cpu", rank, world, parameters.batch_size))
        torch.manual_seed(0)
        device = Cpu()
        train_step = TrainStep(workload, workload.model(), parameters, device, choose_engine(parameters, device, world))
        cached = []
        watch = train_step.plain.register_forward_pre_hook(lambda *_: cached.append(torch.is_autocast_cache_enabled()))
        batches, losses, rms = workload.batches(), [], []
        for step in range(1, steps + 1):
            parts = [train_step.place(next(batches)) for _ in range(parameters.accumulation_steps)]
            loss = train_step.forward_backward(*parts)
            if zeros:
                seen = set()
                for unit in (*workload.shard_units(train_step.plain), train_step.plain):
                    own = [p for p in unit.parameters() if id(p) not in seen and p.requires_grad]
                    seen |= {id(p) for p in own}
                    for p in own if any(q.grad is not None for q in own) else []:
                        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            train_step.update(step)
            rms += train_step.diagnostics(step).values()
            if world > 1:
                dist.all_reduce(loss, dist.ReduceOp.SUM)
            losses.append(float(loss) / world)
        held = sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel() for p in train_step.model.parameters())
        watch.remove()
        apart = 0.0
        for p in train_step.trained if world > 1 and parameters.parallel == "ddp" else []:
            most, least = p.detach().clone(), p.detach().clone()
            dist.all_reduce(most, dist.ReduceOp.MAX)
            dist.all_reduce(least, dist.ReduceOp.MIN)
            apart = max(apart, float((most - least).max()))
        found[name] = {"losses": losses, "after": train_step.evaluate()["loss"], "held": held, "rms": rms, "cached": sorted(set(cached))}
        found[name]["apart"] = apart
    if rank == 0:
        open(out, "w").write(json.dumps(found))
    if world > 1:
        dist.destroy_process_group()


steps, launches, imported = json.loads(sys.stdin.read())
for name in imported:
    importlib.import_module(name)
assert threading.active_count() == 1
running = set()
for world, *given in launches:
    for rank in range(world):
        child = os.fork()
        if child == 0:
            try:
                learn(rank, world, steps, *given)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        running.add(child)
while running:
    child, status = os.wait()
    running.remove(child)
    if status:
        sys.exit(1)  # the others would wait for it
"""
# What they import, once: each would else take 9 s of CPU time for it
IMPORTED = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    *(f"transformers.models.{name}.modeling_{name}" for name in ("bert", "flava", "t5")),
)

Found = dict[str, dict[str, Any]]  # by case: loss by step (mean over ranks), loss afterwards, parameters held by rank 0, and more


def learn(folder: Path, worlds: dict[int, Found]) -> dict[int, Found]:
    """What the cases of each number of ranks give: all of them in the same ranks, which are forked from one process."""
    launches = [(world, str(folder / f"store-{world}"), str(folder / f"found-{world}.json"), cases) for world, cases in worlds.items()]
    with subprocess.Popen(
        [sys.executable, "-c", RANKS],
        cwd=ROOT,
        env={**os.environ, "SWEEPBENCH_EXTRA": str(EXTRA)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        try:
            _, errors = parent.communicate(json.dumps([STEPS, launches, IMPORTED]), timeout=500)
        finally:
            with suppress(ProcessLookupError):  # all have ended
                os.killpg(parent.pid, signal.SIGKILL)
    assert parent.returncode == 0, errors[-3000:]
    return {world: json.loads(Path(out).read_text()) for world, _, out, _ in launches}


def cases_together(drawn: str, written: str) -> Found:
    cases = {name: {**SYNTHETIC, **values} for name, values in STRATEGIES.items()}
    cases |= {f"flava, {name}": {**FLAVA, "data": drawn, **values} for name, values in FLAVA_STRATEGIES.items()}
    cases |= {name: {**values, "data": drawn} for name, values in REAL.items()}
    cases |= {name: {**values, "data": written} for name, values in TEXT_CASES.items()}
    cases |= {f"clipped, {name}": {**SYNTHETIC, **CLIPPED, "parallel": name} for name in ("ddp", "fsdp1", "fsdp2")}
    cases["stable"] = {**SYNTHETIC, **STABLE}
    halves = {**SYNTHETIC, **CLIPPED, "batch_size": 4, "accumulation_steps": 2}
    cases |= {f"accumulated, {name}": {**halves, **values} for name, values in ACCUMULATED.items()}
    thirds = {**FLAVA, "data": drawn, "accumulation_steps": 3, "kinds": "balanced"}
    return cases | {f"flava accumulated, {name}": {**thirds, "parallel": name} for name in ("ddp", "fsdp1")}


def cases_alone(drawn: str) -> Found:
    """Of one process that sees both ranks' batches as one."""
    both = {**SYNTHETIC, "batch_size": 16}
    real = {"vit": {**VIT, "batch_size": 8}, "flava_alike": {**ALIKE, "batch_size": 4}}
    cases = {"plain": both, "clipped": {**both, **CLIPPED}, "stable": {**both, **STABLE}}
    return cases | {name: {**values, "data": drawn} for name, values in real.items()}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Found]:
    drawn, written = tmp_path_factory.mktemp("drawn"), tmp_path_factory.mktemp("written")
    scenes.build(drawn, rows=64, validation_rows=64, seed=0, max_size=128)
    texts.build(written, rows=32, validation_rows=8, seed=0)
    return learn(tmp_path_factory.mktemp("learnt"), {2: cases_together(str(drawn), str(written)), 1: cases_alone(str(drawn))})


@pytest.fixture(scope="module")
def together(learnt: dict[int, Found]) -> Found:
    return learnt[2]


@pytest.fixture(scope="module")
def alone(learnt: dict[int, Found]) -> Found:
    return learnt[1]


@pytest.mark.parametrize("name", STRATEGIES)
def test_each_strategy_learns_what_one_process_does(name: str, together: dict[str, Any], alone: dict[str, Any]) -> None:
    assert together[name]["losses"] == pytest.approx(alone["plain"]["losses"], rel=TOLERANCE)
    assert together[name]["after"] == pytest.approx(alone["plain"]["after"], rel=TOLERANCE)


@pytest.mark.parametrize("name", REAL)
def test_the_documents_models_learn_what_one_process_does(name: str, together: dict[str, Any], alone: dict[str, Any]) -> None:
    reference = alone[name.split(",", maxsplit=1)[0]]
    assert together[name]["losses"] == pytest.approx(reference["losses"], rel=10 * TOLERANCE)
    assert together[name]["after"] == pytest.approx(reference["after"], rel=10 * TOLERANCE)
    assert together[name]["held"] <= (1.0 if name.endswith("ddp") else 0.55) * reference["held"]


@pytest.mark.parametrize("name", list(FLAVA_STRATEGIES)[2:])
def test_flava_learns_the_same_sharded_as_replicated(name: str, together: dict[str, Any]) -> None:
    """One process alone is no reference here: the means over masked tokens and matching pairs are taken on each rank.

    FSDP1 gives a parameter that a step did not use a gradient of 0 where something else of its unit was used; elsewhere it has none, and
    AdamW leaves it alone. So FSDP1 is compared with replicas whose gradients are filled up in that way.
    """
    reference = together["flava, ddp, zeros" if name.startswith("fsdp1") else "flava, ddp"]
    assert together[f"flava, {name}"]["losses"] == pytest.approx(reference["losses"], rel=10 * TOLERANCE)
    assert together[f"flava, {name}"]["after"] == pytest.approx(reference["after"], rel=10 * TOLERANCE)
    assert together["flava, ddp"]["losses"][0] != pytest.approx(together["flava, ddp"]["losses"][-1], rel=0.01)


@pytest.mark.parametrize("name", [name for name in TEXT_CASES if "fsdp" in name])
def test_t5_and_bert_learn_the_same_sharded_as_replicated(name: str, together: dict[str, Any]) -> None:
    reference = together[f"{name.split(',', maxsplit=1)[0]}, ddp"]
    assert together[name]["losses"] == pytest.approx(reference["losses"], rel=10 * TOLERANCE)
    assert together[name]["after"] == pytest.approx(reference["after"], rel=10 * TOLERANCE)
    assert together[name]["held"] <= 0.55 * reference["held"]


@pytest.mark.parametrize("name", ["ddp", "fsdp1", "fsdp2"])
def test_gradients_are_clipped_by_their_norm_over_all_shards(name: str, together: dict[str, Any], alone: dict[str, Any]) -> None:
    assert together[f"clipped, {name}"]["losses"] == pytest.approx(alone["clipped"]["losses"], rel=TOLERANCE)
    assert alone["clipped"]["losses"][-1] != pytest.approx(alone["plain"]["losses"][-1], rel=100 * TOLERANCE), "clipping did something"


@pytest.mark.parametrize("name", ACCUMULATED)
def test_micro_batches_of_several_ranks_learn_what_large_batches_do(name: str, together: dict[str, Any], alone: dict[str, Any]) -> None:
    """The ranks' rows of a step come in another order than in one large batch; gradients are their mean."""
    assert together[f"accumulated, {name}"]["losses"] == pytest.approx(alone["clipped"]["losses"], rel=TOLERANCE)
    assert together[f"accumulated, {name}"]["after"] == pytest.approx(alone["clipped"]["after"], rel=TOLERANCE)


def test_micro_batches_of_different_kinds_leave_no_rank_with_gradients_of_its_own(together: dict[str, Any]) -> None:
    """A step has one micro-batch of each kind, and uses parameters that its last one does not, at which FSDP1 would fail."""
    replicas, shards = (together[f"flava accumulated, {name}"] for name in ("ddp", "fsdp1"))
    assert shards["losses"] == pytest.approx(replicas["losses"], rel=10 * TOLERANCE)
    assert replicas["apart"] == together["accumulated, ddp"]["apart"] == 0.0


@pytest.mark.parametrize("limited", [True, False])
def test_fsdp1_is_told_whether_to_limit_its_gathers(limited: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr("torch.distributed.fsdp.FullyShardedDataParallel", lambda model, **named: told.update(named))
    parameters = synthetic.Parameters(devices=2, parallel="fsdp1", limit_all_gathers=limited, fsdp_reshard=False, fsdp_reduce="bf16")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    parallel.distribute(model, parameters, torch.device("cpu"), find_unused=False, units=list(model))
    assert told["limit_all_gathers"] is limited
    assert told["sharding_strategy"].name == "SHARD_GRAD_OP" and told["mixed_precision"].reduce_dtype is torch.bfloat16
    assert told["mixed_precision"].param_dtype is None, "gathered in fp32, computed under autocast: as in the original"


def test_replicas_learn_by_stable_adamw_what_one_process_does_and_see_the_same_rms(together: dict[str, Any], alone: dict[str, Any]) -> None:
    assert together["stable"]["losses"] == pytest.approx(alone["stable"]["losses"], rel=TOLERANCE)
    assert together["stable"]["rms"] == pytest.approx(alone["stable"]["rms"], rel=1e-3) and max(alone["stable"]["rms"]) > 0.5


def test_a_checkpointed_layer_of_a_shard_leaves_no_copy_in_autocasts_cache(together: dict[str, Any]) -> None:
    """It would keep half of the whole model on every device, of layers whose gathered parameters were freed."""
    assert together["flava_alike, fsdp2, checkpointing"]["cached"] == [False]
    assert together["flava_alike, fsdp2"]["cached"] == together["flava_alike, ddp"]["cached"] == [True]


def test_shards_are_shards(together: dict[str, Any]) -> None:
    whole = together["ddp"]["held"]
    for name in ("fsdp2", "fsdp2, checkpointing", "fsdp2, one unit, kept", "fsdp1"):
        assert together[name]["held"] <= 0.55 * whole, name


def test_a_static_graph_has_no_micro_batches() -> None:
    values = {"devices": 2, "ddp_static_graph": True}
    assert "ddp_static_graph: " in str(parallel.why_not(synthetic.Parameters(**values, accumulation_steps=2)))
    assert parallel.why_not(synthetic.Parameters(**values)) is None
    assert parallel.why_not(synthetic.Parameters(**{**values, "devices": 1}, accumulation_steps=2)) is None


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"fsdp_compute": "fp16", "precision": "fp16", "devices": 1}, "several devices"),
        ({"compile": "model"}, "compile layer"),
        ({"hpu_graphs": True}, "hpu_graphs"),
        ({"engine": "optimum_habana"}, "engine native"),
    ],
)
def test_what_does_not_go_with_shards_is_said(values: dict[str, Any], why: str) -> None:
    assert why in str(parallel.why_not(synthetic.Parameters(**{"parallel": "fsdp2", "devices": 2, **values})))
    assert parallel.why_not(synthetic.Parameters(**{**values, "fsdp_compute": "fp32", "devices": 2})) is None
