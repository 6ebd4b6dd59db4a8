"""Counting the floating-point operations of a model with torch, also on tensors that have a shape and no values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

# Which FLOPs count. 1, of windows that say nothing: without the attention of BridgeTower's vision tower; 2: as docs/metrics.md says
FLOP_COUNT = 2

Counted = float | dict[str, float]
C = TypeVar("C", float, dict[str, float])

_known: dict[str, Counted] = {}


def count_once(what: str, count: Callable[[], C]) -> C:
    """What `count()` returns, counted once in this process or in one that it was forked from. `what`: all that the count depends on.

    To count takes some tenths of a second to seconds, in which the trial holds its device. A template process learns from each trial what
    it counted (cluster/worker/template.py), so that the trials after it need not.
    """
    if what not in _known:
        _known[what] = count()
    return _known[what]  # type: ignore[return-value]


def known_counts() -> dict[str, Counted]:
    """All that this process knows."""
    return dict(_known)


def learn_counts(counts: Mapping[str, Counted]) -> None:
    """Know these too."""
    _known.update(counts)


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Within this, models and tensors are made on torch's meta device: without values, so that one of any size takes no memory.

    Fake tensors would give the same counts in twice the time: for each operation they go through Python.
    """
    import torch

    with torch.device("meta"), torch.no_grad():
        yield


@contextmanager
def counting() -> Iterator[FlopCounterMode]:
    """Within this, the FLOPs of all that is called are counted: matrix products, convolutions, and attention however a model computes it.

    FlopCounterMode has no formula for two ways to attend, which would count as nothing: the fused kernel to which a CPU takes
    scaled_dot_product_attention (`_scaled_dot_product_flash_attention_for_cpu`, torch 2.13), and nn.MultiheadAttention's inference path.
    So attention is computed here as its two batched products, which cost what the fused kernels do.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            yield counter
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


def in_linears(counter: FlopCounterMode, model: nn.Module, blocks: Iterable[nn.Module]) -> float:
    """Of the FLOPs of a call of `model` that `counting` saw: those of the linear layers in `blocks`, modules of it.

    Attention computes as batched products, so single matrix products are those of linear layers.
    """
    import torch

    names = {id(module): name for name, module in model.named_modules()}
    counts = counter.get_flop_counts()
    inside = [counts.get(f"{type(model).__name__}.{names[id(block)]}", {}) for block in blocks]
    return float(sum(of.get(product, 0) for of in inside for product in (torch.ops.aten.mm, torch.ops.aten.addmm)))


def in_attention(counter: FlopCounterMode) -> float:
    """Of the FLOPs that `counting` saw of a transformer: those of attention, all that is computed as batched products."""
    import torch

    of = counter.get_flop_counts()["Global"]
    return float(sum(of.get(product, 0) for product in (torch.ops.aten.bmm, torch.ops.aten.baddbmm)))


@contextmanager
def attention_masks_left_out(modeling: ModuleType) -> Iterator[None]:
    """Within this, the transformers module `modeling` makes no attention masks.

    To make one it looks at values, which tensors of `shapes_alone` do not have. A mask costs no matrix product, so the count is the same
    without.
    """
    made_by = getattr(modeling, "create_bidirectional_mask", None)
    if made_by is None:
        yield
        return
    modeling.create_bidirectional_mask = lambda *_, **__: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        modeling.create_bidirectional_mask = made_by  # type: ignore[attr-defined]
