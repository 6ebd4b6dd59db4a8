"""BridgeTower against CLIP on Winoground: which model distinguishes captions of the same words, and how fast does it score?

A sample is one example: two captions with two images, four scores. With `weights: random` it is only asked how fast: a model of the size
that is named, with drawn weights, gives no scores. Scores: BridgeTower's image-text matching logit
(BridgeTowerForImageAndTextRetrieval, logits[:, 1]), CLIP's logits_per_image. See experiments/datasets/winoground.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from experiments.components.checkpoint import check_pinned, from_pretrained
from experiments.components.data.loading import load
from experiments.components.inference import InferenceWorkload, check_nothing_trained
from experiments.components.workload import Batch, Context, DataError
from experiments.datasets import winoground
from experiments.parameters import TrainingParameters

if TYPE_CHECKING:
    import torch
    from torch import nn


DRAWN = "drawn"
# hidden size, layers, heads and MLP of text and of vision, the image and its patch (pixels), width of the projection
# large: openai/clip-vit-large-patch14, as its config.json has it. tiny is ours, for CPUs
_CLIP_SIZES: dict[str, tuple[tuple[int, int, int, int], tuple[int, int, int, int], int, int, int]] = {
    "large": ((768, 12, 12, 3072), (1024, 24, 16, 4096), 224, 14, 768),
    "tiny": ((64, 2, 2, 256), (64, 2, 2, 256), 64, 16, 64),
}


class Parameters(TrainingParameters):
    """Which model, from where, on which copy of the data set."""

    same_work = ("dataset", "text_length", "weights", "size")  # which model is what is asked, so `family` is not among them

    family: Literal["bridgetower", "clip"] = Field("bridgetower", description="the model that scores")
    weights: Literal["given", "random"] = Field("given", description="given: a checkpoint's; random: drawn, for the speed alone, no scores")
    size: Literal["large", "tiny"] = Field("large", description="of a model with random weights: BridgeTower Large, CLIP ViT-L/14; or tiny")
    bridgetower_weights: str | None = Field(None, description="a hub id, or a folder made by save_pretrained, with tokenizer.json")
    bridgetower_revision: str | None = Field(None, description="commit (40 hex digits) of a hub id, for bridgetower_weights")
    clip_weights: str | None = Field(None, description="a hub id, or a folder made by save_pretrained, with tokenizer.json")
    clip_revision: str | None = Field(None, description="commit (40 hex digits) of a hub id, for clip_weights")
    dataset: str | None = Field(None, description="folder of a local copy of Winoground; or `drawn`: synthetic scenes, with random weights")
    drawn_rows: int = Field(800, ge=16, le=1_000_000, description="images of the synthetic data set, two an example; Winoground has 800")
    text_length: int = Field(77, ge=4, le=512, description="tokens per caption, padded or cut; CLIP takes at most 77")

    @model_validator(mode="after")
    def _pinned(self) -> Parameters:
        for family in ("bridgetower", "clip"):
            check_pinned(getattr(self, f"{family}_weights"), getattr(self, f"{family}_revision"), f"{family}_")
        if self.dataset is not None and "://" in self.dataset:
            raise ValueError("dataset: Winoground is read from a local folder")
        return self

    @model_validator(mode="after")
    def _scores_mean_something(self) -> Parameters:
        if self.dataset == DRAWN and self.weights == "given":
            raise ValueError(f"dataset {DRAWN}: its scores mean nothing; set weights to random, or give a copy of Winoground")
        if self.weights == "random" and self.dataset not in (None, DRAWN):
            raise ValueError(f"weights random go with dataset {DRAWN}: there is no tokenizer for other captions")
        given = [name for name in ("bridgetower_weights", "clip_weights") if getattr(self, name) is not None]
        if self.weights == "random" and given:
            raise ValueError(f"{given[0]} has no effect with weights random; leave it out, or set weights to given")
        if self.weights == "given" and self.size != "large":
            raise ValueError("size has no effect with weights given, which have their own; leave it at large, or set weights to random")
        return self

    @model_validator(mode="after")
    def _nothing_of_training(self) -> Parameters:
        check_nothing_trained(self)
        return self

    def lacking(self) -> dict[str, str]:
        """The data set, which is gated, and the checkpoint, which is the user's choice: parameter -> what to give."""
        weights = f"{self.family}_weights"
        needed = {
            "dataset": "the folder of a local copy of Winoground (its licence forbids us to bring one)",
            weights: f"a hub id with {self.family}_revision, or a folder made by save_pretrained",
        }
        if self.weights == "random":
            needed = {"dataset": DRAWN}
        return {name: what for name, what in needed.items() if getattr(self, name) is None}


