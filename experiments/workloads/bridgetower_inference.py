"""BridgeTower inference: latency and throughput of the forward pass that embeds pairs of image and caption.

The model is the one that bridgetower trains (BridgeTowerForContrastiveLearning), asked for its embeddings and not for a loss, in evaluation
mode under torch.inference_mode. A step is one batch, from the host to its embeddings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from experiments.components.inference import InferenceParameters, InferenceWorkload, ready
from experiments.components.workload import Batch, Context
from experiments.workloads.bridgetower.parameters import Parameters as TrainingSettings
from experiments.workloads.bridgetower.workload import BridgeTower

if TYPE_CHECKING:
    import torch
    from torch import nn


class Parameters(InferenceParameters, TrainingSettings):
    """bridgetower's settings, and what differs where nothing is trained."""

    augment: bool = Field(False, description="random crop of 80 to 100 % of each side")
    evaluate: bool = Field(False, description="loss and retrieval on held-out data, once, before the measured window")


def build(context: Context) -> BridgeTowerInference:
    """The workload on this rank. Raises DataError and Unsupported."""
    return BridgeTowerInference(context)


class BridgeTowerInference(InferenceWorkload, BridgeTower):
    """See Workload."""

    parameters: Parameters

    def model(self) -> nn.Module:
        return ready(super().model(), self.parameters)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The forward pass; of the three embeddings of each pair, the mean projection.

        Of all three: the text's and the image's have not passed the cross-modal layers.
        """
        import torch

        from experiments.workloads.bridgetower.model import inputs

        output = model(**inputs(batch, self.parameters.attention))
        return self.projection(torch.cat([output.text_embeds, output.image_embeds, output.cross_embeds], dim=-1))

    def flops_per_sample(self) -> float | None:
        """Of the forward pass: a training step is counted as three."""
        step = super().flops_per_sample()
        return None if step is None else step / 3

    def linear_flops_per_sample(self) -> float:
        return super().linear_flops_per_sample() / 3

    def attention_flops_per_sample(self) -> float:
        return super().attention_flops_per_sample() / 3
