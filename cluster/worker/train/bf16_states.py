"""AdamW whose two averages are kept in bf16, rounded stochastically: 4 bytes a parameter instead of 8.

An update is computed in fp32, as torch's AdamW does (Loshchilov and Hutter 2019), and its averages are then rounded up or down at random,
with the probability that makes the mean of the rounding error 0 (Gupta et al. 2015). Rounded to the nearest they would not do: a change by
less than 2^-9 of a bf16 value is rounded away, and an average with beta2 = 0.999 falls by 0.001 of itself at most, so it would stay where
its highest values put it. torch's own fused AdamW, where it takes averages in bf16, rounds them so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from cluster.worker.train.bf16_launch import Update, launch

SPREAD = 1_000_003  # between seeds of steps: a prime beyond any number of parameters. Of a seed the CPU takes the lower 32 bits


class AdamWBf16States(torch.optim.Optimizer):
    """AdamW as torch.optim.AdamW has it; state of a parameter: `step`, and `exp_avg` and `exp_avg_sq` in bf16. On CUDA one kernel updates
    all parameters, or one for each combination of their types."""

    def __init__(
        self, trained: list[torch.nn.Parameter], *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        super().__init__(trained, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._kept: dict[torch.nn.Parameter, torch.nn.Parameter] = {}
        self._steps = 0

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
        self._steps += 1
        before = 0
        for group in self.param_groups:
            settings = _Settings.of(group)
            together = []
            for place, parameter in enumerate(group["params"]):
                kept = self._kept.get(parameter)
                gradient = parameter.grad if kept is None else kept.grad
                if gradient is None:
                    continue
                update = self._update(parameter, gradient, kept, settings)
                if parameter.device.type == "cuda" and update.p.is_contiguous():
                    together.append(update)
                else:
                    adamw(update, settings, seed=self._steps * SPREAD + place)  # on every rank alike, so that copies stay copies
            if together:
                weights = (1 - settings.beta1, 1 - settings.beta2)
                before = launch(together, step=self._steps, before=before, decayed=settings.decayed, weights=weights, eps=settings.eps)

    def _update(
        self, parameter: torch.nn.Parameter, gradient: torch.Tensor, kept: torch.nn.Parameter | None, settings: _Settings
    ) -> Update:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=torch.bfloat16)
        state["step"] += 1
        p, g, m, v = (local(one) for one in (parameter, gradient, state["exp_avg"], state["exp_avg_sq"]))
        if p.is_contiguous():
            g = g.contiguous()
        of_mean, of_square = (-math.expm1(state["step"] * math.log(beta)) for beta in (settings.beta1, settings.beta2))  # 1 - beta^t
        return Update(p, g, m, v, None if kept is None else local(kept), settings.lr / of_mean, of_square)


@dataclass(frozen=True)
class _Settings:
    """Of a parameter group."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    decayed: float  # 1 - learning rate * weight decay

    @classmethod
    def of(cls, group: Mapping[str, Any]) -> _Settings:
        lr, (beta1, beta2) = float(group["lr"]), group["betas"]
        return cls(lr, beta1, beta2, group["eps"], 1 - lr * group["weight_decay"])


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a sharded tensor that this rank has; another tensor as it is. An update is by element."""
    shard = getattr(tensor, "to_local", None)
    return tensor if shard is None else shard()


def adamw(update: Update, settings: _Settings, seed: int) -> None:
    """Update p, the averages m and v of the gradient g and of its square, and what p is rounded to, in place, operation by operation.

    `seed`: of the rounding.
    """
    draw = torch.Generator(update.p.device).manual_seed(seed)
    gradient = update.g.float()
    mean = update.m.float().lerp(gradient, 1 - settings.beta1)
    square = update.v.float().lerp(gradient.square(), 1 - settings.beta2)
    update.m.copy_(rounded(mean, draw))
    update.v.copy_(rounded(square, draw))
    updated = update.p.float() * settings.decayed - update.rate * mean / ((square / update.correction).sqrt() + settings.eps)
    update.p.copy_(updated)
    if update.low is not None:
        update.low.copy_(updated)


def rounded(values: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """fp32 values in bf16, each rounded away from 0 with the probability of its distance to the one below.

    bf16 is the upper half of fp32's 32 bits: random lower bits are added, and carry over as often as the lower half is large.
    """
    lower = torch.randint(1 << 16, values.shape, dtype=torch.int32, device=values.device, generator=draw)
    cut = ((values.view(torch.int32) + lower) & -(1 << 16)).view(torch.float32)
    return torch.where(values.isnan(), values, cut).to(torch.bfloat16)  # of NaN the sum could carry into the sign, and leave 0
