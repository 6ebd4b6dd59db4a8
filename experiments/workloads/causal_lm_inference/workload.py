"""Inference of Llama 3 and Qwen 3: how long a prompt takes to its first token (prefill), and each token after it (decoding).

Phase prefill: a step reads a batch of prompts into a static cache of keys and values, and scores each one's next token. Phase decode: a
step writes `new_tokens` tokens after the prompts of the first batch, greedily, each from the one before it. These are read once, before
the first step, so every step writes the same tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from experiments.components.inference import InferenceWorkload
from experiments.components.workload import Batch, Context, Unsupported
from experiments.workloads.causal_lm.flops import forward_flops
from experiments.workloads.causal_lm.workload import CausalLm

if TYPE_CHECKING:
    import torch
    from torch import nn

    from experiments.workloads.causal_lm_inference.model import Decoder, StaticCache


def build(context: Context) -> CausalLmInference:
    """The workload on this rank. Raises DataError and Unsupported."""
    return CausalLmInference(context)


class CausalLmInference(InferenceWorkload, CausalLm):
    """See Workload."""

    records_itself = True  # a token is a graph, and a step writes many

    def __init__(self, context: Context) -> None:
        if context.parameters.cuda_graph and context.device_kind != "cuda":
            raise Unsupported(f"cuda_graph: only on cuda, and this is {context.device_kind}")
        super().__init__(context)
        self._cache: StaticCache | None = None
        self._decoding: Decoder | None = None

    @property
    def tokens_per_sample(self) -> int:
        return int(self.parameters.sequence_length if self.parameters.phase == "prefill" else self.parameters.new_tokens)

    def model(self) -> nn.Module:
        from experiments.workloads.causal_lm.model import cast
        from experiments.workloads.causal_lm_inference.model import Reader

        decoder = self._decoder().eval()
        if self.parameters.cast_weights:
            cast(decoder.parameters(), self.parameters.precision)
        return Reader(decoder)

    def batches(self) -> Iterator[Batch]:
        for batch in self.splits.batches(self._packed(self.splits.train, block=False), self.splits.train_indices()):
            yield {"input_ids": batch["input_ids"]}

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """A phase's step; of the last tokens' scores, the mean projection."""
        from experiments.workloads.causal_lm_inference.model import Decoder, StaticCache, prefill

        parameters, prompts = self.parameters, batch["input_ids"]
        decodes = parameters.phase == "decode"
        if self._cache is None:
            self._cache = StaticCache(self.shape.layers, parameters.sequence_length + decodes * parameters.new_tokens, prompts.device)
        if not decodes:
            return self.projection(prefill(model, self._cache, prompts))
        if self._decoding is None:
            self._decoding = Decoder(model, self._cache, prompts, graph=parameters.cuda_graph)
        return self.projection(self._decoding.write(parameters.new_tokens))

    def leave_graphs_out(self) -> None:
        if self._decoding is not None:
            self._decoding.leave_graph_out()

    def evaluate(self, model: Any, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """The loss over whole prompts, each token told its next one."""
        from experiments.workloads.causal_lm.model import Learner

        learner = Learner(model.decoder, attention=self.parameters.attention, loss="chunked").eval()
        losses = []
        for batch in self.splits.held_out_batches(self._packed(self.splits.held_out, block=False)):
            placed = place({name: batch[name] for name in ("input_ids", "labels")})
            losses.append(float(learner(**placed)))
        return {"loss": sum(losses) / len(losses), "chance_loss": math.log(self.shape.vocabulary)}

    def flops_per_sample(self) -> float | None:
        """Of the forward passes of a step; of a prompt, only the last token is scored."""
        prompt, new = self.parameters.sequence_length, self.parameters.new_tokens
        if self.parameters.phase == "prefill":
            return forward_flops(self.shape, prompt, self._attended, scored=1)
        return forward_flops(self.shape, new, self._attended)

    def linear_flops_per_sample(self) -> float:
        return forward_flops(self.shape, self.tokens_per_sample, 0, scored=0)

    def attention_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of attention's scores and their sums."""
        return forward_flops(self.shape, 0, self._attended, scored=0)

    @property
    def _attended(self) -> float:
        """Pairs of query and key. A written token sees the prompt and those before it; the first is written by the prompt's last token."""
        prompt, new = self.parameters.sequence_length, self.parameters.new_tokens
        return float(prompt * (prompt + 1) / 2 if self.parameters.phase == "prefill" else new * prompt + new * (new - 1) / 2)
