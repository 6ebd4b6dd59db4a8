"""diffusers' schedulers, told on the host where a denoising step is. diffusers; imported on workers only.

diffusers' pipeline hands a scheduler the step's time as a tensor on the device, and the scheduler looks it up in a table on the host: up
to six times a step the host waits for the device, and the device then for the host. These schedulers count along, on the host. They give
the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from diffusers import DDIMScheduler, PNDMScheduler


class _OnHost:
    """Before a scheduler's own class among the bases."""

    _times: Iterator[int]  # of the denoising steps that are still to come

    def set_timesteps(self, *given: Any, device: Any = None, **named: Any) -> None:
        """diffusers': a new image's steps. Their times go to the device at once."""
        super().set_timesteps(*given, device="cpu", **named)  # type: ignore[misc]
        times: torch.Tensor = self.timesteps  # type: ignore[has-type]
        self._times = iter(times.tolist())
        self.timesteps = times.to(device)

    def step(self, model_output: torch.Tensor, timestep: Any, sample: torch.Tensor, **named: Any) -> Any:
        """diffusers': the latents of the next step. `timestep`, on the device, is not read."""
        return super().step(model_output, next(self._times), sample, **named)  # type: ignore[misc]


class Ddim(_OnHost, DDIMScheduler):  # type: ignore[misc]
    """DDIM."""


class Pndm(_OnHost, PNDMScheduler):  # type: ignore[misc]
    """PNDM."""
