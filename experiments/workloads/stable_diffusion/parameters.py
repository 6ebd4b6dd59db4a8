"""The parameters of Stable Diffusion inference; importable without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from experiments.components.checkpoint import is_path
from experiments.components.inference import InferenceParameters

TEXT_LENGTH = 77
CALLS = {"ddim": 0, "pndm": 1}  # of the UNet, beyond one for each denoising step
# UNet: block widths, layers of a block, heads, pixels of a latent image. VAE: block widths, layers of a block.
# Text encoder: width, layers, heads, vocabulary. v1-4: CompVis/stable-diffusion-v1-4. tiny is ours, for CPUs
SIZES: dict[str, tuple[tuple[tuple[int, ...], int, int, int], tuple[tuple[int, ...], int], tuple[int, int, int, int]]] = {
    "v1-4": (((320, 640, 1280, 1280), 2, 8, 64), ((128, 256, 512, 512), 2), (768, 12, 12, 49408)),
    "tiny": (((32, 32, 64, 64), 1, 2, 8), ((32, 32, 32, 32), 1), (64, 2, 2, 1024)),
}


class Parameters(InferenceParameters):
    """Stable Diffusion's own settings."""

    same_work = ("model", "image_size", "denoising_steps", "scheduler", "text_encoder")
    loads = False

    model: Literal["v1-4", "tiny"] = Field("tiny", description="v1-4 as published; tiny for CPUs")
    image_size: int | None = Field(None, ge=64, le=2048, multiple_of=64, description="pixels per side; null: the model's own, 512 in v1-4")
    denoising_steps: int = Field(50, ge=1, le=1000)
    guidance: float = Field(7.5, gt=1, le=50, description="classifier-free: each denoising step computes with and without the prompt")
    scheduler: Literal["ddim", "pndm"] = Field("ddim", description="ddim calls the UNet once for each denoising step; pndm once more")
    text_encoder: bool = Field(True, description="encode the prompts in each step; false: random embeddings, and no text encoder")
    weights: str | None = Field(None, description="null: random from the seed; or a folder of the model's size made by save_pretrained")
    attention: Literal["eager", "sdpa", "fused_qkv"] = Field(
        "sdpa", description="matrix products and softmax; torch's fused kernels; these, and query, key and value by one product"
    )
    memory_format: Literal["contiguous", "channels_last"] = Field(
        "contiguous", description="of the UNet's and VAE's weights, and so of what convolutions make of images: channels first or last"
    )
    cuda_graph: bool = Field(
        False, description="cuda: the UNet and the decoder are each recorded as a CUDA graph at their first call, and replayed"
    )
    autocast: bool = Field(False, description="bf16, fp16 by operation, for weights that are not cast")

    @model_validator(mode="after")
    def _possible(self) -> Parameters:
        if self.weights is not None and not is_path(self.weights):
            raise ValueError(f"weights {self.weights!r}: should be a local folder, its path starting with / . or ~")
        return self
