"""The CUDA allocator whose segments grow. `make test-gpu` runs it."""

from __future__ import annotations

import multiprocessing

import pytest
import torch

from cluster.worker.torch_internals import let_segments_grow

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def _expandable() -> set[bool]:
    """Whether the segments of a process that has asked for it are; in a process of its own, since the switch is one of the process."""
    let_segments_grow()
    kept = torch.empty(64 << 20, device="cuda")
    found = {bool(segment["is_expandable"]) for segment in torch.cuda.memory_snapshot()}
    del kept
    return found


def test_segments_grow_once_that_is_asked_for() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_expandable) == {True}
