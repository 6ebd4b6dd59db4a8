"""BridgeTower fine-tuning: contrastive training on pairs of image and caption, as in "BridgeTower on Gaudi2".

The loss is the mean of the text-image, text-cross and image-cross cross-entropies over the local batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from experiments.components.data.pairs import PIXEL_MEAN, PIXEL_STD, Pairs
from experiments.components.data.text import check_vocabulary
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

    few_shapes = True  # batches are whole and texts of one length; with a variable one torch made the image's cross-modal layers dynamic

    def __init__(self, context: Context) -> None:
        self.parameters: Parameters = context.parameters
        self.context = context
        self.find_unused_parameters = not self.parameters.freeze_text_pooler
        if self.parameters.image_decode == "device" and context.device_kind not in ("cuda", "hpu"):
            raise Unsupported(f"image_decode device: {context.device_kind} has no JPEG decoder")
        self.pairs = Pairs(context, self.parameters.text_length)
        self.image_size = 0  # known once the model is built

    def model(self) -> nn.Module:
        """Raises DataError for a tokenizer that has more tokens than the model."""
        from experiments.workloads.bridgetower.model import build

        model: Any = build(self.parameters)
        self.image_size = model.config.vision_config.image_size
        check_vocabulary(self._tokenizer(), model.config.text_config.vocab_size)
        return model  # type: ignore[no-any-return]

    def layers(self, model: nn.Module) -> list[nn.Module]:
        from experiments.workloads.bridgetower.model import layers

        return layers(model)

    def compiled_beside(self, model: nn.Module) -> list[nn.Module]:
        from experiments.workloads.bridgetower.bridges import bridges_of

        return bridges_of(model)

    def batches(self) -> Iterator[Batch]:
        """Batches from the media pipe (image_decode device on hpu), else from the DataLoader."""
        where = self.parameters.image_decode
        if where == "device" and self.context.device_kind == "hpu":
            pipe = self._media_pipe()
            if pipe is not None:
                yield from pipe
                return
            where = "cpu"
        items = self._items(self.pairs.train, augment=self.parameters.augment, where=where)
        yield from self.pairs.batches(items, self.pairs.train_indices())

    def _media_pipe(self) -> Iterator[Batch] | None:
        """Batches decoded by the media pipe; None where it cannot be made. The trial's environment records which of the two happened."""
        from experiments.components.data import media_pipe, staging
        from experiments.components.data.loading import load

        context, parameters, rows = self.context, self.parameters, self.pairs.train
        try:
            if not parameters.export_images:
                raise DataError("it reads files, and the images are bytes in Parquet; export_images: true writes files")
            assert context.data is not None
            root = staging.cache_folder().parent / "images"
            exported = media_pipe.export(rows, context.data.fingerprint, parameters.train_split, root)
            items = media_pipe.Names(rows, exported, self._tokenizer(), parameters.text_length)
            names = load(items, self.pairs.train_indices(), context, pin=False)
            shape = media_pipe.Shape(
                context.batch_size,
                parameters.text_length,
                self.image_size,
                PIXEL_MEAN,
                PIXEL_STD,
                parameters.augment,
                parameters.seed + context.rank,
            )
            pipe = media_pipe.open_pipe(names, list(exported.files.values()), shape, self.pairs.corrupt)
        except Exception as error:  # whatever it is, the images can still be decoded by the DataLoader
            context.note(f"media pipe not used, the DataLoader decodes: {error}")
            context.fact("media_pipe", f"fallback: {error}"[:300])
            return None
        context.fact("media_pipe", "used")
        return media_pipe.batches(pipe)

    def prepare(self, batch: Batch) -> Batch:
        """Decode the JPEGs, where that is for the device to do."""
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
        """See model.evaluate; and `corrupt_rows`, the corrupt rows of both splits that were found so far."""
        from experiments.workloads.bridgetower.model import evaluate

        batches = self.pairs.held_out_batches(self._items(self.pairs.held_out, augment=False, where="cpu"))
        metrics = evaluate(model, map(place, batches), self.parameters.evaluation_batch_size, self.parameters.attention)
        return {**metrics, "corrupt_rows": float(len(self.pairs.corrupt) + len(self.pairs.corrupt_held_out))}

    def flops_per_sample(self) -> float | None:
        """None for pretrained weights: FLOPs are counted for the sizes of model.py only."""
        from experiments.workloads.bridgetower.model import flops_per_sample

        if self.parameters.weights is not None:
            return None
        return flops_per_sample(self.parameters, self.parameters.text_length)

    def linear_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of the linear layers in `layers`."""
        from experiments.workloads.bridgetower.model import linear_flops_per_sample

        return linear_flops_per_sample(self.parameters, self.parameters.text_length)

    def attention_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of attention's scores and their sums."""
        from experiments.workloads.bridgetower.model import attention_flops_per_sample

        return attention_flops_per_sample(self.parameters, self.parameters.text_length)

    def _items(self, rows: Any, *, augment: bool, where: Literal["cpu", "device"]) -> PairDataset:
        if not self.image_size:
            raise RuntimeError("model() comes before batches(): the model knows its image size")
        return self.pairs.dataset(rows, self._tokenizer(), self.image_size, augment=augment, where=where)

    def _tokenizer(self) -> Any:
        return self.pairs.tokenizer(self.parameters.weights, self.parameters.revision)
