"""What only a GPU can show of FLAVA's passes together: the host waits for nothing, and replayed steps learn what launched ones do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.devices.cuda import open_device
from cluster.worker.train.train_step import TrainStep
from experiments.components.workload import Batch, Context
from experiments.datasets import scenes
from experiments.trial import DataSource
from experiments.workloads import flava
from experiments.workloads.flava.batches import KINDS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # compile in this process: none is left behind
ROUND = len(KINDS)
WARM_UP = 2 * ROUND  # steps: what is set up or compiled once, for each kind
UNUSED = {"image": ("text_model", "multimodal_model"), "text": ("image_model", "multimodal_model"), "pair": ()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    root: Path = tmp_path_factory.mktemp("scenes")
    scenes.build(root, rows=64, validation_rows=32, seed=0, max_size=160)
    return DataSource(uri=str(root), fingerprint="f", tokenizer=str(root / "tokenizer"))


def made(data: DataSource, count: int, **values: Any) -> tuple[TrainStep, list[Batch]]:
    """A train step of the tiny model in bf16, and `count` batches on the host, as many of each kind."""
    torch.compiler.reset()
    # more than 3072 tokens in a step of texts: torch computes an embedding's gradient in another way from there
    settings: dict[str, Any] = {"batch_size": 8, "text_length": 32, "long_text_length": 512, "kinds": "balanced", "dataloader_workers": 0}
    settings |= {"attention": "sdpa", "precision": "bf16", "optimizer": "fused", "learning_rate": 1e-4, "learning_rate_warmup": 0}
    parameters = flava.Parameters(**{**settings, "steps": count, "warmup_steps": 1, **values})
    device = open_device(0)
    device.set_precision("bf16")
    one = flava.build(Context(parameters, data, "cuda", 0, 1, 8))
    torch.manual_seed(0)
    step = TrainStep(one, one.model(), parameters, device)
    return step, list(islice(one.batches(), count))


@contextmanager
def waits_refused() -> Iterator[None]:
    """Within this, what would have the host wait for the device raises RuntimeError, as far as torch knows it."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"block_weights": "bf16"},
        {"block_weights": "bf16", "compile": "layer"},
        {"block_weights": "bf16", "cuda_graph": True},
    ],
    ids=["eager", "bf16", "compiled", "recorded"],
)
def test_the_host_waits_for_nothing_in_a_step(values: dict[str, Any], data: DataSource) -> None:
    before = 3 * ROUND if values.get("cuda_graph") else WARM_UP  # a recording waits
    step, batches = made(data, before + ROUND, passes="together", **values)
    for number, batch in enumerate(batches[:before], start=1):
        step.forward_backward(step.place(batch))
        step.update(number)
    kinds, losses = [], []
    with waits_refused():
        for number, batch in enumerate(batches[before:], start=before + 1):
            kinds.append(step.step_kind(batch))
            losses.append(step.forward_backward(step.place(batch)))
            step.update(number)
    assert set(kinds) == set(KINDS) and all(0 < float(loss) < 50 for loss in losses)


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_own_losses_do_wait(kind: str, data: DataSource) -> None:
    step, batches = made(data, WARM_UP, passes="apart")
    for number, batch in enumerate(batches[:ROUND], start=1):
        step.forward_backward(step.place(batch))
        step.update(number)
    (batch,) = [batch for batch in batches[ROUND:] if step.step_kind(batch) == kind]
    placed = step.place(batch)
    with waits_refused(), pytest.raises(RuntimeError, match="synchronizing CUDA operation"):
        step.forward_backward(placed)


@pytest.mark.parametrize("values", [{}, {"block_weights": "bf16", "compile": "layer"}], ids=["fp32", "bf16"])
def test_replayed_steps_of_three_kinds_learn_what_launched_ones_do(values: dict[str, Any], data: DataSource) -> None:
    losses: list[list[float]] = []
    for recorded in (False, True):
        step, batches = made(data, 5 * ROUND, passes="together", cuda_graph=recorded, **values)
        names = [name for name, parameter in step.plain.named_parameters() if parameter.requires_grad]  # in the order of `trained`
        found = []
        for number, batch in enumerate(batches, start=1):
            unused = tuple(f"flava.{tower}." for tower in UNUSED[str(step.step_kind(batch))])
            left = [one for name, one in zip(names, step.trained, strict=True) if name.startswith(unused)]
            before = [one.detach().clone() for one in left]
            found.append(float(step.forward_backward(step.place(batch))))
            step.update(number)
            assert all(torch.equal(one, old) for one, old in zip(left, before, strict=True)), f"step {number}"
        assert step.launched == (2 * ROUND if recorded else 0)
        losses.append(found)
    plain, replayed = losses
    assert len({round(loss, 9) for loss in replayed}) == 5 * ROUND  # each replay reads its own batch
    assert replayed == pytest.approx(plain, rel=0.02)
