"""How a CUDA graph is recorded, for all that records one: a stream beside the current one for what goes before, and the recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Replay = Callable[[], object]


@contextmanager
def beside(stream: torch.cuda.Stream) -> Iterator[None]:
    """What is launched within runs on `stream`, after all that was queued before; what is queued later waits for it."""
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        yield
    current.wait_stream(stream)


def recorded(call: Callable[[], Any], stream: torch.cuda.Stream | None = None, pool: Any = None) -> tuple[Replay, Any]:
    """Record what `call` launches, without running it: what replays it, and its result, which each replay writes anew.

    `pool`: of torch.cuda.graph_pool_handle(), memory that several graphs share. Raises what `call` raises, and RuntimeError where it waits
    for the device. Other threads, such as those that load and pin batches, may allocate meanwhile (`thread_local`).
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
        result = call()
    return graph.replay, result
