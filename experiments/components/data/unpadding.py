"""Samples of various lengths: how long drawn ones are, and a batch of them without its padding."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Literal

from experiments.components.data.masking import IGNORED
from experiments.components.workload import Batch

if TYPE_CHECKING:
    import torch

Lengths = Literal["full", "drawn", "own"]
SHARE = 0.6275  # solves SHARE x (1 - exp(-1 / SHARE)) = 1 / 2
MULTIPLE = 64  # to which a batch's tokens are rounded up: products in 8 bits want 16, and compiled code sees fewer lengths


def drawn_length(longest: int, draw: random.Random) -> int:
    """Tokens of a sample, 1 to `longest`: exponentially distributed and cut there, so that the mean is half of it. A fifth have all.

    Of the Wikipedia samples that BERT is trained on, half of 512 tokens are padding, and their lengths are skewed (Krell et al. 2021,
    "Efficient sequence packing without cross-contamination", section 1). The exponential form is ours: the simplest that has both.
    """
    return max(1, min(longest, math.ceil(draw.expovariate(1 / (SHARE * longest)))))


def longest_document(length: int) -> int:
    """Tokens of a document of an unpadded batch, at most: of a row of `length`, or of what fills the batch up."""
    return max(length, MULTIPLE)


def fillers(multiple: int, longest: int) -> int:
    """Documents of padding at the end of an unpadded batch: they hold what lacks to a `multiple`, each `longest` tokens at most."""
    return math.ceil(multiple / longest)


def unpadded(
    tokens: torch.Tensor, labels: torch.Tensor, real: torch.Tensor, *, pad: int, multiple: int = MULTIPLE, longest: int = MULTIPLE
) -> Batch:
    """The `real` ones of tokens and labels (batch, length) after one another: input_ids, labels, position_ids (1, n), and starts.

    n is rounded up to a `multiple` by `fillers` documents of padding, which may be empty, have no label, and which no other token sees.
    `starts` (batch + fillers + 1,; int32): where each sample and each filler begins, and where the last one ends.
    """
    import torch

    lengths = real.sum(dim=1).tolist()
    missing = -sum(lengths) % multiple
    filled = [min(longest, max(0, missing - at * longest)) for at in range(fillers(multiple, longest))]
    documents = torch.tensor([0, *lengths, *filled], dtype=torch.int32)
    return {
        "input_ids": torch.cat([tokens[real], torch.full((missing,), pad)])[None],
        "labels": torch.cat([labels[real], torch.full((missing,), IGNORED)])[None],
        "position_ids": torch.cat([torch.arange(length) for length in (*lengths, *filled)])[None],
        "starts": documents.cumsum(0, dtype=torch.int32),
    }
