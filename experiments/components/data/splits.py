"""The two splits of a data set in Parquet, synthetic or the user's own: what every workload that reads rows shares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from experiments.components.workload import Batch, Context, DataError
from experiments.datasets.columns import Holds
from experiments.datasets.own.needs import Needs, TokenizerRecipe
from experiments.parameters import TrainingParameters

if TYPE_CHECKING:
    from experiments.components.data.parquet import BatchIndices

FOLDER = "or your own folder (docs/extending.md), or Parquet at s3://, gs://, hf://datasets/ID@COMMIT"
MADE = "made.json"  # beside a set that was made of the user's files: how (experiments/datasets/own/prepare.py)
SPARE_ROWS = 4  # of the held-out split, its last ones: they stand in for corrupt rows of an evaluation batch


class RowParameters(TrainingParameters):
    """Where the rows come from. A workload adds `dataset`, and a parameter for each column that it reads, which `columns` names."""

    columns: ClassVar[Mapping[str, Holds]] = {}

    train_split: str = Field("train", description="files SPLIT.parquet or SPLIT-*.parquet")
    validation_split: str = Field("validation", description="files SPLIT.parquet or SPLIT-*.parquet; your own data needs none")
    evaluation_batch_size: int = Field(16, ge=2, le=4096, description="the same in all trials, so that their losses compare")
    evaluation_samples: int = Field(64, ge=2, le=100_000, description="held-out rows, at most")
    drawn_rows: int = Field(512, ge=16, le=1_000_000, description="training rows of the synthetic data set")

    def needs(self) -> Needs:
        """What these parameters need of a data set of the user's own."""
        return Needs(self.columns)


class SplitParameters(RowParameters):
    """Where rows with text come from."""

    own_tokenizer: ClassVar[TokenizerRecipe | None] = None  # to train on the user's own texts

    tokenizer: str | None = Field(None, description="folder with tokenizer.json; null: the data set's own, else one trained on its text")

    def needs(self) -> Needs:
        return Needs(self.columns, self.own_tokenizer)


class Splits:
    """Both splits of the trial's data set, of which two columns are read.

    Raises DataError without a data set, for a folder without the splits, and for a file that is damaged or lacks a column.
    """

    def __init__(self, context: Context, columns: tuple[str, str], holds: tuple[Holds, Holds] = ("text", "text")) -> None:
        from experiments.components.data import parquet, staging
        from experiments.components.data.images import CorruptRows

        self.parameters: Any = context.parameters
        self.context = context
        if context.data is None:
            raise DataError("the trial names no data set (trial.json: data)")
        splits = (self.parameters.train_split, self.parameters.validation_split)
        folder = staging.local_folder(context.data.uri, splits, context.data.fingerprint)
        self.train, self.held_out = (
            parquet.Rows(parquet.read_index(parquet.split_files(folder, split), columns, holds), *columns) for split in splits
        )
        if (made := folder / MADE).is_file():
            context.fact("data_set", str(json.loads(made.read_text(encoding="utf-8"))["says"]))
        self.corrupt = CorruptRows(len(self.train), context.note)
        self.corrupt_held_out = CorruptRows(len(self.held_out), context.note)

    def tokenizer(self, weights: str | None = None, revision: str | None = None) -> Any:
        """A new tokenizers.Tokenizer: that of the parameter `tokenizer`, else the data set's, else the one beside the weights.

        `weights` is a folder, or a hub id at a `revision`. Raises DataError where there is no tokenizer.json.
        """
        from tokenizers import Tokenizer

        data = self.context.data
        places = [place for place in (self.parameters.tokenizer, data.tokenizer if data else None, weights) if place]
        for place in places:
            if (path := Path(place).expanduser() / "tokenizer.json").is_file():
                return Tokenizer.from_file(str(path))
        if weights and revision:
            from huggingface_hub import hf_hub_download

            return Tokenizer.from_file(hf_hub_download(weights, "tokenizer.json", revision=revision))
        raise DataError(f"no tokenizer.json in {', '.join(places) or 'the data set'}: set tokenizer")

    def train_indices(self) -> Iterator[BatchIndices]:
        """The rows of each training batch of this rank, without end.

        Raises DataError for the user's own rows where they are fewer than a batch: it would hold some of them twice.
        """
        from experiments.components.data import parquet

        context, rows = self.context, len(self.train)
        together = context.batch_size * context.world_size
        if rows < together and not str(getattr(self.parameters, "dataset", "")).startswith("drawn"):
            files = ", ".join(dict.fromkeys(group.path.name for group in self.train.groups))
            raise DataError(
                f"{files}: {rows} rows are fewer than one batch of {together} (batch_size {context.batch_size} on {context.world_size} "
                f"devices), which would hold copies; give more rows, or batch_size {rows // context.world_size} at most"
            )
        return parquet.batch_indices(
            self.train.groups, batch=context.batch_size, rank=context.rank, world=context.world_size, seed=self.parameters.seed
        )

    def batches(self, dataset: Any, order: Iterator[Any]) -> Iterator[Batch]:
        """Items of `dataset` in the order of their indices. Raises DataError once too many rows were corrupt."""
        from experiments.components.data.loading import load

        for batch in load(dataset, order, self.context):
            self.corrupt.add(batch.pop("corrupt", []))
            yield batch

    def held_out_indices(self) -> Iterator[BatchIndices]:
        """The rows of each evaluation batch; whole batches only, since the chance loss depends on their size.

        Raises DataError if there is not one.
        """
        from experiments.components.data.parquet import BatchIndices

        size, count = self.parameters.evaluation_batch_size, len(self.held_out)
        rows = iter(range(min(count, self.parameters.evaluation_samples)))
        any_batch = False
        while len(part := tuple(islice(rows, size))) == size:
            any_batch = True
            yield BatchIndices(part, tuple(range(max(0, count - SPARE_ROWS), count)), 0)
        if not any_batch:
            raise DataError(f"{count} held-out rows are fewer than one evaluation batch of {size}")

    def held_out_batches(self, dataset: Any) -> Iterator[Batch]:
        """Items of `dataset` for evaluation, loaded in this process. Raises DataError once too many rows were corrupt."""
        for indices in self.held_out_indices():
            batch: Batch = dataset[indices]
            self.corrupt_held_out.add(batch.pop("corrupt", []))
            yield batch
