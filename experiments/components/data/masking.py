"""Masks of masked modelling, sampled on the host: BERT's for tokens, BEiT's blocks for image patches."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

IGNORED = -100  # torch's label that no loss is taken of
SHARE = 0.15  # of the real tokens (Devlin et al. 2018, section 3.1)


def told_of(lengths: torch.Tensor) -> torch.Tensor:
    """Of rows of so many real tokens, how many `mask_tokens` has predicted."""
    return (lengths * SHARE).round().long().clamp(min=1)


def mask_tokens(
    tokens: torch.Tensor, real: torch.Tensor, *, mask: int, vocabulary: int, draw: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """(masked tokens, labels), each (batch, text), of `tokens` (batch, text); `real` is false for padding.

    15 % of each row's real tokens, at least one, are to be predicted; other labels are IGNORED. Of the chosen ones 80 % become `mask`,
    10 % a random token below `vocabulary`, and 10 % stay (Devlin et al. 2018, section 3.1). Each row has exactly its share, so with
    rows of one length the means of all ranks have the same weight.
    """
    import torch

    scores = torch.rand(tokens.shape, generator=draw).masked_fill(~real, 2.0)
    counts = told_of(real.sum(dim=1))
    ranks = scores.argsort(dim=1).argsort(dim=1)
    chosen = (ranks < counts[:, None]) & real
    labels = tokens.masked_fill(~chosen, IGNORED)
    how = torch.rand(tokens.shape, generator=draw)
    others = torch.randint(0, vocabulary, tokens.shape, generator=draw)
    masked = torch.where(chosen & (how < 0.8), torch.full_like(tokens, mask), tokens)
    return torch.where(chosen & (how >= 0.9), others, masked), labels


def mask_blocks(side: int, count: int, draw: random.Random) -> list[list[bool]]:
    """A grid [row][column] of side x side patches, of which exactly `count` are masked (true), in rectangular blocks.

    Bao et al. 2021 (BEiT), algorithm 1: blocks of at least 16 patches, height over width from 0.3 to 1 / 0.3.
    """
    grid = [[False] * side for _ in range(side)]
    masked, smallest = 0, min(16, max(1, count // 5))
    for _ in range(10 * side):
        if masked >= count:
            break
        area = draw.uniform(min(smallest, count - masked), count - masked)
        aspect = math.exp(draw.uniform(math.log(0.3), -math.log(0.3)))
        height, width = (min(side, max(1, round(math.sqrt(area * ratio)))) for ratio in (aspect, 1 / aspect))
        top, left = draw.randint(0, side - height), draw.randint(0, side - width)
        block = [(y, x) for y in range(top, top + height) for x in range(left, left + width) if not grid[y][x]]
        for y, x in block[: count - masked]:
            grid[y][x] = True
        masked += min(len(block), count - masked)
    free = [(y, x) for y in range(side) for x in range(side) if not grid[y][x]]
    for y, x in draw.sample(free, count - masked):
        grid[y][x] = True
    return grid
