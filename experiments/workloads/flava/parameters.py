"""The sizes and parameters of FLAVA pre-training; importable without torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from experiments.components.data.pairs import KeptPairParameters

CAVEAT = (  # of every result; reports say it first
    "The image codebook has random weights and gives a handful of distinct codes (evaluation metric image_codes, of 8192): "
    "throughput and memory are those of the real model, the two masked-image losses mean nothing."
)
MASKED_PATCHES = 75 / 196  # of an image's patches
NEGATIVES = 0.1  # of the pairs get another pair's text

# hidden, MLP, heads, layers of each tower, multimodal layers, image (pixels), codebook width, codes, vocabulary; 350m to 10b as published.
# The others are ours, named by their billions of parameters. 16b and 28b, for devices with more memory than the document's, have 3.2 x the
# 4.8b's, and 3 x what replicas of 16 bytes a parameter leave room for in 141 GB. 5.6b to 7b and 10b to 34b lie less than 10 %
# apart: they bracket the largest model that fits, of replicas on any number of devices and of shards on two, four and eight
SIZES: dict[str, tuple[int, ...]] = {
    "350m": (768, 3072, 12, 12, 6, 224, 256, 8192, 30522),
    "900m": (1024, 4096, 16, 24, 12, 224, 256, 8192, 30522),
    "1.8b": (1280, 5120, 16, 32, 16, 224, 256, 8192, 30522),
    "2.7b": (1408, 6144, 16, 40, 20, 224, 256, 8192, 30522),
    "4.8b": (1664, 8192, 16, 48, 24, 224, 256, 8192, 30522),
    "10b": (2048, 10240, 16, 64, 40, 224, 256, 8192, 30522),
    "5.6b": (1792, 8448, 16, 48, 26, 224, 256, 8192, 30522),
    "6b": (1856, 8704, 16, 50, 26, 224, 256, 8192, 30522),
    "6.5b": (1920, 8960, 16, 50, 26, 224, 256, 8192, 30522),
    "7b": (1920, 9216, 16, 52, 28, 224, 256, 8192, 30522),
    "11b": (2176, 10240, 17, 64, 40, 224, 256, 8192, 30522),
    "12b": (2304, 10496, 18, 64, 40, 224, 256, 8192, 30522),
    "13b": (2432, 10752, 19, 63, 40, 224, 256, 8192, 30522),
    "14b": (2560, 11008, 20, 62, 40, 224, 256, 8192, 30522),
    "15b": (2688, 11264, 21, 61, 40, 224, 256, 8192, 30522),
    "16b": (2816, 11264, 22, 60, 40, 224, 256, 8192, 30522),
    "17b": (2944, 11776, 23, 60, 40, 224, 256, 8192, 30522),
    "18b": (3072, 12032, 24, 59, 40, 224, 256, 8192, 30522),
    "20b": (3072, 12288, 24, 62, 46, 224, 256, 8192, 30522),
    "21b": (3200, 12800, 25, 62, 46, 224, 256, 8192, 30522),
    "23b": (3328, 13312, 26, 64, 42, 224, 256, 8192, 30522),
    "24b": (3328, 13312, 26, 68, 44, 224, 256, 8192, 30522),
    "26b": (3456, 13824, 27, 68, 44, 224, 256, 8192, 30522),
    "28b": (3584, 14336, 28, 68, 44, 224, 256, 8192, 30522),
    "31b": (3712, 14848, 29, 70, 44, 224, 256, 8192, 30522),
    "34b": (3712, 14848, 29, 76, 50, 224, 256, 8192, 30522),
    "mini": (128, 512, 4, 4, 2, 64, 16, 64, 4096),
    "tiny": (64, 256, 2, 2, 1, 64, 8, 64, 4096),
}


Published = Literal["350m", "900m", "1.8b", "2.7b", "4.8b", "10b"]
Ours = Literal[
    "5.6b",
    "6b",
    "6.5b",
    "7b",
    "11b",
    "12b",
    "13b",
    "14b",
    "15b",
    "16b",
    "17b",
    "18b",
    "20b",
    "21b",
    "23b",
    "24b",
    "26b",
    "28b",
    "31b",
    "34b",
    "mini",
    "tiny",
]


class Parameters(KeptPairParameters):
    """FLAVA's own settings."""

    same_work = ("model", "text_length", "long_text_length", "kinds")

    model: Literal[Published, Ours] = Field("tiny", description="350m to 10b as published; the others are ours, mini and tiny for CPUs")
    strategy: str = Field("none", max_length=40, description="names a parallel strategy; what it sets stands in the suite's conditions")
    text_length: int = Field(77, ge=4, le=512, description="tokens of a pair's caption, padded or cut")
    long_text_length: int = Field(512, ge=8, le=512, description="tokens of a text alone: captions, one after the other")
    kinds: Literal["drawn", "balanced"] = Field(
        "drawn", description="each step's kind of batch: drawn at random as in the document, or one of each in every three steps"
    )
    attention: Literal["eager", "sdpa"] = Field("eager", description="transformers' own, or torch's fused kernels")
    passes: Literal["apart", "together"] = Field(
        "apart",
        description="a tower's plain and masked inputs: in two calls as in the document, or as one batch, with losses without host waits",
    )
    learning_rate: float = Field(1e-3, gt=0, le=10)
    weight_decay: float = Field(0.1, ge=0, le=1)
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = Field("cosine", description="fall to 0 over all steps, or none")
    learning_rate_warmup: int = Field(2000, ge=0, le=1_000_000, description="steps over which the rate rises from 0")

    @model_validator(mode="after")
    def _waits_for_nothing(self) -> Self:
        if self.cuda_graph and (self.attention, self.passes) != ("sdpa", "together"):
            raise ValueError(
                "cuda_graph: transformers' losses and masks have the host wait for the device; set passes to together and attention to sdpa"
            )
        return self
