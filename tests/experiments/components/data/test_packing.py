"""Packed documents: what a sequence holds, where its documents begin, and the pairs that attention computes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from experiments.components.data.packing import STARTS, Packed, _lengths, causal_pairs
from experiments.components.data.parquet import BatchIndices
from experiments.components.workload import DataError


class Tokenizer:
    """A token for each character, and 0 at a text's end."""

    def no_padding(self) -> None: ...

    def no_truncation(self) -> None: ...

    def encode(self, text: str) -> Any:
        return SimpleNamespace(ids=[*map(ord, text), 0])


class Rows:
    columns = ("text", "text")

    def __init__(self, texts: list[str | None]) -> None:
        self.texts = texts
        self.reads: list[int] = []

    def __len__(self) -> int:
        return len(self.texts)

    def name(self, row: int) -> str:
        return f"row {row}"

    def read(self, row: int) -> tuple[str | None, str | None]:
        self.reads.append(row)
        return self.texts[row], self.texts[row]


def packed(texts: list[str | None], length: int, *, block: bool = True) -> Packed:
    splits: Any = None
    return Packed(splits, Rows(texts), length, Tokenizer(), block=block)


def test_a_sequence_is_a_document_from_some_token_on_and_the_documents_after_it() -> None:
    batch = packed(["abcdefgh", "xy", "uvw"], 12)[BatchIndices((0,), (), 5)]
    text = "".join(map(chr, [*batch["input_ids"][0].tolist(), batch["labels"][0, -1].item()]))
    following = "xy\0uvw\0abcdefgh\0"
    assert text in [("abcdefgh\0"[begin:] + following)[:13] for begin in range(9)]
    torch.testing.assert_close(batch["labels"][0, :-1], batch["input_ids"][0, 1:])


def test_positions_begin_anew_and_starts_are_those_of_all_sequences_in_a_row() -> None:
    one = packed(["\x01", "xy"], 7)  # documents of two and three tokens; the first begins at its first or second token
    batch = one[BatchIndices((1, 0), (), 1)]
    for ids, positions in zip(batch["input_ids"].tolist(), batch["position_ids"].tolist(), strict=True):
        for before, position, following in zip(ids, positions, positions[1:], strict=False):
            assert following == (0 if before == 0 else position + 1)
        assert positions[0] == 0
    starts = batch["starts"]
    begins = [at for at, position in enumerate(batch["position_ids"].flatten().tolist()) if position == 0]
    assert starts.dtype == torch.int32 and starts.tolist() == begins + [14] * (STARTS + 1 - len(begins))
    lengths = torch.diff(starts)
    assert lengths.sum() == 14
    assert batch["pairs"] == causal_pairs(lengths.tolist())


def test_plain_sequences_are_one_document_to_attention() -> None:
    batch = packed(["abc"], 10, block=False)[BatchIndices((0, 0), (), 1)]
    assert sorted(batch) == ["corrupt", "input_ids", "labels", "pairs"]
    assert batch["pairs"] == 2 * 55 == 2 * causal_pairs([10])


def test_a_document_that_begins_with_the_last_label_is_no_part_of_the_sequence() -> None:
    one = packed(["ab"], 3)
    seen = {tuple(one[BatchIndices((0,), (), seed)]["position_ids"][0].tolist()) for seed in range(30)}
    assert seen == {(0, 1, 2), (0, 1, 0), (0, 0, 1)}, "begun at its first, second or third token"


def test_a_document_is_encoded_once_and_the_place_is_a_function_of_the_seed() -> None:
    one = packed(["abc", "defgh"], 6)
    first = one[BatchIndices((0, 1), (), 9)]
    again = one[BatchIndices((0, 1), (), 9)]
    torch.testing.assert_close(first["input_ids"], again["input_ids"])
    assert one.rows.reads == [0, 1]


def test_rows_without_text_are_skipped_and_told() -> None:
    one = packed(["abc", None, "de"], 8)
    batch = one[BatchIndices((0,), (), 2)]
    assert ("row 1" in {name for _, name, _ in batch["corrupt"]}) and batch["input_ids"].shape == (1, 8)
    with pytest.raises(DataError, match="the texts from row 0 on have fewer than 9 tokens together"):
        packed([None, None], 8)[BatchIndices((0,), (), 2)]


def test_a_document_that_begins_after_the_last_token_is_none_of_the_sequence() -> None:
    """A sequence has one token more than it is long, which is told and not read: a document may begin with it."""
    assert _lengths([0, 5, 8], 8) == [5, 3] and _lengths([0, 5, 7], 8) == [5, 2, 1] and _lengths([0], 8) == [8]
