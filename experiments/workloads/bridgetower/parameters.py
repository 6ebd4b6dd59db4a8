"""The parameters of BridgeTower fine-tuning; importable without torch."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from experiments.parameters import TrainingParameters

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
