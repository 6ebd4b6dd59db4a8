"""Text from Parquet, synthetic or the user's own, as tokens of fixed shapes: passages for language models, documents with summaries."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from experiments.components.data.parquet import CorruptRow
from experiments.components.data.splits import FOLDER, SplitParameters, Splits
from experiments.components.data.unpadding import Lengths, drawn_length
from experiments.components.workload import Batch, DataError
from experiments.datasets.columns import Holds
from experiments.datasets.own.needs import TokenizerRecipe
from experiments.datasets.texts import SPECIAL_TOKENS, TEMPLATE, VOCABULARY

if TYPE_CHECKING:
    import torch

    from experiments.components.data.parquet import BatchIndices

CHARACTERS = 12  # of a text are read for each token that is wanted: more than any natural language needs
PADS, MASKS = ("<pad>", "[PAD]"), ("<mask>", "[MASK]")


class TextParameters(SplitParameters):
    """Where the text comes from."""

    same_work: ClassVar[tuple[str, ...]] = ("dataset",)
    columns: ClassVar[Mapping[str, Holds]] = {"text_column": "text"}
    own_tokenizer = TokenizerRecipe(VOCABULARY, SPECIAL_TOKENS, TEMPLATE)

    dataset: str = Field("drawn-text", description=f"drawn-text (synthetic documents), {FOLDER}")
    text_column: str = Field("text", description="column of texts")


def token_id(tokenizer: Any, names: tuple[str, ...]) -> int | None:
    """The id of the first of these tokens that the tokenizer has."""
    return next((int(number) for name in names if (number := tokenizer.token_to_id(name)) is not None), None)


def check_vocabulary(tokenizer: Any, vocabulary: int) -> None:
    """Raises DataError for a tokenizer that has more tokens than the model's vocabulary."""
    if (tokens := tokenizer.get_vocab_size()) > vocabulary:
        raise DataError(f"the tokenizer has {tokens} tokens, the model {vocabulary}: set tokenizer or model to match")


def text_of(rows: Any, row: int, column: int) -> str:
    """The text in the row's first (0) or second (1) column. Raises CorruptRow where there is none."""
    text: str | None = rows.read(row)[column]
    if not text:
        raise CorruptRow(f"no {rows.columns[column]}")
    return text


class Passages:
    """BatchIndices -> tokens (batch, length): each row's text from a random word on, then the rows after it.

    `lengths` full: each has `length` tokens; drawn: as many as `drawn_length` says; own: the row's text alone, from its beginning, cut at
    `length`.
    """

    def __init__(self, splits: Splits, rows: Any, length: int, lengths: Lengths = "full") -> None:
        self.rows, self.length, self.lengths, self.tokenizer = rows, length, lengths, splits.tokenizer()
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        pad = token_id(self.tokenizer, PADS)
        self.pad = 0 if pad is None else pad

    def __getitem__(self, indices: BatchIndices) -> Batch:
        """input_ids, real: false for padding (batch, length), corrupt [(row, name, why)]. A function of the BatchIndices alone."""
        import torch

        draw, corrupt = random.Random(indices.seed), list[tuple[int, str, str]]()
        wanted = self._wanted(indices)
        passages = [self._passage(row, length, draw, corrupt) for row, length in zip(indices.rows, wanted, strict=True)]
        tokens = torch.tensor([[*passage, *[self.pad] * (self.length - len(passage))] for passage in passages])
        real = torch.arange(self.length) < torch.tensor([len(passage) for passage in passages])[:, None]
        return {"input_ids": tokens, "real": real, "corrupt": corrupt}

    def _wanted(self, indices: BatchIndices) -> list[int]:
        """Tokens of each row, at most. Drawn by a generator of their own, so that texts begin where those of full passages do."""
        if self.lengths != "drawn":
            return [self.length] * len(indices.rows)
        draw = random.Random(f"lengths/{indices.seed}/{indices.rows}")
        return [drawn_length(self.length, draw) for _ in indices.rows]

    def _passage(self, row: int, wanted: int, draw: random.Random, corrupt: list[tuple[int, str, str]]) -> list[int]:
        tokens: list[int] = []
        for number in range(len(self.rows) + self.length):
            at = (row + number) % len(self.rows)
            try:
                text = text_of(self.rows, at, 0)
            except CorruptRow as error:
                corrupt.append((at, self.rows.name(at), str(error)))
                continue
            start = text.find(" ", draw.randrange(len(text))) + 1 if number == 0 and self.lengths != "own" else 0
            tokens += self.tokenizer.encode(text[start : start + CHARACTERS * (wanted - len(tokens))]).ids
            if len(tokens) >= wanted or (tokens and self.lengths == "own"):
                return tokens[:wanted]
        raise DataError(f"the texts from {self.rows.name(row)} on have fewer than {wanted} tokens together")


class Summaries:
    """BatchIndices -> documents with their summaries, each padded or cut to its length."""

    def __init__(self, splits: Splits, rows: Any, *, source: int, target: int, prefix: str) -> None:
        self.rows, self.prefix, self.characters = rows, prefix, CHARACTERS * source
        self.tokenizers = (splits.tokenizer(), splits.tokenizer())
        pad = token_id(self.tokenizers[0], PADS)
        self.pad = 0 if pad is None else pad
        for tokenizer, length in zip(self.tokenizers, (source, target), strict=True):
            tokenizer.enable_truncation(length)
            tokenizer.enable_padding(length=length, pad_id=self.pad)

    def __getitem__(self, indices: BatchIndices) -> Batch:
        """input_ids, attention_mask (batch, source), labels (batch, target; padding is -100), corrupt [(row, name, why)]."""
        import torch

        documents, summaries, corrupt = list[str](), list[str](), list[tuple[int, str, str]]()
        for row in (*indices.rows, *indices.spare):
            if len(documents) == len(indices.rows):
                break
            try:
                document, summary = text_of(self.rows, row, 0), text_of(self.rows, row, 1)
            except CorruptRow as error:
                corrupt.append((row, self.rows.name(row), str(error)))
                continue
            documents.append(self.prefix + document[: self.characters])
            summaries.append(summary)
        if len(documents) < len(indices.rows):
            raise DataError("a batch ran out of readable rows; corrupt: " + ", ".join(f"{name} ({why})" for _, name, why in corrupt))
        source, target = (
            tokenizer.encode_batch_fast(texts) for tokenizer, texts in zip(self.tokenizers, (documents, summaries), strict=True)
        )

        def tensor(encodings: Any, what: str) -> torch.Tensor:
            return torch.tensor([getattr(encoding, what) for encoding in encodings])

        labels = tensor(target, "ids").masked_fill(tensor(target, "attention_mask") == 0, -100)
        return {
            "input_ids": tensor(source, "ids"),
            "attention_mask": tensor(source, "attention_mask"),
            "labels": labels,
            "corrupt": corrupt,
        }
