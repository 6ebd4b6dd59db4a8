"""Help for counting the floating-point operations of a transformers model on torch's fake tensors, which hold no values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def attention_masks_left_out(modeling: ModuleType) -> Iterator[None]:
    """Within this, the transformers module `modeling` makes no attention masks.

    To make one it looks at values, which fake tensors do not have. A mask costs no matrix product, so the count is the same without.
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
