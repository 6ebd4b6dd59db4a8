"""The language model: its weights, adapters and loss. Torch and transformers; imported on workers only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from experiments.components.checkpoint import from_pretrained, is_config_alone, place_of
from experiments.components.layers.causal_attention import document_mask, registered
from experiments.components.layers.cross_entropy import cross_entropy
from experiments.components.workload import DataError, Unsupported
from experiments.workloads.causal_lm.flops import TARGETS
from experiments.workloads.causal_lm.shapes import SHAPES, Shape, config_of, shape_of

if TYPE_CHECKING:
    from experiments.workloads.causal_lm.parameters import ModelParameters, Parameters

IN_MEMORY = {"fp32": None, "tf32": None, "fp16": torch.float16}  # the type of weights that are cast once; of all others bf16


class Learner(nn.Module):
    """Tokens to their loss. All of it is inside one module, so that weights that FSDP has gathered for a forward pass are there for it."""

    def __init__(self, decoder: nn.Module, *, attention: str, loss: str) -> None:
        super().__init__()
        self.decoder, self.attention, self.how = decoder, attention, loss

    def forward(
        self,
        input_ids: torch.Tensor,
        labels: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        starts: torch.Tensor | None = None,
        compiled: bool = False,
    ) -> torch.Tensor:
        """The mean cross-entropy of input_ids (batch, tokens) to labels (batch, tokens); see Packed. `compiled`: see cross_entropy."""
        decoder: Any = self.decoder
        batch, tokens = input_ids.shape
        mask, varlen = None, {}
        if self.attention == "varlen":
            if starts is None:  # each sequence is one document
                starts = torch.arange(0, (batch + 1) * tokens, tokens, dtype=torch.int32, device=input_ids.device)
            varlen = {"starts": starts, "longest": tokens}
        elif position_ids is not None:
            mask = document_mask(position_ids)
        if position_ids is None:
            position_ids = torch.arange(tokens, device=input_ids.device)[None]
        hidden = decoder.model(
            input_ids=input_ids, attention_mask=mask, position_ids=position_ids, use_cache=False, **varlen
        ).last_hidden_state
        return cross_entropy(self.how, hidden.flatten(0, 1), decoder.lm_head.weight, labels.flatten(), compiled=compiled)


def shape(parameters: ModelParameters) -> Shape:
    """The shape of the named model, or of that in the folder `weights`. Raises DataError for a folder that holds another architecture."""
    if parameters.weights is None:
        return SHAPES[parameters.model]
    try:
        return shape_of(_own_config(parameters))
    except ValueError as error:
        raise DataError(f"weights {parameters.weights}: {error}") from error


def _own_config(parameters: ModelParameters) -> Any:
    """All that the folder or hub id `weights` says of its model, as transformers reads it. Raises DataError."""
    from transformers import AutoConfig

    assert parameters.weights is not None
    try:
        revision = parameters.revision or "main"
        return AutoConfig.from_pretrained(place_of(parameters.weights), revision=revision, trust_remote_code=False, use_cache=False)
    except (OSError, ValueError) as error:
        raise DataError(f"weights {parameters.weights}: {error}") from error


def make(parameters: ModelParameters) -> nn.Module:
    """LlamaForCausalLM or Qwen3ForCausalLM in fp32. Raises DataError as `shape` does, and for weights that cannot be read."""
    import transformers

    chosen, attention = shape(parameters), registered(parameters.attention)
    kind = transformers.LlamaForCausalLM if chosen.family == "llama" else transformers.Qwen3ForCausalLM
    if parameters.weights is not None and not is_config_alone(parameters.weights):
        return from_pretrained(kind, parameters.weights, parameters.revision, attention)  # type: ignore[no-any-return]
    config = config_of(chosen) if parameters.weights is None else _own_config(parameters)
    return kind._from_config(config, attn_implementation=attention).float()  # type: ignore[no-any-return]  # a configuration may say bf16


def adapt(decoder: nn.Module, parameters: Parameters) -> nn.Module:
    """The decoder with its weights frozen and an adapter beside each linear layer that `lora_targets` names, by the library peft.

    Raises Unsupported where peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise Unsupported(f"tuning lora: the library peft cannot be imported here ({error})") from error
    settings = LoraConfig(
        r=parameters.lora_rank, lora_alpha=parameters.lora_alpha, lora_dropout=0.0, target_modules=list(TARGETS[parameters.lora_targets])
    )
    adapted = inject_adapter_in_model(settings, decoder)
    if parameters.cast_weights:
        cast((weight for weight in adapted.parameters() if not weight.requires_grad), parameters.precision)
    return adapted  # type: ignore[no-any-return]


def cast(weights: Iterable[nn.Parameter], precision: str) -> None:
    """Give the weights the type of a precision of 16 bits or fewer, which is bf16 for 8. Buffers stay: rotary frequencies need fp32."""
    kind = IN_MEMORY.get(precision, torch.bfloat16)
    for weight in weights if kind is not None else ():
        weight.data = weight.data.to(kind)
