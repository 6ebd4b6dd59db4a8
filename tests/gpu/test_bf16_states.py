"""AdamW with averages in bf16 on a GPU, where its update is compiled, against AdamW. `make test-gpu` runs them."""

from __future__ import annotations

import os

import pytest
import torch

from cluster.worker.train.bf16_states import AdamWBf16States, rounded

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # compile in this process: none is left behind
SHAPES = ((256, 256), (1000,), (64, 300), (1,), (1, 1, 32), (16, 3, 8, 8), (77, 5))


def test_compiled_updates_are_near_adamws() -> None:
    draw = torch.Generator("cuda").manual_seed(0)
    starts = [torch.randn(shape, device="cuda", generator=draw) for shape in SHAPES]
    full, low = ([torch.nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    settings = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.1}
    torch.manual_seed(1)
    optimizers = (torch.optim.AdamW(full, **settings), AdamWBf16States(low, **settings))  # type: ignore[arg-type]
    for step in range(50):
        for one, other in zip(full, low, strict=True):
            one.grad = torch.randn(one.shape, device="cuda", generator=draw) + 0.5
            other.grad = one.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
        apart = max(float((one - other).detach().abs().max()) for one, other in zip(full, low, strict=True))
        assert apart < (1e-5 if step == 0 else 0.02)
    moved = float((full[0].detach() - starts[0]).abs().mean())
    assert moved > 0.1 and float((full[0] - low[0]).detach().mean().abs()) < 1e-3 * moved
    assert {optimizers[1].state[one]["exp_avg_sq"].dtype for one in low} == {torch.bfloat16}


def test_compiled_rounding_has_no_bias() -> None:
    torch.manual_seed(0)
    values = torch.full((1_000_000,), 1.5 + 0.25 * 2**-7, device="cuda")
    found = torch.compile(rounded)(values).float()
    assert float((found > 1.504).float().mean()) == pytest.approx(0.25, abs=5 * 0.5 / 1e3)
