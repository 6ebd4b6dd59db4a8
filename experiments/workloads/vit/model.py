"""A vision transformer of torch's own encoder layers, its head and its memory layout to choose. Torch; imported on workers only."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.components.layers.attention import ApartAttention
from experiments.workloads.vit.parameters import SIZES, Parameters

EPS = 1e-6  # of every LayerNorm (Dosovitskiy et al. 2020)
NOT_SHOWN = -20.0  # first bias of a class that no image is of: beside others its share is 2e-9


class LayerNorm(nn.LayerNorm):
    """Computed in fp32 whatever type its input and its weights have: in "full fp16" too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.weight.float(), self.bias.float()
        return functional.layer_norm(x.float(), self.normalized_shape, weight, bias, self.eps).to(x.dtype)


class Block(nn.TransformerEncoderLayer):
    """One pre-norm layer. With `sequence_first` tensors are (tokens, batch, width): nn.MultiheadAttention then transposes nothing."""

    def __init__(self, width: int, heads: int, mlp: int, *, sequence_first: bool, math: bool, views: bool) -> None:
        super().__init__(width, heads, mlp, 0.0, "gelu", EPS, batch_first=not sequence_first, norm_first=True)
        if views:
            self.self_attn = ApartAttention(self.self_attn)  # type: ignore[assignment]  # it is called alike
        self.norm1, self.norm2 = LayerNorm(width, EPS), LayerNorm(width, EPS)
        self.math = math

    def forward(self, x: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:  # type: ignore[override]  # the arguments are passed on
        kernels: AbstractContextManager[None] = sdpa_kernel(SDPBackend.MATH) if self.math else nullcontext()
        with kernels:
            return super().forward(x, *arguments, **named)


class VisionTransformer(nn.Module):
    """Images (batch, 3, size, size) to logits (batch, classes). `pooled`: the mean over patches is classified, not a token of its own.

    `views`: queries, keys and values are views of their common product, which nn.MultiheadAttention copies.
    """

    def __init__(
        self,
        *,
        width: int,
        layers: int,
        heads: int,
        mlp: int,
        patch: int,
        size: int,
        classes: int,
        pooled: bool,
        sequence_first: bool,
        math: bool,
        views: bool,
    ) -> None:
        super().__init__()
        self.pooled, self.sequence_first = pooled, sequence_first
        tokens = (size // patch) ** 2 + (not pooled)
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = None if pooled else nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, tokens, width).normal_(std=0.02))
        self.blocks = nn.ModuleList(
            [Block(width, heads, mlp, sequence_first=sequence_first, math=math, views=views) for _ in range(layers)]
        )
        self.norm = LayerNorm(width, EPS)
        self.head = nn.Linear(width, classes)
        nn.init.trunc_normal_(self.patches.weight, std=0.02)
        nn.init.zeros_(self.head.weight)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)  # (batch, tokens, width)
        if self.token is not None:
            x = torch.cat((self.token.to(x.dtype).expand(len(x), -1, -1), x), dim=1)
        x = x + self.positions.to(x.dtype)
        if self.sequence_first:
            x = x.transpose(0, 1).contiguous()
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        along = 0 if self.sequence_first else 1
        return self.head(x.mean(dim=along) if self.pooled else x.select(along, 0))  # type: ignore[no-any-return]


def make(parameters: Parameters, shown: int | None = None) -> nn.Module:
    """The model of the named size. `shown`: how many of its first classes the images are of; the others' scores begin low. None: of all."""
    width, layers, heads, mlp, patch, size, classes = SIZES[parameters.model]
    model = VisionTransformer(
        width=width,
        layers=layers,
        heads=heads,
        mlp=mlp,
        patch=patch,
        size=parameters.image_size or size,
        classes=classes,
        pooled=parameters.classifier == "pooled",
        sequence_first=parameters.layout == "sequence_first",
        math=parameters.attention == "math",
        views=parameters.qkv == "views",
    )
    if shown is not None:
        with torch.no_grad():
            model.head.bias[shown:] = NOT_SHOWN
    return model


def flops(parameters: Parameters) -> float:
    """Training FLOPs per image: 3 x the forward pass's matrix products (agrees with the published 763.5 GFLOP of ViT-H/16 at 224 px)."""
    width, _, _, _, patch, _, classes = SIZES[parameters.model]
    patches, _ = _tokens(parameters)
    ends = 3 * 2.0 * (patches * 3 * patch * patch * width + width * classes)
    return linear_flops(parameters) + attention_flops(parameters) + ends


def linear_flops(parameters: Parameters) -> float:
    """Of `flops`, those of the blocks' linear layers: q, k, v, out (4 width^2 weights), both of the MLP."""
    width, layers, _, mlp, *_ = SIZES[parameters.model]
    _, tokens = _tokens(parameters)
    return 3 * 2.0 * layers * tokens * (4 * width * width + 2 * width * mlp)


def attention_flops(parameters: Parameters) -> float:
    """Of `flops`, those of the scores and their sums."""
    width, layers, *_ = SIZES[parameters.model]
    _, tokens = _tokens(parameters)
    return 3 * 2.0 * 2 * layers * tokens * tokens * width


def _tokens(parameters: Parameters) -> tuple[int, int]:
    """(patches, tokens) of an image."""
    *_, patch, size, _ = SIZES[parameters.model]
    patches = ((parameters.image_size or size) // patch) ** 2
    return patches, patches + (parameters.classifier == "token")
