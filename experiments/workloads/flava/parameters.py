"""The sizes and parameters of FLAVA pre-training; importable without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from experiments.components.data.pairs import KeptPairParameters

CAVEAT = (  # of every result; reports say it first
    "The image codebook has random weights and gives a handful of distinct codes (evaluation metric image_codes, of 8192): "
    "throughput and memory are those of the real model, the two masked-image losses mean nothing."
)
MASKED_PATCHES = 75 / 196  # of an image's patches
NEGATIVES = 0.1  # of the pairs get another pair's text

# hidden, MLP, heads, layers of each tower, multimodal layers, image (pixels), codebook width, codes, vocabulary; 350m to 10b as published.
# 16b and 28b are ours, for devices with more memory than the document's: 3.2 x the 4.8b, and 3 x what replicas of 16 bytes a parameter
# leave room for in 141 GB
SIZES: dict[str, tuple[int, ...]] = {
    "350m": (768, 3072, 12, 12, 6, 224, 256, 8192, 30522),
    "900m": (1024, 4096, 16, 24, 12, 224, 256, 8192, 30522),
    "1.8b": (1280, 5120, 16, 32, 16, 224, 256, 8192, 30522),
    "2.7b": (1408, 6144, 16, 40, 20, 224, 256, 8192, 30522),
    "4.8b": (1664, 8192, 16, 48, 24, 224, 256, 8192, 30522),
    "10b": (2048, 10240, 16, 64, 40, 224, 256, 8192, 30522),
    "16b": (2816, 11264, 22, 60, 40, 224, 256, 8192, 30522),
    "28b": (3584, 14336, 28, 68, 44, 224, 256, 8192, 30522),
    "mini": (128, 512, 4, 4, 2, 64, 16, 64, 4096),
    "tiny": (64, 256, 2, 2, 1, 64, 8, 64, 4096),
}


class Parameters(KeptPairParameters):
    """FLAVA's own settings."""

    same_work = ("model", "text_length", "long_text_length", "kinds")

    model: Literal["350m", "900m", "1.8b", "2.7b", "4.8b", "10b", "16b", "28b", "mini", "tiny"] = Field(
        "tiny", description="to 10b as published; 16b and 28b are larger ones of ours, mini and tiny are for CPUs"
    )
    strategy: str = Field("none", max_length=40, description="names a parallel strategy; what it sets stands in the suite's conditions")
    text_length: int = Field(77, ge=4, le=512, description="tokens of a pair's caption, padded or cut")
    long_text_length: int = Field(512, ge=8, le=512, description="tokens of a text alone: captions, one after the other")
    kinds: Literal["drawn", "balanced"] = Field(
        "drawn", description="each step's kind of batch: drawn at random as in the document, or one of each in every three steps"
    )
    learning_rate: float = Field(1e-3, gt=0, le=10)
    weight_decay: float = Field(0.1, ge=0, le=1)
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = Field("cosine", description="fall to 0 over all steps, or none")
    learning_rate_warmup: int = Field(2000, ge=0, le=1_000_000, description="steps over which the rate rises from 0")

    @model_validator(mode="after")
    def _eager(self) -> Parameters:
        if self.compile == "model":
            raise ValueError("compile model: the loss picks masked positions, whose number differs by batch; use layer")
        return self
