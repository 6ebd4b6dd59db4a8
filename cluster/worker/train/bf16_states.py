"""AdamW whose two averages are kept in bf16, rounded stochastically: 4 bytes a parameter instead of 8.

An update is computed in fp32, as torch's AdamW does (Loshchilov and Hutter 2019), and its averages are then rounded up or down at random,
with the probability that makes the mean of the rounding error 0 (Gupta et al. 2015). Rounded to the nearest they would not do: a change by
less than 2^-9 of a bf16 value is rounded away, and an average with beta2 = 0.999 falls by 0.001 of itself at most, so it would stay where
its highest values put it. torch's own fused AdamW, where it takes averages in bf16, rounds them so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch


class AdamWBf16States(torch.optim.Optimizer):
    """AdamW as torch.optim.AdamW has it; state of a parameter: `step`, and `exp_avg` and `exp_avg_sq` in bf16. On CUDA its update is
    compiled at the first step."""

    def __init__(
        self, trained: list[torch.nn.Parameter], *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        super().__init__(trained, {"lr": torch.tensor(lr), "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._kept: dict[torch.nn.Parameter, torch.nn.Parameter] = {}

    def take_kept(self, kept: Mapping[torch.nn.Parameter, torch.nn.Parameter]) -> None:
        """From now on a parameter among the keys has its gradient in its value's `grad`, and is rounded to that value when it is updated.

        Both in the update's one pass over memory: the gradient is never written in fp32, and no weight is read again to be rounded.
        """
        self._kept = dict(kept)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        if closure is not None:
            raise NotImplementedError("AdamWBf16States: no closure")
        for group in self.param_groups:
            for parameter in group["params"]:
                kept = self._kept.get(parameter)
                gradient = parameter.grad if kept is None else kept.grad
                if gradient is not None:
                    self._update(parameter, gradient, kept, group)

    def _update(
        self, parameter: torch.nn.Parameter, gradient: torch.Tensor, kept: torch.nn.Parameter | None, group: dict[str, Any]
    ) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=torch.bfloat16)
        state["step"] += 1
        written = (kept,) if kept is not None else ()
        p, g, m, v, *low = flat([local(one) for one in (parameter, gradient, state["exp_avg"], state["exp_avg_sq"], *written)])
        beta1, beta2 = group["betas"]
        update = _compiled() if parameter.device.type == "cuda" else _adamw
        update(p, g, m, v, state["step"], group["lr"], beta1, beta2, group["eps"], group["weight_decay"], *low)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a sharded tensor that this rank has; another tensor as it is. An update is by element."""
    shard = getattr(tensor, "to_local", None)
    return tensor if shard is None else shard()


def flat(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same memory as vectors, where all tensors are contiguous; else the tensors as they are.

    One compiled update then serves all shapes. It would not serve views, which are compiled for each shape of what they are views of.
    """
    if not all(tensor.is_contiguous() for tensor in tensors):
        return tensors
    return [tensor.new_empty(0).set_(tensor.untyped_storage(), tensor.storage_offset(), (tensor.numel(),), (1,)) for tensor in tensors]


def _adamw(
    p: torch.Tensor,
    g: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    t: torch.Tensor,
    lr: torch.Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    low: torch.Tensor | None = None,
) -> None:
    """Update p, and the averages m and v of the gradient g and of its square, in place, and p to `low`. `t`: the step's number, from 1."""
    gradient = g.float()
    mean = m.float().lerp(gradient, 1 - beta1)
    square = v.float().lerp(gradient.square(), 1 - beta2)
    m.copy_(rounded(mean))
    v.copy_(rounded(square))
    of_mean, of_square = (-torch.expm1(t * math.log(beta)) for beta in (beta1, beta2))  # 1 - beta^t, exactly also where that is small
    updated = p.float() * (1 - lr * weight_decay) - lr / of_mean * mean / ((square / of_square).sqrt() + eps)
    p.copy_(updated)
    if low is not None:
        low.copy_(updated)


def rounded(values: torch.Tensor) -> torch.Tensor:
    """fp32 values in bf16, each rounded away from 0 with the probability of its distance to the one below.

    bf16 is the upper half of fp32's 32 bits: random lower bits are added, and carry over as often as the lower half is large.
    """
    bits = values.view(torch.int32) + torch.randint_like(values, 1 << 16, dtype=torch.int32)
    return (bits & -(1 << 16)).view(torch.float32).to(torch.bfloat16)


@cache
def _compiled() -> Callable[..., None]:
    return torch.compile(_adamw, fullgraph=True, dynamic=True)
