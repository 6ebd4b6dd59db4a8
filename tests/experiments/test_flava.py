"""FLAVA: the published sizes, its FLOPs, golden losses of the three kinds of batch, its masks and its suite."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.pools import load_pools
from experiments import scenes
from experiments.matrix import expand
from experiments.suite import load_suite
from experiments.trial import DataSource
from experiments.workloads import flava
from experiments.workloads._masking import IGNORED, mask_blocks, mask_tokens
from experiments.workloads._protocol import Context

PUBLISHED = {
    "350m": 357_645_303,
    "900m": 933_785_335,
    "1.8b": 1_786_520_567,
    "2.7b": 2_754_991_223,
    "4.8b": 4_869_660_535,
    "10b": 10_192_950_007,
}
GOLDEN_KINDS = ["pair", "image", "text"]
GOLDEN = [13.78418, 4.18873, 8.36283]
SHORT: dict[str, Any] = {
    "text_length": 16,
    "long_text_length": 24,
    "batch_size": 2,
    "evaluation_batch_size": 4,
    "evaluation_samples": 4,
    "seed": 7,
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=64, validation_rows=64, seed=0, max_size=128)
    return folder


def workload(folder: Path, notes: list[str] | None = None) -> flava.Flava:
    data = DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))
    note = notes.append if notes is not None else (lambda text: None)
    return flava.build(Context(flava.Parameters(**SHORT), data, "cpu", 0, 1, 2, note))


@pytest.mark.parametrize(("size", "count"), PUBLISHED.items())
def test_parameter_counts_are_the_published_models(size: str, count: int) -> None:
    from transformers import FlavaForPreTraining

    with torch.device("meta"):
        model = FlavaForPreTraining(flava.config(size))
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_flops_agree_with_what_was_measured() -> None:
    found = flava.flops("350m", 77, 512)
    for kind, tera in {"pair": 0.421, "image": 0.195, "text": 0.301}.items():
        assert found[kind] == pytest.approx(tera * 1e12, rel=0.01), kind


def test_the_first_losses_are_the_golden_ones_and_the_codebook_is_random(drawn: Path) -> None:
    """A refactor changes nothing: model, initial weights, kinds, masks and data order all stand behind these."""
    notes: list[str] = []
    one = workload(drawn, notes)
    torch.manual_seed(0)
    model = one.model()
    losses, kinds = [], []
    batches = one.batches()
    for _ in range(3):
        batch = one.prepare(next(batches))
        kinds.append(batch["kind"])
        losses.append(one.loss(model, batch).item())
    assert kinds == GOLDEN_KINDS
    assert losses == pytest.approx(GOLDEN, rel=1e-4)
    found = one.evaluate(model, one.prepare)
    assert found["loss"] == pytest.approx(found["chance_loss"], rel=0.1)
    assert 1 <= found["image_codes"] < 64
    assert any("random weights" in note for note in notes)


def test_masks_hide_as_much_as_they_should() -> None:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(10, 100, (8, 40), generator=draw)
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[:, 20:] = False
    masked, labels = mask_tokens(tokens, real, mask=3, vocabulary=100, draw=draw)
    told = labels != IGNORED
    assert told.sum(dim=1).tolist() == [3] * 8 and not told[:, 20:].any()
    assert (labels[told] == tokens[told]).all() and (masked[~told] == tokens[~told]).all()
    assert 0.5 < (masked[told] == 3).float().mean() < 1
    for seed in range(20):
        grid = mask_blocks(14, 75, random.Random(seed))
        assert sum(map(sum, grid)) == 75
        alike = sum(row[x] == row[x + 1] for row in grid for x in range(13)) / (14 * 13)
        assert alike > 0.6, "blocks, not scattered patches"


def test_flava_is_the_documents_experiment() -> None:
    cells = expand(load_suite("flava", pools=load_pools()))
    assert {cell.axes["model"] for cell in cells} == set(PUBLISHED) and {cell.axes["batch_size"] for cell in cells} == {8, "max"}
    found = {(cell.axes["parallel"], cell.axes["activation_checkpointing"], cell.axes["limit_all_gathers"]) for cell in cells}
    assert found == {("ddp", False, True), ("fsdp2", False, True), ("fsdp2", True, True)} | {
        ("fsdp1", checkpointing, limit) for checkpointing in (False, True) for limit in (False, True)
    }
    for cell in cells:
        values = cell.parameters
        assert (values["devices"], values["precision"], values["allow_tf32"]) == (8, "bf16", True)
        assert (values["steps"] + values["warmup_steps"], values["warmup_steps"]) == (1000, 100)
        assert values["fsdp_reduce"] == ("fp32" if values["parallel"] == "ddp" else "bf16")
        assert (values["learning_rate"], values["weight_decay"], values["beta2"], values["learning_rate_warmup"]) == (
            1e-3,
            0.1,
            0.999,
            2000,
        )
