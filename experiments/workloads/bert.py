"""BERT masked-language training, as in "Faster training and inference: Habana Gaudi2 vs Nvidia A100 80GB".

Passages are full unless `lengths` says otherwise: text is packed, so no sample has padding. Samples of various lengths are padded, or
follow one another without padding, each attending to itself alone. 15 % of each passage's tokens are to be told (Devlin et al. 2018).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from experiments.components.data.masked_text import Masked, Padding, Prediction, most_told
from experiments.components.data.splits import Splits
from experiments.components.data.text import Passages, TextParameters, check_vocabulary
from experiments.components.data.unpadding import MULTIPLE, Lengths, fillers, longest_document
from experiments.components.workload import Batch, Context, Unsupported
from experiments.parameters import CUDA_GRAPHS

if TYPE_CHECKING:
    import torch
    from torch import nn


# width, layers, heads, MLP, vocabulary, positions. large, base: Devlin et al. 2018, section 3, with the document's vocabulary. tiny is
# ours, for CPUs
SIZES: dict[str, tuple[int, int, int, int, int, int]] = {
    "large": (1024, 24, 16, 4096, 32_000, 512),
    "base": (768, 12, 12, 3072, 32_000, 512),
    "tiny": (64, 2, 2, 256, 4096, 512),
}


class Parameters(TextParameters):
    """BERT's own settings."""

    same_work = ("model", "sequence_length", "lengths")

    model: Literal["large", "base", "tiny"] = Field(
        "tiny", description="large: 336.69 M parameters, base: 110.65 M, both with a vocabulary of 32,000; tiny for CPUs"
    )
    sequence_length: int = Field(512, ge=8, le=512, description="tokens of a sample, at most")
    lengths: Lengths = Field(
        "full", description="of samples: all full; drawn, half of sequence_length in the mean, skewed as Wikipedia's; own: a row's own text"
    )
    padding: Padding = Field(
        "kept", description="of samples of various lengths: each to sequence_length; removed: one follows the other, attention kept apart"
    )
    round_tokens_to: int = Field(
        MULTIPLE,
        ge=MULTIPLE,
        le=65_536,
        multiple_of=16,
        description="padding removed: a batch's tokens are filled up to a multiple of this; a larger one makes fewer lengths",
    )
    attention: Literal["eager", "sdpa", "varlen"] = Field(
        "eager", description="matrix products and softmax; torch's fused kernels; or FlashAttention's for padding removed, on cuda"
    )
    prediction: Prediction = Field(
        "all", description="tokens of which the head computes scores: all, or the masked ones, 15 % of them; their loss is the same"
    )
    dropout: float | None = Field(None, ge=0, lt=1, description="null: the model's own, 0.1 in large and base, 0 in tiny")
    learning_rate: float = Field(5e-5, gt=0, le=10)

    @model_validator(mode="after")
    def _fits_padding(self) -> Parameters:
        if self.padding == "removed" and self.lengths == "full":
            raise ValueError("padding removed has no effect with lengths full, which have none; set lengths to drawn or own")
        if self.padding == "removed" and self.compile_mode in CUDA_GRAPHS:
            raise ValueError(
                f"compile_mode {self.compile_mode}: with padding removed torch would record each number of tokens anew; "
                "use default or max-autotune-no-cudagraphs (cuda_graph takes round_tokens_to), or padding kept"
            )
        if self.padding == "kept" and self.round_tokens_to != MULTIPLE:
            raise ValueError(f"round_tokens_to {self.round_tokens_to} has no effect with padding kept; set padding to removed")
        if self.padding == "removed" and self.cuda_graph:
            if self.round_tokens_to == MULTIPLE:
                raise ValueError(
                    "cuda_graph: with padding removed each number of tokens is a graph of its own; "
                    "set round_tokens_to to an eighth of a batch's tokens or so, or padding to kept"
                )
            if self.accumulation_steps > 1:
                raise ValueError(
                    f"cuda_graph: with padding removed and accumulation_steps {self.accumulation_steps} each choice of their numbers of "
                    "tokens is a graph of its own; set accumulation_steps to 1, or padding to kept"
                )
        if self.attention == "varlen" and self.padding != "removed":
            raise ValueError("attention varlen: for samples that follow one another; set padding to removed, or attention to sdpa")
        if self.attention == "varlen" and self.dropped():
            raise ValueError(f"attention varlen: its kernel has no dropout, and dropout is {self.dropped()}; set dropout to 0")
        return self

    def dropped(self) -> float:
        """The share that dropout drops, of attention's scores too."""
        if self.dropout is not None:
            return self.dropout
        return 0.0 if self.model == "tiny" else 0.1


