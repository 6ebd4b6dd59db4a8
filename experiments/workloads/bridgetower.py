"""BridgeTower fine-tuning: contrastive training on pairs of image and caption, as in "BridgeTower on Gaudi2".

The loss is the mean of the text-image, text-cross and image-cross cross-entropies over the local batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from experiments.parameters import TrainingParameters
from experiments.workloads._protocol import Batch, Context, DataError, Unsupported

if TYPE_CHECKING:
    import torch
    from torch import nn

    from experiments.workloads._images import PairDataset

COMMIT = re.compile(r"[0-9a-f]{40}")
HUB_DATASET = re.compile(r"hf://datasets/[\w.-]+/[\w.-]+@[0-9a-f]{40}(/.*)?")


class Parameters(TrainingParameters):
    """BridgeTower's own settings."""

    model: Literal["large", "base", "mini", "tiny"] = Field("tiny", description="large and base as published; mini and tiny for CPUs")
    attention: Literal["eager", "sdpa"] = Field("eager", description="attention of the text and cross layers")
    text_length: int = Field(128, ge=4, le=512, description="tokens per caption, padded or cut")
    image_size: int | None = Field(None, ge=14, le=1024, description="pixels per side; null: the model's own")
    dropout: float | None = Field(None, ge=0, lt=1, description="null: the model's own, 0.1 in large and base, 0 in mini and tiny")
    weights: str | None = Field(None, description="null: random from the seed; a hub id; or a folder made by save_pretrained")
    revision: str | None = Field(None, description="commit (40 hex digits) of a hub id, for weights")
    freeze_text_pooler: bool = Field(True, description="the text pooler's output is unused; without this DDP must search for it")
    dataset: str = Field(
        "drawn", description="drawn (scenes we draw), or a folder of Parquet: a path, s3://, gs://, hf://datasets/ID@COMMIT"
    )
    train_split: str = Field("train", description="files SPLIT.parquet or SPLIT-*.parquet")
    validation_split: str = Field("validation", description="files SPLIT.parquet or SPLIT-*.parquet")
    image_column: str = Field("image", description="column of encoded images: bytes, or struct{bytes, path}")
    caption_column: str = Field("image_description", description="column of captions")
    tokenizer: str | None = Field(None, description="folder with tokenizer.json; null: the data set's, else the weights' own")
    image_decode: Literal["cpu", "device"] = Field("cpu", description="the DataLoader decodes JPEGs, or the device (nvJPEG, media pipe)")
    export_images: bool = Field(False, description="hpu: write the images to files, which the media pipe needs")
    augment: bool = Field(True, description="random crop of 80 to 100 % of each side")
    evaluation_batch_size: int = Field(16, ge=2, le=4096, description="the same in all trials, so that their losses compare")
    evaluation_samples: int = Field(128, ge=2, le=100_000, description="held-out pairs, at most")
    drawn_rows: int = Field(512, ge=16, le=1_000_000, description="training pairs of the drawn data set")

    @model_validator(mode="after")
    def _pinned(self) -> Parameters:
        hub = self.weights is not None and not self.weights.startswith(("/", ".", "~"))
        if hub and not COMMIT.fullmatch(self.revision or ""):
            raise ValueError(
                f"weights {self.weights!r} is a hub id: revision must be its commit, 40 hex digits (a path starts with / or .)"
            )
        if not hub and self.revision is not None:
            raise ValueError("revision is only for weights that are a hub id")
        if self.dataset.startswith("hf://") and not HUB_DATASET.fullmatch(self.dataset):
            raise ValueError("dataset on the hub: hf://datasets/OWNER/NAME@COMMIT[/FOLDER], COMMIT being 40 hex digits")
        return self


def build(context: Context) -> BridgeTower:
    """The workload on this rank. Raises DataError and Unsupported."""
    return BridgeTower(context)


