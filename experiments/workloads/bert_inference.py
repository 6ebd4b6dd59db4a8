"""BERT inference: latency and throughput of the forward pass over full passages, the masked-language head over all tokens included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.components.inference import InferenceParameters, ready
from experiments.components.workload import Batch, Context
from experiments.workloads import bert

if TYPE_CHECKING:
    import torch
    from torch import nn


class Parameters(InferenceParameters, bert.Parameters):
    """bert's settings, and what differs where nothing is trained."""


def build(context: Context) -> BertInference:
    """The workload on this rank. Raises DataError."""
    return BertInference(context)


class BertInference(bert.Bert):
    """See Workload."""

    trains = False
    parameters: Parameters

    def model(self) -> nn.Module:
        return ready(super().model(), self.parameters)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The forward pass; of its scores, the mean of the first token's, which has read all others."""
        return model(input_ids=batch["input_ids"]).logits[:, 0].float().mean()  # type: ignore[no-any-return]

    def flops_per_sample(self) -> float | None:
        """Of the forward pass: a training step is counted as three."""
        return bert.flops(self.parameters.model, self.parameters.sequence_length) / 3

    def linear_flops_per_sample(self) -> float:
        return super().linear_flops_per_sample() / 3

    def attention_flops_per_sample(self) -> float:
        return super().attention_flops_per_sample() / 3
