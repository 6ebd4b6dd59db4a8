"""Vision transformer training, as in "Significantly faster Vision Transformer training": a ladder of settings on ViT-H/16.

Images are those of `dataset`, or synthetic: a class is a pattern of waves in colours of its own, with noise added. Synthetic images are of
SHOWN of the model's classes: of 1,000 a training of some hundred steps sees each so rarely that it learns nothing, and nothing can be said
of its loss. The others' scores begin so low that they do not count, or what is learnt first would be which classes there are. Images leave
the host as uint8; the device normalises them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from experiments.components.data.classes import Classes
from experiments.components.data.loading import load
from experiments.components.workload import Batch, Context, DataError
from experiments.workloads.vit.parameters import SIZES, Parameters

if TYPE_CHECKING:
    import torch
    from torch import nn

IMAGENET_1K = 1_281_167  # training images
HELD_OUT_BATCHES, HELD_OUT_SIZE = 2, 32
POOL = 64  # noise images kept in memory
SHOWN = 16  # classes of synthetic images, at most
ORDER = 65_521  # rows after which the classes repeat; a prime, so that held-out rows, from HELD_OUT, begin elsewhere
HELD_OUT = 2**30  # the first of them; they have noise of their own, so none is a row of the training


def build(context: Context) -> Vit:
    """The workload on this rank. Raises DataError."""
    return Vit(context)


class Vit:
    """See Workload."""

    find_unused_parameters = False
    epoch_samples = IMAGENET_1K  # or what the data set has

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters
        *_, own, self.classes = SIZES[self.parameters.model]
        self.size = self.parameters.image_size or own
        self.data = Classes(context) if self.parameters.dataset is not None else None
        if self.data is not None:
            self.epoch_samples = len(self.data.train)
            if self.data.count > self.classes:
                raise DataError(f"the data set has {self.data.count} classes, the model {self.classes}: set model")

    def model(self) -> nn.Module:
        from experiments.workloads.vit.model import make

        return make(self.parameters, shown=None if self.data is not None else SHOWN)

    def layers(self, model: Any) -> list[nn.Module]:
        return list(model.blocks)

    def batches(self) -> Iterator[Batch]:
        if self.data is not None:
            return self.data.batches(self.data.dataset(self.data.train, self.size), self.data.train_indices())
        return iter(load(self._synthetic(), self._order(), self.context))

    def prepare(self, batch: Batch) -> Batch:
        return {**batch, "images": (batch["images"].permute(0, 3, 1, 2) / 127.5 - 1).contiguous()}

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        from torch.nn import functional

        return functional.cross_entropy(model(batch["images"]).float(), batch["classes"])

    def samples(self, batch: Batch) -> int:
        return len(batch["classes"])

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        if self.data is not None:
            return self.data.evaluate(lambda batch: model(batch["images"]), self.size, place)
        data = self._synthetic()
        losses = [
            float(self.loss(model, place(data[range(HELD_OUT + at * HELD_OUT_SIZE, HELD_OUT + (at + 1) * HELD_OUT_SIZE)])))
            for at in range(HELD_OUT_BATCHES)
        ]
        return {"loss": sum(losses) / len(losses), "chance_loss": math.log(data.classes)}

    def flops_per_sample(self) -> float | None:
        from experiments.workloads.vit.model import flops

        return flops(self.parameters)

    def linear_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of the blocks' linear layers."""
        from experiments.workloads.vit.model import linear_flops

        return linear_flops(self.parameters)

    def attention_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of attention's scores and their sums."""
        from experiments.workloads.vit.model import attention_flops

        return attention_flops(self.parameters)

    def _synthetic(self) -> Images:
        return Images(self.size, min(SHOWN, self.classes), self.parameters.seed)

    def _order(self) -> Iterator[range]:
        size, world = self.context.batch_size, self.context.world_size
        start = self.context.rank * size
        while True:
            yield range(start, start + size)
            start += size * world


class Images:
    """A range of rows -> images uint8 (batch, size, size, 3) and classes (batch,). A row is a function of the seed and its number alone."""

    def __init__(self, size: int, classes: int, seed: int) -> None:
        import torch

        draw = torch.Generator().manual_seed(seed)
        self.size, self.classes = size, classes
        self.noise, self.held_out_noise = torch.randint(0, 96, (2, POOL, size, size, 3), generator=draw, dtype=torch.uint8)
        self.waves = torch.rand(classes, 3, 3, generator=draw)  # frequencies across and down, phase; one of each by colour
        self.colours = 0.25 + 0.75 * torch.rand(classes, 3, generator=draw)  # strengths
        self.places = torch.linspace(0, 1, size)
        self.order = torch.randint(classes, (ORDER,), generator=draw)  # independent: were a batch's all different, the last would mislead

    def __getitem__(self, rows: range) -> Batch:
        import torch

        numbers = torch.arange(rows.start, rows.stop)
        classes = self.order[numbers % ORDER]
        across, down, phase = self.waves[classes].unbind(dim=-1)  # each (batch, 3)
        x, y = self.places[None, None, :, None], self.places[None, :, None, None]
        angle = 2 * math.pi * (6 * across[:, None, None] * x + 6 * down[:, None, None] * y + phase[:, None, None])
        pattern = ((torch.sin(angle) * 79 + 80) * self.colours[classes][:, None, None]).to(torch.uint8)
        noise = self.noise if rows.start < HELD_OUT else self.held_out_noise
        return {"images": pattern + noise[numbers * 31 % POOL], "classes": classes}