class BridgeTower:
    """See Workload."""

    def __init__(self, context: Context) -> None:
        from experiments.workloads import _parquet, _staging
        from experiments.workloads._images import CorruptRows

        self.parameters: Parameters = context.parameters
        self.context = context
        self.find_unused_parameters = not self.parameters.freeze_text_pooler
        if self.parameters.image_decode == "device" and context.device_kind not in ("cuda", "hpu"):
            raise Unsupported(f"image_decode device: {context.device_kind} has no JPEG decoder")
        if context.data is None:
            raise DataError("the trial names no data set (trial.json: data)")
        folder = _staging.local_folder(context.data.uri, (self.parameters.train_split, self.parameters.validation_split))
        columns = (self.parameters.image_column, self.parameters.caption_column)
        self.rows = _parquet.Rows(_parquet.read_index(_parquet.split_files(folder, self.parameters.train_split), columns), *columns)
        self.held_out = _parquet.Rows(
            _parquet.read_index(_parquet.split_files(folder, self.parameters.validation_split), columns), *columns
        )
        self.corrupt = CorruptRows(len(self.rows), context.note)
        self.corrupt_held_out = CorruptRows(len(self.held_out), context.note)
        self.image_size = 0  # known once the model is built

    def model(self) -> nn.Module:
        from experiments.workloads import _bridgetower

        model: Any = _bridgetower.build(self.parameters)
        self.image_size = model.config.vision_config.image_size
        vocabulary, tokens = model.config.text_config.vocab_size, self._tokenizer().get_vocab_size()
        if tokens > vocabulary:
            raise DataError(f"the tokenizer has {tokens} tokens, the model {vocabulary}: set model or weights and tokenizer to match")
        return model  # type: ignore[no-any-return]

    def layers(self, model: nn.Module) -> list[nn.Module]:
        from experiments.workloads import _bridgetower

        return _bridgetower.layers(model)

    def batches(self) -> Iterator[Batch]:
        from experiments.workloads import _images, _parquet

        context, parameters, where = self.context, self.parameters, self.parameters.image_decode
        if where == "device" and context.device_kind == "hpu":
            pipe = self._media_pipe()
            if pipe is not None:
                yield from pipe
                return
            where = "cpu"
        order = _parquet.drafts(
            self.rows.groups, batch=context.batch_size, rank=context.rank, world=context.world_size, seed=parameters.seed
        )
        dataset = self._dataset(self.rows, augment=parameters.augment, where=where)
        for batch in _images.loader(
            dataset,
            order,
            workers=parameters.dataloader_workers,
            prefetch_factor=parameters.prefetch_factor,
            pin_memory=parameters.pin_memory and context.device_kind != "cpu",
        ):
            self.corrupt.add(batch.pop("corrupt"))
            yield batch

    def _media_pipe(self) -> Iterator[Batch] | None:
        """Batches decoded by the media pipe; None where it cannot be made. Which of the two is a fact of the trial, never silent."""
        from experiments.workloads import _bridgetower, _images, _media_pipe, _parquet, _staging

        context, parameters = self.context, self.parameters
        try:
            if not parameters.export_images:
                raise DataError("it reads files, and the images are bytes in Parquet; export_images: true writes files")
            assert context.data is not None
            root = _staging.cache_folder().parent / "images"
            exported = _media_pipe.export(self.rows, context.data.fingerprint, parameters.train_split, root)
            names = _images.loader(
                _media_pipe.Names(self.rows, exported, self._tokenizer(), parameters.text_length),  # type: ignore[arg-type]
                _parquet.drafts(
                    self.rows.groups, batch=context.batch_size, rank=context.rank, world=context.world_size, seed=parameters.seed
                ),
                workers=parameters.dataloader_workers,
                prefetch_factor=parameters.prefetch_factor,
                pin_memory=False,
            )
            shape = _media_pipe.Shape(
                context.batch_size,
                parameters.text_length,
                self.image_size,
                _bridgetower.PIXEL_MEAN,
                _bridgetower.PIXEL_STD,
                parameters.augment,
                parameters.seed + context.rank,
            )
            pipe = _media_pipe.open_pipe(names, list(exported.files.values()), shape, self.corrupt)
        except Exception as error:  # whatever it is, the images can still be decoded by the DataLoader
            context.note(f"media pipe not used, the DataLoader decodes: {error}")
            context.fact("media_pipe", f"fallback: {error}"[:300])
            return None
        context.fact("media_pipe", "used")
        return _media_pipe.batches(pipe)

    def prepare(self, batch: Batch) -> Batch:
        if "jpegs" not in batch:
            return batch
        from experiments.workloads._device_decode import decode

        boxes = batch.pop("boxes")
        pixels = decode(batch.pop("jpegs"), boxes, self.image_size, batch["input_ids"].device)
        return {**batch, "pixels": pixels}

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        from experiments.workloads import _bridgetower

        loss: torch.Tensor = model(**_bridgetower.inputs(batch, self.parameters.attention), return_loss=True).loss
        return loss

    def samples(self, batch: Batch) -> int:
        return len(batch["input_ids"])

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        from experiments.workloads import _bridgetower

        size = self.parameters.evaluation_batch_size
        metrics = _bridgetower.evaluate(model, map(place, self._held_out_batches(size)), size, self.parameters.attention)
        return {**metrics, "corrupt_rows": float(len(self.corrupt) + len(self.corrupt_held_out))}

    def flops_per_sample(self) -> float | None:
        from experiments.workloads import _bridgetower

        if self.parameters.weights is not None:
            return None  # counted for the sizes above only
        return _bridgetower.flops_per_sample(self.parameters, self.parameters.text_length)

    def _held_out_batches(self, size: int) -> Iterator[Batch]:
        from experiments.workloads._parquet import Draft

        dataset = self._dataset(self.held_out, augment=False, where="cpu")
        rows = iter(range(min(len(self.held_out), self.parameters.evaluation_samples)))
        found = False
        while len(part := tuple(islice(rows, size))) == size:  # whole batches only: chance depends on the size
            batch = dataset[Draft(part, tuple(range(len(self.held_out) - 4, len(self.held_out))), 0)]
            self.corrupt_held_out.add(batch.pop("corrupt"))
            found = True
            yield batch
        if not found:
            raise DataError(f"{len(self.held_out)} held-out rows are fewer than one evaluation batch of {size}")

    def _dataset(self, rows: Any, *, augment: bool, where: Literal["cpu", "device"]) -> PairDataset:
        from experiments.workloads._images import PairDataset

        size = self.image_size
        if not size:
            raise RuntimeError("model() comes before batches(): the model knows its image size")
        return PairDataset(rows, self._tokenizer(), size=size, text_length=self.parameters.text_length, augment=augment, where=where)

    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        data = self.context.data
        places = [self.parameters.tokenizer, data.tokenizer if data else None, self.parameters.weights]
        for place in places:
            if place and (path := Path(place).expanduser() / "tokenizer.json").is_file():
                return Tokenizer.from_file(str(path))
        if self.parameters.weights and self.parameters.revision:
            from huggingface_hub import hf_hub_download

            return Tokenizer.from_file(hf_hub_download(self.parameters.weights, "tokenizer.json", revision=self.parameters.revision))
        raise DataError(f"no tokenizer.json in {', '.join(str(place) for place in places if place) or 'the data set: set tokenizer'}")
