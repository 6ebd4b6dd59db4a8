"""Batches of masked-language training: passages, of whose tokens some are to be told, with or without the padding of short ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from experiments.components.data.masking import mask_tokens
from experiments.components.data.text import MASKS, Passages, token_id
from experiments.components.data.unpadding import unpadded
from experiments.components.workload import Batch

if TYPE_CHECKING:
    from experiments.components.data.parquet import BatchIndices

Padding = Literal["kept", "removed"]


class Masked:
    """BatchIndices -> batches on the host.

    input_ids, labels (samples, length); where lengths vary `real` too, false for padding; or without padding what `unpadded` makes of them.
    counts: samples, tokens, those that are computed (padding included), and pairs of query and key. corrupt [(row, name, why)].
    """

    def __init__(self, passages: Passages, *, vocabulary: int, padding: Padding = "kept") -> None:
        self.passages, self.vocabulary, self.padding = passages, vocabulary, padding
        mask = token_id(passages.tokenizer, MASKS)
        self.mask = vocabulary - 1 if mask is None else mask

    def __getitem__(self, indices: BatchIndices) -> Batch:
        import torch

        batch = self.passages[indices]
        tokens, real = batch["input_ids"], batch["real"]
        draw = torch.Generator().manual_seed(indices.seed & 0x7FFFFFFF)
        masked, labels = mask_tokens(tokens, real, mask=self.mask, vocabulary=self.vocabulary, draw=draw)
        documents = [tokens.shape[1]] * len(tokens)
        if self.padding == "removed":
            made = unpadded(masked, labels, real, pad=self.passages.pad)
            documents = made["starts"].diff().tolist()
        else:
            made = {"input_ids": masked, "labels": labels}
            if self.passages.lengths != "full":
                made["real"] = real
        return {**made, "counts": _counts(real, documents), "corrupt": batch["corrupt"]}


def _counts(real: Any, documents: list[int]) -> dict[str, int]:
    computed, pairs = sum(documents), sum(length * length for length in documents)
    return {"samples": len(real), "tokens": int(real.sum()), "computed": computed, "pairs": pairs}
