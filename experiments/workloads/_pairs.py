"""Pairs of image and caption from Parquet, drawn by us or yours: what the workloads that train on them share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from experiments.parameters import TrainingParameters
from experiments.workloads._protocol import Batch, Context, DataError

if TYPE_CHECKING:
    import torch

    from experiments.workloads._images import PairDataset
    from experiments.workloads._parquet import Draft

# CLIP's image statistics, which FLAVA's processor uses too
PIXEL_MEAN = (0.48145466, 0.4578275, 0.40821073)
PIXEL_STD = (0.26862954, 0.26130258, 0.27577711)


class PairParameters(TrainingParameters):
    """Where the pairs come from."""

    dataset: str = Field(
        "drawn", description="drawn (scenes we draw), or a folder of Parquet: a path, s3://, gs://, hf://datasets/ID@COMMIT"
    )
    train_split: str = Field("train", description="files SPLIT.parquet or SPLIT-*.parquet")
    validation_split: str = Field("validation", description="files SPLIT.parquet or SPLIT-*.parquet")
    image_column: str = Field("image", description="column of encoded images: bytes, or struct{bytes, path}")
    caption_column: str = Field("image_description", description="column of captions")
    tokenizer: str | None = Field(None, description="folder with tokenizer.json; null: the data set's own")
    augment: bool = Field(True, description="random crop of 80 to 100 % of each side")
    keep_decoded: bool = Field(False, description="decode each image once and keep it, up to 8 GiB a process; needs augment: false")
    evaluation_batch_size: int = Field(16, ge=2, le=4096, description="the same in all trials, so that their losses compare")
    evaluation_samples: int = Field(64, ge=2, le=100_000, description="held-out pairs, at most")
    drawn_rows: int = Field(512, ge=16, le=1_000_000, description="training pairs of the drawn data set")

    @model_validator(mode="after")
    def _kept_as_it_is(self) -> PairParameters:
        if self.keep_decoded and self.augment:
            raise ValueError("keep_decoded: a random crop needs the image decoded anew; set augment: false")
        return self


class Pairs:
    """Both splits of the trial's data set. Raises DataError."""

    def __init__(self, context: Context, size: int, text_length: int) -> None:
        from experiments.workloads import _parquet, _staging
        from experiments.workloads._images import CorruptRows

        self.parameters: PairParameters = context.parameters
        self.context, self.size, self.text_length = context, size, text_length
        if context.data is None:
            raise DataError("the trial names no data set (trial.json: data)")
        splits = (self.parameters.train_split, self.parameters.validation_split)
        folder = _staging.local_folder(context.data.uri, splits)
        columns = (self.parameters.image_column, self.parameters.caption_column)
        self.train, self.held_out = (
            _parquet.Rows(_parquet.read_index(_parquet.split_files(folder, split), columns), *columns) for split in splits
        )
        self.corrupt = CorruptRows(len(self.train), context.note)
        self.corrupt_held_out = CorruptRows(len(self.held_out), context.note)

    def tokenizer(self) -> Any:
        """Raises DataError where there is none."""
        from tokenizers import Tokenizer

        data = self.context.data
        places = [place for place in (self.parameters.tokenizer, data.tokenizer if data else None) if place]
        for place in places:
            if (path := Path(place).expanduser() / "tokenizer.json").is_file():
                return Tokenizer.from_file(str(path))
        raise DataError(f"no tokenizer.json in {', '.join(places) or 'the data set'}: set tokenizer")

    def dataset(self, rows: Any, *, augment: bool) -> PairDataset:
        from experiments.workloads._images import PairDataset

        return PairDataset(
            rows,
            self.tokenizer(),
            size=self.size,
            text_length=self.text_length,
            augment=augment,
            where="cpu",
            keep=self.parameters.keep_decoded,
        )

    def drafts(self) -> Iterator[Draft]:
        """The rows of each batch of this rank, for ever."""
        from experiments.workloads import _parquet

        context = self.context
        return _parquet.drafts(
            self.train.groups, batch=context.batch_size, rank=context.rank, world=context.world_size, seed=self.parameters.seed
        )

    def batches(self, dataset: Any, order: Iterator[Any]) -> Iterator[Batch]:
        """Items of `dataset` in the order of their indices, by as many DataLoader processes as the trial asks for."""
        from experiments.workloads import _images

        for batch in _images.loader(
            dataset,
            order,
            workers=self.parameters.dataloader_workers,
            prefetch_factor=self.parameters.prefetch_factor,
            pin_memory=self.parameters.pin_memory and self.context.device_kind != "cpu",
        ):
            self.corrupt.add(batch.pop("corrupt", []))
            yield batch

    def held_out_drafts(self) -> Iterator[Draft]:
        """Whole batches of held-out rows. Raises DataError if there is not one."""
        from experiments.workloads._parquet import Draft

        size = self.parameters.evaluation_batch_size
        rows = iter(range(min(len(self.held_out), self.parameters.evaluation_samples)))
        found = False
        while len(part := tuple(islice(rows, size))) == size:  # whole batches only: chance depends on the size
            found = True
            yield Draft(part, tuple(range(len(self.held_out) - 4, len(self.held_out))), 0)
        if not found:
            raise DataError(f"{len(self.held_out)} held-out rows are fewer than one evaluation batch of {size}")


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    """uint8 (batch, h, w, 3) as fp32 (batch, 3, h, w) in CLIP's statistics, channels last in memory."""
    scale, shift = _normalisation(pixels.device)
    return (pixels * scale + shift).permute(0, 3, 1, 2)


@cache
def _normalisation(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """(scale, shift) by channel. Kept: to copy them in every step would stop the device's queue."""
    import torch

    scale = torch.tensor([1 / 255 / std for std in PIXEL_STD], device=device)
    shift = torch.tensor([-mean / std for mean, std in zip(PIXEL_MEAN, PIXEL_STD, strict=True)], device=device)
    return scale, shift
