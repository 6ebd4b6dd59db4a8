"""What only a GPU can show of loading threads: their batches lie in page-locked memory, bit by bit what processes and one process load."""

from __future__ import annotations

from itertools import count, islice
from typing import Any

import pytest
import torch

from experiments.components.data.loading import load
from experiments.components.workload import Batch, Context
from experiments.parameters import TrainingParameters

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Items:
    """Tensors by an index: one, several of several lengths, and what is no tensor."""

    def __getitem__(self, index: int) -> Batch:
        draw = torch.Generator().manual_seed(index)
        pixels = torch.randint(0, 256, (8, 32, 32, 3), generator=draw, dtype=torch.uint8)
        return {"pixels": pixels, "jpegs": [pixels.flatten()[: 100 + at] for at in range(3)], "corrupt": [(index, "row", "why")]}


def loaded(**parameters: Any) -> list[Batch]:
    return list(islice(load(Items(), count(), Context(TrainingParameters(**parameters), None, "cuda", 0, 1, 8)), 12))


def test_threads_pin_what_processes_pin() -> None:
    torch.cuda.set_device(torch.cuda.device_count() - 1)
    alone, processes = loaded(), loaded(dataloader_workers=2)
    threads, plain = (loaded(loader="threads", dataloader_workers=3, pin_memory=pin) for pin in (True, False))
    for one, two, three, four in zip(alone, processes, threads, plain, strict=True):
        for other in (two, three, four):
            assert other.keys() == one.keys()
            assert [list(row) for row in other["corrupt"]] == [list(row) for row in one["corrupt"]]  # torch's pinning makes lists of tuples
            assert all(torch.equal(a, b) for a, b in zip([one["pixels"], *one["jpegs"]], [other["pixels"], *other["jpegs"]], strict=True))
        for pinned in (one, two, three):
            assert pinned["pixels"].is_pinned() and all(jpeg.is_pinned() for jpeg in pinned["jpegs"])
        assert not four["pixels"].is_pinned()
    assert torch.cuda.current_device() == torch.cuda.device_count() - 1
