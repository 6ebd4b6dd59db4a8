"""BERT masked-language training, as in "Faster training and inference: Habana Gaudi2 vs Nvidia A100 80GB".

Passages are full: text is packed, so no sample has padding. 15 % of each passage's tokens are to be told (Devlin et al. 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from experiments.components.data.masking import mask_tokens
from experiments.components.data.splits import Splits
from experiments.components.data.text import MASKS, Passages, TextParameters, check_vocabulary, token_id
from experiments.components.workload import Batch, Context

if TYPE_CHECKING:
    import torch
    from torch import nn

    from experiments.components.data.parquet import BatchIndices

# width, layers, heads, MLP, vocabulary, positions. base: bert-base with the document's vocabulary. tiny is ours, for CPUs
SIZES: dict[str, tuple[int, int, int, int, int, int]] = {
    "base": (768, 12, 12, 3072, 32_000, 512),
    "tiny": (64, 2, 2, 256, 4096, 512),
}


class Parameters(TextParameters):
    """BERT's own settings."""

    same_work = ("model", "sequence_length")

    model: Literal["base", "tiny"] = Field("tiny", description="base: 110.65 M parameters, vocabulary 32,000; tiny for CPUs")
    sequence_length: int = Field(512, ge=8, le=512, description="tokens of a sample")
    attention: Literal["eager", "sdpa"] = Field("eager", description="plain matrix products and softmax, or torch's fused kernels")
    dropout: float | None = Field(None, ge=0, lt=1, description="null: the model's own, 0.1 in base, 0 in tiny")
    learning_rate: float = Field(5e-5, gt=0, le=10)


def config(parameters: Parameters) -> Any:
    """The BertConfig of the named size."""
    from transformers import BertConfig

    width, layers, heads, mlp, vocabulary, positions = SIZES[parameters.model]
    dropout = parameters.dropout if parameters.dropout is not None else 0.0 if parameters.model == "tiny" else 0.1
    return BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=mlp,
        vocab_size=vocabulary,
        max_position_embeddings=positions,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def build(context: Context) -> Bert:
    """The workload on this rank. Raises DataError."""
    return Bert(context)


class Bert:
    """See Workload."""

    find_unused_parameters = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters
        self.vocabulary = SIZES[self.parameters.model][4]
        self.splits = Splits(context, (self.parameters.text_column, self.parameters.text_column))

    def model(self) -> nn.Module:
        from transformers import BertForMaskedLM

        check_vocabulary(self.splits.tokenizer(), self.vocabulary)
        model = BertForMaskedLM._from_config(config(self.parameters), attn_implementation=self.parameters.attention)
        return model.train()  # type: ignore[no-any-return]

    def layers(self, model: Any) -> list[nn.Module]:
        return list(model.bert.encoder.layer)

    def batches(self) -> Iterator[Batch]:
        return self.splits.batches(Masked(self.splits, self.splits.train, self.parameters, self.vocabulary), self.splits.train_indices())

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return model(**batch).loss  # type: ignore[no-any-return]

    def samples(self, batch: Batch) -> int:
        return len(batch["input_ids"])

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        items = Masked(self.splits, self.splits.held_out, self.parameters, self.vocabulary)
        losses = [float(model(**place(batch)).loss) for batch in self.splits.held_out_batches(items)]
        return {"loss": sum(losses) / len(losses), "chance_loss": math.log(self.vocabulary)}

    def flops_per_sample(self) -> float | None:
        return flops(self.parameters.model, self.parameters.sequence_length)

    def linear_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of the blocks' linear layers."""
        return linear_flops(self.parameters.model, self.parameters.sequence_length)

    def attention_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of attention's scores and their sums."""
        return attention_flops(self.parameters.model, self.parameters.sequence_length)


class Masked:
    """BatchIndices -> the arguments of BertForMaskedLM, on the host."""

    def __init__(self, splits: Splits, rows: Any, parameters: Parameters, vocabulary: int) -> None:
        self.passages = Passages(splits, rows, parameters.sequence_length)
        self.vocabulary = vocabulary
        mask = token_id(self.passages.tokenizer, MASKS)
        self.mask = vocabulary - 1 if mask is None else mask

    def __getitem__(self, indices: BatchIndices) -> Batch:
        import torch

        batch = self.passages[indices]
        tokens = batch["input_ids"]
        draw = torch.Generator().manual_seed(indices.seed & 0x7FFFFFFF)
        real = torch.ones_like(tokens, dtype=torch.bool)
        masked, labels = mask_tokens(tokens, real, mask=self.mask, vocabulary=self.vocabulary, draw=draw)
        return {"input_ids": masked, "labels": labels, "corrupt": batch["corrupt"]}


def flops(size: str, tokens: int) -> float:
    """Training FLOPs per sample: 3 x the forward pass's matrix products, the head's over all tokens, as transformers computes it.

    Agrees with the published 367 GFLOP (base, 512 tokens; 86 at 128).
    """
    width, layers, _, mlp, vocabulary, _ = SIZES[size]
    block = 4 * width * width + 2 * width * mlp + 2 * tokens * width  # q, k, v, out; MLP; scores and their sum
    return 3 * 2.0 * tokens * (layers * block + width * width + width * vocabulary)


def linear_flops(size: str, tokens: int) -> float:
    """Of `flops`, those of the blocks' linear layers: q, k, v, out (4 width^2 weights), both of the MLP."""
    width, layers, _, mlp, _, _ = SIZES[size]
    return 3 * 2.0 * tokens * layers * (4 * width * width + 2 * width * mlp)


def attention_flops(size: str, tokens: int) -> float:
    """Of `flops`, those of the scores and their sums."""
    width, layers, *_ = SIZES[size]
    return 3 * 2.0 * tokens * layers * 2 * tokens * width
