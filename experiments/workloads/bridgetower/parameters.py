"""The parameters of BridgeTower fine-tuning; importable without torch."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from experiments.components.checkpoint import check_pinned
from experiments.components.data.pairs import PairParameters

HUB_DATASET = re.compile(r"hf://datasets/[\w.-]+/[\w.-]+@[0-9a-f]{40}(/.*)?")


class Parameters(PairParameters):
    """BridgeTower's own settings."""

    same_work = ("model", "text_length", "image_size")

    model: Literal["large", "base", "mini", "tiny"] = Field("tiny", description="large and base as published; mini and tiny for CPUs")
    attention: Literal["eager", "sdpa"] = Field("eager", description="attention of the text and cross layers")
    qkv: Literal["copied", "views"] = Field(
        "copied", description="vision tower: queries, keys and values copied, as nn.MultiheadAttention does, or views of their product"
    )
    bridges: Literal["stock", "fused"] = Field(
        "stock",
        description="what leads from a tower to a cross-modal layer: transformers' operations, or one function that compile layer compiles "
        "and that gives the type of the tower's blocks; of the last image features the one token that the loss uses",
    )
    text_length: int = Field(128, ge=4, le=512, description="tokens per caption, padded or cut")
    image_size: int | None = Field(None, ge=14, le=1024, description="pixels per side; null: the model's own")
    dropout: float | None = Field(None, ge=0, lt=1, description="null: the model's own, 0.1 in large and base, 0 in mini and tiny")
    weights: str | None = Field(None, description="null: random from the seed; a hub id; or a folder made by save_pretrained")
    revision: str | None = Field(None, description="commit (40 hex digits) of a hub id, for weights")
    freeze_text_pooler: bool = Field(True, description="the text pooler's output is unused; without this DDP must search for it")
    tokenizer: str | None = Field(None, description="folder with tokenizer.json; null: the data set's, the weights' own, or a new one")
    image_decode: Literal["cpu", "device"] = Field("cpu", description="the DataLoader decodes JPEGs, or the device (nvJPEG, media pipe)")
    export_images: bool = Field(False, description="hpu: write the images to files, which the media pipe needs")
    evaluation_samples: int = Field(128, ge=2, le=100_000, description="held-out pairs, at most")

    @model_validator(mode="after")
    def _pinned(self) -> Parameters:
        check_pinned(self.weights, self.revision)
        if self.dataset.startswith("hf://") and not HUB_DATASET.fullmatch(self.dataset):
            raise ValueError("dataset on the hub: hf://datasets/OWNER/NAME@COMMIT[/FOLDER], COMMIT being 40 hex digits")
        return self
