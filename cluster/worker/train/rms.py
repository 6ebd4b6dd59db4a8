"""RMS_t of selected tensors in each step: the squared gradient in relation to the optimiser's second moment (no unit).

RMS_t = sqrt(mean(g_t^2 / max(u_t, eps^2))), with the gradient g_t and the bias-corrected second moment u_t that the update divides by
(Wortsman et al. 2023, section 3; Shazeer & Stern 2018). It is about 1 while u_t follows the squared gradient, and larger if u_t lags.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase

import torch

from cluster.devices.clock import RUN_AHEAD
from experiments.step_record import RMS


class RmsWatch:
    """Measures RMS_t of some tensors before each update, without waiting for the device.

    `measure` queues the computation and a copy to the host before the end of the step. `read` returns the numbers after the clock has
    returned that step; by then the device has computed them. If fp16's loss scaler skips a step, its RMS_t is that of the skipped update,
    or None if the gradient overflowed.
    """

    def __init__(self, tensors: Mapping[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer, *, page_locked: bool) -> None:
        self._tensors, self._optimizer = dict(tensors), optimizer
        self._group = {id(tensor): group for group in optimizer.param_groups for tensor in group["params"]}
        count = RUN_AHEAD + 1
        self._cells = [torch.zeros(len(self._tensors), pin_memory=page_locked) for _ in range(count)]
        self._steps = [0] * count

    @torch.no_grad()
    def measure(self, step: int) -> None:
        """Queue RMS_t of `step`. Call it when the gradients are final and the optimiser has not yet updated its state."""
        values = torch.stack([self._rms(tensor) for tensor in self._tensors.values()])
        slot = step % len(self._cells)
        self._cells[slot].copy_(values, non_blocking=True)
        self._steps[slot] = step

    def read(self, step: int) -> dict[str, float | None]:
        """`rms.<tensor>` -> RMS_t of a finished step, None if not finite. Raises RuntimeError if later steps have overwritten it."""
        slot = step % len(self._cells)
        if self._steps[slot] != step:
            raise RuntimeError(f"the RMS of step {step} was not kept")
        values = zip(self._tensors, self._cells[slot].tolist(), strict=True)
        return {RMS + name: value if math.isfinite(value) else None for name, value in values}

    def _rms(self, tensor: torch.nn.Parameter) -> torch.Tensor:
        if tensor.grad is None:  # this batch's loss does not depend on it
            return torch.full((), math.nan, device=tensor.device)
        group = self._group[id(tensor)]
        squared = tensor.grad.detach().float().square()
        moment = _second_moment(squared, self._optimizer.state.get(tensor) or {}, group)
        return (squared / moment.clamp_(min=group["eps"] ** 2)).mean().sqrt()


def _second_moment(squared: torch.Tensor, state: Mapping[str, torch.Tensor], group: Mapping[str, object]) -> torch.Tensor:
    """The bias-corrected u_t of the next update, from the optimiser's state and the squared gradient (same shape)."""
    if "exp_avg_sq" not in state:
        return squared.clone()  # in the first step the corrected u_t is the squared gradient itself
    before = state["exp_avg_sq"].float()
    if "beta2" in group:  # optimi counts steps per group and keeps the corrected average
        beta2, steps = float(group["beta2"]), int(group["step"])  # type: ignore[arg-type, call-overload]
        weight = (1 - beta2) / (1 - beta2 ** (steps + 1))
        return before.lerp(squared, weight)
    beta2 = group["betas"][1]  # type: ignore[index]
    # torch counts steps per tensor, on the device if the implementation is fused, so reading the count would wait for the device
    correction = -torch.expm1((state["step"] + 1) * math.log(beta2))
    return before.mul(beta2).add_(squared, alpha=1 - beta2).div_(correction)


def watched_tensors(model: torch.nn.Module, patterns: str) -> dict[str, torch.nn.Parameter]:
    """Name -> trained tensor for the names or patterns of `rms_tensors`. Raises ValueError for a pattern that matches none."""
    trained = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    tensors: dict[str, torch.nn.Parameter] = {}
    for pattern in (part.strip() for part in patterns.split(",")):
        matched = {name: tensor for name, tensor in trained.items() if fnmatchcase(name, pattern)}
        if not matched:
            some = ", ".join(list(trained)[:5])
            raise ValueError(f"rms_tensors: {pattern!r} is none of this model's {len(trained)} trained tensors ({some}, ...)")
        tensors |= matched
    return tensors
