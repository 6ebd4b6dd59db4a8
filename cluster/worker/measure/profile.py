"""A torch.profiler trace of a few steps, and the breakdown of their time."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.worker.measure.trace_breakdown import breakdown


@contextmanager
def trace(path: Path | None) -> Iterator[None]:
    """Profile the block and write a gzipped Chrome trace to `path` atomically. With None (ranks other than 0) do not profile."""
    if path is None:
        yield
        return
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities, record_shapes=True) as profiler:
        yield
    temporary = path.with_name(f".{os.getpid()}.{path.name}")  # the name must end in .gz to be compressed
    try:
        profiler.export_chrome_trace(str(temporary))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_breakdown(path: Path, steps: int) -> dict[str, Any] | None:
    """The `breakdown` of the trace file at `path`, which holds `steps` steps."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return breakdown(json.load(file)["traceEvents"], steps)