def build(context: Context) -> Winoground:
    """The workload on this rank. Raises DataError."""
    return Winoground(context)


class Winoground(InferenceWorkload):
    """See Workload."""

    find_unused_parameters = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters
        self.family = self.parameters.family
        self.random = self.parameters.weights == "random"
        lacking = self.parameters.lacking()
        weights = getattr(self.parameters, f"{self.family}_weights")
        if weights is None and not self.random:
            raise DataError(f"{self.family}_weights is not set: {lacking[f'{self.family}_weights']}")
        if context.data is None:
            raise DataError(f"dataset is not set: {lacking.get('dataset', 'it names nothing that was found')}")
        self.weights = "random" if self.random else str(Path(weights).expanduser()) if weights.startswith("~") else str(weights)
        self.revision: str | None = getattr(self.parameters, f"{self.family}_revision")
        folder = Path(context.data.uri)
        try:  # 400 of them
            self.examples = list(winoground.drawn(folder) if self.parameters.dataset == DRAWN else winoground.read(folder))
        except winoground.WinogroundError as error:
            raise DataError(str(error)) from error
        if not self.examples:
            raise DataError(f"{context.data.uri}: no examples")
        if self.random and context.rank == 0:
            context.note("the weights are random: what is measured is the speed, and there are no scores")
        self.image_size = 0  # known once the model is built

    def model(self) -> nn.Module:
        import transformers

        kind = transformers.CLIPModel if self.family == "clip" else transformers.BridgeTowerForImageAndTextRetrieval
        model: Any = kind(_config(self.parameters)) if self.random else from_pretrained(kind, self.weights, self.revision, "eager")
        self.image_size = model.config.vision_config.image_size
        return model.eval()  # type: ignore[no-any-return]

    def layers(self, model: nn.Module) -> list[nn.Module]:
        from experiments.workloads.bridgetower.model import layers

        if self.family == "bridgetower":
            return layers(model)
        clip: Any = model
        return [*clip.text_model.encoder.layers, *clip.vision_model.encoder.layers]

    def batches(self) -> Iterator[Batch]:
        """Examples in the data set's order, over and over; ranks take turns."""
        return iter(load(self._pairs(), self._order(), self.context))

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The scores; of them the mean projection. `evaluate` has the cross-entropy: ln 2 of whatever model has random weights."""
        return self.projection(self.scores(model, batch))

    def scores(self, model: Any, batch: Batch) -> torch.Tensor:
        """s(caption, image), fp32 (examples, 2 captions, 2 images)."""
        from experiments.workloads.bridgetower.model import inputs

        count = len(batch["input_ids"]) // 2
        if self.family == "clip":
            # the mask stays two-dimensional: transformers makes CLIP's causal one from it
            pixels = inputs(batch, "eager")["pixel_values"]
            output = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], pixel_values=pixels)
            every = output.logits_per_image.float().view(count, 2, count, 2)  # example, image, example, caption
            return every.diagonal(dim1=0, dim2=2).permute(2, 1, 0)  # type: ignore[no-any-return]
        pairs = {  # each caption with each image of its example: c0 i0, c0 i1, c1 i0, c1 i1
            "input_ids": batch["input_ids"].repeat_interleave(2, dim=0),
            "attention_mask": batch["attention_mask"].repeat_interleave(2, dim=0),
            "pixels": batch["pixels"].unflatten(0, (count, 1, 2)).expand(-1, 2, -1, -1, -1, -1).flatten(0, 2),
        }
        logits = model(**inputs(pairs, "eager")).logits
        return logits[:, 1].float().view(count, 2, 2)  # type: ignore[no-any-return]

    def samples(self, batch: Batch) -> int:
        return len(batch["input_ids"]) // 2

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """Text, image and group score over every example, beside what chance gives. Of random weights none."""
        import torch

        if self.random:
            return {}
        pairs, size = self._pairs(), self.context.batch_size
        numbers = range(len(self.examples))
        scores = torch.cat([self.scores(model, place(pairs[list(numbers[at : at + size])])).cpu() for at in numbers[::size]])
        if not bool(scores.isfinite().all()):
            raise DataError(f"{self.weights} gives scores that are not finite")
        return {
            "loss": float(_choice(scores)),
            "chance_loss": math.log(2),
            **winoground.summary(scores.tolist()),
            **{f"chance_winoground_{name}": chance for name, chance in winoground.CHANCE.items()},
            "winoground_examples": float(len(scores)),
        }

    def flops_per_sample(self) -> float | None:
        return None  # depends on the checkpoint

    def _order(self) -> Iterator[list[int]]:
        size, world = self.context.batch_size, self.context.world_size
        start = self.context.rank * size
        while True:
            yield [number % len(self.examples) for number in range(start, start + size)]
            start += size * world

    def _pairs(self) -> Pairs:
        if not self.image_size:
            raise RuntimeError("model() comes before batches(): the model knows its image size")
        tokenizer = self._tokenizer()
        length = min(self.parameters.text_length, 77) if self.family == "clip" else self.parameters.text_length
        pad = next((token for token in ("<pad>", "<|endoftext|>") if tokenizer.token_to_id(token) is not None), None)
        if pad is None:
            raise DataError(f"the tokenizer of {self.weights} has neither <pad> nor <|endoftext|>")
        tokenizer.enable_truncation(length)
        tokenizer.enable_padding(length=length, pad_id=tokenizer.token_to_id(pad), pad_token=pad)
        return Pairs(self.examples, tokenizer, self.image_size)

    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        if self.random:  # the scenes' own: its ids suit any model with as many words
            data = self.context.data
            if data is None or data.tokenizer is None:
                raise DataError(f"dataset {DRAWN} has no tokenizer")
            return Tokenizer.from_file(str(Path(data.tokenizer) / "tokenizer.json"))
        if self.revision:
            from huggingface_hub import hf_hub_download

            return Tokenizer.from_file(hf_hub_download(self.weights, "tokenizer.json", revision=self.revision))
        path = Path(self.weights) / "tokenizer.json"
        if not path.is_file():
            raise DataError(f"{path} does not exist: save the tokenizer beside the weights")
        return Tokenizer.from_file(str(path))


def _config(parameters: Parameters) -> Any:
    """The configuration of a model with random weights."""
    import transformers

    from experiments.workloads import bridgetower
    from experiments.workloads.bridgetower.model import config

    if parameters.family == "bridgetower":
        return config(bridgetower.Parameters(model=parameters.size))
    text, vision, image, patch, width = _CLIP_SIZES[parameters.size]
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return transformers.CLIPConfig(
        text_config=dict(zip(names, text, strict=True)),
        vision_config={**dict(zip(names, vision, strict=True)), "image_size": image, "patch_size": patch},
        projection_dim=width,
    )


class Pairs:
    """Numbers of examples -> a batch: input_ids and attention_mask (2 x examples, text), pixels uint8 (2 x examples, size, size, 3)."""

    def __init__(self, examples: list[winoground.Example], tokenizer: Any, size: int) -> None:
        self.examples, self.tokenizer, self.size = examples, tokenizer, size

    def __getitem__(self, numbers: list[int]) -> Batch:
        import numpy as np
        import torch

        chosen = [self.examples[number] for number in numbers]
        encodings = self.tokenizer.encode_batch_fast([caption for example in chosen for caption in example.captions])
        images = [pixels(data, self.size, example.name) for example in chosen for data in example.images]
        return {
            "input_ids": torch.tensor([encoding.ids for encoding in encodings]),
            "attention_mask": torch.tensor([encoding.attention_mask for encoding in encodings]),
            "pixels": torch.from_numpy(np.stack(images)),
        }


def pixels(data: bytes, size: int, name: str) -> Any:
    """uint8 (size, size, 3): the shorter side resized to `size` bicubically, the middle cut out, as both models' processors do.

    Raises DataError: no example of Winoground may be left out.
    """
    import numpy as np
    from PIL import Image

    from experiments.components.data.images import open_image
    from experiments.components.data.parquet import CorruptRow

    try:
        image = open_image(data).convert("RGB")
    except (CorruptRow, OSError, DataError) as error:
        raise DataError(f"{name}: {error}") from error
    scale = size / min(image.size)
    image = image.resize((max(size, round(image.width * scale)), max(size, round(image.height * scale))), Image.Resampling.BICUBIC)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return np.asarray(image.crop((left, top, left + size, top + size)))


def _choice(scores: torch.Tensor) -> torch.Tensor:
    import torch
    from torch.nn import functional

    by_image = scores.transpose(1, 2).reshape(-1, 2)  # (examples x images, captions)
    right = torch.arange(2, device=scores.device).repeat(len(scores))
    return functional.cross_entropy(by_image, right)
