"""BridgeTower inference: latency and throughput of the forward pass that embeds pairs of image and caption.

The model is the one that bridgetower trains (BridgeTowerForContrastiveLearning), asked for its embeddings and not for a loss, in evaluation
mode under torch.inference_mode. A step is one batch: its latency is what it takes from the host to its embeddings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from experiments.workloads import bridgetower
from experiments.workloads._protocol import Batch, Context

if TYPE_CHECKING:
    import torch
    from torch import nn

BUILDS_ON = ("experiments.workloads.bridgetower",)  # its source is part of the trial key too

# Parameters of every workload, or of bridgetower, that say how to train. Refused, so that no axis compares a setting with itself.
_OF_TRAINING = frozenset(
    {"optimizer", "learning_rate", "weight_decay", "beta2", "learning_rate_schedule", "activation_checkpointing", "ddp_bucket_view"}
    | {"ddp_static_graph", "dropout", "freeze_text_pooler"}
)


class Parameters(bridgetower.Parameters):
    """bridgetower's settings, and what differs where nothing is trained."""

    batch_size: int | Literal["max"] = Field(1, description="samples per device and step, or max: the largest that fits")
    cast_weights: bool = Field(True, description="bf16, fp16: weights cast once, when the model is built; false: in every operation")
    prefetch_to_device: bool = Field(False, description="copy the next batch while this one is computed: then latency is without the copy")
    augment: bool = Field(False, description="random crop of 80 to 100 % of each side")
    evaluate: bool = Field(False, description="loss and retrieval on held-out data, once, before the measured window")

    @model_validator(mode="after")
    def _nothing_of_training(self) -> Parameters:
        for name in sorted(_OF_TRAINING):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} has no effect: nothing is trained here")
        return self


def build(context: Context) -> BridgeTowerInference:
    """The workload on this rank. Raises DataError and Unsupported."""
    return BridgeTowerInference(context)


class BridgeTowerInference(bridgetower.BridgeTower):
    """See Workload."""

    trains = False
    parameters: Parameters

    def model(self) -> nn.Module:
        import torch

        kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
        model = super().model().eval()
        precision = self.parameters.precision
        return model.to(kinds[precision]) if self.parameters.cast_weights and precision in kinds else model

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The forward pass, and of its output the mean distance of a pair: 1 - cosine of the text's and the image's embedding, 0 to 2.

        It costs nothing beside the model, is not finite where the embeddings are not, and shows how far a precision is from fp32.
        """
        from experiments.workloads import _bridgetower

        output = model(**_bridgetower.inputs(batch, self.parameters.attention))
        cosine = (output.text_embeds.float() * output.image_embeds.float()).sum(dim=-1)
        return 1 - cosine.mean()  # type: ignore[no-any-return]

    def flops_per_sample(self) -> float | None:
        """Of the forward pass: a training step is counted as three."""
        step = super().flops_per_sample()
        return None if step is None else step / 3
