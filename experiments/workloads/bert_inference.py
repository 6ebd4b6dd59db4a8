"""BERT inference: latency and throughput of the forward pass over passages, the masked-language head over all tokens included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.components.inference import InferenceParameters, InferenceWorkload, ready
from experiments.components.workload import Batch, Context
from experiments.workloads import bert

if TYPE_CHECKING:
    import torch
    from torch import nn


class Parameters(InferenceParameters, bert.Parameters):
    """bert's settings, and what differs where nothing is trained."""

    def dropped(self) -> float:
        """Nothing: dropout is of training."""
        return 0.0


def build(context: Context) -> BertInference:
    """The workload on this rank. Raises DataError and Unsupported."""
    return BertInference(context)


class BertInference(InferenceWorkload, bert.Bert):
    """See Workload."""

    parameters: Parameters

    def model(self) -> nn.Module:
        return ready(super().model(), self.parameters)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The forward pass; of its scores, the mean projection of each sample's first token's, which has read all others."""
        scores = model(**self.inputs(model, batch)).logits
        first = scores[0, batch["starts"][: self.samples(batch)]] if "starts" in batch else scores[:, 0]
        return self.projection(first)

    def flops_per_sample(self) -> float | None:
        """Of the forward pass: a training step is counted as three."""
        training = super().flops_per_sample()
        return None if training is None else training / 3

    def linear_flops_per_sample(self) -> float:
        return super().linear_flops_per_sample() / 3

    def attention_flops_per_sample(self) -> float | None:
        training = super().attention_flops_per_sample()
        return None if training is None else training / 3
