"""AdamW with averages in bf16 on a GPU, where one kernel updates all parameters, against AdamW. `make test-gpu` runs them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cluster.worker.train import bf16_launch
from cluster.worker.train.bf16_states import AdamWBf16States

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SHAPES = ((256, 256), (1000,), (64, 300), (1,), (1, 1, 32), (16, 3, 8, 8), (77, 5))
SETTINGS: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.1}


def drawn(seed: int = 0) -> list[torch.Tensor]:
    draw = torch.Generator("cuda").manual_seed(seed)
    return [torch.randn(shape, device="cuda", generator=draw) for shape in SHAPES]


@pytest.mark.parametrize("low", [False, True])
def test_updates_are_near_adamws(low: bool) -> None:
    starts = drawn()
    full, ours = ([torch.nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    optimizers = (torch.optim.AdamW(full, **SETTINGS), AdamWBf16States(ours, **SETTINGS))
    kept = {one: torch.nn.Parameter(one.detach().bfloat16()) for one in ours}
    if low:
        optimizers[1].take_kept(kept)
    for step in range(50):
        for one, other, gradient in zip(full, ours, drawn(step + 1), strict=True):
            (kept[other] if low else other).grad = (gradient + 0.5).to(torch.bfloat16 if low else torch.float32)
            one.grad = (kept[other] if low else other).grad.float()  # type: ignore[union-attr]
        for optimizer in optimizers:
            optimizer.step()
        apart = max(float((one - other).detach().abs().max()) for one, other in zip(full, ours, strict=True))
        assert apart < (1e-6 if step == 0 else 0.02)
        assert not low or all(torch.equal(kept[one].detach(), one.detach().bfloat16()) for one in ours)
    moved = float((full[0].detach() - starts[0]).abs().mean())
    assert moved > 0.1 and float((full[0] - ours[0]).detach().mean().abs()) < 1e-3 * moved
    assert {optimizers[1].state[one]["exp_avg_sq"].dtype for one in ours} == {torch.bfloat16}


def test_tensors_at_any_address_are_updated_as_others_are() -> None:
    found = []
    for first in (0, 1):
        parameter = torch.nn.Parameter(torch.ones(5001, device="cuda")[first : first + 5000])
        optimizer = AdamWBf16States([parameter], **SETTINGS)
        for step in range(3):
            parameter.grad = torch.linspace(-1, 1, 5001, device="cuda")[1:] * (step + 1)
            optimizer.step()
        found.append(parameter.detach().clone())
    assert torch.equal(*found), "the same rounding too, which is drawn by the update's number"


def test_rounding_has_no_bias() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1_000_000, device="cuda"))
    optimizer = AdamWBf16States([parameter], lr=0.0, betas=(0.5, 0.5), eps=1e-8, weight_decay=0.0)
    parameter.grad = torch.full_like(parameter, 2 * (1.5 + 0.25 * 2**-7))
    optimizer.step()
    up = [(optimizer.state[parameter][name].float() > low).float() for name, low in (("exp_avg", 1.504), ("exp_avg_sq", 4.508))]
    assert float(up[0].mean()) == pytest.approx(0.25, abs=5 * 0.5 / 1e3)
    assert 0.1 < float(up[1].mean()) < 0.9
    both = torch.corrcoef(torch.stack(up))[0, 1]
    assert abs(float(both)) < 5e-3, "averages are rounded independently"


def test_one_launch_updates_all_of_the_same_types(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = [torch.nn.Parameter(one) for one in drawn()]
    optimizer = AdamWBf16States(parameters, **SETTINGS)
    grids, kernel = [], bf16_launch._kernel()

    class Counted:
        def __getitem__(self, grid: tuple[int]) -> Any:
            grids.append(grid)
            return kernel[grid]

    monkeypatch.setattr(bf16_launch, "_kernel", Counted)
    for one in parameters:
        one.grad = torch.ones_like(one)
    optimizer.step()
    assert grids == [(sum(-(-one.numel() // bf16_launch.SIZE) for one in parameters),)]
