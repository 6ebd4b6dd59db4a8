"""The sizes and parameters of vision transformers; importable without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from experiments.components.data.classes import ClassParameters
from experiments.components.data.splits import FOLDER
from experiments.datasets.own.needs import Needs

# width, layers, heads, MLP, patch, image (pixels), classes
SIZES: dict[str, tuple[int, int, int, int, int, int, int]] = {
    "h16": (1280, 32, 16, 5120, 16, 224, 1000),
    "l16": (1024, 24, 16, 4096, 16, 224, 1000),
    "b16": (768, 12, 12, 3072, 16, 224, 1000),
    "tiny": (64, 2, 2, 128, 8, 32, 16),
}


class Parameters(ClassParameters):
    """ViT's own settings."""

    same_work = ("model", "image_size")

    dataset: str | None = Field(None, description=f"null: patterns made in memory; drawn-classes (synthetic images), {FOLDER}")

    model: Literal["h16", "l16", "b16", "tiny"] = Field("tiny", description="h16 as published; tiny for CPUs")
    rung: str = Field("none", max_length=40, description="names a rung of a ladder; what it sets stands in the suite's conditions")
    image_size: int | None = Field(None, ge=16, le=1024, description="pixels per side; null: the model's own")
    classifier: Literal["token", "pooled"] = Field("token", description="a class token of its own, or the mean over patches")
    layout: Literal["batch_first", "sequence_first"] = Field("batch_first", description="sequence first skips transposes in attention")
    attention: Literal["math", "sdpa"] = Field("math", description="plain matrix products and softmax, or torch's fused kernels")
    qkv: Literal["copied", "views"] = Field(
        "copied", description="queries, keys and values: copied out of their common product, as nn.MultiheadAttention does, or views of it"
    )
    learning_rate: float = Field(1e-3, gt=0, le=10)
    weight_decay: float = Field(0.1, ge=0, le=1)

    @model_validator(mode="after")
    def _augments_images(self) -> Parameters:
        if self.dataset is None and not self.augment:
            raise ValueError("augment has no effect on patterns made in memory (dataset null); leave it at true, or give a dataset")
        return self

    def needs(self) -> Needs:
        return Needs(self.columns, classes=SIZES[self.model][-1])
