"""T5 inference: latency and throughput of summaries, written greedily token by token to their full length.

Every summary has `target_length` tokens, whatever the weights say, so that trials compare: the token that ends a summary is never taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from experiments.components.inference import InferenceParameters, InferenceWorkload, ready
from experiments.components.workload import Batch, Context
from experiments.parameters import CUDA_GRAPHS
from experiments.workloads import t5

if TYPE_CHECKING:
    import torch
    from torch import nn


class Parameters(InferenceParameters, t5.Parameters):
    """t5's settings, and what differs where nothing is trained."""

    @model_validator(mode="after")
    def _by_method(self) -> Parameters:
        if self.hpu_graphs:
            raise ValueError("hpu_graphs: summaries are written by a method that calls parts of the model; use compile")
        if self.compile_mode in CUDA_GRAPHS:
            raise ValueError(
                f"compile_mode {self.compile_mode}: a summary grows by a token at a time, and each length would be a graph of its own; "
                "use default or max-autotune-no-cudagraphs"
            )
        return self


def build(context: Context) -> T5Inference:
    """The workload on this rank. Raises DataError."""
    return T5Inference(context)


class T5Inference(InferenceWorkload, t5.T5):
    """See Workload."""

    parameters: Parameters

    def model(self) -> nn.Module:
        return ready(super().model(), self.parameters)

    def compile_units(self, model: Any) -> list[nn.Module]:
        """What the method that writes summaries calls: it does not call the model as a whole."""
        return [model.encoder, model.decoder]

    def loss(self, model: Any, batch: Batch) -> torch.Tensor:
        """Summaries; the mean projection of the scores that their last tokens were chosen by."""
        length = self.parameters.target_length
        output = model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            min_new_tokens=length,
            max_new_tokens=length,
            do_sample=False,
            num_beams=1,
            use_cache=True,
            return_dict_in_generate=True,
            output_logits=True,
        )
        return self.projection(output.logits[-1])

    def flops_per_sample(self) -> float | None:
        """Of one forward pass over document and summary, what the cache of keys and values makes of writing it token by token."""
        return t5.flops(self.parameters.model, self.parameters.source_length, self.parameters.target_length) / 3

    def linear_flops_per_sample(self) -> float:
        return super().linear_flops_per_sample() / 3

    def attention_flops_per_sample(self) -> float:
        return super().attention_flops_per_sample() / 3
