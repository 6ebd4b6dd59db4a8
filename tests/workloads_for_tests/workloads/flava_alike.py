"""FLAVA whose ranks together learn what one process alone would: each takes its rows of one global batch.

Only losses are taken whose mean over the ranks is the mean over all rows: as many positions are masked in each image and in each long
text, and every pair counts as a match. The contrastive loss is over the pairs of all ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from experiments.components.workload import Batch, Context
from experiments.workloads import flava
from experiments.workloads.flava.workload import Flava

LOSSES = {"image": ("mim",), "text": ("mlm",), "pair": ("itm", "global_contrastive", "mmm_image")}


class Parameters(flava.Parameters):
    """FLAVA's own."""


def build(context: Context) -> Alike:
    return Alike(context)


class Alike(Flava):
    """See Flava."""

    def __init__(self, context: Context) -> None:
        self.own = range(context.rank * context.batch_size, (context.rank + 1) * context.batch_size)
        whole = dataclasses.replace(context, rank=0, world_size=1, batch_size=context.batch_size * context.world_size)
        super().__init__(whole)

    def batches(self) -> Iterator[Batch]:
        import torch

        for batch in super().batches():
            if batch["kind"] == "pair":
                batch["itm_labels"] = torch.ones_like(batch["itm_labels"])
            mine = {name: value[self.own.start : self.own.stop] for name, value in batch.items() if isinstance(value, torch.Tensor)}
            yield {**batch, **mine, "count": len(self.own)}

    def loss(self, model: Any, batch: Batch) -> Any:
        found = self._forward(model, batch).loss_info
        return sum(getattr(found, name) for name in LOSSES[batch["kind"]])
