"""FusedAdamW, with the real one's defaults: its eps and weight decay are not torch's."""

from typing import Any

import torch


class FusedAdamW(torch.optim.AdamW):
    steps = 0

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
        moments_dtype: Any = None,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def step(self, closure: Any = None) -> Any:
        FusedAdamW.steps += 1
        return super().step(closure)
