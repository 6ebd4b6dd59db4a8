"""Pairs of image and caption from Parquet, synthetic or the user's own: what the workloads that train on them share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from experiments.components.data.splits import FOLDER, SplitParameters, Splits
from experiments.components.workload import Context
from experiments.datasets.columns import Holds
from experiments.datasets.own.needs import TokenizerRecipe
from experiments.datasets.scenes import SPECIAL_TOKENS, TEMPLATE

if TYPE_CHECKING:
    import torch

    from experiments.components.data.images import PairDataset

VOCABULARY = 1024  # of a tokenizer trained on the user's own captions: as many as the smallest model of the workloads takes
# CLIP's image statistics by channel, of values from 0 to 1 (OPENAI_CLIP_MEAN and _STD in transformers); BridgeTower and FLAVA use them too
PIXEL_MEAN = (0.48145466, 0.4578275, 0.40821073)
PIXEL_STD = (0.26862954, 0.26130258, 0.27577711)


class PairParameters(SplitParameters):
    """Where the pairs come from."""

    same_work: ClassVar[tuple[str, ...]] = ("dataset", "augment")
    columns: ClassVar[Mapping[str, Holds]] = {"image_column": "image", "caption_column": "text"}
    own_tokenizer = TokenizerRecipe(VOCABULARY, SPECIAL_TOKENS, TEMPLATE)

    dataset: str = Field("drawn", description=f"drawn (synthetic captioned scenes), {FOLDER}")
    image_column: str = Field("image", description="column of encoded images: bytes, or struct{bytes, path}")
    caption_column: str = Field("image_description", description="column of captions")
    augment: bool = Field(True, description="random crop of 80 to 100 % of each side")


class KeptPairParameters(PairParameters):
    """Where the pairs come from, and whether their decoded images stay in memory."""

    keep_decoded: bool = Field(False, description="decode each image once and keep it, up to 8 GiB a process; needs augment: false")

    @model_validator(mode="after")
    def _kept_as_it_is(self) -> KeptPairParameters:
        if self.keep_decoded and self.augment:
            raise ValueError("keep_decoded: a random crop needs the image decoded anew; set augment: false")
        return self


class Pairs(Splits):
    """Both splits of the trial's data set, as images and captions of `text_length` tokens. Raises DataError as Splits does."""

    parameters: PairParameters

    def __init__(self, context: Context, text_length: int) -> None:
        super().__init__(context, (context.parameters.image_column, context.parameters.caption_column), ("image", "text"))
        self.text_length = text_length

    def dataset(
        self,
        rows: Any,
        tokenizer: Any,
        image_size: int,
        *,
        augment: bool,
        where: Literal["cpu", "device"] = "cpu",
        keep: bool = False,
    ) -> PairDataset:
        """The pairs of `rows`, which is one of the two splits. Images are squares of `image_size` pixels. See PairDataset."""
        from experiments.components.data.images import PairDataset

        return PairDataset(rows, tokenizer, size=image_size, text_length=self.text_length, augment=augment, where=where, keep=keep)


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    """uint8 (batch, h, w, 3) as fp32 (batch, 3, h, w) with CLIP's mean and deviation taken out; channels last in memory.

    The host does not wait for the device.
    """
    scale, shift = _normalisation(pixels.device)
    return (pixels * scale + shift).permute(0, 3, 1, 2)


@cache
def _normalisation(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """(scale, shift) by channel, from 0..255 to CLIP's statistics. Cached: a copy in every step would stop the device's queue."""
    import torch

    scale = torch.tensor([1 / 255 / std for std in PIXEL_STD], device=device)
    shift = torch.tensor([-mean / std for mean, std in zip(PIXEL_MEAN, PIXEL_STD, strict=True)], device=device)
    return scale, shift
