"""Two linear layers alone: what they have to learn, and what is left of the loss when they have."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from experiments.components.workload import Context
from experiments.workloads import linear_layer

WIDTH, ROWS = 16, 8192


@pytest.fixture
def one() -> linear_layer.LinearLayer:
    parameters = linear_layer.Parameters(width=WIDTH, batch_size=ROWS)
    return linear_layer.build(Context(parameters, None, "cpu", 0, 1, ROWS))


def test_targets_are_a_linear_map_and_noise_of_the_same_variance_that_is_not_of_the_inputs(one: linear_layer.LinearLayer) -> None:
    first, second, again = (one.prepare(batch) for batch in islice(one.batches(), 3))
    assert again["x"] is first["x"] and not torch.equal(first["x"], second["x"]), "two batches take turns"
    noise = first["y"] - first["x"] @ one.map
    assert float(noise.var()) == pytest.approx(1.0, rel=0.02)
    assert float((first["x"] @ one.map).var()) == pytest.approx(1.0, rel=0.15)
    assert float((first["x"].T @ noise / ROWS).abs().max()) < 0.05
    assert not torch.allclose(noise, second["y"] - second["x"] @ one.map)


def test_what_is_left_of_the_loss_is_the_noise_and_the_rounding_of_8_bits_hardly_shows_beside_it(one: linear_layer.LinearLayer) -> None:
    """Without noise it would fall by orders of magnitude, to what rounding leaves, and no two precisions would be alike."""
    left = {}
    for bits in (None, 8):
        torch.manual_seed(0)
        model = one.model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
        for batch in islice(one.batches(), 150):
            made = one.prepare(batch)
            x = made["x"] if bits is None else made["x"].to(torch.float8_e4m3fn).float()
            loss = one.loss(model, {"x": x, "y": made["y"]})
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        left[bits] = loss.item()
    assert left[None] == pytest.approx(1.0, rel=0.01)
    assert left[8] == pytest.approx(left[None], rel=0.005) and left[8] != left[None]
    with torch.no_grad():
        assert one.evaluate(model, one.prepare)["chance_loss"] == pytest.approx(2.0, rel=0.1)
