"""Outputs told by a few numbers: their projections on fixed random sign patterns. Torch; imported on workers only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

PATTERNS = 16
_SEED = 20221


class Projections:
    """How far outputs (n, *shape) lie along each of PATTERNS patterns: (n, PATTERNS), in the outputs' unit.

    A projection is | sum of sign x (value - about) | / sqrt(values of an output). A pattern's signs, +1 or -1, are products of one sign for
    each place of each axis: of images channels[k, c] x rows[k, i] x columns[k, j]. So it takes about as many operations as one small matrix
    product.

    A mean tells little: all images of one model with random weights are about equally bright. A projection depends on where an output is
    high. `about`: what all outputs lie about, such as images' mid-grey; not an output's own mean, so that a shift of all its values shows
    too. Of two outputs that share nothing but the root mean square of value - about, the mean projection differs by 27 % (standard
    deviation); where each value is off at random by 1 % of that, by 0.3 %.

    The patterns are drawn on the CPU from a seed of their own, so they are the same on all devices and in all trials, and kept on the
    outputs' device. Nothing is read from the device. A projection is not finite where a value is not.
    """

    def __init__(self, shape: Sequence[int], device: torch.device, *, about: float = 0.0) -> None:
        """`shape`: of one output, such as channels, height and width of an image."""
        draw = torch.Generator("cpu").manual_seed(_SEED)

        def signs(count: int) -> torch.Tensor:
            return torch.randint(2, (PATTERNS, count), generator=draw, device="cpu").mul_(2).sub_(1).to(device, torch.float32)

        self.signs = [signs(count) for count in shape]  # (PATTERNS, places) of each axis
        self._about = about

    def __call__(self, outputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(outputs.device.type, enabled=False):  # which would round the sums to 16 bits
            apart = outputs.float()
            if self._about:
                apart = apart - self._about
            sums = apart @ self.signs[-1].T  # (n, *shape[:-1], PATTERNS): the output is read here alone
            for signs in reversed(self.signs[:-1]):
                sums = (sums * signs.T).sum(dim=-2)
        return sums.abs() / math.sqrt(apart[0].numel())


class BatchProjection:
    """The mean projection of a batch's outputs (n, ...), taken together as one: a scalar, the loss of workloads that train nothing.

    Together, and not each by itself, since the mean of many projections moves less the more there are: then large batches would hide what
    small ones show. Patterns are made at the first batch of a shape, before a CUDA graph holds it.
    """

    def __init__(self) -> None:
        self._made: dict[torch.Size, Projections] = {}

    def __call__(self, outputs: torch.Tensor) -> torch.Tensor:
        if outputs.shape not in self._made:
            self._made[outputs.shape] = Projections(outputs.shape, outputs.device)
        return self._made[outputs.shape](outputs[None]).mean()
