"""Batches of masked-language training: passages, of whose tokens some are to be told, with or without the padding of short ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from experiments.components.data.masking import IGNORED, SHARE, mask_tokens, told_of
from experiments.components.data.text import MASKS, Passages, token_id
from experiments.components.data.unpadding import MULTIPLE, longest_document, unpadded
from experiments.components.workload import Batch

if TYPE_CHECKING:
    import torch

    from experiments.components.data.parquet import BatchIndices

Padding = Literal["kept", "removed"]
Prediction = Literal["all", "masked"]


class Masked:
    """BatchIndices -> batches on the host.

    input_ids, labels (samples, length); where lengths vary `real` too, false for padding; or without padding what `unpadded` makes of them.
    With `prediction` masked, `predicted` (n,): the places of the tokens to be told among all, and labels (n,) of these alone (`told`).
    counts: samples, tokens, those that are computed (padding included), pairs of query and key, and tokens that the head computes.
    corrupt [(row, name, why)].
    """

    def __init__(
        self,
        passages: Passages,
        *,
        vocabulary: int,
        padding: Padding = "kept",
        prediction: Prediction = "all",
        multiple: int = MULTIPLE,
    ) -> None:
        """`multiple`: to which the tokens of a batch without padding are rounded up."""
        self.passages, self.vocabulary, self.padding, self.prediction = passages, vocabulary, padding, prediction
        self.multiple = multiple
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
            longest = longest_document(tokens.shape[1])
            made = unpadded(masked, labels, real, pad=self.passages.pad, multiple=self.multiple, longest=longest)
            documents = made["starts"].diff().tolist()
        else:
            made = {"input_ids": masked, "labels": labels}
            if self.passages.lengths != "full":
                made["real"] = real
        if self.prediction == "masked":
            made |= told(made["labels"], self._size(tokens, made["input_ids"]))
        return {**made, "counts": _counts(real, documents, made["labels"].numel()), "corrupt": batch["corrupt"]}

    def _size(self, tokens: torch.Tensor, computed: torch.Tensor) -> int | None:
        """Of how many tokens the head computes scores, where that is to be the same of batches with as many tokens; None: any number."""
        if self.padding == "kept":
            return len(tokens) * most_told(tokens.shape[1])
        return None if self.multiple == MULTIPLE else most_told_of(computed.numel(), len(tokens))


def most_told_of(tokens: int, rows: int) -> int:
    """Of so many rows with so many tokens in all, those to be told, at most; a multiple of MULTIPLE.

    A row's share is rounded, and one at least, so that it is less than one more than the share.
    """
    return math.ceil((tokens * SHARE + rows) / MULTIPLE) * MULTIPLE


def most_told(length: int) -> int:
    """Of a row of `length` tokens at most, those to be told, at most."""
    import torch

    return int(told_of(torch.tensor(length)))


def told(labels: torch.Tensor, size: int | None = None) -> Batch:
    """Of labels (rows, length), those that are not IGNORED: predicted (n,), their places among all tokens, in order, and labels (n,).

    n is filled up with place 0 and no label: to `size`, so that batches are alike, or to a multiple of MULTIPLE. Raises ValueError where
    there are more than `size`.
    """
    import torch

    flat = labels.flatten()
    places = (flat != IGNORED).nonzero()[:, 0]
    filled = -len(places) % MULTIPLE if size is None else size - len(places)
    if filled < 0:
        raise ValueError(f"{len(places)} labels are more than {size}")
    return {
        "predicted": torch.cat([places, places.new_zeros(filled)]),
        "labels": torch.cat([flat[places], flat.new_full((filled,), IGNORED)]),
    }


def _counts(real: Any, documents: list[int], predicted: int) -> dict[str, int]:
    computed, pairs = sum(documents), sum(length * length for length in documents)
    return {"samples": len(real), "tokens": int(real.sum()), "computed": computed, "pairs": pairs, "predicted": predicted}
