"""FLAVA's batches: images alone, text alone, or pairs, with what is masked in each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from experiments.components.data.masked_text import most_told
from experiments.components.data.masking import IGNORED, mask_blocks, mask_tokens
from experiments.components.data.pairs import Pairs
from experiments.components.data.text import MASKS, token_id
from experiments.components.workload import Batch, DataError
from experiments.workloads.flava.parameters import MASKED_PATCHES, NEGATIVES, Parameters

if TYPE_CHECKING:
    import torch

    from experiments.components.data.parquet import BatchIndices

KINDS = ("image", "pair", "text")


def kinds(seed: int, *, balanced: bool) -> Iterator[str]:
    """The kind of batch of each step, without end; the same on all ranks.

    The first three steps are one of each. They are part of the warm-up, and a probe of the largest batch has then seen the kind that needs
    most memory.
    """
    draw = random.Random(f"kinds/{seed}")  # not the rank's: all ranks do the same kind of step
    yield from draw.sample(KINDS, len(KINDS))
    while True:
        yield from draw.sample(KINDS, len(KINDS)) if balanced else [draw.choice(KINDS)]


class Items:
    """(BatchIndices, kind) -> the arguments of FlavaForPreTraining on the host; pixels are still uint8 (batch, size, size, 3).

    Beside them `kind`, `count` (samples) and, of batches with images, `corrupt` [(row, name, why)]. Where passes are `together`, also
    `masked_patches` and `masked_tokens`, int64 (batch, n): as many places in each row, so that the device need not look for them.
    """

    def __init__(self, pairs: Pairs, rows: Any, config: Any, parameters: Parameters, *, augment: bool) -> None:
        size: int = config.image_config.image_size
        tokenizer = pairs.tokenizer()
        self.pairs = pairs.dataset(rows, tokenizer, size, augment=augment, keep=parameters.keep_decoded)
        self.rows, self.parameters = rows, parameters
        self.vocabulary: int = config.text_config.vocab_size
        self.side: int = size // config.image_config.patch_size  # patches
        mask = token_id(tokenizer, MASKS)
        self.mask = self.vocabulary - 1 if mask is None else mask
        self.long = pairs.tokenizer()
        self.long.no_padding()

    def __getitem__(self, key: tuple[BatchIndices, str]) -> Batch:
        """Raises DataError where too few rows of a batch are readable."""
        import torch

        indices, kind = key
        generator = torch.Generator().manual_seed(indices.seed & 0x7FFFFFFF)
        if kind == "text":
            tokens = self._long_texts(indices)
            masked, labels = self._masked(tokens, torch.ones_like(tokens, dtype=torch.bool), generator)
            # no `input_ids`: FLAVA would compute an unmasked pass with them, of which no loss is taken
            return {"kind": kind, "count": len(tokens), "input_ids_masked": masked, **self._labels(labels)}
        pairs = self.pairs[indices]
        count = len(pairs["input_ids"])
        images = {"kind": kind, "count": count, **self._masked_images(pairs, random.Random(indices.seed))}
        return images if kind == "image" else {**images, **self._matched_texts(pairs, generator)}

    def _masked_images(self, pairs: Batch, generator: random.Random) -> Batch:
        """Pixels, and which patches of each image are masked: bool (batch, side, side)."""
        import torch

        patches = round(MASKED_PATCHES * self.side**2)
        masks = [mask_blocks(self.side, patches, generator) for _ in pairs["input_ids"]]
        hidden = torch.tensor(masks)
        told = {"masked_patches": first_places(hidden.flatten(1), patches)} if self.parameters.passes == "together" else {}
        return {"pixels": pairs["pixels"], "bool_masked_pos": hidden, "corrupt": pairs["corrupt"], **told}

    def _matched_texts(self, pairs: Batch, generator: torch.Generator) -> Batch:
        """Captions, masked and not. A share NEGATIVES of the images gets the caption of the next pair; `itm_labels` is 0 for those."""
        import torch

        count = len(pairs["input_ids"])
        matches = torch.rand(count, generator=generator) >= NEGATIVES
        if count > 1:
            text = torch.where(matches, torch.arange(count), (torch.arange(count) + 1) % count)
        else:
            matches, text = torch.ones(1, dtype=torch.bool), torch.zeros(1, dtype=torch.long)
        tokens, real = pairs["input_ids"][text], pairs["attention_mask"][text]
        masked, labels = self._masked(tokens, real.bool(), generator)
        return {
            "input_ids": tokens,
            "input_ids_masked": masked,
            "attention_mask": real,
            "itm_labels": matches.long(),
            **self._labels(labels),
        }

    def _masked(self, tokens: torch.Tensor, real: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return mask_tokens(tokens, real, mask=self.mask, vocabulary=self.vocabulary, draw=generator)

    def _labels(self, labels: torch.Tensor) -> Batch:
        """Labels (batch, text), and, where passes are together, the places of those of each row."""
        if self.parameters.passes == "apart":
            return {"mlm_labels": labels}
        return {"mlm_labels": labels, "masked_tokens": first_places(labels != IGNORED, most_told(labels.shape[1]))}

    def _long_texts(self, indices: BatchIndices) -> torch.Tensor:
        """(batch, long_text_length) tokens: each row's caption, then those of the rows after it, cut. Raises DataError for empty ones."""
        import torch

        length, texts = self.parameters.long_text_length, []
        for row in indices.rows:
            tokens: list[int] = []
            at = row
            while len(tokens) < length:
                ids = self.long.encode(self.rows.read(at % len(self.rows))[1] or "").ids
                tokens += ids
                at += 1
                if at - row > 4 * length:
                    raise DataError(f"the captions after {self.rows.name(row)} are empty: nothing to read")
            texts.append(tokens[:length])
        return torch.tensor(texts)


def first_places(chosen: torch.Tensor, count: int) -> torch.Tensor:
    """Of each row of booleans (rows, places) the places of those that are true, in order, then of others: int64 (rows, count)."""
    return chosen.int().argsort(dim=1, descending=True, stable=True)[:, :count]
