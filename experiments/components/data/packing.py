"""Documents packed to sequences of one length, without padding: what language models are trained on."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.components.data.parquet import CorruptRow
from experiments.components.data.splits import Splits
from experiments.components.data.text import CHARACTERS, text_of
from experiments.components.workload import Batch, DataError

if TYPE_CHECKING:
    import numpy as np

    from experiments.components.data.parquet import BatchIndices

KEPT_TOKENS = 2**25  # of documents, that a process keeps encoded: 128 MiB
STARTS = 64  # the number of documents of a batch is rounded up to a multiple of this, so that compiled code sees few lengths


class Packed:
    """BatchIndices -> sequences: a row's document from a random token on, then the documents after it, the last one cut.

    Each document ends as the tokenizer's own template ends a text.
    """

    def __init__(self, splits: Splits, rows: Any, length: int, tokenizer: Any, *, block: bool) -> None:
        self.rows, self.length, self.tokenizer, self.block = rows, length, tokenizer, block
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self._kept: dict[int, np.ndarray[Any, Any]] = {}
        self._room = KEPT_TOKENS
        self._lock = threading.Lock()  # of both; threads may share this

    def __getitem__(self, indices: BatchIndices) -> Batch:
        """input_ids, labels (batch, length): the next token of each. corrupt [(row, name, why)]. pairs: of query and key that attention
        computes, summed over the batch.

        With `block` also position_ids (batch, length), and starts (documents + 1, rounded up; int32): where each document begins if the
        sequences follow one another, and where the last one ends. It is filled up with documents without tokens.
        """
        import torch

        draw, corrupt = random.Random(indices.seed), list[tuple[int, str, str]]()
        sequences = [self._sequence(row, draw, corrupt) for row in indices.rows]
        tokens = torch.tensor([ids for ids, _ in sequences])
        batch: Batch = {"input_ids": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous(), "corrupt": corrupt}
        lengths = [_lengths(begins, self.length) if self.block else [self.length] for _, begins in sequences]
        batch["pairs"] = sum(causal_pairs(each) for each in lengths)
        if self.block:
            batch["position_ids"] = torch.stack([torch.cat([torch.arange(each) for each in row]) for row in lengths])
            batch["starts"] = _starts([each for row in lengths for each in row])
        return batch

    def _sequence(self, row: int, draw: random.Random, corrupt: list[tuple[int, str, str]]) -> tuple[list[int], list[int]]:
        """(length + 1 tokens, where their documents begin)."""
        wanted, tokens, begins = self.length + 1, list[int](), list[int]()
        for number in range(len(self.rows) + wanted):
            at = (row + number) % len(self.rows)
            try:
                document = self._document(at)
            except CorruptRow as error:
                corrupt.append((at, self.rows.name(at), str(error)))
                continue
            begins.append(len(tokens))
            tokens += document[draw.randrange(len(document)) if number == 0 else 0 :][: wanted - len(tokens)].tolist()
            if len(tokens) == wanted:
                return tokens, begins
        raise DataError(f"the texts from {self.rows.name(row)} on have fewer than {wanted} tokens together")

    def _document(self, row: int) -> np.ndarray[Any, Any]:
        """The row's tokens, of a long text its beginning. Raises CorruptRow where it has none."""
        import numpy as np

        if row in self._kept:
            return self._kept[row]
        ids = np.asarray(self.tokenizer.encode(text_of(self.rows, row, 0)[: CHARACTERS * (self.length + 1)]).ids, dtype=np.int32)
        if len(ids) == 0:
            raise CorruptRow("its text has no tokens")
        with self._lock:
            if row not in self._kept and len(ids) <= self._room:
                self._kept[row] = ids
                self._room -= len(ids)
        return ids


def causal_pairs(lengths: Sequence[int]) -> int:
    """Pairs of query and key in documents of these lengths, where a token sees itself and those of its document before it."""
    return sum(length * (length + 1) // 2 for length in lengths)


def _lengths(begins: Sequence[int], length: int) -> list[int]:
    """Tokens of each document within the first `length` tokens of a sequence."""
    ends = [*(begin for begin in begins[1:] if begin < length), length]
    return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def _starts(lengths: Sequence[int]) -> Any:
    import torch

    starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    missing = -len(lengths) % STARTS
    return torch.cat([starts, starts[-1:].expand(missing)])
