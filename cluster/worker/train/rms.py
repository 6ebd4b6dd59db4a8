"""RMS_t of chosen tensors in each step: how far the squared gradient is above what the optimiser's second moment expects of it.

RMS_t = sqrt(mean(g_t^2 / max(u_t, eps^2))) with the bias-corrected second moment u_t that the update itself divides by (Wortsman et al.
2023, section 3; Shazeer & Stern 2018). About 1 while the second moment is up to date, and more where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase

import torch

from cluster.devices.clock import RUN_AHEAD
from experiments.step_record import RMS


class RmsWatch:
    """RMS_t of some tensors before each update, without waiting for the device.

    `measure` queues the computation and a copy to the host before the end of the step; `read` gives the numbers once the clock has
    returned that step, by when the device has passed them. The state of skipped steps (fp16's loss scaler) is not in between: what is
    told of such a step is what its update would have been, and null where the gradient overflowed.
    """

    def __init__(self, tensors: Mapping[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer, *, page_locked: bool) -> None:
        self._tensors, self._optimizer = dict(tensors), optimizer
        self._group = {id(tensor): group for group in optimizer.param_groups for tensor in group["params"]}
        count = RUN_AHEAD + 1
        self._cells = [torch.zeros(len(self._tensors), pin_memory=page_locked) for _ in range(count)]
        self._steps = [0] * count

    @torch.no_grad()
    def measure(self, step: int) -> None:
        """The gradients of `step` are as the optimiser will take them, and its state is that of the step before."""
        values = torch.stack([self._rms(tensor) for tensor in self._tensors.values()])
        slot = step % len(self._cells)
        self._cells[slot].copy_(values, non_blocking=True)
        self._steps[slot] = step

    def read(self, step: int) -> dict[str, float | None]:
        """`rms.<tensor>` of a step that the device has done; null where it is not finite. Raises RuntimeError for a step that is gone."""
        slot = step % len(self._cells)
        if self._steps[slot] != step:
            raise RuntimeError(f"the RMS of step {step} was not kept")
        found = zip(self._tensors, self._cells[slot].tolist(), strict=True)
        return {RMS + name: value if math.isfinite(value) else None for name, value in found}

    def _rms(self, tensor: torch.nn.Parameter) -> torch.Tensor:
        if tensor.grad is None:  # no part of this batch's loss
            return torch.full((), math.nan, device=tensor.device)
        group = self._group[id(tensor)]
        squared = tensor.grad.detach().float().square()
        moment = _second_moment(squared, self._optimizer.state.get(tensor) or {}, group)
        return (squared / moment.clamp_(min=group["eps"] ** 2)).mean().sqrt()


def _second_moment(squared: torch.Tensor, state: Mapping[str, torch.Tensor], group: Mapping[str, object]) -> torch.Tensor:
    """The bias-corrected u_t that an optimiser is about to make of its state and this squared gradient."""
    if "exp_avg_sq" not in state:
        return squared.clone()  # of the first step, after its correction: the squared gradient itself
    before = state["exp_avg_sq"].float()
    if "beta2" in group:  # optimi: one count of steps for a group, and its average is corrected already
        beta2, done = float(group["beta2"]), int(group["step"])  # type: ignore[arg-type, call-overload]
        weight = (1 - beta2) / (1 - beta2 ** (done + 1))
        return before.lerp(squared, weight)
    beta2 = group["betas"][1]  # type: ignore[index]
    # torch: counted for each tensor, on the device where the implementation is fused; so nothing here may ask for its value
    correction = -torch.expm1((state["step"] + 1) * math.log(beta2))
    return before.mul(beta2).add_(squared, alpha=1 - beta2).div_(correction)


def chosen(model: torch.nn.Module, patterns: str) -> dict[str, torch.nn.Parameter]:
    """The trained tensors that the names or patterns of `rms_tensors` mean. Raises ValueError for one that means none."""
    trained = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    found: dict[str, torch.nn.Parameter] = {}
    for pattern in (part.strip() for part in patterns.split(",")):
        matched = {name: tensor for name, tensor in trained.items() if fnmatchcase(name, pattern)}
        if not matched:
            some = ", ".join(list(trained)[:5])
            raise ValueError(f"rms_tensors: {pattern!r} is none of this model's {len(trained)} trained tensors ({some}, ...)")
        found |= matched
    return found
