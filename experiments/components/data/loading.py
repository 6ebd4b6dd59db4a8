"""Who loads batches: the training process itself, processes of torch's DataLoader, or threads of the training process.

All give the same batches in the same order, bit by bit: an item is a function of its index alone.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Protocol

from experiments.components.workload import Batch, Context
from experiments.parent_death import end_with


class Items(Protocol):
    """A torch map-style data set whose item is a whole batch. Threads share it: what changes in it while it is read has a lock."""

    def __getitem__(self, index: Any, /) -> Batch:
        """The batch of an index: the same whenever, wherever and after whatever else it is asked for."""


def load(items: Items, order: Iterator[Any], context: Context, *, pin: bool = True) -> Iterable[Batch]:
    """The items in the order of their indices, loaded by the trial's `dataloader_workers`, which are what its `loader` says.

    `prefetch_factor` batches for each of them are loaded or waiting at a time. With the parameter `pin_memory` and `pin` they lie in
    page-locked memory, on a device that has its own. What an item raises is raised where its batch would have come. Processes end with the
    thread that begins to read the batches: read them all in one.
    """
    from torch.utils.data import DataLoader

    parameters, workers = context.parameters, context.parameters.dataloader_workers
    pinned = pin and parameters.pin_memory and context.device_kind != "cpu"
    if parameters.loader == "threads":
        return _threads(items, order, workers, workers * parameters.prefetch_factor, pin=pinned)
    return DataLoader(
        items,  # type: ignore[arg-type]  # its index need not be a number
        batch_size=None,
        sampler=order,
        num_workers=workers,
        persistent_workers=workers > 0,
        prefetch_factor=parameters.prefetch_factor if workers else None,
        pin_memory=pinned,
        worker_init_fn=partial(_end_with, os.getpid()) if workers else None,
    )


def _end_with(parent: int, worker: int) -> None:
    """In a DataLoader process: end with its parent, also while it hangs. It has the parent's sockets: as long as it runs, Ray takes a
    parent that was killed for alive. torch's own watch over the parent looks only between two batches.
    """
    end_with(parent)


def _threads(items: Items, order: Iterator[Any], workers: int, ahead: int, *, pin: bool) -> Iterator[Batch]:
    """Batches from `workers` threads, `ahead` of them loaded or waiting at a time. They end with the generator.

    torch's own DataLoader has processes alone (torch 2.13). torchdata.nodes has threads; it is in beta, and not developed further.
    """
    import torch
    from torch.utils.data._utils.pin_memory import pin_memory

    pin = pin and torch.accelerator.is_available()  # as DataLoader has it
    device = torch.accelerator.current_device_index() if pin else None
    torch.get_num_threads()  # this thread's count is now settled: the one below would else be taken over by it

    def begin() -> None:
        torch.set_num_threads(1)  # as in a DataLoader process: each thread would else start one for each core
        if device is not None:
            torch.accelerator.set_device_index(device)  # a new thread begins with the first device

    def item(index: Any) -> Batch:
        batch = items[index]
        return pin_memory(batch) if pin else batch  # type: ignore[no-untyped-call]

    pool, waiting = ThreadPoolExecutor(workers, "loader", begin), deque[Future[Batch]]()
    try:
        waiting.extend(pool.submit(item, index) for index in islice(order, ahead))
        while waiting:
            ready = [waiting.popleft().result()]
            waiting.extend(pool.submit(item, index) for index in islice(order, 1))
            yield ready.pop()  # so that nothing here keeps its memory
    finally:
        pool.shutdown(cancel_futures=True)
