"""The parameters of language models in inference; importable without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from experiments.components.inference import InferenceParameters
from experiments.parameters import CUDA_GRAPHS
from experiments.workloads.causal_lm.parameters import ModelParameters


class Parameters(InferenceParameters, ModelParameters):
    """Settings of prefill and decoding."""

    same_work = ("phase", "new_tokens")

    phase: Literal["prefill", "decode"] = Field(
        "prefill", description="a step is a prompt to the scores of its next token; or new_tokens tokens after a prompt, one at a time"
    )
    new_tokens: int = Field(128, ge=1, le=32_768, description="of phase decode: tokens of a step, for each prompt")
    cuda_graph: bool = Field(False, description="of phase decode, cuda: a token is recorded as a CUDA graph once and replayed")

    @model_validator(mode="after")
    def _fits_phase(self) -> Parameters:
        if self.attention == "varlen":
            raise ValueError("attention varlen: of packed documents, and a prompt is one; use sdpa")
        if self.compile_mode in CUDA_GRAPHS:
            raise ValueError(
                f"compile_mode {self.compile_mode}: torch.compile records no CUDA graph of what writes into its input, as into the cache "
                "of keys and values; set cuda_graph in phase decode, or compile_mode max-autotune-no-cudagraphs"
            )
        if self.phase == "prefill":
            if self.cuda_graph:
                raise ValueError("cuda_graph has no effect with phase prefill; set phase to decode")
        elif self.compile == "layer":
            raise ValueError("compile layer: each layer's place in the cache would be a graph of its own in phase decode; use model")
        return self
