"""The parameters of language models in training and inference; importable without torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from experiments.components.checkpoint import check_pinned
from experiments.components.data.text import TextParameters
from experiments.precision import around

OWN = "own"  # the model that the folder `weights` holds


class ModelParameters(TextParameters):
    """Which model, and how it attends."""

    same_work: ClassVar[tuple[str, ...]] = ("model", "weights", "sequence_length")  # model own may be of any size

    model: Literal[
        "llama3-8b", "llama3-3b", "llama3-1b", "qwen3-8b", "qwen3-4b", "qwen3-1.7b", "qwen3-0.6b", "llama3-tiny", "qwen3-tiny", "own"
    ] = Field("qwen3-tiny", description="a published shape with random weights; tiny ones for CPUs; own: that of `weights`")
    weights: str | None = Field(
        None,
        description="null: random from the seed; own: a hub id, a folder of save_pretrained, or one with config.json alone, then random",
    )
    revision: str | None = Field(None, description="commit (40 hex digits) of a hub id, for weights")
    sequence_length: int = Field(2048, ge=8, le=131_072, description="tokens of a sample: packed documents, or in inference a prompt")
    attention: Literal["eager", "sdpa", "cudnn", "varlen"] = Field(
        "sdpa",
        description="products and softmax; torch's choice of kernel; cuda: cuDNN's first, or FlashAttention's for documents",
    )
    tokenizer: str | None = Field(None, description="folder with tokenizer.json; null: the data set's own, the weights', or a new one")

    @model_validator(mode="after")
    def _one_model(self) -> ModelParameters:
        check_pinned(self.weights, self.revision)
        if (self.weights is None) == (self.model == OWN):
            raise ValueError("weights: a folder or hub id goes with model own, and model own needs it")
        return self


class Parameters(ModelParameters):
    """Settings of training."""

    # fewer adapters, or a token that sees its own document alone, cost less and learn something else
    same_work = ("tuning", "lora_rank", "lora_targets", "packing")

    tuning: Literal["full", "lora"] = Field("full", description="all weights, or low-rank adapters beside frozen ones (Hu et al. 2021)")
    lora_rank: int = Field(16, ge=1, le=1024, description="of tuning lora")
    lora_alpha: float = Field(32.0, gt=0, le=4096, description="of tuning lora: an adapter's output is times lora_alpha / lora_rank")
    lora_targets: Literal["all", "attention", "mlp"] = Field("all", description="of tuning lora: a block's linear layers with adapters")
    cast_weights: bool = Field(False, description="tuning lora in bf16 or fp16: frozen weights are kept in 16 bits; false: in fp32")
    packing: Literal["block", "plain"] = Field(
        "block", description="block: a token sees its own document only, positions begin anew; plain: all tokens before it"
    )
    cross_entropy: Literal["logits", "chunked", "torch"] = Field(
        "chunked", description="all tokens' scores at once in fp32; some tokens at a time; or torch's own chunks (torch 2.13)"
    )
    learning_rate: float = Field(3e-4, gt=0, le=10)

    @model_validator(mode="after")
    def _fits_tuning(self) -> Parameters:
        if self.tuning == "full":
            for name in ("lora_rank", "lora_alpha", "lora_targets", "cast_weights"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has no effect with tuning full; set tuning to lora")
        elif self.cast_weights and self.parallel != "ddp":
            raise ValueError("cast_weights: not with shards, whose type of computing is fsdp_compute")
        elif self.cast_weights and around(self.precision) not in ("bf16", "fp16"):
            raise ValueError(
                f"cast_weights has no effect with precision {self.precision}; leave it at false, or set precision to bf16 or fp16"
            )
        return self
