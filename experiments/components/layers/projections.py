"""Images told by a few numbers each: their projections on fixed random sign patterns. Torch; imported on workers only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

PATTERNS = 16
_SEED = 20221


class ImageProjections:
    """How far images (n, channels, height, width), 0 to 1, lie along each of PATTERNS patterns: (n, PATTERNS), in units of brightness.

    A projection is | sum of sign x (pixel - 1/2) | / sqrt(values of an image), with a sign, +1 or -1, for each channel, row and column:
    pattern k is channels[k, c] x rows[k, i] x columns[k, j]. So it takes about as many operations as one small matrix product.

    The mean brightness tells little: all images of one model with random weights have about the same. A projection depends on where an
    image is bright. It is taken about mid-grey and not about an image's own mean, so that a change of brightness alone shows too. Of two
    images that share nothing but their contrast, the root mean square of pixel - 1/2, the mean projection differs by 27 % (standard
    deviation); where each pixel is off at random by 1 % of the contrast, by 0.3 %.

    The patterns are drawn on the CPU from a seed of their own, so they are the same on all devices and in all trials, and kept on the
    images' device. Nothing is read from the device. A projection is not finite where a pixel is not.
    """

    def __init__(self, shape: Sequence[int], device: torch.device) -> None:
        """`shape`: channels, height and width of an image."""
        draw = torch.Generator("cpu").manual_seed(_SEED)

        def signs(count: int) -> torch.Tensor:
            return torch.randint(2, (PATTERNS, count), generator=draw, device="cpu").mul_(2).sub_(1).to(device, torch.float32)

        self.channels, self.rows, self.columns = map(signs, shape)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        with torch.autocast(images.device.type, enabled=False):  # which would round the sums to 16 bits
            apart = images.float() - 0.5
            sums = torch.einsum("nchw,kw->nchk", apart, self.columns)  # the image is read here alone
            sums = torch.einsum("nchk,kh,kc->nk", sums, self.rows, self.channels)
        return sums.abs() / math.sqrt(apart[0].numel())
