"""What inference workloads share: their parameters, what stands for their output, and casting the weights to 16 bits once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, model_validator

from experiments.config.scalar_text import yaml_text
from experiments.parameters import QUEUED, SYNCHRONOUS, BatchSize, Execution, TrainingParameters
from experiments.precision import around

if TYPE_CHECKING:
    from torch import nn

    from experiments.components.layers.projections import BatchProjection

# Parameters of training only. A suite that sets one is refused: as an axis it would compare a setting with itself.
OF_TRAINING = frozenset(
    {"optimizer", "update_rule", "learning_rate", "weight_decay", "beta2", "adam_eps", "learning_rate_schedule", "learning_rate_warmup"}
    | {"clip_grad_norm", "rms_tensors", "activation_checkpointing", "accumulation_steps", "dropout", "prediction", "freeze_text_pooler"}
    | {"parallel", "ddp", "ddp_bucket_view", "ddp_static_graph", "communication_steps", "spikes_after", "block_weights"}
)


def check_nothing_trained(parameters: TrainingParameters) -> None:
    """For the validator of a workload that trains nothing. Raises ValueError for a parameter of OF_TRAINING that is not at its default."""
    for name, field in type(parameters).model_fields.items():
        if name in OF_TRAINING and getattr(parameters, name) != field.default:
            raise ValueError(f"{name} has no effect: nothing is trained here; leave it at {yaml_text(field.default)}")


class InferenceWorkload:
    """The first base class of a workload that trains nothing, before that of the training workload."""

    trains = False

    @cached_property
    def projection(self) -> BatchProjection:
        """Makes the loss of a batch's output."""
        from experiments.components.layers.projections import BatchProjection

        return BatchProjection()


class InferenceParameters(TrainingParameters):
    """Parameters of inference. The first base class of a workload's Parameters, before those of the training workload."""

    how_to_cast: ClassVar[str] = "cast_weights to true"

    batch_size: BatchSize = Field(1, description="samples per device and step, or max: the largest that fits")
    cast_weights: bool = Field(True, description="bf16, fp16: weights cast once, when the model is built; false: in every operation")
    prefetch_to_device: bool = Field(
        False, description="copy the next batch while this one is computed: then service time is without the copy"
    )
    execution: Execution = Field(
        QUEUED,
        description="queued: batches follow each other without a pause (service time, throughput); "
        "synchronous: the next one is asked for once a batch's output is computed (latency)",
    )
    evaluate: bool = Field(False, description="metrics on held-out data, once, before the measured window")

    @model_validator(mode="after")
    def _nothing_of_training(self) -> InferenceParameters:
        check_nothing_trained(self)
        if self.execution == SYNCHRONOUS and self.prefetch_to_device:
            raise ValueError(
                "prefetch_to_device has no effect where execution is synchronous: no batch is computed while another is copied"
            )
        return self

    @model_validator(mode="after")
    def _has_what_to_cast(self) -> InferenceParameters:
        if not self.cast_weights and around(self.precision) not in ("bf16", "fp16"):
            raise ValueError(f"cast_weights has no effect with precision {self.precision}, whose weights stay in fp32; leave it at true")
        return self

    def casts(self) -> bool:
        return self.cast_weights


def ready(model: nn.Module, parameters: Any) -> nn.Module:
    """The model in evaluation mode; its weights in the trial's precision if `cast_weights` asks for that: in bf16 where it is 8 bits.

    Layers in 8 bits cast their weights in every pass.
    """
    import torch

    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(around(parameters.precision))
    model = model.eval()
    return model if kind is None or not parameters.cast_weights else model.to(kind)
