"""AdamW with its averages in bf16: its rounding has no bias, its updates are AdamW's, its averages fall, and it takes half the memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cluster.worker.memory_summary import bytes_of
from cluster.worker.train import bf16_states, optimizers
from cluster.worker.train.bf16_states import AdamWBf16States, rounded
from experiments.parameters import TrainingParameters

SETTINGS: dict[str, Any] = {"learning_rate": 1e-2, "beta2": 0.999, "weight_decay": 0.2, "adam_eps": 1e-6}


def built(kind: Any, tensors: list[torch.nn.Parameter], **changes: Any) -> torch.optim.Optimizer:
    return optimizers.build(TrainingParameters(optimizer=kind, **{**SETTINGS, **changes}), tensors)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.25, 0.5, 0.999])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_value_is_rounded_to_its_neighbours_as_often_as_it_is_near_them(share: float, sign: float) -> None:
    """Between 1 and 2 bf16 has steps of 2^-7. The share rounded up has a standard deviation of at most 0.5 / sqrt(n)."""
    count = 200_000
    found = rounded(torch.full((count,), sign * (1.5 + share * 2**-7)), torch.Generator().manual_seed(0))
    assert found.dtype == torch.bfloat16
    up = (found.float() == sign * (1.5 + 2**-7)).sum().item()
    assert up + (found.float() == sign * 1.5).sum().item() == count
    assert up / count == pytest.approx(share, abs=5 * 0.5 / count**0.5)
    assert share > 0 or up == 0, "what bf16 has stays as it is"


def test_what_is_not_finite_stays_so() -> None:
    nan = torch.full((1000,), 0x7FFFFFFF, dtype=torch.int32).view(torch.float32)  # CUDA's
    draw = torch.Generator().manual_seed(0)
    assert rounded(nan, draw).isnan().all() and rounded(-nan, draw).isnan().all()
    assert rounded(torch.full((1000,), -torch.inf), draw).eq(-torch.inf).all()


def test_ranks_round_alike_whatever_their_seeds() -> None:
    """DDP's replicas get the same gradients, and are never compared again."""
    found = []
    for rank in range(2):
        torch.manual_seed(rank)
        tensors = [torch.nn.Parameter(torch.ones(300)) for _ in range(2)]
        optimizer = built("states_bf16", tensors)
        for step in range(5):
            for tensor in tensors:
                tensor.grad = torch.linspace(-1, 1, 300) * (step + 1)
            optimizer.step()
        found.append([optimizer.state[tensor]["exp_avg"] for tensor in tensors])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert not torch.equal(*found[0]), "two parameters are rounded by numbers of their own"


def test_the_first_update_is_adamws_and_later_ones_are_near_it() -> None:
    draw = torch.Generator().manual_seed(1)
    start = torch.randn(64, 48, generator=draw)
    full, low = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    both = [built("foreach", [full]), built("states_bf16", [low])]
    torch.manual_seed(2)
    apart = []
    for step in range(100):
        gradient = torch.randn(start.shape, generator=draw) + 0.5
        for parameter, optimizer in zip((full, low), both, strict=True):
            parameter.grad = gradient.clone()
            optimizers.set_rate(optimizer, 1e-2 * (1 - step / 100))
            optimizer.step()
        apart.append(float((full - low).detach().abs().max()))
    assert apart[0] < 1e-6, "its averages are rounded after the update"
    moved = float((full.detach() - start).abs().mean())
    assert 1e-6 < apart[-1] < 0.05 * moved
    assert float((full - low).detach().mean().abs()) < 1e-3 * moved, "no bias"


def test_an_average_falls_that_would_stay_where_it_is_if_it_were_rounded_to_the_nearest() -> None:
    steps = 700
    parameter = torch.nn.Parameter(torch.zeros(100, 100))
    optimizer = built("states_bf16", [parameter])
    torch.manual_seed(0)
    parameter.grad = torch.full_like(parameter, 4.0)
    optimizer.step()
    first = optimizer.state[parameter]["exp_avg_sq"].float().mean().item()
    parameter.grad = torch.zeros_like(parameter)
    for _ in range(steps):
        optimizer.step()
    assert optimizer.state[parameter]["exp_avg_sq"].float().mean().item() == pytest.approx(first * 0.999**steps, rel=0.005)
    nearest = torch.tensor(first, dtype=torch.bfloat16)
    for _ in range(steps):
        nearest = (nearest.float() * 0.999).to(torch.bfloat16)
    assert nearest.item() == pytest.approx(first, rel=0.005), "which is why"


def test_states_are_half_as_large() -> None:
    held = {}
    for kind in ("foreach", "states_bf16"):
        parameter = torch.nn.Parameter(torch.zeros(1000, 10))
        optimizer = built(kind, [parameter])
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        held[kind] = bytes_of((optimizer.state[parameter][name] for name in ("exp_avg", "exp_avg_sq")), "cpu")
    assert held == {"foreach": 80_000, "states_bf16": 40_000}


def test_what_has_no_gradient_stays_and_a_tensor_that_is_not_contiguous_is_updated() -> None:
    still, last = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last))
    optimizer = built("states_bf16", [still, last], weight_decay=0.0)
    last.grad = torch.ones(2, 3, 4, 4)
    optimizer.step()
    assert torch.equal(still, torch.ones(3)) and still not in optimizer.state
    assert torch.allclose(last, torch.full_like(last, 0.99), atol=1e-6)


def test_of_a_sharded_tensor_the_own_part_is_updated() -> None:
    part = torch.zeros(2)
    sharded: Any = SimpleNamespace(to_local=lambda: part)
    assert bf16_states.local(sharded) is part and bf16_states.local(part) is part


def test_the_settings_reach_it() -> None:
    optimizer = built("states_bf16", [torch.nn.Parameter(torch.ones(2))])
    assert isinstance(optimizer, AdamWBf16States)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (1e-2, (0.9, 0.999), 1e-6, 0.2)
    with pytest.raises(NotImplementedError, match="closure"):
        optimizer.step(lambda: 0.0)
