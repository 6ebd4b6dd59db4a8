"""ViT: the published sizes and FLOPs, golden losses of every layout, and the ladder of its suite."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from cluster.pools.pool import load_pools
from experiments.components.workload import Context
from experiments.spec.load import load_suite
from experiments.spec.matrix import expand
from experiments.workloads import vit
from experiments.workloads.vit import model as network
from experiments.workloads.vit import workload

GOLDEN = [2.779355, 2.774613, 2.676331, 2.721783]
PUBLISHED = [
    (224, "token", 632_199_400, 763.5),
    (224, "pooled", 632_196_840, 759.5),
    (256, "token", 632_276_200, 1003.6),
    (256, "pooled", 632_273_640, 999.6),
]


@pytest.mark.parametrize(("size", "classifier", "count", "giga"), PUBLISHED)
def test_parameters_and_flops_are_the_published_ones(size: int, classifier: str, count: int, giga: float) -> None:
    parameters = vit.Parameters(model="h16", image_size=size, classifier=classifier)  # type: ignore[arg-type]
    with torch.device("meta"):
        model = network.make(parameters)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert network.flops(parameters) == pytest.approx(giga * 1e9, rel=0.01)


def losses(**changes: Any) -> list[float]:
    parameters = vit.Parameters(batch_size=8, **changes)
    one = vit.build(Context(parameters, None, "cpu", 0, 1, 8))
    torch.manual_seed(0)
    model = one.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    for batch in islice(one.batches(), 4):
        loss = one.loss(model, one.prepare(batch))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_the_first_losses_are_the_golden_ones_in_either_layout_and_attention() -> None:
    plain = losses()
    assert plain == pytest.approx(GOLDEN, rel=1e-4)
    assert losses(layout="sequence_first") == pytest.approx(plain, rel=1e-5), "the layout changes the speed alone"
    assert losses(attention="sdpa") == pytest.approx(plain, rel=1e-5)
    for layout in ("batch_first", "sequence_first"):
        assert losses(attention="sdpa", qkv="views", layout=layout) == pytest.approx(plain, rel=1e-5)
    assert losses(classifier="pooled")[1:] != pytest.approx(plain[1:], rel=1e-3)


def test_synthetic_images_are_of_sixteen_classes_drawn_independently_whatever_the_model_has() -> None:
    one = vit.build(Context(vit.Parameters(model="b16", image_size=32, batch_size=128), None, "cpu", 0, 1, 128))
    batches = [batch["classes"] for batch in islice(one.batches(), 8)]
    counts = torch.stack([torch.bincount(classes, minlength=1000) for classes in batches])
    assert counts[:, :16].sum() == 8 * 128, "no other class is shown"
    assert all(40 < count < 90 for count in counts.sum(0)[:16].tolist()), "64 of each, give or take"
    spread = counts[:, :16].float().var(0).mean()  # of independent draws 128 x 1/16 x 15/16 = 7.5; 0 were every batch balanced
    assert 4 < spread < 12
    with torch.no_grad():
        found = one.evaluate(one.model(), one.prepare)
    assert found["chance_loss"] == pytest.approx(math.log(16))
    assert found["loss"] == pytest.approx(math.log(16), abs=0.02), "a model that knows nothing is at chance of what is shown"


def test_a_model_for_a_data_set_begins_with_all_its_classes_alike() -> None:
    assert not torch.any(network.make(vit.Parameters(model="tiny")).head.bias == network.NOT_SHOWN)
    assert (network.make(vit.Parameters(model="tiny"), shown=4).head.bias[4:] == network.NOT_SHOWN).all()


def test_no_held_out_image_is_one_of_the_training() -> None:
    images = workload.Images(16, 16, 0)
    seen = {bytes(image.numpy().tobytes()) for image in images[range(0, 5000)]["images"]}
    assert 900 < len(seen) <= 16 * workload.POOL, "nearly every class with every noise"
    held_out = images[range(workload.HELD_OUT, workload.HELD_OUT + 64)]["images"]
    assert not seen & {bytes(image.numpy().tobytes()) for image in held_out}


def test_a_small_model_learns_from_the_images_and_not_which_classes_there_are() -> None:
    """Given the images of other rows it stays at chance."""
    found = {}
    for shift in (0, 1):
        one = vit.build(Context(vit.Parameters(batch_size=32), None, "cpu", 0, 1, 32))
        torch.manual_seed(0)
        model = one.model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        losses = []
        for batch in islice(one.batches(), 60):
            loss = one.loss(model, one.prepare({**batch, "images": batch["images"].roll(shift, 0)}))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        found[shift] = sum(losses[-10:]) / 10
    assert found[0] < 0.7 * math.log(16) < 0.95 * math.log(16) < found[1]


def test_each_rung_keeps_what_the_one_before_it_set() -> None:
    planned = expand(load_suite("vit", pools=load_pools()))
    cells = {str(cell.axes["rung"]): cell.parameters for cell in planned if not cell.reference}
    assert len(cells) == 12
    assert all(values["batch_size"] * values["devices"] == 560 for values in cells.values())
    changes = {
        "amp": {"precision": "fp16"},
        "fsdp": {"parallel": "fsdp2", "fsdp_units": "root", "fsdp_reshard": False},
        "multi_tensor": {"optimizer": "foreach"},
        "pooled": {"classifier": "pooled"},
        "sequence_first": {"layout": "sequence_first"},
        "256px": {"image_size": 256},
        "full_fp16": {"fsdp_compute": "fp16", "fsdp_reduce": "fp16", "autocast": False},
    }
    expected = dict(cells["baseline"])
    assert (expected["precision"], expected["parallel"], expected["optimizer"]) == ("tf32", "ddp", "per_parameter")
    for rung, change in changes.items():
        expected |= {"rung": rung, **change}
        assert cells[rung] == expected, rung
    expected = cells["sequence_first"]
    for rung, change in {
        "bf16": {"precision": "bf16"},
        "fused": {"optimizer": "fused"},
        "sdpa": {"attention": "sdpa"},
        "compile": {"compile": "layer"},
    }.items():
        expected = {**expected, "rung": rung, **change}
        assert cells[rung] == expected, rung


def test_patterns_made_in_memory_are_not_augmented() -> None:
    with pytest.raises(ValidationError, match="augment has no effect on patterns made in memory"):
        vit.Parameters(augment=False)
    vit.Parameters(augment=False, dataset="drawn-classes")
