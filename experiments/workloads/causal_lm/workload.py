"""Training of Llama 3 and Qwen 3 on packed documents, with transformers' own models; all weights or adapters.

A sample is a sequence of `sequence_length` tokens, of which each is told its next one. The loss is over all of them: a document's last
token is asked for the next document's first, as in pre-training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from experiments.components.checkpoint import is_config_alone
from experiments.components.data.packing import Packed
from experiments.components.data.splits import Splits
from experiments.components.data.text import check_vocabulary
from experiments.components.workload import Batch, Context, Unsupported
from experiments.precision import LOW
from experiments.workloads.causal_lm.flops import TARGETS, adapter_flops, head_flops, training_flops

if TYPE_CHECKING:
    import torch
    from torch import nn


def build(context: Context) -> CausalLm:
    """The workload on this rank. Raises DataError and Unsupported."""
    return CausalLm(context)


class CausalLm:
    """See Workload."""

    find_unused_parameters = False

    def __init__(self, context: Context) -> None:
        from experiments.components.layers.causal_attention import why_not
        from experiments.workloads.causal_lm.model import shape

        self.context = context
        self.parameters: Any = context.parameters
        if reason := why_not(self.parameters.attention, context.device_kind, self.parameters.precision):
            raise Unsupported(reason)
        self.shape = shape(self.parameters)
        self.splits = Splits(context, (self.parameters.text_column, self.parameters.text_column))
        weights = self.parameters.weights
        context.fact("initial_weights", weights if weights and not is_config_alone(weights) else "random")
        self._pairs, self._sequences = 0, 0  # of the batches loaded so far: pairs of query and key, and sequences

    @property
    def tokens_per_sample(self) -> int:
        """What a rate of tokens is made of."""
        return int(self.parameters.sequence_length)

    def model(self) -> nn.Module:
        from experiments.workloads.causal_lm.model import Learner, adapt

        decoder = self._decoder()
        if self.parameters.tuning == "lora":
            decoder = adapt(decoder, self.parameters)
        return Learner(decoder, attention=self.parameters.attention, loss=self.parameters.cross_entropy).train()

    def layers(self, model: Any) -> list[nn.Module]:
        return list(model.decoder.model.layers)

    def batches(self) -> Iterator[Batch]:
        for batch in self.splits.batches(self._packed(self.splits.train, block=self._block), self.splits.train_indices()):
            self._pairs += batch.pop("pairs")
            self._sequences += len(batch["input_ids"])
            yield batch

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return model(**batch, compiled=self._compiles)  # type: ignore[no-any-return]

    @property
    def _compiles(self) -> bool:
        """Whether the loss compiles what follows its product, by inductor: on a Gaudi another back end compiles the rest."""
        return self.parameters.compile != "none" and self.context.device_kind in ("cpu", "cuda")

    def samples(self, batch: Batch) -> int:
        return len(batch["input_ids"])

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        losses = []
        for batch in self.splits.held_out_batches(self._packed(self.splits.held_out, block=self._block)):
            del batch["pairs"]
            losses.append(float(model(**place(batch))))
        return {"loss": sum(losses) / len(losses), "chance_loss": math.log(self.shape.vocabulary)}

    def flops_per_sample(self) -> float | None:
        """Of the sequences loaded so far at their mean, since attention's part depends on where documents end; None before the first."""
        return self._flops(self._pairs / self._sequences) if self._sequences else None

    def linear_flops_per_sample(self) -> float | None:
        """Of `flops_per_sample`, those of the blocks' linear layers, adapters included.

        None for adapters in a precision that computes some of a layer's three products: frozen layers have only two.
        """
        low = LOW.get(self.parameters.precision)
        if self.parameters.tuning == "lora" and low is not None and low.products in (1, 2):
            return None
        heads = 3 if self.parameters.tuning == "full" else 2
        return self._flops(0) - heads * head_flops(self.shape, self.parameters.sequence_length)

    def attention_flops_per_sample(self) -> float | None:
        """Of `flops_per_sample`, those of attention's scores and their sums; None where that is."""
        return self._flops(self._pairs / self._sequences) - self._flops(0) if self._sequences else None

    def _flops(self, pairs: float) -> float:
        parameters = self.parameters
        if parameters.tuning == "full":
            return training_flops(self.shape, parameters.sequence_length, pairs)
        targets = TARGETS[parameters.lora_targets]
        return adapter_flops(self.shape, parameters.sequence_length, pairs, rank=parameters.lora_rank, targets=targets)

    @property
    def _block(self) -> bool:
        return bool(self.parameters.packing == "block")

    def _decoder(self) -> nn.Module:
        """The model with its initial weights. Raises DataError for a tokenizer with more tokens than it knows."""
        from experiments.workloads.causal_lm.model import make

        check_vocabulary(self._tokenizer(), self.shape.vocabulary)
        return make(self.parameters)

    def _tokenizer(self) -> Any:
        return self.splits.tokenizer(self.parameters.weights, self.parameters.revision)

    def _packed(self, rows: Any, *, block: bool) -> Packed:
        return Packed(self.splits, rows, self.parameters.sequence_length, self._tokenizer(), block=block)
