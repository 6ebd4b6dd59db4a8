"""A whole step as a CUDA graph learns what launched steps learn. `make test-gpu` runs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.devices.cuda import open_device
from cluster.worker.train.train_step import TrainStep
from experiments import workloads
from experiments.components.workload import Context
from experiments.datasets import scenes
from experiments.trial import DataSource

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # compile in this process: none is left behind


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    root: Path = tmp_path_factory.mktemp("scenes")
    scenes.build(root, rows=64, validation_rows=32, seed=0, max_size=160)
    return DataSource(uri=str(root), fingerprint="f", tokenizer=str(root / "tokenizer"))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("bridgetower", {"text_length": 16, "attention": "sdpa", "precision": "bf16"}),
        ("bridgetower", {"text_length": 16, "attention": "sdpa", "precision": "fp16", "compile": "layer"}),
        ("bridgetower", {"text_length": 16, "attention": "sdpa", "precision": "fp8", "kernels": "fused", "compile": "layer"}),
        (
            "bridgetower",
            {
                "text_length": 16,
                "attention": "sdpa",
                "precision": "bf16",
                "block_weights": "bf16",
                "compile": "layer",
                "optimizer": "fused",
            },
        ),
        (
            "bridgetower",
            {"text_length": 16, "attention": "sdpa", "precision": "fp8", "kernels": "fused", "block_weights": "bf16", "compile": "layer"},
        ),
        ("clip", {"model": "tiny", "precision": "bf16", "block_weights": "linear_bf16"}),
        ("clip", {"model": "tiny", "precision": "bf16"}),
        ("vit", {"model": "tiny", "precision": "bf16", "attention": "sdpa", "optimizer": "fused"}),
        ("bridgetower_inference", {"text_length": 16, "attention": "sdpa", "precision": "bf16"}),
    ],
)
def test_a_replayed_step_is_a_launched_one(name: str, values: dict[str, Any], data: DataSource) -> None:
    losses: list[list[float]] = []
    for recorded in (False, True):
        torch.compiler.reset()
        module = workloads.load(name)
        parameters = module.Parameters(**{"batch_size": 4, "steps": 12, "learning_rate": 1e-4, **values, "cuda_graph": recorded})
        device = open_device(0)
        device.set_precision(parameters.precision)
        one = module.build(Context(parameters, data, "cuda", 0, 1, 4))
        torch.manual_seed(0)
        step = TrainStep(one, one.model(), parameters, device)
        torch.manual_seed(0)
        batches = iter(one.batches())
        found = []
        for number in range(1, 11):
            found.append(step.forward_backward(step.place(next(batches))))
            step.update(number)
        losses.append([float(loss) for loss in found])
        assert step.launched == (2 if recorded else 0)
    plain, replayed = losses
    assert len({round(loss, 9) for loss in replayed}) == 10  # each replay reads its own batch
    assert replayed == pytest.approx(plain, rel=0.02)


def test_steps_after_the_graphs_are_left_out_learn_the_same_and_their_memory_is_free(data: DataSource) -> None:
    module = workloads.load("vit")
    weights: list[torch.Tensor] = []
    for recorded in (False, True):
        values = {"model": "tiny", "precision": "bf16", "attention": "sdpa", "optimizer": "fused", "batch_size": 4, "steps": 12}
        parameters = module.Parameters(**values, learning_rate=1e-2, cuda_graph=recorded)
        device = open_device(0)
        one = module.build(Context(parameters, data, "cuda", 0, 1, 4))
        torch.manual_seed(0)
        step = TrainStep(one, one.model(), parameters, device)
        torch.manual_seed(0)
        batches = iter(one.batches())
        for number in range(1, 11):
            if number == 5:
                device.synchronize()
                held = torch.cuda.memory_reserved()
                step.leave_graphs_out()
                device.release_memory()
                assert not recorded or torch.cuda.memory_reserved() < held, "the graph had memory of its own"
            step.forward_backward(step.place(next(batches)))
            step.update(number)
        weights.append(torch.cat([value.detach().flatten() for value in step.plain.parameters()]).cpu())
        assert step.launched == (2 + 6 if recorded else 0)
    torch.manual_seed(0)
    first = torch.cat([value.detach().flatten() for value in one.model().parameters()])
    assert (weights[1] - weights[0]).norm() < 0.05 * (weights[0] - first).norm(), "of how far they went"