def config(parameters: Parameters) -> Any:
    """The BertConfig of the named size."""
    from transformers import BertConfig

    width, layers, heads, mlp, vocabulary, positions = SIZES[parameters.model]
    dropout = parameters.dropped()
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
    """The workload on this rank. Raises DataError and Unsupported."""
    return Bert(context)


class Bert:
    """See Workload."""

    find_unused_parameters = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters
        self.vocabulary = SIZES[self.parameters.model][4]
        if reason := self._why_not():
            raise Unsupported(reason)
        self.splits = Splits(context, (self.parameters.text_column, self.parameters.text_column))
        self._loaded = Counter[str]()  # `counts` of Masked, of the batches so far

    @property
    def steps_vary(self) -> bool:
        """Whether steps have numbers of tokens of their own."""
        return self.parameters.padding == "removed"

    def _why_not(self) -> str | None:
        if self.parameters.padding == "removed" and self.parameters.hpu_graphs:
            return "padding removed: not with hpu_graphs, which record a graph for each number of tokens"
        if self.parameters.attention == "varlen":
            from experiments.components.layers.document_attention import why_not_varlen

            return why_not_varlen(self.context.device_kind, self.parameters.precision)
        return None

    @property
    def tokens_per_sample(self) -> float | None:
        """What a rate of tokens is made of: without padding, the mean of the samples loaded so far; None before the first."""
        if self.parameters.lengths == "full":
            return self.parameters.sequence_length
        return self._mean("tokens")

    def model(self) -> nn.Module:
        from transformers import BertForMaskedLM

        from experiments.components.layers.masked_prediction import MaskedPrediction

        check_vocabulary(self.splits.tokenizer(), self.vocabulary)
        attention = attention_at_transformers(self.parameters.attention)
        kind = MaskedPrediction if self.parameters.prediction == "masked" else BertForMaskedLM
        model = kind._from_config(config(self.parameters), attn_implementation=attention)
        return model.train()  # type: ignore[no-any-return]

    def layers(self, model: Any) -> list[nn.Module]:
        return list(model.bert.encoder.layer)

    def batches(self) -> Iterator[Batch]:
        for batch in self.splits.batches(self._masked(self.splits.train), self.splits.train_indices()):
            self._loaded.update(batch.pop("counts"))
            yield batch

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return self.masked_loss(model, batch)

    def masked_loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The mean cross-entropy of the tokens that are to be told."""
        inputs = self.inputs(model, batch)
        if "predicted" in batch:
            return model(**inputs, predicted=batch["predicted"], labels=batch["labels"])  # type: ignore[no-any-return]
        return model(**inputs, labels=batch["labels"]).loss  # type: ignore[no-any-return]

    def inputs(self, model: nn.Module, batch: Batch) -> dict[str, Any]:
        """What the network takes of a batch, labels aside: its tokens, and what keeps samples and padding out of each other's attention."""
        from experiments.components.layers.document_attention import added, same_document

        given: dict[str, Any] = {"input_ids": batch["input_ids"]}
        if "starts" in batch:
            given["position_ids"] = batch["position_ids"]
            if self.parameters.attention == "varlen":
                return {**given, "starts": batch["starts"], "longest": self._longest}
            seen = same_document(batch["position_ids"])[:, None]
        elif "real" in batch:
            seen = batch["real"][:, None, None].expand(-1, 1, batch["real"].shape[1], -1)
        else:
            return given
        eager = self.parameters.attention == "eager"
        return {**given, "attention_mask": added(seen, next(model.parameters()).dtype) if eager else seen}

    def samples(self, batch: Batch) -> int:
        if "starts" not in batch:
            return len(batch["input_ids"])
        return len(batch["starts"]) - 1 - fillers(self.parameters.round_tokens_to, self._longest)

    @property
    def _longest(self) -> int:
        return longest_document(self.parameters.sequence_length)

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        held_out = self.splits.held_out_batches(self._masked(self.splits.held_out))
        losses = [float(self.masked_loss(model, place(batch))) for batch in held_out]
        return {"loss": sum(losses) / len(losses), "chance_loss": math.log(self.vocabulary)}

    def flops_per_sample(self) -> float | None:
        """Of the tokens that are computed, padding included where it is kept; else of the samples loaded so far, None before the first."""
        if self.parameters.padding == "removed":
            tokens, pairs, predicted = self._mean("computed"), self._mean("pairs"), self._mean("predicted")
            return None if tokens is None else flops(self.parameters.model, tokens, pairs, predicted)
        length = self.parameters.sequence_length
        return flops(self.parameters.model, length, predicted=most_told(length) if self.parameters.prediction == "masked" else None)

    def linear_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of the blocks' linear layers."""
        kept = self.parameters.padding == "kept"
        return linear_flops(self.parameters.model, self.parameters.sequence_length if kept else self._mean("computed") or 0)

    def attention_flops_per_sample(self) -> float | None:
        """Of `flops_per_sample`, those of attention's scores and their sums; None where that is."""
        kept = self.parameters.padding == "kept"
        pairs = self.parameters.sequence_length**2 if kept else self._mean("pairs")
        return None if pairs is None else attention_flops(self.parameters.model, pairs)

    def _mean(self, what: str) -> float | None:
        """Per sample, of the batches loaded so far."""
        return self._loaded[what] / self._loaded["samples"] if self._loaded["samples"] else None

    def _masked(self, rows: Any) -> Masked:
        passages = Passages(self.splits, rows, self.parameters.sequence_length, self.parameters.lengths)
        return Masked(
            passages,
            vocabulary=self.vocabulary,
            padding=self.parameters.padding,
            prediction=self.parameters.prediction,
            multiple=self.parameters.round_tokens_to,
        )


