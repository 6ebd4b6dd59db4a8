"""BridgeTower fine-tuning: contrastive training on pairs of image and caption, as in "BridgeTower on Gaudi2".

The loss is the mean of the text-image, text-cross and image-cross cross-entropies over the local batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from experiments.components.workload import Batch, Context, DataError, Unsupported
from experiments.workloads.bridgetower.parameters import Parameters

if TYPE_CHECKING:
    import torch
    from torch import nn

    from experiments.components.data.images import PairDataset


def build(context: Context) -> BridgeTower:
    """The workload on this rank. Raises DataError and Unsupported."""
    return BridgeTower(context)


class BridgeTower:
    """See Workload."""

    def __init__(self, context: Context) -> None:
        from experiments.components.data import parquet, staging
        from experiments.components.data.images import CorruptRows

        self.parameters: Parameters = context.parameters
        self.context = context
        self.find_unused_parameters = not self.parameters.freeze_text_pooler
        if self.parameters.image_decode == "device" and context.device_kind not in ("cuda", "hpu"):
            raise Unsupported(f"image_decode device: {context.device_kind} has no JPEG decoder")
        if context.data is None:
            raise DataError("the trial names no data set (trial.json: data)")
        folder = staging.local_folder(context.data.uri, (self.parameters.train_split, self.parameters.validation_split))
        columns = (self.parameters.image_column, self.parameters.caption_column)
        self.rows = parquet.Rows(parquet.read_index(parquet.split_files(folder, self.parameters.train_split), columns), *columns)
        self.held_out = parquet.Rows(parquet.read_index(parquet.split_files(folder, self.parameters.validation_split), columns), *columns)
        self.corrupt = CorruptRows(len(self.rows), context.note)
        self.corrupt_held_out = CorruptRows(len(self.held_out), context.note)
        self.image_size = 0  # known once the model is built

    def model(self) -> nn.Module:
        from experiments.workloads.bridgetower.model import build

        model: Any = build(self.parameters)
        self.image_size = model.config.vision_config.image_size
        vocabulary, tokens = model.config.text_config.vocab_size, self._tokenizer().get_vocab_size()
        if tokens > vocabulary:
            raise DataError(f"the tokenizer has {tokens} tokens, the model {vocabulary}: set model or weights and tokenizer to match")
        return model  # type: ignore[no-any-return]

    def layers(self, model: nn.Module) -> list[nn.Module]:
        from experiments.workloads.bridgetower.model import layers

        return layers(model)

    def batches(self) -> Iterator[Batch]:
        from experiments.components.data import images, parquet

        context, parameters, where = self.context, self.parameters, self.parameters.image_decode
        if where == "device" and context.device_kind == "hpu":
            pipe = self._media_pipe()
            if pipe is not None:
                yield from pipe
                return
            where = "cpu"
        order = parquet.batch_indices(
            self.rows.groups, batch=context.batch_size, rank=context.rank, world=context.world_size, seed=parameters.seed
        )
        dataset = self._dataset(self.rows, augment=parameters.augment, where=where)
        for batch in images.loader(
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
        from experiments.components.data import images, media_pipe, parquet, staging
        from experiments.workloads.bridgetower.model import PIXEL_MEAN, PIXEL_STD

        context, parameters = self.context, self.parameters
        try:
            if not parameters.export_images:
                raise DataError("it reads files, and the images are bytes in Parquet; export_images: true writes files")
            assert context.data is not None
            root = staging.cache_folder().parent / "images"
            exported = media_pipe.export(self.rows, context.data.fingerprint, parameters.train_split, root)
            names = images.loader(
                media_pipe.Names(self.rows, exported, self._tokenizer(), parameters.text_length),  # type: ignore[arg-type]
                parquet.batch_indices(
                    self.rows.groups, batch=context.batch_size, rank=context.rank, world=context.world_size, seed=parameters.seed
                ),
                workers=parameters.dataloader_workers,
                prefetch_factor=parameters.prefetch_factor,
                pin_memory=False,
            )
            shape = media_pipe.Shape(
                context.batch_size,
                parameters.text_length,
                self.image_size,
                PIXEL_MEAN,
                PIXEL_STD,
                parameters.augment,
                parameters.seed + context.rank,
            )
            pipe = media_pipe.open_pipe(names, list(exported.files.values()), shape, self.corrupt)
        except Exception as error:  # whatever it is, the images can still be decoded by the DataLoader
            context.note(f"media pipe not used, the DataLoader decodes: {error}")
            context.fact("media_pipe", f"fallback: {error}"[:300])
            return None
        context.fact("media_pipe", "used")
        return media_pipe.batches(pipe)

    def prepare(self, batch: Batch) -> Batch:
        if "jpegs" not in batch:
            return batch
        from experiments.components.data.device_decode import decode

        boxes = batch.pop("boxes")
        pixels = decode(batch.pop("jpegs"), boxes, self.image_size, batch["input_ids"].device)
        return {**batch, "pixels": pixels}

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        from experiments.workloads.bridgetower.model import inputs

        loss: torch.Tensor = model(**inputs(batch, self.parameters.attention), return_loss=True).loss
        return loss

    def samples(self, batch: Batch) -> int:
        return len(batch["input_ids"])

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        from experiments.workloads.bridgetower.model import evaluate

        size = self.parameters.evaluation_batch_size
        metrics = evaluate(model, map(place, self._held_out_batches(size)), size, self.parameters.attention)
        return {**metrics, "corrupt_rows": float(len(self.corrupt) + len(self.corrupt_held_out))}

    def flops_per_sample(self) -> float | None:
        from experiments.workloads.bridgetower.model import flops_per_sample

        if self.parameters.weights is not None:
            return None  # counted for the sizes above only
        return flops_per_sample(self.parameters, self.parameters.text_length)

    def _held_out_batches(self, size: int) -> Iterator[Batch]:
        from experiments.components.data.parquet import BatchIndices

        dataset = self._dataset(self.held_out, augment=False, where="cpu")
        rows = iter(range(min(len(self.held_out), self.parameters.evaluation_samples)))
        found = False
        while len(part := tuple(islice(rows, size))) == size:  # whole batches only: chance depends on the size
            batch = dataset[BatchIndices(part, tuple(range(len(self.held_out) - 4, len(self.held_out))), 0)]
            self.corrupt_held_out.add(batch.pop("corrupt"))
            found = True
            yield batch
        if not found:
            raise DataError(f"{len(self.held_out)} held-out rows are fewer than one evaluation batch of {size}")

    def _dataset(self, rows: Any, *, augment: bool, where: Literal["cpu", "device"]) -> PairDataset:
        from experiments.components.data.images import PairDataset

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