def attention_at_transformers(attention: str) -> str:
    """Its name at transformers, under which that makes no masks: full samples need none, and a batch of others brings its own (`inputs`).

    Of full samples transformers 5.17 makes one while a CUDA graph is recorded, and torch's fused kernels refuse it.
    """
    from transformers.models.bert import modeling_bert

    from experiments.components.layers.document_attention import registered_both_ways
    from experiments.components.layers.masked_attention import masked_sdpa, registered

    if attention == "varlen":
        return registered_both_ways()
    if not hasattr(modeling_bert, "ALL_ATTENTION_FUNCTIONS"):  # an older one, which makes no masks that way
        return attention
    if attention == "sdpa":
        return registered("sweepbench_bert_fused", masked_sdpa)
    return registered("sweepbench_bert_eager", modeling_bert.eager_attention_forward)


def flops(size: str, tokens: float, pairs: float | None = None, predicted: float | None = None) -> float:
    """Training FLOPs of a sample: 3 x the forward pass's matrix products.

    `pairs` of query and key are scored; None: all, tokens x tokens. The head computes `predicted` tokens; None: all, as transformers
    computes it. So it agrees with the published 367 GFLOP (base, 512 tokens; 86 at 128).
    """
    width, layers, _, mlp, vocabulary, _ = SIZES[size]
    scored = tokens * tokens if pairs is None else pairs
    block = tokens * (4 * width * width + 2 * width * mlp) + 2 * scored * width  # q, k, v, out; MLP; scores and their sum
    return 3 * 2.0 * (layers * block + (tokens if predicted is None else predicted) * (width * width + width * vocabulary))


def linear_flops(size: str, tokens: float) -> float:
    """Of `flops`, those of the blocks' linear layers: q, k, v, out (4 width^2 weights), both of the MLP."""
    width, layers, _, mlp, _, _ = SIZES[size]
    return 3 * 2.0 * tokens * layers * (4 * width * width + 2 * width * mlp)


def attention_flops(size: str, pairs: float) -> float:
    """Of `flops`, those of the scores of so many pairs and their sums."""
    width, layers, *_ = SIZES[size]
    return 3 * 2.0 * layers * 2 * pairs * width
